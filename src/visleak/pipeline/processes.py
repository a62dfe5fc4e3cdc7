"""Worker processes of this machine, and values that they share through files."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from visleak.cache import Cache
from visleak.errors import VisleakError, VisleakWarning
from visleak.storage import naming

T = TypeVar("T")
R = TypeVar("R")
#: Tasks submitted ahead of the one whose result is awaited, per worker.
AHEAD: Final = 3
#: Values shared within this process, where it is the only worker: these are not pickled.
_LOCAL: Final[dict[Path, object]] = {}


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A shared value: in this process if it is the only worker, otherwise in a file."""

    path: Path

    def load(self) -> Any:
        """Return the value; it is read once per process."""
        return _LOCAL[self.path] if self.path in _LOCAL else _loaded(self.path)


@lru_cache(maxsize=16)
def _loaded(path: Path) -> Any:
    # written by this very run into its own scratch folder, never by a user
    return pickle.loads(path.read_bytes())  # noqa: S301


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A reference to the cache for workers that share the disk of the main process."""

    folder: Path

    def open(self) -> Cache:
        """Open it; a context manager."""
        return Cache(self.folder)


@dataclass
class _Submitted:
    """A task that was submitted to a pool of processes, and its future."""

    task: Any
    pool: ProcessPoolExecutor
    future: Future[Any]

    @property
    def lost(self) -> bool:
        return isinstance(self.future.exception(), BrokenProcessPool)


class Processes:
    """Executes tasks in processes of this machine.

    Tasks depend on nothing but themselves and write nothing, so those of a process that was killed
    are repeated with half as many processes, down to one.
    """

    local = True

    def __init__(self, scratch: Path, workers: int) -> None:
        self.scratch = scratch
        self.workers = workers
        #: Number of processes; fewer once one was killed.
        self._working = workers
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []
        self._abandoned = False
        self._numbers = itertools.count()

    def share(self, value: object) -> StoredValue:
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
        """Yield ``function(task)`` for every task, in order.

        Raises:
            VisleakError: a process was killed, also when it was the only one.
        """
        if self.workers <= 1:
            yield from map(function, tasks)
            return
        waiting: deque[_Submitted] = deque()
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

    def _submitted(self, function: Callable[[Any], Any], task: object, step: str) -> _Submitted:
        while True:
            try:
                pool = self._started()
                return _Submitted(task, pool, pool.submit(function, task))
            except BrokenProcessPool as error:
                self._shrink(self._pool, step, error)

    def _next(self, function: Callable[[Any], Any], waiting: deque[_Submitted], step: str) -> Any:
        """Return the result of the task that was submitted first."""
        while True:
            first = waiting[0]
            try:
                result = first.future.result()
                waiting.popleft()
                return result
            except BrokenProcessPool as error:
                self._shrink(first.pool, step, error)
            # the pool has ended, so what was done before is known
            for each in [each for each in waiting if each.pool is first.pool]:
                if each.lost:
                    again = self._submitted(function, each.task, step)
                    each.pool, each.future = again.pool, again.future

    def _shrink(
        self, pool: ProcessPoolExecutor | None, step: str, error: BrokenProcessPool
    ) -> None:
        """Close a pool of which a process died; the next one has half as many."""
        if pool is None or pool is not self._pool:
            return  # tasks of another step were the first to notice
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

    def close(self) -> None:
        """End the processes and remove what was shared."""
        if self._pool is not None:
            # tasks that still run have no use and would delay the end
            for process in self._processes if self._abandoned else ():
                process.terminate()
            self._pool.shutdown(cancel_futures=True)
        for path in [path for path in _LOCAL if path.parent == self.scratch]:
            del _LOCAL[path]

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            others = set(multiprocessing.active_children())
            self._pool = ProcessPoolExecutor(self._working, context, initializer=init_worker)
            gate = self.scratch / f"workers-{next(self._numbers)}.gate"
            with without_main():
                # a process is started with each task that finds none idle: block the tasks until
                # there are as many of them, and so of processes, as workers, all under the guard
                with uninterrupted():
                    held = [self._pool.submit(_wait_for, gate) for _ in range(self._working)]
                gate.touch()
                self._processes = list(set(multiprocessing.active_children()) - others)
                for future in held:
                    future.result()
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
    """Delay Ctrl-C while processes start, until they ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pickler(pickle.Pickler):
    """Refuses what the caller's script defines, because workers do not run it."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse classes and functions of the script; leave the rest to pickle."""
        if isinstance(obj, type | types.FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__name__} is in the script itself, not in a module")
        return NotImplemented


def _wait_for(gate: Path) -> None:
    """Return when a file exists, or its folder has been removed."""
    while not gate.exists() and gate.parent.exists():
        time.sleep(0.005)


def init_worker() -> None:
    """Ignore Ctrl-C, which the main process handles, and end with that process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_one_thread()


def _end_with_parent() -> None:
    """End when the main process has ended: if it is killed, it cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def use_one_thread() -> None:
    """Use one thread: the processes share the cores among themselves."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    threadpool_limits(1)
