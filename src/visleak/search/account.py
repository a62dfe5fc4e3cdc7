"""What a search engine says of its work: an index that loses leaks must say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from visleak.stats import Rate, percent


@dataclass(frozen=True, slots=True)
class Recall:
    """What an engine found of what exact search finds for the same queries.

    Attributes:
        queries: how many queries were compared.
        pairs: of the pairs at or above the threshold, those that were found.
        leaks: of the queries with such a pair, those for which at least one was found.
        best: of the places among the best of a query, those filled as well as exact search fills
            them. References of equal similarity are equally good (Aumueller, Bernhardsson &
            Faithfull, "ANN-Benchmarks", Information Systems 87, 2020, section 3).
    """

    queries: int
    pairs: Rate
    leaks: Rate
    best: Rate

    def plus(self, other: Recall) -> Recall:
        """Return the recall over both searches, of the same queries."""
        return Recall(
            max(self.queries, other.queries),
            _sum(self.pairs, other.pairs),
            _sum(self.leaks, other.leaks),
            _sum(self.best, other.best),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what ``audit.json`` holds."""
        return {
            "queries": self.queries,
            "pairs": self.pairs.as_dict(),
            "leaks": self.leaks.as_dict(),
            "best": self.best.as_dict(),
        }


def _sum(a: Rate, b: Rate) -> Rate:
    return Rate.of(a.count + b.count, a.total + b.total)


@dataclass(frozen=True, slots=True)
class Account:
    """What an engine says of one search.

    Attributes:
        engine: its name.
        index: what it searched through, in the words of faiss; ``exact`` where it used none.
        parameters: how it searched.
        exact: it finds everything by construction.
        recall: measured beside exact search; ``None`` where nothing was measured.
    """

    engine: str
    index: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    exact: bool = False
    recall: Recall | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what ``audit.json`` holds."""
        return {
            "engine": self.engine,
            "index": self.index,
            "parameters": dict(self.parameters),
            "exact": self.exact,
            "recall": self.recall.as_dict() if self.recall else None,
        }

    def __str__(self) -> str:
        """What a person must know before trusting a rate: what the index did not find."""
        name = f"{self.engine} {self.index}"
        if self.recall is None or not self.recall.queries:
            return f"{name} may miss pairs: how many was not measured"
        pairs, best = self.recall.pairs, self.recall.best
        found = []
        if pairs.total:
            found.append(f"{_share(pairs)} of the pairs from the soft threshold on")
        if best.total:
            found.append(f"{_share(best)} of the best ones")
        if not found:
            return (
                f"{name} may miss pairs: in a sample of {self.recall.queries:,} queries there was"
                " none to find"
            )
        unit = "query" if self.recall.queries == 1 else "queries"
        parts = self.parameters.get("partitions", 1)
        where = f", in {self.parameters['measured']:,} of {parts:,} partitions" if parts > 1 else ""
        return (
            f"{name} may miss pairs: it found {' and '.join(found)} that exact search finds, in a"
            f" sample of {self.recall.queries:,} {unit}{where}"
        )


def _share(rate: Rate) -> str:
    return f"{percent(rate.share)} % ({rate.count:,} of {rate.total:,}, {rate.interval})"
