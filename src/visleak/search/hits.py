"""What a search is asked for and what it answers: shared by all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from visleak.records import Float32, Int8, Int64
from visleak.stats import Rate, percent
from visleak.vectors import forget


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


#: Makes the vectors of a view of the same images: (vectors, index into VIEWS) -> vectors.
ViewMaker = Callable[[Float32, int], Float32]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which pairs a search must find.

    Attributes:
        threshold: every pair with at least this similarity; ``None`` asks for none by threshold.
        best: and this many references of each query, best by ``similarity - penalty``.
        cap: of the pairs by threshold keep at most this many a query, the most alike.
    """

    threshold: float | None
    best: int = 20
    cap: int = 1000


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a matrix, read when asked for: the matrix may be larger than memory.

    Attributes:
        matrix: ``float32`` (n, d).
        index: ``int64`` (m,): the rows.
    """

    matrix: Float32
    index: Int64

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, part: slice | Int64) -> Float32:
        rows = np.asarray(self.matrix[self.index[part]])
        forget(self.matrix)
        return rows


@dataclass(frozen=True, slots=True)
class Sides:
    """The two matrices that are compared.

    Attributes:
        query: ``float32`` (n, d), unit rows.
        reference: ``float32`` (m, d), unit rows; read block by block.
        penalty: ``float32`` (m,), taken off the similarity when the best are chosen.
        order: ``int64`` (m,), ranks of the references' ids: ties go to the lower.
        weight: ``int64`` (m,): how many references a row stands for, in the totals.
        same: both are one set, and row i of one is row i of the other: i is never paired with i.
        views: indices into ``VIEWS``; view 0 must be among them.
        make: makes the vectors of a view; needed where there is more than one.
    """

    query: Float32 | Rows
    reference: Float32 | Rows
    penalty: Float32
    order: Int64
    weight: Int64 | None = None
    same: bool = False
    views: tuple[int, ...] = (0,)
    make: ViewMaker | None = None


@dataclass(frozen=True, slots=True)
class Hits:
    """Found pairs, sorted by query, then by falling similarity, then by ``order``.

    Attributes:
        query, reference: ``int64`` (n,) row numbers.
        similarity: ``float32`` (n,): the largest over the views, computed in float64.
        view: ``int8`` (n,): the view it was found in; the lowest where several agree.
        total: ``int64``, one a query: pairs at or above the threshold, before the cap.
    """

    query: Int64
    reference: Int64
    similarity: Float32
    view: Int8
    total: npt.NDArray[np.int64]


class Search(Protocol):
    """A search engine. All engines give the same answer or say in the audit what they miss."""

    @property
    def accounts(self) -> Sequence[Account]:
        """What was done in each call of :meth:`find`; nothing where everything was found."""
        ...

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs."""
        ...
