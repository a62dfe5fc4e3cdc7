"""Scores on parts of the benchmark, for people: tables 2 to 4 of Ramos et al. (2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from visleak.impact.numbers import (
    UNKNOWN,
    deviating,
    interval,
    score,
    signed,
    signed_interval,
)
from visleak.impact.results import Effect, Impact, Row
from visleak.markup import Grid

#: So many models or metrics stand side by side: more would be wider than a page.
BESIDE: Final = 3

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
