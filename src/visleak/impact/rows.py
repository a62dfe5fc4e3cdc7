"""An impact's tables for machines: one row a thing, numbers as they are, in the metric's unit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from visleak.impact.results import Estimate, Impact, Twinned
from visleak.storage import csv_value

Value = str | int | float

EFFECTS: Final = (
    *("model", "metric", "less_is_better", "leak", "subset", "images"),
    *("score", "score_low", "score_high", "gain", "gain_low", "gain_high"),
    *("deviation", "draws", "overlap"),
)
COMPARISONS: Final = (
    *("model", "metric", "leak", "leaked", "others"),
    *("difference", "difference_low", "difference_high", "p", "p_holm"),
    *("p_within_classes", "p_within_classes_holm", "fair", "fair_low", "fair_high"),
    *("inflation", "inflation_low", "inflation_high", "classes_lost"),
    *("twinned", "twins", "twinned_score", "twinned_difference", "twinned_difference_low"),
    *("twinned_difference_high", "p_twinned", "p_twinned_holm"),
)
FLIPS: Final = (
    *("metric", "leak", "first", "second", "original", "fair"),
    *("flipped", "chance", "behind", "images"),
)
GAPS: Final = (
    *("model", "metric", "images", "original", "original_low", "original_high"),
    *("fair", "fair_low", "fair_high", "gap", "gap_low", "gap_high"),
    *("relative", "p", "right_on_fair_only", "right_on_original_only"),
)


def effect_rows(result: Impact) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``impact.csv``: one a model, metric, and part of the benchmark."""
    for effect in result.effects:
        for row in effect.rows:
            yield _cells(
                *(effect.model, effect.metric, effect.lower, row.leak, row.subset, row.images),
                *(*_ends(row.score), *_ends(row.gain)),
                *(row.deviation, row.draws, row.overlap),
            )


def comparison_rows(result: Impact) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``comparisons.csv``: one a model, metric and leak."""
    for effect in result.effects:
        for each in effect.comparisons:
            yield _cells(
                *(effect.model, effect.metric, each.leak, each.leaked, each.others),
                *(*_ends(each.difference), each.p, each.adjusted),
                *(each.within_classes, each.within_classes_adjusted),
                *(*_ends(each.fair), *_ends(each.inflation), each.classes_lost),
                *_twinned(each.twinned),
            )


def flip_rows(result: Impact) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``flips.csv``: one a metric, leak and two models."""
    for flip in result.flips:
        yield _cells(
            *(flip.metric, flip.leak, flip.first, flip.second, flip.original, flip.fair),
            *(flip.flipped, flip.chance, flip.behind, flip.images),
        )


def gap_rows(result: Impact) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``gaps.csv``: one a model and metric."""
    for gap in result.gaps:
        yield _cells(
            *(gap.model, gap.metric, gap.images),
            *(*_ends(gap.original), *_ends(gap.fair), *_ends(gap.gap)),
            *(gap.relative, gap.p, *gap.changed),
        )


def _twinned(twins: Twinned | None) -> tuple[Value, ...]:
    if twins is None:
        return (0, 0, *[math.nan] * 6)
    images = (twins.leaked, twins.leaked * twins.twins, twins.score)
    return (*images, *_ends(twins.difference), twins.p, twins.adjusted)


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _cells(*values: Value) -> tuple[str, ...]:
    return tuple(map(csv_value, values))
