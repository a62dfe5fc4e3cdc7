"""The figure of a benchmark: what each method's settings trade similarity for."""

from __future__ import annotations

import math
from typing import Any, Final

from visleak.drawing import as_text, cut, figure_of, saved
from visleak.memorization.benchmark.columns import line_name, name_of, short
from visleak.memorization.benchmark.records import GENERAL, NONE, TRIGGER, Benchmark, MethodRow

#: Colours that differ for colour-blind readers too (Wong 2011), and marks that differ in print.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKS: Final = ("o", "s", "^", "D", "v", "P")
INK: Final = "#1d2127"
QUIET: Final = "#5b636d"

#: Inches: a panel, the space left of it, above all panels but for the legend, a line of that,
#: between panels, below them.
WIDE: Final = 3.5
HIGH: Final = 2.9
LEFT: Final = 0.75
OVER: Final = 0.78
LEGEND: Final = 0.2
BETWEEN: Final = 0.85
UNDER: Final = 0.55

#: What can be drawn against top-1 similarity, with its heading.
PANELS: Final = (
    (TRIGGER, "clip", "CLIP score, trigger prompts"),
    (TRIGGER, "aesthetic", "aesthetic score, trigger prompts"),
    (GENERAL, "clip", "CLIP score, general prompts"),
    (GENERAL, "aesthetic", "aesthetic score, general prompts"),
)


def tradeoff(result: Benchmark, columns: int = 2) -> dict[str, bytes]:
    """Return similarity against alignment and quality over each method's settings, SVG and PNG.

    Lines go from no mitigation through a method's settings, weak to strong; up and to the left is
    better. The reference performance is a star.

    Args:
        result: what was found.
        columns: panels beside each other.
    """
    panels = [each for each in PANELS if _drawn(result, each[0], each[1])]
    if not panels or not result.lines:
        return {}
    columns = min(columns, len(panels))
    lines = math.ceil(len(panels) / columns)
    width = columns * (WIDE + LEFT) + 0.15
    across = max(3, int(width / 1.35))
    over = OVER + LEGEND * math.ceil((len(result.lines) + 2) / across)
    height = over + lines * (HIGH + BETWEEN) - BETWEEN + UNDER
    with figure_of((width, height)) as figure:
        for number, panel in enumerate(panels):
            row, column = divmod(number, columns)
            left = LEFT + column * (WIDE + LEFT)
            top = height - over - row * (HIGH + BETWEEN) - HIGH
            axes = figure.add_axes((left / width, top / height, WIDE / width, HIGH / height))
            _panel(axes, result, panel)
        _around(figure, result, (width, height), across)
        return saved(figure, "benchmark tradeoff")


def _drawn(result: Benchmark, scenario: str, name: str) -> bool:
    known = (row for row in result.rows if not math.isnan(row.value(TRIGGER, "top1")))
    return any(not math.isnan(row.value(scenario, name)) for row in known)


def _panel(axes: Any, result: Benchmark, panel: tuple[str, str, str]) -> None:
    scenario, name, heading = panel
    base = result.base
    for number, line in enumerate(result.lines):
        rows = [base, *result.of(line)]
        x = [row.value(TRIGGER, "top1") for row in rows]
        y = [row.value(scenario, name) for row in rows]
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        axes.plot(x, y, color=colour, lw=1.7, zorder=3, alpha=0.9)
        look = {"color": colour, "ms": 6, "mec": "white", "mew": 0.8}
        axes.plot(x[1:], y[1:], mark, **look, ls="", zorder=4)
        for row in rows[1:]:
            _whiskers(axes, row, scenario, name, colour)
        _named(axes, rows[-1], scenario, name, colour)
    look = {"color": INK, "ms": 7.5, "mec": "white", "mew": 0.8}
    axes.plot(base.value(TRIGGER, "top1"), base.value(scenario, name), "X", **look, zorder=5)
    _whiskers(axes, base, scenario, name, INK)
    found = result.reference
    if found is not None and (scenario, name) == (TRIGGER, "clip"):
        axes.plot(
            found.similarity.value, found.clip.value, "*", color="#f0b400", ms=14, mec=INK, mew=0.8,
            zorder=6,
        )  # fmt: skip
    _limits(axes, result, scenario, name)
    axes.set_xlabel(
        f"top-1 similarity ({as_text(cut(_similarity(result), 26))})", fontsize=9, labelpad=3
    )
    axes.set_title(heading, fontsize=9.5, loc="left", color=INK, fontweight="normal", pad=5)
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5)


