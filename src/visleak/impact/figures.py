"""Figures of an impact: gains of parts of the benchmark, and original against fair scores.

The same numbers give the same bytes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from visleak.impact.headline import signed
from visleak.impact.results import SUBSETS, Effect, Impact, Row
from visleak.quantities import counted
from visleak.reporting.drawing import INK, QUIET, as_text, cut, figure_of, saved
from visleak.stats.bootstrap import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that differ for colour-blind readers too (Wong 2011), dark and light in turn for print.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
LONGEST: Final = 24  # names are cut to this many characters; tables have them whole
WHOLE: Final = ("non-leaked", "leaked")  # parts whose intervals the axis has room for
FEW: Final = 10  # images from which the axis has room for a bar

#: Inches: a bar, the space between parts, the rest of a panel, its width.
BAR, SPACE, AROUND, WIDE = 0.17, 0.12, 0.75, 4.6
HEADING, LABEL = 44, 52  # characters that a panel has room for above and below


def series(result: Impact) -> tuple[list[tuple[str, Effect]], str]:
    """Return the effects that are drawn side by side, by name, and what they have in common.

    Several models in the first metric of the first; of one model all metrics of one unit.
    """
    effects = result.first_effects
    first = effects[0]
    if len(effects) > 1:
        own = [each for each in effects if each.metric == first.metric]
        return [(each.model, each) for each in own if each.percent == first.percent], first.metric
    own = [each for each in result.effects if each.percent == first.percent]
    if len(own) == 1:
        return [(first.model, first)], first.metric
    return [(each.metric, each) for each in own], first.model


def gains(
    result: Impact, columns: int = 2, only: Collection[str] | None = None
) -> Mapping[str, bytes]:
    """Return the gains of each part of the benchmark, a panel per leak, as SVG and PNG."""
    if not result.effects:
        return {}
    drawn, name = series(result)
    shown = drawn[: len(COLOURS)]
    wanted = [k for k, count in result.leaks.items() if count and (only is None or k in only)]
    rows = {leak: found for leak in wanted if (found := _rows(leak, shown))}
    if not rows:
        return {}
    panels_of = _merged(rows, result.leaks)
    columns = min(columns, len(panels_of))
    lines = math.ceil(len(panels_of) / columns)
    bars = max(len(shown), 1.3) * BAR + SPACE
    tallest = max(len(found) for found in rows.values())
    height = lines * (tallest * bars + AROUND) + 0.7 + 0.2 * math.ceil(len(shown) / 3)
    more = f"; {len(drawn) - len(shown)} more in the tables" if len(drawn) > len(shown) else ""
    percent = shown[0][1].percent
    with figure_of((columns * WIDE, height)) as figure:
        figure.set_layout_engine("constrained")
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        limits = _limits(list(rows.values()), percent=percent)
        for axes, leaks in zip(panels, panels_of, strict=False):
            _panel(axes, rows[leaks[0]], limits, percent=percent)
            names = ", ".join(map(_short, leaks))
            title = f"{names} ({counted(result.leaks[leaks[0]], 'image')})"
            axes.set_title("\n".join(textwrap.wrap(title, HEADING)), fontsize=9.5, loc="left")
        for axes in panels[len(panels_of) :]:
            axes.set_axis_off()
        title = f"Gain on parts of {_short(result.test_set)}: {_short(name)}{more}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
        unit = "points" if percent else "the metric's unit"
        about = f"over the whole, in {unit}; lines: 95 % intervals; arrows: beyond the axis"
        below = panels[(lines - 1) * columns]
        below.set_xlabel(textwrap.fill(about, LABEL), loc="left", fontsize=9, color=QUIET)
        if len(shown) > 1:
            _legend(figure, [name for name, _ in shown], 3)
        return saved(figure, "gains")


def _merged(
    rows: Mapping[str, Mapping[str, Sequence[Row | None]]], counts: Mapping[str, int]
) -> list[list[str]]:
    """Return the leaks of each panel; leaks of the same images share one."""
    found: dict[str, list[str]] = {}
    for leak, parts in rows.items():
        bars = [row for own in parts.values() for row in own]
        drawn = [row and (row.subset, row.images, row.gain) for row in bars]
        # as text, in which NaN equals NaN
        found.setdefault(f"{counts[leak]} {drawn}", []).append(leak)
    return list(found.values())


def _rows(leak: str, shown: Sequence[tuple[str, Effect]]) -> dict[str, list[Row | None]]:
    """Return the rows of each part of a leak that any effect has a gain in, by effect."""
    found = {}
    for subset in SUBSETS:
        rows = [effect.row(leak, subset) for _, effect in shown]
        known = [row if row and not math.isnan(row.gain.value) else None for row in rows]
        if any(known):
            found[subset] = known
    return found


def _limits(
    panels: Sequence[Mapping[str, Sequence[Row | None]]], *, percent: bool
) -> tuple[float, float]:
    """Return the ends of the axis that all panels share, in its unit.

    They hold zero, all bars of :data:`FEW` images and more, and the intervals of leaked images and
    of the others; a single image would flatten all the rest.
    """
    every = [row for panel in panels for rows in panel.values() for row in rows if row]
    values = [0.0]
    for row in [row for row in every if row.images >= FEW] or every:
        ends = [row.gain.low, row.gain.high] if row.subset in WHOLE else []
        values += [row.gain.value, *ends]
    known = [value * (100.0 if percent else 1.0) for value in values if not math.isnan(value)]
    low, high = min(known), max(known)
    return (low, high) if high > low else (low, low + 1.0)


def _panel(
    axes: Axes,
    parts: Mapping[str, Sequence[Row | None]],
    limits: tuple[float, float],
    *,
    percent: bool,
) -> None:
    """Draw the bars of a leak: a group per part, a bar per model, with interval and number."""
    count = len(next(iter(parts.values())))
    step = max(count, 1.3) * BAR + SPACE
    for place, rows in enumerate(parts.values()):
        for number, row in enumerate(rows):
            if row is not None:
                y = place * step + (number - (count - 1) / 2) * BAR
                draw_bar(axes, y, row.gain, COLOURS[number], limits, percent=percent)
    # room for the numbers beyond the longest bars
    room = 0.24 * (limits[1] - limits[0])
    axes.set_xlim(limits[0] - room * (limits[0] < 0), limits[1] + room)
    axes.set_ylim((len(parts) - 0.5) * step, -0.5 * step)
    axes.axvline(0, color=QUIET, lw=0.9, zorder=2)
    axes.set_yticks([place * step for place in range(len(parts))], list(parts), fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", nbins=5)


def draw_bar(
    axes: Axes, y: float, gain: Estimate, colour: str, limits: tuple[float, float], *, percent: bool
) -> None:
    """Draw a bar and its interval as far as the axis reaches, and its number beyond both."""
    scale = 100.0 if percent else 1.0
    whole = [scale * each for each in (gain.low, gain.high, gain.value) if not math.isnan(each)]
    *ends, length = (min(max(each, limits[0]), limits[1]) for each in whole)
    axes.barh(y, length, 0.82 * BAR, color=colour, zorder=1)
    axes.plot(ends, [y] * len(ends), color=INK, lw=1.0, zorder=3, solid_capstyle="butt")
    for each, at in zip(whole, (*ends, length), strict=True):
        if each != at:
            axes.plot(at, y, "<" if each < at else ">", ms=3.5, color=INK, mew=0, zorder=3)
    up = gain.value >= 0
    edge = max([0.0, length, *ends]) if up else min([0.0, length, *ends])
    # the axis has true minus signs
    text = signed(gain.value, percent=percent).replace("-", "−")
    axes.annotate(
        text, (edge, y), xytext=(4 if up else -4, 0), textcoords="offset points",
        ha="left" if up else "right", va="center", fontsize=7, color=INK, zorder=4,
    )  # fmt: skip


def points(result: Impact) -> tuple[list[tuple[str, Estimate, Estimate]], str, str]:
    """Return name, original and fair number of each point of the scatter, and its axes' names.

    Errors on the test set and on the fair one where both are known; else the score on all images
    against that on those that do not leak, classes weighted as in the whole.
    """
    name = cut(result.test_set, LONGEST)
    if result.gaps:
        metric = result.gaps[0].metric
        own = [gap for gap in result.gaps if gap.metric == metric]
        what = "error" if metric == "accuracy" else f"error ({cut(metric, LONGEST)})"
        found = [(gap.model, gap.original, gap.fair) for gap in own]
        return found, f"{what} on {name}, %", f"{what} on its fair test set, %"
    if not (leak := result.principal):
        return [], "", ""
    drawn, about = series(result)
    found = [
        (name, effect.original.score, each.fair)
        for name, effect in drawn
        if (each := effect.comparison(leak)) is not None and not math.isnan(each.fair.value)
    ]
    unit = ", %" if drawn[0][1].percent else ""
    about, leak = cut(about, LONGEST), cut(leak, LONGEST)
    return found, f"{about} on all of {name}{unit}", f"without leaks ({leak}){unit}"


def fair_scatter(result: Impact) -> Mapping[str, bytes]:
    """Return the scatter of original against fair numbers, a point per model, as SVG and PNG."""
    found, across, up = points(result)
    if not found:
        return {}
    scale = 100.0 if result.gaps or series(result)[0][0][1].percent else 1.0
    with figure_of((5.2, 4.2 + 0.2 * math.ceil(len(found) / 2))) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        for number, (_, original, fair) in enumerate(found):
            x, y = scale * original.value, scale * fair.value
            axes.errorbar(
                x, y, xerr=_errors(original, scale), yerr=_errors(fair, scale), fmt="o", ms=6,
                mec="white", mew=0.8, lw=1.1, color=COLOURS[number % len(COLOURS)],
            )  # fmt: skip
        low = min(axes.get_xlim()[0], axes.get_ylim()[0])
        high = max(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([low, high], [low, high], color=QUIET, lw=1, ls=(0, (4, 3)), zorder=1)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.locator_params(nbins=5)
        axes.grid(True)
        axes.set_axisbelow(True)
        axes.set_xlabel(as_text(across), fontsize=9.5)
        axes.set_ylabel(as_text(up), fontsize=9.5)
        axes.set_title(
            "Original against fair; lines: 95 % intervals, dashed: equal",
            loc="left", fontsize=9, fontweight="normal",
        )  # fmt: skip
        _legend(figure, [name for name, *_ in found], 2)
        return saved(figure, "fair")


def _errors(estimate: Estimate, scale: float) -> list[list[float]]:
    """Return how far an interval reaches below and above its number; zero where it is unknown."""
    below, above = estimate.value - estimate.low, estimate.high - estimate.value
    return [[0.0 if math.isnan(each) else max(0.0, scale * each)] for each in (below, above)]


def _legend(figure: Figure, names: Sequence[str], columns: int) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=COLOURS[number % len(COLOURS)], label=_short(name))
        for number, name in enumerate(names)
    ]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=columns, fontsize=9, handlelength=1.2
    )


def _short(name: str) -> str:
    return as_text(cut(name, LONGEST))
