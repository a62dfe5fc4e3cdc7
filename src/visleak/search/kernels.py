"""Kernels: fast upper bounds on the similarity of every query to every reference of a block.

A kernel rotates both sides by an orthogonal basis first. :class:`TruncatedKernel` keeps the
first coordinates and bounds the rest by the product of the norms (Cauchy-Schwarz), so that the
full product is needed only where the bound reaches what is asked for. :class:`DihedralKernel`
is for encoders whose eight mirror and turn views are signed permutations of one vector: in a
basis of the group's irreducible representations (Serre 1977, section 2.6) all eight views cost
1.5 plain products instead of 8, without rounding anything off.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.records import VIEWS, Float32
from visleak.search.hits import Rows, ViewMaker

#: Characters of the four one-dimensional representations at the eight dihedral views.
CHARACTERS: Final = (
    (1, 1, 1, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, -1, -1, -1, -1),
    (1, -1, 1, -1, 1, -1, 1, -1),
    (1, -1, 1, -1, -1, 1, -1, 1),
)
SAMPLE_ROWS: Final = 4096  # rows the basis is learnt from, spread evenly over the references


class Kernel(Protocol):
    """Upper bounds on similarities, a block of queries against a block of references at a time."""

    tight: bool  # the bounds are the similarities themselves (to about 1e-6)

    def prepare(self, rows: Float32, *, query: bool) -> Float32:
        """Return rows in the kernel's own coordinates; references and queries may differ."""
        ...

    def bounds(self, query: Float32, reference: Float32) -> Float32:
        """Return (n, m) upper bounds on the similarity over all views of prepared rows."""
        ...


def orthogonal_basis(reference: Float32 | Rows) -> npt.NDArray[np.float64]:
    """Return the principal axes (d, d) of a sample of the references, strongest first."""
    sample = _sample(reference)
    _, axes = np.linalg.eigh(sample.T @ sample)
    return np.asarray(axes[:, ::-1])


