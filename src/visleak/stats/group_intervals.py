"""Intervals of numbers about prompts that share images.

3,000 prompts of MemBench are triggers of 151 images, in 53 groups of prompts that share one; two
groups hold 44 % of the prompts. The mean of groups of sizes n has the variance of about
``sum(n)^2 / sum(n^2)`` equal groups (Kish), which are 8.9. On these sizes, of normal values and of
shares of .5 and .1, with a correlation of .05, .3 and .9 within groups, percentiles of resampled
groups hold the truth in 75 to 94 % of cases instead of 95, BCa in 77 to 87 %, and what is done here
in 88 to 95 %. Shares below .1 that whole groups decide are worse off with any method.
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
MOST_LEFT_OUT: Final = 1000  # of more groups none is left out in turn; percentiles do well there


@dataclass(frozen=True, slots=True)
class GroupInterval:
    """A number about prompts, and how well it is known."""

    value: float  #: of all prompts
    low: float  #: end of the interval; NaN where fewer than two groups say nothing of it
    high: float
    prompts: int  #: how many the number is of
    groups: int  #: of prompts that share images
    effective: float  #: as many groups of one size would say as much: between 1 and ``groups``
    method: str  #: ``share``, ``mean``, ``jackknife`` or ``percentiles``
    confidence: float  #: that the interval claims


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
    1981), Student's t has the effective number of groups less one as degrees of freedom. Where
    all values are 0 or 1, it is Wilson's interval of as many independent prompts as have that
    standard error; where they are all equal, of as many as there are effective groups. Sizes of
    groups are taken as given. A number of more than 1,000 groups that is not a mean gets the
    percentiles of resampled groups (Davison & Hinkley 1997, section 3.8).

    Args:
        values: (n,) or (n, k): one row per prompt, finite.
        groups: (n,): see :meth:`Prompts.groups`.
        statistic: of rows; their mean by default.
        confidence: between 0 and 1, both excluded.
        resamples, seed: of percentiles.

    Raises:
        UsageError: lengths differ, or there is nothing to go by.

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
            # groups that all agree tell nothing of how far groups differ: each counts once
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
        raise UsageError("values has no rows: there is no interval of nothing")
    if not np.isfinite(rows).all():
        raise UsageError("values are finite numbers; leave out prompts without one")
    return numbered(keys)


# Whether a treatment changes a number, from the same cases with and without it. Cases that share
# something stand or fall together, so whole groups are left out and swapped. And
# the area that a trade-off covers: a setting covers the rectangle between itself and a reference
# point; the hypervolume is the area that all settings cover together (Zitzler & Thiele 1998,
# "Multiobjective optimization using evolutionary algorithms"). A setting that another one beats in
# both numbers adds nothing, and no curve is drawn between settings.


MOST_EXACT: Final = 12  # of this many groups all flips are evaluated; of more, FLIPS are drawn
FLIPS: Final = 9999
BLOCK: Final = 512  # flips at a time; only bounds memory

#: A number of additive parts, over their last axis; the leading axes are carried along.
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
    """Return how likely so large a change is by chance, two-sided, in (0, 1]; NaN if not known.

    If a method did nothing, either of the two results of a group of prompts could as well be that
    with it: the two are swapped, group by group, and the change of the number is computed again.
    Exact for up to 12 groups; of more, 9,999 swaps are drawn and the one seen counts as one more of
    them.

    ``without``, ``with_it``: (prompts, parts): what a prompt adds to the number, see ``number``;
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

    Where all values are 0 both ends are as well: differences are so where a method leaves every
    image as it was. Of other equal values, and of a single group, the ends are not known.

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
        # moved to where no share can be: the interval of the mean moves along
        moved = group_interval(values + 2.0, groups)
        ends = (moved.value - 2.0, moved.low - 2.0, moved.high - 2.0)
        return replace(moved, value=ends[0], low=ends[1], high=ends[2])
    return group_interval(values, groups)


def bounded(
    found: GroupInterval, least: float = -math.inf, most: float = math.inf
) -> GroupInterval:
    """Return an interval whose ends are values that the number can have."""
    low = least if found.low < least else found.low
    high = most if found.high > most else found.high
    return replace(found, low=low, high=high)


@dataclass(frozen=True)
class Deviation:
    """A standard deviation of rows of values, with what each row does to it."""

    value: float  #: the deviation; NaN of fewer than two values
    #: (prompts,): its linear part, of mean 0. The jackknife of a deviation is that of the mean of
    #: this, but for terms of second order (Efron 1982, "The jackknife, the bootstrap and other
    #: resampling plans", chapter 6)
    moved: Float64
    parts: Float64  #: (prompts, parts): what each row adds to the sums that it is made of
    number: Number  #: makes it of these sums


