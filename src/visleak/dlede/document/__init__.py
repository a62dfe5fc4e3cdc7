"""A result as a document and as files: tables 1 to 5 of Babu et al. (2025), and more."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.dlede.document.figures import figures, mean_and_deviation
from visleak.dlede.document.text import (
    about,
    class_drift,
    headline,
    labelled,
    reading,
    shares,
    statements,
)
from visleak.dlede.hashes import CUTS
from visleak.dlede.judge import RULES
from visleak.dlede.results import (
    UNKNOWN,
    ClassCounts,
    DLeDeResult,
    Judgement,
    MetricJudgement,
    StepScore,
    certainty,
    in_order,
    interval,
    metric_name,
    percent,
    rise,
    score,
    with_deviation,
)
from visleak.reporting import Column, Document, Figure, Table, latex, markdown
from visleak.reporting.markup import Grid
from visleak.stats.bootstrap import Estimate
from visleak.storage import File, RunFolder

KIND: Final = "visleak dlede"
SHEET: Final = "phash-pairs.png"  # the sheet of the most similar pairs by perceptual hash
#: Metrics side by side (more would be wider than a page), classes and steps of the table of
#: classes, and pairs of the table of similar images.
METRICS: Final = 5
CLASSES: Final = 20
STEPS: Final = 4
PAIRS: Final = 10
_CLASS_COLUMNS: Final = (
    Column("class"),
    Column("set"),
    Column("step", pa.int64()),
    Column("images", pa.float64()),
    Column("objects", pa.float64()),
)


def folder_of(path: str | os.PathLike[str]) -> RunFolder:
    """Return the folder of a result."""
    return RunFolder(path, KIND)


def read_result(path: str | os.PathLike[str]) -> DLeDeResult:
    """Return the result in a folder."""
    return folder_of(path).read(DLeDeResult)


def write(
    result: DLeDeResult, path: str | os.PathLike[str], *, sheet: bytes | None = None
) -> Document:
    """Write the files of a result into a folder, ``dlede.json`` last; training runs stay."""
    drawn = figures(result)
    made = document(result, drawn, sheet=bool(sheet))
    tables = {
        "curve.csv": curve_table(result),
        "increases.csv": increases_table(result),
        "phash.csv": hash_table(result),
        "class_counts.csv": class_table(result),
    }
    files: dict[str, File] = {"dlede.md": markdown(made), "dlede.tex": latex(made), SHEET: sheet}
    files |= {name: table.arrow() if table.rows else None for name, table in tables.items()}
    for figure in drawn:
        files |= figure.by_name()
    folder = folder_of(Path(path))
    folder.finish(folder.document(made.headline, result), files)
    return made


def document(result: DLeDeResult, drawn: Sequence[Figure] = (), *, sheet: bool = False) -> Document:
    """Return a result as a document."""
    return Document(
        title="D-LeDe: leakage by retraining",
        headline=headline(result),
        lines=(*statements(result), *result.notes),
        tables=tuple(tables(result)),
        figures=tuple(drawn),
        images=(("Most similar pairs by perceptual hash", SHEET),) if sheet else (),
        notes=(about(result),),
        reading=tuple(reading(result)),
    )


def tables(result: DLeDeResult) -> Iterator[Table | Grid]:
    """Yield the tables for people, the most important first."""
    if not result.proof:
        curves = list(_curves(result))
        yield from curves[:1]
        yield verdicts(result)
        yield from curves[1:]
    yield hash_table(result)
    if result.hashes is not None:
        pairs = [[each.test, each.train, f"{each.distance}"] for each in result.hashes.most_similar]
        header = ["test", "train", "distance"]
        yield Grid("Most similar pairs by perceptual hash", header, pairs[:PAIRS], texts=2)
    if result.class_counts is not None and result.class_counts.classes:
        yield from _classes(result.class_counts)
    yield _gains(result)
    yield from _calibration(result)
    yield from _convergence(result)
    yield Grid(
        "Training runs that failed twice",
        ["leaked %", "repetition", "reason", "log"],
        [[f"{each.step}", f"{each.repetition}", each.reason, each.log] for each in result.failed],
        texts=4,
    )
    yield increases_table(result)


def curve_table(result: DLeDeResult) -> Table:
    """Return ``curve.csv``, one row per training run; ``--scores`` reads it."""
    scores = result.scores
    names = in_order(scores.metrics)
    values = scores.values[[scores.metrics.index(metric) for metric in names]]
    rows = [
        [step, repetition, *values[:, place, at].tolist()]
        for place, repetition in enumerate(scores.repetitions)
        for at, step in enumerate(scores.steps)
        if np.isfinite(values[:, place, at]).any()
    ]
    keys = (Column("step", pa.int64()), Column("repetition", pa.int64()))
    metrics = (Column(name, pa.float64()) for name in names)
    return Table("Scores of the training runs", (*keys, *metrics), rows)


def _curves(result: DLeDeResult) -> Iterator[Grid]:
    """Yield scores and relative increases by step, in the layout of tables 1, 3 and 4."""
    deciding = [each.metric for each in result.judgement.metrics]
    metrics = in_order(result.scores.metrics, deciding)
    groups = [metrics[at : at + METRICS] for at in range(0, len(metrics), METRICS)]
    title = "Scores by share of leaked test images"
    if any(result.scores.count(step) > 1 for step in result.scores.steps):
        title += ", mean ± standard deviation"
    for at, group in enumerate(groups, 1):
        yield _curve(
            result, group, title if len(groups) == 1 else f"{title} ({at} of {len(groups)})"
        )


def _curve(result: DLeDeResult, metrics: Sequence[str], title: str) -> Grid:
    scores, decided_by = result.scores, result.judgement.decided_by
    rises = {
        each.metric: {step.step: increase.value for step, increase in increases(each)}
        for each in result.judgement.metrics
    }
    deciding = [metric for metric in metrics if metric in rises]
    header = ["leaked %", "runs", *(labelled(metric, result) for metric in metrics)]
    header += [f"R {metric_name(metric)} %" for metric in deciding]
    rows = []
    for step in scores.steps:
        complete = scores.complete(decided_by).sum() if step in decided_by else scores.count(step)
        cells = [f"{step}", f"{complete:,}"]
        cells += [with_deviation(*mean_and_deviation(result, name, step)) for name in metrics]
        rows.append([*cells, *(rise(rises[name].get(step, math.nan)) for name in deciding)])
    if deciding:
        title += "; R: relative increase over the step before"
    return Grid(title, header, rows)


def increases(judged: MetricJudgement) -> Iterator[tuple[StepScore, Estimate]]:
    """Yield each step of a metric with its increase; that of the first is unknown."""
    for place, step in enumerate(judged.steps):
        yield step, step.increase if place else Estimate(math.nan)


def _with_ends(estimate: Estimate, text: Callable[[float], str]) -> str:
    ends = interval(text(estimate.low), text(estimate.high))
    return text(estimate.value) + (f" ({ends})" if ends != UNKNOWN else "")


def increases_table(result: DLeDeResult) -> Table:
    """Return the deciding metrics with intervals: ``increases.csv``."""
    shown = [
        Column("", heading="metric"),
        Column("metric"),
        Column("less_is_better", pa.bool_()),
        Column("step", pa.int64(), "leaked %", number=True),
        Column("training_runs", pa.int64(), "runs", number=True),
        *(Column(name, pa.float64()) for name in ("mean", "mean_low", "mean_high")),
        Column("", heading="mean (95 % CI)", number=True),
        Column("deviation", pa.float64(), "deviation", score, number=True),
        *(Column(name, pa.float64()) for name in ("increase", "increase_low", "increase_high")),
        Column("", heading="increase % (95 % CI)", number=True),
        Column(
            "certainty_above",
            pa.float64(),
            f"certainty above {percent(result.judgement.threshold)}",
            certainty,
            number=True,
        ),
    ]
    rows = [
        [
            *(labelled(judged.metric, result), judged.metric, judged.lower),
            *(step.step, step.training_runs, step.mean.value, step.mean.low, step.mean.high),
            *(_with_ends(step.mean, score), step.deviation),
            *(increase.value, increase.low, increase.high, _with_ends(increase, rise), step.above),
        ]
        for judged in result.judgement.metrics
        for step, increase in increases(judged)
    ]
    return Table("Deciding metrics with intervals", tuple(shown), rows, "increases.csv")


def verdicts(result: DLeDeResult) -> Grid:
    """Return the verdict of each metric by each rule, and of all together."""
    judged = result.judgement
    header = ["rule", "metric", "increase %", "95 % CI", "on the means", "leaks", "clean"]
    rows = [row for each in (judged, *result.others) for row in _verdict_rows(each)]
    compared = "; ".join(
        f"{each.rule}: {RULES[each.rule].compared}" for each in (judged, *result.others)
    )
    title = (
        f"Verdicts at a threshold of {percent(judged.threshold)} by the steps"
        f" {', '.join(map(str, judged.decided_by))} % ({compared}; leaks, clean: certainties, a"
        f" verdict requires {percent(judged.certainty)})"
    )
    bold = frozenset((len(judged.metrics), at) for at in range(len(header) + 1))
    return Grid(title, [*header, "verdict"], rows, texts=2, bold=bold)


def _verdict_rows(judged: Judgement) -> Iterator[list[str]]:
    for each in judged.metrics:
        ends = interval(rise(each.statistic.low), rise(each.statistic.high))
        named = [judged.rule, metric_name(each.metric), rise(each.statistic.value), ends]
        yield [*named, each.on_means, *_certainties(each, bool(each.reason)), each.verdict]
    certainties = _certainties(judged, any(each.reason for each in judged.metrics))
    together = [judged.rule, "together", UNKNOWN, UNKNOWN]
    yield [*together, judged.on_means, *certainties, judged.verdict]


def _certainties(judged: Judgement | MetricJudgement, unknown: bool) -> list[str]:
    if unknown:
        return [UNKNOWN, UNKNOWN]
    return [certainty(judged.leaking), certainty(judged.clean)]


def hash_table(result: DLeDeResult) -> Table:
    """Return tables 2 and 5 with every cut: ``phash.csv``."""
    found = result.hashes
    headings = {
        "distance": "distance",
        "pairs": "pairs",
        "pairs_up_to": "up to it",
        "nearest": "nearest of test images",
        "nearest_up_to": "up to it",
    }
    columns = (
        *(Column(name, pa.int64(), text, number=True) for name, text in headings.items()),
        Column("", pa.float64(), "% of the test set", lambda share: f"{share:.2f}", number=True),
    )
    if found is None:
        return Table("", columns, [])
    counts = (found.histogram, accumulate(found.histogram), found.nearest)
    rows = [
        [at, *row, upto, 100.0 * upto / found.test if found.test else math.nan]
        for at, (*row, upto) in enumerate(zip(*counts, accumulate(found.nearest), strict=True))
    ]
    title = (
        f"Perceptual hashes: {found.test:,} test images against {found.train:,} training images by"
        " Hamming distance"
    )
    return Table(title, columns, rows, "phash.csv", limit=CUTS + 1)


def class_table(result: DLeDeResult) -> Table:
    """Return ``class_counts.csv``: one row per class and set, the training set at every step."""
    found = result.class_counts
    rows: list[list[object]] = []
    if found is None:
        return Table("Classes", _CLASS_COLUMNS, rows)
    for at, name in enumerate(found.classes):
        tested = found.test_objects[at] if found.test_objects else None
        rows.append([name, "test", None, found.test_images[at], tested])
        for place, step in enumerate(found.steps):
            trained = found.objects[place][at] if found.objects else None
            rows.append([name, "train", step, found.images[place][at], trained])
    return Table("Classes", _CLASS_COLUMNS, rows)


def _classes(found: ClassCounts) -> Iterator[Grid]:
    """Yield a table of images and one of objects, the classes that change most first."""
    order = [found.classes.index(name) for name, *_ in class_drift(found)]
    last = len(found.steps) - 1
    places = list(range(last + 1)) if last < STEPS else [*range(STEPS - 1), last]
    header = ["class", "test", *(f"train at {found.steps[at]} %" for at in places)]
    both = (
        ("Images", found.test_images, found.images),
        ("Objects", found.test_objects, found.objects),
    )
    for what, test, counts in both:
        if not counts:
            continue
        by_step, rows = [shares(row) for row in counts], []
        for at in order[:CLASSES]:
            cells = [found.classes[at], f"{test[at]:,}", *(_mean(counts[p][at]) for p in places)]
            change = round(100.0 * (by_step[-1][at] - by_step[0][at]), 2) + 0.0
            rows.append([*cells, f"{change:+.2f}" if change else "0.00"])
        title = f"{what} of each class in the test set and in training, by step"
        if len(order) > CLASSES:
            title += f"; {CLASSES} of {len(order):,} classes, class_counts.csv has all"
        yield Grid(title, [*header, "change, points"], rows)


def _mean(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _gains(result: DLeDeResult) -> Grid:
    header = ["metric", "leaked %", "leaked images", "their gain (95 % CI)"]
    rows = []
    for each in result.memory:
        gains = [_with_ends(gain, score) for gain in (each.leaked, each.others)]
        rows.append([metric_name(each.metric), f"{each.step}", _mean(each.images), *gains])
    title = "Gain of leaked test images over no leak, and of the others"
    return Grid(title, [*header, "gain of the others (95 % CI)"], rows)


def _calibration(result: DLeDeResult) -> Iterator[Grid]:
    """Yield the results of the same protocol on clean splits of the same images."""
    found = result.calibration
    if found is None:
        return
    names = [each.metric for each in result.judgement.metrics]
    sizes = ("test_images", "test_groups", "training_images", "training_groups")
    header = ["clean split", *(size.replace("_", " ") for size in sizes)]
    header += [f"{metric_name(name)} %" for name in names]
    rows = []
    for number, (split, judged) in enumerate(zip(found.splits, found.judgements, strict=True), 1):
        by_metric = {each.metric: each.statistic.value for each in judged.metrics}
        cells = [f"{number}"]
        cells += [f"{split[size]:,}" if size in split else UNKNOWN for size in sizes]
        cells += [rise(by_metric.get(name, math.nan)) for name in names]
        counts = (f"{judged.repetitions:,}", f"{judged.left_out:,}")
        rows.append([*cells, *counts, judged.on_means, judged.verdict])
    limit = "too few to give a threshold"
    if not math.isnan(found.threshold):
        limit = (
            f"threshold {rise(found.threshold)} %, which the next clean split is below with"
            f" probability {percent(found.alpha)}"
        )
    title = (
        f"The {RULES[result.judgement.rule].compared} on clean splits of the same images,"
        f" {found.groups:,} groups; {limit}"
    )
    yield Grid(title, [*header, "repetitions", "excluded", "on the means", "verdict"], rows)


def _convergence(result: DLeDeResult) -> Iterator[Grid]:
    if result.convergence is None:
        return
    rows = []
    for row in result.convergence.rows:
        scores = map(score, (row.usual, row.longer, row.longer - row.usual))
        rows.append([metric_name(row.metric), f"{row.step}", f"{row.repetitions:,}", *scores])
    epochs = (f"{epochs:,} epochs" for epochs in result.convergence.epochs)
    header = ["metric", "leaked %", "repetitions", *epochs, "change"]
    yield Grid("Scores after longer training", header, rows)