def _sample(rows: Float32 | Rows) -> npt.NDArray[np.float64]:
    """Return at most SAMPLE_ROWS rows, evenly spread."""
    step = max(1, len(rows) // SAMPLE_ROWS)
    return np.asarray(rows[::step], np.float64)


class TruncatedKernel:
    """First ``kept`` principal coordinates and a bound on the rest, for each of some views."""

    tight = False

    def __init__(
        self,
        reference: Float32 | Rows,
        kept: int,
        views: tuple[int, ...] = (0,),
        make: ViewMaker | None = None,
    ) -> None:
        self._axes = orthogonal_basis(reference)[:, :kept].astype(np.float32)
        self._views = views
        self._make = make

    def prepare(self, rows: Float32, *, query: bool) -> Float32:
        """Return (n, kept + 1) coordinates, for queries (views, n, kept + 1) laid side by side."""
        if not query:
            return self._coordinates(rows)
        return np.concatenate(
            [self._coordinates(self._seen(rows, view)) for view in self._views], 1
        )

    def _seen(self, rows: Float32, view: int) -> Float32:
        return rows if view == 0 or self._make is None else self._make(rows, view)

    def _coordinates(self, rows: Float32) -> Float32:
        first = rows @ self._axes
        squared = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", first, first)
        # a little more than the norm of the rest, so that rounding never makes a bound too low
        rest = np.sqrt(np.maximum(squared, 0.0) + 1e-6)
        return np.concatenate([first, rest[:, None]], axis=1)

    def bounds(self, query: Float32, reference: Float32) -> Float32:
        """Return (n, m) upper bounds, the largest over the views."""
        width = reference.shape[1]
        best = query[:, :width] @ reference.T
        for start in range(width, query.shape[1], width):
            np.maximum(best, query[:, start : start + width] @ reference.T, out=best)
        return best


@dataclass(frozen=True)
class DihedralBasis:
    """An orthogonal basis in which mirrors and quarter turns act in the simplest way."""

    axes: Float32  # float32 (d, d); columns grouped into edges
    # column limits of the four one-dimensional parts, then x and y of the two-dimensional
    edges: tuple[int, ...]
    flipped: npt.NDArray[np.int64]  # coordinates whose sign the inverted view flips


@lru_cache(maxsize=4)
def dihedral_basis(width: int, make: ViewMaker) -> DihedralBasis | None:
    """Return the basis for an encoder's views, or ``None`` where they are not that group.

    The views must act as orthogonal matrices that multiply like the symmetries of the square,
    and the inverted view as a change of signs that commutes with them. Kept between calls, for
    making it takes longer than a small search.
    """
    identity = np.eye(width, dtype=np.float32)
    actions = [make(identity, view).astype(np.float64) for view in range(len(VIEWS))]
    turn, mirror, inverted = actions[1], actions[4], actions[8]
    turns = [np.eye(width), turn, turn @ turn, turn @ turn @ turn]
    expected = itertools.chain(turns, (mirror @ each for each in turns))
    if not all(np.allclose(a, b) for a, b in zip(expected, actions[:8], strict=True)):
        return None
    if not all(np.allclose(a @ a.T, np.eye(width)) for a in (turn, mirror)):
        return None
    signs = np.diag(inverted)
    diagonal = np.allclose(inverted, np.diag(signs)) and np.allclose(np.abs(signs), 1)
    closed = np.allclose(turn @ turn @ turn @ turn, np.eye(width))
    closed = closed and np.allclose(turn @ mirror @ turn, mirror)
    if not (diagonal and closed):
        return None
    parts = [_range_of(sum_of(character, actions[:8]) / 8) for character in CHARACTERS]
    plane = (actions[0] - actions[2]) / 2
    x_axes = _range_of(plane @ (actions[0] + mirror) / 2)
    parts += [x_axes, turn.T @ x_axes]
    edges = np.cumsum([0] + [part.shape[1] for part in parts])
    return DihedralBasis(
        axes=np.concatenate(parts, axis=1).astype(np.float32),
        edges=tuple(int(edge) for edge in edges),
        flipped=np.flatnonzero(signs < 0),
    )


def sum_of(
    weights: tuple[int, ...], matrices: list[npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """Return the weighted sum of matrices."""
    total = np.zeros_like(matrices[0])
    for weight, matrix in zip(weights, matrices, strict=True):
        total += weight * matrix
    return total


def _range_of(projector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return an orthonormal basis of what a projector leaves in place."""
    values, axes = np.linalg.eigh((projector + projector.T) / 2)
    return np.asarray(axes[:, values > 0.5])


class DihedralKernel:
    """All eight mirror and turn views, and inversion, from 1.5 plain products.

    With q and r in the basis, the similarity of view g of q to r is the sum of the products of
    the one-dimensional parts, each times its character at g, and the trace of the 2 x 2 action
    of g times the 2 x 2 matrix of products of the x and y coordinates.
    """

    tight = True

    def __init__(self, basis: DihedralBasis) -> None:
        self._basis = basis

    def prepare(self, rows: Float32, *, query: bool) -> Float32:
        """Return rows in the basis, and behind them the coordinates that inversion flips."""
        flipped = rows[:, self._basis.flipped] * (-2.0 if query else 1.0)
        return np.concatenate([rows @ self._basis.axes, flipped], axis=1, dtype=np.float32)

    def bounds(self, query: Float32, reference: Float32) -> Float32:
        """Return the (n, m) largest similarity over the nine views."""
        edges = self._basis.edges
        parts = [slice(a, b) for a, b in itertools.pairwise(edges)]
        a1, a2, b1, b2 = (query[:, p] @ reference[:, p].T for p in parts[:4])
        x, y = parts[4], parts[5]
        xx, yy = query[:, x] @ reference[:, x].T, query[:, y] @ reference[:, y].T
        xy, yx = query[:, x] @ reference[:, y].T, query[:, y] @ reference[:, x].T
        upright, across = _sum_difference(a1, a2)
        straight, aslant = _sum_difference(b1, b2)
        half_turns, quarter_turns = _sum_difference(upright, straight)
        mirrors, transposes = _sum_difference(across, aslant)
        same, opposed = _sum_difference(xx, yy)
        crossed, turned = _sum_difference(xy, yx)
        inverted = query[:, edges[-1] :] @ reference[:, edges[-1] :].T
        inverted += half_turns
        inverted += same
        best = _add_magnitude(half_turns, same)
        np.maximum(best, inverted, out=best)
        np.maximum(best, _add_magnitude(quarter_turns, turned), out=best)
        np.maximum(best, _add_magnitude(mirrors, opposed), out=best)
        return np.asarray(np.maximum(best, _add_magnitude(transposes, crossed), out=best))


def _sum_difference(a: Float32, b: Float32) -> tuple[Float32, Float32]:
    """Return a + b and a - b; the first takes the place of a."""
    difference = a - b
    a += b
    return a, difference


def _add_magnitude(a: Float32, b: Float32) -> Float32:
    """Return a + |b| in place of a; b is used up."""
    np.abs(b, out=b)
    a += b
    return a
