"""Joining a Ray cluster, or starting one on this machine for the duration of a run."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from visleak.errors import MissingExtra, UsageError, VisleakError

#: Seconds after which the processors of the cluster are counted again; nodes may join or leave.
FRESH: Final = 5.0
#: Seconds to wait for the head of a cluster.
PATIENCE: Final = 10.0
#: Seconds in which Ray's processes should end by themselves.
GRACE: Final = 1.0
#: Names of sockets have at most 107 letters, and Ray adds about 70 to its folder.
LONGEST_FOLDER: Final = 30


class Cluster:
    """A cluster that this process has joined.

    Attributes:
        ray: the package.
    """

    def __init__(self, ray: Any, leaving: contextlib.ExitStack) -> None:
        self.ray = ray
        self._leaving = leaving
        self._counted = (0.0, 1)

    def processors(self) -> int:
        """Return how many processors the cluster has now, at least 1."""
        now = time.monotonic()
        if now > self._counted[0]:
            count = int(self.ray.cluster_resources().get("CPU", 0))
            self._counted = (now + FRESH, max(1, count))
        return self._counted[1]

    def gpu_share(self) -> float:
        """Return the share of a GPU per processor, on nodes that have any; 0 if none."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        cards = sum(each["GPU"] for each in nodes if "GPU" in each)
        processors = sum(each.get("CPU", 0) for each in nodes if "GPU" in each)
        share: float = cards / processors if processors else cards
        # Ray counts in units of 1/10,000; a task uses one GPU at most
        return min(1.0, math.floor(share * 10_000) / 10_000.0)

    def actor_on_this_node(self, kind: type, *arguments: object) -> Any:
        """Return an actor on the node of this process; it takes no processor."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self.ray.get_runtime_context().get_node_id()
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        return (
            self.ray.remote(kind)
            .options(num_cpus=0, scheduling_strategy=strategy, max_restarts=-1, max_task_retries=-1)
            .remote(*arguments)
        )

    def leave(self) -> None:
        """Leave the cluster; end it if it was started for this run."""
        self._leaving.close()


def joined(address: str | None, workers: int) -> Cluster:
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
            return Cluster(ray, stack.pop_all())
        stack.enter_context(_quiet())
        folder = _folder(stack) if address in (None, "local") else None
        stack.callback(ray.shutdown)
        with _signals_kept():
            if folder is not None:
                _start(ray, workers, folder)
            else:
                _join(ray, str(address))
        return Cluster(ray, stack.pop_all())


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


def _start(ray: Any, workers: int, folder: str) -> None:
    try:
        ray.init(
            address="local",
            num_cpus=workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
        )
    except (RuntimeError, OSError, ValueError) as error:
        raise VisleakError(
            f"Ray could not be started on this machine ({one_line(error)}); use --engine local"
        ) from error


def _remove(folder: Path) -> None:
    """Remove Ray's folder, in which ending processes may still write."""
    _end_users(folder)
    end = time.monotonic() + PATIENCE
    while folder.exists() and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def _end_users(folder: Path) -> None:
    """End the processes that Ray left behind: an interrupt may end a node before its agents.

    They are recognised by the logs in the folder that they hold open (Linux only).
    """
    begun = time.monotonic()
    while users := _users_of(folder):
        waited = time.monotonic() - begun
        if waited > PATIENCE:
            return
        if waited > GRACE:
            for user in users:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(user, signal.SIGKILL)
        time.sleep(0.1)


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


def _join(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, OSError, ValueError) as error:
        raise VisleakError(_unreachable(address, error)) from error


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message, of bounded length."""
    text = str(error).strip().partition("\n")[0].strip()
    return text if len(text) <= 300 else f"{text[:297]}..."


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, and restore them afterwards."""
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
def _quiet() -> Iterator[None]:
    """Limit Ray's messages on stderr to errors."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


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
