"""How much of what exact search finds an engine finds: measured on a sample of the queries.

An index that loses leaks must say so. Its answer to some queries, drawn with a fixed seed, is
compared with that of :class:`visleak.search.exact.ExactSearch`. An engine never finds a pair that
is none, because every candidate is scored again exactly; so recall is all there is to measure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from visleak.records import Bool, Int64
from visleak.search.exact import ExactSearch
from visleak.search.hits import Hits, Recall, Rows, Sides, Wanted
from visleak.search.rescore import Scored, chosen, joined
from visleak.stats import Rate

SEED: Final = 0  # seed of the draw of queries


def sampled(queries: int, count: int) -> tuple[Int64, Int64]:
    """Return rows of queries to tune on and others to measure on, each ascending.

    Up to ``count`` each, with nothing in common but where there is only one query.
    """
    drawn = np.random.default_rng(SEED).permutation(queries)[: 2 * count].astype(np.int64)
    measured, tuned = np.sort(drawn[0::2]), np.sort(drawn[1::2])
    return (tuned if len(tuned) else measured), measured


def part_of(rows: Int64, sides: Sides) -> Sides:
    """Return the sides with some of the queries only; they are no longer one set."""
    own = sides.query
    if isinstance(own, Rows):
        return replace(sides, query=Rows(own.matrix, own.index[rows]), same=False)
    return replace(sides, query=Rows(own, rows), same=False)


def exact_answer(sides: Sides, wanted: Wanted, rows: Int64, workers: int) -> Hits:
    """Return what exact search finds for some queries, numbered as in ``rows``.

    Totals are not counted for queries of a set that is compared with itself.
    """
    asked = wanted
    if sides.same:  # one more of each, for an image is its own best match
        asked = replace(wanted, best=wanted.best and wanted.best + 1, cap=wanted.cap + 1)
    hits = ExactSearch().find(part_of(rows, sides), asked, workers=workers)
    if not sides.same:
        return hits
    scored = Scored(hits.query, hits.reference, hits.similarity, hits.view)
    scored = scored.only(rows[scored.query] != scored.reference)
    kept = scored.only(chosen(scored, sides, wanted))
    return joined([(0, kept, np.zeros(len(rows), np.int64))], sides.order)


def only_queries(hits: Hits, rows: Int64) -> Hits:
    """Return the hits of some queries, ascending, numbered by their place in ``rows``."""
    keep = np.isin(hits.query, rows)
    return Hits(
        np.searchsorted(rows, hits.query[keep]),
        hits.reference[keep],
        hits.similarity[keep],
        hits.view[keep],
        hits.total[rows],
    )


def measure(hits: Hits, sides: Sides, wanted: Wanted, rows: Int64, workers: int) -> Recall:
    """Return how much of what exact search finds for some queries is among the hits of all."""
    exact = exact_answer(sides, wanted, rows, workers)
    return recall(only_queries(hits, rows), exact, sides, wanted)


def recall(found: Hits, exact: Hits, sides: Sides, wanted: Wanted) -> Recall:
    """Compare two answers to the same queries."""
    queries, references = len(exact.total), len(sides.order)
    pairs = leaks = best = Rate.of(0, 0)
    if wanted.threshold is not None:
        ours, theirs = (_reached(hits, wanted.threshold) for hits in (found, exact))
        keys = exact.query[theirs] * references + exact.reference[theirs]
        met = np.isin(keys, found.query[ours] * references + found.reference[ours])
        pairs = Rate.of(int(met.sum()), len(keys))
        leaking = np.unique(exact.query[theirs])
        leaks = Rate.of(int(np.isin(leaking, found.query[ours]).sum()), len(leaking))
    if wanted.best:
        last, places = _last_of_best(exact, sides, wanted.best, queries)
        good = _corrected(found, sides) >= last[found.query]
        filled = np.minimum(np.bincount(found.query[good], minlength=queries), places)
        best = Rate.of(int(filled.sum()), int(places.sum()))
    return Recall(queries, pairs, leaks, best)


def _reached(hits: Hits, threshold: float) -> Bool:
    return np.asarray(hits.similarity >= np.float32(threshold))


def _corrected(hits: Hits, sides: Sides) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return what the best are ranked by."""
    return np.asarray(hits.similarity.astype(np.float64) - sides.penalty[hits.reference])


def _last_of_best(
    exact: Hits, sides: Sides, best: int, queries: int
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], Int64]:
    """Return each query's corrected similarity of its last place, and how many places it has."""
    value = _corrected(exact, sides)
    order = np.lexsort((-value, exact.query))
    place = np.arange(len(order)) - np.searchsorted(exact.query[order], exact.query[order])
    top = order[place < best]
    last = np.full(queries, np.inf)
    np.minimum.at(last, exact.query[top], value[top])
    return last, np.bincount(exact.query[top], minlength=queries)
