"""What the steps of a run share: workers, a scratch folder, the cache and progress."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache, lru_cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any, Final, Generic, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import VisleakError, VisleakWarning
from visleak.progress import Progress, silent
from visleak.storage import SCRATCH_PREFIX, naming
from visleak.storage.cache import Cache

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)
Number = TypeVar("Number", bound=np.generic)


class Handle(Protocol[T_co]):
    """A reference to a shared value; small and picklable, so that tasks can carry it."""

    def load(self) -> T_co:
        """Return the value; it is loaded once per process."""


@dataclass(frozen=True, slots=True)
class InlineValue(Generic[T]):
    """A value that a task carries itself, because no other task needs it."""

    value: T

    def load(self) -> T:
        """Return the value."""
        return self.value


class CacheHandle(Protocol):
    """A picklable reference to the cache."""

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the entries that exist, by key."""


class Executor(Protocol):
    """Executes tasks in processes of this machine or on a cluster. Never changes a result."""

    local: bool  # workers are of this machine, and read the scratch folder and the cache

    def share(self, value: T) -> Handle[T]:
        """Put a value where every worker can load it once."""

    def cache_handle(self, cache: Cache) -> CacheHandle:
        """Return a reference to the cache for workers."""

    def each(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        step: str = "",
        network: bool = False,
    ) -> Iterator[R]:
        """Yield ``function(task)`` for every task, in order; tasks are taken as needed.

        ``function`` is importable by its name on every worker; ``step`` is for messages;
        ``network``: it runs a network, on a GPU where workers have any.
        """

    def release(self) -> None:
        """Return the memory of idle workers, as far as it is this machine's."""

    def close(self) -> None:
        """End the workers and remove what was shared."""


#: Makes an executor of a scratch folder and a number of processes.
Engine = Callable[[Path, int], Executor]


