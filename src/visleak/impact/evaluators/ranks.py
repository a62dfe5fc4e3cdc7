"""The rank of an image's own caption among all captions (Ramos et al. 2025, table 4).

The rank is 1 plus the number of foreign captions that are at least as similar to the image as the
best of its own: a tie counts against the image, so that a model without any discrimination
finds nothing. Similarities are compared as the package stores them, the float64 dot product of the
float32 vectors, rounded to float32: blocks and libraries of linear algebra never change a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from visleak.records import Bool, Float32, Int8, Int64
from visleak.stats import Rate
from visleak.stats.draws import part_draws

#: Similarities in memory at a time: 16 MB, and where all are ties, some 100 bytes each.
CELLS: Final = 4_000_000

PAIRS: Final = 65_536  # pairs that are computed exactly at a time


@dataclass(frozen=True)
class Sides:
    """Images and the captions that they are compared with."""

    images: Float32  # (n, d), unit rows
    captions: Float32  # (m, d), unit rows: the whole collection
    # (m,): row of the image that a caption is of; -1 where that image is not among them
    owner: Int64

    def __post_init__(self) -> None:
        if self.owner.shape != (len(self.captions),):
            raise ValueError(f"{len(self.captions)} captions must have {len(self.captions)} owners")
        if len(self.owner) and not -1 <= self.owner.min() <= self.owner.max() < len(self.images):
            raise ValueError(f"an owner must be -1 or a row of the {len(self.images)} images")


def ranks(
    sides: Sides, block: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Int64:
    """Return the rank of the best own caption of every image, (n,); 0 where it has none."""
    own = best_own(sides)
    step = block or max(int(CELLS**0.5), 1)
    ahead = np.zeros(len(own), np.int64)
    for start in range(0, len(own), step):
        rows = np.arange(start, min(start + step, len(own)))
        for first in range(0, len(sides.captions), step):
            columns = np.arange(first, min(first + step, len(sides.captions)))
            ahead[rows] += _ahead(sides, own, rows, columns)
        if progress is not None:
            progress(int(rows[-1]) + 1, len(own))
    return np.where(np.isneginf(own), 0, ahead + 1)


def best_own(sides: Sides) -> Float32:
    """Return the similarity of each image to the most similar of its own captions, (n,).

    Minus infinity where it has none.
    """
    best = np.full(len(sides.images), -np.inf, np.float32)
    captions = np.flatnonzero(sides.owner >= 0)
    similarity = exact(sides, sides.owner[captions], captions)
    np.maximum.at(best, sides.owner[captions], similarity)
    return best


def exact(sides: Sides, image: Int64, caption: Int64) -> Float32:
    """Return the similarities of pairs, (p,): float64 dot products rounded to float32."""
    similarity = np.empty(len(image), np.float32)
    for start in range(0, len(image), PAIRS):
        part = slice(start, start + PAIRS)
        # einsum sums each row by itself, so a pair's value does not depend on its neighbours
        similarity[part] = np.einsum(
            "ij,ij->i",
            sides.images[image[part]].astype(np.float64),
            sides.captions[caption[part]].astype(np.float64),
        )
    return similarity


def _ahead(sides: Sides, own: Float32, rows: Int64, columns: Int64) -> Int64:
    """Return how many foreign captions of a block are ahead of each image's best own, (rows,)."""
    rough = sides.images[rows[0] : rows[-1] + 1] @ sides.captions[columns[0] : columns[-1] + 1].T
    margin = _margin(sides.images.shape[1])
    floor = own[rows, None]
    sure = rough > floor + margin
    counts: Int64 = np.count_nonzero(sure, axis=1).astype(np.int64)
    near = (rough >= floor - margin) & ~sure
    row, column = np.nonzero(near)
    foreign: Bool = sides.owner[columns[column]] != rows[row]
    row, column = row[foreign], column[foreign]
    level = exact(sides, rows[row], columns[column]) >= own[rows[row]]
    counts += np.bincount(row[level], minlength=len(rows))
    return counts


def _margin(width: int) -> np.float32:
    """Return a bound on the rounding error of a float32 dot product of unit rows.

    Higham (2002), "Accuracy and Stability of Numerical Algorithms", section 3.1: n u / (1 - n u)
    times the sum of the products' sizes, which for unit rows is at most 1; four units in the last
    place for the rows' own lengths and for the comparison.
    """
    unit = 2.0**-24
    return np.float32(width * unit / (1 - width * unit) + 4 * unit)


AT: Final = (1, 5, 10)  # the ranks up to which a caption counts as found

#: The paper's protocol: number of queries, and of draws.
DRAWN: Final = 200
DRAWS: Final = 10


@dataclass(frozen=True, slots=True)
class Drawn:
    """Recall of repeated draws of queries."""

    # mean, deviation: over the draws; the deviation is that of a sample (n - 1)
    mean: float
    deviation: float
    queries: int = DRAWN  # of a draw
    draws: int = DRAWS  # number of draws


@dataclass(frozen=True, slots=True)
class Recall:
    """How often an image finds its caption among the first."""

    k: int  # how many of the first count
    share: Rate  # of all queries, once
    drawn: Drawn | None  # of draws of them; `None` where there are no more queries than in a draw

    def plain(self) -> dict[str, object]:
        """Return the numbers, for JSON."""
        share = self.share
        ends = {"value": share.share, "low": share.low, "high": share.high}
        counts = {"found": share.count, "queries": share.total}
        return {"k": self.k, **ends, **counts, "drawn": self.drawn and asdict(self.drawn)}


def hit_columns(ranks: Int64) -> Mapping[str, Int8]:
    """Return whether each query found a caption of its own by each rank: ``r@1``, ``r@5``, ...

    >>> {name: list(map(int, hits)) for name, hits in hit_columns(np.array([1, 6])).items()}
    {'r@1': [1, 0], 'r@5': [1, 0], 'r@10': [1, 1]}
    """
    return {f"r@{k}": (ranks <= k).astype(np.int8) for k in AT}


def recalls(ranks: Int64, seed: int = 0) -> Sequence[Recall]:
    """Return the recall at each of :data:`AT`.

    ``ranks`` (n,), from 1.
    """
    hits = np.stack(list(hit_columns(ranks).values()), axis=1).astype(np.float64)
    drawn: list[Drawn | None] = [None] * len(AT)
    if len(ranks) > DRAWN:
        scores = part_draws(hits, np.ones(len(ranks), np.bool_), DRAWN, DRAWS, seed).scores
        deviation = scores.std(axis=0, ddof=1)
        drawn = [Drawn(*pair) for pair in zip(scores.mean(axis=0), deviation, strict=True)]
    return [
        Recall(k, Rate.of(int(hits[:, place].sum()), len(ranks)), drawn[place])
        for place, k in enumerate(AT)
    ]
