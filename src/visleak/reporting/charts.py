"""Charts of rates, counts and similarities: bars, matrices and histograms.

All are drawn by matplotlib in the style of :mod:`visleak.reporting.drawing`; the same numbers give
the same bytes, and no two charts of a page have the same ``name``. Layout of the matrix and the
bars after figures 3 and 4 of Ramos et al. 2025.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.rates import Rate, percent
from visleak.reporting.drawing import INK, QUIET, as_text, cut, figure_of, saved

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Colours by what they stand for.
COLOURS: Final = {
    "hard": "#b3261e",
    "soft": "#7fb0e0",
    "total": "#4a5058",
    "exact": "#8c1d18",
    "near": "#d0492f",
    "similar": "#2c6cb0",
    "different": "#8a919a",
    "below": "#a8afb8",
}
#: Hatching of parts that lightness alone may not tell apart in print.
HATCHES: Final = {"soft": "///"}
EMPTY: Final = "#f3f4f6"

#: Inches: a cell of a matrix, a letter of a name, and the bars of a chart.
CELL: Final = 0.6
LETTER: Final = 0.085
BARS: Final = 3.4

#: Names are cut to this many characters in charts; tables have them whole.
LONGEST: Final = 26

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of :func:`bar_chart`."""

    name: str
    note: str  # at the right, such as "3 of 100 · 3.00 %"
    parts: tuple[tuple[str, float], ...]
    interval: tuple[float, float] | None = None
    mark: float | None = None

    @classmethod
    def of_rate(cls, name: str, colour: str, rate: Rate) -> Bar:
        """Return the bar of a rate in per cent with its interval."""
        note = f"{rate.count:,} of {rate.total:,} · {percent(rate.share)} %"
        return cls(name, note, ((colour, 100 * rate.share),), (100 * rate.low, 100 * rate.high))


def bar_chart(
    bars: Sequence[Bar],
    name: str,
    *,
    title: str = "",
    label: str = "%",
    legend: Sequence[str] = (),
    mark: str = "",
    kinds: Sequence[str] = ("svg",),
) -> Files:
    """Draw horizontal bars on one scale; no two charts of a page have the same name.

    ``mark`` is what the diamonds are; ``kinds`` are endings of files.
    """
    if not bars:
        return {}
    over = 0.1 + (0.32 if title else 0.0) + (0.34 if legend else 0.0)
    height = over + 0.4 * len(bars) + 0.5
    side = LETTER * max(len(_name(bar.name)) for bar in bars) + 0.25
    right = LETTER * max(len(bar.note) for bar in bars) + 0.2
    width = side + BARS + right
    with figure_of((width, height)) as figure:
        box = (side / width, 0.5 / height, BARS / width, 0.4 * len(bars) / height)
        axes = figure.add_axes(box)
        for y, bar in enumerate(bars):
            _bar(axes, y, bar)
        reach = max((*map(_reach, bars), 0.0))
        axes.set_xlim(0, 1.04 * reach or 1)
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_yticks(range(len(bars)), [_name(bar.name) for bar in bars])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_xlabel(label)
        if title:
            figure.text(
                0.02, 1 - 0.1 / height, as_text(title), va="top", fontweight="bold", fontsize=12
            )
        if legend:
            _legend(axes, legend, mark if any(bar.mark is not None for bar in bars) else "")
        return saved(figure, name, kinds)


def _bar(axes: Axes, y: int, bar: Bar) -> None:
    start = 0.0
    for colour, length in bar.parts:
        if length > 0:
            axes.barh(
                y, length, 0.56, left=start, color=COLOURS[colour], hatch=HATCHES.get(colour),
                edgecolor="white", lw=0.5,
            )  # fmt: skip
            start += length
    if bar.interval is not None and all(map(math.isfinite, bar.interval)):
        axes.plot(bar.interval, [y, y], color=INK, lw=1.4, zorder=3)
    if bar.mark is not None:
        axes.plot(bar.mark, y, marker="D", ms=6, mfc="white", mec=INK, mew=1.3, zorder=4)
    axes.annotate(
        as_text(bar.note), (1, y), xycoords=("axes fraction", "data"), xytext=(8, 0),
        textcoords="offset points", va="center", fontsize=9, color=INK, annotation_clip=False,
    )  # fmt: skip


def _reach(bar: Bar) -> float:
    ends = [sum(length for _, length in bar.parts), bar.mark, *(bar.interval or ())]
    return max([end for end in ends if end is not None and math.isfinite(end)], default=0.0)


def _legend(axes: Axes, colours: Sequence[str], mark: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Patch(facecolor=COLOURS[name], hatch=HATCHES.get(name), edgecolor="white", label=name)
        for name in colours
    ]
    if mark:
        handles.append(
            Line2D([], [], ls="", label=mark, marker="D", ms=6, mfc="white", mec=INK, mew=1.3)
        )
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, fontsize=9,
        borderaxespad=0.1, handlelength=1.4, columnspacing=1.2,
    )  # fmt: skip


