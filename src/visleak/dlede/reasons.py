"""Why scores cannot decide: codes for programs, and words for people.

A score that hardly rises is a sign of a leak only where it would rise without one. It would not
where the model has not learned the task, and where the score is so high already that images which
are memorized add no more than the threshold. Such a metric is undecided, whatever its chances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.dlede.numbers import metric_name, percent, score
from visleak.dlede.rules import ROUNDING, Rule
from visleak.records import Float64, Int64

#: Codes of a metric.
NO_RESULT: Final = "no-complete-repetition"
CONSTANT: Final = "constant-scores"
ZERO: Final = "zero-score"
NOT_LEARNED: Final = "model-did-not-learn"
UNKNOWN_CHANCE: Final = "chance-not-known"
TOO_HIGH: Final = "score-too-high"
SOME_NOT_LEARNED: Final = "repetitions-did-not-learn"
UNKNOWN_SCALE: Final = "scale-not-known"
IDENTICAL: Final = "identical-repetitions"

#: Codes of what all metrics say together, beside those of one.
ONE_REPETITION: Final = "one-repetition"
NOT_CERTAIN: Final = "not-certain"
DISAGREE: Final = "metrics-disagree"
CALIBRATION_FAILED: Final = "calibration-failed"
NO_CLEAN_CURVE: Final = "no-split-without-leaks"
NONE_FOUND: Final = "no-leak-is-found"
PROVED: Final = "leak-proved-without-retraining"

#: Of the way from guessing to a perfect score, what a model covers at least that has learned.
LEARNED: Final = 0.1


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a metric cannot decide.

    Attributes:
        code: for programs.
        words: one line.
    """

    code: str
    words: str


def unusable(metric: str, steps: Sequence[int], values: Float64, pairs: Int64) -> Reason | None:
    """Return why the scores of a metric have no meaning, ``None`` where they have one.

    Args:
        metric: its name.
        steps: that decide.
        values: (chains, steps) of complete chains.
        pairs: (increases, 2): which of the steps are compared.
    """
    if not len(values):
        return Reason(NO_RESULT, "no repetition has a result at every step that decides")
    # all right, always: a score at its ceiling, which is another reason
    if not np.ptp(values, axis=1).any() and (values != 1.0).any():
        same = f"{metric_name(metric)} of {values.flat[0]:.4g}"
        alike = (
            f"all {values.size:,} trainings have a {same}, to the last digit"
            if np.ptp(values) == 0.0
            else f"{metric_name(metric)} is the same at every step of a repetition, to the last"
            " digit"
        )
        return Reason(
            CONSTANT, f"{alike}; see that what is trained learns from the images it is given"
        )
    empty = [before for before, _ in pairs if not values[:, before].mean() > 0.0]
    if not empty:
        return None
    mean = values[:, empty[0]].mean()
    return Reason(
        ZERO,
        f"{metric_name(metric)} has a mean of {mean:.3g} at {steps[empty[0]]} %, and a relative"
        " increase needs one above 0; train longer, or decide by another metric",
    )


def is_share(values: Float64) -> bool:
    """Whether all known values lie from 0 to 1, so that 1 is taken for the best one."""
    known = values[np.isfinite(values)]
    # single precision may miss 1 by a little
    return bool(len(known)) and bool(((known >= -1e-6) & (known <= 1.0 + 1e-6)).all())


def bar(chance: float) -> float:
    """Return the score from which a model counts as one that has learned the task.

    Args:
        chance: what guessing scores.
    """
    return chance + LEARNED * (1.0 - chance)


