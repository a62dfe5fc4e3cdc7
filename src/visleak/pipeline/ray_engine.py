"""Execution on a Ray cluster: one copy of shared values per node, and retries where workers die.

Workers read sources and partitions, which must be accessible from every node, and cache entries by
an actor on the node of the main process. Ray may execute a task twice, so tasks write nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, TypeVar, cast

import visleak
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.pipeline.context import Engine, Processes, use_one_thread
from visleak.storage.cache import Cache

T = TypeVar("T")
R = TypeVar("R")
AHEAD: Final = 3  # tasks submitted ahead of the one that is awaited, per processor
RETRIES: Final = 5  # of a task whose worker or node died
FRESH: Final = 5.0  # seconds until processors are counted again; nodes may join or leave
PATIENCE: Final = 10.0  # seconds to wait for the head of a cluster
GRACE: Final = 1.0  # seconds in which Ray's processes should end by themselves
#: Names of sockets have at most 107 letters, and Ray adds about 70 to its folder.
LONGEST_FOLDER: Final = 30


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Makes an executor on a Ray cluster."""

    # of the cluster (auto for the one of this machine); by default $RAY_ADDRESS. If that is not
    # set, a cluster is started here for this run
    address: str | None = None

    def __call__(self, scratch: Path, workers: int) -> RayExecutor:
        """Join the cluster, or start one of ``workers`` processors."""
        return joined(self.address or os.environ.get("RAY_ADDRESS"), workers)


@dataclass(frozen=True)
class StoreValue(Generic[T]):
    """A shared value in the object store: one copy per node, arrays are not copied."""

    ref: object

    def load(self) -> T:
        """Return the value; a worker fetches it once."""
        return cast(T, _fetched(self.ref))


@lru_cache(maxsize=16)
def _fetched(ref: object) -> object:
    import ray

    return ray.get(ref)


class RayExecutor:
    """Executes tasks on a cluster that this process has joined."""

    local = False

    def __init__(self, ray: ModuleType, leaving: contextlib.ExitStack) -> None:
        self._ray = ray
        self._leaving = leaving
        self._lookup: Any = None
        self._counted = (0.0, 1)
        self._origin = os.getcwd(), visleak.__version__

    def share(self, value: T) -> StoreValue[T]:
        """Put a value where every node fetches it once."""
        try:
            return StoreValue(self._ray.put(value))
        except TypeError as error:
            raise VisleakError(
                f"{type(value).__name__} cannot be sent to the workers of a cluster"
                f" ({one_line(error)}); use --engine local with workers=1"
            ) from error

    def cache_handle(self, cache: Cache) -> ActorCache:
        """Return a reference to the cache for workers: an actor on this node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self._lookup is None:
            node = self._ray.get_runtime_context().get_node_id()
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            # it takes no processor
            actor = self._ray.remote(Cache).options(
                num_cpus=0, scheduling_strategy=strategy, max_restarts=-1, max_task_retries=-1
            )
            self._lookup = actor.remote(cache.folder.absolute())
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

        A network runs on nodes with GPUs if there are any; the processors of a node share its GPUs.
        """
        remote = self._ray.remote(_execute).options(
            num_cpus=1,
            # given here and not to remote(), which would end a worker with its first task
            num_gpus=self._gpu_share() if network else 0,
            max_retries=RETRIES,
            name=function.__name__,
        )
        waiting: deque[object] = deque()
        try:
            for task in tasks:
                waiting.append(remote.remote(self._origin, function, task))
                if len(waiting) > AHEAD * self._processors():
                    yield cast(R, self._result(waiting.popleft(), step))
            while waiting:
                yield cast(R, self._result(waiting.popleft(), step))
        finally:
            for ref in waiting:
                with contextlib.suppress(Exception):  # its result has no use
                    self._ray.cancel(ref)

    def _result(self, ref: object, step: str) -> object:
        ray = self._ray
        try:
            value, failure = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise VisleakError(
                f"a worker could not start ({one_line(error.cause or error)}); visleak"
                f" {visleak.__version__} must be installed on every node"
            ) from None
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise VisleakError(
                f"a task was tried {RETRIES + 1} times{f' while {step}' if step else ''} and its"
                f" workers died ({type(error).__name__}: {one_line(error)}); give them more memory,"
                " or the nodes fewer processors (num_cpus)"
            ) from None
        if failure is not None:
            raise failure
        return value

    def _processors(self) -> int:
        """Return how many processors the cluster has now, at least 1."""
        now = time.monotonic()
        if now > self._counted[0]:
            count = int(self._ray.cluster_resources().get("CPU", 0))
            self._counted = (now + FRESH, max(1, count))
        return self._counted[1]

    def _gpu_share(self) -> float:
        """Return the share of a GPU per processor, on nodes that have any; 0 if none."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cards = sum(each["GPU"] for each in nodes if "GPU" in each)
        processors = sum(each.get("CPU", 0) for each in nodes if "GPU" in each)
        share: float = cards / processors if processors else cards
        # Ray counts in units of 1/10,000; a task uses one GPU at most
        return min(1.0, math.floor(share * 10_000) / 10_000.0)

    def release(self) -> None:
        """Keep the workers, whose memory is the cluster's."""

    def close(self) -> None:
        """Leave the cluster, or end it if it was started here."""
        self._lookup = None
        # values in this process must be released before their store ends
        _fetched.cache_clear()
        self._leaving.close()