def leak_bars(rows: Sequence[tuple[str, Rate, Rate, Rate, float | None]]) -> list[Bar]:
    """Return the bars of hard and soft leaks, with the interval of their sum."""
    return [
        Bar(
            name,
            f"{percent(hard.share)} + {percent(soft.share)} = {percent(total.share)} %",
            (("hard", 100 * hard.share), ("soft", 100 * soft.share)),
            (100 * total.low, 100 * total.high),
            published,
        )
        for name, hard, soft, total, published in rows
    ]


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix of :func:`matrices`."""

    title: str
    shares: npt.NDArray[np.float64]  # in [0, 1], (rows, columns); NaN where nothing was compared
    colours: str
    # texts under the numbers, (rows, columns); empty ones for none
    published: Sequence[Sequence[str]] = ()

    def below(self, row: int, column: int) -> str:
        """Return the published text of a cell."""
        return self.published[row][column] if self.published else ""

    @property
    def has_published(self) -> bool:
        """Whether any cell has a published text."""
        return any(text for row in self.published for text in row)


def matrices(
    rows: Sequence[str],
    columns: Sequence[str],
    panels: Sequence[Panel],
    name: str,
    kinds: Sequence[str] = ("svg",),
) -> Files:
    """Draw shares as matrices beside each other, every cell with its number."""
    for panel in panels:
        if panel.shares.shape != (len(rows), len(columns)):
            raise UsageError(
                f"matrix: values must be {len(rows)} rows x {len(columns)} columns, got"
                f" {' x '.join(map(str, panel.shares.shape))}"
            )
    if not rows or not columns:
        return {}
    wide, high = max(CELL * len(columns), 1.9), 0.5 * len(rows)
    side = LETTER * max(len(_name(row)) for row in rows) + 0.25
    longest = max(len(_name(column)) for column in columns)
    slanted = longest * LETTER > 0.95 * wide / len(columns)
    top = 0.7 if any(panel.has_published for panel in panels) else 0.5
    top += 0.62 * LETTER * longest if slanted else 0.12
    # the last slanted name leans out of its panel
    gap = max(0.3, 0.5 * LETTER * len(_name(columns[-1]))) if slanted else 0.3
    width, height = side + len(panels) * (wide + gap), top + high + 0.12
    with figure_of((width, height)) as figure:
        for number, panel in enumerate(panels):
            left = side + number * (wide + gap)
            axes = figure.add_axes((left / width, 0.12 / height, wide / width, high / height))
            _cells(axes, panel)
            _sides(axes, rows if number == 0 else [""] * len(rows), columns, slanted=slanted)
            _line_above(axes, panel.title, 12, -8, INK, "bold")
            if number == 0 and panel.has_published:
                _line_above(axes, "in brackets: published", 8.5, -25, QUIET)
        return saved(figure, name, kinds)


def _cells(axes: Axes, panel: Panel) -> None:
    """Draw the cells of a matrix: the deeper the higher."""
    shares = panel.shares
    peak = float(np.nanmax(shares)) if np.isfinite(shares).any() else 0.0
    axes.set_facecolor(EMPTY)
    # the palest tenth stays unused, so that nothing looks like no comparison
    depth = 0.08 + 0.82 * (shares / peak if peak else np.where(np.isnan(shares), np.nan, 0.0))
    edges = [np.arange(-0.5, size) for size in reversed(shares.shape)]
    axes.pcolormesh(*edges, depth, cmap=panel.colours, vmin=0.0, vmax=1.0)
    axes.invert_yaxis()
    for y, x in np.ndindex(shares.shape):
        if np.isnan(shares[y, x]):
            axes.text(x, y, "–", fontsize=9, color=QUIET, ha="center", va="center")
            continue
        ink, below = "white" if depth[y, x] > 0.58 else INK, panel.below(y, x)
        texts = [(y - (0.13 if below else 0.0), percent(float(shares[y, x])), 9.5)]
        if below:
            texts.append((y + 0.24, as_text(f"({below})"), 7))
        for at, text, size in texts:
            axes.text(x, at, text, fontsize=size, color=ink, ha="center", va="center")


def _sides(axes: Axes, rows: Sequence[str], columns: Sequence[str], *, slanted: bool) -> None:
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), [_name(column) for column in columns], fontsize=9)
    if slanted:
        for label in axes.get_xticklabels():
            label.set(rotation=38, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows], fontsize=9)
    axes.set_xticks(np.arange(-0.5, len(columns)), minor=True)
    axes.set_yticks(np.arange(-0.5, len(rows)), minor=True)
    axes.grid(which="minor", color="white", linewidth=2.5)
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _line_above(
    axes: Axes, words: str, size: float, down: float, color: str, weight: str = "normal"
) -> None:
    """Write a line over a matrix, some points below the figure's upper edge."""
    axes.annotate(
        as_text(words), (0, 1), xycoords=("axes fraction", "figure fraction"), xytext=(0, down),
        textcoords="offset points", va="top", fontsize=size, color=color, weight=weight,
    )  # fmt: skip


