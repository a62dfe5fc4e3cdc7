"""Queries and results of a search, shared by all engines, and the account of its completeness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.documents import as_plain
from visleak.groups import places
from visleak.rates import Rate, percent
from visleak.records import Bool, Float32, Int8, Int64, Partition
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
        both = ((getattr(each, n) for each in (self, other)) for n in ("pairs", "leaks", "best"))
        rates = (Rate.of(one.count + two.count, one.total + two.total) for one, two in both)
        return Recall(max(self.queries, other.queries), *rates)


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
        content: dict[str, object] = as_plain(self)
        return content

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

    def seen(self, rows: Float32, view: int) -> Float32:
        """Return rows as seen in a view."""
        return rows if view == 0 or self.make is None else self.make(rows, view)


class Scored(NamedTuple):
    """Pairs with their exact similarity, and the view it is of."""

    query: Int64
    reference: Int64
    similarity: Float32
    view: Int8

    def plus(self, *others: Scored) -> Scored:
        """Return all pairs."""
        return Scored(*map(np.concatenate, zip(self, *others, strict=True)))

    def only(self, keep: Bool | Int64) -> Scored:
        """Return the kept rows."""
        query, reference, similarity, view = self
        return Scored(query[keep], reference[keep], similarity[keep], view[keep])


@dataclass(frozen=True, slots=True)
class Hits:
    """Found pairs, sorted by query, then by falling similarity, then by ``order``."""

    query: Int64  # int64 (n,) row numbers
    reference: Int64
    similarity: Float32  # float32 (n,): the largest over the views, computed in float64
    view: Int8  # int8 (n,): the view it was found in; the lowest of equal ones
    # int64, one per query: pairs at or above the threshold, before the cap
    total: npt.NDArray[np.int64]

    @property
    def scored(self) -> Scored:
        """The pairs alone."""
        return Scored(self.query, self.reference, self.similarity, self.view)


class Search(Protocol):
    """A search engine. All give the same result, or state in the audit what they may miss."""

    @property
    def accounts(self) -> Sequence[Account]:
        """Of each call of :meth:`find`; none if the engine finds everything."""
        ...

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs."""
        ...


# -- hits in one partition, and their merge --------------------------------------------------------


LAYOUT: Final = b"1"  # layout of to_bytes; bytes of another layout are not read
PENDING_LIMIT: Final = 1_000_000  # pairs that wait before they are merged into what is kept so far


@dataclass(frozen=True)
class PartitionHits:
    """The wanted pairs of one partition, with all that a merge needs. Small and picklable."""

    query: Int64  # int64 (n,): rows of the query matrix
    row: Int64  # int64 (n,): rows of the partition
    similarity: Float32  # float32 (n,)
    id: pa.StringArray  # Arrow string array (n,): ids of the references
    # int64, one per query: pairs of this partition at or above the threshold, before the cap
    total: Int64
    # int64 (k,), ascending: rows without a direction (NaN, infinity, zeros); they are never hits
    broken: Int64
    off: int  # rows whose length is off by more than NORM_TOLERANCE
    rows: int  # rows of the partition

    def __post_init__(self) -> None:
        n = len(self.query)
        if not (len(self.row) == len(self.similarity) == len(self.id) == n):
            raise ValueError(f"hits of a partition: all columns must have {n} rows")

    def __len__(self) -> int:
        return len(self.query)

    def to_bytes(self) -> bytes:
        """Return the hits as an Arrow stream, for a cache or a wire."""
        names = ("query", "row", "similarity", "total", "broken")
        columns = {name: pa.array(getattr(self, name)) for name in names}
        columns |= {"id": self.id, "counts": pa.array([self.off, self.rows], pa.int64())}
        # columns of different lengths: one row of lists
        lists = [pa.ListArray.from_arrays([0, len(c)], c) for c in columns.values()]
        batch = pa.record_batch(lists, list(columns)).replace_schema_metadata({b"layout": LAYOUT})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, stored: bytes) -> PartitionHits:
        """Return what :meth:`to_bytes` stored."""
        try:
            with pa.ipc.open_stream(stored) as reader:
                batch = reader.read_next_batch()
            if (batch.schema.metadata or {}).get(b"layout") != LAYOUT:
                raise ValueError("hits of a partition: bytes of another layout")
            column = {name: batch.column(name).flatten() for name in batch.schema.names}
            ids, (off, rows) = column.pop("id"), column.pop("counts").to_pylist()
            # copies, which can be written to
            numbers = {k: np.array(v.to_numpy(zero_copy_only=False)) for k, v in column.items()}
            return cls(**numbers, id=ids, off=off, rows=rows)
        except (pa.ArrowException, OSError, EOFError, KeyError, StopIteration) as error:
            raise ValueError("hits of a partition: bytes that cannot be read") from error