# -- in a worker ---------------------------------------------------------------------------------


def _execute(
    origin: tuple[str, str], function: Callable[[T], R], task: T
) -> tuple[R | None, Exception | None]:
    """Execute one task; its errors are results, so that only deaths of workers are retried."""
    try:
        _join_run(*origin)
        return function(task), None
    except VisleakError as error:
        return None, error
    except Exception as error:
        error.add_note(f"on node {socket.gethostname()}:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            return None, VisleakError(f"a task failed ({type(error).__name__}: {one_line(error)})")
        return None, error


@lru_cache(maxsize=1)
def _join_run(folder: str, version: str) -> None:
    """Make a worker one of a run: its folder, for relative paths, and one thread."""
    if visleak.__version__ != version:
        raise VisleakError(
            f"node {socket.gethostname()} has visleak {visleak.__version__}, and this run is of"
            f" {version}; install one version on every node"
        )
    with contextlib.suppress(OSError):  # without it, relative sources are reported as missing
        os.chdir(folder)
    use_one_thread()


@dataclass(frozen=True)
class ActorCache:
    """A reference to the cache for workers of a cluster."""

    actor: Any

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


# -- joining or starting a cluster ----------------------------------------------------------------


def joined(address: str | None, workers: int) -> RayExecutor:
    """Join the cluster at an address; without one, start one of ``workers`` processors here.

    A cluster that this process has joined already is used, and is not ended.
    """
    if address not in (None, "auto", "local"):
        _check(str(address))
    # before the import, which reads them
    environment = {"RAY_USAGE_STATS_ENABLED": "0"}
    if address in (None, "local") and "RAY_AUTH_MODE" not in os.environ:
        # otherwise Ray makes a token for this user and keeps it in the home folder
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_environment(environment))
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("ray", "--engine ray") from error
        if ray.is_initialized():
            return RayExecutor(ray, stack.pop_all())
        # Ray's messages on stderr are limited to errors
        logger = logging.getLogger("ray")
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.ERROR)
        folder = _folder(stack) if address in (None, "local") else None
        stack.callback(ray.shutdown)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        new = {"num_cpus": workers, "include_dashboard": False, "_temp_dir": folder}
        try:
            with _signals_kept():
                ray.init(address=address or "local", **quiet, **(new if folder else {}))
        except (ConnectionError, RuntimeError, OSError, ValueError) as error:
            raise VisleakError(
                f"Ray could not be started on this machine ({one_line(error)}); use --engine local"
                if folder
                else _unreachable(str(address), error)
            ) from error
        return RayExecutor(ray, stack.pop_all())


def _check(address: str) -> None:
    """Refuse an address that does not answer: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdecimal()) or "/" in host:
        raise UsageError(
            "the address of a Ray cluster (--ray-address, RAY_ADDRESS) is auto or HOST:PORT, as"
            f" seen from one of its nodes; got {address!r}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise VisleakError(_unreachable(address, error)) from error


def _unreachable(address: str, error: BaseException) -> str:
    return (
        f"no Ray cluster can be joined at {address!r} ({one_line(error)}); start one with"
        " `ray start --head`, and run visleak on one of its nodes"
    )


def _folder(stack: contextlib.ExitStack) -> str:
    """Return a folder for Ray's files, which is removed when the stack is left."""
    base = tempfile.gettempdir()
    folder = tempfile.mkdtemp(
        prefix="visleak-ray-", dir=base if len(base) < LONGEST_FOLDER else "/tmp"
    )
    stack.callback(_remove, Path(folder))
    return folder


def _remove(folder: Path) -> None:
    """Remove Ray's folder, after the processes that Ray left behind have ended.

    An interrupt may end a node before its agents. They are recognised by the logs in the folder
    that they hold open (Linux only).
    """
    begun = time.monotonic()
    while (users := _users_of(folder)) and (waited := time.monotonic() - begun) <= PATIENCE:
        for user in users if waited > GRACE else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(user, signal.SIGKILL)
        time.sleep(0.1)
    # ending processes may still write
    end = time.monotonic() + PATIENCE
    while folder.exists() and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def _users_of(folder: Path) -> list[int]:
    """Return the other processes of this user that have files in a folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            opened = [os.readlink(each) for each in (process / "fd").iterdir()]
        except OSError:
            # it ended meanwhile, or belongs to another user
            continue
        if any(path.startswith(f"{folder}/") for path in opened):
            found.append(int(process.name))
    return [number for number in found if number != os.getpid()]


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message, of bounded length."""
    text = str(error).strip().partition("\n")[0].strip()
    return text if len(text) <= 300 else f"{text[:297]}..."


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as error:
        if callable(before):
            before(signal.SIGTERM, None)
        raise KeyboardInterrupt from error
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