def not_learned(metric: str, starts: Float64, chance: float) -> Reason | None:
    """Return that a model scores hardly more than guessing does, ``None`` if it scores more.

    Args:
        metric: its name.
        starts: of each repetition, its score without leaks on purpose, a share.
        chance: what guessing scores.
    """
    start, few = float(starts.mean()), int((starts < bar(chance)).sum())
    if start >= bar(chance):
        if 2 * few < len(starts):
            return None
        return Reason(
            SOME_NOT_LEARNED,
            f"in {few} of {len(starts)} repetitions {metric_name(metric)} is hardly more than the"
            f" {score(chance)} of guessing without leaks on purpose, and a model that has not"
            " learned the task gains nothing from leaks: train longer, or another model",
        )
    return Reason(
        NOT_LEARNED,
        f"{metric_name(metric)} is {score(start)} without leaks on purpose, hardly more than the"
        f" {score(chance)} of guessing: a model that has not learned the task gains nothing from"
        " leaks either; train longer, or another model",
    )


def unknown_chance(metric: str) -> Reason:
    """Return that it is not known what guessing scores."""
    return Reason(
        UNKNOWN_CHANCE,
        f"what guessing scores by {metric_name(metric)} is not known, so a model that has not"
        " learned the task cannot be told from a leak: name it with --chance METRIC=RATE, such"
        " as the share of the largest class, or 0 of a detector",
    )


def unknown_scale(metric: str) -> Reason:
    """Return that it is not known what guessing and a perfect model score."""
    return Reason(
        UNKNOWN_SCALE,
        f"the scale of {metric_name(metric)} is not known (not a share from 0 to 1 of which more is"
        " better), so a model that has not learned the task, or can hardly get better, cannot be"
        " told from a leak: decide by another metric (--metric)",
    )


def identical(metric: str, values: Float64) -> Reason | None:
    """Return that all repetitions score the same at each step, ``None`` if they do not.

    Args:
        metric: its name.
        values: (repetitions, steps): of the steps that decide.
    """
    # perfect scores have no room to scatter
    if len(values) < 2 or np.ptp(values, axis=0).any() or (values == 1.0).all():
        return None
    return Reason(
        IDENTICAL,
        f"all {len(values)} repetitions have the same {metric_name(metric)} at each step, to the"
        " last digit, so that one repetition is all there is: let each use its own seed, and give"
        " all digits",
    )


def memorized(start: float, steps: Sequence[int], rule: Rule, room: float | None = None) -> float:
    """Return the statistic of a model that memorizes what leaks, and gains nothing else by it.

    Where a share p has leaked, such a model scores P + p (1 - P): exactly so of the share of right
    answers, about so of mAP and F1. By both-steps, 10 % and 5 % it exceeds the threshold below a
    start of P = .667 only.

    Args:
        start: score without leaks on purpose, above 0 and at most 1.
        steps: that decide.
        rule: makes one number of their increases.
        room: what the score gains where all test images leak; by default 1 - P.
    """
    leaked = np.array(steps) / 100.0
    gained = 1.0 - start if room is None else room
    return float(rule.statistic(start + (leaked - leaked[0]) * gained))


def highest_start(steps: Sequence[int], rule: Rule, threshold: float) -> float:
    """Return the score from which memorizing what leaks does not exceed the threshold."""
    starts = np.arange(1, 1001) / 1000.0
    low = [float(start) for start in starts if memorized(start, steps, rule) <= threshold]
    return min(low, default=1.0)


def too_high(
    metric: str,
    starts: Float64,
    steps: Sequence[int],
    rule: Rule,
    threshold: float,
    chance: float = 0.0,
) -> Reason | None:
    """Return that a score starts too high to exceed the threshold, ``None`` if it does not.

    Args:
        metric: its name.
        starts: of each repetition, its score without leaks on purpose, a share; one that has not
            learned the task memorizes nothing.
        steps: that decide.
        rule, threshold: how they decide.
        chance: what guessing scores.
    """
    start = float(starts.mean())
    room = float(np.where(starts < bar(chance), 0.0, 1.0 - starts).mean())
    most = memorized(start, steps, rule, room)
    if most > threshold + ROUNDING:
        return None
    return Reason(
        TOO_HIGH,
        f"{metric_name(metric)} is {score(start)} without leaks on purpose: memorizing what leaks"
        f" raises it by about {percent(round(most, 3))}, which is not above the threshold of"
        f" {percent(threshold)}, so that a split without leaks looks the same",
    )
