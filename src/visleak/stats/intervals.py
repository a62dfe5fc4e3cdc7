"""Intervals and tests of shares, of weighted shares and of means."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, betaincinv, nctdtr, stdtrit

from visleak.errors import UsageError
from visleak.rates import check_confidence, check_counts, score_interval, wilson
from visleak.records import Float64

CONFIDENCE: Final = 0.95


def mcnemar_exact(only_before: int, only_after: int) -> float:
    """Return the two-sided p-value of changed yes-no outcomes of the same images.

    Under the null hypothesis a change in either direction is equally likely; unchanged outcomes do
    not count. 1 where nothing changed.

    Source: McNemar 1947, "Note on the sampling error of the difference between correlated
    proportions or percentages", in its exact binomial form.
    """
    if only_before < 0 or only_after < 0:
        raise UsageError(f"counts must be 0 or more; got {only_before} and {only_after}")
    changed = only_before + only_after
    return min(1.0, 2.0 * float(bdtr(min(only_before, only_after), changed, 0.5)))


def newcombe(
    before: tuple[int, int], after: tuple[int, int], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the interval of the difference of two shares, after minus before, within [-1, 1].

    For two independent samples, ``(count, total)`` each; conservative where they share images. NaN
    where one sample is empty.

    Source: Newcombe 1998, "Interval estimation for the difference between independent
    proportions", method 10.
    """
    return _method_10(before, after, 0.0, confidence)


