"""From the scores of all training runs to a verdict, with its certainty.

A score that hardly rises is a sign of a leak only if it would rise without one. It would not if
the model has not learned the task, or if the score is so high already that memorized images add no
more than the threshold. Such a metric is undecided, whatever its certainty, with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.dlede.judge import (
    CLEAN,
    FIRST,
    LEAKING,
    ROUNDING,
    RULES,
    UNDECIDED,
    Rule,
    chance_above,
    chances,
    drawn_increases,
    draws,
    excess,
    in_order,
    increase,
    margins,
    mean_interval,
    needed,
    on_means,
    statistic_interval,
)
from visleak.dlede.judge.scores import Scores, chance_of, deciding_metrics, deciding_steps
from visleak.dlede.results import (
    Judgement,
    MetricJudgement,
    StepScore,
    metric_name,
    percent,
    score,
)
from visleak.dlede.settings import DecisionSettings, Plan
from visleak.records import Float64, Int64
from visleak.stats.bootstrap import Estimate

#: Codes of a metric.
NO_RESULT: Final = "no-complete-repetition"
CONSTANT: Final = "constant-scores"
FALLING: Final = "worsening-scores"
ZERO: Final = "zero-score"
NOT_LEARNED: Final = "model-did-not-learn"
UNKNOWN_CHANCE: Final = "chance-not-known"
TOO_HIGH: Final = "score-too-high"
SOME_NOT_LEARNED: Final = "repetitions-did-not-learn"
UNKNOWN_SCALE: Final = "scale-not-known"
IDENTICAL: Final = "identical-repetitions"
#: Further codes of all metrics together.
ONE_REPETITION: Final = "one-repetition"
NOT_CERTAIN: Final = "not-certain"
DISAGREE: Final = "metrics-disagree"
CALIBRATION_FAILED: Final = "calibration-failed"
NO_CLEAN_CURVE: Final = "no-split-without-leaks"
NONE_FOUND: Final = "no-leak-is-found"
PROVED: Final = "leak-proved-without-retraining"
#: Of the way from guessing to a perfect score, what a model covers at least that has learned.
LEARNED: Final = 0.1


@dataclass(frozen=True)
class _Judge:
    """How a metric is judged; ``weights`` gives the draws for a number of chains."""

    rule: Rule
    threshold: float
    certainty: float
    weights: Callable[[int], Float64]
    chance: Mapping[str, float] = field(default_factory=dict)
    calibrated: bool = False


def judge(
    scores: Scores,
    decision: DecisionSettings,
    *,
    decided_by: tuple[int, ...] | None = None,
    calibrated: bool = False,
    resamples: int = 10_000,
    seed: int = 0,
) -> Judgement:
    """Judge a split by the effect of leaks on purpose on the scores.

    Verdicts rest on complete chains: repetitions that have every deciding metric at every
    deciding step. The others are excluded and counted. Later steps are described, from the chains
    that have them, and decide nothing.

    The error rate of a verdict is about ``1 - certainty``: ``leaking`` for a split whose true
    statistic is above the threshold, and ``clean`` for one where it is not, for any metric
    (:mod:`visleak.dlede.judge`). With one repetition, or published means, the certainty
    is not known: the verdict is ``undecided``, and ``on_means`` is the paper's.

    A metric that hardly rises is ``undecided`` as well, with the reason, if it would not rise
    without a leak either: the model has not learned, or starts too high. A ``calibrated`` threshold
    allows for a high start.

    Source: Babu et al. 2025, Algorithm 1 and section 4; the certainty is ours.
    """
    names = deciding_metrics(scores, decision.metrics)
    steps = deciding_steps(scores, decided_by)
    values = scores.values[[scores.metrics.index(name) for name in names]]
    columns = np.array([scores.steps.index(step) for step in steps])
    complete = np.asarray(np.isfinite(values[:, :, columns]).all(axis=(0, 2)))
    values, chains = in_order(values[:, complete]), int(complete.sum())
    weights = cache(lambda chains: draws(chains, resamples, seed))
    known = chance_of(scores, decision.chance)
    bounds = decision.limit, decision.certainty
    by = _Judge(RULES[decision.rule], *bounds, weights, known, calibrated)
    found = [
        _judged(by, scores, name, of_metric, columns)
        for name, of_metric in zip(names, values, strict=True)
    ]
    verdicts = {each.verdict for each in found}
    made = Judgement(
        rule=decision.rule,
        threshold=by.threshold,
        certainty=by.certainty,
        decided_by=steps,
        repetitions=chains,
        left_out=len(complete) - chains,
        metrics=tuple(found),
        on_means=_together({each.on_means for each in found}),
        leaking=min(each.leaking for each in found) if chains > 1 else math.nan,
        clean=min(each.clean for each in found) if chains > 1 else math.nan,
        verdict=_together(verdicts),
        disagree={LEAKING, CLEAN} <= verdicts,
        more=_more(by, found, values, columns),
    )
    if made.verdict != UNDECIDED:
        return made
    alone = ONE_REPETITION if chains < 2 else DISAGREE if made.disagree else NOT_CERTAIN
    code = next((each.reason_code for each in found if each.reason_code), alone)
    return replace(made, reason_code=code if found else NO_RESULT)


def judge_by_others(
    scores: Scores, decision: DecisionSettings, threshold: float, *, calibrated: bool = False
) -> tuple[Judgement, ...]:
    """Judge scores by the rules that were not requested."""
    rules = (rule for rule in RULES if rule != decision.rule)
    others = (replace(decision, rule=rule, threshold=threshold) for rule in rules)
    return tuple(judge(scores, other, calibrated=calibrated) for other in others)


def proved(plan: Plan, decision: DecisionSettings) -> Judgement:
    """Return the judgement of a split with a proved leak: ``leaking``, without scores."""
    return Judgement(
        *(decision.rule, decision.limit, decision.certainty, plan.steps[:3], 0, 0, (), UNDECIDED),
        leaking=math.nan,
        clean=math.nan,
        verdict=LEAKING,
        reason_code=PROVED,
    )


def _together(verdicts: set[str]) -> str:
    return next(iter(verdicts)) if len(verdicts) == 1 else UNDECIDED


def _judged(
    judge: _Judge, scores: Scores, metric: str, values: Float64, columns: Int64
) -> MetricJudgement:
    """Judge one metric by the chains that are complete, (chains, steps)."""
    lower, weights = metric in scores.lower, judge.weights(len(values))
    steps = tuple(_step(judge, scores.steps, values, at, lower) for at in range(values.shape[1]))
    deciding = [scores.steps[column] for column in columns]
    pairs = judge.rule.pairs(len(columns))
    if reason := _unusable(metric, deciding, values[:, columns], pairs):
        unknown = math.nan if len(values) < 2 else 0.0
        return MetricJudgement(
            *(metric, lower, steps, Estimate(math.nan), UNDECIDED, unknown, UNDECIDED, unknown),
            reason=reason.words,
            reason_code=reason.code,
        )
    sides = [(values[:, before], values[:, after]) for before, after in columns[pairs]]
    statistic = _statistic(judge, sides, lower)
    off = margins(values, columns[pairs], judge.threshold)
    at_most, at_least = (
        [
            chance_above(*side, judge.threshold, lower, weights, margin)
            for side, margin in zip(sides, sign * off, strict=True)
        ]
        for sign in (1.0, -1.0)
    )
    leaking, clean = chances(at_most, judge.rule)[0], chances(at_least, judge.rule)[1]
    # chances of one repetition are NaN, and no NaN is large enough
    verdict = CLEAN if clean >= judge.certainty else UNDECIDED
    made = MetricJudgement(
        metric=metric,
        lower=lower,
        steps=steps,
        statistic=statistic,
        on_means=on_means(statistic.value, judge.threshold),
        leaking=leaking,
        verdict=LEAKING if leaking >= judge.certainty else verdict,
        clean=clean,
    )
    fall = max(chance_above(b, a, judge.threshold, lower, weights) for a, b in sides)
    if made.verdict == LEAKING and fall >= judge.certainty:
        # no leak explains it: with one, scores stay as they are
        words = (
            f"{metric_name(metric)} {'rises' if lower else 'falls'} by more than"
            f" {percent(judge.threshold)} where test images leak on purpose, and neither a split"
            " with leaks nor one without does that: check the order of the steps, the metric, and"
            " what each training run was given"
        )
        return _held_back(made, Reason(FALLING, words))
    share = is_share(scores.of(metric))
    if reason := _would_not_rise(judge, made, values[:, columns[0]], deciding, share):
        return _held_back(made, reason)
    if reason := _identical(metric, values[:, columns]):
        return replace(_held_back(made, reason), leaking=math.nan, clean=math.nan)
    return made


def _would_not_rise(
    judge: _Judge, made: MetricJudgement, starts: Float64, deciding: Sequence[int], share: bool
) -> Reason | None:
    small = LEAKING in (made.on_means, made.verdict)
    if not small and (made.verdict == CLEAN or math.isnan(made.leaking)):
        return None
    metric, undetermined = metric_name(made.metric), small and not judge.calibrated
    if made.lower or not share:
        words = (
            f"the scale of {metric} is not known (not a share from 0 to 1 of which more is better),"
            " so a model that has not learned the task, or can hardly get better, cannot be"
            " distinguished from a leak: decide by another metric (--metric)"
        )
        return Reason(UNKNOWN_SCALE, words) if undetermined else None
    chance = judge.chance.get(made.metric)
    reason = _not_learned(metric, starts, chance or 0.0)
    if reason is None and not judge.calibrated:
        reason = _too_high(metric, starts, deciding, judge, chance or 0.0)
    if reason is None and undetermined and chance is None:
        words = (
            f"what guessing scores by {metric} is not known, so a model that has not learned the"
            " task cannot be distinguished from a leak: name it with --chance METRIC=RATE, such as"
            " the share of the largest class, or 0 of a detector"
        )
        return Reason(UNKNOWN_CHANCE, words)
    return reason


def _held_back(made: MetricJudgement, reason: Reason) -> MetricJudgement:
    """Return a judgement without a verdict; a small increase does not indicate a leak."""
    leaking = made.leaking if math.isnan(made.leaking) else 0.0
    return replace(
        made, verdict=UNDECIDED, leaking=leaking, reason=reason.words, reason_code=reason.code
    )


def _statistic(judge: _Judge, sides: Sequence[tuple[Float64, Float64]], lower: bool) -> Estimate:
    """Return the rule's statistic of the scores before and after; an interval of two chains."""
    found = np.array([increase(p.mean(), c.mean(), lower) for p, c in sides])
    chains = len(sides[0][0])
    if chains < 2 or np.isnan(found).any():
        return Estimate(float(judge.rule.of(found)))
    weights = judge.weights(chains)
    drawn = np.stack([drawn_increases(p, c, lower, weights) for p, c in sides], axis=-1)
    return statistic_interval(found, drawn, judge.rule)


