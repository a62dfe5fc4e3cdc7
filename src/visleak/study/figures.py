"""The study's figures: matrices of references and benchmarks, and bars a benchmark.

Layout after figures 3 and 4 of Ramos et al. 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from visleak.drawing import as_text, cut, figure_of, saved
from visleak.stats import Rate, percent
from visleak.study.paper import shown
from visleak.study.results import Result, Union

#: Panels of a matrix: rate, title, map of colours.
DEGREES: Final = (
    ("hard", "Hard leaks, %", "Reds"),
    ("soft", "Soft leaks, %", "Blues"),
    ("hard_or_soft", "Hard or soft, %", "Purples"),
)
GRADES: Final = (
    ("exact", "Exact, %", "Reds"),
    ("near", "Near, %", "Oranges"),
    ("near_or_exact", "Near or exact, %", "Purples"),
)

#: Two parts of a bar: rate, name, colour. Told apart by lightness and hatching too.
BARS: Final = (("hard", "hard", "#b3261e", ""), ("soft", "soft", "#7fb0e0", "///"))

INK: Final = "#1d2127"
QUIET: Final = "#5b636d"
EMPTY: Final = "#f3f4f6"

#: Inches: width of a cell, and of a letter of a name.
CELL: Final = 0.6
LETTER: Final = 0.085

#: Names are cut to this many characters in figures; tables have them whole.
LONGEST: Final = 26

Panel = tuple[str, str, str]


def matrix(result: Result, panels: Sequence[Panel], name: str) -> dict[str, bytes]:
    """Return the matrices of some rates beside each other; nothing where there are no cells.

    Args:
        result: what was found.
        panels: rate, title and colours of each matrix, left to right.
        name: of the figure.
    """
    rows, columns = result.rows, result.columns
    if not rows or not columns:
        return {}
    wide, high = max(CELL * len(columns), 1.9), 0.5 * len(rows)
    side = LETTER * max(len(_name(row)) for row in rows) + 0.25
    slanted = _slanted(columns, wide)
    longest = max(len(_name(column)) for column in columns)
    top = (0.7 if _has_published(result, [panel[0] for panel in panels]) else 0.5) + (
        0.62 * LETTER * longest if slanted else 0.12
    )
    # the last slanted name leans out of its panel
    gap = max(0.3, 0.5 * LETTER * len(_name(columns[-1]))) if slanted else 0.3
    width, height = side + len(panels) * (wide + gap), top + high + 0.12
    with figure_of((width, height)) as figure:
        for number, panel in enumerate(panels):
            left = side + number * (wide + gap)
            box = (left / width, 0.12 / height, wide / width, high / height)
            _panel(figure.add_axes(box), result, panel, names=number == 0, slanted=slanted)
        return saved(figure, name)


def _slanted(columns: Sequence[str], wide: float) -> bool:
    """Whether names do not fit over columns that share a width in inches."""
    return max(len(_name(column)) for column in columns) * LETTER > 0.95 * wide / len(columns)


def _panel(axes: Any, result: Result, panel: Panel, *, names: bool, slanted: bool) -> None:
    """Draw one matrix: the deeper the higher, every cell with its number."""
    rate, title, colours = panel
    rows, columns = result.rows, result.columns
    shares = np.full((len(rows), len(columns)), np.nan)
    for y, reference in enumerate(rows):
        for x, query in enumerate(columns):
            cell = result.cell(query, reference)
            found = cell.rates[rate] if cell is not None else None
            if found is not None and found.total:
                shares[y, x] = found.share
    peak = float(np.nanmax(shares)) if np.isfinite(shares).any() else 0.0
    axes.set_facecolor(EMPTY)
    # the palest tenth stays unused, so that nothing looks like no comparison
    painted = 0.08 + 0.82 * (shares / peak if peak else np.where(np.isnan(shares), np.nan, 0.0))
    axes.imshow(painted, cmap=colours, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    for y, reference in enumerate(rows):
        for x, query in enumerate(columns):
            cell = result.cell(query, reference)
            published = shown(cell.paper.get(rate)) if cell is not None else ""
            _number(axes, x, y, float(shares[y, x]), float(painted[y, x]), published)
    axes.xaxis.tick_top()
    lean: dict[str, Any] = {"rotation": 38, "ha": "left", "rotation_mode": "anchor"}
    axes.set_xticks(
        range(len(columns)), [_name(column) for column in columns], fontsize=9,
        **(lean if slanted else {}),
    )  # fmt: skip
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows] if names else [], fontsize=9)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(-0.5, len(columns)), minor=True)
    axes.set_yticks(np.arange(-0.5, len(rows)), minor=True)
    axes.grid(which="minor", color="white", linewidth=2.5)
    axes.tick_params(which="minor", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _title(axes, title, 12, -8, weight="bold", color=INK)
    if names and _has_published(result, [rate]):
        _title(axes, "in brackets: published", 8.5, -25, color=QUIET)


def _title(axes: Any, words: str, size: float, down: float, **look: Any) -> None:
    """Write a line over a matrix, so many points below the figure's upper edge."""
    axes.annotate(
        words, (0, 1), xycoords=("axes fraction", "figure fraction"), xytext=(0, down),
        textcoords="offset points", va="top", fontsize=size, **look,
    )  # fmt: skip