def newcombe_paired(
    both: int, only_before: int, only_after: int, neither: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the interval of the difference of two shares of the same images, after minus before.

    The counts are those of paired yes-no outcomes. Returns both ends, within [-1, 1]; NaN where
    there are no images.

    Source: Newcombe 1998, "Improved confidence intervals for the difference between binomial
    proportions based on paired data", method 10.
    """
    if min(both, only_before, only_after, neither) < 0:
        raise UsageError(
            f"counts must be 0 or more; got {both}, {only_before}, {only_after} and {neither}"
        )
    before, after = both + only_before, both + only_after
    n = before + only_after + neither
    excess: float = both * neither - only_before * only_after
    if excess > 0:
        # correction for continuity
        excess = max(excess - n / 2, 0.0)
    spread = before * (n - before) * after * (n - after)
    phi = excess / math.sqrt(spread) if spread else 0.0
    return _method_10((before, n), (after, n), phi, confidence)


def _method_10(
    before: tuple[int, int], after: tuple[int, int], phi: float, confidence: float
) -> tuple[float, float]:
    """Return the interval of a difference of shares of correlation ``phi``."""
    (low_before, high_before), (low_after, high_after) = (
        wilson(*side, confidence) for side in (before, after)
    )
    if not before[1] or not after[1]:
        return math.nan, math.nan
    share_before, share_after = before[0] / before[1], after[0] / after[1]

    def half_width(first: float, second: float) -> float:
        return math.sqrt(max(0.0, first**2 - 2.0 * phi * first * second + second**2))

    change = share_after - share_before
    down = half_width(share_after - low_after, high_before - share_before)
    up = half_width(high_after - share_after, share_before - low_before)
    return max(-1.0, change - down), min(1.0, change + up)


def weighted_wilson(
    values: npt.ArrayLike, weights: npt.ArrayLike, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the score interval of a weighted share, both ends within [0, 1].

    Wilson's interval with an effective sample size, the smaller of two: Kish's,
    ``sum(w) ** 2 / sum(w ** 2)``, is too large where only rows of large weight vary (coverage
    90 %); ``share * (1 - share)`` over the observed variance, where few rows are 0 or few are 1
    (91 %). With the smaller one the coverage is about 95 % or more
    (``benchmarks/impact_statistics.py``). The weights are taken as known.

    ``values`` (n,): 0 or 1. ``weights`` (n,): 0 or more; only their proportions matter, and a row
    of weight 0 does not count. Returns NaN where no row counts.

    Source: Kish 1965, "Survey sampling", section 11.7; Korn & Graubard 1998, "Confidence
    intervals for proportions with small expected number of positive counts estimated from survey
    data", with the variance of a ratio by linearisation (Cochran 1977, "Sampling techniques", 6.3).
    """
    check_confidence(confidence)
    column, weight = weighted_columns(values, weights)
    if not np.isin(column, (0.0, 1.0)).all():
        raise UsageError("values must be 0 or 1 in every row")
    if not weight.size:
        return math.nan, math.nan
    total = float(weight.sum())
    share = min(1.0, float(weight[column == 1.0].sum()) / total)
    effective = total**2 / float((weight**2).sum())
    variance = float(((weight * (column - share)) ** 2).sum()) / total**2
    if variance > 0.0:
        effective = min(effective, share * (1.0 - share) / variance)
    return score_interval(share, effective, confidence)


def weighted_columns(values: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[Float64, Float64]:
    """Return the rows that count, and their weights over the largest one."""
    column, weight = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    if column.ndim != 1 or column.shape != weight.shape:
        raise UsageError(
            "values and weights must be columns of one length; got"
            f" {column.shape} and {weight.shape}"
        )
    if not (np.isfinite(weight) & (weight >= 0.0)).all():
        raise UsageError("weights must be 0 or more in every row")
    counts = weight > 0.0
    column, weight = column[counts], weight[counts]
    return column, weight / weight.max() if weight.size else weight


def clopper_pearson_upper(k: int, n: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of a rate, given ``k`` of ``n`` *independent* cases.

    The largest rate at which ``k`` or fewer cases still have the probability ``1 - confidence``.

    Source: Clopper & Pearson 1934, "The use of confidence or fiducial limits".
    """
    check_counts(k, n, confidence)
    return 1.0 if k == n else float(betaincinv(k + 1, n - k, confidence))


def clopper_pearson(k: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact two-sided interval of a rate; never too narrow, also without replacement.

    >>> [round(end, 4) for end in clopper_pearson(0, 100)]
    [0.0, 0.0362]
    """
    each = 0.5 + confidence / 2
    return 1.0 - clopper_pearson_upper(n - k, n, each), clopper_pearson_upper(k, n, each)


def chernoff_upper(rate: float, cases: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of the mean of independent cases that lie in [0, 1].

    Unlike in :func:`clopper_pearson_upper`, a case may count as a fraction, such as a pair that is
    wrong under some of its conditions. The bound is the mean ``p`` at which
    ``cases * KL(rate || p) = -log(1 - confidence)``; for a rate of 0 it is
    ``1 - (1 - confidence) ** (1 / cases)``, the exact binomial one.

    ``rate``: mean over the cases, in [0, 1].

    Source: Hoeffding 1963, "Probability inequalities for sums of bounded random variables",
    theorem 1.
    """
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"rate must lie between 0 and 1; got {rate}")
    check_counts(0, cases, confidence)
    needed = -math.log(1.0 - confidence)
    if cases == 0 or rate == 1.0:
        return 1.0
    if rate == 0.0:
        return -math.expm1(-needed / cases)

    def excess(p: float) -> float:
        entropy = rate * math.log(rate / p) + (1.0 - rate) * (math.log1p(-rate) - math.log1p(-p))
        return cases * entropy - needed

    # takes as long to import as all of visleak
    from scipy.optimize import brentq

    almost = 1.0 - 1e-15
    if rate >= almost or excess(almost) < 0.0:
        return 1.0
    return float(brentq(excess, rate, almost, xtol=1e-15))


def clustered_upper(rate: float, images: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of a rate over *pairs of images*, for any dependence.

    Pairs that share an image are not independent. But the mean over all pairs of ``m`` images is an
    average, over all ways to group them, of means of ``m // 2`` independent pairs, so the bound for
    that many independent cases holds (Hoeffding 1963, section 5). It is wide, because it assumes
    nothing about the pairs of an image.

    ``rate``: mean over the pairs, in [0, 1]; a pair may count as a fraction.
    """
    if images < 0:
        raise UsageError(f"images must be 0 or more; got {images}")
    return chernoff_upper(rate, images // 2, confidence)


def t_interval(values: npt.ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Student's interval of the mean of independent values; NaN do not count."""
    check_confidence(confidence)
    array = np.asarray(values, np.float64)
    known = array[~np.isnan(array)]
    if len(known) < 2:
        return math.nan, math.nan
    error = known.std(ddof=1) / math.sqrt(len(known))
    reach = float(stdtrit(len(known) - 1, 0.5 + confidence / 2) * error)
    return float(known.mean()) - reach, float(known.mean()) + reach


def t_test_power(
    effect: npt.ArrayLike, spread: npt.ArrayLike, count: npt.ArrayLike, level: float = 0.95
) -> Float64:
    """Return the power of a one-sided t test of a mean above 0, in the shape of the arguments.

    A mean of 0 without spread has power 0.

    Source: Johnson & Welch 1940, "Applications of the non-central t-distribution".
    """
    if not 0.0 < level < 1.0:
        raise UsageError(f"level must lie between 0 and 1; got {level}")
    mean, deviation = np.asarray(effect, np.float64), np.asarray(spread, np.float64)
    number = np.asarray(count, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = mean / deviation * np.sqrt(number)
    ratio = np.where(np.isnan(ratio), -np.inf, ratio)
    # beyond 30 standard errors the power is 0 or 1, and the distribution overflows
    reach = np.clip(ratio, -30.0, 30.0)
    power = 1.0 - nctdtr(number - 1.0, reach, stdtrit(number - 1.0, level))
    return np.asarray(np.where(ratio < -30.0, 0.0, power))
