"""The figure of a comparison: memorized images found by passes of the network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from visleak.drawing import as_text, cut, figure_of, saved
from visleak.memorization.baselines.records import Attempt, Comparison, budget_of, name_of

#: Colours that differ for colour-blind readers too (Wong 2011), and marks that differ in print.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKS: Final = ("o", "s", "^", "D", "v", "P")
QUIET: Final = "#5b636d"

SIZE: Final = (7.4, 4.3)

#: Methods a row of the legend.
ACROSS: Final = 3


def discoveries(result: Comparison) -> dict[str, bytes]:
    """Return images found against passes of search and images, as SVG and PNG.

    A line per method, its mean over seeds; each seed is a mark. Lines of one height are drawn a
    little apart.
    """
    methods = result.methods
    if not methods:
        return {}
    width, height = SIZE
    legend = math.ceil(len(methods) / ACROSS)
    most = max(each.found for each in result.attempts)
    far = max(each.calls for each in result.attempts) or 1
    with figure_of(SIZE) as figure:
        top = height - 0.66 - 0.22 * legend
        axes = figure.add_axes((0.09, 0.62 / height, 0.88, (top - 0.62) / height))
        lift = 0.022 * max(most, 1)
        for number, method in enumerate(methods):
            colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
            attempts = result.of(method)
            raised = lift * (number - (len(methods) - 1) / 2)
            x, y = mean_curve(attempts)
            axes.step(x, np.asarray(y) + raised, where="post", color=colour, lw=2, zorder=3)
            look: dict[str, Any] = {"color": colour, "ms": 6.5, "mec": "white", "mew": 0.8}
            ends = [each.found for each in attempts]
            if len(attempts) > 1:
                # a column of its own, so that the ends of methods do not hide each other
                beside = [far * (1.04 + 0.022 * number)] * len(ends)
                axes.plot(beside, ends, mark, **look, zorder=4, clip_on=False)
            else:
                axes.plot(x[-1:], [ends[0] + raised], mark, **look, zorder=4, clip_on=False)
            label = as_text(cut(name_of(method), 28))
            axes.plot([], [], mark, ls="-", lw=2, label=label, **look)
        _axes(axes, most, far * (1.06 + 0.022 * len(methods) * (len(result.seeds) > 1)))
        figure.text(
            0.12 / width, 1 - 0.12 / height, "Verified memorized images found, by cost",
            va="top", fontweight="bold", fontsize=11.5,
        )  # fmt: skip
        seeds = "; marks: single seeds" if len(result.seeds) > 1 else ""
        told = as_text(cut(f"{budget_of(result)}{seeds}", 116))
        figure.text(0.12 / width, 1 - 0.37 / height, told, va="top", fontsize=9, color=QUIET)
        figure.legend(
            loc="upper left", ncols=ACROSS, fontsize=9, borderaxespad=0, borderpad=0,
            bbox_to_anchor=(0.12 / width, 1 - 0.6 / height), handlelength=1.6, columnspacing=1.4,
            labelspacing=0.35,
        )  # fmt: skip
        return saved(figure, "compare discoveries")


def mean_curve(attempts: Sequence[Attempt]) -> tuple[list[float], list[float]]:
    """Return the mean number of images known after so many passes, over the attempts.

    Returns:
        Passes in ascending order, and the mean from each of them on.
    """
    curves = [each.discoveries() for each in attempts]
    at = sorted({x for curve in curves for x, _ in curve})
    means = [sum(_known(curve, x) for curve in curves) / len(curves) for x in at]
    return at, means


def _known(curve: Sequence[tuple[float, int]], x: float) -> int:
    return max((found for passes, found in curve if passes <= x), default=0)


def _axes(axes: Any, most: int, right: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, right)
    room = 0.08 * max(most, 1)
    axes.set_ylim(-room, max(most, 1) + 1.5 * room)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel("passes of the network: search, then images of one candidate after another")
    axes.set_ylabel("distinct memorized images")