def _has_published(result: Result, rates: Sequence[str]) -> bool:
    """Whether any cell of the matrix has a published value of some rates."""
    cells = (result.cell(query, row) for row in result.rows for query in result.columns)
    return any(shown(cell.paper.get(rate)) for cell in cells if cell for rate in rates)


def _number(axes: Any, x: int, y: int, share: float, depth: float, published: str) -> None:
    """Write a cell's share, and what is published of it underneath."""
    ink = "white" if depth > 0.58 else INK
    if np.isnan(share):
        axes.text(x, y, "–", ha="center", va="center", fontsize=9, color=QUIET)
        return
    lift = 0.13 if published else 0.0
    axes.text(x, y - lift, percent(share), ha="center", va="center", fontsize=9.5, color=ink)
    if published:
        axes.text(x, y + 0.24, f"({published})", ha="center", va="center", fontsize=7, color=ink)


def _name(name: str) -> str:
    return as_text(cut(name, LONGEST))


def bars(unions: Sequence[Union], title: str, name: str) -> dict[str, bytes]:
    """Return one bar a benchmark, hard and soft stacked, with the interval of their sum.

    Args:
        unions: from top to bottom; those without degrees are left out.
        title: what the bars are.
        name: of the figure.
    """
    drawn = [union for union in unions if (rate := union.rates["hard_or_soft"]) and rate.total]
    if not drawn:
        return {}
    height = 1.15 + 0.46 * len(drawn)
    side = 0.09 * max(len(_name(union.query)) for union in drawn) + 0.3
    width = side + 6.7
    with figure_of((width, height)) as figure:
        axes = figure.add_axes((side / width, 0.5 / height, 4.7 / width, 1 - 1.15 / height))
        for y, union in enumerate(drawn):
            _bar(axes, y, union)
        reach = max(_reach(union) for union in drawn)
        axes.set_xlim(0, max(1.06 * reach, 0.1))
        axes.set_ylim(len(drawn) - 0.4, -0.6)
        axes.set_yticks(range(len(drawn)), [_name(union.query) for union in drawn])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_xlabel("images that leak, %; the line is the 95 % interval of the sum")
        figure.text(0.02, 1 - 0.1 / height, title, va="top", fontweight="bold", fontsize=12)
        _legend(axes, published=any(union.paper for union in drawn))
        return saved(figure, name)


def _bar(axes: Any, y: int, union: Union) -> None:
    """Draw a benchmark's bar, its interval, its numbers, and what is published of it."""
    start = 0.0
    for rate, _, colour, hatch in BARS:
        length = 100 * _known(union.rates[rate]).share
        axes.barh(y, length, 0.56, left=start, color=colour, hatch=hatch, edgecolor="white", lw=0.5)
        start += length
    total = _known(union.rates["hard_or_soft"])
    axes.plot([100 * total.low, 100 * total.high], [y, y], color=INK, lw=1.4, zorder=3)
    for published in _published(union):
        axes.plot(published, y, marker="D", ms=6, mfc="white", mec=INK, mew=1.3, zorder=4)
    hard, soft = (percent(_known(union.rates[rate]).share) for rate in ("hard", "soft"))
    axes.annotate(
        f"{hard} + {soft} = {percent(total.share)} %", (1, y),
        xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
        va="center", fontsize=9, color=INK, annotation_clip=False,
    )  # fmt: skip


def _known(rate: Rate | None) -> Rate:
    return rate if rate is not None else Rate.of(0, 1)


def _published(union: Union) -> list[float]:
    value = union.paper.get("hard_or_soft")
    return [value] if isinstance(value, float) else []


def _reach(union: Union) -> float:
    return max(100 * _known(union.rates["hard_or_soft"]).high, *_published(union), 0.0)


def _legend(axes: Any, *, published: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name)
        for _, name, colour, hatch in BARS
    ]
    if published:
        handles.append(
            Line2D(
                [],
                [],
                marker="D",
                ms=6,
                mfc="white",
                mec=INK,
                mew=1.3,
                ls="",
                label="published sum",
            )
        )
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, fontsize=9,
        borderaxespad=0.1, handlelength=1.4, columnspacing=1.2,
    )  # fmt: skip
