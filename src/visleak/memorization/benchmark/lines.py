"""The rows of ``benchmark.csv`` and ``costs.csv``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from visleak.memorization.benchmark.paper import REFERENCE, PaperTable
from visleak.memorization.benchmark.records import TRIGGER, Benchmark, MethodRow, Score
from visleak.memorization.benchmark.tables import paper_of
from visleak.store import csv_value

#: One line a method, setting, scenario and number.
LINES: Final = (
    *("method", "setting", "strength", "scenario", "number", "value", "low", "high", "prompts"),
    *("groups", "effective", "change", "change_low", "change_high", "p", "p_holm", "paper"),
)
COSTS: Final = ("method", "setting", "scenario", "seconds_an_image")


def lines_of(result: Benchmark) -> Iterator[list[str]]:
    """Yield the rows of ``benchmark.csv``."""
    paper = paper_of(result)
    for row in result.rows:
        for score in row.scores:
            yield _line(row, score, paper)
        yield from _distances(row, paper)
    found = result.reference
    if found is not None:
        printed = None if paper is None else paper.row(REFERENCE)
        for name, held in (("top1", found.similarity), ("clip", found.clip)):
            known = None if printed is None else printed.values.get((TRIGGER, name))
            own = (REFERENCE, found.source, math.nan, TRIGGER, name)
            values = (held.value, held.low, held.high, held.prompts, held.groups, held.effective)
            paper_value = math.nan if known is None else known
            line = (*own, *values, *(math.nan,) * 5, paper_value)
            yield [csv_value(each) for each in line]


def _line(row: MethodRow, score: Score, paper: PaperTable | None) -> list[str]:
    found, change = score.interval, score.change
    moved = (math.nan,) * 5
    if change is not None:
        moved = (change.value, change.low, change.high, change.p, change.p_holm)
    values = (
        *(row.method, row.setting, row.strength, score.scenario, score.name),
        *(found.value, found.low, found.high, found.prompts, found.groups, found.effective),
        *moved,
        _printed(row, score, paper),
    )
    return [csv_value(value) for value in values]


def _printed(row: MethodRow, score: Score, paper: PaperTable | None) -> float:
    """Return the paper's number of the same kind; NaN where it has none."""
    printed = None if paper is None else paper.beside(row)
    if printed is None:
        return math.nan
    value = printed.values.get((score.scenario, score.name))
    return math.nan if value is None else value


def _distances(row: MethodRow, paper: PaperTable | None) -> Iterator[list[str]]:
    found = row.distance
    if found is None:
        return
    frechet = math.nan if paper is None else paper.frechet.get(row.method, math.nan)
    lost = (math.nan, math.nan)
    for name, value, ends, printed in (
        ("frechet_distance", found.frechet, lost, frechet),
        ("kernel_distance", found.kernel, (found.kernel_low, found.kernel_high), math.nan),
    ):
        own = (row.method, row.setting, row.strength, TRIGGER, name)
        values = (*own, value, *ends, *(math.nan,) * 8)
        yield [csv_value(each) for each in (*values, printed)]


def cost_lines(result: Benchmark) -> Iterator[list[str]]:
    """Yield the rows of ``costs.csv``, which alone differ from one run to another."""
    for row in result.rows:
        for scenario, seconds in row.seconds.items():
            values = (row.method, row.setting, scenario, seconds)
            yield [csv_value(value) for value in values]
