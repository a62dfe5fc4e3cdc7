"""The metrics of all training runs of a curve, and what their names mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.errors import UsageError
from visleak.records import Bool, Float64

#: Ends of names of metrics for which lower is better.
LOWER: Final = ("loss", "error", "mae", "mse", "rmse", "nll", "perplexity")

#: Names of metrics that are shares, from 0 to 1, without case and punctuation.
_SHARES: Final = re.compile(
    r"precision|recall|f1(score)?|m?ap[0-9]*|m?ar[0-9]*|(balanced)?acc(uracy)?(top[0-9]+)?|top[15]"
    r"|m?iou|dice|auc|auroc"
)

_PRECISIONS: Final = re.compile(r"m?a[pr][0-9]*")

#: Names of the metrics of Babu et al. 2025, the most specific first. ``map`` alone comes last,
#: because some mean the average over 0.5:0.95 by it.
ALIASES: Final = {
    "map50": ("map50", "map05", "map5", "ap50", "map"),
    "f1": ("f1", "f1score"),
}

#: Beginnings of names of metrics that count correct answers.
ACCURACY: Final = ("acc", "balancedacc", "top1", "top5")

#: Metrics of a detector in addition to average precision.
DETECTED: Final = ("precision", "recall", *ALIASES["f1"])

#: Number of steps that decide by default: 0, 10 and 20 % (Babu et al. 2025, section 4).
STEPS: Final = 3


@dataclass(frozen=True)
class Scores:
    """The scores of every training run.

    Attributes:
        metrics: their names.
        steps: percent of the test images that leak, ascending from 0.
        repetitions: numbers of the chains, ascending.
        values: ``float64`` (metrics, repetitions, steps); NaN for missing runs.
        lower: the metrics for which lower is better.
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
            # empty lists have no shape
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
        """Return the number of training runs of a step."""
        return int(np.isfinite(self.values[:, :, self.steps.index(step)]).all(axis=0).sum())


# -- names ----------------------------------------------------------------------------------------


def is_share_name(metric: str) -> bool:
    """Whether a metric is by its name a share from 0 to 1 for which higher is better.

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
    """Return a metric's name without case, punctuation and the affixes of Ultralytics.

    >>> plain_name("metrics/mAP50-95(B)")
    'map5095'
    """
    return re.sub(r"^metrics/|\(b\)$|[^0-9a-z]", "", metric.strip().lower())


def lower_is_better(metrics: Sequence[str], requested: Iterable[str] = ()) -> frozenset[str]:
    """Return the metrics for which lower is better: those requested, and those by their name.

    Raises:
        UsageError: a requested one does not exist.

    >>> sorted(lower_is_better(["map50", "val_loss", "Error"]))
    ['Error', 'val_loss']
    """
    named = frozenset(requested)
    for name in sorted(named - set(metrics)):
        raise UsageError(
            f"--lower-is-better: there is no metric {name!r}; the training runs have"
            f" {', '.join(metrics)}"
        )
    return named | {name for name in metrics if name.lower().endswith(LOWER)}


def guesses_well(metric: str) -> bool:
    """Whether guessing may score far above 0 by a metric, as for the accuracy.

    >>> [guesses_well(name) for name in ("Accuracy", "metrics/accuracy_top1", "val_acc", "F1")]
    [True, True, True, False]
    """
    return bare_name(metric).startswith(ACCURACY)


def metric_called(available: Sequence[str], name: str) -> str | None:
    """Return the metric of a name: the same, the same but for case, or an alias."""
    if name in available:
        return name
    plain = {plain_name(each): each for each in reversed(available)}
    family = next((names for names in ALIASES.values() if plain_name(name) in names), ())
    return next((plain[each] for each in (plain_name(name), *family) if each in plain), None)


def _known(scores: Scores, name: str) -> str:
    found = metric_called(scores.metrics, name)
    if found is None:
        raise UsageError(
            f"there is no metric {name!r}; the training runs have {', '.join(scores.metrics)}"
        )
    return found


def _is_detected(metric: str) -> bool:
    return is_precision_name(metric) or bare_name(metric) in DETECTED


# -- what decides ---------------------------------------------------------------------------------


def deciding_metrics(scores: Scores, requested: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the metrics that decide, by their names in the scores.

    Args:
        scores: of the training runs.
        requested: names or aliases, in any case; empty for mAP and F1 if there are both, otherwise
            all.

    Raises:
        UsageError: one of them does not exist, or is named twice.
    """
    if not requested:
        usual = [metric_called(scores.metrics, name) for name in ALIASES]
        return tuple(filter(None, usual)) if all(usual) else scores.metrics
    names = [_known(scores, name) for name in requested]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"the metric {twice!r} is requested twice; name it once")
    return tuple(names)


