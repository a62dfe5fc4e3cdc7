"""Exact search through embeddings that do not fit into memory: one pass, one file at a time.

The queries (all benchmarks together) stay in memory. Every partition of the reference side is
read once, in blocks that fit into the processor's cache; a block is converted, compared and
forgotten. What comes out is what :class:`visleak.search.exact.ExactSearch` finds in the whole
matrix of unit rows, byte for byte: blocks only select, a margin below what is asked that covers
all rounding, and the similarity of a selected pair is the float64 dot product of the ``float32``
unit rows, rounded to ``float32``. Ties go by id.

:meth:`PartitionSearch.find` depends on its arguments only, for any process or machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from visleak.devices import torch_device
from visleak.records import Float32, Partition
from visleak.search.hits import Collector, Merger, PartitionHits, StreamHits, Wanted
from visleak.search.streaming_screen import (
    DeviceScreen,
    ProductScreen,
    Screen,
    choose,
    dot_error,
    sampled,
    whole,
)
from visleak.vectors import check_digest, forget, parts_of, unit_rows

FEW_ROWS: Final = 4096  # fewest rows of a partition for which a screen is chosen
FORGET_AFTER: Final = 2**27  # bytes read of a partition before they are released
SEED_ROWS: Final = 1024  # rows compared first, so that the floor of the best is not at the bottom
CHUNK: Final = 512  # pairs rescored, or queries compared, at a time; only bounds memory


@dataclass(frozen=True, eq=False)
class PartitionSearch:
    """A search that can be run on any partition, in this process or in another. Picklable."""

    query: Float32  # float32 (n, d): unit rows, of all benchmarks together
    wanted: Wanted  # which pairs. The best are those of highest similarity: there is no penalty
    # about how many rows will be searched, over all partitions; for the choice of a screen only,
    # which never changes a result
    rows: int = 0
    # cpu (numpy), auto (a GPU if torch finds one, else numpy), cuda or cuda:N; never
    # changes a result
    device: str = "cpu"
    _screens: dict[bool, Screen] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def __getstate__(self) -> dict[str, object]:
        # screens hold threads' memory and devices: another process makes its own
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _screens={}, _lock=Lock())

    def find(
        self,
        partition: Partition,
        *,
        workers: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> PartitionHits:
        """Return the wanted pairs between the queries and one partition, read block by block."""
        stored = partition.matrix()
        found = Collector(len(self.query), self.wanted, partition)
        with _quiet():
            screen = self._screen(stored)
            if self.wanted.best:
                found.raise_floor(_certain_floor(self.query, stored, self.wanted.best))
        blocks = _Blocks(stored, screen.block)

        def work() -> None:
            with _quiet():
                for start, rows in blocks:
                    _compare(self.query, rows, start, screen, found)
                    if progress is not None:
                        progress(len(rows))

        tasks = [work] * workers
        if partition.stated:
            # the file is hashed during the search, so that it is read from disk once
            tasks.insert(0, lambda: check_digest(partition))
        # one BLAS thread each: the worker threads share the cores among themselves
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(len(tasks)) as pool:
            try:
                for task in [pool.submit(each) for each in tasks]:
                    task.result()
            except BaseException:
                blocks.stop()
                raise
        return found.finish(len(stored))

    def _screen(self, stored: npt.NDArray[np.generic]) -> Screen:
        """Return the screen for a partition: made once, from the first with enough rows."""
        many = len(self.query) > 0 and len(stored) >= FEW_ROWS
        with self._lock:
            if many not in self._screens:
                device, rows = torch_device(self.device), max(self.rows, len(stored))
                if device is not None:
                    self._screens[many] = DeviceScreen(self.query, device)
                elif many:
                    part = choose(self.query, stored, self.wanted, rows)
                    self._screens[many] = ProductScreen(self.query, part)
                else:
                    self._screens[many] = ProductScreen(self.query, whole(self.query.shape[1]))
            return self._screens[many]


class HitStore(Protocol):
    """Stores the hits of partitions, so that an interrupted search resumes.

    It must distinguish searches by the bytes of the queries, ``wanted`` and the
    partition's ``stamp``.
    """

    def get(self, partition: Partition) -> bytes | None:
        """Return what was stored for a partition, or ``None``."""
        ...

    def put(self, partition: Partition, found: bytes) -> None:
        """Store :meth:`PartitionHits.to_bytes` of a partition."""
        ...


class PartitionRunner(Protocol):
    """Searches partitions, in this process or elsewhere."""

    def __call__(
        self, search: PartitionSearch, partitions: Sequence[tuple[int, Partition]]
    ) -> Iterable[tuple[int, PartitionHits]]:
        """Yield each partition's number and hits, in any order."""
        ...


