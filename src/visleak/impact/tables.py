"""An impact's tables for people, in the papers' layouts.

Ramos et al. (2025), tables 2 to 4: parts of the benchmark by models or metrics; Barz & Denzler
(2020), table 2: errors on the original and the fair test set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from visleak.impact.numbers import (
    UNKNOWN,
    deviating,
    interval,
    probability,
    score,
    signed,
    signed_interval,
)
from visleak.impact.results import Comparison, Effect, Flip, Gap, Impact, Row
from visleak.markup import Grid

#: So many models or metrics stand side by side: more would be wider than a page.
BESIDE: Final = 3

#: Pairs of models are listed if they change places, or may with this probability.
MAY_FLIP: Final = 0.05

#: Controls, which are drawn in any case.
CONTROLS: Final = ("random", "class-matched")


def layouts(result: Impact) -> list[Grid]:
    """Return the parts of the benchmark with scores and gains, models or metrics side by side.

    One model has its metrics side by side (table 4), several have a table a metric (table 3), at
    most :data:`BESIDE` of them each; a model with one metric has the intervals, too (table 2).
    """
    if len(result.models) == 1 and len(result.metrics) > 1:
        title = f"Scores on parts of {result.test_set}: {result.models[0]}"
        return [
            _side_by_side(result, effects, _numbered(title, place), by_metric=True)
            for place, effects in _groups(result.effects)
        ]
    found = []
    for metric in result.metrics:
        effects = [effect for effect in result.effects if effect.metric == metric]
        if _is_alone(result, effects[0]):
            found.append(detail(result, effects[0]))
            continue
        title = f"Scores on parts of {result.test_set}: {_metric(effects[0])}"
        found += [
            _side_by_side(result, group, _numbered(title, place), by_metric=False)
            for place, group in _groups(effects)
        ]
    return found


def details(result: Impact) -> list[Grid]:
    """Return a table with intervals for each model and metric that :func:`layouts` has none of."""
    beside = [effect for effect in result.effects if not _is_alone(result, effect)]
    return [detail(result, effect) for effect in beside]


def _is_alone(result: Impact, effect: Effect) -> bool:
    """Whether an effect has no other beside it."""
    if len(result.models) == 1:
        return len(result.metrics) == 1
    return sum(each.metric == effect.metric for each in result.effects) == 1


def _groups(effects: Sequence[Effect]) -> Iterator[tuple[tuple[int, int], Sequence[Effect]]]:
    """Yield groups that fit on a page, and the place of each among how many."""
    starts = range(0, len(effects), BESIDE)
    for number, start in enumerate(starts, 1):
        yield (number, len(starts)), effects[start : start + BESIDE]


def _numbered(title: str, place: tuple[int, int]) -> str:
    return title if place[1] == 1 else f"{title} ({place[0]} of {place[1]})"


def _metric(effect: Effect) -> str:
    return f"{effect.metric} (less is better)" if effect.lower else effect.metric


def _unit(effect: Effect, name: str) -> str:
    return f"{name} %" if effect.percent else name


def is_drawn(effects: Sequence[Effect]) -> bool:
    """Whether parts that need not be drawn were, so that scores have deviations (table 4)."""
    return any(
        row.draws > 1 and row.subset not in CONTROLS for effect in effects for row in effect.rows
    )


def parts(result: Impact, effects: Sequence[Effect]) -> list[tuple[str, str]]:
    """Return leak and subset of each row; a leak that no image has is left out."""
    every = dict.fromkeys((row.leak, row.subset) for effect in effects for row in effect.rows)
    order = {leak: place for place, leak in enumerate(["", *result.leaks])}
    wanted = [part for part in every if not part[0] or result.leaks.get(part[0])]
    # what only some models have stands after what all have, but with its leak
    return sorted(wanted, key=lambda part: order.get(part[0], len(order)))


def absent(result: Impact) -> str:
    """Return a line about the leaks that no image has, or nothing."""
    names = [leak for leak, count in result.leaks.items() if not count]
    if not names:
        return ""
    return f"left out of the tables, because no image leaks so: {', '.join(names)}"


def _side_by_side(
    result: Impact, effects: Sequence[Effect], title: str, *, by_metric: bool
) -> Grid:
    drawn = is_drawn(effects)
    header = ["subset", "leak", "images"]
    for effect in effects:
        header.append(_unit(effect, _metric(effect) if by_metric else effect.model))
        header += [] if drawn else ["gain"]
    rows = []
    for leak, subset in parts(result, effects):
        found = [effect.row(leak, subset) for effect in effects]
        cells = [subset, leak, _images([row for row in found if row is not None])]
        for effect, row in zip(effects, found, strict=True):
            cells += _scored(effect, row, drawn=drawn)
        rows.append(cells)
    told = ", mean ± standard deviation over draws" if drawn else ""
    return Grid(f"{title}{told}", header, rows, texts=2)


def _scored(effect: Effect, row: Row | None, *, drawn: bool) -> list[str]:
    if row is None:
        return [UNKNOWN] if drawn else [UNKNOWN, UNKNOWN]
    if drawn:
        return [deviating(row, percent=effect.percent)]
    percent = effect.percent
    gain = "" if not row.leak else signed(row.gain.value, percent=percent)
    return [score(row.score.value, percent=percent), gain]


def _images(rows: Sequence[Row]) -> str:
    """Write how many images a row has; models may have answered more or fewer."""
    counts = [row.images for row in rows]
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def detail(result: Impact, effect: Effect) -> Grid:
    """Return one model's scores in one metric, with intervals."""
    drawn, percent = is_drawn([effect]), effect.percent
    name = _unit(effect, "score")
    header = ["subset", "leak", "images", name, "95 % CI", "gain", "95 % CI"]
    rows = []
    for leak, subset in parts(result, [effect]):
        row = effect.row(leak, subset)
        if row is None:
            continue
        shown = (
            deviating(row, percent=percent) if drawn else score(row.score.value, percent=percent)
        )
        rows.append(
            [
                *(subset, leak, f"{row.images:,}", shown),
                interval(row.score, percent=percent),
                signed(row.gain.value, percent=percent) if leak else "",
                signed_interval(row.gain, percent=percent) if leak else "",
            ]
        )
    title = f"Scores with intervals: {effect.model}, {_metric(effect)}"
    return Grid(title, header, rows, texts=2)


