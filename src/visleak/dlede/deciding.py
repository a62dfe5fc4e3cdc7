"""Which metrics and which steps decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from visleak.dlede.scores import Scores, bare_name, is_precision_name, plain_name
from visleak.errors import UsageError

#: What the metrics of Babu et al. 2025 are called, most telling name first; case, punctuation
#: and what Ultralytics puts around them do not count. ``map`` alone comes last, for some mean the
#: average over 0.5:0.95 by it.
ALIASES: Final = {
    "map50": ("map50", "map05", "map5", "ap50", "map"),
    "f1": ("f1", "f1score"),
}

#: How names of metrics begin that count right answers.
ACCURACY: Final = ("acc", "balancedacc", "top1", "top5")

#: What a detector has beside average precision.
DETECTED: Final = ("precision", "recall", *ALIASES["f1"])

#: So many steps decide by default: 0, 10 and 20 % (Babu et al. 2025, section 4).
STEPS: Final = 3


def deciding_metrics(scores: Scores, asked: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the metrics that decide, as the scores call them.

    Args:
        scores: what there is.
        asked: names or aliases, in any case; empty for mAP and F1 where both are there, else all.

    Raises:
        UsageError: one of them is not there, or is asked for twice.
    """
    if not asked:
        usual = [metric_called(scores.metrics, name) for name in ALIASES]
        return tuple(filter(None, usual)) if all(usual) else scores.metrics
    chosen: list[str] = []
    for name in asked:
        found = _known(scores, name)
        if found in chosen:
            raise UsageError(f"the metric {found!r} is asked for twice; name it once")
        chosen.append(found)
    return tuple(chosen)


def chance_of(scores: Scores, asked: Mapping[str, float]) -> dict[str, float]:
    """Return what guessing scores, by the names that the scores have, where it is known.

    It is where somebody says so, and 0 for average precision, which only detectors have, and for
    precision, recall and F1 beside it.

    Raises:
        UsageError: a metric is not there, or its value is not a share below 1.
    """
    for name, value in asked.items():
        if not 0.0 <= value < 1.0:
            raise UsageError(f"chance of {name!r} must be 0 or more and below 1; got {value:g}")
    detects = any(is_precision_name(name) for name in scores.metrics)
    found = {name: 0.0 for name in scores.metrics if detects and _is_detected(name)}
    return found | {_known(scores, name): value for name, value in asked.items()}


def _is_detected(metric: str) -> bool:
    return is_precision_name(metric) or bare_name(metric) in DETECTED


def _known(scores: Scores, name: str) -> str:
    found = metric_called(scores.metrics, name)
    if found is None:
        raise UsageError(
            f"there is no metric {name!r}; the trainings have {', '.join(scores.metrics)}"
        )
    return found


def lacking(scores: Scores, asked: Sequence[str]) -> str:
    """Return a line on the metrics of the paper that a detector lacks; empty if it lacks none.

    Args:
        scores: what there is.
        asked: metrics that decide because somebody asked for them: then none is missed.
    """
    there = {name: metric_called(scores.metrics, name) for name in ALIASES}
    missing = [name for name, found in there.items() if found is None]
    classifies = any(guesses_well(metric) for metric in scores.metrics)
    detects = any(map(_is_detected, scores.metrics))
    if asked or classifies or not missing or not detects:
        return ""
    left = ", ".join(scores.metrics)
    lack = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    return (
        f"{lack}: the training runs have {left} only, and the paper decides by mAP and F1 together;"
        f" have them give {' and '.join(missing)}, or name by --metric what is to decide"
    )


def guesses_well(metric: str) -> bool:
    """Whether guessing may score far above 0 by a metric, as it does by the accuracy.

    >>> [guesses_well(name) for name in ("Accuracy", "metrics/accuracy_top1", "val_acc", "F1")]
    [True, True, True, False]
    """
    return bare_name(metric).startswith(ACCURACY)


def metric_called(there: Sequence[str], name: str) -> str | None:
    """Return the metric that a name means: the same, the same but for case, or an alias."""
    if name in there:
        return name
    plain = {plain_name(each): each for each in reversed(there)}
    family = next((names for names in ALIASES.values() if plain_name(name) in names), ())
    return next((plain[each] for each in (plain_name(name), *family) if each in plain), None)


def deciding_steps(scores: Scores, asked: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return the steps that decide: those asked for, or the first three.

    Raises:
        UsageError: there are fewer than two, one is missing, or they do not begin with the first.
    """
    steps = tuple(scores.steps[:STEPS] if asked is None else asked)
    fits = set(steps) <= set(scores.steps) and list(steps) == sorted(set(steps))
    if len(steps) < 2 or not fits or steps[0] != scores.steps[0]:
        there = ", ".join(map(str, scores.steps))
        shown = ", ".join(map(str, steps)) or "none"
        raise UsageError(
            "a verdict is decided by two steps or more, ascending and beginning with"
            f" {scores.steps[0]} %; there are {there}, got {shown}"
        )
    return steps
