"""Queries and results of a search, shared by all engines, and the account of its completeness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from visleak.rates import Rate, percent
from visleak.records import Float32, Int8, Int64
from visleak.vectors import forget


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of the results of exact search that an engine found, for the same queries."""

    queries: int  # how many queries were compared
    pairs: Rate  # of the pairs at or above the threshold, those that were found
    leaks: Rate  # of the queries with such a pair, those for which at least one was found
    # of the places among the best of a query, those filled as well as by exact search. References
    # of equal similarity are equally good (Aumueller, Bernhardsson & Faithfull, "ANN-Benchmarks",
    # Information Systems 87, 2020, section 3)
    best: Rate

    def plus(self, other: Recall) -> Recall:
        """Return the recall over both searches, of the same queries."""
        return Recall(
            max(self.queries, other.queries),
            _sum(self.pairs, other.pairs),
            _sum(self.leaks, other.leaks),
            _sum(self.best, other.best),
        )

    def as_dict(self) -> dict[str, object]:
        """Return the entry of ``audit.json``."""
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
    """The account of one search."""

    engine: str
    index: str  # its key in faiss; exact if there was none
    parameters: Mapping[str, float] = field(default_factory=dict)  # of the search
    exact: bool = False  # everything is found by construction
    recall: Recall | None = None  # compared with exact search; None if it was not measured

    def as_dict(self) -> dict[str, object]:
        """Return the entry of ``audit.json``."""
        return {
            "engine": self.engine,
            "index": self.index,
            "parameters": dict(self.parameters),
            "exact": self.exact,
            "recall": self.recall.as_dict() if self.recall else None,
        }

    def __str__(self) -> str:
        """The completeness in a sentence, which belongs next to every rate."""
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


#: Makes the vectors of a view of the same images: (vectors, index into VIEWS) -> vectors.
ViewMaker = Callable[[Float32, int], Float32]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which pairs a search must find."""

    threshold: float | None  # every pair with at least this similarity; None for none by threshold
    best: int = 20  # and this many references of each query, best by similarity - penalty
    cap: int = 1000  # of the pairs by threshold keep at most this many per query, the most similar


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a matrix, read on access: the matrix may be larger than memory."""

    matrix: Float32  # float32 (n, d)
    index: Int64  # int64 (m,): the rows

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, part: slice | Int64) -> Float32:
        rows = np.asarray(self.matrix[self.index[part]])
        forget(self.matrix)
        return rows


@dataclass(frozen=True, slots=True)
class Sides:
    """The two matrices that are compared."""

    query: Float32 | Rows  # float32 (n, d), unit rows
    reference: Float32 | Rows  # float32 (m, d), unit rows; read block by block
    penalty: Float32  # float32 (m,), subtracted from the similarity to rank the best
    order: Int64  # int64 (m,), ranks of the references' ids: ties go to the lower
    weight: Int64 | None = None  # int64 (m,): references per row, for the totals
    # both are one set, and row i of one is row i of the other: i is never paired with i
    same: bool = False
    views: tuple[int, ...] = (0,)  # indices into VIEWS; view 0 must be among them
    make: ViewMaker | None = None  # makes the vectors of a view; needed for more than one


@dataclass(frozen=True, slots=True)
class Hits:
    """Found pairs, sorted by query, then by falling similarity, then by ``order``."""

    query: Int64  # int64 (n,) row numbers
    reference: Int64
    similarity: Float32  # float32 (n,): the largest over the views, computed in float64
    view: Int8  # int8 (n,): the view it was found in; the lowest of equal ones
    # int64, one per query: pairs at or above the threshold, before the cap
    total: npt.NDArray[np.int64]


class Search(Protocol):
    """A search engine. All give the same result, or state in the audit what they may miss."""

    @property
    def accounts(self) -> Sequence[Account]:
        """Of each call of :meth:`find`; none if the engine finds everything."""
        ...

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs."""
        ...