def _quiet() -> np.errstate:
    """Silence numpy in this thread.

    Products of small finite matrices may raise flags in BLAS, which also computes on memory
    beyond them and drops the result. Rows with NaN or infinity are found by their length.
    """
    return np.errstate(invalid="ignore", over="ignore")


class _Blocks:
    """The blocks of a partition, handed out to threads one after another."""

    def __init__(self, stored: npt.NDArray[np.generic], size: int) -> None:
        self._stored = stored
        self._size = size
        self._next = self._read = 0
        self._lock = Lock()

    def __iter__(self) -> Iterator[tuple[int, npt.NDArray[np.generic]]]:
        while True:
            with self._lock:
                start = self._next
                rows = self._stored[start : start + self._size]
                if not len(rows):
                    return
                self._next += len(rows)
                self._read += rows.nbytes
                if self._read > FORGET_AFTER:
                    forget(self._stored)
                    self._read = 0
            yield start, rows

    def stop(self) -> None:
        """Hand out no more."""
        with self._lock:
            self._next = len(self._stored)


def _compare(
    query: Float32, stored: npt.NDArray[np.generic], start: int, screen: Screen, found: Collector
) -> None:
    """Compare all queries with a block of rows that begins at ``start``."""
    seen = screen.select(stored, found.floor)
    found.note(seen.broken + start, seen.off)
    if not len(seen.row):
        return
    rows, place = np.unique(seen.row, return_inverse=True)
    matrix = unit_rows(stored[rows]).matrix
    exact = np.empty(len(place), np.float32)
    for part in parts_of(len(place), CHUNK):
        left, right = query[seen.query[part]], matrix[place[part]]
        # einsum sums each row by itself, so a pair's value does not depend on its neighbours
        exact[part] = np.einsum("ij,ij->i", left.astype(np.float64), right.astype(np.float64))
    found.add(seen.query, seen.row + start, exact)


def _certain_floor(query: Float32, stored: npt.NDArray[np.generic], best: int) -> Float32:
    """Return similarities that at least ``best`` rows of a partition reach, one per query."""
    sample = sampled(stored, max(SEED_ROWS, 8 * best))
    floor = np.full(len(query), -np.inf, np.float32)
    if len(sample) >= best:
        for part in parts_of(len(query), CHUNK):
            similarity = query[part] @ sample.T
            floor[part] = np.partition(similarity, -best, axis=1)[:, -best]
    return floor - np.float32(2 * dot_error(query.shape[1]))


def stream(
    query: Float32,
    partitions: Sequence[Partition],
    wanted: Wanted,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
    keep: HitStore | None = None,
    run: PartitionRunner | None = None,
    device: str = "cpu",
) -> StreamHits:
    """Return the wanted pairs between the queries and all partitions, read once."""
    rows = sum(partition.rows for partition in partitions)
    search = PartitionSearch(np.ascontiguousarray(query, np.float32), wanted, rows, device)
    merger = Merger(len(query), wanted)
    done = _RowCounter(progress)
    todo = []
    for number, partition in enumerate(partitions):
        known = _known(keep, partition, len(query))
        if known is None:
            todo.append((number, partition))
        else:
            merger.add(number, known)
            done.add(known.rows)
    if run is not None:
        answers = done.counted(run(search, todo))
    else:  # all workers on one partition at a time
        answers = ((n, search.find(p, workers=workers, progress=done.add)) for n, p in todo)
    for number, found in answers:
        if keep is not None:
            keep.put(partitions[number], found.to_bytes())
        merger.add(number, found)
    return merger.finish()


def _known(keep: HitStore | None, partition: Partition, queries: int) -> PartitionHits | None:
    """Return the stored hits of a partition; ``None`` if they cannot be read or do not match."""
    stored = keep.get(partition) if keep is not None else None
    if stored is not None:
        with suppress(ValueError):
            found = PartitionHits.from_bytes(stored)
            if len(found.total) == queries and found.rows == partition.rows:
                return found
    return None


class _RowCounter:
    """Counts rows over threads and partitions, and reports progress."""

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
        """Count the rows of finished partitions."""
        for number, found in answers:
            self.add(found.rows)
            yield number, found
