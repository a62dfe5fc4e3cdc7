"""What retraining says of a split, for people: tables 1 to 5 of Babu et al. (2025), and more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from visleak.dlede.makeup_view import makeup_grids
from visleak.dlede.numbers import (
    UNKNOWN,
    certainty,
    deviating,
    in_order,
    interval,
    metric_name,
    percent,
    rise,
    rise_interval,
    risen,
    score,
)
from visleak.dlede.results import Calibration, DLeDe, HashEvidence, Judgement, MetricJudgement
from visleak.dlede.rules import RULES
from visleak.markup import Grid

#: So many metrics stand side by side: more would be wider than a page.
BESIDE: Final = 5

#: Distances that tables and figures show; the paper's cut is 10, by convention.
CUTS: Final = 16
PAPER_CUT: Final = 10

#: Pairs that the table of alike pictures names.
PAIRS: Final = 10


def compared_by(rule: str) -> str:
    """Return what a rule compares with the threshold.

    >>> compared_by("both-steps"), compared_by("cumulative")
    ('largest increase', 'increase over all steps')
    """
    if RULES[rule].whole:
        return "increase over all steps"
    return "largest increase" if RULES[rule].every else "smallest increase"


def curve(result: DLeDe) -> list[Grid]:
    """Return scores and relative increases by step, in the layout of tables 1, 3 and 4."""
    deciding = [each.metric for each in result.judgement.metrics]
    metrics = in_order(result.scores.metrics, deciding)
    groups = [metrics[at : at + BESIDE] for at in range(0, len(metrics), BESIDE)]
    title = "Scores by share of leaked test images"
    if any(result.scores.count(step) > 1 for step in result.scores.steps):
        title += ", mean ± standard deviation"
    return [
        _curve(result, group, title if len(groups) == 1 else f"{title} ({at} of {len(groups)})")
        for at, group in enumerate(groups, 1)
    ]


def _curve(result: DLeDe, metrics: Sequence[str], title: str) -> Grid:
    judged = {
        each.metric: {step.step: increase.value for step, increase in risen(each)}
        for each in result.judgement.metrics
    }
    deciding = [metric for metric in metrics if metric in judged]
    header = ["leaked %", "trainings", *(named(metric, result) for metric in metrics)]
    header += [f"R {metric_name(metric)} %" for metric in deciding]
    if deciding:
        title += "; R: relative increase over the step before"
    rows = []
    for step in result.scores.steps:
        cells = [f"{step}", f"{_trainings(result, step):,}"]
        cells += [deviating(*mean_and_deviation(result, metric, step)) for metric in metrics]
        cells += [rise(judged[metric].get(step, math.nan)) for metric in deciding]
        rows.append(cells)
    return Grid(title, header, rows)


def named(metric: str, result: DLeDe) -> str:
    """Return what a metric is called, and whether less of it is better."""
    less = " (less is better)" if metric in result.scores.lower else ""
    return metric_name(metric) + less


def _trainings(result: DLeDe, step: int) -> int:
    """Return how many trainings of a step its means are of."""
    scores, decided_by = result.scores, result.judgement.decided_by
    return int(scores.complete(decided_by).sum()) if step in decided_by else scores.count(step)


def mean_and_deviation(result: DLeDe, metric: str, step: int) -> tuple[float, float]:
    """Return mean and standard deviation (n - 1) of a step; NaN where unknown.

    At the steps that decide they are of the repetitions that have all of these.
    """
    scores, decided_by = result.scores, result.judgement.decided_by
    values = scores.of(metric)[:, scores.steps.index(step)]
    if step in decided_by:
        values = values[scores.complete(decided_by)]
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if len(known) else math.nan
    return mean, float(known.std(ddof=1)) if len(known) > 1 else math.nan


def details(result: DLeDe) -> list[Grid]:
    """Return a table with intervals for each metric that decides."""
    return [_detail(result, each) for each in result.judgement.metrics]


def _detail(result: DLeDe, judged: MetricJudgement) -> Grid:
    header = ["leaked %", "trainings", "mean", "95 % CI", "deviation"]
    header += ["increase %", "95 % CI", f"certainty above {percent(result.judgement.threshold)}"]
    rows = [
        [
            *(f"{step.step}", f"{step.trainings:,}", score(step.mean.value), interval(step.mean)),
            *(score(step.deviation), rise(increase.value), rise_interval(increase)),
            certainty(step.above),
        ]
        for step, increase in risen(judged)
    ]
    return Grid(f"{named(judged.metric, result)} with intervals", header, rows)


def verdicts(result: DLeDe) -> Grid:
    """Return what each metric says by each rule, and what they say together."""
    judged = result.judgement
    header = ["rule", "metric", "compared", "%", "95 % CI", "on the means"]
    header += ["leaks already", "no leak shows", "verdict"]
    rows = [row for each in (judged, *result.others) for row in _verdict_rows(each)]
    bold = frozenset((len(judged.metrics), at) for at in range(len(header)))
    steps = ", ".join(map(str, judged.decided_by))
    title = (
        f"Verdicts at a threshold of {percent(judged.threshold)}, by the steps {steps} %"
        f" (a verdict needs a certainty of {percent(judged.certainty)})"
    )
    return Grid(title, header, rows, texts=3, bold=bold)


def _verdict_rows(judged: Judgement) -> list[list[str]]:
    compared = compared_by(judged.rule)
    rows = [
        [
            *(judged.rule, metric_name(each.metric), compared, rise(each.statistic.value)),
            *(rise_interval(each.statistic), each.on_means),
            # where nothing can be said, no chance can
            *([UNKNOWN, UNKNOWN] if each.reason else _chances(each)),
            each.verdict,
        ]
        for each in judged.metrics
    ]
    unsaid = any(each.reason for each in judged.metrics)
    chances = [UNKNOWN, UNKNOWN] if unsaid else _chances(judged)
    last = [UNKNOWN, UNKNOWN, UNKNOWN, judged.on_means, *chances, judged.verdict]
    return [*rows, [judged.rule, "together", *last]]


def _chances(judged: Judgement | MetricJudgement) -> list[str]:
    return [certainty(judged.leaking), certainty(judged.clean)]


def hashes(result: DLeDe) -> list[Grid]:
    """Return tables 2 and 5 with every cut, and the most alike pairs."""
    found = result.hashes
    if found is None:
        return []
    return [grid for grid in (_hash_counts(found), _alike(found)) if grid.rows]


def _hash_counts(found: HashEvidence) -> Grid:
    pairs = images = 0
    rows = []
    for distance in range(CUTS + 1):
        pairs += found.histogram[distance]
        images += found.nearest[distance]
        share = f"{100.0 * images / found.test:.2f}" if found.test else UNKNOWN
        rows.append(
            [
                *(f"{distance}", f"{found.histogram[distance]:,}", f"{pairs:,}"),
                *(f"{found.nearest[distance]:,}", f"{images:,}", share),
            ]
        )
    header = ["distance", "pairs", "up to it", "test images nearest at it", "up to it"]
    title = (
        f"Perceptual hashes: {found.test:,} test images against {found.train:,} training images by"
        " Hamming distance"
    )
    return Grid(title, [*header, "% of the test set"], rows)


def _alike(found: HashEvidence) -> Grid:
    rows = [[pair.test, pair.train, f"{pair.distance}"] for pair in found.alike[:PAIRS]]
    return Grid("Most alike pairs by perceptual hash", ["test", "train", "distance"], rows, texts=2)


def memory(result: DLeDe) -> list[Grid]:
    """Return what images gained that leaked, and what the others gained."""
    if not result.memory:
        return []
    header = ["metric", "leaked %", "images that leak", "they gain", "95 % CI"]
    header += ["the others gain", "95 % CI"]
    rows = [
        [
            *(metric_name(each.metric), f"{each.step}", f"{each.images:,.1f}".removesuffix(".0")),
            *(score(each.leaked.value), interval(each.leaked)),
            *(score(each.others.value), interval(each.others)),
        ]
        for each in result.memory
    ]
    title = "Gain over no leak of the test images that leaked, and of the others"
    return [Grid(title, header, rows)]


#: What is known of a clean split.
_SIZES: Final = tuple(
    (side, what) for side in ("test", "training") for what in ("images", "groups")
)


def calibration(result: DLeDe) -> list[Grid]:
    """Return what the same protocol says of clean splits of the same images."""
    found = result.calibration
    if found is None:
        return []
    names = [each.metric for each in result.judgement.metrics]
    header = ["clean split", *(f"{side} {what}" for side, what in _SIZES)]
    header += [f"{metric_name(m)} %" for m in names]
    rows = []
    for number, (split, judged) in enumerate(zip(found.splits, found.judgements, strict=True), 1):
        by_metric = {each.metric: each.statistic.value for each in judged.metrics}
        cells = [_count(split, f"{side}_{what}") for side, what in _SIZES]
        cells += [rise(by_metric.get(name, math.nan)) for name in names]
        runs = [f"{judged.repetitions:,}", f"{judged.left_out:,}"]
        rows.append([f"{number}", *cells, *runs, judged.on_means, judged.verdict])
    title = (
        f"The {compared_by(result.judgement.rule)} on clean splits of the same images,"
        f" {found.groups:,} groups; {calibrated(found)}"
    )
    header += ["repetitions", "left out", "on the means", "verdict"]
    return [Grid(title, header, rows)]


def _count(split: Mapping[str, int], name: str) -> str:
    return f"{split[name]:,}" if name in split else UNKNOWN


def calibrated(found: Calibration) -> str:
    """Return what the calibrated threshold is."""
    if math.isnan(found.threshold):
        return "too few to give a threshold"
    return (
        f"threshold {rise(found.threshold)} %, which the next clean split lies below in"
        f" {percent(found.alpha)} of cases"
    )


def convergence(result: DLeDe) -> list[Grid]:
    """Return whether longer training changes the scores."""
    found = result.convergence
    if found is None:
        return []
    usual, longer = (f"{epochs:,} epochs" for epochs in found.epochs)
    rows = []
    for row in found.rows:
        values = [math.nan if row[key] is None else row[key] for key in ("usual", "longer")]
        told = [score(value) for value in (*values, values[1] - values[0])]
        name = metric_name(str(row["metric"]))
        rows.append([name, f"{row['step']}", f"{row['repetitions']:,}", *told])
    header = ["metric", "leaked %", "repetitions", usual, longer, "change"]
    return [Grid("Scores after longer training", header, rows)]


def failures(result: DLeDe) -> list[Grid]:
    """Return the trainings that failed twice."""
    rows = [[f"{each.step}", f"{each.repetition}", each.reason, each.log] for each in result.failed]
    header = ["leaked %", "repetition", "reason", "log"]
    return [Grid("Trainings that failed twice", header, rows, texts=4)] if rows else []


def evidence(result: DLeDe) -> list[Grid]:
    """Return all tables but those of the scores, in their order."""
    several = (hashes, makeup_grids, memory, calibration, convergence, failures)
    return [grid for make in several for grid in make(result)]
