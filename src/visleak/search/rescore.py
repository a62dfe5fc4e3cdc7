"""Exact similarities of selected pairs: float64 dot products of the stored vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32, Int8, Int64
from visleak.search.hits import Hits, Sides, Wanted

#: Views whose float32 similarity is this far below the best are not rescored.
VIEW_MARGIN: Final = 1e-5
CHUNK: Final = 512  # pairs rescored at a time; only bounds memory


@dataclass(frozen=True, slots=True)
class Scored:
    """Pairs with their exact similarity; ``query`` counts from the start of its block."""

    query: Int64
    reference: Int64
    similarity: Float32
    view: Int8

    def plus(self, other: Scored) -> Scored:
        """Return both."""
        return Scored(
            np.concatenate([self.query, other.query]),
            np.concatenate([self.reference, other.reference]),
            np.concatenate([self.similarity, other.similarity]),
            np.concatenate([self.view, other.view]),
        )

    def only(self, keep: Bool) -> Scored:
        """Return the kept rows."""
        return Scored(
            self.query[keep], self.reference[keep], self.similarity[keep], self.view[keep]
        )


def rescore(sides: Sides, rows: Float32, query: Int64, reference: Int64) -> Scored:
    """Return exact similarities and views of pairs, sorted by query and reference."""
    order = np.lexsort((reference, query))
    query, reference = query[order], reference[order]
    similarity = np.empty(len(query), np.float32)
    view = np.empty(len(query), np.int8)
    stacked = _views_of(sides, rows)
    for start in range(0, len(query), CHUNK):
        part = slice(start, start + CHUNK)
        similarity[part], view[part] = _best_views(sides, stacked, query[part], reference[part])
    return Scored(query, reference, similarity, view)


def _views_of(sides: Sides, rows: Float32) -> Float32:
    """Return the rows as seen in every view, (n, views, d)."""
    if sides.make is None:
        return rows[:, None, :]
    make = sides.make
    return np.stack([rows if view == 0 else make(rows, view) for view in sides.views], axis=1)


def _best_views(
    sides: Sides, stacked: Float32, query: Int64, reference: Int64
) -> tuple[Float32, Int8]:
    """Return the largest similarity over the views, and the first view that has it."""
    vectors = np.asarray(sides.reference[reference])
    rough = np.empty((len(query), stacked.shape[1]), np.float32)
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(query)], strict=True):
        rough[start:stop] = vectors[start:stop] @ stacked[query[start]].T
    pair, place = np.nonzero(rough >= rough.max(axis=1, keepdims=True) - np.float32(VIEW_MARGIN))
    exact = np.full(rough.shape, -np.inf, np.float32)
    # einsum sums each row by itself, so a pair's value does not depend on its neighbours
    exact[pair, place] = np.einsum(
        "ij,ij->i",
        stacked[query[pair], place].astype(np.float64),
        vectors[pair].astype(np.float64),
    )
    best = exact.argmax(axis=1)
    views = np.array(sides.views, np.int8)
    return exact[np.arange(len(query)), best], views[best]


def chosen(scored: Scored, sides: Sides, wanted: Wanted) -> Bool:
    """Return which rescored pairs are wanted: the best of each query, and those by threshold."""
    tie = sides.order[scored.reference]
    keep = np.zeros(len(scored.query), np.bool_)
    if wanted.best:
        corrected = scored.similarity.astype(np.float64) - sides.penalty[scored.reference]
        keep |= _rank(scored.query, corrected, tie) < wanted.best
    if wanted.threshold is not None:
        reached = scored.similarity >= np.float32(wanted.threshold)
        similarity = np.where(reached, scored.similarity, -np.inf)
        keep |= reached & (_rank(scored.query, similarity, tie) < wanted.cap)
    return keep


def _rank(query: Int64, value: npt.NDArray[np.floating], tie: Int64) -> Int64:
    """Return each row's place among the rows of its query, from 0, higher values first."""
    order = np.lexsort((tie, -value, query))
    rank = np.empty(len(query), np.int64)
    rank[order] = np.arange(len(query)) - np.searchsorted(query[order], query[order])
    return rank


def joined(parts: Sequence[tuple[int, Scored, Int64]], order: Int64) -> Hits:
    """Put the findings of blocks of queries together, sorted as :class:`Hits` promises."""
    query = np.concatenate([scored.query + start for start, scored, _ in parts])
    reference = np.concatenate([scored.reference for _, scored, _ in parts])
    similarity = np.concatenate([scored.similarity for _, scored, _ in parts])
    view = np.concatenate([scored.view for _, scored, _ in parts])
    sorted_ = np.lexsort((order[reference], -similarity, query))
    return Hits(
        query=query[sorted_],
        reference=reference[sorted_],
        similarity=similarity[sorted_],
        view=view[sorted_],
        total=np.concatenate([total for _, _, total in parts]),
    )


def no_hits(queries: int) -> Hits:
    """Return the answer of a search without references."""
    empty = np.empty(0, np.int64)
    return Hits(
        empty, empty, np.empty(0, np.float32), np.empty(0, np.int8), np.zeros(queries, np.int64)
    )
