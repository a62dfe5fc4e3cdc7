"""Whether probabilities mean what they say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, logit

from visleak.errors import UsageError

Float64 = npt.NDArray[np.float64]

#: Bins of equal mass.
BINS: Final = 10

#: Probabilities are kept this far from 0 and 1 where their logit is taken.
EDGE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of a reliability diagram."""

    count: int  # rows in it
    predicted: float  # mean probability of its rows
    observed: float  # share of them that is true


def brier_score(probability: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Return the mean squared error of probabilities: 0 is perfect, lower is better.

    Source: Brier 1950, "Verification of forecasts expressed in terms of probability".

    >>> brier_score([1.0, 0.5], [True, False])
    0.125
    """
    chance, hit = _checked(probability, true)
    return float(((chance - hit) ** 2).mean())


def reliability_bins(
    probability: npt.ArrayLike, true: npt.ArrayLike, bins: int = BINS
) -> tuple[Bin, ...]:
    """Return bins of equal mass, by rising probability; their sizes differ by one at most.

    Equal probabilities may be cut apart; they are then ordered so that the outcomes of a run of
    equal ones are spread evenly over it, and no bin depends on the order of the rows.
    """
    if bins < 1:
        raise UsageError(f"bins must be 1 or more; got {bins}")
    chance, hit = _checked(probability, true)
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


def expected_calibration_error(
    probability: npt.ArrayLike, true: npt.ArrayLike, bins: int = BINS
) -> float:
    """Return the mean distance of said and seen over bins of equal mass, in [0, 1]; 0 is perfect.

    Source: Naeini et al. 2015, "Obtaining well calibrated probabilities using Bayesian binning",
    with bins of equal mass (Nguyen & O'Connor 2015).

    >>> expected_calibration_error([0.25] * 4, [True, False, False, False], bins=1)
    0.0
    """
    found = reliability_bins(probability, true, bins)
    total = sum(each.count for each in found)
    return sum(each.count * abs(each.predicted - each.observed) for each in found) / total


def recalibration(probability: npt.ArrayLike, true: npt.ArrayLike) -> tuple[float, float]:
    """Return slope and intercept of a logistic regression on the logit of the probability.

    Slope 1 and intercept 0 are perfect; a slope below 1 means too sure, above 1 too timid. NaN
    if all outcomes are equal, because nothing can be fitted then. Probabilities nearer to 0 or 1
    than :data:`EDGE` count as that.

    Source: Cox 1958, "Two further applications of a model for binary regression".
    """
    chance, hit = _checked(probability, true)
    if hit.min() == hit.max():
        return math.nan, math.nan
    said = logit(np.clip(chance, EDGE, 1.0 - EDGE))

    def loss(beta: Float64) -> tuple[float, Float64]:
        odds = beta[0] * said + beta[1]
        error = expit(odds) - hit
        value = float((np.logaddexp(0.0, odds) - hit * odds).mean())
        return value, np.array([(error * said).mean(), error.mean()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="BFGS", options={"gtol": 1e-9})
    return float(found.x[0]), float(found.x[1])


def _checked(probability: npt.ArrayLike, true: npt.ArrayLike) -> tuple[Float64, Float64]:
    chance, hit = np.asarray(probability, np.float64), np.asarray(true, np.bool_)
    if chance.ndim != 1 or chance.shape != hit.shape:
        raise UsageError(
            "probability and true must be columns of one length; got"
            f" {chance.shape} and {hit.shape}"
        )
    if not len(chance):
        raise UsageError("nothing to calibrate: probability has no rows")
    if not ((chance >= 0) & (chance <= 1)).all():
        raise UsageError("probability must lie between 0 and 1 in every row")
    return chance, hit.astype(np.float64)
