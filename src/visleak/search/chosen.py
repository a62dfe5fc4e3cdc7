"""Which rescored pairs are wanted, and all of them in the order of :class:`Hits`: every engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Int64
from visleak.search.hits import Hits, Sides, Wanted
from visleak.search.rescore import Scored


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
    """Put the findings of blocks of queries together, sorted as :class:`Hits` promises.

    Args:
        parts: a block's first query, its wanted pairs and its queries' totals; in storage order.
        order: ranks of the references' ids.
    """
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
