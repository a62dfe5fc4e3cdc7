"""How far two sets of pictures are from each other, by vectors of their pictures.

The Frechet distance is FID where the vectors are Inception's (Heusel et al. 2017). It is too large
for small sets, by about as much as the trace of the covariance over their size, so distances of
sets of different sizes do not compare; the kernel distance has no such bias (Binkowski et al.
2018), which is why both are here. Distances by other vectors are other numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.groups import numbered
from visleak.memorization.metrics.pair_sums import across, within
from visleak.stats.rates import check_confidence

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def frechet_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return the squared Frechet distance of two normal distributions fitted to vectors.

        |m_a - m_b|^2 + tr(C_a) + tr(C_b) - 2 tr (C_a C_b)^(1/2)

    The last trace is the sum of the singular values of A B^T, where A^T A = C_a and B^T B = C_b:
    exact also where there are fewer vectors than dimensions, and no root of a matrix is taken.

    Args:
        a, b: (n, width) and (m, width), two rows or more each.

    Returns:
        0 or more.

    Raises:
        UsageError: the two are no tables of one width.

    Source: Dowson & Landau 1982; Heusel et al. 2017, "GANs trained by a two time-scale update
    rule", section 3.

    >>> round(frechet_distance([[0.0], [2.0]], [[3.0], [5.0]]), 9)
    9.0
    """
    one, other = _two(a, b)
    apart = one.mean(axis=0) - other.mean(axis=0)
    left, right = _root(one), _root(other)
    crossed = float(np.linalg.svd(left @ right.T, compute_uv=False).sum())
    squares = float((left**2).sum() + (right**2).sum() + apart @ apart)
    return max(squares - 2.0 * crossed, 0.0)


def _root(rows: Float64) -> Float64:
    """Return a matrix R with R^T R the covariance (n - 1), of as few rows as will do."""
    centred = (rows - rows.mean(axis=0)) / math.sqrt(len(rows) - 1)
    if len(centred) <= centred.shape[1]:
        return np.asarray(centred)
    return np.asarray(np.linalg.qr(centred, mode="r"))


@dataclass(frozen=True, slots=True)
class KernelDistance:
    """A kernel distance, and how well it is known.

    Attributes:
        value: MMD^2, unbiased; may be below 0 where the two sets are alike.
        low, high: ends of the interval; NaN where a set has fewer than three groups.
        error: standard error.
        pictures, others: in the two sets.
        groups, other_groups: in which their pictures are.
        confidence: that the interval claims.
    """

    value: float
    low: float
    high: float
    error: float
    pictures: int
    others: int
    groups: int
    other_groups: int
    confidence: float


def kernel_distance(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    groups: npt.ArrayLike | None = None,
    other_groups: npt.ArrayLike | None = None,
    *,
    confidence: float = 0.95,
) -> KernelDistance:
    """Return the unbiased squared distance of two sets by the kernel (x y / width + 1)^3.

    Its standard error is that of the jackknife that leaves out one group of either set at a time
    (Arvesen 1969, for statistics of pairs), its interval has Student's t with the effective
    numbers of groups (Kish) less one as degrees of freedom (Satterthwaite). For sets drawn from
    one distribution the error is too large, by a half or so, and the interval too long.

    Args:
        a, b: (n, width) and (m, width), two rows or more each.
        groups, other_groups: (n,) and (m,): rows of one group may resemble each other, such as
            images of one prompt, or of prompts that share an image; by default each is its own.
        confidence: between 0 and 1, both excluded.

    Raises:
        UsageError: the tables, or their groups, do not fit together.

    Source: Gretton et al. 2012, "A kernel two-sample test", lemma 6; Binkowski et al. 2018,
    "Demystifying MMD GANs", section 4.

    >>> kernel_distance([[0.0], [1.0]], [[0.0], [1.0]]).value
    -3.5
    """
    check_confidence(confidence)
    one, other = _two(a, b)
    owner, owner_b = _owners(one, groups, "groups"), _owners(other, other_groups, "other_groups")
    own, own_b = within(one, owner), within(other, owner_b)
    towards, back = across(one, other)
    cross = float(towards.sum()) / (len(one) * len(other))
    value = own.mean + own_b.mean - 2.0 * cross
    left_a = own.without() - 2.0 * own.share(towards) / len(other)
    left_b = own_b.without() - 2.0 * own_b.share(back) / len(one)
    variances = [_variance(left_a), _variance(left_b)]
    total = sum(variances)
    error = math.sqrt(total) if total > 0 else math.nan
    reach = error * _quantile(variances, [own.effective, own_b.effective], confidence)
    return KernelDistance(
        value,
        value - reach,
        value + reach,
        error,
        len(one),
        len(other),
        len(own.sizes),
        len(own_b.sizes),
        confidence,
    )


