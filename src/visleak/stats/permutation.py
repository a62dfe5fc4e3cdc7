"""Permutation tests, draws from strata, and Holm's correction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.records import Bool, Float64, Int64

LEAST: Final = 1e-280  # lower probabilities are omitted: denormal numbers are slow to multiply
BLOCK: Final = 200_000  # rows of the draws that are made at once

#: Rows per stratum from which numpy's own draw is faster than drawing from all strata at once.
CROWD: Final = 400


def permutation_test(
    values: npt.ArrayLike,
    chosen: npt.ArrayLike,
    strata: npt.ArrayLike | None = None,
    *,
    mid: bool = True,
    resamples: int = 9999,
    seed: int = 0,
) -> float:
    """Return the two-sided p-value of the difference between the chosen rows and the others.

    Under the null hypothesis every choice of as many rows (of as many of each stratum) is equally
    likely. The statistic is the distance of the sum of the chosen values from its expectation.

    Exact where there are only two values, such as right and wrong: the sum is hypergeometric, or
    with strata a sum of such. Otherwise ``resamples`` choices are drawn, and the observed one is
    added to them, so the result is never 0. Ties with the observed statistic count in full in the
    plain p-value, by half in the mid-p value, which is at least ``0.5 / (resamples + 1)``.

    ``values`` (n,): finite numbers. ``chosen`` (n,): which rows. ``strata`` (n,): of any sortable
    type; strata that were chosen as a whole or not at all do not count. Returns NaN if only one
    choice was possible; if all values are equal, 1, and 0.5 as mid-p.

    Source: Fisher 1935, "The design of experiments", section 21; Lancaster 1961, "Significance
    tests in discrete distributions", for the mid-p value; Phipson & Smyth 2010, "Permutation
    P-values should never be zero".
    """
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
    group = np.unique(names, return_inverse=True)[1]
    sizes = np.bincount(group)
    taken = np.bincount(group[inside], minlength=len(sizes))
    mixed = ((taken > 0) & (taken < sizes))[group]
    if not mixed.any():
        return math.nan
    column, inside = column[mixed], inside[mixed]
    group = np.unique(group[mixed], return_inverse=True)[1]
    low, high = column.min(), column.max()
    if ((column == low) | (column == high)).all():
        return _exact(column == high, inside, group, mid)
    return _sampled(column, inside, group, mid, resamples, seed)


def _exact(right: Bool, inside: Bool, group: Int64, mid: bool) -> float:
    sizes, marked, drawn = (
        np.bincount(rows, minlength=int(group.max()) + 1).tolist()
        for rows in (group, group[right], group[inside])
    )
    least, probability = hypergeometric_sum(sizes, marked, drawn)
    seen = int((right & inside).sum())
    # in fractions, so that rounding does not decide whether the two tails are equally far off
    products = Counter[int]()
    for size, some, few in zip(sizes, marked, drawn, strict=True):
        products[size] += some * few
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
    order = np.lexsort((column, group))
    column, inside, group = column[order], inside[order], group[order]
    sizes = np.bincount(group)
    taken = np.bincount(group[inside], minlength=len(sizes))
    centred = column - (np.bincount(group, weights=column) / sizes)[group]
    # centred values sum to 0: the sum of the chosen is minus that of the others, which may be fewer
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


def hypergeometric_sum(
    sizes: Sequence[int], marked: Sequence[int], drawn: Sequence[int]
) -> tuple[int, Float64]:
    """Return the distribution of a sum of independent hypergeometric variables.

    From stratum ``i`` of ``sizes[i]`` rows, of which ``marked[i]`` are marked, ``drawn[i]`` are
    drawn without replacement. Returns the least number of marked rows listed, and the probabilities
    of it and the following numbers, without tails below :data:`LEAST`.
    """
    parts = [_one(*stratum) for stratum in zip(sizes, marked, drawn, strict=True)]
    # plain convolution: a Fourier transform loses tails below 1e-16
    while len(parts) > 1:
        # neighbours first, so that only the last few products are long
        joined = [
            _trimmed(first[0] + second[0], np.convolve(first[1], second[1]))
            for first, second in zip(parts[::2], parts[1::2], strict=False)
        ]
        parts = joined + parts[len(joined) * 2 :]
    return parts[0]


def _one(size: int, marked: int, drawn: int) -> tuple[int, Float64]:
    """Return the distribution in one stratum, from ratios of neighbours, out from the mode."""
    least, most = max(0, drawn + marked - size), min(drawn, marked)
    count = np.arange(least, most, dtype=np.float64)
    ratio = (marked - count) * (drawn - count) / ((count + 1) * (size - marked - drawn + count + 1))
    mode = min(most, max(least, (drawn + 1) * (marked + 1) // (size + 2))) - least
    above, below = np.cumprod(ratio[mode:]), np.cumprod(1.0 / ratio[:mode][::-1])[::-1]
    probability = np.concatenate([below, [1.0], above])
    return _trimmed(least, probability / probability.sum())


def _trimmed(least: int, probability: Float64) -> tuple[int, Float64]:
    kept = np.flatnonzero(probability > LEAST)
    return least + int(kept[0]), probability[kept[0] : kept[-1] + 1]


def stratified_draws(sizes: Int64, drawn: Int64, draws: int, seed: int = 0) -> Iterator[Int64]:
    """Yield rows drawn from strata without replacement, all sets being equally likely.

    ``sizes`` (strata,): number of rows, which are numbered stratum by stratum. ``drawn`` (strata,):
    how many to draw, best at most half. Yields (block, ``drawn.sum()``): row numbers of some draws,
    stratum by stratum, unordered within.
    """
    rng = np.random.default_rng(seed)
    if drawn.sum() < CROWD * len(sizes):
        yield from _all_at_once(sizes, drawn, draws, rng)
        return
    strata = list(zip(np.cumsum(sizes) - sizes, sizes, drawn, strict=True))
    for _ in range(draws):
        chosen = [
            first + rng.choice(size, few, replace=False, shuffle=False)
            for first, size, few in strata
        ]
        yield np.concatenate(chosen)[None]


def _all_at_once(
    sizes: Int64, drawn: Int64, draws: int, rng: np.random.Generator
) -> Iterator[Int64]:
    """Draw from all strata at once, by rejection.

    Each place gets a random row of its stratum. Where several places got the same row, one of them
    keeps it and the others try again, so all sets of the same size are equally likely.
    """
    rows, places = int(sizes.sum()), int(drawn.sum())
    first = np.repeat(np.cumsum(sizes) - sizes, drawn)
    width = np.repeat(sizes, drawn)
    block = max(1, BLOCK // rows)
    keeper = np.full(block * rows, -1, np.int64)
    for begin in range(0, draws, block):
        now = min(block, draws - begin)
        start = np.add.outer(np.arange(now) * rows, first).ravel()
        widths = np.tile(width, now)
        taken = np.empty(now * places, np.int64)
        waiting = np.arange(now * places)
        while waiting.size:
            tried = start[waiting] + (rng.random(waiting.size) * widths[waiting]).astype(np.int64)
            free = keeper[tried] < 0
            # where several places write to one row, the last one keeps it
            keeper[tried[free]] = waiting[free]
            taken[waiting] = tried
            waiting = waiting[keeper[tried] != waiting]
        keeper[taken] = -1
        yield taken.reshape(now, places) - (np.arange(now) * rows)[:, None]


def holm(p: npt.ArrayLike) -> Float64:
    """Return p-values corrected for multiple tests by Holm's step-down method, (n,).

    Controls the family-wise error rate, however the tests depend on each other. ``p`` (n,): in
    [0, 1]; NaN, which does not count, if there was no test.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    given = np.asarray(p, np.float64)
    if given.ndim != 1:
        raise UsageError(f"p must be a column; got the shape {given.shape}")
    known = np.flatnonzero(~np.isnan(given))
    if ((given[known] < 0.0) | (given[known] > 1.0)).any():
        raise UsageError("p must lie between 0 and 1 in every row, or be NaN")
    order = known[np.argsort(given[known], kind="stable")]
    stepped = given[order] * np.arange(len(order), 0, -1)
    corrected = np.full(len(given), np.nan)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(stepped))
    return corrected