def whole_deviation(table: Float64, centre: float = 0.0) -> Deviation:
    """Return the sample deviation of all values, whichever row they stand in.

    ``table``: (prompts, values), finite.

    >>> round(whole_deviation(np.array([[1.0], [2.0], [3.0]])).value, 6)
    1.0
    """
    value = _seen(float(table.std(ddof=1)) if table.size > 1 else math.nan, table)
    around = ((table - table.mean()) ** 2).mean(1)
    moved = _linear(around, value)
    counts, away = np.full(len(table), float(table.shape[1])), table - centre
    parts = np.column_stack([counts, away.sum(1), (away**2).sum(1)])
    return Deviation(value, moved, parts, deviation_of_parts)


def inner_deviation(table: Float64) -> Deviation:
    """Return the deviation within rows: the root of the mean of their sample variances.

    ``table``: (prompts, values), finite, of two values a row or more.

    >>> round(inner_deviation(np.array([[1.0, 3.0], [5.0, 5.0]])).value, 6)
    1.0
    """
    variances = table.var(1, ddof=1)
    value = _seen(math.sqrt(float(variances.mean())), table)
    parts = np.column_stack([np.ones(len(table)), variances])
    return Deviation(value, _linear(variances, value), parts, root_of_parts)


def root_of_parts(parts: Float64) -> Float64:
    """Return the root of sum / count of parts (.., 2): count, sum."""
    return np.asarray(np.sqrt(np.maximum(mean_of_parts(parts), 0.0)))


def _seen(value: float, table: Float64) -> float:
    """Return a deviation; rounding leaves some of one that is none."""
    return 0.0 if value <= 1e-12 * max(1.0, float(np.abs(table).max())) else value


def _linear(squares: Float64, value: float) -> Float64:
    """Return what each row's mean square does to the root of their mean, (prompts,)."""
    if not value > 0:
        return np.full(len(squares), 0.0 if value == 0 else np.nan)
    return np.asarray((squares - squares.mean()) / (2 * value))


def deviation_interval(found: Deviation, groups: npt.ArrayLike) -> GroupInterval:
    """Return a deviation with its interval, which ends at 0 or above."""
    return bounded(_placed(found.value, found.moved, groups), 0.0)


def deviation_change(
    without: Deviation, with_it: Deviation, groups: npt.ArrayLike
) -> GroupInterval:
    """Return how much larger a deviation of the same prompts is with a method, and its interval."""
    return _placed(with_it.value - without.value, with_it.moved - without.moved, groups)


def _placed(value: float, moved: Float64, groups: npt.ArrayLike) -> GroupInterval:
    """Return the interval of a number whose linear part is known.

    Two rows are equally far from their mean, whatever they are: that says nothing of a deviation.
    """
    silent = value != 0 and bool((np.abs(moved - moved[0]) <= 1e-12 * abs(value)).all())
    if silent or not np.isfinite(moved).all():
        flat = group_interval(np.zeros(len(moved)), groups)
        return replace(flat, value=value, low=math.nan, high=math.nan, method="linear")
    made = mean_interval(moved, groups)
    away = value - made.value
    return replace(made, value=value, low=made.low + away, high=made.high + away, method="linear")


def hypervolume(
    falling: npt.ArrayLike, rising: npt.ArrayLike, reference: tuple[float, float]
) -> float:
    """Return the area covered by points of which one number is to fall and one to rise, exactly.

    ``falling``: (n,): smaller is better, such as similarity; ``rising``: (n,): larger is better,
    such as alignment; ``reference``: the worst corner: points that are not better in both cover
    nothing.

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
    # from the best falling number on: what a point adds lies above all points before it
    for row in np.lexsort((-high, low)):
        wide = reference[0] - low[row]
        if wide > 0 and high[row] > floor:
            area += wide * (high[row] - floor)
            floor = high[row]
    return float(area)


def share_of_ideal(
    falling: npt.ArrayLike, rising: npt.ArrayLike, base: tuple[float, float]
) -> float:
    """Return the hypervolume by that of an ideal method: similarity 0 at the base's alignment.

    ``falling``, ``rising``: (n,): of the settings of one method. The reference point is (base
    similarity, 0), so that this compares over models and scores. 0 for a method that lowers
    nothing, above 1 where it raises alignment above the base's; NaN where a number of the base is
    not above 0.

    >>> share_of_ideal([0.25], [0.3], (0.5, 0.3)), share_of_ideal([0.6], [0.3], (0.5, 0.3))
    (0.5, 0.0)
    """
    ideal = base[0] * base[1]
    if not (base[0] > 0 and base[1] > 0):
        return math.nan
    return hypervolume(falling, rising, (base[0], 0.0)) / ideal
