"""Where an audit works: worker processes, a scratch folder, the cache, and who is told."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import pickle
import shutil
import sys
import tempfile
import time
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

from visleak.cache import Cache
from visleak.errors import VisleakError
from visleak.store import remove_unfinished

T = TypeVar("T")
R = TypeVar("R")

#: Tasks handed out ahead of the one whose result is waited for, per worker.
AHEAD: Final = 3

#: Scratch folders of runs that died are removed when they are of this name.
SCRATCH_PREFIX: Final = ".visleak-scratch-"

#: What is shared with this process alone, where it is the only worker; nothing is pickled then.
_KEPT: Final[dict[Path, object]] = {}


class Progress(Protocol):
    """Is told how far a step is."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Take note that ``done`` of ``total`` units of a step are done."""
        ...


def silent(step: str, done: int, total: int) -> None:
    """Take no note."""


@dataclass
class Workplace:
    """What the steps of one audit share. Use as a context manager.

    Attributes:
        scratch: a folder for files that only live as long as the run.
        workers: number of processes; 1 works in this process.
        cache: where results are kept between runs, or ``None``.
        progress: is told how far a step is.
        seconds: wall time a step, for the record.
    """

    scratch: Path
    workers: int = 1
    cache: Cache | None = None
    progress: Progress = silent
    seconds: dict[str, float] = field(default_factory=dict)
    _pool: ProcessPoolExecutor | None = None
    _names: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    @contextlib.contextmanager
    def at(
        cls, folder: Path | None, workers: int, cache: Cache | None, progress: Progress = silent
    ) -> Iterator[Self]:
        """Make a workplace with its scratch folder in ``folder`` (default: the system's own)."""
        try:
            scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder))
        except OSError as error:
            raise VisleakError(f"no scratch folder can be made in {folder}: {error}") from error
        place = cls(scratch, workers, cache, progress)
        try:
            yield place
        finally:
            if place._pool is not None:
                place._pool.shutdown(cancel_futures=True)
            for path in [path for path in _KEPT if path.parent == scratch]:
                del _KEPT[path]
            shutil.rmtree(scratch, ignore_errors=True)

    def file(self, suffix: str) -> Path:
        """Return a new name in the scratch folder."""
        return self.scratch / f"{next(self._names)}{suffix}"

    def share(self, value: object) -> Path:
        """Put a value where every worker can load it once, with :func:`shared`."""
        path = self.file(".pickle")
        if self.workers <= 1:
            _KEPT[path] = value
            return path
        try:
            with path.open("wb") as file:
                _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise VisleakError(
                f"{type(value).__name__} cannot be sent to worker processes ({error});"
                " use workers=1"
            ) from error
        return path

    def each(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield ``function(task)`` for every task, in order; the work is spread over workers."""
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

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.workers, context, initializer=_be_a_worker)
            gate = self.file(".gate")
            with _without_main():
                # a process is started with each task that finds none idle: hold them back until
                # there are as many tasks, and so processes, as workers, all under the guard
                held = [self._pool.submit(_wait_for, gate) for _ in range(self.workers)]
                gate.touch()
                for future in held:
                    future.result()
        return self._pool


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
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


def _be_a_worker() -> None:
    """Use one thread: the processes share the cores among themselves."""
    import signal

    import cv2
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    threadpool_limits(1)


def shared(path: Path) -> Any:
    """Return what :meth:`Workplace.share` put there; loaded once a process."""
    return _KEPT[path] if path in _KEPT else _loaded(path)


@lru_cache(maxsize=16)
def _loaded(path: Path) -> Any:
    # written by this very run into its own scratch folder, never by a user
    return pickle.loads(path.read_bytes())  # noqa: S301


def remove_leftovers(folder: Path) -> None:
    """Remove what killed runs left in a folder of this run's own: scratch, half-written files."""
    for leftover in folder.glob(SCRATCH_PREFIX + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    remove_unfinished(folder)
