r"""A benchmark as LaTeX: the paper's tables, with intervals as small digits beside each number.

The ends of an interval stand below and above on the right, so that nine columns fit the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from visleak.markup import latex_cell, latex_table, paged
from visleak.memorization.benchmark.columns import SCORES
from visleak.memorization.benchmark.headline import headline, name_of, number, short
from visleak.memorization.benchmark.markup import about, cautions
from visleak.memorization.benchmark.paper import REFERENCE, PaperTable, Printed
from visleak.memorization.benchmark.records import (
    GENERAL,
    NONE,
    TRIGGER,
    Benchmark,
    MethodRow,
    Score,
)
from visleak.memorization.benchmark.tables import (
    FLOORS,
    change_grid,
    columns_of,
    cost_grid,
    curve_grid,
    distance_grid,
    is_changed,
    paper_beside,
    paper_of,
    printed_cell,
)

#: Rows that a page has room for.
PAGE: Final = 48

_ARROWS: Final = {True: r"$\uparrow$", False: r"$\downarrow$"}


def latex(result: Benchmark) -> str:
    """Return ``benchmark.tex``: the tables, to be included in a document."""
    lines = [r"% needs \usepackage{booktabs}", f"% {latex_cell(headline(result))}", ""]
    lines += _main(result)
    # a table is copied out of its page: each says what similarities it is made of
    by = f" (similarity: {result.about['similarity']['name']})"
    for make in (curve_grid, distance_grid, change_grid, cost_grid):
        grid = make(result)
        named = replace(grid, title=grid.title + by) if make in (curve_grid, change_grid) else grid
        for part in paged(named, PAGE):
            lines += ["", *latex_table(part)] if part.rows else []
    return "\n".join(lines) + "\n"


def _main(result: Benchmark) -> list[str]:
    """Return the table of methods and settings, in the layout of table 3."""
    shown = columns_of(result)
    paper = paper_of(result)
    caption = ". ".join(
        f"{line[:1].upper()}{line[1:]}" for line in (*about(result), *cautions(result))
    )
    return [
        r"\begin{table*}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3.5pt}\renewcommand{\arraystretch}{1.35}",
        rf"\caption{{Mitigations. {latex_cell(caption)}. Small digits: 95\,\% intervals; *:"
        r" changed, by a paired test corrected for the number of settings.}",
        r"\makebox[\textwidth][c]{%",
        rf"\begin{{tabular}}{{ll{'r' * len(shown)}}}",
        r"\toprule",
        *_heads(shown),
        r"\midrule",
        *_body(result, shown, paper),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table*}",
    ]


def _heads(shown: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the headings: scenarios over numbers."""
    spans, rules, at = [], [], 3
    for scenario, words in ((TRIGGER, "trigger prompts"), (GENERAL, "general prompts")):
        wide = sum(each[0] == scenario for each in shown)
        if wide:
            spans.append(rf"\multicolumn{{{wide}}}{{c}}{{{words}}}")
            rules.append(rf"\cmidrule(lr){{{at}-{at + wide - 1}}}")
            at += wide
    yield " & ".join(["", "", *spans]) + r" \\"
    yield "".join(rules)
    names = [
        rf"{latex_cell(SCORES[name].short)}\,{_ARROWS[SCORES[name].rising]}" for _, name in shown
    ]
    yield " & ".join(["method", "setting", *names]) + r" \\"


def _body(
    result: Benchmark, shown: list[tuple[str, str]], paper: PaperTable | None
) -> Iterator[str]:
    before = NONE
    for row in result.rows:
        if row.method != before:
            yield r"\addlinespace"
        yield _line(row, shown, "" if row.method == before != NONE else name_of(row.method))
        before = row.method
        printed = paper_beside(result, row)
        if printed is not None:
            yield _paper_line(printed, shown, "")
        if row.method == NONE:
            yield from _floor(result, shown)
            yield from _reference(result, paper, shown)


def _line(row: MethodRow, shown: list[tuple[str, str]], name: str) -> str:
    cells = [_number(row.score(*each)) for each in shown]
    return " & ".join([latex_cell(name), latex_cell(row.setting), *cells]) + r" \\"


def _number(score: Score | None) -> str:
    r"""Return a number with the ends of its interval below and above."""
    if score is None:
        return "--"
    places, found = SCORES[score.name].places, score.interval
    star = r"\rlap{*}" if is_changed(score) else ""
    value = number(found.value, places)
    if math.isnan(found.low):
        return f"${value}${star}"
    low, high = number(found.low, places), number(found.high, places)
    return rf"${value}{{}}_{{\,{low}}}^{{\,{high}}}${star}"


def _paper_line(printed: Printed, shown: list[tuple[str, str]], name: str) -> str:
    cells = (printed_cell(printed, each) for each in shown)
    told = [rf"\textit{{{latex_cell(each)}}}" if each else "" for each in cells]
    return " & ".join([name, r"\textit{paper}", *told]) + r" \\"


def _floor(result: Benchmark, shown: list[tuple[str, str]]) -> Iterator[str]:
    if result.floor is not None:
        held = [result.floor.score(*each) for each in shown]
        cells = [
            "" if each is None else _number(Score(*at, each, None))
            for at, each in zip(shown, held, strict=True)
        ]
        yield " & ".join(["floor", latex_cell(FLOORS[result.floor.source]), *cells]) + r" \\"


def _reference(
    result: Benchmark, paper: PaperTable | None, shown: list[tuple[str, str]]
) -> Iterator[str]:
    found = result.reference
    if found is not None:
        known = {(TRIGGER, "top1"): found.similarity, (TRIGGER, "clip"): found.clip}
        held = [known.get(each) for each in shown]
        cells = [
            "" if each is None else _number(Score(*at, each, None))
            for at, each in zip(shown, held, strict=True)
        ]
        yield " & ".join(["reference", latex_cell(short(found.source)), *cells]) + r" \\"
    printed = None if paper is None else paper.row(REFERENCE)
    if printed is not None:
        yield _paper_line(printed, shown, "" if found is not None else "reference")
