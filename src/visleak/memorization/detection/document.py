"""A detection as a document and as files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.drawing import cut
from visleak.markup import Grid
from visleak.memorization.detection.figures import roc_figure, scores_figure, tokens_figure
from visleak.memorization.detection.records import (
    LABELS,
    NOISE,
    Attribution,
    Detection,
    Estimate,
    Listing,
    Separation,
    Threshold,
    estimate,
    name_of_d,
    number,
)
from visleak.memorization.scores import Scores
from visleak.reporting import Column, Document, Figure, Table, markdown
from visleak.stats import percent
from visleak.stats.ranking import roc_points
from visleak.storage import File

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

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
_TOKENS: Final = (
    Column("rank", pa.int64()),
    Column("prompt"),
    Column("d_l2", pa.float64()),
    Column("method"),
    Column("position", pa.int64()),
    Column("token"),
    Column("value", pa.float64()),
)


def document(result: Detection, figures: Sequence[Figure] = ()) -> Document:
    """Return a detection as a document."""
    first, *lines = headlines(result)
    apart = result.separation is not None and result.separation.by == "lists"
    # of a list without labels the separation is not a result of its own
    notes = (*(lines if apart else ()), *about(result), *result.notes)
    return Document(
        title="Trigger scores of prompts",
        headline=first,
        lines=(*(() if apart else lines), *_strong_tokens(result)),
        tables=tuple(tables(result)),
        figures=tuple(figures),
        notes=notes,
        reading=tuple(reading(result)),
    )


def headlines(result: Detection) -> list[str]:
    """Return the sentences, the most important first."""
    return [_reached(result), *_separated(result)]


def _reached(result: Detection) -> str:
    d, count = name_of_d(result.settings), f"{result.prompts:,} prompts"
    if result.threshold is None:
        first = result.top[0]
        median = sorted(spread.median for spread in result.spreads if spread.count)
        middle = f", median {number(median[0])}" if len(result.spreads) == 1 else ""
        return (
            f"{count}: the highest {d} is {number(first.d)}{middle}; without ordinary prompts there"
            " is no threshold (--general FILE)"
        )
    found = f"{result.reached:,} of {count} reach {d} >= {threshold_text(result.threshold)}"
    if result.known and result.threshold.negatives:
        found += f", among them {result.known_reached:,} of {result.known:,} known to be memorized"
    return f"{found} ({alarms(result.threshold)})"


def threshold_text(threshold: Threshold) -> str:
    """Return a threshold so that it can be given again."""
    return f"{threshold.value:.10g}"


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


def _separated(result: Detection) -> list[str]:
    found = result.separation
    if found is None:
        return []
    kinds = (
        f"{found.positives:,} memorized against {found.negatives:,} others"
        if found.by == "labels"
        else f"{found.positives:,} of the list against {found.negatives:,} general ones"
    )
    return [
        f"AUC {estimate(found.auc)}, true-positive rate {estimate(found.tpr_within)} at a"
        f" false-positive rate of {100 * found.rate:g} % ({kinds})"
    ]


def _strong_tokens(result: Detection) -> list[str]:
    """Return for each attributed prompt the tokens of at least half the largest value."""
    lines = []
    for each in result.tokens:
        largest = max((abs(value) for value in each.values), default=0.0)
        strong = [
            f"{token} ({value:.3g})"
            for token, value in zip(each.tokens, each.values, strict=True)
            if largest > 0 and abs(value) >= STRONG * largest
        ]
        lines.append(f"tokens of {cut(each.prompt, LONGEST)} by {each.method}: {', '.join(strong)}")
    return lines


def about(result: Detection) -> list[str]:
    """Return what was measured and what it cost, a line each."""
    settings, cost = result.settings, result.throughput
    noises = settings["noises"]
    made = (
        f"{cost.passes:,} passes in {cost.seconds:.1f} s ({cost.prompts_per_second:,.1f} prompts/s,"
        f" {cost.passes_per_second:,.1f} passes/s)"
    )
    reused = f"; {cost.reused:,} scores were reused" if cost.reused else ""
    return [
        f"model {result.model.get('name', '')}, {result.model.get('device', '')}"
        f" {result.model.get('precision', '')}; D by {settings['norm']}, {settings['output']}"
        f" output, timestep {result.timestep:g}, {noises} noise{'s' * (noises != 1)}, seed"
        f" {settings['seed']}",
        f"{made}{reused}",
    ]


def tables(result: Detection) -> list[Table | Grid]:
    """Return the tables, the most important first."""
    d = name_of_d(result.settings)
    labelled = any(each.label is not None for each in result.top)
    top = Table(
        f"Largest {d}",
        (
            Column(heading="prompt", show=lambda text: cut(text, LONGEST)),
            Column(heading="label" if labelled else ""),
            Column(heading=d, show=number, number=True),
        ),
        [(each.prompt, LABELS[each.label], each.d) for each in result.top],
        file="scores.csv",
    )
    spreads = [
        [each.kind, f"{each.count:,}", *map(number, (each.least, each.median, each.p95, each.most))]
        for each in result.spreads
    ]
    header = ["prompts", "count", "least", "median", "95th percentile", "most"]
    return [
        top,
        *([_threshold(result.threshold)] if result.threshold else []),
        *([_separation(result.separation)] if result.separation else []),
        Grid(f"Distribution of {d}", header, spreads),
        *(_tokens_of(each, rank) for rank, each in enumerate(result.tokens, 1)),
    ]


def _threshold(found: Threshold) -> Grid:
    rate = "" if found.rate is None else f" {100 * found.rate:g} %"
    rows = [
        ["threshold", threshold_text(found)],
        ["rule", f"{_RULES[found.rule]}{rate}"],
        ["false alarms", alarms(found).removeprefix("false alarms: ")],
    ]
    return Grid("Threshold", ["what", "value"], rows, texts=2)


def _separation(found: Separation) -> Grid:
    rate = f"{100 * found.rate:g} %"
    figures: Mapping[str, Estimate] = {
        "AUC": found.auc,
        f"true-positive rate at the last false-positive rate <= {rate}": found.tpr_within,
        f"true-positive rate at the last false-positive rate < {rate} (code of Wen et al.)": (
            found.tpr_below
        ),
        f"best mean accuracy (ACC of Wen et al.), at D >= {number(found.accuracy_at)}": (
            found.accuracy
        ),
    }
    rows = [[name, estimate(value)] for name, value in figures.items()]
    rows += [
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
    return Table(
        f"Tokens of prompt {rank}: {cut(each.prompt, LONGEST)}",
        (
            Column(heading="token"),
            Column(heading=name, show=lambda value: f"{value:.4g}", number=True),
        ),
        rows,
        bold=frozenset({(largest, name)}),
    )


def reading(result: Detection) -> list[str]:
    """Return how to read the result, a line each."""
    lines = [
        "D is how far a prompt moves the first step of denoising away from that of the empty"
        " prompt; larger is more likely memorized, but only images decide: a high D alone is not"
        " memorization",
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
    norm = result.settings["norm"]
    threshold = None if result.threshold is None else result.threshold.value
    _, positive = listing.compared
    kept = positive | listing.ordinary
    d = scores.by(norm)
    found = {
        "scores": score_table(listing, scores, d, threshold, general=False),
        "general": (
            score_table(listing, scores, d, threshold, general=True) if result.general else None
        ),
        "roc": roc_table(d[kept], positive[kept]) if result.separation else None,
        "tokens": token_table(result.tokens) if result.tokens else None,
    }
    figures = (
        Figure("scores", "The trigger score D of prompts", scores_figure(result, listing, d)),
        Figure("roc", "Separation by D", roc_figure(result, listing, d)),
        Figure("tokens", "What D depends on", tokens_figure(result)),
    )
    made: dict[str, File] = {
        f"{name}.{ending}": table for name, table in found.items() for ending in ("parquet", "csv")
    }
    for figure in figures:
        made |= figure.by_name()
    return made | {"detect.md": markdown(document(result, figures))}


def ranked(listing: Listing, d: Float64, *, general: bool) -> Int64:
    """Return the rows of a list, those of the largest D first, ties by prompt."""
    rows = np.flatnonzero(listing.general == general).tolist()
    return np.array(sorted(rows, key=lambda row: (-d[row], listing.texts[row])), np.int64)


def standard_error(values: Float64) -> Float64:
    """Return the standard error of the mean over noises, (n,); NaN where there is one noise.

    >>> standard_error(np.array([[1.0, 3.0]]))
    array([1.])
    """
    count = values.shape[1]
    if count < 2:
        return np.full(len(values), math.nan)
    return np.asarray(values.std(1, ddof=1) / math.sqrt(count))


def score_table(
    listing: Listing, scores: Scores, d: Float64, threshold: float | None, *, general: bool
) -> pa.Table:
    """Return the scores of a list, sorted by D.

    ``rank, prompt, d_l2, d_squared, d_l2_error, d_squared_error, label, reached, group, sources``
    and the squared score by each noise; unknown values are null.
    """
    rows = ranked(listing, d, general=general)
    errors = [standard_error(values[rows]) for values in (scores.l2, scores.squared)]
    none = pa.nulls(len(rows), pa.bool_())
    columns = {
        "rank": pa.array(np.arange(1, len(rows) + 1)),
        "prompt": pa.array([listing.texts[row] for row in rows], pa.string()),
        "d_l2": pa.array(scores.d_l2[rows]),
        "d_squared": pa.array(scores.d_squared[rows]),
        "d_l2_error": pa.array(errors[0], mask=np.isnan(errors[0])),
        "d_squared_error": pa.array(errors[1], mask=np.isnan(errors[1])),
        "label": pa.array([listing.labels[row] for row in rows], pa.bool_()),
        "reached": none if threshold is None else pa.array(d[rows] >= threshold),
        "group": pa.array(listing.groups[rows]),
        "sources": pa.array([list(listing.sources[row]) for row in rows], pa.list_(pa.string())),
    }
    for noise in range(scores.squared.shape[1]):
        columns[f"{NOISE}{noise + 1}"] = pa.array(scores.squared[rows, noise])
    return pa.table(columns)


def roc_table(d: Float64, positive: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the ROC curve: every threshold that makes a difference, the strictest first."""
    fpr, tpr, threshold = roc_points(d, positive)
    # nothing reaches the first, infinity
    return pa.table({"threshold": threshold[1:], "fpr": fpr[1:], "tpr": tpr[1:]})


def token_table(tokens: Sequence[Attribution]) -> pa.Table:
    """Return the tokens of prompts, those of the largest D first, in the order of the prompt."""
    rows: list[tuple[Any, ...]] = [
        (rank, each.prompt, each.d, each.method, place, token, value)
        for rank, each in enumerate(tokens, 1)
        for place, (token, value) in enumerate(zip(each.tokens, each.values, strict=True), 1)
    ]
    return Table("Tokens", _TOKENS, rows).arrow()