@dataclass(frozen=True)
class StreamHits:
    """The wanted pairs of all partitions, sorted by query, falling similarity, id."""

    query: Int64  # int64 (n,): rows of the query matrix
    partition: Int64  # int64 (n,): which partition
    row: Int64  # int64 (n,): row within it
    similarity: Float32  # float32 (n,): float64 dot product of the unit rows, rounded
    id: pa.StringArray  # Arrow string array (n,): ids of the references
    total: Int64  # int64, one per query: pairs at or above the threshold, before the cap
    broken: Int64  # int64 (k, 2): partition and row of every vector without a direction
    off: int  # vectors whose length is off by more than NORM_TOLERANCE
    rows: int  # vectors that were streamed, the broken ones included

    def __len__(self) -> int:
        return len(self.query)


def kept(
    query: Int64, similarity: Float32, wanted: Wanted, ids: Callable[[Int64], pa.StringArray]
) -> Bool:
    """Return which pairs may be wanted when these are all, or some, of a query's pairs."""
    limit = np.full(len(query), wanted.best)
    if wanted.threshold is not None:
        limit[similarity >= np.float32(wanted.threshold)] = max(wanted.best, wanted.cap)
    order = np.lexsort((-similarity, query))
    rank = places(query[order])
    # pairs of one query and one similarity are adjacent; where the cut separates them, ids decide
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (query[order][1:] != query[order][:-1]) | (np.diff(similarity[order]) != 0)
    group = np.cumsum(begins) - 1
    first = rank[begins]
    last = first + np.bincount(group, minlength=len(first)) - 1
    at = limit[order][begins]
    cut = np.flatnonzero(((first < at) & (last >= at))[group])
    if len(cut):
        ties = np.zeros(len(query), np.int64)
        ties[order[cut]] = id_ranks(ids(order[cut]))
        order = np.lexsort((ties, -similarity, query))
    keep = np.empty(len(order), np.bool_)
    keep[order] = rank < limit[order]
    return keep


def id_ranks(ids: pa.StringArray) -> Int64:
    """Return the place of each id in the order of ids, the same for equal ids."""
    return np.asarray(pc.rank(ids, tiebreaker="dense").to_numpy(), np.int64)


class _Pairs(NamedTuple):
    """Pairs of queries and rows of partitions; columns as of :class:`StreamHits`."""

    query: Int64
    partition: Int64
    row: Int64
    similarity: Float32
    id: pa.StringArray

    def only(self, rows: Int64) -> _Pairs:
        """Return the pairs at some positions."""
        query, partition, row, similarity, ids = self
        numbers = query[rows], partition[rows], row[rows]
        return _Pairs(*numbers, similarity[rows], ids.take(pa.array(rows)))


class Merger:
    """Merges the hits of partitions, in any order, and keeps the wanted ones."""

    def __init__(self, queries: int, wanted: Wanted) -> None:
        self._wanted = wanted
        none: Int64 = np.empty(0, np.int64)
        empty = _Pairs(none, none, none, np.empty(0, np.float32), pa.array([], pa.string()))
        self._pairs = [empty]
        self._held = self._settled = 0
        self.total: Int64 = np.zeros(queries, np.int64)
        self._broken = [np.empty((0, 2), np.int64)]
        self.off = self.rows = 0

    def add(self, partition: int, found: PartitionHits) -> None:
        """Add the hits of a partition."""
        self.total += found.total
        self.off += found.off
        self.rows += found.rows
        self._broken.append(np.stack([np.full(len(found.broken), partition), found.broken], axis=1))
        place = np.full(len(found), partition, np.int64)
        self._pairs.append(_Pairs(found.query, place, found.row, found.similarity, found.id))
        self._held += len(found)
        if self._held > self._settled + max(PENDING_LIMIT, self._settled):
            self._settle()

    def _settle(self) -> _Pairs:
        *columns, ids = zip(*self._pairs, strict=True)
        query, partition, row, similarity = map(np.concatenate, columns)
        joined = pa.chunked_array(ids).combine_chunks()
        held = _Pairs(query, partition, row, similarity, joined)
        # equal ids (of two sets in one stream) tie by partition and row: these come sorted
        held = held.only(np.lexsort((row, partition)))
        keep = kept(held.query, held.similarity, self._wanted, lambda rows: held.only(rows).id)
        chosen = held.only(np.flatnonzero(keep))
        self._pairs = [chosen]
        self._held = self._settled = len(chosen.query)
        return chosen

    def finish(self) -> StreamHits:
        """Return the wanted pairs of all partitions."""
        found = self._settle()
        found = found.only(np.lexsort((id_ranks(found.id), -found.similarity, found.query)))
        broken = np.concatenate(self._broken)
        broken = broken[np.lexsort((broken[:, 1], broken[:, 0]))]
        return StreamHits(*found, self.total, broken, self.off, self.rows)


