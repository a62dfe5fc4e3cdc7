"""Distances of two sets of images, by vectors of their images.

The Frechet distance of Inception's vectors is FID (Heusel et al. 2017). For small sets it is biased
upwards by about the trace of the covariance over their size, so distances of sets of different
sizes cannot be compared; the kernel distance is unbiased (Binkowski et al. 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from visleak.errors import UsageError
from visleak.groups import numbered
from visleak.rates import check_confidence
from visleak.records import Float64, Int64
from visleak.stats.group_intervals import effective_groups, jackknife_variance

BLOCK: Final = 1024  # rows of a kernel matrix that are held at a time


def _cubic(one: Float64, other: Float64) -> Float64:
    """Return the kernel (x y / width + 1)^3 of two sets of vectors, (n, m)."""
    return np.asarray((one @ other.T / one.shape[1] + 1.0) ** 3)


def _left_out(rows: Float64, owner: Int64, towards: Float64) -> tuple[float, Float64, Float64]:
    """Return the mean kernel over all pairs of different rows, and two jackknifed means (groups,).

    ``owner`` (n,): group of each row, from 0. The means are that of the pairs and that of
    ``towards`` (n,) without each group in turn; NaN where nothing is left.
    """
    sums, inside = np.empty(len(rows)), np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        values = _cubic(rows[part], rows)
        values[np.arange(len(values)), start + np.arange(len(values))] = 0.0
        sums[part] = values.sum(axis=1)
        inside[part] = (values * (owner[part, None] == owner[None, :])).sum(axis=1)
    count, rest = float(len(rows)), len(rows) - np.bincount(owner).astype(np.float64)
    own, both, across = (np.bincount(owner, each) for each in (sums, inside, towards))
    total = own.sum()
    pairs = _ratio(total - 2.0 * own + both, rest * (rest - 1))
    return float(total / (count * (count - 1))), pairs, _ratio(towards.sum() - across, rest)


def _ratio(sums: Float64, counts: Float64) -> Float64:
    return np.asarray(np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0))


def _across(one: Float64, other: Float64) -> tuple[Float64, Float64]:
    """Return the sums of the kernel from each row of a set to the other set, for both."""
    towards, back = np.empty(len(one)), np.zeros(len(other))
    for start in range(0, len(one), BLOCK):
        values = _cubic(one[start : start + BLOCK], other)
        towards[start : start + BLOCK] = values.sum(axis=1)
        back += values.sum(axis=0)
    return towards, back


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
        UsageError: the two are not tables of one width.

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
    """Return a matrix R of few rows where R^T R is the covariance (n - 1)."""
    centred = (rows - rows.mean(axis=0)) / math.sqrt(len(rows) - 1)
    if len(centred) <= centred.shape[1]:
        return np.asarray(centred)
    return np.asarray(np.linalg.qr(centred, mode="r"))


@dataclass(frozen=True, slots=True)
class KernelDistance:
    """A kernel distance with its interval."""

    value: float  #: MMD^2, unbiased; may be below 0 where the two sets are similar
    low: float  #: end of the interval; NaN where a set has fewer than three groups
    high: float
    error: float  #: standard error
    images: int  #: of the first set
    others: int  #: images of the second set
    groups: int
    other_groups: int
    confidence: float  #: of the interval


def kernel_distance(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    groups: npt.ArrayLike | None = None,
    other_groups: npt.ArrayLike | None = None,
    *,
    confidence: float = 0.95,
) -> KernelDistance:
    """Return the unbiased squared distance of two sets by the kernel (x y / width + 1)^3.

    The standard error is that of the jackknife that leaves out one group of either set at a time
    (Arvesen 1969, for statistics of pairs). The interval uses Student's t with the effective
    numbers of groups (Kish) less one as degrees of freedom (Satterthwaite). For sets drawn from
    one distribution the error is about 50 % too large, and the interval too long.

    Args:
        a, b: (n, width) and (m, width), two rows or more each.
        groups, other_groups: (n,) and (m,): rows of one group may depend on each other, such as
            images of one prompt, or of prompts that share an image; by default rows do not.
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
    towards, back = _across(one, other)
    mean, pairs, share = _left_out(one, owner, towards)
    mean_b, pairs_b, share_b = _left_out(other, owner_b, back)
    cross = float(towards.sum()) / (len(one) * len(other))
    value = mean + mean_b - 2.0 * cross
    left_a = pairs - 2.0 * share / len(other)
    left_b = pairs_b - 2.0 * share_b / len(one)
    variances = [jackknife_variance(left, 3) for left in (left_a, left_b)]
    total, error, reach = sum(variances), math.nan, math.nan
    if total > 0:
        freedom = [max(effective_groups(np.bincount(each)) - 1.0, 1.0) for each in (owner, owner_b)]
        shares = [(each / total) ** 2 / n for each, n in zip(variances, freedom, strict=True)]
        error = math.sqrt(total)
        reach = error * float(stdtrit(1.0 / sum(shares), 0.5 + confidence / 2))
    return KernelDistance(
        *(value, value - reach, value + reach, error),
        images=len(one),
        others=len(other),
        groups=len(share),
        other_groups=len(share_b),
        confidence=confidence,
    )


def _two(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Float64, Float64]:
    found = []
    for name, given in (("a", a), ("b", b)):
        rows = np.asarray(given, np.float64)
        if rows.ndim != 2 or len(rows) < 2 or not rows.shape[1]:
            raise UsageError(
                f"{name} is a table of two vectors or more, one per row; got an array {rows.shape}"
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
        raise UsageError(f"{name} names one group per row; got {keys.shape} for {len(rows)} rows")
    return numbered(keys)
