"""Which first part a screen should use: chosen by what it would cost, measured on a sample.

The choice never changes an answer, only how long it takes. For unit vectors the bound of
:mod:`visleak.search.streaming_screen` is ``1 - (|q1 - r1|^2 + (|q2| - |r2|)^2) / 2``, so the best
axes are those along which queries and references differ most. Where vectors spread evenly no axes
beat the stored coordinates, and these need no product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.records import Float32
from visleak.search.hits import Wanted
from visleak.search.streaming_screen import Part
from visleak.vectors import unit_rows

#: Rows of either side that the costs are measured on.
TRIED_QUERIES: Final = 256
TRIED_ROWS: Final = 1024

#: Rows of either side that axes are found from.
LEARNT_FROM: Final = 4096

#: A sample is read in so many runs: a file gives runs faster than single rows.
RUNS: Final = 16

#: Costs in multiply-adds of the matrix product: to compare a pair with the floor, to look at one
#: that reached it in full, to cut a coordinate out of a row, and to find the axes of a width of 1.
COMPARING: Final = 10.0
LOOKING: Final = 13_000.0
CUTTING: Final = 10.0
FINDING_AXES: Final = 250.0

#: How many coordinates to try, in shares of the width.
SHARES: Final = (1 / 64, 1 / 32, 3 / 64, 1 / 16, 3 / 32, 1 / 8, 9 / 64, 5 / 32, 11 / 64,
                 3 / 16, 7 / 32, 1 / 4, 5 / 16, 3 / 8, 1 / 2)  # fmt: skip


def whole(width: int) -> Part:
    """Return the part that leaves no rest: the plain product."""
    return Part(0, width)


def sampled(stored: npt.NDArray[Any], count: int, shift: int = 0) -> Float32:
    """Return unit rows of some runs of a matrix, the broken ones left out.

    Args:
        stored: (n, d).
        count: about how many rows.
        shift: runs by which to step aside, for other rows; where there are few, they overlap.
    """
    if not len(stored):
        return np.empty(stored.shape, np.float32)
    length = -(-min(count, len(stored)) // RUNS)
    starts = np.linspace(0, len(stored) - length, RUNS).astype(np.int64)
    rows = np.unique((starts[:, None] + shift * length + np.arange(length)).ravel() % len(stored))
    read = unit_rows(stored[rows])
    return read.matrix[~read.broken]


def choose(query: Float32, stored: npt.NDArray[Any], wanted: Wanted, rows: int) -> Part:
    """Return the part that promises to cost least.

    Args:
        query: ``float32`` (n, d): unit rows.
        stored: (m, d): a partition, of which a sample is read.
        wanted: which pairs.
        rows: how many will be searched with it, in this partition and in others.
    """
    width = query.shape[1]
    left, right = sampled(query, TRIED_QUERIES), sampled(stored, TRIED_ROWS)
    plain = len(query) * (width + COMPARING)
    choices = [(plain, whole(width))]
    if not len(right):
        return choices[0][1]
    floor = _expected_floor(left, right, wanted, rows)
    for part in _runs(left, right):
        choices.append((_cost(len(query), part, left, right, floor), part))
    cheapest = min(choices, key=lambda choice: choice[0])
    if cheapest[0] * rows > FINDING_AXES * width**3:
        # from other rows than they are tried on, for which they would seem better than they are
        axes = _axes(sampled(query, LEARNT_FROM, shift=1), sampled(stored, LEARNT_FROM, shift=1))
        for kept in _sizes(width):
            part = Part(0, kept, np.ascontiguousarray(axes[:, :kept]))
            choices.append((_cost(len(query), part, left, right, floor), part))
        cheapest = min(choices, key=lambda choice: choice[0])
    return cheapest[1]


def _sizes(width: int) -> Iterator[int]:
    """Yield numbers of coordinates to try, each once."""
    yield from sorted({max(1, round(width * share)) for share in SHARES} - {width})


def _runs(left: Float32, right: Float32) -> Iterator[Part]:
    """Yield the runs of stored coordinates in which the two sides differ most, one a size."""
    spread = (left.astype(np.float64) ** 2).mean(axis=0) + (right.astype(np.float64) ** 2).mean(
        axis=0
    )
    spread -= 2 * left.mean(axis=0, dtype=np.float64) * right.mean(axis=0, dtype=np.float64)
    sums = np.concatenate([[0.0], np.cumsum(spread)])
    for kept in _sizes(left.shape[1]):
        start = int(np.argmax(sums[kept:] - sums[:-kept]))
        yield Part(start, start + kept)


def _axes(left: Float32, right: Float32) -> Float32:
    """Return orthonormal axes (d, k), those along which the two sides differ most first."""
    one, other = left.astype(np.float64), right.astype(np.float64)
    across = np.outer(one.mean(axis=0), other.mean(axis=0))
    moment = one.T @ one / len(one) + other.T @ other / len(other) - across - across.T
    _, axes = np.linalg.eigh(moment)
    return axes[:, ::-1].astype(np.float32)


def _cost(
    queries: int, part: Part, left: Float32, right: Float32, floor: npt.NDArray[np.float64]
) -> float:
    """Return what a part would cost a reference, in multiply-adds."""
    first, second = part.of(left), part.of(right)
    rests = [np.sqrt(np.maximum(1 - np.einsum("ij,ij->i", p, p), 0)) for p in (first, second)]
    bounds = first @ second.T + np.outer(*rests)
    passing = float((bounds >= floor[:, None]).mean())
    making = part.kept * CUTTING if part.axes is None else part.kept * left.shape[1]
    return making + queries * (part.kept + COMPARING + passing * LOOKING)


def _expected_floor(
    left: Float32, right: Float32, wanted: Wanted, rows: int
) -> npt.NDArray[np.float64]:
    """Return about where the floor of the sampled queries will lie, most of the time."""
    threshold = np.inf if wanted.threshold is None else wanted.threshold
    floor = np.full(len(left), threshold)
    if wanted.best:
        # the share of the best among the rows, halfway through them
        share = min(1.0, 2 * wanted.best / max(1, rows))
        floor = np.minimum(floor, np.quantile(left @ right.T, 1 - share, axis=1))
    return floor
