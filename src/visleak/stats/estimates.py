"""Mean scores of parts of a benchmark and their differences, with 95 % intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.rates import wilson
from visleak.records import Bool, Float64, Int64
from visleak.stats.bootstrap import bca_difference, bca_mean, bca_weighted_mean
from visleak.stats.intervals import newcombe, weighted_wilson


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and the ends of its 95 % interval; NaN if nothing is known.

    Scores and their differences are in the metric's own unit: an accuracy is a share.
    """

    value: float
    low: float = math.nan
    high: float = math.nan


NOTHING: Final = Estimate(math.nan)

#: A bootstrap needs several values that matter: none is made where one alone has more than this
#: share of the most that one of as many can have of the sum of squared deviations.
MOST_OF_ONE: Final = 0.8


def score_of(values: Float64, *, share: bool, seed: int = 0) -> Estimate:
    """Return the mean of some images' scores: shares by Wilson, other metrics by BCa bootstrap.

    ``values`` (k,), of the images.
    """
    if not len(values):
        return NOTHING
    if share:
        return Estimate(float(values.mean()), *wilson(int(values.sum()), len(values)))
    if is_dominated(values):
        return Estimate(float(values.mean()))
    return Estimate(float(values.mean()), *bca_mean(values, seed=seed))


def is_dominated(values: Float64) -> bool:
    """Whether one value alone decides how far the mean of some images may be off.

    A resample has such a value not at all, once or several times, and an interval from that is
    meaningless: its ends are multiples of one number. Values between 0 and 1 bound their mean.
    """
    if not len(values) or (values.min() >= 0.0 and values.max() <= 1.0):
        return False
    squares = (values - values.mean()) ** 2
    most = 1.0 - 1.0 / len(values)
    return bool(squares.max() > MOST_OF_ONE * most * squares.sum())


def difference_of(part: Float64, rest: Float64, *, share: bool, seed: int = 0) -> Estimate:
    """Return the mean of a part minus that of the rest, disjoint images.

    Shares by Newcombe's method 10, other metrics by BCa bootstrap.
    """
    if not (len(part) and len(rest)):
        return NOTHING
    value = float(part.mean() - rest.mean())
    if share:
        before, after = ((int(each.sum()), len(each)) for each in (rest, part))
        return Estimate(value, *newcombe(before, after))
    if is_dominated(part) or is_dominated(rest):
        return Estimate(value)
    return Estimate(value, *bca_difference(part, rest, seed=seed))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate times a number of 0 or more, ends and all."""
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor)


def gain_of(difference: Estimate, part: int, whole: int) -> Estimate:
    """Return the score of a part minus that of the whole, from its difference to the rest.

    A part and the whole share images, so no interval for independent samples applies. But the
    whole's score is the mean of both parts', so the gain is ``1 - part / whole`` times the
    difference of the part and the rest, which share none.
    """
    return scaled(difference, 1.0 - part / whole) if whole else NOTHING


def fair_of(
    values: Float64, classes: Int64 | None, kept: Bool, *, share: bool, seed: int = 0
) -> tuple[Estimate, int]:
    """Return the score of some images, weighted to the class mix of all, and classes lost.

    Leaked images are often of easy classes; the images kept are then of harder ones than the
    benchmark. So each class has its weight in the benchmark (post-stratification).

    ``values`` (n,), of all images. ``classes`` (n,), number of each image's class; ``None`` if
    there are none. ``kept`` (n,), which images are kept. Returns the estimate, and how many classes
    have no image left, which it leaves out.
    """
    if classes is None or not kept.any():
        return score_of(values[kept], share=share, seed=seed), 0
    every, left = np.bincount(classes), np.bincount(classes[kept], minlength=classes.max() + 1)
    weight = np.divide(every, left, out=np.zeros(len(every)), where=left > 0)
    own, own_values = weight[classes[kept]], values[kept]
    ends = (math.nan, math.nan)
    if share:
        ends = weighted_wilson(own_values, own)
    elif not is_dominated(own_values):
        ends = bca_weighted_mean(own_values, own, seed=seed)
    value = float(np.average(own_values, weights=own))
    return Estimate(value, *ends), int(((every > 0) & (left == 0)).sum())
