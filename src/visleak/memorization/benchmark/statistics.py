"""From measurements of images to rows of the tables, with intervals and paired tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from visleak.memorization.benchmark.records import (
    SCORES,
    TRIGGER,
    Change,
    Curve,
    Distance,
    Line,
    MethodRow,
    Score,
    variant_of,
)
from visleak.memorization.metrics.copying import copying
from visleak.records import Float64, Int64
from visleak.stats.group_intervals import (
    Deviation,
    bounded,
    deviation_change,
    deviation_interval,
    group_interval,
    inner_deviation,
    mean_interval,
    mean_of_parts,
    share_of_ideal,
    swap_test,
    whole_deviation,
)
from visleak.stats.permutation import holm

#: Numbers whose lowest value is that of the similarity.
SIMILARITIES: Final = frozenset({"top1", "top3"})


@dataclass(frozen=True)
class Measurements:
    """What was measured of the images of one method in one scenario, (prompts, images) each."""

    similarity: Float64  #: to the memorized images; NaN of prompts that have none at hand
    clip: Float64  #: (clip, aesthetic) NaN where there is no such model
    aesthetic: Float64
    seconds: Float64  #: that an image took to make
    digests: tuple[tuple[str, ...], ...]  #: of the images


@dataclass(frozen=True)
class Entry:
    """A method with all that was measured of it."""

    method: str  #: (method, setting, strength, about) as in ``Mitigation``
    setting: str
    strength: float
    about: dict[str, object]
    measured: Mapping[str, Measurements]  #: by scenario
    distance: Distance | None = None  #: of its trigger images to real ones


def rows_of(
    entries: Sequence[Entry], groups: Mapping[str, Int64], least: float = -1.0
) -> tuple[MethodRow, ...]:
    """Return a row per method; the first entry is none, which the others are compared with."""
    base = entries[0]
    rows = []
    for entry in entries:
        scores: list[Score] = []
        for scenario, measured in entry.measured.items():
            before = None if entry is base else base.measured[scenario]
            scores += _scores(scenario, measured, before, groups[scenario], least)
        seconds = {name: float(each.seconds.mean()) for name, each in entry.measured.items()}
        named = (entry.method, entry.setting, entry.strength, entry.about)
        rows.append(MethodRow(*named, tuple(scores), entry.distance, seconds))
    return _corrected(rows)


def _corrected(rows: Sequence[MethodRow]) -> tuple[MethodRow, ...]:
    """Return rows whose probabilities are corrected for how many settings were tested."""
    corrected: dict[tuple[int, str, str], float] = {}
    for name in dict.fromkeys((each.scenario, each.name) for row in rows for each in row.scores):
        at, p = [], []
        for number, row in enumerate(rows):
            found = row.score(*name)
            if found is not None and found.change is not None:
                at.append(number)
                p.append(found.change.p)
        for number, value in zip(at, holm(p).tolist(), strict=True):
            corrected[(number, *name)] = value

    def scores(number: int, row: MethodRow) -> Iterator[Score]:
        for each in row.scores:
            change = each.change
            if change is not None:
                change = replace(change, p_holm=corrected[(number, each.scenario, each.name)])
            yield replace(each, change=change)

    return tuple(replace(row, scores=tuple(scores(at, row))) for at, row in enumerate(rows))


def _scores(
    scenario: str, measured: Measurements, before: Measurements | None, groups: Int64, least: float
) -> list[Score]:
    values = by_prompt(measured)
    base = None if before is None else by_prompt(before)
    scores = []
    for name, column in values.items():
        # of prompts that have none, and where a model is missing, there is nothing
        rows = np.flatnonzero(np.isfinite(column))
        if len(rows):
            own = None if base is None else base[name][rows]
            most = SCORES[name].most
            ends = (least if name in SIMILARITIES else SCORES[name].least, most)
            scores.append(_mean(scenario, name, column[rows], own, groups[rows], ends))
    if np.isfinite(measured.aesthetic).all():
        before_table = None if before is None else before.aesthetic
        scores += _deviations(scenario, measured.aesthetic, before_table, groups)
    return scores


def _deviations(
    scenario: str, table: Float64, before: Float64 | None, groups: Int64
) -> Iterator[Score]:
    prompts, images = table.shape
    # squares are summed around what both have nearly in common, or they would swallow the spread
    centre = float(table.mean() if before is None else before.mean())
    kinds: list[tuple[str, Callable[[Float64], Deviation]]] = []
    if table.size > 1:
        kinds.append(("images", lambda rows: whole_deviation(rows, centre)))
    if prompts > 1:
        kinds.append(("prompts", lambda rows: whole_deviation(rows.mean(1, keepdims=True), centre)))
    if images > 1:
        kinds.append(("within", inner_deviation))
    for name, made in kinds:
        found = made(table)
        change = None
        if before is not None:
            base = made(before)
            p = swap_test(base.parts, found.parts, groups, found.number)
            moved = deviation_change(base, found, groups)
            change = Change(moved.value, moved.low, moved.high, p, p)
        interval = deviation_interval(found, groups)
        yield Score(scenario, f"aesthetic_std_{name}", interval, change)


def by_prompt(measured: Measurements) -> dict[str, Float64]:
    """Return the numbers that are means over prompts, each (prompts,); NaN where there is none."""
    found = {}
    similarity = measured.similarity
    known = np.isfinite(similarity).all(1)
    if known.any():
        own = copying(similarity[known])
        for name, column in (("top1", own.top1), ("top3", own.top3), ("share", own.share)):
            found[name] = np.full(len(similarity), np.nan)
            found[name][known] = column
    found["clip"] = measured.clip.mean(1)
    found["aesthetic"] = measured.aesthetic.mean(1)
    return found


def _mean(
    scenario: str,
    name: str,
    values: Float64,
    before: Float64 | None,
    groups: Int64,
    ends: tuple[float, float],
) -> Score:
    """Return the mean over prompts, and its change; intervals end where the number does."""
    change, (least, most) = None, ends
    if before is not None:
        ones = np.ones(len(values))
        p = swap_test(
            np.column_stack([ones, before]), np.column_stack([ones, values]), groups, mean_of_parts
        )
        moved = mean_interval(values - before, groups)
        moved = bounded(moved, least - most, most - least)
        change = Change(moved.value, moved.low, moved.high, p, p)
    interval = bounded(group_interval(values, groups), least, most)
    return Score(scenario, name, interval, change)


def curves_of(entries: Sequence[Entry], groups: Int64) -> tuple[Curve, ...]:
    """Return what each method's settings cover together, against alignment and aesthetic score."""
    tables = [by_prompt(each.measured[TRIGGER]) for each in entries]
    known = np.isfinite(tables[0].get("top1", np.full(len(groups), np.nan)))
    curves = []
    lines = [Line(each.method, variant_of(each.setting)) for each in entries]
    for line in dict.fromkeys(lines[1:]):
        own = [0, *(at for at, each in enumerate(lines) if at and each == line)]
        for name in ("clip", "aesthetic"):
            if not known.any() or not np.isfinite(tables[0][name][known]).all():
                continue
            columns = [tables[at][what][known] for at in own for what in ("top1", name)]
            found = group_interval(np.column_stack(columns), groups[known], _covered)
            # without a base above 0 there is nothing to have a share of
            if np.isfinite(found.value):
                curves.append(Curve(line, name, bounded(found, 0.0), len(own) - 1))
    return tuple(curves)


def _covered(rows: Float64) -> float:
    """Return the covered share from rows of (similarity, number) pairs, that of none first."""
    means = rows.mean(0)
    return share_of_ideal(means[2::2], means[3::2], (float(means[0]), float(means[1])))
