"""The figures: scores by leak, relative increases by step. The same numbers give the same bytes.

After figures 3 to 6 of Babu et al. 2025. Shares have an axis from 0 to 1, increases one that holds
zero and the threshold: a flat curve looks flat, whatever its digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from visleak.dlede.numbers import in_order, metric_name, percent, rise
from visleak.dlede.results import DLeDe, MetricJudgement, StepScore
from visleak.dlede.tables import compared_by, mean_and_deviation, named
from visleak.drawing import as_text, cut, figure_of, saved
from visleak.records import Float64

#: Colours that differ for colour-blind readers too (Wong 2011), and marks that differ in print.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKS: Final = ("o", "s", "^", "D", "v", "P")

INK: Final = "#1d2127"
QUIET: Final = "#5b636d"
SHADE: Final = "#f0f2f5"

#: Metrics of one unit that are drawn, and panels of other units; tables have all.
SERIES: Final = len(COLOURS)
UNITS: Final = 2

#: Names are cut to this many characters.
LONGEST: Final = 24

#: Inches: width of a figure in a folder and on a page, and what stands above and below a panel.
WIDE: Final = (7.4, 5.6)
ABOVE: Final = 0.72
LINE: Final = 0.22
UNDER: Final = 0.56

#: Bars that have room for their numbers, and steps for both their ends.
NUMBERED: Final = 8
SPELT: Final = 5

#: Room beyond what is drawn, as a share of it: a number fits into it.
ROOM: Final = 0.12


def curve(result: DLeDe, *, small: bool = False) -> dict[str, bytes]:
    """Return the metrics by share of leaked test images, as SVG and PNG (figures 3 and 5).

    Args:
        result: what was found.
        small: for a page.
    """
    panels, left = _panels(result)
    if not panels:
        return {}
    width, tall = WIDE[small], 2.9 if small else 3.5
    styles = _styles(result, [metric for metrics in panels for metric in metrics])
    rows = _legend_rows(styles, width)
    top = ABOVE + rows * LINE
    height = top + len(panels) * (tall + UNDER)
    with figure_of((width, height)) as figure:
        for at, metrics in enumerate(panels):
            bottom = height - top - (at + 1) * tall - at * UNDER
            axes = figure.add_axes((0.62 / width, bottom / height, 1 - 0.8 / width, tall / height))
            _curves(axes, result, {metric: styles[metric] for metric in metrics})
        title = "Scores as test images leak into training"
        more = f"; {left} more in the tables" if left else ""
        _write_above(figure, title, _told(result) + more, (width, height))
        _legend(figure, styles, (width, height), rows)
        return saved(figure, "dlede curve")


def _styles(result: DLeDe, metrics: Sequence[str]) -> dict[str, int]:
    """Return which colour and mark each metric has: in both figures the same."""
    deciding = [each.metric for each in result.judgement.metrics]
    order = sorted(metrics, key=lambda m: deciding.index(m) if m in deciding else len(deciding))
    return {metric: order.index(metric) for metric in metrics}


def _panels(result: DLeDe) -> tuple[list[list[str]], int]:
    """Return the metrics of each panel, shares in the first, and how many are left out."""
    values = result.scores.values
    order = in_order(result.scores.metrics)
    whole = dict(zip(result.scores.metrics, values, strict=True))
    known = [m for m in order if np.isfinite(whole[m]).any()]
    shares = [m for m in known if np.nanmin(whole[m]) >= 0.0 and np.nanmax(whole[m]) <= 1.0]
    deciding = [each.metric for each in result.judgement.metrics]
    first = sorted(shares, key=lambda metric: metric not in deciding)[:SERIES]
    others = [m for m in known if m not in shares]
    others = sorted(others, key=lambda metric: metric not in deciding)
    panels = [sorted(first, key=order.index)] if first else []
    room = min(UNITS, SERIES - len(first))
    panels += [[metric] for metric in others[:room]]
    return panels, len(known) - sum(map(len, panels))


def _curves(axes: Any, result: DLeDe, styles: Mapping[str, int]) -> None:
    """Draw the metrics of one panel."""
    steps = result.scores.steps
    gap = min(np.diff(steps))
    judged = {each.metric: each for each in result.judgement.metrics}
    for place, (metric, style) in enumerate(styles.items()):
        aside = (place - (len(styles) - 1) / 2) * 0.07 * gap
        at = np.array(steps, np.float64) + aside
        colour, decides = COLOURS[style], metric in judged
        _points(axes, at, result.scores.of(metric), colour)
        means = [mean_and_deviation(result, metric, step)[0] for step in steps]
        axes.plot(
            at, means, color=colour, lw=2.0 if decides else 1.2, marker=MARKS[style],
            ls="-" if decides else (0, (4, 2)), ms=5 if decides else 4, zorder=4,
        )  # fmt: skip
        for x, step in zip(at, judged[metric].steps if decides else (), strict=False):
            ends = [step.mean.low, step.mean.high]
            axes.plot([x, x], ends, color=colour, lw=1.3, alpha=0.8, zorder=3)
    axes.set_xlim(steps[0] - 0.35 * gap, steps[-1] + 0.35 * gap)
    axes.set_xticks(steps, [f"{step}" for step in steps], fontsize=9)
    axes.set_xlabel("test images that leaked into training, %", fontsize=9.5)
    shares = result.scores.values[[result.scores.metrics.index(m) for m in styles]]
    if np.nanmin(shares) >= 0.0 and np.nanmax(shares) <= 1.0:
        axes.set_ylim(0.0, 1.0)
        axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    else:
        axes.set_ylabel(as_text(cut(named(next(iter(styles)), result), 2 * LONGEST)), fontsize=9.5)
    axes.tick_params(axis="y", labelsize=9)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _points(axes: Any, at: Float64, values: Float64, colour: str) -> None:
    """Draw single trainings as faint dots, where there are several."""
    if len(values) < 2:
        return
    x = np.broadcast_to(at, values.shape)
    known = np.isfinite(values)
    axes.plot(x[known], values[known], ".", color=colour, ms=4.5, mew=0, alpha=0.35, zorder=2)


def _told(result: DLeDe) -> str:
    counts = [result.scores.count(step) for step in result.scores.steps]
    low, high = min(counts), max(counts)
    if high < 2:
        return "one repetition, so there are no intervals"
    runs = f"{high:,}" if low == high else f"{low:,} to {high:,}"
    return f"means of {runs} repetitions; lines: 95 % intervals of what decides; dots: trainings"


def increases(result: DLeDe, *, small: bool = False) -> dict[str, bytes]:
    """Return the relative increases by step with the threshold, as SVG and PNG (figures 4 and 6).

    Args:
        result: what was found.
        small: for a page.
    """
    judged = [m for m in result.judgement.metrics if len(m.steps) > 1][:SERIES]
    if not judged:
        return {}
    width, tall = WIDE[small], 2.6 if small else 3.1
    styles = {each.metric: number for number, each in enumerate(judged)}
    rows = _legend_rows(styles, width)
    top = ABOVE + rows * LINE
    height = top + tall + UNDER
    left = len(result.judgement.metrics) - len(judged)
    with figure_of((width, height)) as figure:
        axes = figure.add_axes((0.62 / width, UNDER / height, 1 - 1.86 / width, tall / height))
        drawn, ends = _reach(result, judged)
        axes.set_ylim(*ends)
        shaded = _shade(axes, result, judged[0].steps)
        for number, each in enumerate(judged):
            _bars(axes, each, number, len(judged), drawn)
        _thresholds(axes, result, ends, tall)
        _axes_of_increases(axes, judged[0].steps)
        title = "Relative increase of the scores by each step"
        more = f"; {left} more in the tables" if left else ""
        compared = compared_by(result.judgement.rule)
        told = f"{result.judgement.rule}: the {compared} decides"
        told += "; shaded: the steps that decide" if shaded else ""
        _write_above(figure, title, told + more, (width, height))
        _legend(figure, styles, (width, height), rows, bars=True)
        return saved(figure, "dlede increases")


#: Lowest and highest value, in percent.
Reach = tuple[float, float]


def _reach(result: DLeDe, judged: Sequence[MetricJudgement]) -> tuple[Reach, Reach]:
    """Return what is drawn, and the ends of the axis, which leave room for a number beyond it.

    Drawn are zero, the threshold, all bars, and most intervals.
    """
    values = [100.0 * result.judgement.threshold, *_calibrated(result).values()]
    values += [100.0 * s.increase.value for each in judged for s in each.steps[1:]]
    known = [value for value in values if not math.isnan(value)]
    furthest = 2.5 * max(abs(value) for value in known)
    ends = [
        100.0 * end
        for each in judged
        for step in each.steps[1:]
        for end in (step.increase.low, step.increase.high)
    ]
    known += [min(max(end, -furthest), furthest) for end in ends if not math.isnan(end)]
    low, high = min(0.0, *known), max(0.0, *known)
    room = ROOM * (high - low)
    return (low, high), ((low - room if low < 0 else 0.0), high + room)


def _calibrated(result: DLeDe) -> dict[str, float]:
    """Return the thresholds that are drawn, in percent, beside that of the judgement."""
    found, own = result.calibration, result.judgement.threshold
    if found is None or math.isnan(found.threshold) or math.isclose(found.threshold, own):
        return {}
    return {f"calibrated {percent(found.threshold)}": 100.0 * found.threshold}


def _shade(axes: Any, result: DLeDe, steps: Sequence[StepScore]) -> bool:
    """Shade the steps that decide, where there are others; return whether there are."""
    decide = [at for at, step in enumerate(steps[1:]) if step.step in result.judgement.decided_by]
    some = 0 < len(decide) < len(steps) - 1
    if some:
        axes.axvspan(decide[0] - 0.5, decide[-1] + 0.5, color=SHADE, lw=0, zorder=0)
    return some


def _bars(axes: Any, judged: MetricJudgement, number: int, of: int, drawn: Reach) -> None:
    """Draw the increases of a metric with their intervals, and numbers where there is room.

    An interval that goes on beyond what is drawn ends in an arrow, and the number is beyond that.
    """
    wide = 0.72 / of
    low, high = drawn
    for place, step in enumerate(judged.steps[1:]):
        x, value = place + (number - (of - 1) / 2) * wide, 100.0 * step.increase.value
        if math.isnan(value):
            continue
        axes.bar(x, value, 0.86 * wide, color=COLOURS[number], zorder=2)
        ends = [100.0 * end for end in (step.increase.low, step.increase.high)]
        # the interval of one repetition is not known
        ends = [end for end in ends if not math.isnan(end)]
        shown = [min(max(end, low), high) for end in ends]
        axes.plot([x] * len(shown), shown, color=INK, lw=1.0, zorder=3)
        for end, edge in zip(ends, shown, strict=True):
            if end != edge:
                axes.plot(x, edge, "v" if end < low else "^", ms=4, color=INK, mew=0, zorder=4)
        if of * (len(judged.steps) - 1) <= NUMBERED:
            up = value >= 0
            edge = max(value, *shown, 0.0) if up else min(value, *shown, 0.0)
            axes.annotate(
                f"{rise(step.increase.value).replace('-', '−')} %", (x, edge),
                xytext=(0, 4 if up else -4), textcoords="offset points", ha="center",
                va="bottom" if up else "top", fontsize=8, color=INK, zorder=5,
            )  # fmt: skip


def _thresholds(axes: Any, result: DLeDe, reach: tuple[float, float], tall: float) -> None:
    """Draw the thresholds, each with its name at the right, where names do not meet."""
    own = result.judgement.threshold
    found = result.calibration
    whose = "calibrated" if found and math.isclose(found.threshold, own) else "threshold"
    lines: Mapping[str, float] = {f"{whose} {percent(own)}": 100 * own}
    lines = {**lines, **_calibrated(result)}
    heights = sorted(lines.values())
    close = len(heights) > 1 and (heights[1] - heights[0]) / (reach[1] - reach[0]) * tall < 0.17
    for number, (name, value) in enumerate(lines.items()):
        axes.axhline(value, color=QUIET, lw=1.3, ls=("--", ":")[number], zorder=4)
        side = "center"
        if close:
            side = "bottom" if value == heights[1] else "top"
        axes.annotate(
            name, (1.0, value), xycoords=("axes fraction", "data"), xytext=(5, 0),
            textcoords="offset points", va=side, fontsize=8, color=QUIET, annotation_clip=False,
        )  # fmt: skip


def _axes_of_increases(axes: Any, steps: Sequence[StepScore]) -> None:
    if len(steps) - 1 <= SPELT:
        names = [f"{before.step} to {step.step}" for before, step in pairwise(steps)]
        told = "from and to so many % of the test images in training"
    else:
        names = [f"{step.step}" for step in steps[1:]]
        told = "test images in training after the step, %"
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xticks(range(len(names)), names, fontsize=9)
    axes.tick_params(axis="x", length=0)
    axes.tick_params(axis="y", labelsize=9)
    axes.set_xlabel(told, fontsize=9.5)
    axes.set_ylabel("relative increase, %", fontsize=9.5)
    axes.axhline(0, color=QUIET, lw=0.9, zorder=2)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _write_above(figure: Any, title: str, told: str, size: tuple[float, float]) -> None:
    width, height = size
    figure.text(0.1 / width, 1 - 0.1 / height, title, va="top", fontweight="bold", fontsize=11)
    figure.text(0.1 / width, 1 - 0.34 / height, told, va="top", fontsize=8.5, color=QUIET)


def _legend_rows(metrics: Iterable[str], width: float) -> int:
    """Return in how many rows the names stand, by the longest of them."""
    names = [short_name(metric) for metric in metrics]
    beside = max(1, int((width - 0.2) / (0.55 + 0.085 * max(map(len, names)))))
    return math.ceil(len(names) / beside)


def _legend(
    figure: Any,
    styles: Mapping[str, int],
    size: tuple[float, float],
    rows: int,
    *,
    bars: bool = False,
) -> None:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"lw": 0, "ms": 8, "mew": 0} if bars else {"lw": 2, "ms": 5}
    handles = [
        Line2D([], [], color=COLOURS[n], marker="s" if bars else MARKS[n], label=name, **look)
        for name, n in zip(map(short_name, styles), styles.values(), strict=True)
    ]
    figure.legend(
        handles=handles, loc="upper left", ncols=math.ceil(len(handles) / rows), fontsize=9,
        borderaxespad=0, bbox_to_anchor=(0.1 / size[0], 1 - 0.54 / size[1]), borderpad=0,
        handlelength=1.0 if bars else 1.8, columnspacing=1.4, handletextpad=0.5, labelspacing=0.35,
    )  # fmt: skip


def short_name(metric: str) -> str:
    """Return the name of a metric as text for a figure, cut if it is long."""
    return as_text(cut(metric_name(metric), LONGEST))
