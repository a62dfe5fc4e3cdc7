"""Functions and openers that worker processes can import."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visleak.errors import MissingExtra, UsageError


def crops(natural, count, side, seed=0):
    """Return squares of photographs."""
    rng = np.random.default_rng(seed)
    sources, found = list(natural.values()), []
    for _ in range(count):
        source = sources[rng.integers(len(sources))]
        top, left = (int(rng.integers(0, edge - side)) for edge in source.shape[:2])
        found.append(np.ascontiguousarray(source[top : top + side, left : left + side]))
    return found


def double(number):
    return 2 * number


def slow_first(number):
    time.sleep(0.2 if number == 0 else 0)
    return number


def process_of(number):
    time.sleep(0.05)
    return os.getpid()


def load(path):
    return path.load()


def identity_of(path):
    return id(path.load())


def fail(task):
    if task[0] == 3:
        raise task[1]
    return task[0]


def check_tasks(place):
    """Check that results come in order, tasks as they are needed, and errors unchanged."""
    assert list(place.each(slow_first, range(30))) == list(range(30))
    assert list(place.each(double, [])) == []
    taken = []
    results = place.each(double, (taken.append(n) or n for n in range(500)))
    assert next(results) == 0
    assert len(taken) < 10
    results.close()
    for error in (UsageError("it is wrong"), KeyError(0), MissingExtra("heif", "HEIF pictures")):
        with pytest.raises(type(error)) as caught:
            list(place.each(fail, [(n, error) for n in range(5)]))
        assert (type(caught.value), str(caught.value)) == (type(error), str(error))
        assert list(place.each(double, [4])) == [8]


def die(number):
    if number == 3:
        os._exit(7)
    return number


@dataclass(frozen=True)
class Deadly:
    """A task whose process is killed as often as there are files in a folder, one a time."""

    number: int
    lives: Path


def deadly(folder, count, deaths):
    """Return tasks of which the fourth kills its process a number of times."""
    lives = folder / "lives"
    lives.mkdir()
    for life in range(deaths):
        (lives / str(life)).touch()
    return [Deadly(number, lives) for number in range(count)]


def die_sometimes(task):
    if task.number == 3:
        for life in task.lives.iterdir():
            life.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    return 2 * task.number


@dataclass
class Listed:
    """An opener of a list of images."""

    items: Sequence[Any]

    def read(self, positions):
        return (self.items[position] for position in positions)


class Stubborn:
    """An opener that cannot be pickled."""

    def __init__(self, items):
        self.items = items

    def __reduce__(self):
        raise TypeError("cannot pickle an open camera")

    def read(self, positions):
        for position in positions:
            yield self.items[position]


def gpu_and_process(number):
    time.sleep(0.05)
    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid()


def where_it_lies(handle):
    """Return the mapping of a shared array, whether it can be written, threads, folder and node."""
    import ray
    from threadpoolctl import threadpool_info

    array = handle.load()["matrix"]
    address = array.__array_interface__["data"][0]
    time.sleep(0.1)
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if low <= address < high:
            break
    threads = [pool["num_threads"] for pool in threadpool_info()]
    node = ray.get_runtime_context().get_node_id()
    return line, array.flags.writeable, threads, os.getcwd(), node