def _step(judge: _Judge, steps: Sequence[int], values: Float64, at: int, lower: bool) -> StepScore:
    """Describe one step; its increase is that of the chains which have the step before, too."""
    column = values[:, at]
    there = column[np.isfinite(column)]
    rise, above = Estimate(0.0), math.nan
    if at:
        both = np.isfinite(values[:, [at - 1, at]]).all(axis=1)
        sides = values[both, at - 1], values[both, at]
        single = replace(judge, rule=RULES["cumulative"])
        rise = _statistic(single, [sides], lower) if both.any() else Estimate(math.nan)
        above = chance_above(*sides, judge.threshold, lower, judge.weights(len(sides[0])))
    deviation = float(there.std(ddof=1)) if len(there) > 1 else math.nan
    return StepScore(steps[at], len(there), mean_interval(there), deviation, rise, above)


def _more(
    judge: _Judge, found: Sequence[MetricJudgement], values: Float64, columns: Int64
) -> int | None:
    chains = int(values.shape[1])
    if any(each.reason for each in found) and chains:
        return None
    if chains < 2:
        return FIRST - chains
    pairs = columns[judge.rule.pairs(len(columns))]
    numbers = []
    for each, scores in zip(found, values, strict=True):
        if each.verdict == UNDECIDED:
            before, after = scores[:, pairs[:, 0]], scores[:, pairs[:, 1]]
            exceeds = excess(before, after, judge.threshold, each.lower)
            off = margins(scores, pairs, judge.threshold)
            numbers.append(needed(exceeds, judge.rule, judge.certainty, off))
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a metric cannot decide: a code for programs, and one line."""

    code: str
    words: str


def _unusable(metric: str, steps: Sequence[int], values: Float64, pairs: Int64) -> Reason | None:
    """Return why the scores of complete chains, (chains, steps), have no meaning."""
    if not len(values):
        return Reason(NO_RESULT, "no repetition has a result at every step that decides")
    name = metric_name(metric)
    # all right, always: a score at its ceiling, which is another reason
    if not np.ptp(values, axis=1).any() and (values != 1.0).any():
        text = f"{name} is the same at every step of a repetition, to the last digit"
        if np.ptp(values) == 0.0:
            same = f"{name} of {values.flat[0]:.4g}"
            text = f"all {values.size:,} training runs have a {same}, to the last digit"
        return Reason(CONSTANT, f"{text}; check that the model learns from the given images")
    for before, _ in pairs:
        if not (mean := values[:, before].mean()) > 0.0:
            words = (
                f"{name} has a mean of {mean:.3g} at {steps[before]} %, and a relative increase"
                " needs one above 0; train longer, or decide by another metric"
            )
            return Reason(ZERO, words)
    return None


def is_share(values: Float64) -> bool:
    """Whether all known values are from 0 to 1, so that 1 is taken for the best one."""
    known = values[np.isfinite(values)]
    # single precision may miss 1 by a little
    return bool(len(known)) and bool(((known >= -1e-6) & (known <= 1.0 + 1e-6)).all())


def bar(chance: float) -> float:
    """Return the score from which a model counts as one that has learned, by that of guessing."""
    return chance + LEARNED * (1.0 - chance)


def _not_learned(metric: str, starts: Float64, chance: float) -> Reason | None:
    """Return that a model scores hardly more than guessing, by the starts of all repetitions."""
    start, few = float(starts.mean()), int((starts < bar(chance)).sum())
    if start < bar(chance):
        return Reason(
            NOT_LEARNED,
            f"{metric} is {score(start)} without leaks on purpose, hardly more than the"
            f" {score(chance)} of guessing: a model that has not learned the task gains nothing"
            " from leaks either; train longer, or another model",
        )
    if 2 * few < len(starts):
        return None
    return Reason(
        SOME_NOT_LEARNED,
        f"in {few} of {len(starts)} repetitions {metric} is hardly more than the {score(chance)} of"
        " guessing without leaks on purpose, and a model that has not learned the task gains"
        " nothing from leaks: train longer, or another model",
    )


def _identical(metric: str, values: Float64) -> Reason | None:
    """Return that all repetitions score the same at each deciding step."""
    # perfect scores have no room to scatter
    if len(values) < 2 or np.ptp(values, axis=0).any() or (values == 1.0).all():
        return None
    return Reason(
        IDENTICAL,
        f"all {len(values)} repetitions have the same {metric_name(metric)} at each step, to the"
        " last digit, so that one repetition is all there is: let each use its own seed, and give"
        " all digits",
    )


def memorized(
    start: npt.ArrayLike, steps: Sequence[int], rule: Rule, room: float | None = None
) -> Float64:
    """Return the statistic of models that memorize what leaks, and gain nothing else by it, (...).

    Where a share p has leaked, such a model scores P + p (1 - P): exactly so of the share of right
    answers, about so of mAP and F1. By both-steps, 10 % and 5 % it exceeds the threshold below a
    start of P = .667 only. ``room`` is the gain where all test images leak, by default 1 - P.
    """
    leaked = np.array(steps) / 100.0
    starts = np.asarray(start, np.float64)[..., None]
    gained = 1.0 - starts if room is None else room
    return rule.statistic(starts + (leaked - leaked[0]) * gained)


def highest_start(steps: Sequence[int], rule: Rule, threshold: float) -> float:
    """Return the score from which memorizing what leaks does not exceed the threshold."""
    starts = np.arange(1, 1001) / 1000.0
    found = starts[memorized(starts, steps, rule) <= threshold]
    return float(found[0]) if len(found) else 1.0


def _too_high(
    metric: str, starts: Float64, steps: Sequence[int], judge: _Judge, chance: float
) -> Reason | None:
    """Return that a score starts too high to exceed the threshold."""
    start = float(starts.mean())
    # a repetition that has not learned the task memorizes nothing
    room = float(np.where(starts < bar(chance), 0.0, 1.0 - starts).mean())
    most = float(memorized(start, steps, judge.rule, room))
    if most > judge.threshold + ROUNDING:
        return None
    return Reason(
        TOO_HIGH,
        f"{metric} is {score(start)} without leaks on purpose: memorizing what leaks raises it by"
        f" about {percent(round(most, 3))}, which is not above the threshold of"
        f" {percent(judge.threshold)}, so that a split without leaks looks the same",
    )
