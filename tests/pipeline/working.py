"""Functions and openers that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from visleak.errors import MissingExtra, UsageError


def crops(natural: Mapping[str, np.ndarray], count: int, side: int, seed: int = 0) -> list:
    """Return squares of photographs."""
    rng = np.random.default_rng(seed)
    sources, found = list(natural.values()), []
    for _ in range(count):
        source = sources[rng.integers(len(sources))]
        top, left = (int(rng.integers(0, edge - side)) for edge in source.shape[:2])
        found.append(np.ascontiguousarray(source[top : top + side, left : left + side]))
    return found


def double(number: int) -> int:
    return 2 * number


def slow_first(number: int) -> int:
    time.sleep(0.2 if number == 0 else 0)
    return number


def process_of(number: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def load(path: Path) -> Any:
    return path.load()


def identity_of(path: Path) -> int:
    return id(path.load())


def fail(number: int) -> int:
    if number == 3:
        raise UsageError("the third is wrong")
    return number


def fail_oddly(number: int) -> int:
    return {}[number]


def lack(number: int) -> int:
    raise MissingExtra("heif", "HEIF pictures")


#: Tasks that fail, the kind of error and its text: parameters of a test.
FAILURES = (
    ("function", "kind", "said"),
    [
        (fail, UsageError, "the third is wrong"),
        (fail_oddly, KeyError, "0"),
        (lack, MissingExtra, "HEIF pictures needs an extra: pip install 'visleak[heif]'"),
    ],
)


def die(number: int) -> int:
    if number == 3:
        os._exit(7)
    return number


@dataclass(frozen=True)
class Deadly:
    """A task whose process is killed as often as there are files in a folder, one a time."""

    number: int
    lives: Path


def die_sometimes(task: Deadly) -> int:
    if task.number == 3:
        for life in task.lives.iterdir():
            life.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    return 2 * task.number


@dataclass
class Recorder:
    """An opener that notes which positions are read, in one file per process."""

    items: Sequence[Any]
    notes: Path

    def read(self, positions):
        with (self.notes / str(os.getpid())).open("a") as file:
            for position in positions:
                file.write(f"{int(position)}\n")
                yield self.items[position]

    def noted(self) -> list[int]:
        texts = [path.read_text().split() for path in self.notes.iterdir()]
        return sorted(int(word) for text in texts for word in text)


class Stubborn:
    """An opener that cannot be pickled."""

    def __init__(self, items):
        self.items = items

    def __reduce__(self):
        raise TypeError("cannot pickle an open camera")

    def read(self, positions):
        for position in positions:
            yield self.items[position]
