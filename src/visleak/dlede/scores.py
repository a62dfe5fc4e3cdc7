"""The metrics of all trainings of a curve, in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.errors import UsageError
from visleak.records import Bool, Float64

#: Ends of names of metrics of which less is better.
LESS: Final = ("loss", "error", "mae", "mse", "rmse", "nll", "perplexity")


def less_is_better(metrics: Sequence[str], asked: Iterable[str] = ()) -> frozenset[str]:
    """Return the metrics of which less is better: those asked for, and those called so.

    Raises:
        UsageError: one that is asked for is not there.

    >>> sorted(less_is_better(["map50", "val_loss", "Error"]))
    ['Error', 'val_loss']
    """
    wanted = frozenset(asked)
    for name in sorted(wanted - set(metrics)):
        raise UsageError(
            f"--lower: there is no metric {name!r}; the trainings have {', '.join(metrics)}"
        )
    return wanted | {name for name in metrics if name.lower().endswith(LESS)}


@dataclass(frozen=True)
class Scores:
    """What every training scored.

    Attributes:
        metrics: their names.
        steps: percent of the test images that leak, ascending from 0.
        repetitions: numbers of the chains, ascending.
        values: ``float64`` (metrics, repetitions, steps); NaN where a training is missing.
        lower: the metrics of which less is better.
    """

    metrics: tuple[str, ...]
    steps: tuple[int, ...]
    repetitions: tuple[int, ...]
    values: Float64
    lower: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        shape = (len(self.metrics), len(self.repetitions), len(self.steps))
        if self.values.shape != shape:
            raise ValueError(f"values must have the shape {shape}, not {self.values.shape}")

    def of(self, metric: str) -> Float64:
        """Return the values of one metric, (repetitions, steps)."""
        return np.asarray(self.values[self.metrics.index(metric)])

    def complete(self, steps: tuple[int, ...]) -> Bool:
        """Return which chains have every metric at each of some steps, (repetitions,)."""
        columns = [self.steps.index(step) for step in steps]
        return np.asarray(np.isfinite(self.values[:, :, columns]).all(axis=(0, 2)))

    def count(self, step: int) -> int:
        """Return how many trainings of a step there are."""
        return int(np.isfinite(self.values[:, :, self.steps.index(step)]).all(axis=0).sum())
