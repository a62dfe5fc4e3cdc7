"""Bootstrap intervals of means, corrected for bias and for skewness (BCa).

For scores other than right or wrong. Plain percentile intervals are biased where values are few or
skewed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from visleak.errors import UsageError
from visleak.rates import check_confidence, wilson
from visleak.records import Bool, Float64, Int64
from visleak.stats.intervals import newcombe, weighted_columns, weighted_wilson

RESAMPLES: Final = 2000

#: Rows per distinct value, on average, from which drawing the counts of values is faster than
#: drawing rows. Both give the same distribution.
CROWD: Final = 16
UNKNOWN: Final = (math.nan, math.nan)


def bca_mean(
    values: npt.ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Return the BCa interval of a mean.

    ``values`` (n,): finite numbers; their order does not matter, to the last digit. Returns both
    ends, within the range of the values; NaN if there are fewer than two rows or all are equal.

    Source: Efron 1987, "Better bootstrap confidence intervals"; Efron & Tibshirani 1993, "An
    introduction to the bootstrap", section 14.3.
    """
    column = np.sort(_checked("values", values, confidence, resamples))
    if not _varies(column):
        return UNKNOWN
    centre = float(column.mean())
    centred = column - centre
    totals = _totals(centred[:, None], resamples, seed)[:, 0]
    ends = _interval(centre, totals / len(column), _acceleration([centred]), confidence)
    return _among(column, ends)