#: Pairs held before they are cut to what is wanted: only bounds memory.
COLLECTOR_LIMIT: Final = 400_000


class Collector:
    """Collects the pairs of a partition from several threads; keeps those that may be wanted."""

    def __init__(self, queries: int, wanted: Wanted, partition: Partition) -> None:
        self._wanted = wanted
        self._partition = partition
        self._lock = Lock()
        self._pairs: list[tuple[Int64, Int64, Float32]] = []
        self._held = self._settled = 0
        self._total: Int64 = np.zeros(queries, np.int64)
        self._broken: list[Int64] = []
        self._off = 0
        threshold = np.inf if wanted.threshold is None else wanted.threshold
        #: Of the similarity; infinite if there is none.
        self.threshold = np.float32(threshold)
        self._leaders = np.full((queries, wanted.best), -np.inf, np.float32)
        #: ``float32``, one per query: no pair below it is wanted. It only rises.
        self.floor: Float32 = np.full(
            queries, -np.inf if wanted.best else self.threshold, np.float32
        )

    def add(self, query: Int64, row: Int64, similarity: Float32) -> None:
        """Add pairs with their exact similarities, each pair once."""
        with self._lock:
            keep = similarity >= self.floor[query]
            query, row, similarity = query[keep], row[keep], similarity[keep]
            np.add.at(self._total, query[similarity >= self.threshold], 1)
            if self._wanted.best and len(query):
                self._raise_floor(query, similarity)
            self._pairs.append((query, row, similarity))
            self._held += len(query)
            if self._held > self._settled + max(COLLECTOR_LIMIT, self._settled):
                self._settle()

    def note(self, broken: Int64, off: int) -> None:
        """Add the broken rows of a block, and the number of rows of another length."""
        with self._lock:
            self._broken.append(broken)
            self._off += off

    def raise_floor(self, floor: Float32) -> None:
        """Raise the floor to similarities that enough pairs of each query are known to reach."""
        with self._lock:
            self.floor = np.minimum(np.maximum(self.floor, floor), self.threshold)

    def _raise_floor(self, query: Int64, similarity: Float32) -> None:
        best = self._wanted.best
        touched, place = np.unique(query, return_inverse=True)
        rows = np.concatenate([np.repeat(np.arange(len(touched)), best), place])
        values = np.concatenate([self._leaders[touched].ravel(), similarity])
        order = np.lexsort((-values, rows))
        leaders = values[order[places(rows[order]) < best]].reshape(len(touched), best)
        self._leaders[touched] = leaders
        reached = np.maximum(leaders[:, -1], self.floor[touched])
        self.floor[touched] = np.minimum(reached, self.threshold)

    def _settle(self) -> tuple[Int64, Int64, Float32]:
        """Cut what is held to what may be wanted, in the order of rows."""
        none: Int64 = np.empty(0, np.int64)
        columns = zip((none, none, np.empty(0, np.float32)), *self._pairs, strict=True)
        query, row, similarity = (np.concatenate(each) for each in columns)
        keep = kept(query, similarity, self._wanted, lambda some: self._ids(row[some]))
        pairs = query[keep], row[keep], similarity[keep]
        self._pairs = [pairs]
        self._held = self._settled = len(pairs[0])
        return pairs

    def _ids(self, rows: Int64) -> pa.StringArray:
        """Return the ids of rows of the partition, which may repeat."""
        distinct, place = np.unique(rows, return_inverse=True)
        ids = self._partition.columns(distinct)["id"]
        return ids.cast(pa.string()).take(pa.array(place))

    def finish(self, rows: int) -> PartitionHits:
        """Return the pairs that may be wanted, sorted by query, falling similarity and row."""
        query, row, similarity = self._settle()
        order = np.lexsort((row, -similarity, query))
        query, row, similarity = query[order], row[order], similarity[order]
        none: Int64 = np.empty(0, np.int64)
        return PartitionHits(
            query=query,
            row=row,
            similarity=similarity,
            id=self._ids(row) if len(row) else pa.array([], pa.string()),
            total=self._total,
            broken=np.sort(np.concatenate([none, *self._broken])),
            off=self._off,
            rows=rows,
        )
