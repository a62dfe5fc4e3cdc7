"""How well a score separates two kinds of cases, with intervals that draw whole groups.

Cases of one group are not independent: the 3,000 prompts of MemBench share 151 images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri

from visleak.errors import UsageError
from visleak.rates import score_interval
from visleak.records import Bool, Float64, Int64
from visleak.stats.bootstrap import cluster_draws, percentiles
from visleak.stats.estimates import Estimate
from visleak.stats.intervals import CONFIDENCE
from visleak.stats.ranking import auc, steps

#: The false-positive rate that the papers quote the true-positive rate at.
RATE: Final = 0.01
RESAMPLES: Final = 1000

#: A rate that is asked for and one that is counted may differ by rounding.
_SLACK: Final = 1e-12

#: At 0 and 1 a standard error vanishes, so there the search for an end begins beside them.
_NEAR: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Separation:
    """How well a score separates two kinds of cases. Larger figures are better, all in [0, 1]."""

    #: ``labels``, memorized prompts against others; ``lists``, the list against the general one,
    #: whatever its prompts are
    by: str
    positives: int  #: (positives, negatives) cases of either kind
    negatives: int
    #: (positive_groups, negative_groups) groups that they come from
    positive_groups: int
    negative_groups: int
    auc: Estimate  #: chance that a positive has the larger score, ties counting half
    #: best of all thresholds, ``max(1 - (fpr + 1 - tpr) / 2)`` (Wen et al. 2024's code): the mean
    #: of the accuracies on both kinds
    accuracy: Estimate
    accuracy_at: float  #: the threshold that has it
    rate: float  #: the false-positive rate of the next two
    #: true-positive rate at the last false-positive rate *below* ``rate``, as in the code of Wen et
    #: al. 2024
    tpr_below: Estimate
    tpr_within: Estimate  #: the same at the last one that is not *above* ``rate``


@dataclass(frozen=True, slots=True)
class _Curve:
    """Points of a ROC curve, from (0, 0) with a threshold above all scores on, (k + 1,) each."""

    fpr: Float64
    tpr: Float64
    threshold: Float64

    @property
    def best(self) -> int:
        """Where the mean accuracy on both kinds is best; of equal ones the highest threshold."""
        return int((self.tpr - self.fpr).argmax())

    @property
    def accuracy(self) -> float:
        """The best mean accuracy on both kinds."""
        return float(1.0 - (self.fpr[self.best] + 1.0 - self.tpr[self.best]) / 2.0)

    @property
    def area(self) -> float:
        """The area beneath, by trapezoids."""
        return float((np.diff(self.fpr) * (self.tpr[1:] + self.tpr[:-1])).sum() / 2.0)

    def at(self, rate: float, *, below: bool) -> float:
        """The true-positive rate at the last false-positive rate below, or not above, a rate."""
        kept = self.fpr < rate - _SLACK if below else self.fpr <= rate + _SLACK
        return float(self.tpr[kept][-1])


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
    """Return how well scores tell positives from negatives.

    ``score``: (n,): larger is more likely positive; ``positive``: (n,), whether a row is positive;
    ``groups``: (n,), number of the group of each row.

    Intervals hold 95 %: percentiles of resamples of whole groups, and never narrower than what as
    many independent cases as there are groups would give (Newcombe 2006 for the area, Wilson for
    shares), for where two kinds do not overlap resamples are all equal.
    """
    value, hit, group = np.asarray(score, np.float64), np.asarray(positive, np.bool_), groups
    found = steps(value, hit)
    if not found.true[-1] or not found.false[-1]:
        raise UsageError("two kinds of prompts are needed to tell apart; got one")
    _, owner = np.unique(np.asarray(group), return_inverse=True)
    sides = [len(np.unique(owner[side])) for side in (hit, ~hit)]
    draws = _draws(value, hit, owner, rate, resamples, seed)
    whole = _curve(value, hit, np.ones(len(value), np.int64))
    area = auc(value, hit)
    right = float(whole.tpr[whole.best]), 1.0 - float(whole.fpr[whole.best])
    below, within = (whole.at(rate, below=strict) for strict in (True, False))
    return Separation(
        by,
        int(hit.sum()),
        int((~hit).sum()),
        sides[0],
        sides[1],
        _estimate(area, draws[0], auc_interval(area, sides[0], sides[1])),
        _estimate(whole.accuracy, draws[1], _mean_interval(right, sides)),
        float(whole.threshold[whole.best]),
        rate,
        _estimate(below, draws[2], score_interval(below, sides[0], CONFIDENCE)),
        _estimate(within, draws[3], score_interval(within, sides[0], CONFIDENCE)),
    )


def auc_interval(
    area: float, positives: float, negatives: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the interval of an area under the ROC curve; it does not vanish at 0 and 1.

    All areas at most as far from the one seen as ``z`` of their own standard errors; the
    errors by Hanley & McNeil 1982 with ``(positives + negatives) / 2 - 1`` in place of both
    numbers less one.

    Source: Newcombe 2006, "Confidence intervals for an effect size measure based on the
    Mann-Whitney statistic. Part 2", method 5.

    >>> [round(end, 3) for end in auc_interval(1.0, 12, 300)]
    [0.915, 1.0]
    """
    z = float(ndtri(0.5 + confidence / 2.0))
    more = max((positives + negatives) / 2.0 - 1.0, 0.0)

    def off(other: float) -> float:
        """How far an area lies from the one seen, beyond what is likely."""
        spread = 1.0 + more * ((1.0 - other) / (2.0 - other) + other / (1.0 + other))
        error = math.sqrt(other * (1.0 - other) * spread / (positives * negatives))
        return abs(area - other) - z * error

    low = brentq(off, 0.0, area - _NEAR) if off(0.0) > 0.0 and area > _NEAR else 0.0
    high = brentq(off, area + _NEAR, 1.0) if off(1.0) > 0.0 and area < 1.0 - _NEAR else 1.0
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


def _draws(
    score: Float64, positive: Bool, owner: Int64, rate: float, resamples: int, seed: int
) -> Float64:
    """Return area, accuracy and both true-positive rates of resamples, (4, resamples)."""
    order = np.argsort(-score, kind="stable")
    score, positive, owner = score[order], positive[order], owner[order]
    found = np.full((4, resamples), np.nan)
    for number, counts in enumerate(cluster_draws(int(owner.max()) + 1, resamples, seed)):
        weight = counts[owner]
        if weight[positive].any() and weight[~positive].any():
            curve = _curve(score, positive, weight)
            found[:, number] = (
                curve.area,
                curve.accuracy,
                curve.at(rate, below=True),
                curve.at(rate, below=False),
            )
    return found


def _curve(score: Float64, positive: Bool, weight: Int64) -> _Curve:
    """Return the curve of rows that count several times; both kinds are there."""
    order = np.argsort(-score, kind="stable")
    score, positive, weight = score[order], positive[order], weight[order]
    last = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
    true = np.cumsum(np.where(positive, weight, 0))[last]
    false = np.cumsum(np.where(positive, 0, weight))[last]
    return _Curve(
        np.append(0.0, false / false[-1]),
        np.append(0.0, true / true[-1]),
        np.append(np.inf, score[last]),
    )
