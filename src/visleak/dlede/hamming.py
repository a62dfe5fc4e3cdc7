"""Hamming distances of all test-train pairs of hashes, exact, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.pipeline.workplace import Progress, silent
from visleak.records import Bytes8, Float32, Int64

Words = npt.NDArray[np.uint64]

#: Bits of a hash: the greatest distance.
BITS: Final = 64

#: Test and training hashes that are compared at once; their distances stay in the cache.
BLOCK: Final = (256, 4096)

#: Distances that are looked at once for the most alike pairs.
LOOKED_AT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Distances:
    """Hamming distances of all test-train pairs.

    Attributes:
        histogram: ``int64`` (65,), number of pairs at each distance.
        nearest: ``uint8`` (test hashes,), distance of the nearest training hash; 65 where there
            is no training hash.
    """

    histogram: Int64
    nearest: Bytes8


def distances(
    test: Words, train: Words, *, block: tuple[int, int] = BLOCK, progress: Progress = silent
) -> Distances:
    """Compare all pairs.

    Args:
        test, train: ``uint64`` hashes (n,) and (m,).
        block: how many of each are compared at once; never changes the answer.
        progress: is told how many test hashes are done.
    """
    histogram = np.zeros(BITS + 1, np.int64)
    nearest = np.full(len(test), BITS + 1, np.uint8)
    rows, columns = block
    for start in range(0, len(test), rows):
        signs = _signs(test[start : start + rows])
        least = nearest[start : start + rows]
        for first in range(0, len(train), columns):
            found = _between(signs, train[first : first + columns])
            histogram += _counts(found)
            np.minimum(least, found.min(axis=1), out=least)
        progress("comparing hashes", min(start + rows, len(test)), len(test))
    return Distances(histogram, nearest)


def most_alike(
    test: Words, train: Words, found: Distances, count: int
) -> tuple[Int64, Int64, Bytes8]:
    """Return the most alike pairs: least distance first, then test row, then training row.

    Compares again only test hashes that can have such a pair, at most twice ``count``.

    Args:
        test, train: as they were compared; of equal distances the first rows are taken.
        found: their distances.
        count: how many pairs, if there are so many.

    Returns:
        Test rows, training rows and distances, (k,) each.
    """
    count = min(count, int(found.histogram.sum()))
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8)
    upto = np.cumsum(found.histogram)
    last = int(np.searchsorted(upto, count))
    # pairs below the last distance are all taken, of those at it the first
    missing = count - int(upto[last] - found.histogram[last])
    below = np.flatnonzero(found.nearest < last)
    at = np.flatnonzero(found.nearest == last)[:missing]
    parts = []
    for part in _few(np.sort(np.concatenate([below, at])), len(train)):
        rows = part if missing else part[found.nearest[part] < last]
        apart = _between(_signs(test[rows]), train)
        taken = apart < last
        ties = np.flatnonzero(apart == last)[:missing]
        missing -= len(ties)
        taken.ravel()[ties] = True
        row, column = np.nonzero(taken)
        parts.append((rows[row], column, apart[row, column]))
    test_rows, train_rows, apart = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.lexsort((train_rows, test_rows, apart))
    return test_rows[order], train_rows[order], apart[order]


def _few(rows: Int64, width: int) -> Iterator[Int64]:
    """Yield rows in parts whose distances to so many others fit the memory."""
    size = max(1, LOOKED_AT // width)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _signs(words: Words) -> Float32:
    """Return +1 for every bit that is set and -1 for the others, (n, 64)."""
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, BITS)
    return bits.astype(np.float32) * np.float32(2) - np.float32(1)


def _between(signs: Float32, train: Words) -> Bytes8:
    """Return the distances of test hashes, as signs, and training hashes, ``uint8`` (n, m).

    Equal bits count +1 in the product of signs and others -1: it is 64 - 2 d, exactly, for
    ``float32`` holds every partial sum.
    """
    product = signs @ (_signs(train) * np.float32(-0.5)).T
    product += np.float32(BITS / 2)
    return product.astype(np.uint8)


def _counts(apart: Bytes8) -> Int64:
    """Return how often each distance occurs, (65,)."""
    import cv2

    # OpenCV counts in float32, which is exact up to 2 ** 24
    rows = max(1, (1 << 24) // apart.shape[1])
    counted = np.zeros(BITS + 1, np.int64)
    for start in range(0, len(apart), rows):
        part = cv2.calcHist([apart[start : start + rows]], [0], None, [BITS + 1], [0, BITS + 1])
        counted += part.ravel().astype(np.int64)
    return counted
