"""Separation of two kinds of cases by a score, ROC curves, thresholds, and shifts of log-odds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from visleak.errors import UsageError
from visleak.rates import score_interval
from visleak.records import Float64, Int64
from visleak.stats.bootstrap import Estimate, cluster_draws, percentiles
from visleak.stats.intervals import CONFIDENCE, clopper_pearson_upper

RATE: Final = 0.01  # false-positive rate at which papers report the true-positive rate
RESAMPLES: Final = 1000
_SLACK: Final = 1e-12  # rounding of rates
_NEAR: Final = 1e-9  # distance from 0 and 1, where a standard error vanishes


@dataclass(frozen=True, slots=True)
class Separation:
    """Measures of separation. Larger is better, all in [0, 1]."""

    #: ``labels``, memorized prompts against others; ``lists``, all prompts of the list against
    #: those of the general list
    by: str
    positives: int  #: number of cases
    negatives: int
    positive_groups: int  #: number of their groups
    negative_groups: int
    auc: Estimate  #: probability that a positive has the larger score, ties counting half
    #: best of all thresholds, ``max(1 - (fpr + 1 - tpr) / 2)`` (Wen et al. 2024's code): the mean
    #: of the accuracies on both kinds
    accuracy: Estimate
    accuracy_at: float  #: the threshold that has it
    rate: float  #: the false-positive rate of the next two
    #: true-positive rate at the largest false-positive rate *below* ``rate``, as in the code of Wen
    #: et al. 2024
    tpr_below: Estimate
    tpr_within: Estimate  #: the same at the largest one not *above* ``rate``


def separation(
    score: npt.ArrayLike,
    positive: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    by: str = "labels",
    rate: float = RATE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Separation:
    """Return how well scores separate positives from negatives.

    ``score``: (n,): larger is more likely positive; ``positive``: (n,), whether a row is positive;
    ``groups``: (n,), number of the group of each row, such as of prompts that share images.

    The 95 % intervals are percentiles of resamples of whole groups, but never narrower than those
    of one independent case per group (Newcombe 2006 for the area, Wilson for shares), because all
    resamples are equal where the two kinds do not overlap.
    """
    value, hit = np.asarray(score, np.float64), np.asarray(positive, np.bool_)
    found = steps(value, hit)
    if not found.true[-1] or not found.false[-1]:
        raise UsageError("two kinds of prompts are needed; got one")
    _, owner = np.unique(np.asarray(groups), return_inverse=True)
    sides = [len(np.unique(owner[side])) for side in (hit, ~hit)]
    # area, accuracy and both true-positive rates of resamples
    drawn = np.full((4, resamples), np.nan)
    order = np.argsort(-value, kind="stable")
    for number, counts in enumerate(cluster_draws(int(owner.max()) + 1, resamples, seed)):
        weight = counts[owner]
        if weight[hit].any() and weight[~hit].any():
            fpr, tpr, _ = roc_points(value[order], hit[order], weight[order])
            area = (np.diff(fpr) * (tpr[1:] + tpr[:-1])).sum() / 2.0
            drawn[:, number] = (area, *_read_off(fpr, tpr, rate)[1:])
    fpr, tpr, threshold = roc_points(value, hit)
    best, accuracy, below, within = _read_off(fpr, tpr, rate)
    area = auc(value, hit)
    right = float(tpr[best]), 1.0 - float(fpr[best])
    return Separation(
        by,
        int(hit.sum()),
        int((~hit).sum()),
        sides[0],
        sides[1],
        _estimate(area, drawn[0], auc_interval(area, *sides)),
        _estimate(accuracy, drawn[1], _mean_interval(right, sides)),
        float(threshold[best]),
        rate,
        _estimate(below, drawn[2], score_interval(below, sides[0], CONFIDENCE)),
        _estimate(within, drawn[3], score_interval(within, sides[0], CONFIDENCE)),
    )


def _read_off(fpr: Float64, tpr: Float64, rate: float) -> tuple[int, float, float, float]:
    """Return the place of the best mean accuracy on both kinds, the accuracy, and both TPRs.

    Of equal accuracies that of the highest threshold; see :class:`Separation`.
    """
    best = int((tpr - fpr).argmax())
    accuracy = float(1.0 - (fpr[best] + 1.0 - tpr[best]) / 2.0)
    below, within = tpr[fpr < rate - _SLACK][-1], tpr[fpr <= rate + _SLACK][-1]
    return best, accuracy, float(below), float(within)


def auc_interval(
    area: float, positives: float, negatives: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the score interval of an area under the ROC curve.

    It holds all areas within ``z`` of their own standard errors from the observed one; the errors
    are those of Hanley & McNeil 1982 with ``(positives + negatives) / 2 - 1`` in place of both
    numbers less one.

    Source: Newcombe 2006, "Confidence intervals for an effect size measure based on the
    Mann-Whitney statistic. Part 2", method 5.

    >>> [round(end, 3) for end in auc_interval(1.0, 12, 300)]
    [0.915, 1.0]
    """
    z = float(ndtri(0.5 + confidence / 2.0))
    more = max((positives + negatives) / 2.0 - 1.0, 0.0)

    def excess(other: float) -> float:
        spread = 1.0 + more * ((1.0 - other) / (2.0 - other) + other / (1.0 + other))
        error = math.sqrt(other * (1.0 - other) * spread / (positives * negatives))
        return abs(area - other) - z * error

    low = brentq(excess, 0.0, area - _NEAR) if excess(0.0) > 0.0 and area > _NEAR else 0.0
    high = brentq(excess, area + _NEAR, 1.0) if excess(1.0) > 0.0 and area < 1.0 - _NEAR else 1.0
    return float(low), float(high)


