"""The figure of original against fair numbers; the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from visleak.drawing import as_text, cut, figure_of, saved
from visleak.impact.figures import COLOURS, INK, QUIET, series, short_name
from visleak.impact.headline import comparison, principal
from visleak.impact.results import Estimate, Impact

#: Names of sets and metrics are cut to this many characters beside the axes.
LONGEST: Final = 14

#: Inches between two names.
APART: Final = 0.19


@dataclass(frozen=True, slots=True)
class Point:
    """A model in the scatter: what it is called, its original number and the fair one."""

    name: str
    original: Estimate
    fair: Estimate


def points(result: Impact) -> tuple[list[Point], str, str]:
    """Return the points of the scatter, and the names of its axes.

    Errors on the test set and on the fair one where both are known; else the score on all images
    against that on those that do not leak, classes weighted as in the whole.
    """
    name = cut(result.test_set, LONGEST)
    if result.gaps:
        metric = result.gaps[0].metric
        own = [gap for gap in result.gaps if gap.metric == metric]
        what = "error" if metric == "accuracy" else f"error ({cut(metric, LONGEST)})"
        found = [Point(gap.model, gap.original, gap.fair) for gap in own]
        return found, f"{what} on {name}, %", f"{what} on its fair test set, %"
    leak = principal(result)
    if not leak:
        return [], "", ""
    drawn, about = series(result)
    found = []
    for called, effect in drawn:
        each = comparison(effect, leak)
        if each is not None and not math.isnan(each.fair.value):
            found.append(Point(called, effect.original.score, each.fair))
    unit = ", %" if drawn[0][1].percent else ""
    about, leak = cut(about, LONGEST), cut(leak, 2 * LONGEST)
    return found, f"{about} on all of {name}{unit}", f"without leaks ({leak}){unit}"


def fair(result: Impact) -> dict[str, bytes]:
    """Return the scatter of original against fair numbers, a point a model, as SVG and PNG."""
    found, across, up = points(result)
    if not found:
        return {}
    percent = bool(result.gaps) or series(result)[0][0][1].percent
    scale = 100.0 if percent else 1.0
    # names stand in a column beside the axes, as far apart as letters need
    high = max(3.1, APART * len(found) + 0.4)
    side = 0.35 + 0.08 * max(len(short_name(point.name)) for point in found)
    width, height = 0.75 + high + side, 0.62 + high + 0.55
    with figure_of((width, height)) as figure:
        axes = figure.add_axes((0.75 / width, 0.55 / height, high / width, high / height))
        low, top = _limits(found, scale)
        axes.plot([low, top], [low, top], color=QUIET, lw=1, ls=(0, (4, 3)), zorder=1)
        _name_diagonal(axes, found, scale, (low, top))
        for number, point in enumerate(found):
            _dot(axes, point, COLOURS[number % len(COLOURS)], scale)
        axes.set_xlim(low, top)
        axes.set_ylim(low, top)
        axes.locator_params(nbins=5)
        axes.tick_params(labelsize=8.5)
        axes.grid(True)
        axes.set_axisbelow(True)
        axes.set_xlabel(as_text(across), fontsize=9.5)
        axes.set_ylabel(as_text(up), fontsize=9.5)
        _names(axes, found, scale, APART / high)
        figure.text(0.1 / width, 1 - 0.12 / height, "Original against fair",
                    va="top", fontweight="bold", fontsize=11)  # fmt: skip
        figure.text(0.1 / width, 1 - 0.36 / height, "lines: 95 % intervals", va="top", fontsize=8.5,
                    color=QUIET)  # fmt: skip
        return saved(figure, "fair")


def _name_diagonal(
    axes: Any, found: Sequence[Point], scale: float, ends: tuple[float, float]
) -> None:
    """Write what the diagonal is, where it is farthest from all points."""
    low, high = ends
    marks = [
        (scale * each.value - low) / (high - low)
        for point in found
        for each in (point.original, point.fair)
    ]
    free = max((0.08, 0.3, 0.5, 0.7, 0.88), key=lambda at: min(abs(at - mark) for mark in marks))
    at = low + free * (high - low)
    axes.annotate(
        "equal", (at, at), xytext=(4, -4), textcoords="offset points", fontsize=8, color=QUIET,
        rotation=45, rotation_mode="anchor", va="top",
    )  # fmt: skip


def _limits(found: Sequence[Point], scale: float) -> tuple[float, float]:
    """Return the ends of both axes: all points, with their intervals where those are known."""
    values = [
        scale * end
        for point in found
        for each in (point.original, point.fair)
        for end in (each.value, each.low, each.high)
        if not math.isnan(end)
    ]
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return low - margin, high + margin


def _dot(axes: Any, point: Point, colour: str, scale: float) -> None:
    x, y = scale * point.original.value, scale * point.fair.value
    across = [scale * end for end in (point.original.low, point.original.high)]
    up = [scale * end for end in (point.fair.low, point.fair.high)]
    axes.plot(across, [y, y], color=colour, lw=1.1, zorder=2)
    axes.plot([x, x], up, color=colour, lw=1.1, zorder=2)
    axes.plot(x, y, "o", ms=6, mfc=colour, mec="white", mew=0.8, zorder=3)


def _names(axes: Any, found: Sequence[Point], scale: float, step: float) -> None:
    """Write names at the right edge, each at its point's height or as near as others allow.

    Args:
        axes: with limits set.
        found: the points.
        scale: of their numbers.
        step: least distance of two names, as a share of the axes' height.
    """
    low, high = axes.get_ylim()
    wanted = sorted(
        ((scale * point.fair.value - low) / (high - low), number)
        for number, point in enumerate(found)
    )
    places = spread([at for at, _ in wanted], step)
    for place, (at, number) in zip(places, wanted, strict=True):
        point, colour = found[number], COLOURS[number % len(COLOURS)]
        axes.plot(
            [(scale * point.original.value - low) / (high - low), 1.0, 1.03], [at, at, place],
            transform=axes.transAxes, color=colour, lw=0.6, alpha=0.55, clip_on=False, zorder=1,
        )  # fmt: skip
        axes.text(
            1.04, place, short_name(point.name), transform=axes.transAxes, fontsize=8.5,
            va="center", color=INK,
        )  # fmt: skip


def spread(wanted: Sequence[float], step: float) -> list[float]:
    """Return places at least ``step`` apart within [0, 1], in order, near those wanted.

    Args:
        wanted: ascending.
        step: at most ``1 / (n - 1)`` of ``n`` places.

    >>> [round(place, 3) for place in spread([0.5, 0.51, 0.98, 0.99], 0.1)]
    [0.455, 0.555, 0.9, 1.0]
    """
    # the mean of pushing up and pushing down keeps the order and the distance of both
    up: list[float] = []
    for at in wanted:
        up.append(max(at, up[-1] + step) if up else at)
    down: list[float] = []
    for at in reversed(wanted):
        down.append(min(at, down[-1] - step) if down else at)
    places = [(one + other) / 2 for one, other in zip(up, reversed(down), strict=True)]
    for at in range(len(places)):
        places[at] = max(places[at], at * step)
    for at in range(len(places)):
        last = len(places) - 1 - at
        places[last] = min(places[last], 1.0 - at * step)
    return places
