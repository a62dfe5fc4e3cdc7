"""Scores, gains, intervals and probabilities as people read them.

Shares are percentages with two decimals, other scores have four significant digits; what is not
known is empty.
"""

from __future__ import annotations

import math
from typing import Final

from visleak.impact.results import Row
from visleak.stats.estimates import Estimate

UNKNOWN: Final = ""


def score(value: float, *, percent: bool) -> str:
    """Return a score or a deviation as text.

    >>> score(0.9173, percent=True), score(0.012345, percent=False), score(math.nan, percent=True)
    ('91.73', '0.01235', '')
    """
    if math.isnan(value):
        return UNKNOWN
    return f"{_rounded(100.0 * value, 2):.2f}" if percent else _significant(value)


def signed(value: float, *, percent: bool) -> str:
    """Return a difference as text, with its sign.

    >>> signed(0.0597, percent=True), signed(-0.0003, percent=True), signed(1e-9, percent=True)
    ('+5.97', '-0.03', '0.00')
    """
    text = score(value, percent=percent)
    return text if text in (UNKNOWN, "0", "0.00") or text.startswith("-") else f"+{text}"


def interval(estimate: Estimate, *, percent: bool, sign: bool = True) -> str:
    """Return the ends of an interval as text.

    >>> interval(Estimate(0.05, -0.004, 0.1), percent=True)
    '-0.40 to +10.00'
    """
    write = signed if sign else score
    low, high = (write(end, percent=percent) for end in (estimate.low, estimate.high))
    return UNKNOWN if UNKNOWN in (low, high) else f"{low} to {high}"


def estimated(estimate: Estimate, *, percent: bool, sign: bool = False, ends: bool = True) -> str:
    """Return a number with its interval, where one is known.

    >>> estimated(Estimate(0.5, 0.4, 0.6), percent=True), estimated(Estimate(0.5), percent=True)
    ('50.00 (40.00 to 60.00)', '50.00')
    """
    value = (signed if sign else score)(estimate.value, percent=percent)
    between = interval(estimate, percent=percent, sign=sign) if ends else UNKNOWN
    return f"{value} ({between})" if between else value


def deviating(row: Row, *, percent: bool) -> str:
    """Return the mean of a drawn row and the standard deviation of its draws, as in table 4.

    >>> deviating(Row("hard", "leaked", 200, Estimate(0.4555), Estimate(0.1), 0.0119, 10),
    ...     percent=True)
    '45.55 ± 1.19'
    """
    mean, spread = (score(each, percent=percent) for each in (row.score.value, row.deviation))
    return mean if UNKNOWN in (mean, spread) else f"{mean} ± {spread}"


def probability(p: float) -> str:
    """Return a probability with three decimals.

    >>> probability(0.0004), probability(0.0125), probability(1.0), probability(math.nan)
    ('<0.001', '0.013', '1.000', '')
    """
    if math.isnan(p):
        return UNKNOWN
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _significant(value: float) -> str:
    """Return four significant digits; from a thousand on, all digits before the point.

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
