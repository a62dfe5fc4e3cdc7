"""Scores, increases, certainties and names of metrics as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

UNKNOWN: Final = "-"

#: Names of metrics in texts; others keep the name that their trainer uses.
_NAMES: Final = {"map50": "mAP@0.5", "map50_95": "mAP@0.5:0.95", "f1": "F1"}

#: The order of the paper's tables; others follow.
_ORDER: Final = ("precision", "recall", "map50", "map50_95", "accuracy", "f1")


def metric_name(metric: str) -> str:
    """Return the name of a metric in texts."""
    return _NAMES.get(metric, metric)


def in_order(metrics: Sequence[str], deciding: Sequence[str] = ()) -> list[str]:
    """Return metrics in the order of the paper's tables.

    >>> in_order(("loss", "f1", "precision"), ("loss", "f1"))
    ['precision', 'loss', 'f1']
    """
    order = sorted(metrics, key=lambda m: _ORDER.index(m) if m in _ORDER else len(_ORDER))
    own = iter([metric for metric in deciding if metric in order])
    return [next(own) if metric in deciding else metric for metric in order]


def score(value: float) -> str:
    """Format a score: shares with three decimals, others with four digits.

    >>> [score(value) for value in (0.486, 1.0, 41.237, 12345.6, -0.0001, math.nan)]
    ['0.486', '1.000', '41.24', '12,346', '0.000', '-']
    """
    if math.isnan(value):
        return UNKNOWN
    decimals = 3 if abs(value) < 9.9995 else max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def with_deviation(mean: float, deviation: float) -> str:
    """Format a mean with its standard deviation, without one if it is unknown."""
    text = score(mean)
    return text if UNKNOWN in (text, score(deviation)) else f"{text} ± {score(deviation)}"


def rise(share: float) -> str:
    """Format a relative increase in percent, two decimals, without the percent sign.

    >>> rise(0.22428), rise(-0.0003), rise(-0.00001), rise(math.nan), rise(12.5)
    ('22.43', '-0.03', '0.00', '-', '1,250.00')
    """
    return UNKNOWN if math.isnan(share) else f"{round(100.0 * share, 2) + 0.0:,.2f}"


def interval(low: str, high: str) -> str:
    """Join the formatted ends of an interval, which may be unknown."""
    return UNKNOWN if UNKNOWN in (low, high) else f"{low} to {high}"


def precise_rise(share: float, threshold: float) -> str:
    """Format a relative increase in percent with the decimals that keep its side of a threshold.

    >>> [precise_rise(share, 0.05) for share in (0.22428, 0.0501, 0.05, 0.05 + 1e-12)]
    ['22.4', '5.01', '5.0', '5.0']
    """
    if math.isnan(share):
        return UNKNOWN
    limit = round(100.0 * threshold, 8)
    for decimals in (1, 2, 3, 4):
        shown = round(100.0 * share, decimals)
        if (shown > limit) == (share > threshold):
            return f"{shown + 0.0:,.{decimals}f}"
    return f"{limit:,.1f}"


def percent(share: float) -> str:
    """Format a threshold or another chosen share.

    >>> percent(0.05), percent(0.0325), percent(0.7733234)
    ('5 %', '3.25 %', '77.33 %')
    """
    return f"{100.0 * share:.4g} %"


def certainty(chance: float) -> str:
    """Format a certainty in percent, rounded down and never as 100 or 0 %.

    >>> [certainty(chance) for chance in (1.0, 0.9893, 0.5, 0.0, math.nan)]
    ['over 99.9 %', '98.9 %', '50.0 %', 'under 0.1 %', '-']
    """
    if math.isnan(chance):
        return UNKNOWN
    if chance > 0.999:
        return "over 99.9 %"
    return "under 0.1 %" if chance < 0.001 else f"{math.floor(1000.0 * chance + 1e-9) / 10.0:.1f} %"
