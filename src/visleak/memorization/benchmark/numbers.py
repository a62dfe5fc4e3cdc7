"""From measurements of images to rows of the tables, with intervals and paired tests.

Similarity to the memorized images is to fall, alignment or quality to stay up. A setting covers
the rectangle between itself and a reference point (base similarity, 0); the hypervolume is the
area that all settings of a method cover together (Zitzler & Thiele 1998, "Multiobjective
optimization using evolutionary algorithms"). A setting that another one beats in both adds
nothing, and no curve is drawn between settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.memorization.benchmark.columns import SCORES
from visleak.memorization.benchmark.paired import (
    Deviation,
    bounded,
    deviation_change,
    deviation_interval,
    inner_deviation,
    mean_interval,
    mean_of_parts,
    swap_test,
    whole_deviation,
)
from visleak.memorization.benchmark.records import (
    TRIGGER,
    Change,
    Curve,
    Distance,
    Line,
    MethodRow,
    Score,
    variant_of,
)
from visleak.memorization.intervals import GroupInterval, group_interval
from visleak.memorization.metrics.copying import copying
from visleak.stats.multiple import holm


def hypervolume(
    falling: npt.ArrayLike, rising: npt.ArrayLike, reference: tuple[float, float]
) -> float:
    """Return the area covered by points of which one number is to fall and one to rise, exactly.

    Args:
        falling: (n,): smaller is better, such as similarity.
        rising: (n,): larger is better, such as alignment.
        reference: the worst corner: points that are not better than it in both cover nothing.

    Returns:
        0 or more; 0 of no points.

    Raises:
        UsageError: columns of different lengths, or a value is not a finite number.

    >>> hypervolume([0.5, 0.25], [1.0, 0.5], (1.0, 0.0))
    0.625
    """
    low, high = np.asarray(falling, np.float64), np.asarray(rising, np.float64)
    if low.ndim != 1 or low.shape != high.shape:
        raise UsageError(
            f"falling and rising are columns of one length; got {low.shape} and {high.shape}"
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(reference).all()):
        raise UsageError("a hypervolume is of finite numbers; leave out settings without one")
    area, floor = 0.0, reference[1]
    # from the best falling number on: what a point adds lies above all points before it
    for row in np.lexsort((-high, low)):
        wide = reference[0] - low[row]
        if wide > 0 and high[row] > floor:
            area += wide * (high[row] - floor)
            floor = high[row]
    return float(area)


def share_of_ideal(
    falling: npt.ArrayLike, rising: npt.ArrayLike, base: tuple[float, float]
) -> float:
    """Return the hypervolume by that of an ideal method: similarity 0 at the base's alignment.

    The reference point is (base similarity, 0), so that this compares over models and scores. It
    may pass 1 where a method raises alignment above the base's.

    Args:
        falling, rising: (n,): of the settings of one method.
        base: the same two numbers without mitigation.

    Returns:
        0 for a method that lowers nothing; NaN where the base has no similarity or no alignment
        above 0 to speak of.

    >>> share_of_ideal([0.25], [0.3], (0.5, 0.3)), share_of_ideal([0.6], [0.3], (0.5, 0.3))
    (0.5, 0.0)
    """
    ideal = base[0] * base[1]
    if not (base[0] > 0 and base[1] > 0):
        return math.nan
    return hypervolume(falling, rising, (base[0], 0.0)) / ideal


#: Numbers whose lowest value is that of the similarity.
SIMILARITIES: Final = frozenset({"top1", "top3"})

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """What was measured of the images of one method in one scenario, (prompts, images) each.

    Attributes:
        similarity: to the memorized images; NaN of prompts that have none at hand.
        clip, aesthetic: NaN where there is no such model.
        seconds: that an image took to make.
        digests: of the images.
    """

    similarity: Float64
    clip: Float64
    aesthetic: Float64
    seconds: Float64
    digests: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Entry:
    """A method with all that was measured of it.

    Attributes:
        method, setting, strength, about: as in ``Mitigation``.
        measured: by scenario.
        distance: of its trigger images to real ones.
    """

    method: str
    setting: str
    strength: float
    about: dict[str, Any]
    measured: Mapping[str, Measured]
    distance: Distance | None = None


def rows_of(
    entries: Sequence[Entry], groups: Mapping[str, Int64], least: float = -1.0
) -> tuple[MethodRow, ...]:
    """Return a row per method; the first entry is none, which the others are compared with.

    Args:
        entries: all of the same prompts and noises.
        groups: of the prompts, by scenario.
        least: similarity that there can be.
    """
    base = entries[0]
    rows = []
    for entry in entries:
        scores: list[Score] = []
        for scenario, measured in entry.measured.items():
            before = None if entry is base else base.measured[scenario]
            scores += _scores(scenario, measured, before, groups[scenario], least)
        seconds = {name: float(each.seconds.mean()) for name, each in entry.measured.items()}
        rows.append(
            MethodRow(
                method=entry.method,
                setting=entry.setting,
                strength=entry.strength,
                about=entry.about,
                scores=tuple(scores),
                distance=entry.distance,
                seconds=seconds,
            )
        )
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
    made = []
    for number, row in enumerate(rows):
        scores = tuple(
            each
            if each.change is None
            else replace(
                each,
                change=replace(each.change, p_holm=corrected[(number, each.scenario, each.name)]),
            )
            for each in row.scores
        )
        made.append(replace(row, scores=scores))
    return tuple(made)


def _scores(
    scenario: str, measured: Measured, before: Measured | None, groups: Int64, least: float
) -> list[Score]:
    """Return every number of a scenario that can be had."""
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
    """Yield the deviations of the aesthetic score that can be had, and their changes."""
    prompts, images = table.shape
    # squares are summed around what both have nearly in common, or they would swallow the spread
    centre = float(table.mean() if before is None else before.mean())
    kinds: list[tuple[str, Callable[[Float64], Deviation]]] = []
    if table.size > 1:
        kinds.append(("images", lambda rows: whole_deviation(rows, centre)))
    if prompts > 1:
        kinds.append(("prompts", lambda rows: whole_deviation(_means(rows), centre)))
    if images > 1:
        kinds.append(("within", inner_deviation))
    for name, made in kinds:
        found = made(table)
        change = None
        if before is not None:
            base = made(before)
            p = swap_test(base.parts, found.parts, groups, found.number)
            change = _changed(deviation_change(base, found, groups), p)
        interval = deviation_interval(found, groups)
        yield Score(scenario, f"aesthetic_std_{name}", interval, change)


def _means(table: Float64) -> Float64:
    return np.asarray(table.mean(1, keepdims=True))


def by_prompt(measured: Measured) -> dict[str, Float64]:
    """Return the numbers that are means over prompts, each (prompts,); NaN where there is none."""
    found = {}
    alike = measured.similarity
    known = np.isfinite(alike).all(1)
    if known.any():
        own = copying(alike[known])
        for name, column in (("top1", own.top1), ("top3", own.top3), ("share", own.share)):
            found[name] = np.full(len(alike), np.nan)
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
        change = _changed(bounded(moved, least - most, most - least), p)
    interval = bounded(group_interval(values, groups), least, most)
    return Score(scenario, name, interval, change)


def _changed(found: GroupInterval, p: float) -> Change:
    return Change(found.value, found.low, found.high, p, p)


def curves_of(entries: Sequence[Entry], groups: Int64) -> tuple[Curve, ...]:
    """Return what each method's settings cover together, against alignment and aesthetic score.

    Args:
        entries: none first.
        groups: of the trigger prompts.
    """
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
