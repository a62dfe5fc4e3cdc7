"""What a search is asked for and what it answers: shared by all engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from visleak.records import Float32, Int8, Int64
from visleak.search.account import Account
from visleak.vectors import forget

#: Makes the vectors of a view of the same pictures: (vectors, index into VIEWS) -> vectors.
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
