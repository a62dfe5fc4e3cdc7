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

#: Tasks handed out ahead of the one whose result is waited for, per worker.
AHEAD: Final = 3

#: What is shared with this process alone, where it is the only worker; nothing is pickled then.
_KEPT: Final[dict[Path, object]] = {}


@dataclass(frozen=True, slots=True)
class Stored:
    """A shared value: in this process if it is the only worker, else in a file."""

    path: Path

    def load(self) -> Any:
        """Return the value; it is read once a process."""
        return _KEPT[self.path] if self.path in _KEPT else _loaded(self.path)


@lru_cache(maxsize=16)
def _loaded(path: Path) -> Any:
    # written by this very run into its own scratch folder, never by a user
    return pickle.loads(path.read_bytes())  # noqa: S301


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """The cache as workers find it who see the disk of the process that began the run."""

    folder: Path

    def open(self) -> Cache:
        """Open it; a context manager."""
        return Cache(self.folder)


@dataclass
class _Handed:
    """A task that a pool of processes was given, and what will come of it."""

    task: Any
    pool: ProcessPoolExecutor
    future: Future[Any]

    @property
    def lost(self) -> bool:
        """Whether the pool broke before the task was done."""
        return isinstance(self.future.exception(), BrokenProcessPool)


class Processes:
    """Carries out tasks in processes of this machine.

    Tasks depend on nothing but themselves and write nothing, so those of a process that was killed
    are done again, by half as many processes, down to one.

    Args:
        scratch: a folder for files that only live as long as the run.
        workers: number of processes; 1 works in this process.
    """

    here = True

    def __init__(self, scratch: Path, workers: int) -> None:
        self.scratch = scratch
        self.workers = workers
        #: How many processes work now: fewer once one was killed.
        self._working = workers
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []
        self._abandoned = False
        self._numbers = itertools.count()

    def share(self, value: object) -> Stored:
        """Put a value where every worker can load it once."""
        path = self.scratch / f"shared-{next(self._numbers)}.pickle"
        if self.workers <= 1:
            _KEPT[path] = value
            return Stored(path)
        with naming(path), path.open("wb") as file:
            send_to(file, value, "use workers=1")
        return Stored(path)

    def reach(self, cache: Cache) -> CacheFolder:
        """Return how workers find the cache."""
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
            VisleakError: a process was killed, and so was the last one that tried again.
        """
        if self.workers <= 1:
            yield from map(function, tasks)
            return
        waiting: deque[_Handed] = deque()
        try:
            for task in tasks:
                waiting.append(self._handed(function, task, step))
                while len(waiting) > AHEAD * self._working:
                    yield self._next(function, waiting, step)
            while waiting:
                yield self._next(function, waiting, step)
        finally:
            for handed in waiting:
                self._abandoned |= not handed.future.cancel() and not handed.future.done()

    def _handed(self, function: Callable[[Any], Any], task: object, step: str) -> _Handed:
        """Hand a task to a process."""
        while True:
            try:
                pool = self._started()
                return _Handed(task, pool, pool.submit(function, task))
            except BrokenProcessPool as error:
                self._go_on_with_fewer(self._pool, step, error)

    def _next(self, function: Callable[[Any], Any], waiting: deque[_Handed], step: str) -> Any:
        """Return the result of the task that was handed out first."""
        while True:
            first = waiting[0]
            try:
                result = first.future.result()
                waiting.popleft()
                return result
            except BrokenProcessPool as error:
                self._go_on_with_fewer(first.pool, step, error)
            # the pool has ended, so what was done before is known
            for handed in [handed for handed in waiting if handed.pool is first.pool]:
                if handed.lost:
                    again = self._handed(function, handed.task, step)
                    handed.pool, handed.future = again.pool, again.future

    def _go_on_with_fewer(
        self, pool: ProcessPoolExecutor | None, step: str, error: BrokenProcessPool
    ) -> None:
        """Put away a pool of which a process died; the next one has half as many.

        Raises:
            VisleakError: it had one.
        """
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
            f"a worker process was killed{where}, most likely for lack of memory; going on with"
            f" --workers {self._working} instead of {before}",
            VisleakWarning,
            stacklevel=2,
        )

    def close(self) -> None:
        """End the processes and forget what was shared."""
        if self._pool is not None:
            # nobody waits for what is still worked on: it would hold up the end
            for process in self._processes if self._abandoned else ():
                process.terminate()
            self._pool.shutdown(cancel_futures=True)
        for path in [path for path in _KEPT if path.parent == self.scratch]:
            del _KEPT[path]

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            others = set(multiprocessing.active_children())
            self._pool = ProcessPoolExecutor(self._working, context, initializer=init_worker)
            gate = self.scratch / f"workers-{next(self._numbers)}.gate"
            with without_main():
                # a process is started with each task that finds none idle: hold them back until
                # there are as many tasks, and so processes, as workers, all under the guard
                with uninterrupted():
                    held = [self._pool.submit(_wait_for, gate) for _ in range(self._working)]
                gate.touch()
                self._processes = list(set(multiprocessing.active_children()) - others)
                for future in held:
                    future.result()
        return self._pool


def send_to(file: IO[bytes], value: object, hint: str) -> None:
    """Write a value as a worker process can read it.

    Raises:
        VisleakError: it cannot be sent; the hint says what to do.
    """
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise VisleakError(
            f"{type(value).__name__} cannot be sent to worker processes ({error}); {hint}"
        ) from error


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Hide the caller's script from starting workers, which would otherwise run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep Ctrl-C back while processes are started, and from them until they know to ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pickler(pickle.Pickler):
    """Refuses what the caller's own script defines: workers do not run it, see above."""

    def reducer_override(self, obj: Any) -> Any:
        """Let everything else be pickled as it is."""
        if isinstance(obj, type | types.FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__name__} is in the script itself, not in a module")
        return NotImplemented


def _wait_for(gate: Path) -> None:
    """Return when a file is there, or the folder it would be in is gone."""
    while not gate.exists() and gate.parent.exists():
        time.sleep(0.005)


def init_worker() -> None:
    """Leave Ctrl-C to the process that began the run, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_one_thread()


def _end_with_parent() -> None:
    """Wait for the process that began the run: killed, it cannot tell its workers to end."""
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
