"""What workers of a cluster import: tasks, openers and partitions that die or take their time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from visleak.pipeline.context import Handle


def die_once(task: tuple[int, str]) -> int:
    number, folder = task
    if number == 7:
        kill_me_once(Path(folder))
    return number


def die_always(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def kill_me_once(folder: Path) -> None:
    """Kill this process; the first to come only, and note which it was."""
    try:
        with (folder / "killed").open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def where_it_lies(handle: Handle) -> tuple[str, bool, str]:
    """Return the mapping that a shared array lies in, whether it can be written, and the node."""
    import ray

    array = handle.load()["matrix"]
    address = array.__array_interface__["data"][0]
    node = ray.get_runtime_context().get_node_id()
    time.sleep(0.1)
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if low <= address < high:
            return (
                line.split()[-2] if line.endswith("(deleted)") else line,
                array.flags.writeable,
                node,
            )
    return "nowhere", array.flags.writeable, node


def gpu_and_process(number: int) -> tuple[str, int]:
    time.sleep(0.05)
    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid()


def threads_and_folder(number: int) -> tuple[list[int], str]:
    from threadpoolctl import threadpool_info

    return [pool["num_threads"] for pool in threadpool_info()], os.getcwd()


@dataclass
class Elsewhere:
    """An opener that reads other images in every process but the one that made it."""

    items: Sequence[Any]
    home: int

    def read(self, positions):
        for position in positions:
            item = self.items[position]
            yield item if os.getpid() == self.home else 255 - item


@dataclass(frozen=True)
class SlowPartition:
    """Vectors that are read slowly; each read notes its node."""

    locator: str
    rows: int
    seed: int
    notes: str
    stamp: str = "1"
    stated: tuple[tuple[str, str], ...] = ()

    def matrix(self):
        import ray

        if ray.is_initialized():
            node = ray.get_runtime_context().get_node_id()
            (Path(self.notes) / f"{node} {self.seed} {os.getpid()}").touch()
            time.sleep(0.25)
        return np.random.default_rng(self.seed).standard_normal((self.rows, 16)).astype(np.float32)

    def columns(self, rows=None):
        chosen = np.arange(self.rows) if rows is None else rows
        return {"id": pa.array([f"{self.seed}-{row}" for row in chosen], pa.string())}
