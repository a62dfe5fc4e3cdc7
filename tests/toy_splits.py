"""Splits of blank images, and trainers that answer at once, for the tests of D-LeDe."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from visleak.dlede.draw import Split
from visleak.dlede.train import Outcome
from visleak.formats import open_images

BLANK = np.zeros((8, 8, 3), np.uint8)


def split_of(train, test, labels=0, groups=0):
    """Return a split of blank images; labels and groups repeat in turn."""
    sets = []
    for name, count in (("train", train), ("test", test)):
        images = open_images([BLANK] * count, name=name)
        for column, kinds in (("labels", labels), ("groups", groups)):
            if kinds:
                values = pa.array([f"{column[0]}{row % kinds}" for row in range(count)])
                images = replace(images, **{column: values})
        sets.append(images)
    return Split(*sets)


@dataclass(frozen=True)
class Rehearsed:
    """A trainer with known scores, ``base`` at step 0, that can be sent to other processes.

    ``told`` gets a line for every training, which ``lasts`` seconds; ``broken``: (step, repetition)
    to how many attempts fail.
    """

    base: float = 0.5
    told: Path | None = None
    broken: Mapping[tuple[int, int], int] = field(default_factory=dict)
    lasts: float = 0.0
    name: str = "rehearsed"
    decides: Sequence[str] = ()
    lower: Sequence[str] = ()

    def about(self):
        """Return what changes its results."""
        return {"base": self.base, "epochs": 3}

    def prepare(self, split, folder, progress):
        """Need no look at the split."""
        return self

    def train(self, task, folder):
        """Score a leaked image 1, another as the base says, with a little noise of the seed."""
        time.sleep(self.lasts)
        here = task.step, task.repetition
        (folder / "log.txt").write_text(f"trained {here}")
        attempts = 1
        if self.told is not None:
            with self.told.open("a") as lines:
                lines.write(f"{here} {task.seed} {task.epochs}\n")
            attempts = self.told.read_text().count(f"{here} ")
        if attempts <= self.broken.get(here, 0):
            raise RuntimeError(f"attempt {attempts} broke")
        values = np.full(len(task.test), self.base)
        values += np.random.default_rng(task.seed).normal(0, 0.001)
        values[task.draw.leaked] = 1.0
        mean = {"accuracy": float(values.mean())}
        return Outcome(mean, {"accuracy": values}, {"epochs": task.epochs})


class Resident(Rehearsed):
    """Trains in the process of the test, as what cannot be sent to others does: at once."""

    def __reduce__(self):
        raise TypeError("stays in this process")
