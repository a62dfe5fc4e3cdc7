"""Search by faiss: candidates come from an index, similarities from the vectors themselves.

A flat index gives the answer of :class:`visleak.search.exact.ExactSearch`, byte for byte. The
others look at a part of the references: what they find is right, but they may miss pairs. How hard
they look is tuned on some queries, and how much they still miss is measured on others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from visleak.search.account import Account, Recall
from visleak.search.chosen import no_hits
from visleak.search.exact import ExactSearch
from visleak.search.faiss_candidates import found
from visleak.search.faiss_index import (
    Effort,
    Index,
    Kind,
    Layout,
    build,
    faiss,
    kind_for,
    threads,
)
from visleak.search.faiss_tuning import TARGET, tune
from visleak.search.hits import Hits, Sides, Wanted
from visleak.search.recall import exact_answer, only_queries, recall, sampled

#: Queries to tune on, and as many others to measure on.
SAMPLE: Final = 200


class FaissSearch:
    """Finds pairs through an index of faiss.

    Args:
        kind: of index; by default chosen by the number of references, and exact search where the
            queries are so few that measuring the recall would search for all of them anyway.
        progress: called with the number of references done.
        sample: queries to tune on, and as many others to measure on.
        target: recall that the effort is tuned to.

    Attributes:
        accounts: what was done in each call of :meth:`find`, in order.
    """

    name = "faiss"

    def __init__(
        self,
        kind: Kind | None = None,
        *,
        progress: Callable[[int], None] | None = None,
        sample: int = SAMPLE,
        target: float = TARGET,
    ) -> None:
        faiss()
        self._kind = kind
        self._progress = progress or (lambda done: None)
        self._sample = sample
        self._target = target
        self.accounts: list[Account] = []

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs; see :class:`visleak.search.hits.Search`.

        An index that is not flat may miss some: ``total`` then counts what was found, too.
        """
        queries, references = len(sides.query), len(sides.reference)
        if not queries or not references:
            return no_hits(queries)
        kind = self._kind or kind_for(references)
        if self._kind is None and kind != "flat" and queries <= 2 * self._sample:
            self.accounts.append(Account(self.name, "exact", exact=True))
            return ExactSearch(progress=self._progress).find(sides, wanted, workers=workers)
        with threads(workers), threadpool_limits(workers, user_api="blas"):
            penalised = bool(wanted.best and sides.penalty.any())
            width = sides.query[:1].shape[1]
            layout = Layout.of(kind, references, width, penalised)
            index = build(layout, sides.reference, sides.penalty, lambda n: self._progress(n // 2))
            hits, account = search(
                index, sides, wanted, workers=workers, sample=self._sample, target=self._target
            )
        self._progress(references)
        self.accounts.append(account)
        return hits


def search(
    index: Index, sides: Sides, wanted: Wanted, *, workers: int, sample: int, target: float
) -> tuple[Hits, Account]:
    """Tune an index on some queries, search it for all, and measure what it missed on others."""
    tuned, measured = sampled(len(sides.query), sample)
    effort = Effort() if index.exact else tune(index, sides, wanted, tuned, target, workers)
    hits = found(index, sides, wanted, np.arange(len(sides.query)), effort)
    beside = exact_answer(sides, wanted, measured, workers)
    seen = recall(only_queries(hits, measured), beside, sides, wanted)
    return hits, account_of(index, effort, seen)


def account_of(index: Index, effort: Effort, seen: Recall | None) -> Account:
    """Return what is said of a search through an index."""
    kind = index.layout.kind
    parameters: dict[str, float] = {}
    if kind == "hnsw":
        parameters = {"efSearch": effort.probes}
    elif kind != "flat":
        parameters = {"nprobe": effort.probes}
    if kind == "ivfpq":
        parameters |= {"fetch": effort.fetch, "slack": round(index.slack, 4)}
    return Account(FaissSearch.name, index.layout.key, parameters, index.exact, seen)
