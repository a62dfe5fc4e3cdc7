"""Figures of a detection: distribution of D, ROC curve, tokens. Same numbers, same bytes."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.drawing import as_text, cut, figure_of, saved
from visleak.memorization.detection.records import (
    Attribution,
    Detection,
    Listing,
    estimate,
    name_of_d,
    number,
)
from visleak.stats.ranking import roc_points

Float64 = npt.NDArray[np.float64]

#: Colours that differ for colour-blind readers too (Wong 2011).
COLOURS: Final = {
    "memorized": "#d55e00",
    "prompts": "#d55e00",
    "not memorized": "#0072b2",
    "general": "#0072b2",
}
INK: Final = "#1d2127"
QUIET: Final = "#5b636d"

BINS: Final = 48

#: So few prompts are drawn as a mark each.
FEW: Final = 60

#: Where the largest score is so many times the smallest, the axis is logarithmic.
WIDE: Final = 100.0


def scores_figure(result: Detection, listing: Listing, d: Float64) -> dict[str, bytes]:
    """Return the distribution of D by kind of prompt as SVG and PNG.

    Args:
        result: what was found.
        listing: its prompts.
        d: (n,), their D.
    """
    kinds = np.array(listing.kinds)
    shown = [spread.kind for spread in result.spreads]
    width, height = 7.4, 3.9
    with figure_of((width, height)) as figure:
        axes = figure.add_axes((0.095, 0.135, 0.885, 0.66))
        edges = _edges(axes, d)
        for place, kind in enumerate(shown):
            own = d[kinds == kind]
            # on a logarithmic axis there is no place for 0
            inside = np.clip(own, edges[0], edges[-1])
            heights = np.histogram(inside, edges)[0] / len(own)
            colour = (
                COLOURS[kind] if len(set(map(COLOURS.get, shown))) == len(shown) else _other(place)
            )
            axes.stairs(heights, edges, fill=True, color=colour, alpha=0.28, zorder=2)
            axes.stairs(
                heights, edges, color=colour, lw=1.6, zorder=3, label=f"{kind} ({len(own):,})"
            )
            if len(own) <= FEW:
                height_of_mark = np.full(len(own), -0.02 - 0.025 * place)
                axes.plot(
                    inside, height_of_mark, "|", color=colour, ms=7, mew=1.2, clip_on=False,
                    transform=axes.get_xaxis_transform(),
                )  # fmt: skip
        axes.set_ylim(bottom=0)
        if result.threshold is not None and edges[0] <= result.threshold.value <= edges[-1]:
            axes.axvline(result.threshold.value, color=INK, lw=1.2, ls=(0, (4, 2)), zorder=4)
            axes.annotate(
                f"threshold {number(result.threshold.value)}", (result.threshold.value, 1.0),
                xycoords=("data", "axes fraction"), xytext=(4, -4), textcoords="offset points",
                va="top", fontsize=8.5, color=INK, zorder=5,
                bbox={"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.85},
            )  # fmt: skip
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        axes.tick_params(axis="x", pad=9)
        axes.set_xlabel(f"{name_of_d(result.settings)}: larger is more likely memorized")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        # beside the title: bars may stand anywhere
        figure.legend(
            loc="upper right", fontsize=9, ncols=2, bbox_to_anchor=(1 - 0.1 / width, 1.0),
            columnspacing=1.2,
        )  # fmt: skip
        _titles(figure, "The trigger score D of prompts", _about(result), (width, height))
        return saved(figure, "detect scores")


def _edges(axes: Any, d: Float64) -> Float64:
    """Return the ends of the bars, and set the axis up for them."""
    positive = d[d > 0]
    if len(positive) and float(positive.max()) > WIDE * float(np.quantile(positive, 0.01)):
        axes.set_xscale("log")
        low = float(np.quantile(positive, 0.001))
        return np.geomspace(low * 0.98, float(positive.max()) * 1.02, BINS + 1)
    low, high = float(d.min()), float(d.max())
    room = 0.02 * (high - low) or 0.5
    return np.linspace(max(low - room, 0.0), high + room, BINS + 1)


def _other(place: int) -> str:
    return ("#d55e00", "#0072b2", "#009e73", "#cc79a7")[place % 4]


def roc_figure(result: Detection, listing: Listing, d: Float64) -> dict[str, bytes]:
    """Return the ROC curve as SVG and PNG; nothing where there is one kind of prompts only."""
    found = result.separation
    if found is None:
        return {}
    _, positive = listing.compared
    kept = positive | listing.ordinary
    fpr, tpr, _ = roc_points(d[kept], positive[kept])
    floor = 10.0 ** (math.floor(math.log10(1.0 / found.negatives)) - 0.4)
    width, height = 6.0, 4.6
    with figure_of((width, height)) as figure:
        axes = figure.add_axes((0.135, 0.125, 0.815, 0.7))
        axes.plot(
            [floor, *np.maximum(fpr, floor)], [0.0, *tpr], color="#0072b2", lw=2,
            label=f"AUC {estimate(found.auc)}", zorder=3, clip_on=False,
        )  # fmt: skip
        chance = np.geomspace(floor, 1.0, 60)
        axes.plot(chance, chance, color=QUIET, lw=1, ls=(0, (2, 2)), label="chance", zorder=2)
        axes.axvline(found.rate, color=INK, lw=0.8, ls=(0, (4, 2)), zorder=1)
        axes.plot(
            max(found.rate, floor), found.tpr_within.value, "o", ms=6, mfc="white", mec="#0072b2",
            mew=1.6, zorder=4, clip_on=False,
        )  # fmt: skip
        decades = range(math.ceil(math.log10(floor) + 0.3), 1)
        axes.set_xscale("log")
        axes.set_xlim(floor, 1.0)
        axes.set_xticks(
            [floor, *(10.0**place for place in decades)],
            ["0", *(f"{100 * 10.0**place:g} %" for place in decades)],
        )
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
        axes.grid(True)
        axes.set_axisbelow(True)
        axes.set_xlabel("false-positive rate (logarithmic)")
        axes.set_ylabel("true-positive rate")
        # above the axes: a curve may pass anywhere
        axes.legend(
            loc="lower left", fontsize=9, ncols=2, bbox_to_anchor=(0.0, 1.015), borderaxespad=0,
            borderpad=0, frameon=False,
        )  # fmt: skip
        kinds = (
            f"{found.positives:,} memorized prompts against {found.negatives:,} others"
            if found.by == "labels"
            else f"{found.positives:,} prompts of the list against {found.negatives:,} general ones"
        )
        _titles(figure, "Separation of prompts by D", kinds, (width, height))
        return saved(figure, "detect roc")


def _about(result: Detection) -> str:
    noises = result.settings["noises"]
    return (
        f"{as_text(cut(str(result.model.get('name', 'model')), 40))}, {noises}"
        f" noise{'s' * (noises != 1)}, timestep {result.timestep:g}"
    )


def _titles(figure: Any, title: str, below: str, size: tuple[float, float]) -> None:
    width, height = size
    figure.text(0.12 / width, 1 - 0.12 / height, title, va="top", fontweight="bold", fontsize=11.5)
    figure.text(0.12 / width, 1 - 0.37 / height, below, va="top", fontsize=9, color=QUIET)


#: Prompts and tokens that a figure has room for; the tables have all.
PROMPTS: Final = 12
TOKENS: Final = 60
LONGEST: Final = 28

#: Inches.
WIDTH: Final = 7.4
LINE: Final = 0.27
MARGIN: Final = 0.14
BETWEEN: Final = 0.09

#: Raises D, lowers D (Wong 2011).
MORE: Final = (213, 94, 0)
LESS: Final = (0, 114, 178)

_QUIET: Final = "#5b636d"


def tokens_figure(result: Detection) -> dict[str, bytes]:
    """Return prompts with coloured tokens as SVG and PNG; nothing where none was attributed."""
    shown = result.tokens[:PROMPTS]
    if not shown:
        return {}
    with figure_of((WIDTH, 1.0)) as figure:
        lines = [_lines(figure, each) for each in shown]
    height = 0.7 + sum(LINE * (1 + len(own)) + BETWEEN for own in lines) + 0.08
    with figure_of((WIDTH, height)) as figure:
        figure.text(
            MARGIN / WIDTH, 1 - 0.12 / height, "What D depends on", va="top",
            fontweight="bold", fontsize=11.5,
        )  # fmt: skip
        figure.text(
            MARGIN / WIDTH, 1 - 0.37 / height, _told(result), va="top", fontsize=9, color=_QUIET
        )
        at = height - 0.75
        for rank, (each, own) in enumerate(zip(shown, lines, strict=True), 1):
            figure.text(
                MARGIN / WIDTH, at / height, f"{rank}   D {number(each.d)}", va="center",
                fontsize=8.5, color=_QUIET,
            )  # fmt: skip
            for line in own:
                at -= LINE
                for left, text, value in line:
                    _draw(figure, left, at / height, text, value)
            at -= LINE + BETWEEN
        return saved(figure, "detect tokens")


def _told(result: Detection) -> str:
    first = result.tokens[0]
    left = len(result.tokens) - PROMPTS
    more = f"; {left} more prompts in the table" if left > 0 else ""
    if first.method == "gradient":
        return f"norm of D's gradient by token, darkest the largest of its prompt{more}"
    return f"what D loses without the word (orange) or gains (blue), darkest the largest{more}"


def _lines(figure: Any, each: Attribution) -> list[list[tuple[float, str, float]]]:
    """Return the tokens as lines of place (inches), text and value relative to the largest."""
    largest = max((abs(value) for value in each.values), default=0.0) or 1.0
    lines: list[list[tuple[float, str, float]]] = [[]]
    left = MARGIN
    for token, value in list(zip(each.tokens, each.values, strict=True))[:TOKENS]:
        text = as_text(cut(token, LONGEST)) or " "
        wide = _width(figure, text)
        if left + wide > WIDTH - MARGIN and lines[-1]:
            lines.append([])
            left = MARGIN
        lines[-1].append((left, text, value / largest))
        left += wide
    if len(each.tokens) > TOKENS:
        lines.append([(MARGIN, f"… {len(each.tokens) - TOKENS} more", 0.0)])
    return lines


def _width(figure: Any, text: str) -> float:
    """Return how wide a token is drawn, with its box, in inches."""
    drawn = figure.text(0, 0, text, fontsize=9.5)
    wide = drawn.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi
    drawn.remove()
    return float(wide) + 0.13


def _draw(figure: Any, left: float, at: float, text: str, value: float) -> None:
    colour = MORE if value >= 0 else LESS
    share = 0.85 * min(abs(value), 1.0)
    face = tuple((255 - share * (255 - each)) / 255 for each in colour)
    figure.text(
        (left + 0.04) / WIDTH, at, text, va="center", fontsize=9.5, color="#1d2127",
        bbox={"boxstyle": "square,pad=0.2", "facecolor": face, "edgecolor": "none"},
    )  # fmt: skip