class GrowingColumn(Generic[Number]):
    """A file of rows of one shape and type: appended during a step, memory-mapped after it."""

    def __init__(self, path: Path, dtype: type[Number], shape: tuple[int, ...] = ()) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._file = path.open("wb")
        self.rows = 0

    def append(self, values: npt.NDArray[np.generic]) -> None:
        """Append rows."""
        if values.shape[1:] != self._shape:
            raise ValueError(f"rows must have shape {self._shape}, got {values.shape[1:]}")
        with naming(self._path):
            self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.rows += len(values)

    def mapped(self) -> npt.NDArray[Number]:
        """Close the file and return its rows, memory-mapped and read-only."""
        self.__exit__()
        shape = (self.rows, *self._shape)
        if not self.rows:
            return np.empty(shape, self._dtype)
        return np.memmap(self._path, self._dtype, mode="r", shape=shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with naming(self._path):
            self._file.close()


# -- worker processes of this machine -------------------------------------------------------------

#: Tasks submitted ahead of the one whose result is awaited, per worker.
AHEAD: Final = 3
#: Seconds after which a result that is awaited is doubted, if a process has ended.
PATIENCE: Final = 5.0
#: Signals that end a run.
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
#: Values shared within this process, where it is the only worker: these are not pickled.
_LOCAL: Final[dict[Path, object]] = {}


@dataclass(frozen=True, slots=True)
class StoredValue(Generic[T]):
    """A shared value: in this process if it is the only worker, otherwise in a file."""

    path: Path

    def load(self) -> T:
        """Return the value; it is read once per process."""
        return cast(T, _LOCAL[self.path] if self.path in _LOCAL else _loaded(self.path))


@lru_cache(maxsize=16)
def _loaded(path: Path) -> object:
    # written by this very run into its own scratch folder, never by a user
    return pickle.loads(path.read_bytes())  # noqa: S301


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A reference to the cache for workers that share the disk of the main process."""

    folder: Path

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the entries that exist, by key."""
        with Cache(self.folder) as cache:
            return cache.get(maker, keys)


@dataclass
class _Submitted(Generic[T, R]):
    """A task that was submitted to a pool of processes, and its future."""

    task: T
    pool: ProcessPoolExecutor
    future: Future[R]


class Processes:
    """Executes tasks in processes of this machine.

    Tasks depend on nothing but themselves and write nothing, so those of a process that was killed
    are repeated with half as many processes, down to one.
    """

    local = True

    def __init__(self, scratch: Path, workers: int) -> None:
        self.scratch = scratch
        self.workers = workers
        self._working = workers  # fewer once a process was killed
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []
        self._abandoned = False
        self._numbers = itertools.count()

    def share(self, value: T) -> StoredValue[T]:
        """Put a value where every worker can load it once."""
        path = self.scratch / f"shared-{next(self._numbers)}.pickle"
        if self.workers <= 1:
            _LOCAL[path] = value
            return StoredValue(path)
        with naming(path), path.open("wb") as file:
            send_to(file, value, "use workers=1")
        return StoredValue(path)

    def cache_handle(self, cache: Cache) -> CacheFolder:
        """Return a reference to the cache for workers."""
        return CacheFolder(cache.folder)

    def each(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        step: str = "",
        network: bool = False,
    ) -> Iterator[R]:
        """Yield ``function(task)`` for every task, in order; a killed process is an error."""
        if self.workers <= 1:
            yield from map(function, tasks)
            return
        waiting: deque[_Submitted[T, R]] = deque()
        try:
            for task in tasks:
                waiting.append(self._submitted(function, task, step))
                while len(waiting) > AHEAD * self._working:
                    yield self._next(function, waiting, step)
            while waiting:
                yield self._next(function, waiting, step)
        finally:
            for each in waiting:
                self._abandoned |= not each.future.cancel() and not each.future.done()

    def _submitted(self, function: Callable[[T], R], task: T, step: str) -> _Submitted[T, R]:
        while True:
            try:
                pool = self._started()
                return _Submitted(task, pool, pool.submit(function, task))
            except BrokenProcessPool as error:
                self._shrink(self._pool, step, error)

    def _next(self, function: Callable[[T], R], waiting: deque[_Submitted[T, R]], step: str) -> R:
        while True:
            first = waiting[0]
            try:
                result = self._result_of(first.future, first.pool)
                waiting.popleft()
                return result
            except BrokenProcessPool as error:
                self._shrink(first.pool, step, error)
            # the pool has ended, so what was done before is known
            for each in [each for each in waiting if each.pool is first.pool]:
                done = each.future.done()
                if not done or isinstance(each.future.exception(), BrokenProcessPool):
                    again = self._submitted(function, each.task, step)
                    each.pool, each.future = again.pool, again.future

    def _result_of(self, future: Future[R], pool: ProcessPoolExecutor | None) -> R:
        """Return a result; before Python 3.12.1 a pool that breaks may forget a new task."""
        while not wait((future,), PATIENCE).done:
            ended = pool is not self._pool or not all(each.is_alive() for each in self._processes)
            if ended and not wait((future,), PATIENCE).done:
                raise BrokenProcessPool("the pool has ended without this task")
        return future.result()

    def _shrink(
        self, pool: ProcessPoolExecutor | None, step: str, error: BrokenProcessPool
    ) -> None:
        """Close a pool of which a process died; the next one has half as many."""
        if pool is None or pool is not self._pool:
            return  # tasks of another step were the first to notice
        for process in self._processes:
            process.terminate()
        pool.shutdown(cancel_futures=True)
        self._pool = None
        where = f" while {step}" if step else ""
        if self._working <= 1:
            raise VisleakError(
                f"a worker process was killed{where}, also when it was the only one, most likely"
                " for lack of memory; what was done before is in the cache, if there is one. Give"
                " the run more memory, or use --workers 1, which needs the least"
            ) from error
        before, self._working = self._working, self._working // 2
        warnings.warn(
            f"a worker process was killed{where}, most likely for lack of memory; continuing with"
            f" --workers {self._working} instead of {before}",
            VisleakWarning,
            stacklevel=2,
        )

    def release(self) -> None:
        """End the processes; the next task starts new ones."""
        if self._pool is not None:
            # tasks that still run have no use and would delay the end
            for process in self._processes if self._abandoned else ():
                process.terminate()
            self._pool.shutdown(cancel_futures=True)
            self._pool, self._abandoned = None, False

    def close(self) -> None:
        """End the processes and remove what was shared."""
        self.release()
        for path in [path for path in _LOCAL if path.parent == self.scratch]:
            del _LOCAL[path]

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            others = set(multiprocessing.active_children())
            self._pool = ProcessPoolExecutor(self._working, context, initializer=init_worker)
            # all processes start before the pool watches them: the death of one while others start
            # breaks its thread (before Python 3.12.1), and the others are not ended
            self._pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
            gate = self.scratch / f"workers-{next(self._numbers)}.gate"
            with without_main():
                # a process is started with each task that finds none idle: block the tasks until
                # there are as many of them, and so of processes, as workers, all under the guard
                try:
                    with uninterrupted():
                        held = [self._pool.submit(_wait_for, gate) for _ in range(self._working)]
                finally:
                    gate.touch()  # also when interrupted: the pool is closed once they are done
                self._processes = list(set(multiprocessing.active_children()) - others)
                for future in held:
                    self._result_of(future, self._pool)
        return self._pool


def send_to(file: IO[bytes], value: object, hint: str) -> None:
    """Write a value in a form that a worker process can read."""
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise VisleakError(
            f"{type(value).__name__} cannot be sent to worker processes ({error}); {hint}"
        ) from error


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Keep starting workers from running the caller's script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals that end the run while processes start: half started, none can be ended."""
    came: list[int] = []
    blocking = hasattr(signal, "pthread_sigmask")
    # new processes inherit what is blocked, until they ignore it; in this one, any thread that does
    # not block a signal takes it, and the main thread handles it
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING) if blocking else None
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if came:
            signal.raise_signal(came[0])


