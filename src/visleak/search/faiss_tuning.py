"""How hard an index of faiss must look to find what is there: tuned on a sample of the queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from visleak.records import Int64
from visleak.search.account import Recall
from visleak.search.faiss_candidates import found
from visleak.search.faiss_index import Effort, Index
from visleak.search.hits import Sides, Wanted
from visleak.search.recall import exact_answer, only_queries, recall

#: Recall of the pairs by threshold, and of the best, that the effort is tuned to. Duplicates lie
#: close and are found soon; most of a query's best are just any pictures, and cost the most.
TARGET_PAIRS: Final = 0.99
TARGET_BEST: Final = 0.95

#: Shortest list of candidates of a graph that is tried.
LEAST_LIST: Final = 16

#: The longest; a search that needs more is done sooner by looking at every reference.
MOST_LIST: Final = 4096

#: Most candidates fetched for each of the best, where codes blur the order.
MOST_FETCHED: Final = 32


def tune(index: Index, sides: Sides, wanted: Wanted, rows: Int64, workers: int) -> Effort:
    """Return the least effort, doubled step by step, that finds what it should of what is there.

    The most there is where none does. AutoFaiss tunes the same numbers for a given time instead.

    Args:
        index: to be tuned.
        sides, wanted: the question.
        rows: of the queries to tune on.
        workers: threads of exact search.
    """
    answer = exact_answer(sides, wanted, rows, workers)

    def reached(effort: Effort) -> float:
        hits = only_queries(found(index, sides, wanted, rows, effort), rows)
        return _share_of_target(recall(hits, answer, sides, wanted))

    fetch = MOST_FETCHED if index.layout.kind == "ivfpq" and wanted.best else 1
    effort, best = Effort(fetch=fetch), 0.0
    for probes in _levels(index):
        effort = Effort(probes, fetch)
        best = reached(effort)
        if best >= 1:
            break
    for fewer in (1 << power for power in range(fetch.bit_length() - 1)):
        if reached(Effort(effort.probes, fewer)) >= min(best, 1):
            return Effort(effort.probes, fewer)
    return effort


def _share_of_target(seen: Recall) -> float:
    """Return the recall as a share of what is aimed at, the lower of pairs and best."""
    aims = ((seen.pairs, TARGET_PAIRS), (seen.best, TARGET_BEST))
    return min((rate.share / aim for rate, aim in aims if rate.total), default=1.0)


def _levels(index: Index) -> Iterator[int]:
    """Yield efforts to try: cells to look into, or lengths of the list of candidates."""
    graph = index.layout.kind == "hnsw"
    level, most = (LEAST_LIST, MOST_LIST) if graph else (1, index.filled.nlist)
    while level < most:
        yield level
        level *= 2
    yield most
