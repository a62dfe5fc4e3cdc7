"""Scores, gains, intervals and probabilities as people read them.

Shares are written as percentages with two decimals, other scores with four significant digits;
what is not known is a hyphen.
"""

from __future__ import annotations

import math
from typing import Final

from visleak.impact.results import Estimate, Row

UNKNOWN: Final = "-"


def score(value: float, *, percent: bool) -> str:
    """Write a score or a deviation.

    >>> score(0.9173, percent=True), score(0.012345, percent=False), score(math.nan, percent=True)
    ('91.73', '0.01235', '-')
    """
    if math.isnan(value):
        return UNKNOWN
    return f"{_rounded(100.0 * value, 2):.2f}" if percent else _significant(value)


def signed(value: float, *, percent: bool) -> str:
    """Write a difference, with its sign.

    >>> signed(0.0597, percent=True), signed(-0.0003, percent=True), signed(1e-9, percent=True)
    ('+5.97', '-0.03', '0.00')
    """
    text = score(value, percent=percent)
    nothing = text in (UNKNOWN, "0", "0.00")
    return text if nothing or text.startswith("-") else f"+{text}"


def interval(estimate: Estimate, *, percent: bool) -> str:
    """Write the interval of a score.

    >>> interval(Estimate(0.5, 0.4, 0.6), percent=True), interval(Estimate(0.5), percent=True)
    ('40.00-60.00', '-')
    """
    low, high = (score(end, percent=percent) for end in (estimate.low, estimate.high))
    if UNKNOWN in (low, high):
        return UNKNOWN
    return f"{low} to {high}" if low.startswith("-") else f"{low}-{high}"


def signed_interval(estimate: Estimate, *, percent: bool) -> str:
    """Write the interval of a difference.

    >>> signed_interval(Estimate(0.05, -0.004, 0.1), percent=True)
    '-0.40 to +10.00'
    """
    low, high = (signed(end, percent=percent) for end in (estimate.low, estimate.high))
    return UNKNOWN if UNKNOWN in (low, high) else f"{low} to {high}"


def deviating(row: Row, *, percent: bool) -> str:
    """Write the mean of a drawn row and the standard deviation of its draws, as in table 4.

    >>> deviating(Row("hard", "leaked", 200, Estimate(0.4555), Estimate(0.1), 0.0119, 10),
    ...     percent=True)
    '45.55 ± 1.19'
    """
    mean = score(row.score.value, percent=percent)
    spread = score(row.deviation, percent=percent)
    return mean if UNKNOWN in (mean, spread) else f"{mean} ± {spread}"


def probability(p: float) -> str:
    """Write a probability with three decimals.

    >>> probability(0.0004), probability(0.0125), probability(1.0), probability(math.nan)
    ('<0.001', '0.013', '1.000', '-')
    """
    if math.isnan(p):
        return UNKNOWN
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _significant(value: float) -> str:
    """Write four significant digits; from a thousand on, all digits before the point.

    >>> [_significant(value) for value in (0.0, 1.5, -0.00004, 12345.6, 999.96)]
    ['0', '1.500', '-4.000e-05', '12,346', '1,000']
    """
    if value == 0.0:
        return "0"
    power = math.floor(math.log10(abs(float(f"{value:.3e}"))))
    if power < -4:
        return f"{value:.3e}"
    return f"{_rounded(value, max(0, 3 - power)):,.{max(0, 3 - power)}f}"


def _rounded(value: float, decimals: int) -> float:
    """Round, without a minus sign before zero."""
    return round(value, decimals) + 0.0
