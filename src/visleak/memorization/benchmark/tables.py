"""A benchmark as tables of texts, in the layout of tables 3 to 5 of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from visleak.markup import Grid
from visleak.memorization.benchmark.columns import SCORES, shown_columns
from visleak.memorization.benchmark.headline import (
    LEVEL,
    label_of,
    line_name,
    name_of,
    number,
    p_value,
    short,
    signed,
)
from visleak.memorization.benchmark.paper import REFERENCE, PaperTable, Printed, paper_table
from visleak.memorization.benchmark.records import (
    GENERAL,
    NONE,
    TRIGGER,
    Benchmark,
    MethodRow,
    Score,
)

#: Which way a number is to go.
ARROWS: Final[Mapping[bool, str]] = {True: "↑", False: "↓"}

#: What the floor of a similarity is of.
FLOORS: Final[Mapping[str, str]] = {TRIGGER: "other prompts' images", GENERAL: "general prompts"}

#: Behind a number that a paired test calls changed, and before one that is hard to read in print.
CHANGED: Final = "*"
DOUBTFUL: Final = "?"


def columns_of(result: Benchmark) -> list[tuple[str, str]]:
    """Return scenario and name of the numbers that the tables show: those that were measured."""
    shown = shown_columns(str(result.about["deviation"]))
    return [each for each in shown if any(row.score(*each) is not None for row in result.rows)]


def paper_of(result: Benchmark) -> PaperTable | None:
    """Return the paper's table of the same model; ``None`` where it has none."""
    model: Mapping[str, Any] = result.about["model"]
    return paper_table(model)


def paper_beside(result: Benchmark, row: MethodRow) -> Printed | None:
    """Return the paper's row of the same model, method and setting; ``None`` where it has none."""
    paper = paper_of(result)
    return None if paper is None else paper.beside(row, result.triggers.images)


def main_grid(result: Benchmark) -> Grid:
    """Return the table of methods and settings, with the paper's own rows where it has any.

    A star stands behind what a paired test, corrected for the number of settings, calls changed.
    """
    shown = columns_of(result)
    paper = paper_of(result)
    header = ["method", "setting", *(heading(*each) for each in shown)]
    rows: list[list[str]] = []
    for row in result.rows:
        cells = [cell(row.score(*each)) for each in shown]
        rows.append([name_of(row.method), row.setting, *cells])
        printed = paper_beside(result, row)
        if printed is not None:
            rows.append(["", "paper", *(printed_cell(printed, each) for each in shown)])
        if row.method == NONE:
            rows += [*_floor_rows(result, shown), *_reference_rows(result, paper, shown)]
    return Grid("Mitigations on trigger and general prompts", header, rows, texts=2)


def heading(scenario: str, name: str) -> str:
    """Return the heading of a number, with the way it is to go."""
    column = SCORES[name]
    told = f"{column.short} {ARROWS[column.rising]}"
    return told if scenario == TRIGGER else f"general {told}"


def cell(score: Score | None) -> str:
    """Return a number with its interval and whether it changed."""
    if score is None:
        return "-"
    places = SCORES[score.name].places
    found = score.interval
    star = CHANGED if is_changed(score) else ""
    value = f"{number(found.value, places)}{star}"
    if math.isnan(found.low):
        return value
    return f"{value} ({number(found.low, places)} to {number(found.high, places)})"


def is_changed(score: Score) -> bool:
    """Whether a paired test calls a number changed."""
    return score.change is not None and score.change.p_holm < LEVEL


def printed_cell(printed: Printed, at: tuple[str, str]) -> str:
    """Return a number of the paper; what is lost in print is a question mark."""
    scenario, name = at
    own = "aesthetic_std" if name.startswith("aesthetic_std") else name
    if (scenario, own) not in printed.values:
        return ""
    value = printed.values[(scenario, own)]
    if value is None:
        return DOUBTFUL
    doubt = DOUBTFUL if (scenario, own) in printed.doubtful else ""
    return f"{number(value, SCORES[name].places)}{doubt}"


def _floor_rows(result: Benchmark, shown: list[tuple[str, str]]) -> list[list[str]]:
    """Return the row of the similarity's floor, if it is known."""
    if result.floor is None:
        return []
    return [["floor", FLOORS[result.floor.source], *(floor_cell(result, at) for at in shown)]]


def floor_cell(result: Benchmark, at: tuple[str, str]) -> str:
    """Return a number of the floor with its interval; empty where it has none."""
    found = None if result.floor is None else result.floor.score(*at)
    return "" if found is None else cell(Score(*at, found, None))


