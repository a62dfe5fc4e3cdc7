"""What the steps of a run share: workers, a scratch folder, the cache and progress."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from visleak.cache import Cache
from visleak.errors import VisleakError
from visleak.pipeline.processes import Processes
from visleak.storage import SCRATCH_PREFIX, naming

T = TypeVar("T")
R = TypeVar("R")


class Progress(Protocol):
    """Receives how far a step is."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` units of a step are done."""
        ...


def silent(step: str, done: int, total: int) -> None:
    """Report nothing."""


class Handle(Protocol):
    """A reference to a shared value; small and picklable, so that tasks can carry it."""

    def load(self) -> Any:
        """Return the value; a worker fetches it once."""
        ...


@dataclass(frozen=True, slots=True)
class InlineValue:
    """A value that a task carries itself, because no other task needs it."""

    value: Any

    def load(self) -> Any:
        """Return the value."""
        return self.value


class CacheReader(Protocol):
    """Looks up entries of the cache."""

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the entries that exist, by key."""
        ...


class CacheHandle(Protocol):
    """A reference to the cache. Picklable."""

    def open(self) -> AbstractContextManager[CacheReader]:
        """Open the cache for reading."""
        ...


class Executor(Protocol):
    """Executes tasks in processes of this machine or on a cluster. Never changes a result.

    Attributes:
        local: workers are processes of this machine and read this process's files, the scratch
            folder and the cache among them.
    """

    local: bool

    def share(self, value: object) -> Handle:
        """Put a value where every worker can load it once."""
        ...

    def cache_handle(self, cache: Cache) -> CacheHandle:
        """Return a reference to the cache for workers."""
        ...

    def each(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        step: str = "",
        network: bool = False,
    ) -> Iterator[R]:
        """Yield ``function(task)`` for every task, in order; tasks are taken as needed.

        Args:
            function: importable by its name.
            tasks: its arguments.
            step: what is done, in the words of the progress, for messages.
            network: it runs a network, on a GPU where workers have any.
        """
        ...

    def close(self) -> None:
        """End the workers and remove what was shared."""
        ...


#: Makes an executor of a scratch folder and a number of processes.
Engine = Callable[[Path, int], Executor]


class GrowingColumn:
    """A file of rows of one shape and type: appended during a step, memory-mapped after it."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._file = path.open("wb")
        self.rows = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append rows."""
        if values.shape[1:] != self._shape:
            raise ValueError(f"rows must have shape {self._shape}, got {values.shape[1:]}")
        with naming(self._path):
            self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.rows += len(values)

    def mapped(self) -> npt.NDArray[Any]:
        """Close the file and return its rows, memory-mapped and read-only."""
        with naming(self._path):
            self._file.close()
        shape = (self.rows, *self._shape)
        if not self.rows:
            return np.empty(shape, self._dtype)
        return np.memmap(self._path, self._dtype, mode="r", shape=shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with naming(self._path):
            self._file.close()


@dataclass
class RunContext:
    """What the steps of a run share. Make it with :meth:`at`."""

    scratch: Path  # a folder for files that only live as long as the run
    workers: int  # processes or threads of this machine; 1 works in this process
    cache: Cache | None  # where results are kept between runs, or None
    progress: Progress  # receives how far a step is
    executor: Executor  # executes the tasks
    device: str = "cpu"  # where stored vectors are compared: cpu, auto or a GPU
    # wall time by step; engine is the start of the workers
    seconds: dict[str, float] = field(default_factory=dict)
    _names: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    @contextlib.contextmanager
    def at(
        cls,
        folder: Path | None,
        workers: int,
        cache: Cache | None,
        progress: Progress = silent,
        engine: Engine = Processes,
        device: str = "cpu",
    ) -> Iterator[Self]:
        """Make a context with its scratch folder in ``folder`` (default: the system's own)."""
        try:
            scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder))
        except OSError as error:
            raise VisleakError(f"no scratch folder can be made in {folder}: {error}") from error
        try:
            start = time.perf_counter()
            executor = engine(scratch, workers)
            started = {"engine": time.perf_counter() - start}
            try:
                yield cls(scratch, workers, cache, progress, executor, device, started)
            finally:
                executor.close()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def file(self, suffix: str) -> Path:
        """Return a new name in the scratch folder."""
        return self.scratch / f"{next(self._names)}{suffix}"

    def column(
        self, suffix: str, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()
    ) -> GrowingColumn:
        """Return a new file of rows in the scratch folder."""
        return GrowingColumn(self.file(suffix), dtype, shape)

    def share(self, value: object) -> Handle:
        """Put a value where every worker can load it once, with :func:`shared`."""
        return self.executor.share(value)

    @property
    def indexes(self) -> Path | None:
        """Folder of the indexes of embeddings, ``None`` without a cache."""
        return self.cache.folder / "indexes" if self.cache is not None else None

    def cache_handle(self) -> CacheHandle | None:
        """Return a reference to the cache for workers, ``None`` without a cache."""
        return self.executor.cache_handle(self.cache) if self.cache is not None else None

    def each(self, function: Callable[[T], R], tasks: Iterable[T], step: str = "") -> Iterator[R]:
        """Yield ``function(task)`` for every task, in order; the work is spread over workers."""
        return self.executor.each(function, tasks, step=step)

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the wall time of a step to the record."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start


def shared(handle: Handle) -> Any:
    """Return what :meth:`RunContext.share` shared; loaded once per process."""
    return handle.load()


def known_entries(
    cache: CacheHandle | None, maker: bytes, keys: Sequence[bytes]
) -> Mapping[bytes, bytes]:
    """Return the entries of the cache that exist, by key; none without a cache."""
    if cache is None:
        return {}
    with cache.open() as reader:
        return reader.get(maker, keys)