class _Pickler(pickle.Pickler):
    """Refuses what the caller's script defines, because workers do not run it."""

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, type | types.FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__name__} is in the script itself, not in a module")
        return NotImplemented


def _wait_for(gate: Path) -> None:
    while not gate.exists() and gate.parent.exists():
        time.sleep(0.005)


def init_worker() -> None:
    """Ignore Ctrl-C, which the main process handles, and end with that process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        # if it is killed, it cannot end its workers
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    use_one_thread()


def use_one_thread() -> None:
    """Use one thread: the processes share the cores among themselves."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    threadpool_limits(1)


@dataclass
class RunContext:
    """What the steps of a run share. Make it with :meth:`at`."""

    scratch: Path  # a folder for files that only live as long as the run
    workers: int  # processes or threads of this machine; 1 works in this process
    cache: Cache | None  # where results are kept between runs, or None
    progress: Progress  # receives how far a step is
    executor: Executor  # executes the tasks
    device: str = "cpu"  # where stored vectors are compared: cpu, auto or a GPU
    seconds: dict[str, float] = field(default_factory=dict)  # wall time by step
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
        self, suffix: str, dtype: type[Number], shape: tuple[int, ...] = ()
    ) -> GrowingColumn[Number]:
        """Return a new file of rows in the scratch folder."""
        return GrowingColumn(self.file(suffix), dtype, shape)

    def share(self, value: T) -> Handle[T]:
        """Put a value where every worker can load it once."""
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
        """Add the wall time of a step to the record, and return what it freed to the system."""
        start = time.perf_counter()
        try:
            yield
        finally:
            trim_heap()
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start


def trim_heap() -> None:
    """Return freed memory: Arrow and glibc keep as much as the largest arrays once took."""
    pa.default_memory_pool().release_unused()
    # not every C library has the function
    with contextlib.suppress(OSError, AttributeError, TypeError):
        _c_library().malloc_trim(0)


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def known_entries(
    cache: CacheHandle | None, maker: bytes, keys: Sequence[bytes]
) -> Mapping[bytes, bytes]:
    """Return the entries of the cache that exist, by key; none without a cache."""
    return {} if cache is None else cache.get(maker, keys)
