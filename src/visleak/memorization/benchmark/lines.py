"""The rows of ``benchmark.csv`` and ``costs.csv``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from visleak.memorization.benchmark.headline import is_sscd
from visleak.memorization.benchmark.paper import REFERENCE, Printed
from visleak.memorization.benchmark.records import TRIGGER, Benchmark, MethodRow, Score
from visleak.memorization.benchmark.tables import frechet_of_paper, paper_beside, paper_of
from visleak.store import csv_value

#: One line a method, setting, scenario and number.
LINES: Final = (
    *("method", "setting", "strength", "scenario", "number", "value", "low", "high", "prompts"),
    *("groups", "effective", "change", "change_low", "change_high", "p", "p_holm", "paper"),
    "judge",
)
#: Numbers that are made of similarities: the paper's are of SSCD and stand beside no other.
COPYING: Final = ("top1", "top3", "share")

COSTS: Final = ("method", "setting", "scenario", "seconds_an_image")


def lines_of(result: Benchmark) -> Iterator[list[str]]:
    """Yield the rows of ``benchmark.csv``."""
    for row in result.rows:
        printed = paper_beside(result, row)
        for score in row.scores:
            yield _line(result, row, score, printed)
        yield from _distances(result, row)
    yield from _floor(result)
    found = result.reference
    if found is not None:
        paper = paper_of(result)
        printed = None if paper is None else paper.row(REFERENCE)
        for name, held in (("top1", found.similarity), ("clip", found.clip)):
            own = (REFERENCE, found.source, math.nan, TRIGGER, name)
            values = (held.value, held.low, held.high, held.prompts, held.groups, held.effective)
            known = _number(result, printed, (TRIGGER, name))
            line = (*own, *values, *(math.nan,) * 5, known, judge_of(result, name))
            yield [csv_value(each) for each in line]


def _floor(result: Benchmark) -> Iterator[list[str]]:
    floor = result.floor
    if floor is None:
        return
    for name in COPYING:
        held = floor.score(TRIGGER, name)
        if held is not None:
            own = ("floor", floor.source, math.nan, TRIGGER, name)
            values = (held.value, held.low, held.high, held.prompts, held.groups, held.effective)
            line = (*own, *values, *(math.nan,) * 6, judge_of(result, name))
            yield [csv_value(each) for each in line]


def judge_of(result: Benchmark, number: str) -> str:
    """Return what a number was measured by, as it is named."""
    kinds = {"clip": "alignment", "frechet_distance": "real", "kernel_distance": "real"}
    kind = "aesthetic" if number.startswith("aesthetic") else kinds.get(number, "similarity")
    judge = result.about[kind] or {}
    return str(judge.get("features" if kind == "real" else "name", ""))


def _line(result: Benchmark, row: MethodRow, score: Score, printed: Printed | None) -> list[str]:
    found, change = score.interval, score.change
    moved = (math.nan,) * 5
    if change is not None:
        moved = (change.value, change.low, change.high, change.p, change.p_holm)
    values = (
        *(row.method, row.setting, row.strength, score.scenario, score.name),
        *(found.value, found.low, found.high, found.prompts, found.groups, found.effective),
        *moved,
        _number(result, printed, (score.scenario, score.name)),
        judge_of(result, score.name),
    )
    return [csv_value(value) for value in values]


def _number(result: Benchmark, printed: Printed | None, at: tuple[str, str]) -> float:
    """Return the paper's number of the same kind; NaN where it has none, or by another judge."""
    if printed is None or (at[1] in COPYING and not is_sscd(result)):
        return math.nan
    value = printed.values.get(at)
    return math.nan if value is None else value


def _distances(result: Benchmark, row: MethodRow) -> Iterator[list[str]]:
    found = row.distance
    if found is None:
        return
    frechet = frechet_of_paper(result).get(row.method, math.nan)
    lost = (math.nan, math.nan)
    for name, value, ends, printed in (
        ("frechet_distance", found.frechet, lost, frechet),
        ("kernel_distance", found.kernel, (found.kernel_low, found.kernel_high), math.nan),
    ):
        own = (row.method, row.setting, row.strength, TRIGGER, name)
        values = (*own, value, *ends, *(math.nan,) * 8)
        yield [csv_value(each) for each in (*values, printed, judge_of(result, name))]


def cost_lines(result: Benchmark) -> Iterator[list[str]]:
    """Yield the rows of ``costs.csv``, which alone differ from one run to another."""
    for row in result.rows:
        for scenario, seconds in row.seconds.items():
            values = (row.method, row.setting, scenario, seconds)
            yield [csv_value(value) for value in values]
