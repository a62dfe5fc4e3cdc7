"""Functions and openers that worker processes can import."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visleak.errors import MissingExtra, UsageError


def double(number: int) -> int:
    return 2 * number


def slow_first(number: int) -> int:
    import time

    time.sleep(0.2 if number == 0 else 0)
    return number


def process_of(number: int) -> int:
    import time

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
    """An opener that notes which positions were asked for, in a file a process."""

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
