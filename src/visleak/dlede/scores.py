"""The metrics of all trainings of a curve, in one array."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.errors import UsageError
from visleak.records import Bool, Float64

#: Ends of names of metrics of which less is better.
LESS: Final = ("loss", "error", "mae", "mse", "rmse", "nll", "perplexity")

#: Names of metrics that are shares, from 0 to 1, without case and punctuation.
_SHARES: Final = re.compile(
    r"precision|recall|f1(score)?|m?ap[0-9]*|m?ar[0-9]*|(balanced)?acc(uracy)?(top[0-9]+)?|top[15]"
    r"|m?iou|dice|auc|auroc"
)

_PRECISIONS: Final = re.compile(r"m?a[pr][0-9]*")


def is_share_name(metric: str) -> bool:
    """Whether a metric is by its name a share from 0 to 1, of which more is better.

    >>> [is_share_name(name) for name in ("mAP@0.5", "metrics/recall(B)", "F1-score", "val_acc")]
    [True, True, True, True]
    >>> [is_share_name(name) for name in ("loss", "MAPE", "psnr", "mAP loss")]
    [False, False, False, False]
    """
    return _SHARES.fullmatch(bare_name(metric)) is not None


def is_precision_name(metric: str) -> bool:
    """Whether a metric is by its name an average precision or recall of a detector.

    >>> [is_precision_name(name) for name in ("mAP@0.5:0.95", "test/AP50", "precision")]
    [True, True, False]
    """
    return _PRECISIONS.fullmatch(bare_name(metric)) is not None


def bare_name(metric: str) -> str:
    """Return a metric's plain name without the set that it was measured on.

    >>> bare_name("val/mAP50"), bare_name("test_acc"), bare_name("validity")
    ('map50', 'acc', 'validity')
    """
    return plain_name(re.sub(r"^(valid|validation|val|test|eval)[^0-9a-z]+", "", metric.lower()))


def plain_name(metric: str) -> str:
    """Return a metric's name without case, punctuation and what Ultralytics puts around it.

    >>> plain_name("metrics/mAP50-95(B)")
    'map5095'
    """
    bare = re.sub(r"^metrics/|\(b\)$", "", metric.strip().lower())
    return re.sub(r"[^0-9a-z]", "", bare)


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
        rescaled: metrics that were given in percent, and are shares here.
    """

    metrics: tuple[str, ...]
    steps: tuple[int, ...]
    repetitions: tuple[int, ...]
    values: Float64
    lower: frozenset[str] = frozenset()
    rescaled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape = (len(self.metrics), len(self.repetitions), len(self.steps))
        if not self.values.size and 0 in shape:
            # lists of nothing have no shape
            object.__setattr__(self, "values", self.values.reshape(shape))
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
