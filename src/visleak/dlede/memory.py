"""What leaked images gain: each test image against itself at step 0, where it had not leaked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from visleak.dlede.results import Estimate, Memory
from visleak.dlede.runs import Place, Run, read_images
from visleak.records import Bool, Float64
from visleak.stats.means import t_interval

#: What one training says of single images: which leaked, and the values of each metric.
Seen = tuple[Bool, Mapping[str, Float64]]


def memory_of(runs: Sequence[Run], folder: Path, lower: frozenset[str]) -> tuple[Memory, ...]:
    """Return the gains of leaked test images, and of the others, at every step.

    The paper's curves rise because leaked images are remembered, because similar ones are
    understood better, or because the training set has changed; this tells the first from the
    others.

    Args:
        runs: the trainings.
        folder: of the trainings.
        lower: metrics of which less is better.

    Returns:
        One entry a metric and step above 0; empty where the trainer says nothing of single
        images.
    """
    seen: dict[tuple[int, int], Seen] = {}
    for run in runs:
        leaked, values = read_images(Place(folder, run.step, run.repetition))
        if values:
            seen[run.step, run.repetition] = leaked, values
    steps = sorted({step for step, _ in seen if step})
    names = sorted({name for _, values in seen.values() for name in values})
    found = (_at(seen, name, step, name in lower) for name in names for step in steps)
    return tuple(entry for entry in found if entry is not None)


def _at(seen: Mapping[tuple[int, int], Seen], metric: str, step: int, lower: bool) -> Memory | None:
    """Return the gains at one step over the chains that have both it and step 0."""
    gains, counts = [], []
    for (other, repetition), (leaked, values) in seen.items():
        before = seen.get((0, repetition))
        if other != step or before is None or metric not in values or metric not in before[1]:
            continue
        change = values[metric] - before[1][metric]
        change = -change if lower else change
        known = ~np.isnan(change)
        gains.append([_mean(change[known & leaked]), _mean(change[known & ~leaked])])
        counts.append(int(leaked.sum()))
    if not gains:
        return None
    one, other_gain = (
        Estimate(_mean(column), *t_interval(column)) for column in np.asarray(gains, np.float64).T
    )
    return Memory(metric, step, float(np.mean(counts)), one, other_gain)


def _mean(values: Float64) -> float:
    return float(values.mean()) if len(values) else math.nan
