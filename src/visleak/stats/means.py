"""The interval of a mean, and the power of its t test."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError


def t_interval(values: npt.ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean of independent values; NaN of fewer than two.

    ``values`` (n,); NaN are left out.
    """
    from scipy.special import stdtrit

    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence must lie between 0 and 1; got {confidence}")
    array = np.asarray(values, np.float64)
    known = array[~np.isnan(array)]
    if len(known) < 2:
        return math.nan, math.nan
    error = known.std(ddof=1) / math.sqrt(len(known))
    reach = float(stdtrit(len(known) - 1, 0.5 + confidence / 2) * error)
    return float(known.mean()) - reach, float(known.mean()) + reach


def t_test_power(
    effect: npt.ArrayLike, spread: npt.ArrayLike, count: npt.ArrayLike, level: float = 0.95
) -> npt.NDArray[np.float64]:
    """Return the probability that a one-sided t test finds a mean above 0.

    Returns of the shape that the arguments have together. A mean of 0 without spread is not found.

    Source: Johnson & Welch 1940, "Applications of the non-central t-distribution".
    """
    from scipy.special import nctdtr, stdtrit

    if not 0.0 < level < 1.0:
        raise UsageError(f"level must lie between 0 and 1; got {level}")
    mean, deviation = np.asarray(effect, np.float64), np.asarray(spread, np.float64)
    number = np.asarray(count, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = mean / deviation * np.sqrt(number)
    ratio = np.where(np.isnan(ratio), -np.inf, ratio)
    # beyond 30 standard errors the answer is sure, and the distribution overflows
    reach = np.clip(ratio, -30.0, 30.0)
    power = 1.0 - nctdtr(number - 1.0, reach, stdtrit(number - 1.0, level))
    return np.asarray(np.where(ratio < -30.0, 0.0, power))
