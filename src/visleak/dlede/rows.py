"""The tables for machines: one row a thing, numbers as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from visleak.dlede.numbers import in_order, risen
from visleak.dlede.results import DLeDe, Estimate
from visleak.storage import csv_cell, csv_value

INCREASES: Final = (
    *("metric", "less_is_better", "step", "trainings", "mean", "mean_low", "mean_high"),
    *("deviation", "increase", "increase_low", "increase_high", "certainty_above"),
)
HASHES: Final = ("distance", "pairs", "pairs_up_to", "nearest", "nearest_up_to")
MAKEUP: Final = ("class", "set", "step", "images", "objects")


def curve_header(result: DLeDe) -> tuple[str, ...]:
    """Return the header of ``curve.csv``: step, repetition and the metrics."""
    return ("step", "repetition", *map(csv_cell, in_order(result.scores.metrics)))


def curve_rows(result: DLeDe) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``curve.csv``: one a training; ``--scores`` reads them back."""
    scores = result.scores
    metrics = [scores.metrics.index(metric) for metric in in_order(scores.metrics)]
    for place, repetition in enumerate(scores.repetitions):
        for at, step in enumerate(scores.steps):
            values = scores.values[metrics, place, at]
            if np.isfinite(values).any():
                yield _cells(step, repetition, *map(float, values))


def increase_rows(result: DLeDe) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``increases.csv``: one a metric that decides and step."""
    for judged in result.judgement.metrics:
        for step, increase in risen(judged):
            yield _cells(
                *(judged.metric, judged.lower, step.step, step.trainings),
                *(*_ends(step.mean), step.deviation, *_ends(increase), step.above),
            )


def hash_rows(result: DLeDe) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``phash.csv``: one a distance."""
    found = result.hashes
    if found is None:
        return
    pairs = images = 0
    for distance, (count, nearest) in enumerate(zip(found.histogram, found.nearest, strict=True)):
        pairs, images = pairs + count, images + nearest
        yield _cells(distance, count, pairs, nearest, images)


def makeup_rows(result: DLeDe) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``makeup.csv``: one a class and set; a training set for every step."""
    found = result.makeup
    if found is None:
        return
    for at, name in enumerate(found.classes):
        yield _cells(name, "test", "", found.test_images[at], _at(found.test_objects, at))
        for place, step in enumerate(found.steps):
            objects = _at(found.objects[place], at) if found.objects else ""
            yield _cells(name, "train", step, found.images[place][at], objects)


def _at(values: Sequence[float], at: int) -> float | str:
    return values[at] if values else ""


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _cells(*values: str | int | float) -> tuple[str, ...]:
    return tuple(map(csv_value, values))
