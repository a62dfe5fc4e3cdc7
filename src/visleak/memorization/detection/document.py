"""A detection as a document, its files, and figures: distribution of D, ROC curve, tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.memorization.detection.records import (
    LABELS,
    NOISE,
    Attribution,
    Detection,
    Listing,
    estimate,
    name_of_d,
    number,
)
from visleak.memorization.scores import Scores
from visleak.quantities import counted
from visleak.rates import percent
from visleak.records import Float64, Int64
from visleak.reporting import Column, Document, Figure, Table, markdown
from visleak.reporting.drawing import COLOURS, INK, QUIET, as_text, cut, figure_of, saved, titled
from visleak.reporting.markup import Grid
from visleak.stats.separation import Separation, Threshold, roc_points
from visleak.storage import File

#: Colours of kinds of prompts.
KINDS: Final = {
    "memorized": COLOURS[1],
    "prompts": COLOURS[1],
    "not memorized": COLOURS[0],
    "general": COLOURS[0],
}

BINS: Final = 48
#: So few prompts are drawn as a mark each.
FEW: Final = 60
#: Where the largest score is this many times the smallest, the axis is logarithmic.
WIDE: Final = 100.0
#: Prompts and tokens that a figure has room for, and characters of a token; the tables have all.
PROMPTS: Final = 12
TOKENS: Final = 60
LONGEST_TOKEN: Final = 28
#: Inches of a figure of tokens: width, margin, a line, between prompts.
WIDTH: Final = 7.4
MARGIN: Final = 0.14
LINE: Final = 0.27
BETWEEN: Final = 0.09


def scores_figure(result: Detection, listing: Listing, d: Float64) -> dict[str, bytes]:
    """Return the distribution of D by kind of prompt as SVG and PNG."""
    kinds = np.array(listing.kinds)
    shown = [spread.kind for spread in result.spreads]
    colours = [KINDS[kind] for kind in shown]
    if len(set(colours)) < len(shown):
        colours = [COLOURS[place % len(COLOURS)] for place in range(len(shown))]
    with figure_of((WIDTH, 3.9)) as figure:
        axes = figure.add_axes((0.095, 0.135, 0.885, 0.66))
        edges = _edges(axes, d)
        for place, (kind, colour) in enumerate(zip(shown, colours, strict=True)):
            own = d[kinds == kind]
            # on a logarithmic axis there is no place for 0
            inside = np.clip(own, edges[0], edges[-1])
            heights = np.histogram(inside, edges)[0] / len(own)
            label = f"{kind} ({len(own):,})"
            axes.stairs(heights, edges, fill=True, color=colour, alpha=0.28, zorder=2)
            axes.stairs(heights, edges, color=colour, lw=1.6, zorder=3, label=label)
            if len(own) <= FEW:
                below = np.full(len(own), -0.02 - 0.025 * place)
                axes.plot(
                    inside, below, "|", color=colour, ms=7, mew=1.2, clip_on=False,
                    transform=axes.get_xaxis_transform(),
                )  # fmt: skip
        axes.set_ylim(bottom=0)
        if result.threshold is not None and edges[0] <= result.threshold.value <= edges[-1]:
            value = result.threshold.value
            label = f"threshold {number(value)}"
            axes.axvline(value, color=INK, lw=1.2, ls=(0, (4, 2)), zorder=4, label=label)
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        axes.tick_params(axis="x", pad=9)
        axes.set_xlabel(f"{name_of_d(result.settings)}: larger is more likely memorized")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        # beside the title: bars may be anywhere
        figure.legend(loc="upper right", fontsize=9, ncols=2, columnspacing=1.2)
        model = as_text(cut(str(result.model.get("name", "model")), 40))
        many = counted(result.settings["noises"], "noise")
        below_title = f"{model}, {many}, timestep {result.timestep:g}"
        titled(figure, "The trigger score D of prompts", below_title)
        return saved(figure, "detect scores")


def _edges(axes: Any, d: Float64) -> Float64:
    positive = d[d > 0]
    if len(positive) and float(positive.max()) > WIDE * float(np.quantile(positive, 0.01)):
        axes.set_xscale("log")
        low = float(np.quantile(positive, 0.001))
        return np.geomspace(low * 0.98, float(positive.max()) * 1.02, BINS + 1)
    low, high = float(d.min()), float(d.max())
    room = 0.02 * (high - low) or 0.5
    return np.linspace(max(low - room, 0.0), high + room, BINS + 1)


def roc_figure(result: Detection, listing: Listing, d: Float64) -> dict[str, bytes]:
    """Return the ROC curve as SVG and PNG; nothing where there is one kind of prompts only."""
    found = result.separation
    if found is None:
        return {}
    positive, kept = listing.told_apart
    fpr, tpr, _ = roc_points(d[kept], positive[kept])
    floor = 10.0 ** (math.floor(math.log10(1.0 / found.negatives)) - 0.4)
    ticks = [10.0**place for place in range(math.ceil(math.log10(floor) + 0.3), 1)]
    with figure_of((6.0, 4.6)) as figure:
        axes = figure.add_axes((0.135, 0.125, 0.815, 0.7))
        axes.plot(
            [floor, *np.maximum(fpr, floor)], [0.0, *tpr], color=COLOURS[0], lw=2,
            label=f"AUC {estimate(found.auc)}", zorder=3, clip_on=False,
        )  # fmt: skip
        chance = np.geomspace(floor, 1.0, 60)
        axes.plot(chance, chance, color=QUIET, lw=1, ls=(0, (2, 2)), label="chance", zorder=2)
        axes.axvline(found.rate, color=INK, lw=0.8, ls=(0, (4, 2)), zorder=1)
        axes.set_xscale("log")
        axes.set_xlim(floor, 1.0)
        axes.set_xticks([floor, *ticks], ["0", *(f"{100 * tick:g} %" for tick in ticks)])
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        axes.grid(True)
        axes.set_axisbelow(True)
        axes.set_xlabel("false-positive rate (logarithmic)")
        axes.set_ylabel("true-positive rate")
        # above the axes: a curve may pass anywhere
        axes.legend(
            loc="lower left", fontsize=9, ncols=2, bbox_to_anchor=(0.0, 1.015), borderaxespad=0,
        )  # fmt: skip
        titled(figure, "Separation of prompts by D", _kinds(found))
        return saved(figure, "detect roc")


def tokens_figure(result: Detection) -> dict[str, bytes]:
    """Return prompts with coloured tokens as SVG and PNG; nothing where none was attributed."""
    from matplotlib.colors import to_rgb

    shown = result.tokens[:PROMPTS]
    if not shown:
        return {}
    with figure_of((WIDTH, 1.0)) as figure:
        lines = [_lines(figure, each) for each in shown]
    height = 0.78 + sum(LINE * (1 + len(own)) + BETWEEN for own in lines)
    left = len(result.tokens) - PROMPTS
    what = "what D loses without the word (orange) or gains (blue)"
    if shown[0].method == "gradient":
        what = "norm of D's gradient by token"
    more = f"; {left} more prompts in the table" if left > 0 else ""
    with figure_of((WIDTH, height)) as figure:
        titled(figure, "What D depends on", f"{what}, darkest the largest of its prompt{more}")
        at = height - 0.75
        for rank, (each, own) in enumerate(zip(shown, lines, strict=True), 1):
            figure.text(
                MARGIN / WIDTH, at / height, f"{rank}   D {number(each.d)}", va="center",
                fontsize=8.5, color=QUIET,
            )  # fmt: skip
            for line in own:
                at -= LINE
                for place, text, value in line:
                    colour = to_rgb(COLOURS[1] if value >= 0 else COLOURS[0])
                    share = 0.85 * min(abs(value), 1.0)
                    face = tuple(1 - share * (1 - part) for part in colour)
                    figure.text(
                        (place + 0.04) / WIDTH, at / height, text, va="center", fontsize=9.5,
                        color=INK,
                        bbox={"boxstyle": "square,pad=0.2", "facecolor": face, "edgecolor": "none"},
                    )  # fmt: skip
            at -= LINE + BETWEEN
        return saved(figure, "detect tokens")


def _lines(figure: Any, each: Attribution) -> list[list[tuple[float, str, float]]]:
    """Return the tokens as lines of place (inches), text and value relative to the largest."""
    largest = max((abs(value) for value in each.values), default=0.0) or 1.0
    lines: list[list[tuple[float, str, float]]] = [[]]
    left, renderer = MARGIN, figure.canvas.get_renderer()
    for token, value in list(zip(each.tokens, each.values, strict=True))[:TOKENS]:
        text = as_text(cut(token, LONGEST_TOKEN)) or " "
        drawn = figure.text(0, 0, text, fontsize=9.5)
        wide = float(drawn.get_window_extent(renderer).width) / figure.dpi + 0.13
        drawn.remove()
        if left + wide > WIDTH - MARGIN and lines[-1]:
            lines.append([])
            left = MARGIN
        lines[-1].append((left, text, value / largest))
        left += wide
    if len(each.tokens) > TOKENS:
        lines.append([(MARGIN, f"… {len(each.tokens) - TOKENS} more", 0.0)])
    return lines


#: Prompts are cut to this many characters in tables for people.
LONGEST: Final = 100
#: From which share of the largest value on a token is listed in the summary.
STRONG: Final = 0.5
_RULES: Final = {
    "given": "given",
    "observed": "the share of ordinary prompts is at most",
    "bounded": "the 95 % upper bound is at most",
}

#: Columns of ``tokens.csv`` and ``tokens.parquet``.
_TOKENS: Final = tuple(
    Column(name, kind)
    for name, kind in (
        *(("rank", pa.int64()), ("prompt", pa.string()), ("d_l2", pa.float64())),
        *(("method", pa.string()), ("position", pa.int64()), ("token", pa.string())),
        ("value", pa.float64()),
    )
)


def document(result: Detection, figures: Sequence[Figure] = ()) -> Document:
    """Return a detection as a document."""
    first, *lines = headlines(result)
    notes = [*about(result), *result.notes]
    # of a list without labels the separation is not a result of its own
    if result.separation is not None and result.separation.by == "lists":
        lines, notes = [], [*lines, *notes]
    for each in result.tokens:
        largest = max(map(abs, each.values), default=0.0)
        strong = ", ".join(
            f"{token} ({value:.3g})"
            for token, value in zip(each.tokens, each.values, strict=True)
            if largest > 0 and abs(value) >= STRONG * largest
        )
        lines.append(f"tokens of {cut(each.prompt, LONGEST)} by {each.method}: {strong}")
    return Document(
        title="Trigger scores of prompts",
        headline=first,
        lines=tuple(lines),
        tables=tuple(tables(result)),
        figures=tuple(figures),
        notes=tuple(notes),
        reading=tuple(reading(result)),
    )


def headlines(result: Detection) -> list[str]:
    """Return the sentences, the most important first."""
    apart = result.separation
    if apart is None:
        return [_reached(result)]
    return [
        _reached(result),
        f"AUC {estimate(apart.auc)}, true-positive rate {estimate(apart.tpr_within)} at a"
        f" false-positive rate of {100 * apart.rate:g} % ({_kinds(apart)})",
    ]


def _reached(result: Detection) -> str:
    d, count = name_of_d(result.settings), f"{result.prompts:,} prompts"
    if result.threshold is None:
        medians = [spread.median for spread in result.spreads]
        middle = f", median {number(medians[0])}" if len(medians) == 1 else ""
        return (
            f"{count}: the highest {d} is {number(result.top[0].d)}{middle}; the threshold needs"
            " ordinary prompts (--general FILE)"
        )
    found = f"{result.reached:,} of {count} reach {d} >= {threshold_text(result.threshold)}"
    if result.known and result.threshold.negatives:
        found += f", among them {result.known_reached:,} of {result.known:,} known to be memorized"
    return f"{found} ({alarms(result.threshold)})"


def threshold_text(threshold: Threshold) -> str:
    """Return a threshold so that it can be given again."""
    return f"{threshold.value:.10g}"


def about(result: Detection) -> list[str]:
    """Return what was measured and what it cost, one line each."""
    settings, cost, model = result.settings, result.throughput, result.model
    reused = f"; {counted(cost.reused, 'score', 'was', 'were')} reused" if cost.reused else ""
    return [
        f"model {model.get('name', '')}, {model.get('device', '')} {model.get('precision', '')}; D"
        f" by {settings['norm']}, {settings['output']} output, timestep {result.timestep:g},"
        f" {counted(settings['noises'], 'noise')}, seed {settings['seed']}",
        f"{cost.passes:,} passes in {cost.seconds:.1f} s ({cost.prompts_per_second:,.1f} prompts/s,"
        f" {cost.passes_per_second:,.1f} passes/s){reused}",
    ]


def alarms(threshold: Threshold) -> str:
    """Return what is known of the false alarms of a threshold.

    >>> alarms(Threshold(0.93, "observed", 0.01, 300, 3, 0.0257))
    'false alarms: 3 of 300 ordinary prompts, 1.00 %; at most 2.57 % with 95 % confidence'
    """
    if not threshold.negatives:
        return "its rate of false alarms is not known: no ordinary prompts were given"
    share = percent(threshold.alarms / threshold.negatives)
    return (
        f"false alarms: {threshold.alarms:,} of {threshold.negatives:,} ordinary prompts,"
        f" {share} %; at most {percent(threshold.upper)} % with 95 % confidence"
    )


def _kinds(found: Separation) -> str:
    if found.by == "labels":
        return f"{found.positives:,} memorized against {found.negatives:,} others"
    return f"{found.positives:,} of the list against {found.negatives:,} general ones"


def tables(result: Detection) -> Iterator[Table | Grid]:
    """Yield the tables, the most important first."""
    d = name_of_d(result.settings)
    labelled = any(each.label is not None for each in result.top)
    top = [(cut(each.prompt, LONGEST), LABELS[each.label], number(each.d)) for each in result.top]
    hidden, show = () if labelled else ("label",), {"prompt": str}
    names, file = ("prompt", "label", d), "scores.csv"
    yield Table.of(f"Largest {d}", names, top, 2, show=show, hidden=hidden, file=file)
    if (found := result.threshold) is not None:
        rate = "" if found.rate is None else f" {100 * found.rate:g} %"
        rows = [
            ["threshold", threshold_text(found)],
            ["rule", f"{_RULES[found.rule]}{rate}"],
            ["false alarms", alarms(found).removeprefix("false alarms: ")],
        ]
        yield Grid("Threshold", ["what", "value"], rows, texts=2)
    if result.separation is not None:
        yield _separation(result.separation)
    header = ["prompts", "count", "least", "median", "95th percentile", "most"]
    rows = [
        [each.kind, f"{each.count:,}", *map(number, (each.least, each.median, each.p95, each.most))]
        for each in result.spreads
    ]
    yield Grid(f"Distribution of {d}", header, rows)
    for rank, each in enumerate(result.tokens, 1):
        yield _tokens_of(each, rank)


def _separation(found: Separation) -> Grid:
    rate = f"{100 * found.rate:g} %"
    within = f"true-positive rate at the last false-positive rate <= {rate}"
    below = f"true-positive rate at the last false-positive rate < {rate} (code of Wen et al.)"
    accuracy = f"best mean accuracy (ACC of Wen et al.), at D >= {number(found.accuracy_at)}"
    rows = [
        ["AUC", estimate(found.auc)],
        [within, estimate(found.tpr_within)],
        [below, estimate(found.tpr_below)],
        [accuracy, estimate(found.accuracy)],
        ["positives", f"{found.positives:,} in {found.positive_groups:,} groups"],
        ["negatives", f"{found.negatives:,} in {found.negative_groups:,} groups"],
    ]
    name = "Memorized prompts against others" if found.by == "labels" else "List against general"
    return Grid(name, ["figure", "value"], rows, texts=2)


def _tokens_of(each: Attribution, rank: int) -> Table:
    """Return the tokens of a prompt in their order, the largest value in bold."""
    rows: list[tuple[str, float]] = list(zip(each.tokens, each.values, strict=True))
    largest = max(range(len(rows)), key=lambda at: rows[at][1], default=-1)
    if each.rest is not None:
        rows.append(("(end, padding, other text encoders)", each.rest))
    name = "gradient" if each.method == "gradient" else "D lost without it"
    title, show = f"Tokens of prompt {rank}: {cut(each.prompt, LONGEST)}", {name: "{:.4g}".format}
    bold = frozenset({(largest, name)})
    return Table.of(title, ("token", name), rows, show=show, bold=bold)


def reading(result: Detection) -> list[str]:
    """Return how to read the result, one line each."""
    lines = [
        "D is how far a prompt moves the first step of denoising away from that of the empty"
        " prompt; larger is more likely memorized, but only images decide: a high D alone is not"
        " memorization"
    ]
    if result.threshold is not None:
        lines.append(
            "a threshold belongs to this model and these settings; its bound holds for prompts"
            " drawn independently like the ordinary ones"
        )
    if result.separation is not None:
        lines.append(
            "intervals hold 95 %: whole groups of prompts that share an image are resampled, and"
            " they are never narrower than those of as many independent prompts as there are groups"
        )
    return lines


def files(result: Detection, listing: Listing, scores: Scores) -> dict[str, File]:
    """Return the tables, figures and the page of a detection, by name of file."""
    threshold = None if result.threshold is None else result.threshold.value
    d = scores.by(result.settings["norm"])

    def table(*, general: bool) -> pa.Table:
        return score_table(listing, scores, d, threshold, general=general)

    tables = {
        "scores": table(general=False),
        "general": table(general=True) if result.general else None,
        "roc": roc_table(listing, d) if result.separation else None,
        "tokens": token_table(result.tokens) if result.tokens else None,
    }
    figures = (
        Figure("scores", "The trigger score D of prompts", scores_figure(result, listing, d)),
        Figure("roc", "Separation by D", roc_figure(result, listing, d)),
        Figure("tokens", "What D depends on", tokens_figure(result)),
    )
    made: dict[str, File] = {
        f"{name}.{ending}": table for name, table in tables.items() for ending in ("parquet", "csv")
    }
    for figure in figures:
        made |= figure.by_name()
    return made | {"detect.md": markdown(document(result, figures))}


def ranked(listing: Listing, d: Float64, *, general: bool) -> Int64:
    """Return the rows of a list, those of the largest D first, ties by prompt."""
    rows = np.flatnonzero(listing.general == general).tolist()
    return np.array(sorted(rows, key=lambda row: (-d[row], listing.texts[row])), np.int64)


def score_table(
    listing: Listing, scores: Scores, d: Float64, threshold: float | None, *, general: bool
) -> pa.Table:
    """Return the scores of a list, sorted by D; unknown values are null."""
    rows = ranked(listing, d, general=general)

    def error(values: Float64) -> pa.Array:
        """Return the standard error of the mean over noises; unknown where there is one noise."""
        count = values.shape[1]
        if count < 2:
            return pa.nulls(len(rows), pa.float64())
        return pa.array(values[rows].std(1, ddof=1) / math.sqrt(count))

    columns = {
        "rank": pa.array(np.arange(1, len(rows) + 1)),
        "prompt": pa.array([listing.texts[row] for row in rows], pa.string()),
        "d_l2": pa.array(scores.d_l2[rows]),
        "d_squared": pa.array(scores.d_squared[rows]),
        "d_l2_error": error(scores.l2),
        "d_squared_error": error(scores.squared),
        "label": pa.array([listing.labels[row] for row in rows], pa.bool_()),
        "reached": pa.array(
            [None if threshold is None else d[row] >= threshold for row in rows], pa.bool_()
        ),
        "group": pa.array(listing.groups[rows]),
        "sources": pa.array([list(listing.sources[row]) for row in rows], pa.list_(pa.string())),
    }
    for noise in range(scores.squared.shape[1]):
        columns[f"{NOISE}{noise + 1}"] = pa.array(scores.squared[rows, noise])
    return pa.table(columns)


def roc_table(listing: Listing, d: Float64) -> pa.Table:
    """Return the ROC curve: every threshold that makes a difference, the strictest first."""
    positive, kept = listing.told_apart
    fpr, tpr, threshold = roc_points(d[kept], positive[kept])
    # nothing reaches the first, infinity
    return pa.table({"threshold": threshold[1:], "fpr": fpr[1:], "tpr": tpr[1:]})


def token_table(tokens: Sequence[Attribution]) -> pa.Table:
    """Return the tokens of prompts, those of the largest D first, in the order of the prompt."""
    rows: list[tuple[object, ...]] = [
        (rank, each.prompt, each.d, each.method, place, token, value)
        for rank, each in enumerate(tokens, 1)
        for place, (token, value) in enumerate(zip(each.tokens, each.values, strict=True), 1)
    ]
    return Table("Tokens", _TOKENS, rows).arrow()