def _compared(result: Impact, metric: str) -> Iterator[tuple[Effect, Comparison]]:
    for effect in result.effects:
        for each in effect.comparisons:
            if effect.metric == metric and result.leaks.get(each.leak):
                yield effect, each


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
        title = f"Leaked images against the others, {metric}"
        header += ["within classes"] * classes
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
        title = f"What the images that do not leak show, {metric}{unit}"
        found.append(Grid(title, header, rows, texts=2))
    return [grid for grid in found if grid.rows]


def flips(result: Impact) -> list[Grid]:
    """Return the models that change places or may, where leaked images do not count."""
    listed = [flip for flip in result.flips if _may_flip(flip)]
    header = ["metric", "leak", "first", "second", "original", "fair", "change"]
    rows = [
        [
            *(flip.metric, flip.leak, flip.first, flip.second),
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
    found = set()
    for column, values in columns.items():
        # what looks alike in the table is alike
        shown = [round(value, 4) for value in values]
        known = [value for value in shown if not math.isnan(value)]
        found |= {(row, column) for row, value in enumerate(shown) if known and value == min(known)}
    return frozenset(found)


def grids(result: Impact) -> list[Grid]:
    """Return every table, in the order of a page."""
    return [
        *layouts(result),
        *comparisons(result),
        *fair(result),
        *flips(result),
        *gaps(result),
        *details(result),
    ]
