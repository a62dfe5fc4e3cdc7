"""What an index of faiss finds: candidates for the best and by threshold, each scored exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from visleak.records import Bool, Float32, Int64
from visleak.search.chosen import chosen, joined
from visleak.search.exact import MARGIN
from visleak.search.faiss_index import Effort, Index
from visleak.search.hits import Hits, Sides, Wanted
from visleak.search.rescore import Scored, rescore

#: Queries whose candidates are collected at a time; fewer where there are floods.
QUERY_BLOCK: Final = 256

#: Candidates a block of queries should not exceed; only bounds memory.
CROWD: Final = 1_000_000

#: Fetched beyond the best that are wanted, so that ties at the end show.
SPARE: Final = 12

#: Neighbours asked for first where only more and more of them tell which reach a threshold.
FIRST_NEIGHBOURS: Final = 64


def found(index: Index, sides: Sides, wanted: Wanted, rows: Int64, effort: Effort) -> Hits:
    """Return what an index finds for some queries.

    Args:
        index: of the references.
        sides, wanted: the question.
        rows: of the queries, ascending; the hits are numbered as in ``sides.query``.
        effort: how hard to look.
    """
    index.set(effort)
    parts, totals = [], np.zeros(len(sides.query), np.int64)
    start, block = 0, 16
    while start < len(rows):
        mine = rows[start : start + block]
        query, reference = candidates(index, sides, wanted, mine, effort)
        vectors = np.asarray(sides.query[mine])
        scored = rescore(sides, vectors, query, reference)
        if wanted.threshold is not None:
            reached = scored.only(scored.similarity >= np.float32(wanted.threshold))
            weight = 1 if sides.weight is None else sides.weight[reached.reference]
            np.add.at(totals, mine[reached.query], weight)
        kept = scored.only(chosen(scored, sides, wanted))
        parts.append(Scored(mine[kept.query], kept.reference, kept.similarity, kept.view))
        start += len(mine)
        block = _next_block(block, len(query))
    none = np.empty(0, np.int64)
    hits = joined([(0, part, none) for part in parts], sides.order)
    return replace(hits, total=totals)


def _next_block(block: int, candidates: int) -> int:
    """Return how many queries to take next, after how many candidates the last ones had."""
    if candidates > CROWD:
        return max(1, block // 4)
    return min(QUERY_BLOCK, 2 * block) if 4 * candidates < CROWD else block


def candidates(
    index: Index, sides: Sides, wanted: Wanted, rows: Int64, effort: Effort
) -> tuple[Int64, Int64]:
    """Return pairs worth scoring exactly: place in ``rows``, and reference; each pair once."""
    vectors = np.asarray(sides.query[rows])
    seen = [
        vectors if v == 0 or sides.make is None else sides.make(vectors, v) for v in sides.views
    ]
    stacked = np.ascontiguousarray(np.stack(seen, axis=1).reshape(-1, vectors.shape[1]))
    owner = np.repeat(np.arange(len(rows)), len(sides.views))
    pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    if wanted.best:
        pairs.append(_best(index, sides, wanted.best, rows, stacked, owner, effort))
    if wanted.threshold is not None:
        radius = wanted.threshold - MARGIN - index.slack
        pairs.append(_reaching(index, stacked, owner, radius))
    query, reference = (np.concatenate(column) for column in zip(*pairs, strict=True))
    keys = np.unique(query * len(sides.order) + reference)
    query, reference = np.divmod(keys, len(sides.order))
    if sides.same:
        others = rows[query] != reference
        query, reference = query[others], reference[others]
    return query, reference


def _best(
    index: Index,
    sides: Sides,
    best: int,
    rows: Int64,
    stacked: Float32,
    owner: Int64,
    effort: Effort,
) -> tuple[Int64, Int64]:
    """Return candidates for the best of each query: place in ``rows``, and reference.

    A reference among a query's best over all views is among the best of the view it is best in.
    """
    count = best * effort.fetch + sides.same + (SPARE if index.exact else 0)
    scores, ids = index.nearest(stacked, count, penalised=True)
    query = np.repeat(owner, ids.shape[1])
    reference, score = ids.ravel(), scores.ravel()
    there = reference >= 0
    if sides.same:
        there &= rows[query] != reference
    query, reference, score = query[there], reference[there], score[there]
    if index.layout.kind == "ivfpq":  # its scores are those of codes: too rough to leave any out
        return query, reference
    floor = _floor(query, reference, score, len(rows), best) - np.float32(MARGIN)
    keep = score >= floor[query]
    query, reference = query[keep], reference[keep]
    if not index.exact or ids.shape[1] == len(index):
        return query, reference
    # where as many as were fetched are equally good, all that are have to be looked at
    tied = np.flatnonzero(scores[:, -1] >= floor[owner])
    lists = [
        index.reaching(stacked[[row]], float(floor[owner[row]]), penalised=True)[2] for row in tied
    ]
    owners = np.repeat(owner[tied], [len(each) for each in lists])
    return np.concatenate([query, owners]), np.concatenate([reference, *lists])


def _floor(query: Int64, reference: Int64, score: Float32, queries: int, best: int) -> Float32:
    """Return each query's score of its last place among the best, over distinct references."""
    order = np.lexsort((-score, reference, query))
    query, reference, score = query[order], reference[order], score[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (query[1:] != query[:-1]) | (reference[1:] != reference[:-1])
    query, score = query[first], score[first]
    order = np.lexsort((-score, query))
    query, score = query[order], score[order]
    place = np.arange(len(order)) - np.searchsorted(query, query)
    floor = np.full(queries, -np.inf, np.float32)
    last = place == best - 1
    floor[query[last]] = score[last]
    return floor


def _reaching(index: Index, stacked: Float32, owner: Int64, radius: float) -> tuple[Int64, Int64]:
    """Return candidates from a score on: owner of the row, and reference."""
    if index.by_range:
        row, _, reference = index.reaching(stacked, radius, penalised=False)
        return owner[row], reference
    found_query, found_reference = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    left, count = np.arange(len(stacked)), FIRST_NEIGHBOURS
    while len(left):
        scores, ids = index.nearest(stacked[left], count, penalised=False)
        inside: Bool = (ids >= 0) & (scores >= radius)
        whole = ~inside[:, -1] if count < len(index) else np.ones(len(left), np.bool_)
        row, place = np.nonzero(inside & whole[:, None])
        found_query.append(owner[left[row]])
        found_reference.append(ids[row, place])
        left, count = left[~whole], 4 * count
    return np.concatenate(found_query), np.concatenate(found_reference)
