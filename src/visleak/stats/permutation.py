"""Whether some rows differ from the others by more than a random choice of as many rows would."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.stats.arrangements import stratified_draws
from visleak.stats.hypergeometric import hypergeometric_sum

Bool = npt.NDArray[np.bool_]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def permutation_test(
    values: npt.ArrayLike,
    chosen: npt.ArrayLike,
    strata: npt.ArrayLike | None = None,
    *,
    mid: bool = True,
    resamples: int = 9999,
    seed: int = 0,
) -> float:
    """Return how likely the chosen rows differ so much from the others by chance, two-sided.

    If the choice meant nothing, any other choice of as many rows (of as many of each stratum)
    would have been as likely. A choice is as far off as the one seen if the sum of its values
    is as far from the sum to be expected, in either direction. The difference of the means of
    chosen and others rises by a constant with that sum, so this compares differences of means,
    by their distance from the one to be expected; without strata, from 0.

    Exact where there are only two values, such as right and wrong: the sum is hypergeometric, or
    with strata a sum of such. Otherwise ``resamples`` choices are drawn, and the one seen counts
    as one more of them (Phipson & Smyth 2010), so that nothing is ever impossible.

    A discrete sum often comes out just as far off as seen. The exact probability counts all of
    these, and so is seldom as small as it claims to be; the mid-p value counts half of them. Of
    choices that were drawn it counts half of those as far off, the seen one among them, so it is
    never below ``0.5 / (resamples + 1)``.

    ``values`` (n,): finite numbers. ``chosen`` (n,): which rows. ``strata`` (n,): anything that can
    be compared; rows are only compared with others of their stratum. Strata that were chosen whole
    or not at all say nothing. Returns NaN if only one choice was possible, as where no
    row was chosen or all were. If all values are equal, 1, and 0.5 as mid-p.

    Source: Fisher 1935, "The design of experiments", section 21; Lancaster 1961, "Significance
    tests in discrete distributions", for the mid-p value; Phipson & Smyth 2010, "Permutation
    P-values should never be zero".

    >>> values, chosen = [1, 1, 1, 0, 0, 0, 0, 0], [True, True, True] + [False] * 5
    >>> round(permutation_test(values, chosen, mid=False) * math.comb(8, 3), 6)
    1.0
    """
    column, inside, group = _checked(values, chosen, strata, resamples)
    sizes = np.bincount(group)
    taken = np.bincount(group[inside], minlength=len(sizes))
    told = ((taken > 0) & (taken < sizes))[group]
    if not told.any():
        return math.nan
    column, inside = column[told], inside[told]
    group = np.unique(group[told], return_inverse=True)[1]
    low, high = column.min(), column.max()
    if ((column == low) | (column == high)).all():
        return _exact(column == high, inside, group, mid)
    return _sampled(column, inside, group, mid, resamples, seed)


def _checked(
    values: npt.ArrayLike, chosen: npt.ArrayLike, strata: npt.ArrayLike | None, resamples: int
) -> tuple[Float64, Bool, Int64]:
    column, inside = np.asarray(values, np.float64), np.asarray(chosen, np.bool_)
    names = np.zeros(len(column), np.int64) if strata is None else np.asarray(strata)
    if column.ndim != 1 or not column.shape == inside.shape == names.shape:
        raise UsageError(
            "values, chosen and strata must be columns of one length; got"
            f" {column.shape}, {inside.shape} and {names.shape}"
        )
    if not np.isfinite(column).all():
        raise UsageError("values must be finite in every row")
    if resamples < 1:
        raise UsageError(f"resamples must be 1 or more; got {resamples}")
    return column, inside, np.unique(names, return_inverse=True)[1].astype(np.int64)


def _exact(right: Bool, inside: Bool, group: Int64, mid: bool) -> float:
    """Return the probability for values of which there are two."""
    sizes, marked, drawn = (
        np.bincount(rows, minlength=int(group.max()) + 1).tolist()
        for rows in (group, group[right], group[inside])
    )
    least, probability = hypergeometric_sum(sizes, marked, drawn)
    seen = int((right & inside).sum())
    # in fractions: whether the two tails are equally far off must not hang on rounding
    products: dict[int, int] = {}
    for size, some, few in zip(sizes, marked, drawn, strict=True):
        products[size] = products.get(size, 0) + some * few
    expected = sum((Fraction(product, size) for size, product in products.items()), Fraction())
    opposite = 2 * expected - seen
    near, far = sorted((Fraction(seen), opposite))
    counts = np.arange(least, least + len(probability))
    beyond = (counts < math.ceil(near)) | (counts > math.floor(far))
    ties = (counts == seen) | ((counts == int(opposite)) & (opposite.denominator == 1))
    found = probability[beyond].sum() + (0.5 if mid else 1.0) * probability[ties].sum()
    return min(1.0, float(found))


def _sampled(
    column: Float64, inside: Bool, group: Int64, mid: bool, resamples: int, seed: int
) -> float:
    """Return the probability from choices that are drawn."""
    order = np.lexsort((column, group))
    column, inside, group = column[order], inside[order], group[order]
    sizes = np.bincount(group)
    taken = np.bincount(group[inside], minlength=len(sizes))
    centred = column - (np.bincount(group, weights=column) / sizes)[group]
    # centred values sum to 0: where most were chosen, those that were not say the same
    most = 2 * taken > sizes
    signed = np.where(most[group], -centred, centred)
    seen = abs(float(signed[inside ^ most[group]].sum()))
    fewer = np.where(most, sizes - taken, taken)
    # sums that differ by rounding alone are ties
    slack = 1e-12 * float(np.abs(column).max()) * int(fewer.sum())
    beyond = ties = 0
    for rows in stratified_draws(sizes, fewer, resamples, seed):
        off = np.abs(signed[rows].sum(axis=1))
        beyond += int((off > seen + slack).sum())
        ties += int((np.abs(off - seen) <= slack).sum())
    return (beyond + (0.5 if mid else 1.0) * (ties + 1)) / (resamples + 1)
