"""Tables of one thing against another, for people.

Leaked images against the others, the benchmark against what does not leak, models against each
other, and errors on two test sets (Barz & Denzler 2020, table 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from visleak.impact.numbers import UNKNOWN, interval, probability, score, signed, signed_interval
from visleak.impact.results import Comparison, Effect, Flip, Gap, Impact
from visleak.markup import Grid

#: Pairs of models are listed if they change places, or may with this probability.
MAY_FLIP: Final = 0.05


def _compared(result: Impact, metric: str) -> Iterator[tuple[Effect, Comparison]]:
    for effect in result.effects:
        for each in effect.comparisons:
            if effect.metric == metric and result.leaks.get(each.leak):
                yield effect, each


def _named(result: Impact, metric: str) -> str:
    lower = any(effect.lower for effect in result.effects if effect.metric == metric)
    return f"{metric} (less is better)" if lower else metric


def comparisons(result: Impact) -> list[Grid]:
    """Return leaked images against the others, a table a metric; p with Holm's correction."""
    found = []
    for metric in result.metrics:
        each_of = list(_compared(result, metric))
        classes = any(not math.isnan(each.within_classes) for _, each in each_of)
        header = ["model", "leak", "leaked", "others", "difference", "95 % CI", "p (Holm)"]
        rows = []
        for effect, each in each_of:
            cells = [
                *(effect.model, each.leak, f"{each.leaked:,}", f"{each.others:,}"),
                signed(each.difference.value, percent=effect.percent),
                signed_interval(each.difference, percent=effect.percent),
                _corrected(each.p, each.adjusted),
            ]
            cells += [_corrected(each.within_classes, each.within_classes_adjusted)] * classes
            rows.append(cells)
        title = f"Leaked images against the others, {_named(result, metric)}"
        header += ["within classes"] * classes
        found.append(Grid(title, header, rows, texts=2))
    return [grid for grid in found if grid.rows]


def twinned(result: Impact) -> list[Grid]:
    """Return leaked images against others of their class and difficulty, a table per metric."""
    found = []
    header = ["model", "leak", "matched", "twins", "difference", "95 % CI", "p (Holm)"]
    header += ["leaked harder than %", "others %", "twins %"]
    for metric in result.metrics:
        rows = []
        for effect, each in _compared(result, metric):
            twins = each.twinned
            if twins is None:
                continue
            leaked, others, _, matched = twins.difficulty
            rows.append(
                [
                    *(effect.model, each.leak, f"{twins.leaked:,} of {each.leaked:,}"),
                    f"{twins.leaked * twins.twins:,}",
                    signed(twins.difference.value, percent=effect.percent),
                    signed_interval(twins.difference, percent=effect.percent),
                    _corrected(twins.p, twins.adjusted),
                    *(f"{100 * share:.1f}" for share in (leaked, others, matched)),
                ]
            )
        title = (
            "Leaked images against others of their class that are as difficult,"
            f" {_named(result, metric)}"
        )
        found.append(Grid(title, header, rows, texts=2))
    return [grid for grid in found if grid.rows]


def _corrected(p: float, adjusted: float) -> str:
    return UNKNOWN if math.isnan(p) else f"{probability(p)} ({probability(adjusted)})"


def fair(result: Impact) -> list[Grid]:
    """Return what a fair benchmark would have shown, a table a metric."""
    found = []
    for metric in result.metrics:
        each_of = list(_compared(result, metric))
        lost = any(each.classes_lost for _, each in each_of)
        header = ["model", "leak", "images", "original", "fair", "95 % CI", "inflation", "95 % CI"]
        header += ["classes lost"] * lost
        rows = []
        for effect, each in each_of:
            percent = effect.percent
            rows.append(
                [
                    *(effect.model, each.leak, f"{each.others:,}"),
                    score(effect.original.score.value, percent=percent),
                    score(each.fair.value, percent=percent),
                    interval(each.fair, percent=percent),
                    signed(each.inflation.value, percent=percent),
                    signed_interval(each.inflation, percent=percent),
                    *([f"{each.classes_lost:,}"] * lost),
                ]
            )
        units = {effect.percent for effect, _ in each_of}
        unit = ", %" if units == {True} else ""
        title = f"What the images that do not leak show, {_named(result, metric)}{unit}"
        found.append(Grid(title, header, rows, texts=2))
    return [grid for grid in found if grid.rows]


def flips(result: Impact) -> list[Grid]:
    """Return the models that change places or may, where leaked images do not count."""
    listed = [flip for flip in result.flips if _may_flip(flip)]
    header = ["metric", "leak", "first", "second", "original", "fair", "change"]
    rows = [
        [
            *(_named(result, flip.metric), flip.leak, flip.first, flip.second),
            signed(flip.original, percent=_percent(result, flip)),
            signed(flip.fair, percent=_percent(result, flip)),
            "yes" if flip.flipped else "no",
            score(flip.chance, percent=True),
            score(flip.behind, percent=True),
        ]
        for flip in listed
    ]
    title = "Models that change places without the leaked images, or may"
    grid = Grid(title, [*header, "chance %", "behind %"], rows, texts=4)
    return [grid] if rows else []


def _may_flip(flip: Flip) -> bool:
    return flip.flipped or flip.chance >= MAY_FLIP


def steady(result: Impact) -> str:
    """Return a line about the pairs of models that :func:`flips` leaves out, or nothing."""
    others = sum(not _may_flip(flip) for flip in result.flips)
    if not others:
        return ""
    return (
        f"{others:,} of {len(result.flips):,} orders of two models hold in more than"
        f" {100 * (1 - MAY_FLIP):.0f} % of resamples; flips.csv has all"
    )


def _percent(result: Impact, flip: Flip) -> bool:
    effect = result.effect(flip.first, flip.metric)
    return effect is not None and effect.percent


def gaps(result: Impact) -> list[Grid]:
    """Return errors on the original and the fair test set, a table a metric; the best in bold."""
    found = []
    for metric in dict.fromkeys(gap.metric for gap in result.gaps):
        own = [gap for gap in result.gaps if gap.metric == metric]
        header = ["model", "original %", "fair %", "gap", "95 % CI", "relative %", "p", "images"]
        rows = [
            [
                gap.model,
                score(gap.original.value, percent=True),
                score(gap.fair.value, percent=True),
                score(gap.gap.value, percent=True),
                signed_interval(gap.gap, percent=True),
                score(gap.relative, percent=True),
                probability(gap.p),
                f"{gap.images:,}",
            ]
            for gap in own
        ]
        what = "Error" if metric == "accuracy" else f"Error ({metric})"
        title = f"{what} on {result.test_set} and on its fair test set"
        found.append(Grid(title, header, rows, bold=_best(own)))
    return found


def _best(gaps: Sequence[Gap]) -> frozenset[tuple[int, int]]:
    """Return the cells of the smallest errors and gaps; one model alone is not the best."""
    if len(gaps) < 2:
        return frozenset()
    columns = {
        1: [gap.original.value for gap in gaps],
        2: [gap.fair.value for gap in gaps],
        3: [abs(gap.gap.value) for gap in gaps],
        5: [abs(gap.relative) for gap in gaps],
    }
    return frozenset((row, column) for column, each in columns.items() for row in least(each))


def least(values: Sequence[float]) -> list[int]:
    """Return the rows of the smallest value; what looks alike in a table is alike.

    >>> least([0.12341, math.nan, 0.12339, 0.2])
    [0, 2]
    """
    shown = [round(value, 4) for value in values]
    known = [value for value in shown if not math.isnan(value)]
    return [row for row, value in enumerate(shown) if known and value == min(known)]