def deciding_steps(scores: Scores, requested: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return the steps that decide: those requested, or the first three.

    Raises:
        UsageError: there are fewer than two, one is missing, or they do not begin with the first.
    """
    steps = tuple(scores.steps[:STEPS] if requested is None else requested)
    fits = set(steps) <= set(scores.steps) and list(steps) == sorted(set(steps))
    if len(steps) < 2 or not fits or steps[0] != scores.steps[0]:
        available = ", ".join(map(str, scores.steps))
        shown = ", ".join(map(str, steps)) or "none"
        raise UsageError(
            "a verdict needs two deciding steps or more, ascending and beginning with"
            f" {scores.steps[0]} %; there are {available}, got {shown}"
        )
    return steps


def missing_metrics(scores: Scores, requested: Sequence[str]) -> str:
    """Return a line on the metrics of the paper that a detector lacks; empty if it lacks none.

    Args:
        scores: of the training runs.
        requested: metrics that decide by request; then none is missed.
    """
    missing = [name for name in ALIASES if metric_called(scores.metrics, name) is None]
    classifies = any(guesses_well(metric) for metric in scores.metrics)
    detects = any(map(_is_detected, scores.metrics))
    if requested or classifies or not missing or not detects:
        return ""
    names = " and ".join(missing)
    return (
        f"{names} {'is' if len(missing) == 1 else 'are'} missing: the training runs have only"
        f" {', '.join(scores.metrics)}, and the paper decides by mAP and F1 together; let them"
        f" report {names}, or name the deciding metric with --metric"
    )


# -- guessing -------------------------------------------------------------------------------------


def chance_of(scores: Scores, requested: Mapping[str, float]) -> dict[str, float]:
    """Return the score of guessing, by the names in the scores, where it is known.

    It is as requested, and 0 for average precision, which only detectors have, and for precision,
    recall and F1 of the same model.

    Raises:
        UsageError: a metric does not exist, or its value is not a share below 1.
    """
    for name, value in requested.items():
        if not 0.0 <= value < 1.0:
            raise UsageError(f"chance of {name!r} must be 0 or more and below 1; got {value:g}")
    detects = any(is_precision_name(name) for name in scores.metrics)
    found = {name: 0.0 for name in scores.metrics if detects and _is_detected(name)}
    return found | {_known(scores, name): value for name, value in requested.items()}


def chance_levels(labels: pa.StringArray | None) -> dict[str, float]:
    """Return the score of the best guess without looking at the image, by metric.

    For the accuracy it is the share of the most frequent class of the test set, for the top five
    that of the five most frequent, and for the macro F1 one over the number of classes, which no
    constant answer exceeds.

    Args:
        labels: of the test images; ``None`` or null if unknown.

    >>> chance_levels(pa.array(["a", "a", "a", "b"]))
    {'accuracy': 0.75, 'accuracy_top5': 1.0, 'f1': 0.5}
    """
    counts = Counter([] if labels is None else labels.drop_null().to_pylist())
    if not counts:
        return {}
    shares = [count / counts.total() for _, count in counts.most_common()]
    return {
        "accuracy": shares[0],
        "accuracy_top5": min(1.0, sum(shares[:5])),
        "f1": 1.0 / len(shares),
    }