def similarity_histogram(
    similarities: npt.ArrayLike, hard: float | None, soft: float | None, name: str
) -> Files:
    """Draw the similarities of queries to their nearest references, and the thresholds.

    Counts are on a logarithmic scale: leaks are few beside the images that do not leak.
    """
    values = np.asarray(similarities, dtype=np.float64)
    values = np.clip(values[np.isfinite(values)], -1.0, 1.0)
    limits = [(which, at) for which, at in (("hard", hard), ("soft", soft)) if at is not None]
    lowest = float(min([0.9, *(at for _, at in limits), *values[values < 0.9]]))
    start = max(-1.0, math.floor(lowest * 20.0 - 0.5) / 20.0)
    counts, edges = np.histogram(values, bins=40, range=(start, 1.0))
    middle = (edges[:-1] + edges[1:]) / 2
    reached = [next((which for which, at in limits if x >= at), "below") for x in middle]
    with figure_of((4.6, 2.6)) as figure:
        axes = figure.add_axes((0.12, 0.2, 0.84, 0.62))
        axes.bar(middle, counts, edges[1] - edges[0], color=[COLOURS[each] for each in reached])
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 1.5 * max(1, int(counts.max())))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlim(start, 1.0)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.set_xlabel("similarity to the nearest reference image", fontsize=9)
        axes.tick_params(labelsize=8)
        for row, (which, at) in enumerate(limits):
            axes.axvline(at, color=COLOURS[which], ls=(0, (4, 3)), lw=1.2)
            inside = (at - start) / (1.0 - start) > 1 / 3
            axes.annotate(
                f"{which} ≥ {at:.3f}", (at, 1.03 + 0.1 * row), fontsize=9, color=INK,
                xycoords=("data", "axes fraction"), xytext=(-3 if inside else 3, 0),
                textcoords="offset points", ha="right" if inside else "left",
            )  # fmt: skip
        return saved(figure, name, ("svg",))


def distance_chart(bars: Sequence[tuple[str, int]], close: int, label: str, name: str) -> Files:
    """Draw how many images lie at which distance, one column each."""
    names, counts = [text for text, _ in bars], [count for _, count in bars]
    colours = [COLOURS["near" if place < close else "below"] for place in range(len(bars))]
    with figure_of((4.6, 2.4)) as figure:
        axes = figure.add_axes((0.03, 0.22, 0.94, 0.62))
        drawn = axes.bar(range(len(bars)), counts, 0.92, color=colours)
        axes.bar_label(drawn, [f"{count:,}" if count else "" for count in counts], fontsize=8)
        axes.set_xticks(range(len(bars)), [as_text(text) for text in names], fontsize=8)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(0, 1.15 * max([*counts, 1]))
        axes.set_xlabel(label, fontsize=9)
        if 0 < close < len(bars):
            axes.axvline(close - 0.5, color=COLOURS["near"], ls=(0, (4, 3)), lw=1.2)
            axes.annotate(
                "leaks", (close - 0.5, 1.02), xycoords=("data", "axes fraction"), fontsize=9,
                xytext=(-4, 0), textcoords="offset points", ha="right", color=COLOURS["near"],
            )  # fmt: skip
        return saved(figure, name, ("svg",))


def decay_chart(
    bars: Sequence[tuple[int, float]], base: float, gap: int, label: str, name: str
) -> Files:
    """Draw how similarity decays over a distance to the base; the chosen distance is marked."""
    places = [math.log2(max(distance, 1)) for distance, _ in bars]
    with figure_of((4.6, 2.6)) as figure:
        axes = figure.add_axes((0.13, 0.2, 0.83, 0.68))
        axes.axhline(base, color=QUIET, ls=(0, (2, 3)), lw=1.2)
        axes.axvline(math.log2(max(gap, 1)), color=COLOURS["near"], ls=(0, (4, 3)), lw=1.2)
        axes.plot(places, [value for _, value in bars], "o-", color=COLOURS["similar"], lw=1.6)
        axes.set_xticks(places, [f"{distance:,}" for distance, _ in bars], fontsize=7, rotation=30)
        axes.annotate(
            f"--max-frame-gap {gap:,}" if "frames" in label else f"{gap:,}",
            (math.log2(max(gap, 1)), 1.02), xycoords=("data", "axes fraction"), fontsize=9,
            ha="center", color=COLOURS["near"],
        )  # fmt: skip
        axes.annotate(
            "any two frames", (0, base), xycoords=("axes fraction", "data"), xytext=(4, 3),
            textcoords="offset points", fontsize=8, color=QUIET,
        )  # fmt: skip
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.set_xlabel(label, fontsize=9)
        axes.set_ylabel("mean similarity", fontsize=9)
        axes.tick_params(axis="y", labelsize=8)
        return saved(figure, name, ("svg",))


def _name(name: str) -> str:
    return as_text(cut(name, LONGEST))
