"""The figures: scores by leak, relative increases by step, hash distances.

After figures 3 to 6 of Babu et al. 2025. Shares have an axis from 0 to 1, increases one that
contains zero and the threshold: a flat curve looks flat, whatever its digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from visleak.dlede.document.text import labelled
from visleak.dlede.hashes import CUTS, PAPER_CUT
from visleak.dlede.judge import RULES
from visleak.dlede.results import DLeDeResult, MetricJudgement, in_order, metric_name, percent, rise
from visleak.records import Float64
from visleak.reporting import Figure
from visleak.reporting.drawing import COLOURS, INK, MARKS, QUIET, as_text, cut, figure_of, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

SHADE: Final = "#f0f2f5"
#: Metrics of one unit that are drawn, and panels of other units; tables have all.
SERIES: Final = len(COLOURS)
UNITS: Final = 2
LONGEST: Final = 24  # names are cut to this many characters
WIDTH: Final = 7.0  # inches: width of a figure, and height of a panel
PANEL: Final = 3.4
NUMBERED: Final = 8  # bars that have room for their numbers, and steps for both their ends
SPELT: Final = 5
SPREAD: Final = 50  # counts that differ by more than this factor are drawn on a logarithmic axis


def figures(result: DLeDeResult) -> tuple[Figure, ...]:
    """Return the figures of a result; those that do not apply have no files."""
    drawn = (
        ("curve", "Scores by share of leaked test images", curve),
        ("increases", "Relative increases by step, and the threshold", increase_bars),
        ("phash", "Similar images by perceptual hash", hash_bars),
    )
    return tuple(Figure(name, title, draw(result), shown=True) for name, title, draw in drawn)


@contextmanager
def _panels(
    title: str, below: str, heights: Sequence[float]
) -> Iterator[tuple[Canvas, list[Axes]]]:
    """Give a figure with a title, and its panels from top to bottom."""
    with figure_of((WIDTH, sum(heights) + 0.6)) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
        axes[0].set_title(below, loc="left", fontsize=8.5, fontweight="normal", color=QUIET)
        for each in axes:
            each.grid(axis="y")
            each.set_axisbelow(True)
            each.tick_params(labelsize=9)
        yield figure, list(axes)


def _legend(figure: Canvas, names: Iterable[str], colours: Iterable[int], *, bars: bool) -> None:
    from matplotlib.lines import Line2D

    width, size, edge = (0, 8, 0) if bars else (2, 5, 1)
    handles = []
    for metric, n in zip(names, colours, strict=True):
        name, marker = as_text(cut(metric_name(metric), LONGEST)), "s" if bars else MARKS[n]
        drawn = Line2D([], [], color=COLOURS[n], marker=marker, label=name, linewidth=width)
        drawn.set(markersize=size, markeredgewidth=edge)
        handles.append(drawn)
    figure.legend(handles=handles, loc="outside lower left", ncols=min(3, len(handles)), fontsize=9)


def mean_and_deviation(result: DLeDeResult, metric: str, step: int) -> tuple[float, float]:
    """Return mean and deviation (n - 1) of a step, of complete chains where it decides."""
    scores, decided_by = result.scores, result.judgement.decided_by
    values = scores.of(metric)[:, scores.steps.index(step)]
    if step in decided_by:
        values = values[scores.complete(decided_by)]
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if len(known) else math.nan
    return mean, float(known.std(ddof=1)) if len(known) > 1 else math.nan


def curve(result: DLeDeResult) -> dict[str, bytes]:
    """Return the metrics by share of leaked test images, as SVG and PNG (figures 3 and 5)."""
    groups, hidden = _groups(result)
    if not groups:
        return {}
    counts = [result.scores.count(step) for step in result.scores.steps]
    runs = f"{max(counts):,}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts):,}"
    below = f"means of {runs} repetitions; lines: 95 % intervals of deciding metrics; dots: runs"
    if max(counts) < 2:
        below = "one repetition, so there are no intervals"
    below += f"; {hidden} more metrics in the tables" if hidden else ""
    deciding = [each.metric for each in result.judgement.metrics]
    drawn = [metric for metrics in groups for metric in metrics]
    drawn.sort(key=lambda m: deciding.index(m) if m in deciding else len(deciding))
    styles = {metric: number for number, metric in enumerate(drawn)}
    title = "Scores as test images leak into training"
    with _panels(title, below, [PANEL] * len(groups)) as (figure, axes):
        for each, metrics in zip(axes, groups, strict=True):
            _draw_curves(each, result, {metric: styles[metric] for metric in metrics})
        _legend(figure, styles, styles.values(), bars=False)
        return saved(figure, "dlede curve")


def _groups(result: DLeDeResult) -> tuple[list[list[str]], int]:
    """Return the metrics of each panel, shares in the first, and the number of others."""
    order = in_order(result.scores.metrics)
    values = {metric: result.scores.of(metric) for metric in order}
    known = [metric for metric in order if np.isfinite(values[metric]).any()]
    deciding = [each.metric for each in result.judgement.metrics]
    ranked = sorted(known, key=lambda metric: metric not in deciding)
    first = [metric for metric in ranked if _is_share(values[metric])][:SERIES]
    others = [metric for metric in ranked if not _is_share(values[metric])]
    groups = [sorted(first, key=order.index)] if first else []
    groups += [[metric] for metric in others[: min(UNITS, SERIES - len(first))]]
    return groups, len(known) - sum(map(len, groups))


def _is_share(values: Float64) -> bool:
    return bool(np.nanmin(values) >= 0.0 and np.nanmax(values) <= 1.0)


def _draw_curves(axes: Axes, result: DLeDeResult, styles: Mapping[str, int]) -> None:
    steps = result.scores.steps
    gap = min(np.diff(steps))
    judged = {each.metric: each for each in result.judgement.metrics}
    for place, (metric, style) in enumerate(styles.items()):
        at = np.array(steps, np.float64) + (place - (len(styles) - 1) / 2) * 0.07 * gap
        values, colour = result.scores.of(metric), COLOURS[style]
        if len(values) > 1:
            known = np.isfinite(values)
            x = np.broadcast_to(at, values.shape)[known]
            axes.plot(x, values[known], ".", color=colour, ms=4.5, mew=0, alpha=0.35, zorder=2)
        decides = metric in judged
        width, line, size = (2.0, "-", 5) if decides else (1.2, (0, (4, 2)), 4)
        means = [mean_and_deviation(result, metric, step)[0] for step in steps]
        mark = MARKS[style]
        axes.plot(at, means, color=colour, lw=width, ls=line, marker=mark, ms=size, zorder=4)
        for x, step in zip(at, judged[metric].steps if decides else (), strict=False):
            axes.plot([x, x], [step.mean.low, step.mean.high], color=colour, lw=1.3, alpha=0.8)
    axes.set_xlim(steps[0] - 0.35 * gap, steps[-1] + 0.35 * gap)
    axes.set_xticks(steps)
    axes.set_xlabel("test images that leaked into training, %", fontsize=9.5)
    if all(_is_share(result.scores.of(metric)) for metric in styles):
        axes.set_ylim(0.0, 1.0)
    else:
        name = labelled(next(iter(styles)), result)
        axes.set_ylabel(as_text(cut(name, 2 * LONGEST)), fontsize=9.5)


def increase_bars(result: DLeDeResult) -> dict[str, bytes]:
    """Return the relative increases by step with the threshold, SVG and PNG (figures 4 and 6)."""
    judged = [each for each in result.judgement.metrics if len(each.steps) > 1][:SERIES]
    if not judged:
        return {}
    steps = [step.step for step in judged[0].steps]
    decide = [at for at, step in enumerate(steps[1:]) if step in result.judgement.decided_by]
    some = 0 < len(decide) < len(steps) - 1
    rule = result.judgement.rule
    below = f"{rule}: the {RULES[rule].compared} decides" + "; shaded: the deciding steps" * some
    hidden = len(result.judgement.metrics) - len(judged)
    below += f"; {hidden} more metrics in the tables" if hidden else ""
    title = "Relative increase of the scores by each step"
    with _panels(title, below, [PANEL]) as (figure, (axes,)):
        low, high = _range(result, judged)
        room = 0.12 * (high - low)
        axes.set_ylim(low - room if low < 0 else 0.0, high + room)
        if some:
            axes.axvspan(decide[0] - 0.5, decide[-1] + 0.5, color=SHADE, lw=0, zorder=0)
        for number, each in enumerate(judged):
            _draw_bars(axes, each, number, len(judged), (low, high))
        for number, (name, value) in enumerate(_thresholds(result).items()):
            axes.axhline(value, color=QUIET, lw=1.3, ls=("--", ":")[number], zorder=4)
            axes.annotate(
                name, (1.0, value), xycoords=("axes fraction", "data"), xytext=(5, 0),
                textcoords="offset points", va=("center", "top")[number], fontsize=8,
                color=QUIET, annotation_clip=False,
            )  # fmt: skip
        names = [f"{before} to {step}" for before, step in pairwise(steps)]
        names = names if len(names) <= SPELT else [f"{step}" for step in steps[1:]]
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_xticks(range(len(names)), names)
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("share of the test images in training, %", fontsize=9.5)
        axes.set_ylabel("relative increase, %", fontsize=9.5)
        axes.axhline(0, color=QUIET, lw=0.9, zorder=2)
        _legend(figure, (each.metric for each in judged), range(len(judged)), bars=True)
        return saved(figure, "dlede increases")


def _thresholds(result: DLeDeResult) -> dict[str, float]:
    """Return the thresholds by name, in percent: that of the verdict, and a calibrated one."""
    found, own = result.calibration, result.judgement.threshold
    same = found is not None and math.isclose(found.threshold, own)
    lines = {f"{'calibrated' if same else 'threshold'} {percent(own)}": 100.0 * own}
    if found is not None and not same and not math.isnan(found.threshold):
        lines[f"calibrated {percent(found.threshold)}"] = 100.0 * found.threshold
    return lines


def _range(result: DLeDeResult, judged: Sequence[MetricJudgement]) -> tuple[float, float]:
    """Return the lowest and highest value drawn: zero, thresholds, bars and most intervals."""
    rises = [step.increase for each in judged for step in each.steps[1:]]
    values = [*_thresholds(result).values(), *(100.0 * each.value for each in rises)]
    known = [value for value in values if not math.isnan(value)]
    furthest = 2.5 * max(abs(value) for value in known)
    ends = [100.0 * end for each in rises for end in (each.low, each.high)]
    known += [min(max(end, -furthest), furthest) for end in ends if not math.isnan(end)]
    return min(0.0, *known), max(0.0, *known)


def _draw_bars(
    axes: Axes, judged: MetricJudgement, number: int, of: int, drawn: tuple[float, float]
) -> None:
    """Draw increases with intervals, and numbers if there is room; arrows beyond the axis."""
    wide = 0.72 / of
    for place, step in enumerate(judged.steps[1:]):
        x, value = place + (number - (of - 1) / 2) * wide, 100.0 * step.increase.value
        if math.isnan(value):
            continue
        axes.bar(x, value, 0.86 * wide, color=COLOURS[number], zorder=2)
        ends = [100.0 * end for end in (step.increase.low, step.increase.high)]
        ends = [end for end in ends if not math.isnan(end)]
        shown = [min(max(end, drawn[0]), drawn[1]) for end in ends]
        axes.plot([x] * len(shown), shown, color=INK, lw=1.0, zorder=3)
        for end, edge in zip(ends, shown, strict=True):
            if end != edge:
                axes.plot(x, edge, "v" if end < edge else "^", ms=4, color=INK, mew=0, zorder=4)
        if of * (len(judged.steps) - 1) <= NUMBERED:
            up = value >= 0
            text = f"{rise(step.increase.value).replace('-', '−')} %"
            edge = max(value, *shown, 0.0) if up else min(value, *shown, 0.0)
            axes.annotate(
                text, (x, edge), xytext=(0, 4 if up else -4), textcoords="offset points",
                ha="center", va="bottom" if up else "top", fontsize=8, color=INK, zorder=5,
            )  # fmt: skip


def hash_bars(result: DLeDeResult) -> dict[str, bytes]:
    """Return pairs by distance, and test images with a pair up to it, as SVG and PNG."""
    found = result.hashes
    if found is None or not sum(found.histogram[: CUTS + 1]):
        return {}
    counts = found.histogram[: CUTS + 1]
    below = f"{found.test:,} test images against {found.train:,} training images"
    title = "Similar images by perceptual hash"
    with _panels(title, below, [3.0, 2.0]) as (figure, (upper, lower)):
        upper.bar(range(len(counts)), counts, 0.8, color=COLOURS[0], zorder=2)
        known = [count for count in counts if count]
        spread = max(known) > SPREAD * min(known)
        if spread:
            upper.set_yscale("log")
            upper.set_ylim(0.5, max(known) * 4)
            upper.minorticks_off()
        for distance, count in enumerate(counts):
            if count:
                upper.annotate(
                    compact(count), (distance, count), xytext=(0, 2), textcoords="offset points",
                    ha="center", va="bottom", fontsize=7.5, color=INK, zorder=5,
                    bbox={"fc": "white", "lw": 0, "pad": 0.3},
                )  # fmt: skip
        upper.set_ylabel("pairs" + ", logarithmic" * spread, fontsize=9)
        shares = [100.0 * n / max(found.test, 1) for n in accumulate(found.nearest[: CUTS + 1])]
        lower.bar(range(len(shares)), shares, 0.8, color=COLOURS[2], zorder=2)
        lower.set_ylim(0, min(100.0, shares[-1] * 1.3) or 1.0)
        lower.set_ylabel("test images with\na pair up to it, %", fontsize=9)
        lower.set_xlabel("distance of the perceptual hashes, bits", fontsize=9.5)
        for axes in (upper, lower):
            axes.set_xticks(range(CUTS + 1))
            axes.axvline(PAPER_CUT + 0.5, color=QUIET, lw=1.1, ls="--", zorder=3)
        upper.annotate(
            "the paper's cut", (PAPER_CUT + 0.5, 1.0), xycoords=("data", "axes fraction"),
            xytext=(4, -10), textcoords="offset points", fontsize=8, color=QUIET,
        )  # fmt: skip
        return saved(figure, "dlede hashes")


def compact(count: int) -> str:
    """Format a count with three digits at most.

    >>> [compact(count) for count in (851, 3_662, 27_369, 999_600, 11_769_750)]
    ['851', '3.66k', '27.4k', '1M', '11.8M']
    """
    value, unit = float(f"{count:.3g}"), 0
    while value >= 1000.0:
        value, unit = value / 1000.0, unit + 1
    return f"{value:.3g}" + ("", "k", "M", "G", "T")[unit]
