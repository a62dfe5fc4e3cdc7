"""Intervals and tests of numbers about prompts in groups that share images.

The 3,000 prompts of MemBench trigger 151 images, in 53 groups of prompts that share one; two groups
hold 44 % of the prompts, so that the effective number of groups (Kish) is 8.9. On these sizes, for
normal values and shares of .5 and .1 with an intra-group correlation of .05, .3 and .9, 95 %
intervals cover in 75 to 94 % of cases by percentiles of resampled groups, in 77 to 87 % by BCa, and
in 88 to 95 % by this module. Coverage is lower with any method for shares below .1 with a high
correlation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from visleak.errors import UsageError
from visleak.groups import numbered
from visleak.rates import check_confidence, score_interval
from visleak.records import Float64, Int64
from visleak.stats.bootstrap import cluster_bootstrap

Statistic = Callable[[Float64], float]
MOST_LEFT_OUT: Final = 1000  # most groups for the jackknife; percentiles are accurate for more


@dataclass(frozen=True, slots=True)
class GroupInterval:
    """A number about prompts with its interval."""

    value: float  #: of all prompts
    low: float  #: end of the interval; NaN for fewer than two groups
    high: float
    prompts: int
    groups: int  #: of prompts that share images
    effective: float  #: number of groups of equal size with the same information, 1 to ``groups``
    method: str  #: ``share``, ``mean``, ``jackknife`` or ``percentiles``
    confidence: float  #: of the interval


def effective_groups(sizes: npt.ArrayLike) -> float:
    """Return how many groups of one size have the same information (Kish).

    >>> effective_groups([1, 1]), effective_groups([3, 1])
    (2.0, 1.6)
    """
    known = np.asarray(sizes, np.float64)
    return float(known.sum() ** 2 / (known**2).sum())


def jackknife_variance(others: Float64, least: int = 2) -> float:
    """Return the variance of a number from its values without each group, (groups,)."""
    count = len(others)
    if count < least or not np.isfinite(others).all():
        return math.nan
    return float(((others - others.mean()) ** 2).sum() * (count - 1) / count)


def group_interval(
    values: npt.ArrayLike,
    groups: npt.ArrayLike,
    statistic: Statistic | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> GroupInterval:
    """Return the interval of a mean, a share or any other number of prompts in groups.

    The standard error is that of the jackknife that leaves out one group at a time (Efron & Stein
    1981), with Student's t and the effective number of groups less one as degrees of freedom.
    Values of 0 and 1 have Wilson's interval for the number of independent prompts with the same
    standard error, or for the effective number of groups if all are equal. Sizes of groups are
    taken as given. A statistic of more than 1,000 groups has the percentiles of resampled groups
    (Davison & Hinkley 1997, section 3.8).

    Args:
        values: (n,) or (n, k): one row per prompt, finite.
        groups: (n,): see :meth:`Prompts.groups`.
        statistic: of rows; their mean by default.
        confidence: between 0 and 1, both excluded.
        resamples, seed: of percentiles.

    Raises:
        UsageError: lengths differ, or there are no rows.

    >>> found = group_interval([1, 1, 0, 1], [0, 0, 1, 2])
    >>> found.value, found.groups, round(found.effective, 2), found.method
    (0.75, 3, 2.67, 'share')
    """
    check_confidence(confidence)
    rows = np.asarray(values, np.float64)
    owner = _owners(rows, groups)
    sizes = np.bincount(owner).astype(np.float64)
    effective = effective_groups(sizes)
    whole = partial(
        GroupInterval,
        prompts=len(rows),
        groups=len(sizes),
        effective=effective,
        confidence=confidence,
    )
    if statistic is not None and len(sizes) > MOST_LEFT_OUT:
        ends = cluster_bootstrap(
            lambda chosen: float(statistic(rows[chosen])),
            owner,
            resamples=resamples,
            confidence=confidence,
            seed=seed,
        )
        return whole(float(statistic(rows)), *ends, method="percentiles")
    if statistic is not None:
        method, value = "jackknife", float(statistic(rows))
        groups_of = range(len(sizes)) if len(sizes) > 1 else ()
        others = np.array([statistic(rows[owner != group]) for group in groups_of] or [math.nan])
    else:
        if rows.ndim != 1:
            raise UsageError("the mean is of one value per prompt; give a statistic of rows")
        method, value, rest = "mean", float(rows.mean()), len(rows) - sizes
        sums = rows.sum() - np.bincount(owner, rows)
        others = np.divide(sums, rest, out=np.full(len(sums), np.nan), where=rest > 0)
    variance = jackknife_variance(others)
    quantile = float(stdtrit(max(effective - 1.0, 1.0), 0.5 + confidence / 2))
    reach = quantile * math.sqrt(variance) if variance > 0 else math.nan
    low, high = value - reach, value + reach
    if statistic is None and np.isin(rows, (0.0, 1.0)).all():
        method, low, high = "share", math.nan, math.nan
        if len(sizes) > 1:
            own = value * (1 - value)
            # equal groups have no variance to estimate from: each counts once
            count = effective if own == 0 or not variance > 0 else own / variance
            count = min(max(count, 1.0), float(len(rows)))
            # Wilson's interval depends on the quantile z and on n through z^2 / n alone
            normal = float(ndtri(0.5 + confidence / 2))
            low, high = score_interval(value, count * (normal / quantile) ** 2, confidence)
    return whole(value, low, high, method=method)


def _owners(rows: Float64, groups: npt.ArrayLike) -> Int64:
    keys = np.asarray(groups)
    if rows.ndim not in (1, 2) or keys.shape != rows.shape[:1]:
        raise UsageError(
            f"groups names one group per row of values; got {keys.shape} for {rows.shape}"
        )
    if not len(rows):
        raise UsageError("values has no rows")
    if not np.isfinite(rows).all():
        raise UsageError("values are finite numbers; leave out prompts without one")
    return numbered(keys)


# -- changes of a number of the same prompts by a treatment; groups are the independent units ------


MOST_EXACT: Final = 12  # up to this many groups all flips are evaluated; of more, FLIPS are drawn
FLIPS: Final = 9999
BLOCK: Final = 512  # flips at a time; only bounds memory

#: A statistic of sums over prompts, which are the last axis; the leading axes are batches.
Number = Callable[[Float64], Float64]


def mean_of_parts(parts: Float64) -> Float64:
    """Return sum / count of parts (.., 2): count, sum."""
    return np.asarray(parts[..., 1] / parts[..., 0])


def deviation_of_parts(parts: Float64) -> Float64:
    """Return the sample standard deviation of parts (.., 3): count, sum, sum of squares."""
    count, total, squares = np.moveaxis(parts, -1, 0)
    spread = squares - total**2 / count
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.sqrt(np.maximum(spread, 0.0) / (count - 1))
    return np.asarray(np.where(count > 1, found, np.nan))


def swap_test(without: Float64, with_it: Float64, groups: npt.ArrayLike, number: Number) -> float:
    """Return the two-sided p-value of a change of a number, in (0, 1]; NaN if undefined.

    Under the null hypothesis the two results of a group of prompts can be swapped. Exact for up to
    12 groups; of more, 9,999 swaps are drawn and the observed result is added to them.

    ``without``, ``with_it``: (prompts, parts): what a prompt adds to the sums of ``number``;
    ``groups``: (prompts,). With g groups the result is at least 2 / 2^g.

    Source: Fisher 1935, "The design of experiments", section 21; Phipson & Smyth 2010,
    "Permutation P-values should never be zero".

    >>> zeros, ones = np.tile([1.0, 0.0], (3, 1)), np.tile([1.0, 1.0], (3, 1))
    >>> swap_test(zeros, ones, [0, 1, 2], mean_of_parts)
    0.25
    """
    owner = numbered(np.asarray(groups))
    if without.ndim != 2 or without.shape != with_it.shape or len(owner) != len(without):
        raise UsageError(
            "a paired test is of two tables of one shape and a group per row; got"
            f" {without.shape}, {with_it.shape} and {owner.shape}"
        )
    total = int(owner.max()) + 1
    before, after = (
        np.column_stack([np.bincount(owner, part, total) for part in table.T])
        for table in (without, with_it)
    )

    def change(flips: Float64) -> Float64:
        """Return the change of the number where the flipped groups are swapped, (flips,)."""
        moved = flips @ (before - after)
        return np.asarray(number(after.sum(0) + moved) - number(before.sum(0) - moved))

    seen = change(np.zeros((1, total)))[0]
    slack = 1e-12 * max(1.0, abs(float(number(before.sum(0)))), abs(float(number(after.sum(0)))))
    if not np.isfinite(seen):
        return math.nan
    if total <= MOST_EXACT:
        flips = (np.arange(1 << total)[:, None] >> np.arange(total)) & 1
        return float((np.abs(change(flips.astype(np.float64))) >= abs(seen) - slack).mean())
    draw = np.random.default_rng(0)
    beyond = 0
    for start in range(0, FLIPS, BLOCK):
        flips = draw.integers(0, 2, (min(BLOCK, FLIPS - start), total))
        beyond += int((np.abs(change(flips.astype(np.float64))) >= abs(seen) - slack).sum())
    return (beyond + 1) / (FLIPS + 1)


def mean_interval(values: Float64, groups: npt.ArrayLike) -> GroupInterval:
    """Return the interval of a mean that is not a share, even where all values are 0 or 1.

    Where all values are 0, both ends are 0: a method may leave every image unchanged. For other
    equal values, and for a single group, the ends are NaN.

    >>> found = mean_interval(np.zeros(3), [0, 1, 2])
    >>> found.low, found.value, found.high
    (0.0, 0.0, 0.0)
    >>> mean_interval(-np.ones(3), [0, 1, 2]).low
    nan
    """
    if len(values) and (values == values[0]).all():
        value = float(values[0])
        end = 0.0 if value == 0 and len(np.unique(groups)) > 1 else math.nan
        flat = group_interval(values, groups)
        return replace(flat, value=value, low=end, high=end, method="mean")
    if np.isin(values, (0.0, 1.0)).all():
        # shifted, so that they are not taken for a share
        moved = group_interval(values + 2.0, groups)
        ends = (moved.value - 2.0, moved.low - 2.0, moved.high - 2.0)
        return replace(moved, value=ends[0], low=ends[1], high=ends[2])
    return group_interval(values, groups)


def bounded(
    found: GroupInterval, least: float = -math.inf, most: float = math.inf
) -> GroupInterval:
    """Return an interval cut to the range of the number."""
    low = least if found.low < least else found.low
    high = most if found.high > most else found.high
    return replace(found, low=low, high=high)


@dataclass(frozen=True)
class Deviation:
    """A standard deviation of rows of values, with the influence of each row."""

    value: float  #: the deviation; NaN for fewer than two values
    #: (prompts,): the influence of each row, of mean 0. Up to terms of second order, the jackknife
    #: of a deviation is that of the mean of these (Efron 1982, "The jackknife, the bootstrap and
    #: other resampling plans", chapter 6)
    influence: Float64
    parts: Float64  #: (prompts, parts): what each row adds to the sums of ``number``
    number: Number


def whole_deviation(table: Float64, centre: float = 0.0) -> Deviation:
    """Return the sample deviation of all values of a table.

    ``table``: (prompts, values), finite; ``centre``: a number near its mean, against rounding.

    >>> round(whole_deviation(np.array([[1.0], [2.0], [3.0]])).value, 6)
    1.0
    """
    value = _without_rounding(float(table.std(ddof=1)) if table.size > 1 else math.nan, table)
    influence = _influence(((table - table.mean()) ** 2).mean(1), value)
    counts, centred = np.full(len(table), float(table.shape[1])), table - centre
    parts = np.column_stack([counts, centred.sum(1), (centred**2).sum(1)])
    return Deviation(value, influence, parts, deviation_of_parts)


def inner_deviation(table: Float64) -> Deviation:
    """Return the deviation within rows: the root of the mean of their sample variances.

    ``table``: (prompts, values), finite, with two values per row or more.

    >>> round(inner_deviation(np.array([[1.0, 3.0], [5.0, 5.0]])).value, 6)
    1.0
    """
    variances = table.var(1, ddof=1)
    value = _without_rounding(math.sqrt(float(variances.mean())), table)
    parts = np.column_stack([np.ones(len(table)), variances])
    return Deviation(value, _influence(variances, value), parts, root_of_parts)


def root_of_parts(parts: Float64) -> Float64:
    """Return the root of sum / count of parts (.., 2): count, sum."""
    return np.asarray(np.sqrt(np.maximum(mean_of_parts(parts), 0.0)))


def _without_rounding(value: float, table: Float64) -> float:
    """Return a deviation, 0 where it is only rounding."""
    return 0.0 if value <= 1e-12 * max(1.0, float(np.abs(table).max())) else value


def _influence(squares: Float64, value: float) -> Float64:
    """Return the influence of each row's mean square on the root of their mean, (prompts,)."""
    if not value > 0:
        return np.full(len(squares), 0.0 if value == 0 else np.nan)
    return np.asarray((squares - squares.mean()) / (2 * value))