def _mean_interval(shares: tuple[float, float], sides: list[int]) -> tuple[float, float]:
    """Return an interval of the mean of two shares, by squaring and adding (Newcombe 1998)."""
    ends = [score_interval(p, n, CONFIDENCE) for p, n in zip(shares, sides, strict=True)]
    centre = sum(shares) / 2.0
    low, high = (
        math.hypot(*(share - end[side] for share, end in zip(shares, ends, strict=True))) / 2.0
        for side in (0, 1)
    )
    return max(centre - low, 0.0), min(centre + high, 1.0)


def _estimate(value: float, drawn: Float64, least: tuple[float, float]) -> Estimate:
    low, high = percentiles(drawn[~np.isnan(drawn)], CONFIDENCE)
    return Estimate(value, float(np.nanmin([low, least[0]])), float(np.nanmax([high, least[1]])))


@dataclass(frozen=True, slots=True)
class Steps:
    """Counts of rows at or above each distinct score; the order of rows does not matter."""

    threshold: Float64  # (k,), falling: distinct scores
    true: Int64  # (k,): true rows at or above
    false: Int64  # (k,): false ones


def steps(score: npt.ArrayLike, true: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Steps:
    """Return the counts at every threshold that makes a difference.

    ``score`` (n,), higher is more likely true. ``true`` (n,), whether each row is true.
    ``weight`` (n,), how often each row counts; by default once.
    """
    value, hit = np.asarray(score, np.float64), np.asarray(true, np.bool_)
    if value.ndim != 1 or value.shape != hit.shape:
        raise UsageError(
            f"score and true must be columns of one length; got {value.shape} and {hit.shape}"
        )
    if not len(value):
        raise UsageError("nothing to rank: score has no rows")
    if np.isnan(value).any():
        raise UsageError(f"score must be numbers; row {int(np.isnan(value).argmax())} is not one")
    times = np.ones(len(value), np.int64) if weight is None else np.asarray(weight, np.int64)
    order = np.argsort(-value, kind="stable")
    value, hit, times = value[order], hit[order], times[order]
    last = np.append(np.flatnonzero(np.diff(value)), len(value) - 1)
    found, lost = (np.cumsum(np.where(kind, times, 0))[last] for kind in (hit, ~hit))
    return Steps(value[last], found, lost)


def roc_points(
    score: npt.ArrayLike, true: npt.ArrayLike, weight: npt.ArrayLike | None = None
) -> tuple[Float64, Float64, Float64]:
    """Return false-positive rates, true-positive rates and thresholds, each (k + 1,).

    Begins at (0, 0) with threshold infinity. A rate is NaN if there is nothing to count.
    """
    found = steps(score, true, weight)
    with np.errstate(invalid="ignore"):
        fpr, tpr = (
            np.append(0.0, c / c[-1] if c[-1] else c * np.nan) for c in (found.false, found.true)
        )
    return fpr, tpr, np.append(np.inf, found.threshold)


def auc(score: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Return the area under the ROC curve by ranks (Mann & Whitney 1947); NaN for one kind only."""
    found = steps(score, true)
    trues, falses = int(found.true[-1]), int(found.false[-1])
    if not trues or not falses:
        return math.nan
    new = np.diff(found.true, prepend=0)
    above = np.append(0, found.false[:-1])
    # integers up to the last line: twice the pairs (true, false) in the wrong order
    wrong = int((new * (above + found.false)).sum())
    return 1.0 - wrong / (2 * trues * falses)


# -- thresholds with a stated false-positive rate --------------------------------------------------


DIGITS: Final = 4  # of a threshold: it is rounded up, which only lowers its rate


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold of a score, and its false alarms."""

    value: float  #: a case reaches it with a score at or above
    #: ``given`` by the user; ``observed``, at most ``rate`` of the ordinary cases reach it;
    #: ``bounded``, ``upper`` is at most ``rate``
    rule: str
    rate: float | None  #: allowed share of false alarms; ``None`` if the threshold was given
    negatives: int  #: ordinary cases it was set or tested on; 0 if there were none
    alarms: int  #: how many of them reach it
    upper: float  #: one-sided 95 % upper bound of the share of such cases that reach it
    #: there are enough ordinary cases for ``rate``; otherwise it is above all scores
    supported: bool = True


def threshold_at(ordinary: npt.ArrayLike, rate: float, *, bounded: bool = False) -> Threshold:
    """Return the lowest threshold with few enough false alarms on ordinary prompts.

    It is an order statistic of independent scores, so the share of further prompts that reach it
    follows a beta distribution, whatever that of the scores (Wilks 1941, "Determination of sample
    sizes for setting tolerance limits"); its upper quantile is the bound of Clopper and Pearson.

    Args:
        ordinary: (n,): D of ordinary prompts, at least one.
        rate: share of them that may reach it, between 0 and 1.
        bounded: not the share of these prompts, but its 95 % upper bound is at most ``rate``;
            needs ``log(0.05) / log(1 - rate)`` prompts, 299 for 1 %.

    Raises:
        UsageError: an invalid rate, or no prompts.

    >>> found = threshold_at(np.arange(1, 1001) / 1000, 0.01)
    >>> found.value, found.alarms, round(found.upper, 4)
    (0.9901, 10, 0.0169)
    >>> threshold_at(np.arange(1, 1001) / 1000, 0.01, bounded=True).alarms
    4
    """
    if not 0.0 < rate < 1.0:
        raise UsageError(f"fpr is a share between 0 and 1, such as 0.01; got {rate:g}")
    scores = np.asarray(ordinary, np.float64)
    if scores.ndim != 1 or not len(scores):
        raise UsageError("ordinary prompts are needed to set a threshold; got none")
    falling, count = np.sort(scores)[::-1], len(scores)
    # 0.07 * 100 is 7.000000000000001
    allowed = math.floor(rate * count + 1e-9)
    if bounded:
        # the largest count whose bound is within the rate; -1 if there is none
        bounds = range(allowed + 1)
        allowed = bisect_right(bounds, rate, key=lambda k: clopper_pearson_upper(k, count)) - 1
    # just above the first score that must not reach it
    value = rounded_up(float(falling[max(allowed, 0)]))
    return Threshold(
        value,
        "bounded" if bounded else "observed",
        rate,
        count,
        int((falling >= value).sum()),
        # of the order statistic, not of the alarms after rounding
        clopper_pearson_upper(max(allowed, 0), count),
        supported=allowed >= (0 if bounded else 1),
    )


def threshold_given(value: float, ordinary: npt.ArrayLike) -> Threshold:
    """Return a threshold that was fixed beforehand, with its alarms."""
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"threshold is a number from 0, such as 0.9; got {value:g}")
    scores = np.asarray(ordinary, np.float64)
    alarms = int((scores >= value).sum())
    upper = clopper_pearson_upper(alarms, len(scores), CONFIDENCE)
    return Threshold(value, "given", None, len(scores), alarms, upper)


def needed(rate: float) -> int:
    """Return how many ordinary prompts without an alarm are needed to bound a rate."""
    return math.ceil(math.log(1.0 - CONFIDENCE) / math.log1p(-rate))


def rounded_up(value: float) -> float:
    """Return a number just above, of four digits if there is one."""
    if value <= 0.0:
        return float(np.nextafter(value, np.inf))
    place = DIGITS - 1 - math.floor(math.log10(value))
    scaled = float(f"{value:.{DIGITS - 1}e}")
    if scaled > value:
        return scaled
    up = round(scaled + 10.0**-place, place)
    return up if up > value else float(np.nextafter(value, np.inf))


_STEPS = 50  # of Newton's method; the objective is strictly concave, and far fewer are needed


@dataclass(frozen=True)
class Shift:
    """A linear change of log-odds with a Gaussian posterior (Laplace approximation)."""

    weights: Float64  # float64 (d,), the mean
    covariance: Float64  # float64 (d, d)
    evidence: float = 0.0  # logarithm of the probability of the labels under the prior

    def log_odds(self, features: Float64, known: Float64) -> tuple[Float64, Float64]:
        """Return mean and variance of the log-odds of rows, each (n,)."""
        variance = ((features @ self.covariance) * features).sum(axis=1)
        return known + features @ self.weights, variance


def fit_best_shift(
    features: Float64, known: Float64, truth: Float64, scale: Float64, factors: Sequence[float]
) -> Shift:
    """Fit the change of known log-odds under the width of prior that explains the labels best.

    Labels that agree with the known log-odds keep it narrow: a few of them then move little. Labels
    that contradict widen it (empirical Bayes; MacKay 1992, "Bayesian interpolation").

    ``scale``: standard deviation of the prior of each weight around 0, (d,); ``factors`` of it to
    choose from, of equal ones the first.
    """
    fits = (fit_shift(features, known, truth, scale * factor) for factor in factors)
    return max(fits, key=lambda fit: fit.evidence)


def fit_shift(features: Float64, known: Float64, truth: Float64, scale: Float64) -> Shift:
    """Fit the change of known log-odds that labels call for; without labels there is none.

    ``scale``: standard deviation of the prior of each weight around 0, (d,).
    """
    precision = np.diag(1.0 / scale**2)
    weights = np.zeros(len(scale))
    curvature: Float64 = precision
    for _ in range(_STEPS):
        chance = expit(known + features @ weights)
        gradient = features.T @ (truth - chance) - precision @ weights
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + precision
        step = np.linalg.solve(curvature, gradient)
        # far from the optimum a full step may overshoot
        weights = weights + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    covariance = np.asarray(np.linalg.inv(curvature), np.float64)
    odds = known + features @ weights
    fit = float((truth * odds - np.logaddexp(0.0, odds)).sum())
    prior = float(weights @ precision @ weights) / 2.0
    # how much narrower than the prior the posterior is; 0 without labels
    narrower = float(np.linalg.slogdet(curvature)[1] + 2.0 * np.log(scale).sum()) / 2.0
    return Shift(weights, covariance, fit - prior - narrower)


def logit(probability: Float64, least: float) -> Float64:
    """Return log-odds of probabilities clipped to ``least`` and ``1 - least``.

    >>> logit(np.array([0.5, 1.0]), 0.1).round(3).tolist()
    [0.0, 2.197]
    """
    kept = np.clip(probability, least, 1.0 - least)
    return np.asarray(np.log(kept / (1.0 - kept)))
