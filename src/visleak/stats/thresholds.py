"""Thresholds of a score with a stated rate of false alarms.

A threshold set at an order statistic of ``n`` ordinary cases lets an unknown share of further
ones through. Which order statistic is fixed before scores are seen, so that share follows a beta
distribution whatever theirs (Wilks 1941, "Determination of sample sizes for setting tolerance
limits"), and its upper quantile is the exact binomial bound of Clopper and Pearson. It holds for
cases drawn independently like those that were given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.records import Float64
from visleak.stats.intervals import CONFIDENCE, clopper_pearson_upper

#: Digits of a threshold: it is rounded up, which only lowers its rate.
DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold of a score, and its false alarms."""

    value: float  #: cases with a score at or above it are reached
    #: ``given`` by the user; ``observed``, at most ``rate`` of the ordinary cases reach it;
    #: ``bounded``, ``upper`` is at most ``rate``
    rule: str
    rate: float | None  #: share of false alarms that is allowed; ``None`` where it was given
    negatives: int  #: ordinary cases it was set or tried on; 0 where there were none
    alarms: int  #: how many of them reach it
    upper: float  #: one-sided 95 % upper bound of the share of such cases that reach it
    #: there are enough ordinary cases for ``rate``; otherwise it lies above all
    supported: bool = True


def threshold_at(ordinary: npt.ArrayLike, rate: float, *, bounded: bool = False) -> Threshold:
    """Return the lowest threshold at which few enough ordinary prompts raise an alarm.

    Args:
        ordinary: (n,): D of ordinary prompts, at least one.
        rate: share of them that may reach it, between 0 and 1.
        bounded: not the share of these prompts, but its 95 % upper bound is at most ``rate``;
            needs ``log(0.05) / log(1 - rate)`` prompts, 299 for 1 %.

    Raises:
        UsageError: a rate that cannot be, or no prompts.

    >>> found = threshold_at(np.arange(1, 1001) / 1000, 0.01)
    >>> found.value, found.alarms, round(found.upper, 4)
    (0.9901, 10, 0.0169)
    >>> threshold_at(np.arange(1, 1001) / 1000, 0.01, bounded=True).alarms
    4
    """
    if not 0.0 < rate < 1.0:
        raise UsageError(f"fpr is a share between 0 and 1, such as 0.01; got {rate:g}")
    falling = _falling(ordinary)
    count = len(falling)
    allowed = _bounded(count, rate) if bounded else _observed(count, rate)
    # one more than are allowed would reach it: the threshold lies just above
    value = rounded_up(float(falling[max(allowed, 0)]))
    alarms = int((falling >= value).sum())
    return Threshold(
        value,
        "bounded" if bounded else "observed",
        rate,
        count,
        alarms,
        # of the order statistic, not of the alarms seen after rounding
        clopper_pearson_upper(max(allowed, 0), count),
        supported=allowed >= (0 if bounded else 1),
    )


def threshold_given(value: float, ordinary: npt.ArrayLike) -> Threshold:
    """Return a threshold that was fixed beforehand, with its alarms, if there are prompts."""
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"threshold is a number from 0, such as 0.9; got {value:g}")
    scores = np.asarray(ordinary, np.float64)
    alarms = int((scores >= value).sum())
    upper = clopper_pearson_upper(alarms, len(scores), CONFIDENCE)
    return Threshold(value, "given", None, len(scores), alarms, upper)


def needed(rate: float) -> int:
    """Return how many ordinary prompts without an alarm bound a rate from above."""
    return math.ceil(math.log(1.0 - CONFIDENCE) / math.log1p(-rate))


def rounded_up(value: float) -> float:
    """Return a number just above, of four digits; the next one where these are too few."""
    if value <= 0.0:
        return float(np.nextafter(value, np.inf))
    place = DIGITS - 1 - math.floor(math.log10(value))
    scaled = float(f"{value:.{DIGITS - 1}e}")
    if scaled > value:
        return scaled
    up = round(scaled + 10.0**-place, place)
    return up if up > value else float(np.nextafter(value, np.inf))


def _falling(ordinary: npt.ArrayLike) -> Float64:
    scores = np.asarray(ordinary, np.float64)
    if scores.ndim != 1 or not len(scores):
        raise UsageError("ordinary prompts are needed to set a threshold; got none")
    return np.sort(scores)[::-1]


def _observed(count: int, rate: float) -> int:
    """Return how many alarms are at most a share of a count."""
    # 0.07 * 100 is 7.000000000000001
    return math.floor(rate * count + 1e-9)


def _bounded(count: int, rate: float) -> int:
    """Return the most alarms whose bound is within the rate; -1 where not even none is."""
    allowed = -1
    low, high = 0, _observed(count, rate)
    while low <= high:
        middle = (low + high) // 2
        if clopper_pearson_upper(middle, count) <= rate:
            allowed, low = middle, middle + 1
        else:
            high = middle - 1
    return allowed
