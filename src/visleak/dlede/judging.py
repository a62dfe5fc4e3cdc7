"""From the scores of all trainings to a verdict, with how certain it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from visleak.dlede.certainty import (
    chance_above,
    chances,
    drawn_increases,
    draws,
    in_order,
    margins,
    mean_interval,
    statistic_interval,
)
from visleak.dlede.deciding import chance_of, deciding_metrics, deciding_steps
from visleak.dlede.increase import excess, increase
from visleak.dlede.needed import FIRST, needed
from visleak.dlede.reasons import (
    DISAGREE,
    NO_RESULT,
    NOT_CERTAIN,
    ONE_REPETITION,
    Reason,
    identical,
    is_share,
    not_learned,
    too_high,
    unknown_chance,
    unknown_scale,
    unusable,
)
from visleak.dlede.results import Estimate, Judgement, MetricJudgement, StepScore
from visleak.dlede.rules import CLEAN, LEAKING, RULES, UNDECIDED, Rule, on_means
from visleak.dlede.scores import Scores
from visleak.errors import UsageError
from visleak.records import Float64, Int64


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
    *,
    rule: str = "both-steps",
    threshold: float = 0.05,
    certainty: float = 0.95,
    metrics: Sequence[str] = (),
    decided_by: tuple[int, ...] | None = None,
    chance: Mapping[str, float] | None = None,
    calibrated: bool = False,
    resamples: int = 10_000,
    seed: int = 0,
) -> Judgement:
    """Judge a split by what leaking on purpose did to the scores.

    Verdicts rest on complete chains: repetitions that have every deciding metric at every
    deciding step. The others are left out and counted. Later steps are described, from the chains
    that have them, and decide nothing.

    A verdict is wrong at most about as often as ``certainty`` allows: ``leaking`` of a split whose
    true statistic is above the threshold, and ``clean`` of one where it is not, for any metric
    (see :mod:`visleak.dlede.certainty`). With one repetition, and so with published means, nothing
    is known of that: the verdict is ``undecided``, and ``on_means`` is what the paper would say.

    A metric that hardly rises is ``undecided`` as well, with the reason, where it would not rise
    without a leak either: the model has not learned, or starts too high
    (:mod:`visleak.dlede.reasons`).

    Args:
        scores: of all trainings.
        rule: one of :data:`visleak.dlede.rules.RULES`.
        threshold: a share.
        certainty: chance that a verdict needs, at least .5 and below 1.
        metrics: that decide, in any case or by an alias; by default mAP and F1 where both are
            there, else all. Together they decide where all say the same.
        decided_by: steps that decide, beginning with the first; by default the first three.
        chance: what guessing scores by a metric; 0 where it is not given.
        calibrated: the threshold is that of splits without leaks of the same images, so that it
            allows for a high start.
        resamples: how often chains are drawn again.
        seed: of these draws.

    Raises:
        UsageError: an argument is out of its range, or asks for what is not there.

    Source: Babu et al. 2025, Algorithm 1 and section 4; the certainty is ours.
    """
    _check(rule, threshold, certainty, resamples)
    names = deciding_metrics(scores, metrics)
    steps = deciding_steps(scores, decided_by)
    values = scores.values[[scores.metrics.index(name) for name in names]]
    columns = np.array([scores.steps.index(step) for step in steps])
    complete = np.asarray(np.isfinite(values[:, :, columns]).all(axis=(0, 2)))
    values = in_order(values[:, complete])
    weights = cache(lambda chains: draws(chains, resamples, seed))
    known = chance_of(scores, chance or {})
    by = _Judge(RULES[rule], threshold, certainty, weights, known, calibrated)
    found = [
        _judged(by, scores, name, of_metric, columns)
        for name, of_metric in zip(names, values, strict=True)
    ]
    verdicts = {each.verdict for each in found}
    chains = int(complete.sum())
    made = Judgement(
        rule=rule,
        threshold=threshold,
        certainty=certainty,
        decided_by=steps,
        repetitions=chains,
        left_out=len(complete) - chains,
        metrics=tuple(found),
        on_means=_together([each.on_means for each in found]),
        leaking=min(each.leaking for each in found) if chains > 1 else math.nan,
        clean=min(each.clean for each in found) if chains > 1 else math.nan,
        verdict=_together([each.verdict for each in found]),
        disagree={LEAKING, CLEAN} <= verdicts,
        more=_more(by, found, values, columns),
    )
    return replace(made, reason_code=_code(made))


def _code(made: Judgement) -> str:
    """Return why a judgement is undecided, as a code; empty where it is not."""
    if made.verdict != UNDECIDED:
        return ""
    of_metrics = [each.reason_code for each in made.metrics if each.reason_code]
    if not made.metrics:
        return NO_RESULT
    if of_metrics:
        return of_metrics[0]
    if made.repetitions < 2:
        return ONE_REPETITION
    return DISAGREE if made.disagree else NOT_CERTAIN


def _check(rule: str, threshold: float, certainty: float, resamples: int) -> None:
    if rule not in RULES:
        raise UsageError(f"rule is one of {', '.join(RULES)}; got {rule!r}")
    if not math.isfinite(threshold):
        raise UsageError(f"threshold is a share such as 0.05; got {threshold}")
    if not 0.5 <= certainty < 1.0:
        raise UsageError(f"certainty must be at least 0.5 and below 1; got {certainty}")
    if resamples < 1:
        raise UsageError(f"resamples must be 1 or more; got {resamples}")


def _together(verdicts: Sequence[str]) -> str:
    """Return what all say, or that they say different things."""
    return verdicts[0] if len(set(verdicts)) == 1 else UNDECIDED


def _judged(
    judge: _Judge, scores: Scores, metric: str, values: Float64, columns: Int64
) -> MetricJudgement:
    """Judge one metric by the chains that are complete, (chains, steps)."""
    lower = metric in scores.lower
    steps = tuple(_step(judge, scores.steps, values, at, lower) for at in range(values.shape[1]))
    deciding = [scores.steps[column] for column in columns]
    pairs = judge.rule.pairs(len(columns))
    reason = unusable(metric, deciding, values[:, columns], pairs)
    if reason is not None:
        undefined = math.nan if len(values) < 2 else 0.0
        return MetricJudgement(
            metric=metric,
            lower=lower,
            steps=steps,
            statistic=Estimate(math.nan),
            on_means=UNDECIDED,
            leaking=undefined,
            verdict=UNDECIDED,
            clean=undefined,
            reason=reason.words,
            reason_code=reason.code,
        )
    sides = [(values[:, before], values[:, after]) for before, after in columns[pairs]]
    statistic = _statistic(judge, sides, lower)
    weights = judge.weights(len(values))
    off = margins(values, columns[pairs], judge.threshold)
    at_most, at_least = (
        [
            chance_above(*side, judge.threshold, lower, weights, margin)
            for side, margin in zip(sides, sign * off, strict=True)
        ]
        for sign in (1.0, -1.0)
    )
    leaking, clean = chances(at_most, judge.rule)[0], chances(at_least, judge.rule)[1]
    made = MetricJudgement(
        metric=metric,
        lower=lower,
        steps=steps,
        statistic=statistic,
        on_means=on_means(statistic.value, judge.threshold),
        leaking=leaking,
        verdict=_verdict(leaking, clean, judge.certainty),
        clean=clean,
    )
    share = is_share(scores.of(metric))
    reason = _would_not_rise(judge, made, values[:, columns[0]], deciding, share)
    if reason is not None:
        return _held_back(made, reason)
    reason = identical(metric, values[:, columns])
    if reason is not None:
        return replace(_held_back(made, reason), leaking=math.nan, clean=math.nan)
    return made


def _would_not_rise(
    judge: _Judge,
    made: MetricJudgement,
    starts: Float64,
    deciding: Sequence[int],
    share: bool,
) -> Reason | None:
    """Return why a metric would hardly rise without a leak either."""
    small = LEAKING in (made.on_means, made.verdict)
    if not small and (made.verdict == CLEAN or math.isnan(made.leaking)):
        return None
    if made.lower or not share:
        return unknown_scale(made.metric) if small and not judge.calibrated else None
    chance = judge.chance.get(made.metric)
    guessed = chance or 0.0
    reason = not_learned(made.metric, starts, guessed)
    if reason is None and not judge.calibrated:
        reason = too_high(made.metric, starts, deciding, judge.rule, judge.threshold, guessed)
        if reason is None and small and chance is None:
            reason = unknown_chance(made.metric)
    return reason


def _held_back(made: MetricJudgement, reason: Reason) -> MetricJudgement:
    """Return a judgement without a verdict; that the increase is small is no chance of a leak."""
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


def _verdict(leaking: float, clean: float, certainty: float) -> str:
    # chances of one repetition are NaN, and no NaN is large enough
    if leaking >= certainty:
        return LEAKING
    return CLEAN if clean >= certainty else UNDECIDED


def _step(judge: _Judge, steps: Sequence[int], values: Float64, at: int, lower: bool) -> StepScore:
    """Describe one step; its increase is that of the chains which have the step before, too."""
    column = values[:, at]
    there = column[np.isfinite(column)]
    rise, above = Estimate(0.0), math.nan
    if at:
        both = np.isfinite(values[:, [at - 1, at]]).all(axis=1)
        before, after = values[both, at - 1], values[both, at]
        weights = judge.weights(len(before))
        rise = _statistic(_one(judge), [(before, after)], lower) if both.any() else _NOTHING
        above = chance_above(before, after, judge.threshold, lower, weights)
    return StepScore(
        step=steps[at],
        trainings=len(there),
        mean=mean_interval(there),
        deviation=float(there.std(ddof=1)) if len(there) > 1 else math.nan,
        increase=rise,
        above=above,
    )


_NOTHING = Estimate(math.nan)


def _one(judge: _Judge) -> _Judge:
    """Return the judge who looks at a single increase."""
    return _Judge(RULES["cumulative"], judge.threshold, judge.certainty, judge.weights)


def _more(
    judge: _Judge,
    found: Sequence[MetricJudgement],
    values: Float64,
    columns: Int64,
) -> int | None:
    """Return how many repetitions would probably give every metric its verdict."""
    chains = int(values.shape[1])
    if any(each.reason for each in found) and chains:
        return None
    if chains < 2:
        return FIRST - chains
    told: list[int] = []
    for each, of_metric in zip(found, values, strict=True):
        if each.verdict == UNDECIDED:
            pairs = columns[judge.rule.pairs(len(columns))]
            exceeds = np.stack(
                [
                    excess(of_metric[:, before], of_metric[:, after], judge.threshold, each.lower)
                    for before, after in pairs
                ],
                axis=1,
            )
            off = margins(of_metric, pairs, judge.threshold)
            more = needed(exceeds, judge.rule, judge.certainty, off)
            if more is None:
                return None
            told.append(more)
    return max(told) if told else None
