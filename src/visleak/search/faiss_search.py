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
from visleak.search.faiss_tuning import tune
from visleak.search.hits import Hits, Sides, Wanted
from visleak.search.recall import measure, sampled

#: Queries to tune on, and as many others to measure on.
SAMPLE: Final = 200

#: Views of a query that an index is asked for one by one.
MOST_VIEWS: Final = 2


class FaissSearch:
    """Finds pairs through an index of faiss.

    Args:
        kind: of index; by default what :func:`suited` says.
        progress: called with the number of references done.
        sample: queries to tune on, and as many others to measure on.

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
    ) -> None:
        faiss()
        self._kind = kind
        self._progress = progress or (lambda done: None)
        self._sample = sample
        self.accounts: list[Account] = []

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs; see :class:`visleak.search.hits.Search`.

        An index that is not flat may miss some: ``total`` then counts what was found, too.
        """
        references = len(sides.reference)
        if not len(sides.query) or not references:
            return no_hits(len(sides.query))
        kind = self._kind or suited(sides, self._sample)
        if kind is None:
            self.accounts.append(Account(self.name, "exact", exact=True))
            return ExactSearch(progress=self._progress).find(sides, wanted, workers=workers)
        with threads(workers), threadpool_limits(workers, user_api="blas"):
            penalised = bool(wanted.best and sides.penalty.any())
            layout = Layout.of(kind, references, sides.query[:1].shape[1], penalised)
            index = build(layout, sides.reference, sides.penalty, lambda n: self._progress(n // 2))
            tuned, measured = sampled(len(sides.query), self._sample)
            effort = Effort() if index.exact else tune(index, sides, wanted, tuned, workers)
            hits = found(index, sides, wanted, np.arange(len(sides.query)), effort)
            seen = measure(hits, sides, wanted, measured, workers)
        self._progress(references)
        self.accounts.append(account_of(index, effort, seen))
        return hits


def suited(sides: Sides, sample: int) -> Kind | None:
    """Return the kind of index for a search, by the number of references; ``None`` for none.

    No index serves where the queries are so few that tuning and measuring would search for all of
    them exactly, nor where all views are compared: exact search compares the nine at one and a
    half times the price of one, an index looks nine times (``benchmarks/search_engines.py``).
    """
    kind = kind_for(len(sides.reference))
    few = len(sides.query) <= 2 * sample
    return None if kind != "flat" and (few or len(sides.views) > MOST_VIEWS) else kind


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
