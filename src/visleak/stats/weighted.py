"""Shares of rows with different weights, such as those of a sample with another mix of classes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.rates import check_confidence, score_interval


def weighted_wilson(
    values: npt.ArrayLike, weights: npt.ArrayLike, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the score interval of a weighted share, both ends within [0, 1].

    Wilson's interval with the effective number of rows of equal weight. With
    equal weights these are all rows, and the interval is :func:`~visleak.rates.wilson`'s.
    Otherwise it is the smaller of two numbers. Kish's, ``sum(w) ** 2 / sum(w ** 2)``, is too
    large where just the rows of large weight vary: then 90 % of such intervals cover. The other
    one, ``share * (1 - share)`` over the variance that the rows show, is too large where few rows
    are 0 or few are 1: 91 %. With the smaller one about 95 % cover, or more
    (``benchmarks/impact_statistics.py``). The weights are taken as known.

    ``values`` (n,): 0 or 1, or false or true. ``weights`` (n,): 0 or more; only their proportions
    matter, and a row of weight 0 does not count. Returns both ends; ``(nan, nan)`` where no row
    counts.

    Source: Kish 1965, "Survey sampling", section 11.7; Korn & Graubard 1998, "Confidence
    intervals for proportions with small expected number of positive counts estimated from survey
    data", for the other size, with the variance of a ratio by linearisation (Cochran 1977,
    "Sampling techniques", section 6.3).
    """
    check_confidence(confidence)
    column, weight = weighted_columns(values, weights)
    if not np.isin(column, (0.0, 1.0)).all():
        raise UsageError("values must be 0 or 1 in every row")
    if not weight.size:
        return math.nan, math.nan
    total = float(weight.sum())
    share = min(1.0, float(weight[column == 1.0].sum()) / total)
    known = total**2 / float((weight**2).sum())
    shown = float(((weight * (column - share)) ** 2).sum()) / total**2
    if shown > 0.0:
        known = min(known, share * (1.0 - share) / shown)
    return score_interval(share, known, confidence)


def weighted_columns(
    values: npt.ArrayLike, weights: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
