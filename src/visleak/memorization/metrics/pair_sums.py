"""Sums of a kernel over the pairs of a set, and what they are without each group of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

#: Rows of a kernel matrix that are held at a time.
BLOCK: Final = 1024


@dataclass(frozen=True)
class PairSums:
    """Sums of the kernel over pairs of a set, no row with itself.

    Attributes:
        owner: (n,): group of each row, from 0.
        sizes: (groups,).
        sums: (groups,): over pairs of which the first is in the group.
        inside: (groups,): over pairs of which both are.
    """

    owner: Int64
    sizes: Float64
    sums: Float64
    inside: Float64

    @property
    def mean(self) -> float:
        """Mean over all pairs."""
        count = self.sizes.sum()
        return float(self.sums.sum() / (count * (count - 1)))

    @property
    def effective(self) -> float:
        """As many groups of one size say as much (Kish)."""
        return float(self.sizes.sum() ** 2 / (self.sizes**2).sum())

    def without(self) -> Float64:
        """Return the mean over all pairs without each group in turn; NaN where no pair is left."""
        rest = self.sizes.sum() - self.sizes
        left = self.sums.sum() - 2.0 * self.sums + self.inside
        return _ratio(left, rest * (rest - 1))

    def share(self, rows: Float64) -> Float64:
        """Return the mean of a number of rows, without each group in turn."""
        rest = self.sizes.sum() - self.sizes
        return _ratio(rows.sum() - np.bincount(self.owner, rows), rest)


def _ratio(sums: Float64, counts: Float64) -> Float64:
    return np.asarray(np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0))


def cubic(one: Float64, other: Float64) -> Float64:
    """Return the kernel (x y / width + 1)^3 of two sets of vectors, (n, m)."""
    return np.asarray((one @ other.T / one.shape[1] + 1.0) ** 3)


def within(rows: Float64, owner: Int64) -> PairSums:
    """Return the sums over pairs of a set.

    Args:
        rows: (n, width).
        owner: (n,): group of each row, from 0.
    """
    sums, inside = np.empty(len(rows)), np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        values = cubic(rows[part], rows)
        values[np.arange(len(values)), start + np.arange(len(values))] = 0.0
        sums[part] = values.sum(axis=1)
        inside[part] = (values * (owner[part, None] == owner[None, :])).sum(axis=1)
    sizes = np.bincount(owner).astype(np.float64)
    by_group = (np.asarray(np.bincount(owner, each), np.float64) for each in (sums, inside))
    return PairSums(owner, sizes, *by_group)


def across(one: Float64, other: Float64) -> tuple[Float64, Float64]:
    """Return the sums of the kernel from each row of a set to the other set, for both."""
    towards, back = np.empty(len(one)), np.zeros(len(other))
    for start in range(0, len(one), BLOCK):
        values = cubic(one[start : start + BLOCK], other)
        towards[start : start + BLOCK] = values.sum(axis=1)
        back += values.sum(axis=0)
    return towards, back
