"""Execution on a Ray cluster: one copy of shared values per node, and retries where workers die.

The main process keeps the scratch folder, the cache and all results. Workers cannot read these:
they read sources and partitions, which must be accessible from every node, and look up cache
entries by an actor on the node of the main process. Ray may execute a task more than once, so tasks
write nothing.
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
#: Tasks submitted ahead of the one whose result is awaited, per processor of the cluster.
AHEAD: Final = 3
#: Retries of a task whose worker or node died.
RETRIES: Final = 5


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Makes an executor on a Ray cluster."""

    # of the cluster (auto for the one of this machine); by default $RAY_ADDRESS. If that is not
    # set, a cluster is started here for this run
    address: str | None = None

    def __call__(self, scratch: Path, workers: int) -> RayExecutor:
        """Join the cluster, or start one of ``workers`` processors."""
        return RayExecutor(joined(self.address or os.environ.get("RAY_ADDRESS"), workers))


@dataclass(frozen=True)
class StoreValue:
    """A shared value in the object store: one copy per node, arrays are not copied."""

    ref: Any

    def load(self) -> Any:
        """Return the value; a worker fetches it once."""
        return _fetched(self.ref)


@lru_cache(maxsize=16)
def _fetched(ref: Any) -> Any:
    import ray

    return ray.get(ref)


class RayExecutor:
    """Executes tasks on a cluster."""

    local = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lookup: Any = None
        self._origin = _Origin(os.getcwd(), visleak.__version__)

    def share(self, value: object) -> StoreValue:
        """Put a value where every node fetches it once."""
        try:
            return StoreValue(self._cluster.ray.put(value))
        except TypeError as error:
            raise VisleakError(
                f"{type(value).__name__} cannot be sent to the workers of a cluster"
                f" ({one_line(error)}); use --engine local with workers=1"
            ) from error

    def cache_handle(self, cache: Cache) -> ActorCache:
        """Return a reference to the cache for workers, an actor on this node."""
        if self._lookup is None:
            self._lookup = self._cluster.actor_on_this_node(_Lookup, str(cache.folder.absolute()))
        return ActorCache(self._lookup)

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
            tasks: its arguments.
            step: what is done, in the words of the progress, for messages.
            network: it runs a network, on nodes with GPUs if there are any; the processors of
                a node share its GPUs.

        Raises:
            VisleakError: the workers of a task died in every attempt.
            Exception: what a task raised.
        """
        remote = self._cluster.ray.remote(_execute).options(
            num_cpus=1,
            # given here and not to remote(), which would end a worker with its first task
            num_gpus=self._cluster.gpu_share() if network else 0,
            max_retries=RETRIES,
            name=function.__name__,
        )
        waiting: deque[Any] = deque()
        try:
            for task in tasks:
                waiting.append(remote.remote(self._origin, function, task))
                if len(waiting) > AHEAD * self._cluster.processors():
                    yield self._result(waiting.popleft(), step)
            while waiting:
                yield self._result(waiting.popleft(), step)
        finally:
            for ref in waiting:
                with contextlib.suppress(Exception):  # its result has no use
                    self._cluster.ray.cancel(ref)

    def _result(self, ref: Any, step: str) -> Any:
        ray = self._cluster.ray
        try:
            outcome: _Outcome = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise VisleakError(
                f"a worker could not start ({one_line(error.cause or error)}); visleak"
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
        self._lookup = None
        # values in this process must be released before their store ends
        _fetched.cache_clear()
        self._cluster.leave()


# -- in a worker ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Origin:
    """Folder and version of the main process."""

    folder: str
    version: str


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def _execute(origin: _Origin, function: Callable[[Any], Any], task: Any) -> _Outcome:
    """Execute one task; its errors are results, so that only deaths of workers are retried."""
    try:
        _join_run(origin)
        return _Outcome(function(task))
    except VisleakError as error:
        return _Outcome(error=error)
    except Exception as error:
        error.add_note(f"on node {socket.gethostname()}:\n{traceback.format_exc()}")
        return _Outcome(error=_sendable(error))


def _sendable(error: Exception) -> Exception:
    """Return the error, or its text where it cannot be sent."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return VisleakError(f"a task failed ({type(error).__name__}: {one_line(error)})")
    return error


@lru_cache(maxsize=1)
def _join_run(origin: _Origin) -> None:
    """Make a worker one of this run: its folder, for relative paths, and one thread."""
    if visleak.__version__ != origin.version:
        raise VisleakError(
            f"node {socket.gethostname()} has visleak {visleak.__version__}, and this run is of"
            f" {origin.version}; install one version on every node"
        )
    with contextlib.suppress(
        OSError
    ):  # if it does not exist, relative sources are reported as missing
        os.chdir(origin.folder)
    use_one_thread()


# -- the cache -----------------------------------------------------------------------------------


class _Lookup:
    """An actor on the node of the main process, which reads the cache for the workers."""

    def __init__(self, folder: str) -> None:
        self._cache = Cache(Path(folder))

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return self._cache.get(maker, keys)


@dataclass(frozen=True)
class ActorCache:
    """A reference to the cache for workers of a cluster."""

    actor: Any

    def open(self) -> contextlib.AbstractContextManager[Self]:
        """Return the reader; there is nothing to close."""
        return contextlib.nullcontext(self)

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the entries that exist, by key."""
        import ray

        found: Mapping[bytes, bytes] = ray.get(self.actor.get.remote(maker, list(keys)))
        return found


def engine_of(name: str, address: str | None = None) -> Engine:
    """Return an execution backend by its name; an address is that of a Ray cluster."""
    if name not in ("local", "ray"):
        raise UsageError(f"engine must be one of local, ray; got {name!r}")
    return RayEngine(address) if name == "ray" or address else Processes
