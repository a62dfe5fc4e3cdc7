"""Measures of ranking and calibration, used by several benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, brier_score_loss

from visleak.stats.separation import steps

Float64 = npt.NDArray[np.float64]

#: Bins of equal mass.
BINS: Final = 10

#: Distance from 0 and 1 to which probabilities are clipped before their logit is taken.
EDGE: Final = 1e-6

#: The sum over thresholds of precision times gain in recall, without interpolation.
average_precision = average_precision_score

#: Mean squared error of probabilities (Brier 1950), from outcomes and probabilities.
brier_score = brier_score_loss


def recall_at_precision(score: Float64, true: npt.NDArray[np.bool_], precision: float) -> float:
    """Return the largest recall of a threshold whose precision is at least ``precision``.

    >>> recall_at_precision([4, 3, 2, 1], [True, True, False, True], 0.95)
    0.6666666666666666
    """
    found = steps(score, true)
    reached = found.true / (found.true + found.false) >= precision
    return float((found.true / found.true[-1])[reached].max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of a reliability diagram."""

    count: int
    predicted: float  # mean probability of its rows
    observed: float  # share of them that is true


def reliability_bins(
    chance: Float64, true: npt.NDArray[np.bool_], bins: int = BINS
) -> tuple[Bin, ...]:
    """Return bins of equal mass, by rising probability; their sizes differ by one at most.

    Bins may divide equal probabilities, whose outcomes are then spread evenly over the bins, so
    that no bin depends on the order of the rows.
    """
    hit = true.astype(np.float64)
    order = np.lexsort((hit, _spread(chance, hit), chance))
    parts = np.array_split(order, min(bins, len(order)))
    return tuple(
        Bin(len(part), float(chance[part].mean()), float(hit[part].mean())) for part in parts
    )


def _spread(chance: Float64, hit: Float64) -> Float64:
    """Return each row's place, in [0, 1], among the rows of its probability and its outcome."""
    order = np.lexsort((hit, chance))
    group = np.zeros(len(order), np.int64)
    group[1:] = np.cumsum((np.diff(chance[order]) != 0) | (np.diff(hit[order]) != 0))
    sizes = np.bincount(group)
    rank = np.arange(len(order)) - np.searchsorted(group, group)
    place = np.empty(len(order))
    place[order] = (rank + 0.5) / sizes[group]
    return place


def expected_calibration_error(chance: Float64, true: npt.NDArray[np.bool_]) -> float:
    """Return the expected calibration error over bins of equal mass, in [0, 1]; 0 is perfect.

    Source: Naeini et al. 2015, "Obtaining well calibrated probabilities using Bayesian binning",
    with bins of equal mass (Nguyen & O'Connor 2015).
    """
    found = reliability_bins(chance, true)
    return sum(b.count * abs(b.predicted - b.observed) for b in found) / len(true)


def recalibration(chance: Float64, true: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope and intercept of a logistic regression on the logit of the probability.

    Slope 1 and intercept 0 are perfect; a slope below 1 means overconfidence, above 1
    underconfidence. NaN if all outcomes are equal.

    Source: Cox 1958, "Two further applications of a model for binary regression".
    """
    hit = true.astype(np.float64)
    if hit.min() == hit.max():
        return math.nan, math.nan
    logits = logit(np.clip(chance, EDGE, 1.0 - EDGE))

    def loss(beta: Float64) -> tuple[float, Float64]:
        odds = beta[0] * logits + beta[1]
        error = expit(odds) - hit
        value = float((np.logaddexp(0.0, odds) - hit * odds).mean())
        return value, np.array([(error * logits).mean(), error.mean()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="BFGS", options={"gtol": 1e-9})
    return float(found.x[0]), float(found.x[1])
