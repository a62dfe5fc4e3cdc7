"""Texts of anybody in Markdown and LaTeX, where they cannot begin markup, and tables of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from visleak.documents import read_entries
from visleak.reporting.drawing import printable
from visleak.storage import write_json

_MARKDOWN: Final = "\\|`*_[]<>$~#&"

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # the straight sign needs a font encoding that not every document has
    '"': "{''}",
    "`": r"\textasciigrave{}",
    "–": "--",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    # at the start of a row they would belong to the end of the row before
    "[": "{[}",
    "*": "{*}",
    # a hyphen before another, which would become a dash
    "\0": "-{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}

#: A hyphen that is a minus sign, as cells of numbers have it.
_MINUS: Final = re.compile(r"(?<![\w.])-(?=\d)")


#: A number, a mark behind it, and the ends of its interval.
_INTERVAL: Final = re.compile(r"([-+]?[\d.,]+)(\*?) \(([-+]?[\d.,]+) to ([-+]?[\d.,]+)\)")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table for people."""

    title: str
    header: list[str]
    rows: list[list[str]]
    texts: int = 1
    bold: frozenset[tuple[int, int]] = frozenset()


def markdown_cell(text: str) -> str:
    r"""Return a text as a cell of a Markdown table.

    >>> print(markdown_cell("a|b<c>"))
    a\|b\<c\>
    """
    return "".join(f"\\{c}" if c in _MARKDOWN else c for c in printable(text, " "))


def latex_cell(text: str) -> str:
    r"""Return a text as a cell of a LaTeX table.

    >>> print(latex_cell("50 % of a_b & \\input{x}"))
    50 \% of a\_b \& \textbackslash{}input\{x\}
    """
    safe = re.sub("-(?=-)", "\0", printable(text, " "))
    return "".join(_LATEX.get(c, c) for c in safe)


def markdown_table(grid: Grid) -> list[str]:
    """Return a table as lines of Markdown: texts to the left, numbers to the right."""
    sides = ["---" if at < grid.texts else "---:" for at in range(len(grid.header))]
    lines = [f"| {' | '.join(map(markdown_cell, grid.header))} |", f"|{'|'.join(sides)}|"]
    for number, row in enumerate(grid.rows):
        cells = [markdown_cell(cell) for cell in row]
        cells = [f"**{c}**" if c and (number, at) in grid.bold else c for at, c in enumerate(cells)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def paged(grid: Grid, longest: int) -> list[Grid]:
    """Return a table in parts of at most so many rows, each with its number in the title.

    >>> [(part.title, part.rows) for part in paged(Grid("t", ["n"], [["1"], ["2"], ["3"]]), 2)]
    [('t (1 of 2)', [['1'], ['2']]), ('t (2 of 2)', [['3']])]
    """
    if len(grid.rows) <= longest:
        return [grid]
    starts = range(0, len(grid.rows), longest)
    return [
        replace(
            grid,
            title=f"{grid.title} ({number} of {len(starts)})",
            rows=grid.rows[start : start + longest],
            bold=frozenset((row - start, column) for row, column in grid.bold),
        )
        for number, start in enumerate(starts, 1)
    ]


def latex_table(grid: Grid, *, intervals: bool = False) -> list[str]:
    """Return a table as lines of LaTeX for booktabs; one wider than the text is centred."""
    body = []
    for number, row in enumerate(grid.rows):
        cells = [
            _latex_value(cell, number=at >= grid.texts, intervals=intervals)
            for at, cell in enumerate(row)
        ]
        bold = {at for at, cell in enumerate(cells) if cell and (number, at) in grid.bold}
        cells = [rf"\textbf{{{c}}}" if at in bold else c for at, c in enumerate(cells)]
        body.append(" & ".join(cells) + r" \\")
    sides = "l" * grid.texts + "r" * (len(grid.header) - grid.texts)
    return [
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3.5pt}",
        rf"\caption{{{latex_cell(grid.title)}}}",
        r"\makebox[\textwidth][c]{%",
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        " & ".join(map(latex_cell, grid.header)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]


def _latex_value(cell: str, *, number: bool, intervals: bool) -> str:
    r"""Return a cell; of a number with an interval, the ends of that below and above.

    >>> print(_latex_value(".64* (.60 to .68)", number=True, intervals=True))
    $.64{}_{\,.60}^{\,.68}$\rlap{*}
    """
    if intervals and (found := _INTERVAL.fullmatch(cell)):
        value, mark, low, high = found.groups()
        return rf"${value}{{}}_{{\,{low}}}^{{\,{high}}}$" + (r"\rlap{*}" if mark else "")
    return _MINUS.sub("$-$", latex_cell(cell)) if number else latex_cell(cell)


# -- leaderboards: a JSON file of entries that results are added to, best first -------------------


Entry: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """A kind of leaderboard."""

    kind: str
    identity: tuple[str, ...]
    place: Callable[[Entry], tuple[object, ...]]  # sorts the entries, the best first
    is_entry: Callable[[object], bool]
    schema: int = 1

    def read(self, path: str | os.PathLike[str]) -> list[Entry]:
        """Return the entries of a file, the best first."""
        entries = read_entries(Path(path), self.kind, self.schema, self.is_entry)
        return sorted(entries, key=self.place)

    def add(self, path: str | os.PathLike[str], new: Iterable[Entry]) -> list[Entry]:
        """Add entries to a file, replacing those of equal identity; return all, best first."""
        file = Path(path)
        others = self.read(file) if file.exists() else []
        entries = {tuple(each[k] for k in self.identity): each for each in (*others, *new)}
        ordered = sorted(entries.values(), key=self.place)
        write_json(file, {"schema": self.schema, "kind": self.kind, "entries": ordered})
        return ordered


def today() -> str:
    """Return today's date in UTC, such as ``2026-01-31``."""
    return datetime.now(UTC).date().isoformat()
