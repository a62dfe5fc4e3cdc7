"""Exact search through embeddings that do not fit into memory: one pass, one file at a time.

The queries (all benchmarks together) stay in memory. Every partition of the reference side is
read once, in blocks that fit into the processor's cache; a block is converted, compared and
forgotten. What comes out is what :class:`visleak.search.exact.ExactSearch` finds in the whole
matrix of unit rows, byte for byte: blocks only select, :data:`visleak.search.exact.MARGIN` below
what is asked, and the similarity of a selected pair is the float64 dot product of the ``float32``
unit rows, rounded to ``float32``. Ties go by id.

:func:`find_in_partition` is a pure function of its arguments, for any process or machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from visleak.records import Float32, Partition
from visleak.search.exact import MARGIN
from visleak.search.hits import Wanted
from visleak.search.streaming_findings import Findings
from visleak.search.streaming_hits import Merger, PartitionHits, StreamHits
from visleak.vectors import UnitRows, unit_rows

#: Rows of a partition worked on at a time; never changes an answer.
BLOCK: Final = 1024

#: Pairs rescored at a time; only bounds memory.
CHUNK: Final = 4096


@dataclass(frozen=True)
class PartitionSearch:
    """A question that can be put to any partition, in this process or in another. Picklable.

    Attributes:
        query: ``float32`` (n, d): unit rows, of all benchmarks together.
        wanted: which pairs. The best are those of highest similarity: there is no penalty.
    """

    query: Float32
    wanted: Wanted

    def find(
        self,
        partition: Partition,
        *,
        workers: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> PartitionHits:
        """Return what a partition holds; see :func:`find_in_partition`."""
        return find_in_partition(
            self.query, partition, self.wanted, workers=workers, progress=progress
        )


class Kept(Protocol):
    """Keeps what was found in partitions, so that a search that was cut off goes on.

    The keeper must tell questions apart: by the bytes of the queries, ``wanted`` and the
    partition's ``stamp``.
    """

    def get(self, partition: Partition) -> bytes | None:
        """Return what was put for a partition, or ``None``."""
        ...

    def put(self, partition: Partition, found: bytes) -> None:
        """Keep :meth:`PartitionHits.to_bytes` of a partition."""
        ...


class Run(Protocol):
    """Puts a question to partitions, here or elsewhere."""

    def __call__(
        self, search: PartitionSearch, partitions: Sequence[tuple[int, Partition]]
    ) -> Iterable[tuple[int, PartitionHits]]:
        """Yield each partition's number and what was found in it, in any order, as it comes."""
        ...


def find_in_partition(
    query: Float32,
    partition: Partition,
    wanted: Wanted,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> PartitionHits:
    """Return the wanted pairs between the queries and one partition.

    Args:
        query: ``float32`` (n, d): unit rows.
        partition: read once, block by block.
        wanted: which pairs.
        workers: threads that share the blocks among themselves; never changes the answer.
        progress: called with the number of rows done since the last call, from any thread.
    """
    stored = partition.matrix()
    found = Findings(len(query), wanted, partition)

    def work(start: int) -> None:
        rows = unit_rows(stored[start : start + BLOCK])
        _meet(query, rows, start, wanted.best, found)
        if progress is not None:
            progress(len(rows.matrix))

    # one BLAS thread each: the worker threads share the cores among themselves
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(work, range(0, len(stored), BLOCK)):
            pass
    return found.finish(len(stored))


def _meet(query: Float32, rows: UnitRows, start: int, best: int, found: Findings) -> None:
    """Compare all queries with a block of rows."""
    rough = query @ rows.matrix.T
    rough[:, rows.broken] = -np.inf
    floor = found.floor
    if 0 < best < rough.shape[1]:
        # so many of this block alone are at least as similar
        floor = np.maximum(floor, np.partition(rough, -best, axis=1)[:, -best] - np.float32(MARGIN))
        floor = np.minimum(floor, found.threshold)
    left, right = np.nonzero((rough >= (floor - np.float32(MARGIN))[:, None]) & ~rows.broken)
    for first in range(0, len(left), CHUNK):
        one, other = left[first : first + CHUNK], right[first : first + CHUNK]
        # einsum sums each row by itself, so a pair's value does not depend on its neighbours
        exact = np.einsum(
            "ij,ij->i", query[one].astype(np.float64), rows.matrix[other].astype(np.float64)
        )
        found.add(one, other + start, exact.astype(np.float32))
    found.note(np.flatnonzero(rows.broken) + start, int(rows.off.sum()))


def stream(
    query: Float32,
    partitions: Sequence[Partition],
    wanted: Wanted,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
    keep: Kept | None = None,
    run: Run | None = None,
) -> StreamHits:
    """Return the wanted pairs between the queries and all partitions, read once.

    Args:
        query: ``float32`` (n, d): unit rows, of all benchmarks together.
        partitions: of the reference side, with ids unique over all of them.
        wanted: which pairs. The best are those of highest similarity: there is no penalty.
        workers: threads of this process; never changes the answer.
        progress: called with the number of rows done so far.
        keep: keeps what was found in a partition, and gives it back when it is asked for again.
        run: puts the question to the partitions somewhere else; by default one after another here.
    """
    search = PartitionSearch(np.ascontiguousarray(query, np.float32), wanted)
    merger = Merger(len(query), wanted)
    done = _Done(progress)
    todo = []
    for number, partition in enumerate(partitions):
        known = _known(keep, partition, len(query))
        if known is None:
            todo.append((number, partition))
        else:
            merger.add(number, known)
            done.add(known.rows)
    if run is None:
        answers: Iterable[tuple[int, PartitionHits]] = _one_by_one(search, todo, workers, done)
    else:
        answers = done.counted(run(search, todo))
    for number, found in answers:
        if keep is not None:
            keep.put(partitions[number], found.to_bytes())
        merger.add(number, found)
    return merger.finish()


def _known(keep: Kept | None, partition: Partition, queries: int) -> PartitionHits | None:
    """Return what was kept of a partition; what cannot be read, or is of others, is not known."""
    stored = keep.get(partition) if keep is not None else None
    if stored is None:
        return None
    try:
        found = PartitionHits.from_bytes(stored)
    except ValueError:
        return None
    fits = len(found.total) == queries and found.rows == partition.rows
    return found if fits else None


def _one_by_one(
    search: PartitionSearch, partitions: Sequence[tuple[int, Partition]], workers: int, done: _Done
) -> Iterator[tuple[int, PartitionHits]]:
    """Search partitions in this process, all workers on one partition at a time."""
    for number, partition in partitions:
        yield number, search.find(partition, workers=workers, progress=done.add)


class _Done:
    """Counts rows over threads and partitions, and tells how many are done."""

    def __init__(self, progress: Callable[[int], None] | None) -> None:
        self._progress = progress
        self._lock = Lock()
        self._rows = 0

    def add(self, rows: int) -> None:
        """Count rows that are done."""
        with self._lock:
            self._rows += rows
            if self._progress is not None:
                self._progress(self._rows)

    def counted(
        self, answers: Iterable[tuple[int, PartitionHits]]
    ) -> Iterator[tuple[int, PartitionHits]]:
        """Count partitions that come whole."""
        for number, found in answers:
            self.add(found.rows)
            yield number, found
