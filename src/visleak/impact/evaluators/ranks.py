"""At which rank an image finds its own caption among all captions (Ramos et al. 2025, table 4).

The rank is 1 plus the number of foreign captions that are at least as similar to the image as the
best of its own: a tie counts against the image, so that a model that tells nothing apart finds
nothing. Similarities are compared as the package stores them, the float64 dot product of the
float32 vectors, rounded to float32: blocks and libraries of linear algebra never change a rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.records import Bool, Float32, Int64

#: Similarities that are held at a time: 16 MB, and where all are ties, some 100 bytes each.
CELLS: Final = 4_000_000

#: Pairs that are compared again at a time.
PAIRS: Final = 65_536


@dataclass(frozen=True)
class Sides:
    """Images that look for their captions.

    Attributes:
        images: ``float32`` (n, d), unit rows.
        captions: ``float32`` (m, d), unit rows: the whole collection.
        owner: ``int64`` (m,): row of the image that a caption is of; -1 where that image is not
            among them.
    """

    images: Float32
    captions: Float32
    owner: Int64

    def __post_init__(self) -> None:
        if self.owner.shape != (len(self.captions),):
            raise ValueError(f"{len(self.captions)} captions must have {len(self.captions)} owners")
        if len(self.owner) and not -1 <= self.owner.min() <= self.owner.max() < len(self.images):
            raise ValueError(f"an owner must be -1 or a row of the {len(self.images)} images")


def ranks(
    sides: Sides, block: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Int64:
    """Return the rank of the best own caption of every image, (n,); 0 where it has none.

    Args:
        sides: images and captions.
        block: images and captions compared at a time; by default what :data:`CELLS` allows.
        progress: is told how many images are done, of how many.
    """
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
    """Return more than what rounding may do to a float32 dot product of unit rows.

    Higham (2002), "Accuracy and Stability of Numerical Algorithms", section 3.1: n u / (1 - n u)
    times the sum of the products' sizes, which for unit rows is at most 1; four units in the last
    place for the rows' own lengths and for the comparison.
    """
    unit = 2.0**-24
    return np.float32(width * unit / (1 - width * unit) + 4 * unit)
