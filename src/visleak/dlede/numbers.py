"""Scores, increases, chances and names of metrics as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from visleak.dlede.results import Estimate, MetricJudgement, StepScore

UNKNOWN: Final = "-"

#: How metrics are called in texts; others keep the name that their trainer gave them.
_NAMES: Final = {"map50": "mAP@0.5", "map50_95": "mAP@0.5:0.95", "f1": "F1"}

#: The order of the paper's tables; others follow.
_ORDER: Final = ("precision", "recall", "map50", "map50_95", "accuracy", "f1")


def metric_name(metric: str) -> str:
    """Return what a metric is called in texts.

    >>> metric_name("map50"), metric_name("mIoU")
    ('mAP@0.5', 'mIoU')
    """
    return _NAMES.get(metric, metric)


def in_order(metrics: Sequence[str], deciding: Sequence[str] = ()) -> list[str]:
    """Return metrics in the order of the paper's tables.

    Args:
        metrics: their names.
        deciding: those that decide; they keep their own order, which is that of the headline.

    >>> in_order(("loss", "f1", "precision"))
    ['precision', 'f1', 'loss']
    >>> in_order(("loss", "f1", "precision"), ("loss", "f1"))
    ['precision', 'loss', 'f1']
    """
    order = sorted(metrics, key=lambda m: _ORDER.index(m) if m in _ORDER else len(_ORDER))
    own = iter([metric for metric in deciding if metric in order])
    return [next(own) if metric in deciding else metric for metric in order]


def risen(judged: MetricJudgement) -> Iterator[tuple[StepScore, Estimate]]:
    """Yield each step of a metric with its increase; of the first one nothing is known.

    Tables 3 and 4 of Babu et al. (2025) print 0 there: but no step is before it, and a 0 would
    read as a leak that raised nothing.
    """
    for place, step in enumerate(judged.steps):
        yield step, step.increase if place else Estimate(math.nan, math.nan, math.nan)


def score(value: float) -> str:
    """Write a score: shares with three decimals, others with four digits.

    >>> [score(value) for value in (0.486, 1.0, 41.237, 12345.6, -0.0001, math.nan)]
    ['0.486', '1.000', '41.24', '12,346', '0.000', '-']
    """
    if math.isnan(value):
        return UNKNOWN
    decimals = 3 if abs(value) < 9.9995 else max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def deviating(mean: float, deviation: float) -> str:
    """Write a mean with its standard deviation.

    >>> deviating(0.486, 0.0121), deviating(0.486, math.nan)
    ('0.486 ± 0.012', '0.486')
    """
    told = score(mean)
    return told if UNKNOWN in (told, score(deviation)) else f"{told} ± {score(deviation)}"


def interval(estimate: Estimate) -> str:
    """Write the interval of a score.

    >>> interval(Estimate(0.5, 0.4, 0.6)), interval(Estimate(0.5))
    ('0.400 to 0.600', '-')
    """
    return _ends(score(estimate.low), score(estimate.high))


def rise(share: float) -> str:
    """Write a relative increase in percent, two decimals, without the sign of percent.

    >>> rise(0.22428), rise(-0.0003), rise(-0.00001), rise(math.nan), rise(12.5)
    ('22.43', '-0.03', '0.00', '-', '1,250.00')
    """
    return UNKNOWN if math.isnan(share) else f"{round(100.0 * share, 2) + 0.0:,.2f}"


def rise_interval(estimate: Estimate) -> str:
    """Write the interval of a relative increase in percent.

    >>> rise_interval(Estimate(0.05, -0.004, 0.1))
    '-0.40 to 10.00'
    """
    return _ends(rise(estimate.low), rise(estimate.high))


def _ends(low: str, high: str) -> str:
    return UNKNOWN if UNKNOWN in (low, high) else f"{low} to {high}"


def told_rise(share: float, threshold: float) -> str:
    """Write a relative increase for a sentence: so many decimals that it keeps its side.

    >>> [told_rise(share, 0.05) for share in (0.22428, 0.0501, 0.05, 0.05 + 1e-12)]
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
    """Write a threshold or another share that somebody chose.

    >>> percent(0.05), percent(0.0325), percent(0.7733234)
    ('5 %', '3.25 %', '77.33 %')
    """
    return f"{100.0 * share:.4g} %"


def certainty(chance: float) -> str:
    """Write a chance in percent; what is not certain never reads as certain.

    >>> [certainty(chance) for chance in (1.0, 0.9893, 0.5, 0.0, math.nan)]
    ['over 99.9 %', '98.9 %', '50.0 %', 'under 0.1 %', '-']
    """
    if math.isnan(chance):
        return UNKNOWN
    if chance > 0.999:
        return "over 99.9 %"
    # rounded down: what misses a bound must not read as if it met it
    return "under 0.1 %" if chance < 0.001 else f"{math.floor(1000.0 * chance + 1e-9) / 10.0:.1f} %"