def _limits(axes: Any, result: Benchmark, scenario: str, name: str) -> None:
    """Show all points, and of intervals what lies near them."""
    points = [(row.value(TRIGGER, "top1"), row.value(scenario, name)) for row in result.rows]
    found = result.reference
    if found is not None and (scenario, name) == (TRIGGER, "clip"):
        points.append((found.similarity.value, found.clip.value))
    known = [point for point in points if not any(map(math.isnan, point))]
    for side, values in enumerate(zip(*known, strict=True)):
        low, high = min(values), max(values)
        room = 0.2 * (high - low) or 0.05 * max(abs(high), 1.0)
        (axes.set_xlim, axes.set_ylim)[side](low - room, high + room)


def _similarity(result: Benchmark) -> str:
    return str(result.about["similarity"]["name"]).partition(":")[0]


def _whiskers(axes: Any, row: MethodRow, scenario: str, name: str, colour: str) -> None:
    """Draw the intervals of both numbers, faintly."""
    one, other = row.score(TRIGGER, "top1"), row.score(scenario, name)
    if one is None or other is None:
        return
    x, y = one.interval, other.interval
    look = {"color": colour, "lw": 0.8, "alpha": 0.32, "zorder": 2}
    if not math.isnan(x.low):
        axes.plot([x.low, x.high], [y.value, y.value], **look)
    if not math.isnan(y.low):
        axes.plot([x.value, x.value], [y.low, y.high], **look)


def _named(axes: Any, row: MethodRow, scenario: str, name: str, colour: str) -> None:
    """Write the strongest setting beside its mark: it says which end is which."""
    x, y = row.value(TRIGGER, "top1"), row.value(scenario, name)
    if math.isnan(x) or math.isnan(y):
        return
    axes.annotate(
        as_text(cut(row.setting.partition(", ")[0], 16)), (x, y), xytext=(0, -10.5),
        textcoords="offset points", fontsize=7.5, color=colour, ha="center", va="center", zorder=7,
        bbox={"boxstyle": "square,pad=0.08", "fc": "white", "ec": "none", "alpha": 0.8},
    )  # fmt: skip


def _around(figure: Any, result: Benchmark, size: tuple[float, float], across: int) -> None:
    """Write title and legend above the panels."""
    from matplotlib.lines import Line2D

    width, height = size
    figure.text(
        0.12 / width, 1 - 0.1 / height, "What mitigations trade similarity for", va="top",
        fontweight="bold", fontsize=11.5,
    )  # fmt: skip
    model = as_text(cut(short(str(result.about["model"].get("name", ""))), 40))
    told = f"{model}, {result.triggers.prompts:,} trigger prompts; better is up and to the left"
    figure.text(0.12 / width, 1 - 0.33 / height, told, va="top", fontsize=9, color=QUIET)
    look: dict[str, Any] = {"ms": 6, "mec": "white", "mew": 0.8}
    handles = [Line2D([], [], color=INK, marker="X", ls="", label=name_of(NONE), **look)]
    for number, line in enumerate(result.lines):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        label = as_text(cut(line_name(line), 28))
        handles.append(Line2D([], [], color=colour, marker=mark, lw=1.7, label=label, **look))
    if result.reference is not None:
        star: dict[str, Any] = {"ms": 11, "mec": INK, "mew": 0.8}
        handles.append(
            Line2D([], [], color="#f0b400", marker="*", ls="", label="reference", **star)
        )
    figure.legend(
        handles=handles, loc="upper left", ncols=min(len(handles), across),
        fontsize=9, bbox_to_anchor=(0.12 / width, 1 - 0.5 / height), borderaxespad=0, borderpad=0,
        handlelength=1.6, columnspacing=1.3, handletextpad=0.5,
    )  # fmt: skip
