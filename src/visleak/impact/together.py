"""Several audits side by side: models by rows, data sets by columns, as the papers print them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import visleak
from visleak.documents import as_plain
from visleak.impact.contrasts import least
from visleak.impact.headline import comparison, first_effects, headlines, principal
from visleak.impact.markup import about
from visleak.impact.numbers import UNKNOWN, interval, score, signed
from visleak.impact.output import write
from visleak.impact.results import Effect, Impact
from visleak.impact.stored import RESULT
from visleak.impact.tables import parts
from visleak.markup import Grid, latex_cell, latex_table, markdown_cell, markdown_table
from visleak.storage import write_json, write_text

SCHEMA: Final = 1
KIND: Final = "visleak impact of several audits"

#: What is said of probabilities of several audits.
CORRECTED: Final = "Holm's correction is over the models, metrics and leaks of each audit alone"


def together_headlines(results: Mapping[str, Impact]) -> list[str]:
    """Return what is said of each audit, behind its name; files in doubt come first."""
    every = [(name, line) for name, result in results.items() for line in headlines(result)]
    return [
        f"{name}: {line}"
        for name, line in sorted(every, key=lambda each: not each[1].startswith("warning:"))
    ]


def together_grids(results: Mapping[str, Impact]) -> list[Grid]:
    """Return the tables of several audits, a group of columns for each.

    Models are rows, by their names: one that has answers for some audits only has no numbers for
    the others.
    """
    found = [_fair(results), _gaps(results), _parts(results)]
    return [grid for grid in found if grid.rows]


def _models(results: Mapping[str, Impact]) -> list[str]:
    return list(dict.fromkeys(model for result in results.values() for model in result.models))


def _effect(result: Impact, model: str) -> Effect | None:
    """Return a model's effect in the first metric that it has."""
    return next((each for each in first_effects(result) if each.model == model), None)


def _fair(results: Mapping[str, Impact]) -> Grid:
    """Return scores on all images and on those that do not leak, model by model."""
    header = ["model"]
    for name in results:
        header += [f"{name}: all", "fair", "fair - all", "95 % CI"]
    rows = []
    for model in _models(results):
        cells = [model]
        for result in results.values():
            cells += _fair_cells(result, _effect(result, model))
        rows.append(cells)
    said = ", ".join(
        f"{name}: {_metric(result)}, {principal(result)}" for name, result in results.items()
    )
    return Grid(
        "Scores of all images, and of those that do not leak with classes weighted as in the whole"
        f" ({said})",
        header,
        rows,
    )


def _metric(result: Impact) -> str:
    effects = first_effects(result)
    return effects[0].metric + " %" * effects[0].percent if effects else UNKNOWN


def _fair_cells(result: Impact, effect: Effect | None) -> list[str]:
    each = None if effect is None else comparison(effect, principal(result))
    if effect is None or each is None:
        return [UNKNOWN] * 4
    percent = effect.percent
    whole = effect.original.score.value
    return [
        score(whole, percent=percent),
        score(each.fair.value, percent=percent),
        signed(each.fair.value - whole, percent=percent),
        interval(each.fair, percent=percent),
    ]


def _gaps(results: Mapping[str, Impact]) -> Grid:
    """Return errors on test sets and fair ones, as table 2 of Barz & Denzler; the best in bold."""
    own = {name: result for name, result in results.items() if result.gaps}
    header = ["model"]
    columns: list[list[float]] = []
    for name, result in own.items():
        header += [f"{name}: error %", "fair %", "gap", "relative gap %"]
        first = {gap.model: gap for gap in reversed(result.gaps)}
        found = [first.get(model) for model in _models(own)]
        columns += [
            [math.nan if gap is None else gap.original.value for gap in found],
            [math.nan if gap is None else gap.fair.value for gap in found],
            [math.nan if gap is None else gap.gap.value for gap in found],
            [math.nan if gap is None else gap.relative for gap in found],
        ]
    rows = [
        [model, *(score(column[row], percent=True) for column in columns)]
        for row, model in enumerate(_models(own))
    ]
    # one model alone is not the best
    bold = frozenset(
        (row, at)
        for at, column in enumerate(columns, 1)
        for row in least([abs(value) for value in column])
        if len(rows) > 1
    )
    return Grid("Errors on the test sets and on the fair ones", header, rows, bold=bold)


def _parts(results: Mapping[str, Impact]) -> Grid:
    """Return the parts of all test sets, a column of scores for each model of each audit."""
    effects = [
        (name, result, effect)
        for name, result in results.items()
        for effect in first_effects(result)
    ]
    header = ["subset", "leak"]
    for name, result, effect in effects:
        if result.models[0] == effect.model:
            header.append(f"{name}: images")
        header += [f"{name}: {effect.model}{' %' * effect.percent}", "gain"]
    known = dict.fromkeys(part for _, result, effect in effects for part in parts(result, [effect]))
    order = {leak: at for at, leak in enumerate(dict.fromkeys(leak for leak, _ in known))}
    rows = []
    for leak, subset in sorted(known, key=lambda part: order[part[0]]):
        cells = [subset, leak]
        for _, result, effect in effects:
            row = effect.row(leak, subset)
            if result.models[0] == effect.model:
                cells.append(UNKNOWN if row is None else f"{row.images:,}")
            cells.append(UNKNOWN if row is None else score(row.score.value, percent=effect.percent))
            gain = UNKNOWN if row is None else signed(row.gain.value, percent=effect.percent)
            cells.append(gain if leak else "")
        rows.append(cells)
    return Grid("Scores on parts of the test sets", header, rows, texts=2)


def write_together(results: Mapping[str, Impact], folder: str | os.PathLike[str]) -> Path:
    """Write each audit's result into a folder of its name, and all of them side by side.

    Returns:
        The folder.
    """
    path = Path(folder)
    (path / RESULT).unlink(missing_ok=True)
    for name, result in results.items():
        write(result, path / name)
    grids = together_grids(results)
    lines = [f"- {markdown_cell(line)}" for line in together_headlines(results)]
    lines += [f"- {markdown_cell(f'{name}: {about(each)}')}" for name, each in results.items()]
    lines += [f"- {CORRECTED}"]
    for grid in grids:
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    write_text(path / "impact.md", "\n".join(["# Impact of leaked images", "", *lines]) + "\n")
    tex = ["% needs \\usepackage{booktabs}"]
    tex += [f"% {latex_cell(line)}" for line in together_headlines(results)]
    for grid in grids:
        tex += ["", *latex_table(grid)]
    write_text(path / "impact.tex", "\n".join(tex) + "\n")
    write_json(path / RESULT, together_content(results))
    return path


def together_content(results: Mapping[str, Impact]) -> dict[str, Any]:
    """Return the content of ``impact.json`` of several audits."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": "; ".join(together_headlines(results)),
        "audits": {name: as_plain(result) for name, result in results.items()},
    }