def _reference_rows(
    result: Benchmark, paper: PaperTable | None, shown: list[tuple[str, str]]
) -> list[list[str]]:
    """Return the row of the reference performance, and the paper's."""
    rows = []
    found = result.reference
    if found is not None:
        known = {(TRIGGER, "top1"): found.similarity, (TRIGGER, "clip"): found.clip}
        cells = []
        for each in shown:
            held = known.get(each)
            cells.append("" if held is None else cell(Score(*each, held, None)))
        rows.append(["reference", short(found.source), *cells])
    printed = None if paper is None else paper.row(REFERENCE)
    if printed is not None:
        name = "" if found is not None else "reference"
        rows.append([name, "paper", *(printed_cell(printed, each) for each in shown)])
    return rows


def change_grid(result: Benchmark) -> Grid:
    """Return every change against no mitigation, with its interval and probability."""
    shown = columns_of(result)
    rows = []
    for row in result.rows[1:]:
        for scenario, name in shown:
            score = row.score(scenario, name)
            if score is None or score.change is None:
                continue
            change, places = score.change, SCORES[name].places
            ends = f"{signed(change.low, places)} to {signed(change.high, places)}"
            rows.append(
                [
                    *(label_of(row), f"{scenario} {SCORES[name].short}"),
                    signed(change.value, places),
                    "-" if math.isnan(change.low) else ends,
                    _probability(change.p),
                    _probability(change.p_holm),
                ]
            )
    header = ["method", "number", "change", "95 % interval", "p", "p, all settings"]
    return Grid("Changes against no mitigation", header, rows, texts=2)


def _probability(value: float) -> str:
    return p_value(value).removeprefix("p ").removeprefix("= ").replace("is not known", "-")


def curve_grid(result: Benchmark) -> Grid:
    """Return the hypervolumes, the largest of a kind in bold."""
    names = {"clip": "similarity and CLIP", "aesthetic": "similarity and aesthetic score"}
    rows, bold = [], set()
    for at, curve in enumerate(result.curves):
        found = curve.volume
        ends = "-" if math.isnan(found.low) else f"{number(found.low)} to {number(found.high)}"
        own = [line_name(curve.line), names[curve.name], str(curve.settings)]
        rows.append([*own, number(found.value), ends])
        rivals = [each.volume.value for each in result.curves if each.name == curve.name]
        if len(rivals) > 1 and found.value == max(rivals):
            bold.add((at, 3))
    header = ["method", "trade-off", "settings", "hypervolume", "95 % interval"]
    return Grid("Hypervolume of each trade-off", header, rows, texts=2, bold=frozenset(bold))


def distance_grid(result: Benchmark) -> Grid:
    """Return table 4: distances of the trigger prompts' images to a set of real ones."""
    known = frechet_of_paper(result)
    rows = []
    for row in result.rows:
        found = row.distance
        if found is None:
            continue
        ends = f" ({found.kernel_low:.3g} to {found.kernel_high:.3g})"
        ends = "" if math.isnan(found.kernel_low) else ends
        cells = [f"{found.frechet:.2f}", f"{found.kernel:.3g}{ends}", f"{found.images:,}"]
        beside = known.get(row.method)
        rows.append(
            [
                *(label_of(row), *cells),
                *(["-" if beside is None else f"{beside:.2f}"] if known else []),
            ]
        )
    first = "FID ↓" if is_fid(result) else "Fréchet distance ↓"
    header = ["method", first, "kernel distance ↓", "images"]
    header += ["paper: FID"] if known else []
    return Grid("Distance to real images", header, rows)


def is_fid(result: Benchmark) -> bool:
    """Whether the Fréchet distance is of Inception's features: of others it is another number."""
    real = result.about["real"]
    return real is not None and str(real["features"]).startswith("inception")


def frechet_of_paper(result: Benchmark) -> Mapping[str, float]:
    """Return the paper's FID by method; empty where ours is none, or the paper has none."""
    paper = paper_of(result)
    return paper.frechet if paper is not None and is_fid(result) else {}


def cost_grid(result: Benchmark) -> Grid:
    """Return what an image costs in seconds, and by how much that is more than without."""
    rows = []
    scenarios = [TRIGGER, *([GENERAL] if result.general is not None else [])]
    for row in result.rows:
        cells = []
        for scenario in scenarios:
            seconds, base = row.seconds[scenario], result.base.seconds[scenario]
            cells += [f"{seconds:.3g}", "-" if not base else f"{seconds / base:.2f}"]
        rows.append([label_of(row), *cells])
    header = ["method"]
    for scenario in scenarios:
        header += [f"{scenario}: seconds an image", "times the base"]
    return Grid("Cost", header, rows)


def grids(result: Benchmark) -> list[Grid]:
    """Return the tables, the most important first; those with no row are left out."""
    made = (main_grid, curve_grid, distance_grid, change_grid, cost_grid)
    return [grid for grid in (make(result) for make in made) if grid.rows]
