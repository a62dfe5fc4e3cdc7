"""Trainers: a command, a library, bundled networks, or any object with the same methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.dlede.train import Trainer
from visleak.errors import UsageError
from visleak.lazy import load
from visleak.records import Int64

#: Name before the colon -> function that makes a trainer of a :class:`TrainerRequest`.
TRAINERS: Final = {
    "command": "visleak.dlede.trainers.command:command_trainer",
    "ultralytics": "visleak.dlede.trainers.ultralytics_trainer:ultralytics_trainer",
    "torch": "visleak.dlede.trainers.networks:torch_trainer",
    "lookup": "visleak.dlede.trainers.lookup:lookup_trainer",
}


@dataclass(frozen=True, slots=True)
class TrainerRequest:
    """The trainer that the command line names."""

    name: str  # before the colon
    argument: str = ""  # after it, or empty
    device: str = "auto"  # of torch: auto, cpu, cuda:0 ..
    threads: int = 1  # of torch, for one training
    time_limit: float | None = None  # seconds after which a training run counts as failed, or None

    @property
    def text(self) -> str:
        """As it was written."""
        return f"{self.name}:{self.argument}" if self.argument else self.name


def load_trainer(
    text: str, *, device: str = "auto", threads: int = 1, time_limit: float | None = None
) -> Trainer:
    """Return the trainer that a text names, such as ``torch:detector`` or ``command:...``.

    Raises:
        UsageError: there is none of that name, or its argument is wrong.
        MissingExtra: it needs a package that is not installed.
    """
    name, _, argument = text.partition(":")
    if name not in TRAINERS:
        raise UsageError(
            f"--trainer is one of {', '.join(TRAINERS)}, such as torch:detector or command:'CMD"
            f" {{train}} {{test}} {{out}} {{seed}}'; got {text!r}"
        )
    make: Callable[[TrainerRequest], Trainer] = load(TRAINERS[name])
    return make(TrainerRequest(name, argument, device, threads, time_limit))


def label_metrics(
    true: Int64, predicted: Int64, *, predicted_classes: bool = False
) -> Mapping[str, float]:
    """Return ``accuracy`` and ``f1`` of classes (n,); -1 for none predicted.

    F1 is the mean over the classes that occur (macro), or are predicted as well, of
    2 TP / (predicted + true).

    >>> label_metrics(np.array([0, 0, 1]), np.array([0, 1, 1]))["f1"]
    0.6666666666666666
    """
    classes = int(max(true.max(), predicted.max())) + 1
    right = true == predicted
    found = np.bincount(true[right], minlength=classes)
    count = np.bincount(true, minlength=classes)
    guessed = np.bincount(predicted[predicted >= 0], minlength=classes)
    known = count + (guessed if predicted_classes else 0) > 0
    f1 = 2 * found[known] / (guessed + count)[known]
    return {"accuracy": float(right.mean()), "f1": float(f1.mean())}