def bca_difference(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the BCa interval of the mean of one sample minus that of another, independent one.

    ``first``, ``second`` (n,) and (m,): finite numbers. Returns both ends; NaN if a sample has
    fewer than two rows or nothing varies in either.

    Source: as in :func:`bca_mean`; the acceleration is equation 15.36 of Efron & Tibshirani 1993.
    """
    columns = [
        np.sort(_checked(name, values, confidence, resamples))
        for name, values in (("first", first), ("second", second))
    ]
    if min(map(len, columns)) < 2 or not any(map(_varies, columns)):
        return UNKNOWN
    centres, means, influence = [], [], []
    seeds = np.random.SeedSequence(seed).generate_state(2)
    for column, own, sign in zip(columns, seeds, (1, -1), strict=True):
        centres.append(float(column.mean()))
        centred = column - centres[-1]
        means.append(_totals(centred[:, None], resamples, int(own))[:, 0] / len(column))
        influence.append(sign * centred / len(column))
    shifts = means[0] - means[1]
    return _interval(centres[0] - centres[1], shifts, _acceleration(influence), confidence)


def bca_weighted_mean(
    values: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the BCa interval of a weighted mean, ``sum(w * v) / sum(w)``, as :func:`bca_mean`.

    Rows are drawn with their weights and equal probabilities. ``weights`` (n,): 0 or more; only
    their proportions matter, and a row of weight 0 does not count.
    """
    checked = _checked("values", values, confidence, resamples)
    column, weight = weighted_columns(checked, weights)
    if not _varies(column):
        return UNKNOWN
    order = np.lexsort((weight, column))
    column, weight = column[order], weight[order]
    centre = float((weight * column).sum() / weight.sum())
    parts = np.column_stack([weight * (column - centre), weight])
    totals = _totals(parts, resamples, seed)
    means = totals[:, 0] / totals[:, 1]
    return _among(column, _interval(centre, means, _acceleration([parts[:, 0]]), confidence))


def _checked(name: str, values: npt.ArrayLike, confidence: float, resamples: int) -> Float64:
    check_confidence(confidence)
    if resamples < 1:
        raise UsageError(f"resamples must be 1 or more; got {resamples}")
    column = np.asarray(values, np.float64)
    if column.ndim != 1 or not np.isfinite(column).all():
        raise UsageError(f"{name} must be a column of finite numbers")
    return column


def _varies(column: Float64) -> bool:
    return len(column) >= 2 and bool((column != column[0]).any())


def _among(column: Float64, ends: tuple[float, float]) -> tuple[float, float]:
    """Return an interval within the range of the values, which rounding may exceed."""
    low, high = np.clip(ends, column.min(), column.max())
    return float(low), float(high)


def _totals(columns: Float64, resamples: int, seed: int) -> Float64:
    """Return the sums of the columns in each resample of the rows, (resamples, columns)."""
    rows, sizes = np.unique(columns, axis=0, return_counts=True)
    n = len(columns)
    if CROWD * len(rows) > n:
        ordered = np.repeat(rows, sizes, axis=0)
        return np.array([counts @ ordered for counts in cluster_draws(n, resamples, seed)])
    rng = np.random.default_rng(seed)
    return np.array([rng.multinomial(n, sizes / n) @ rows for _ in range(resamples)])


def _acceleration(influences: list[Float64]) -> float:
    """Return how fast the standard error changes with the result (Efron 1987).

    ``influences``: by sample, (n,): how much each row moves the result, in any unit; they sum to 0.
    """
    largest = max(float(np.abs(influence).max()) for influence in influences)
    if not largest:
        return 0.0
    moved = np.concatenate(influences) / largest
    cubes, squares = float((moved**3).sum()), float((moved**2).sum())
    return cubes / (6.0 * squares * math.sqrt(squares))


def _interval(
    estimate: float, shifts: Float64, acceleration: float, confidence: float
) -> tuple[float, float]:
    # a resample that is equal up to rounding counts half to either side
    slack = 1e-9 * float(shifts.std())
    below = float((shifts < -slack).mean() + (shifts <= slack).mean()) / 2.0
    if not 0.0 < below < 1.0:
        return UNKNOWN
    bias = float(ndtri(below))
    tail = float(ndtri((1.0 - confidence) / 2.0))
    ends = [bias + side for side in (tail, -tail)]
    levels = [float(ndtr(bias + end / (1.0 - acceleration * end))) for end in ends]
    low, high = np.quantile(shifts, levels)
    return estimate + float(low), estimate + float(high)


def cluster_draws(clusters: int, resamples: int, seed: int = 0) -> Iterator[Int64]:
    """Yield how often each cluster is drawn, (clusters,), in resamples with replacement."""
    if clusters < 1 or resamples < 1:
        raise UsageError(
            f"clusters and resamples must be 1 or more; got {clusters} and {resamples}"
        )
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        drawn = rng.integers(clusters, size=clusters)
        yield np.bincount(drawn, minlength=clusters).astype(np.int64)


def cluster_bootstrap(
    statistic: Callable[[Int64], float],
    clusters: npt.ArrayLike,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile interval of a statistic, drawing whole clusters; NaN if there is none.

    ``statistic``: takes row numbers, (k,), with repetitions; resamples for which it returns NaN do
    not count. ``clusters`` (n,): the cluster of each row, of any sortable type.

    Source: Davison & Hinkley 1997, "Bootstrap methods and their application", section 3.8.
    """
    check_confidence(confidence)
    _, owner, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    if not len(owner):
        raise UsageError("nothing to draw from: clusters has no rows")
    order = np.argsort(owner, kind="stable")
    rows = np.split(order, np.cumsum(sizes)[:-1])
    values = []
    for counts in cluster_draws(len(sizes), resamples, seed):
        chosen = np.flatnonzero(counts)
        values.append(statistic(np.concatenate([np.repeat(rows[c], counts[c]) for c in chosen])))
    known = [value for value in values if not math.isnan(value)]
    return percentiles(known, confidence)


def percentiles(values: npt.ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Return the two quantiles that leave out ``1 - confidence`` in equal parts; NaN for none."""
    found = np.asarray(values, np.float64)
    if not found.size:
        return UNKNOWN
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and the ends of its 95 % interval, in the unit of its metric; NaN if unknown."""

    value: float
    low: float = math.nan
    high: float = math.nan


NOTHING: Final = Estimate(math.nan)

#: Largest share of the sum of squared deviations that one value may have for a bootstrap, relative
#: to the largest possible share of one of that many values.
MOST_OF_ONE: Final = 0.8


def score_of(values: Float64, *, share: bool, seed: int = 0) -> Estimate:
    """Return the mean score of some images (k,): shares by Wilson, others by BCa bootstrap."""
    if not len(values):
        return NOTHING
    if share:
        return Estimate(float(values.mean()), *wilson(int(values.sum()), len(values)))
    if is_dominated(values):
        return Estimate(float(values.mean()))
    return Estimate(float(values.mean()), *bca_mean(values, seed=seed))


def is_dominated(values: Float64) -> bool:
    """Whether one outlier has nearly all of the variance, so that a bootstrap is meaningless.

    Values between 0 and 1 have no such outlier.
    """
    if not len(values) or (values.min() >= 0.0 and values.max() <= 1.0):
        return False
    squares = (values - values.mean()) ** 2
    most = 1.0 - 1.0 / len(values)
    return bool(squares.max() > MOST_OF_ONE * most * squares.sum())


def difference_of(part: Float64, rest: Float64, *, share: bool, seed: int = 0) -> Estimate:
    """Return the mean of a part minus that of the rest, disjoint images.

    Shares by Newcombe's method 10, other metrics by BCa bootstrap.
    """
    if not (len(part) and len(rest)):
        return NOTHING
    value = float(part.mean() - rest.mean())
    if share:
        before, after = ((int(each.sum()), len(each)) for each in (rest, part))
        return Estimate(value, *newcombe(before, after))
    if is_dominated(part) or is_dominated(rest):
        return Estimate(value)
    return Estimate(value, *bca_difference(part, rest, seed=seed))


def gain_of(difference: Estimate, part: int, whole: int) -> Estimate:
    """Return the score of a part minus that of the whole, from its difference to the rest.

    The whole's score is the mean of both parts', so the gain is ``1 - part / whole`` times the
    difference of the part and the rest, which share no images.
    """
    if not whole:
        return NOTHING
    factor = 1.0 - part / whole
    return Estimate(difference.value * factor, difference.low * factor, difference.high * factor)


def fair_of(
    values: Float64, classes: Int64 | None, kept: Bool, *, share: bool, seed: int = 0
) -> tuple[Estimate, int]:
    """Return the score of the kept images, weighted to the class mix of all, and classes lost.

    Leaked images are often of easy classes, so each class has its weight in the benchmark
    (post-stratification). ``values`` (n,), of all images; ``classes`` (n,), number of each image's
    class, or ``None``; ``kept`` (n,). The estimate excludes the classes without a kept image, whose
    number is returned.
    """
    if classes is None or not kept.any():
        return score_of(values[kept], share=share, seed=seed), 0
    every, left = np.bincount(classes), np.bincount(classes[kept], minlength=classes.max() + 1)
    weight = np.divide(every, left, out=np.zeros(len(every)), where=left > 0)
    own, own_values = weight[classes[kept]], values[kept]
    ends = UNKNOWN
    if share:
        ends = weighted_wilson(own_values, own)
    elif not is_dominated(own_values):
        ends = bca_weighted_mean(own_values, own, seed=seed)
    value = float(np.average(own_values, weights=own))
    return Estimate(value, *ends), int(((every > 0) & (left == 0)).sum())
