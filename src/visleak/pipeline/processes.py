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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from visleak.cache import Cache
from visleak.errors import VisleakError

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


class Processes:
    """Carries out tasks in processes of this machine.

    Args:
        scratch: a folder for files that only live as long as the run.
        workers: number of processes; 1 works in this process.
    """

    here = True

    def __init__(self, scratch: Path, workers: int) -> None:
        self.scratch = scratch
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._numbers = itertools.count()

    def share(self, value: object) -> Stored:
        """Put a value where every worker can load it once."""
        path = self.scratch / f"shared-{next(self._numbers)}.pickle"
        if self.workers <= 1:
            _KEPT[path] = value
            return Stored(path)
        with path.open("wb") as file:
            send_to(file, value, "use workers=1")
        return Stored(path)

    def reach(self, cache: Cache) -> CacheFolder:
        """Return how workers find the cache."""
        return CacheFolder(cache.folder)

    def each(
        self, function: Callable[[T], R], tasks: Iterable[T], *, network: bool = False
    ) -> Iterator[R]:
        """Yield ``function(task)`` for every task, in order."""
        if self.workers <= 1:
            yield from map(function, tasks)
            return
        waiting: deque[Future[R]] = deque()
        try:
            pool = self._started()
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) > AHEAD * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise VisleakError(
                "a worker process died, most likely for lack of memory; use fewer --workers"
            ) from error
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the processes and forget what was shared."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for path in [path for path in _KEPT if path.parent == self.scratch]:
            del _KEPT[path]

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.workers, context, initializer=be_a_worker)
            gate = self.scratch / "workers.gate"
            with without_main():
                # a process is started with each task that finds none idle: hold them back until
                # there are as many tasks, and so processes, as workers, all under the guard
                held = [self._pool.submit(_wait_for, gate) for _ in range(self.workers)]
                gate.touch()
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


def be_a_worker() -> None:
    """Leave Ctrl-C to the process that began the run, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
