"""The figure of gains over the whole benchmark; the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Final

from visleak.drawing import as_text, cut, figure_of, saved
from visleak.impact.headline import first_effects
from visleak.impact.numbers import signed
from visleak.impact.results import SUBSETS, Effect, Estimate, Impact

#: Colours that differ for colour-blind readers too (Wong 2011), dark and light in turn for print.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")

INK: Final = "#1d2127"
QUIET: Final = "#5b636d"

#: Models or metrics of the bars; names are cut to this many characters. Tables have all.
SERIES: Final = len(COLOURS)
LONGEST: Final = 24

#: Parts whose intervals the axis has room for, and of how many images it has room for bars.
WHOLE: Final = ("non-leaked", "leaked")
FEW: Final = 10

#: Inches: a bar, the space between parts, a panel's title, its axis, the names of parts, a panel.
BAR: Final = 0.17
SPACE: Final = 0.12
OVER: Final = 0.3
UNDER: Final = 0.32
SIDE: Final = 1.25
WIDE: Final = 3.35

#: Beyond these ends of the axis its numbers are written out.
SMALL: Final = 0.001
LARGE: Final = 1000.0

#: Inches of a letter of the numbers beside bars, and around them.
LETTER: Final = 0.06
AROUND: Final = 0.1


def series(result: Impact) -> tuple[list[tuple[str, Effect]], str]:
    """Return what is drawn beside each other, by name, and what the rest is called.

    Several models in the first metric of the first; of one model all metrics of one unit.
    """
    effects = first_effects(result)
    first = effects[0]
    if len(effects) > 1:
        own = [each for each in effects if each.metric == first.metric]
        own = [each for each in own if each.percent == first.percent]
        return [(each.model, each) for each in own], first.metric
    own = [each for each in result.effects if each.percent == first.percent]
    if len(own) == 1:
        return [(first.model, first)], first.metric
    return [(each.metric, each) for each in own], first.model


def gains(
    result: Impact, columns: int = 2, only: Collection[str] | None = None
) -> dict[str, bytes]:
    """Return the gains of each part of the benchmark, a panel a leak, as SVG and PNG.

    Args:
        result: what was found.
        columns: panels beside each other.
        only: leaks that are drawn; by default all that images have.
    """
    if not result.effects:
        return {}
    drawn, about = series(result)
    shown, left = drawn[:SERIES], len(drawn[SERIES:])
    leaks = [leak for leak, count in result.leaks.items() if count]
    leaks = [leak for leak in leaks if only is None or leak in only]
    rows = {leak: _subsets(leak, [effect for _, effect in shown]) for leak in leaks}
    leaks = [leak for leak in leaks if rows[leak]]
    if not leaks:
        return {}
    columns = min(columns, len(leaks))
    lines = [leaks[at : at + columns] for at in range(0, len(leaks), columns)]
    heights = [max(_high(len(rows[leak]), len(shown)) for leak in line) for line in lines]
    legend = 0.2 * math.ceil(len(shown) / (2 * columns)) if len(shown) > 1 else 0.0
    width = columns * (SIDE + WIDE + 0.1)
    height = 0.42 + legend + sum(heights) + (OVER + UNDER) * len(lines) + 0.22
    reach = _reach([effect for _, effect in shown], rows)
    limits = _limits([effect for _, effect in shown], rows, reach)
    with figure_of((width, height)) as figure:
        at = height - 0.42 - legend
        for line, own in zip(lines, heights, strict=True):
            for column, leak in enumerate(line):
                need = _high(len(rows[leak]), len(shown))
                edge = SIDE + column * (SIDE + WIDE + 0.1)
                axes = figure.add_axes(
                    (edge / width, (at - OVER - need) / height, (WIDE - 0.1) / width, need / height)
                )
                axes.set_xlim(*limits)
                _panel(axes, result, leak, rows[leak], shown, reach)
            at -= OVER + own + UNDER
        more = f"; {left} more in the tables" if left else ""
        title = f"Gain on parts of {short_name(result.test_set)}: {short_name(about)}{more}"
        _write_around(figure, title, (width, height), percent=shown[0][1].percent)
        if len(shown) > 1:
            _legend(figure, [name for name, _ in shown], (width, height), columns)
        return saved(figure, "gains")


def _write_around(figure: Any, title: str, size: tuple[float, float], *, percent: bool) -> None:
    width, height = size
    figure.text(0.1 / width, 1 - 0.12 / height, title, va="top", fontweight="bold", fontsize=11)
    unit = "points" if percent else "in the metric's unit"
    told = (
        f"gain over the whole, {unit}; lines: 95 % intervals; arrows: the interval exceeds the axis"
    )
    figure.text(0.5, 0.08 / height, told, ha="center", fontsize=8.5, color=INK)


def _subsets(leak: str, effects: Sequence[Effect]) -> list[str]:
    """Return the parts of a leak that any effect has images in."""
    found = [effect.row(leak, subset) for effect in effects for subset in SUBSETS]
    known = {row.subset for row in found if row is not None and not math.isnan(row.gain.value)}
    return [subset for subset in SUBSETS if subset in known]


def _high(parts: int, bars: int) -> float:
    return parts * (max(bars, 1.3) * BAR + SPACE)


def _reach(effects: Sequence[Effect], rows: dict[str, list[str]]) -> tuple[float, float]:
    """Return the ends of the axis that all panels share.

    They hold zero, all bars of :data:`FEW` images and more, and the intervals of leaked images and
    of the others; a single image would flatten all the rest.
    """
    found = [
        row
        for effect in effects
        for leak, subsets in rows.items()
        for subset in subsets
        if (row := effect.row(leak, subset)) is not None
    ]
    large = [row for row in found if row.images >= FEW] or found
    values = [0.0, *(row.gain.value for row in large)]
    for row in large:
        values += [row.gain.low, row.gain.high] if row.subset in WHOLE else []
    scale = 100.0 if effects[0].percent else 1.0
    known = [scale * value for value in values if not math.isnan(value)]
    low, high = min(known), max(known)
    return low, high if high > low else low + 1.0


def _limits(
    effects: Sequence[Effect], rows: dict[str, list[str]], reach: tuple[float, float]
) -> tuple[float, float]:
    """Return the ends of the axis with room for the longest numbers beyond the longest lines.

    Without it losses would be written over the names of the parts.
    """
    texts = [
        signed(row.gain.value, percent=effect.percent)
        for effect in effects
        for leak, subsets in rows.items()
        for subset in subsets
        if (row := effect.row(leak, subset)) is not None and not math.isnan(row.gain.value)
    ]
    losses = [len(text) for text in texts if text.startswith("-")]
    others = [len(text) for text in texts if not text.startswith("-")]
    left, right = (AROUND + LETTER * max(each, default=0) for each in (losses, others))
    width = WIDE - 0.1
    whole = (reach[1] - reach[0]) / max(0.2, 1.0 - (left + right) / width)
    return reach[0] - whole * left / width, reach[1] + whole * right / width


def _panel(
    axes: Any,
    result: Impact,
    leak: str,
    subsets: Sequence[str],
    drawn: Sequence[tuple[str, Effect]],
    reach: tuple[float, float],
) -> None:
    """Draw the bars of a leak: a group a part, a bar a model, with its interval and number."""
    step = max(len(drawn), 1.3) * BAR + SPACE
    for place, subset in enumerate(subsets):
        for number, (_, effect) in enumerate(drawn):
            row = effect.row(leak, subset)
            if row is not None and not math.isnan(row.gain.value):
                y = place * step + (number - (len(drawn) - 1) / 2) * BAR
                _bar(axes, y, row.gain, COLOURS[number], reach, percent=effect.percent)
    axes.set_ylim((len(subsets) - 0.5) * step, -0.5 * step)
    axes.axvline(0, color=QUIET, lw=0.9, zorder=2)
    axes.set_yticks([place * step for place in range(len(subsets))], subsets, fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", nbins=5)
    if not SMALL <= max(map(abs, reach)) < LARGE:
        # a power of ten beside the axis would lie on what is beneath
        axes.xaxis.set_major_formatter(lambda at, _: f"{at:,.10g}".replace("-", "−"))
    images = result.leaks[leak]
    axes.set_title(f"{short_name(leak)} ({images:,} images leak)", fontsize=9.5, loc="left", pad=5)


def _bar(
    axes: Any, y: float, gain: Estimate, colour: str, reach: tuple[float, float], *, percent: bool
) -> None:
    """Draw a bar and its interval as far as the axis reaches, and its number beyond both."""
    scale = 100.0 if percent else 1.0
    whole = [scale * each for each in (gain.low, gain.high, gain.value) if not math.isnan(each)]
    cut = [min(max(each, reach[0]), reach[1]) for each in whole]
    axes.barh(y, cut[-1], 0.82 * BAR, color=colour, zorder=1)
    axes.plot(cut[:-1], [y] * len(cut[:-1]), color=INK, lw=1.0, zorder=3, solid_capstyle="butt")
    for each, at in zip(whole, cut, strict=True):
        if each != at:
            axes.plot(at, y, "<" if each < at else ">", ms=3.5, color=INK, mew=0, zorder=3)
    up = gain.value >= 0
    edge = max([0.0, *cut]) if up else min([0.0, *cut])
    # the axis has true minus signs
    said = signed(gain.value, percent=percent).replace("-", "−")
    axes.annotate(
        said, (edge, y), xytext=(4 if up else -4, 0), textcoords="offset points",
        ha="left" if up else "right", va="center", fontsize=7, color=INK, zorder=4,
    )  # fmt: skip


def _legend(figure: Any, names: Sequence[str], size: tuple[float, float], columns: int) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=COLOURS[number], label=short_name(name))
        for number, name in enumerate(names)
    ]
    figure.legend(
        handles=handles, loc="upper left", ncols=2 * columns, fontsize=9, borderaxespad=0,
        bbox_to_anchor=(0.1 / size[0], 1 - 0.38 / size[1]), handlelength=1.2, columnspacing=1.4,
    )  # fmt: skip


def short_name(name: str) -> str:
    """Return a name as text for a figure, cut if it is long."""
    return as_text(cut(name, LONGEST))
