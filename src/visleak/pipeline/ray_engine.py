"""The steps' tasks on a Ray cluster: shared values once a node, dead workers' tasks once more.

The process that began the run keeps the scratch folder, the cache and all results. Workers see
neither: they read sources and partitions, which must lie where every node sees them, and ask an
actor beside this process for what the cache knows. Ray may carry a task out more than once, so
tasks write nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import visleak
from visleak.cache import Cache
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.context import Engine
from visleak.pipeline.processes import Processes, use_one_thread
from visleak.pipeline.ray_cluster import Cluster, joined, one_line

T = TypeVar("T")
R = TypeVar("R")

#: Tasks handed out ahead of the one whose result is waited for, per processor of the cluster.
AHEAD: Final = 3

#: How often a task is tried again whose worker or node died.
RETRIES: Final = 5


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Brings together an executor on a Ray cluster.

    Attributes:
        address: of the cluster (``auto`` for the one of this machine); by default
            ``$RAY_ADDRESS``, and where that is not set one is started here for this run.
    """

    address: str | None = None

    def __call__(self, scratch: Path, workers: int) -> RayExecutor:
        """Join the cluster, or start one of ``workers`` processors.

        Raises:
            MissingExtra: ray is not installed.
            UsageError, VisleakError: the cluster cannot be joined.
        """
        return RayExecutor(joined(self.address or os.environ.get("RAY_ADDRESS"), workers))


@dataclass(frozen=True)
class InStore:
    """A shared value in the cluster's object store: one copy a node, arrays are not copied."""

    ref: Any

    def load(self) -> Any:
        """Return the value; a worker fetches it once."""
        return _fetched(self.ref)


@lru_cache(maxsize=16)
def _fetched(ref: Any) -> Any:
    import ray

    return ray.get(ref)


class RayExecutor:
    """Carries out tasks on a cluster.

    Args:
        cluster: that was joined or started.
    """

    here = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._keeper: Any = None
        self._setting = _Setting(os.getcwd(), visleak.__version__)

    def share(self, value: object) -> InStore:
        """Put a value where every node fetches it once."""
        try:
            return InStore(self._cluster.ray.put(value))
        except TypeError as error:
            raise VisleakError(
                f"{type(value).__name__} cannot be sent to the workers of a cluster"
                f" ({one_line(error)}); use --engine local with workers=1"
            ) from error

    def reach(self, cache: Cache) -> KeptBeside:
        """Return how workers find the cache: they ask a process beside this one."""
        if self._keeper is None:
            self._keeper = self._cluster.beside(_Keeper, str(cache.folder.absolute()))
        return KeptBeside(self._keeper)

    def each(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        step: str = "",
        network: bool = False,
    ) -> Iterator[R]:
        """Yield ``function(task)`` for every task, in order; dead workers' tasks are repeated.

        Args:
            function: importable by its name on every node.
            tasks: what it is called with.
            step: what is done, in the words of the progress, for messages.
            network: it runs a network: on nodes with GPUs, if there are any, which their
                processors share.

        Raises:
            VisleakError: a task's workers died again and again.
            Exception: whatever a task raised, as it is.
        """
        remote = self._cluster.ray.remote(_carry_out).options(
            num_cpus=1,
            # given here and not to remote(): else a worker would end with its first task
            num_gpus=self._cluster.gpu_share() if network else 0,
            max_retries=RETRIES,
            name=function.__name__,
        )
        waiting: deque[Any] = deque()
        try:
            for task in tasks:
                waiting.append(remote.remote(self._setting, function, task))
                if len(waiting) > AHEAD * self._cluster.processors():
                    yield self._result(waiting.popleft(), step)
            while waiting:
                yield self._result(waiting.popleft(), step)
        finally:
            for ref in waiting:
                with contextlib.suppress(Exception):  # nobody waits for it any more
                    self._cluster.ray.cancel(ref)

    def _result(self, ref: Any, step: str) -> Any:
        ray = self._cluster.ray
        try:
            outcome: _Outcome = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise VisleakError(
                f"a worker could not begin ({one_line(error.cause or error)}); visleak"
                f" {visleak.__version__} must be installed on every node"
            ) from None
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise VisleakError(
                f"a task was tried {RETRIES + 1} times{f' while {step}' if step else ''} and its"
                " workers died"
                f" ({type(error).__name__}: {one_line(error)}); give them more memory, or the"
                " nodes fewer processors (num_cpus)"
            ) from None
        return outcome.result()

    def close(self) -> None:
        """Leave the cluster, or end it if it was started here."""
        self._keeper = None
        # what is left of values in this process must go before their store does
        _fetched.cache_clear()
        self._cluster.leave()


# -- in a worker ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Setting:
    """Where the run was begun, and by which version."""

    folder: str
    version: str


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a task returned, or raised."""

    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


def _carry_out(setting: _Setting, function: Callable[[Any], Any], task: Any) -> _Outcome:
    """Do one task; its own errors are results, so that only deaths are tried again."""
    try:
        _settle_in(setting)
        return _Outcome(function(task))
    except VisleakError as error:
        return _Outcome(error=error)
    except Exception as error:
        error.add_note(f"on node {socket.gethostname()}:\n{traceback.format_exc()}")
        return _Outcome(error=_sendable(error))


def _sendable(error: Exception) -> Exception:
    """Return the error, or its text where it cannot travel."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return VisleakError(f"a task failed ({type(error).__name__}: {one_line(error)})")
    return error


@lru_cache(maxsize=1)
def _settle_in(setting: _Setting) -> None:
    """Make a worker one of this run: its folder, for relative paths, and one thread.

    Raises:
        VisleakError: another version of visleak runs here.
    """
    if visleak.__version__ != setting.version:
        raise VisleakError(
            f"node {socket.gethostname()} has visleak {visleak.__version__}, and this run is of"
            f" {setting.version}; install one version on every node"
        )
    with contextlib.suppress(OSError):  # not there: a source with a relative path will say so
        os.chdir(setting.folder)
    use_one_thread()


# -- the cache -----------------------------------------------------------------------------------


class _Keeper:
    """An actor beside the process that began the run, which looks things up for the workers."""

    def __init__(self, folder: str) -> None:
        self._cache = Cache(Path(folder))

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return self._cache.get(maker, keys)


@dataclass(frozen=True)
class KeptBeside:
    """The cache as workers of a cluster find it."""

    keeper: Any

    def open(self) -> contextlib.AbstractContextManager[Self]:
        """Return what answers; there is nothing to close."""
        return contextlib.nullcontext(self)

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the entries that are there, by key."""
        import ray

        found: Mapping[bytes, bytes] = ray.get(self.keeper.get.remote(maker, list(keys)))
        return found


def engine_of(name: str, address: str | None = None) -> Engine:
    """Return an execution backend; an address is that of a Ray cluster.

    Raises:
        UsageError: there is no such backend.
    """
    if name not in ("local", "ray"):
        raise UsageError(f"engine must be one of local, ray; got {name!r}")
    return RayEngine(address) if name == "ray" or address else Processes