def kernel_subsets(
    a: npt.ArrayLike, b: npt.ArrayLike, subsets: int = 100, size: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return mean and deviation of the kernel distance over random subsets, as KID is published.

    The deviation is that of subsets of this size: it is no standard error of the mean, and falls
    with the size of the subsets, not with the data.

    Args:
        a, b: as of :func:`kernel_distance`.
        subsets: how many are drawn, each without replacement.
        size: of each; at most that of the smaller set.
        seed: of the draws.

    Raises:
        UsageError: a number cannot be.
    """
    one, other = _two(a, b)
    most = min(len(one), len(other))
    if not 2 <= size <= most:
        raise UsageError(
            f"size of subsets is 2 to {most}, that of the smaller set; got {size}: take a smaller"
            " one, or kernel_distance, which uses all"
        )
    if subsets < 1:
        raise UsageError(f"subsets are 1 or more; got {subsets}")
    rng = np.random.default_rng(seed)
    found = [
        kernel_distance(
            one[rng.choice(len(one), size, replace=False)],
            other[rng.choice(len(other), size, replace=False)],
        ).value
        for _ in range(subsets)
    ]
    return float(np.mean(found)), float(np.std(found))


def _variance(without: Float64) -> float:
    """Return the jackknife's variance of what a number is without each group."""
    count = len(without)
    if count < 3 or not np.isfinite(without).all():
        return math.nan
    return float(((without - without.mean()) ** 2).sum() * (count - 1) / count)


def _quantile(variances: list[float], effective: list[float], confidence: float) -> float:
    from scipy.special import stdtrit

    total = sum(variances)
    if not total > 0:
        return math.nan
    freedom = [max(each - 1.0, 1.0) for each in effective]
    shares = [(each / total) ** 2 / own for each, own in zip(variances, freedom, strict=True)]
    return float(stdtrit(1.0 / sum(shares), 0.5 + confidence / 2))


def _two(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Float64, Float64]:
    """Return two sets of vectors.

    Raises:
        UsageError: they cannot be compared.
    """
    found = []
    for name, given in (("a", a), ("b", b)):
        rows = np.asarray(given, np.float64)
        if rows.ndim != 2 or len(rows) < 2 or not rows.shape[1]:
            raise UsageError(
                f"{name} is a table of two vectors or more, one a row; got an array {rows.shape}"
            )
        if not np.isfinite(rows).all():
            raise UsageError(f"{name} has numbers that are not finite")
        found.append(rows)
    if found[0].shape[1] != found[1].shape[1]:
        raise UsageError(
            f"a has vectors of {found[0].shape[1]} numbers, b of {found[1].shape[1]}: both must"
            " come from one network"
        )
    return found[0], found[1]


def _owners(rows: Float64, groups: npt.ArrayLike | None, name: str) -> Int64:
    if groups is None:
        return np.arange(len(rows))
    keys = np.asarray(groups)
    if keys.shape != (len(rows),):
        raise UsageError(f"{name} names one group a row; got {keys.shape} for {len(rows)} rows")
    return numbered(keys)