def deviation_interval(found: Deviation, groups: npt.ArrayLike) -> GroupInterval:
    """Return a deviation with its interval, cut at 0."""
    return bounded(_linear_interval(found.value, found.influence, groups), 0.0)


def deviation_change(
    without: Deviation, with_it: Deviation, groups: npt.ArrayLike
) -> GroupInterval:
    """Return the change of a deviation of the same prompts by a method, with its interval."""
    change = with_it.value - without.value
    return _linear_interval(change, with_it.influence - without.influence, groups)


def _linear_interval(value: float, influence: Float64, groups: npt.ArrayLike) -> GroupInterval:
    """Return the interval of a number whose influences are known.

    Equal influences have no interval: two rows are always equally far from their mean.
    """
    flat = value != 0 and bool((np.abs(influence - influence[0]) <= 1e-12 * abs(value)).all())
    if flat or not np.isfinite(influence).all():
        made = group_interval(np.zeros(len(influence)), groups)
        return replace(made, value=value, low=math.nan, high=math.nan, method="linear")
    made = mean_interval(influence, groups)
    shift = value - made.value
    return replace(made, value=value, low=made.low + shift, high=made.high + shift, method="linear")


def hypervolume(
    falling: npt.ArrayLike, rising: npt.ArrayLike, reference: tuple[float, float]
) -> float:
    """Return the area between some points and a reference point, exactly (hypervolume indicator).

    ``falling``: (n,): smaller is better, such as similarity; ``rising``: (n,): larger is better,
    such as alignment; ``reference``: points that are not better in both cover nothing.

    Source: Zitzler & Thiele 1998, "Multiobjective optimization using evolutionary algorithms".

    >>> hypervolume([0.5, 0.25], [1.0, 0.5], (1.0, 0.0))
    0.625
    """
    low, high = np.asarray(falling, np.float64), np.asarray(rising, np.float64)
    if low.ndim != 1 or low.shape != high.shape:
        raise UsageError(
            f"falling and rising are columns of one length; got {low.shape} and {high.shape}"
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(reference).all()):
        raise UsageError("a hypervolume is of finite numbers; leave out settings without one")
    area, floor = 0.0, reference[1]
    # from the best falling number on, a point adds only what is above all points before it
    for row in np.lexsort((-high, low)):
        wide = reference[0] - low[row]
        if wide > 0 and high[row] > floor:
            area += wide * (high[row] - floor)
            floor = high[row]
    return float(area)


def share_of_ideal(
    falling: npt.ArrayLike, rising: npt.ArrayLike, base: tuple[float, float]
) -> float:
    """Return the hypervolume relative to an ideal method: similarity 0 at the base's alignment.

    ``falling``, ``rising``: (n,): of the settings of one method. The reference point is (base
    similarity, 0), so results of different models and scores can be compared. 0 for a method that
    lowers nothing, above 1 where it raises alignment above the base's; NaN where a number of the
    base is not above 0.

    >>> share_of_ideal([0.25], [0.3], (0.5, 0.3)), share_of_ideal([0.6], [0.3], (0.5, 0.3))
    (0.5, 0.0)
    """
    ideal = base[0] * base[1]
    if not (base[0] > 0 and base[1] > 0):
        return math.nan
    return hypervolume(falling, rising, (base[0], 0.0)) / ideal
