"""How well a trained network does on pictures that it did not learn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from visleak.records import Float32, Int64
from visleak.stats import Rate

#: Neighbours that vote.
NEIGHBOURS: Final = 20

#: Similarities that are held at once.
_AT_ONCE: Final = 1 << 24


def agreeing(found: Int64, true: Int64) -> Rate:
    """Return how many of two columns of class numbers (n,) agree."""
    return Rate.of(int((found == true).sum()), len(true))


def twins_found(first: Float32, second: Float32) -> Rate:
    """Return how many rows (n, d) have their most alike row of the other matrix in their place.

    The first of equally alike rows counts as found.
    """
    found = np.concatenate(
        [alike.argmax(axis=1) for _, alike in _blocks(first, second)] or [np.empty(0, np.int64)]
    )
    return Rate.of(int((found == np.arange(len(first))).sum()), len(first))


def by_neighbours(
    query: Float32, reference: Float32, classes: Int64, neighbours: int = NEIGHBOURS
) -> Int64:
    """Return the class that the most alike references vote for, each by its similarity.

    Args:
        query: ``float32`` (n, d), unit rows.
        reference: ``float32`` (m, d), unit rows.
        classes: ``int64`` (m,): of the references, counted from 0.
        neighbours: how many vote.
    """
    count = min(neighbours, len(reference))
    found = np.empty(len(query), np.int64)
    for part, alike in _blocks(query, reference):
        nearest = np.argpartition(-alike, count - 1, axis=1)[:, :count]
        votes = np.zeros((len(alike), int(classes.max()) + 1))
        rows = np.arange(len(alike))[:, None]
        np.add.at(votes, (rows, classes[nearest]), np.take_along_axis(alike, nearest, 1))
        found[part] = votes.argmax(axis=1)
    return found


def _blocks(query: Float32, reference: Float32) -> Iterator[tuple[slice, Float32]]:
    """Yield some query rows at a time with their similarities to all references."""
    size = max(1, _AT_ONCE // max(1, len(reference)))
    for start in range(0, len(query), size):
        part = slice(start, start + size)
        yield part, query[part] @ reference.T
