"""How well a score ranks what it should find: precision, recall, ROC. All exact, ties and all.

Rows with one score stand or fall together: no figure depends on the order of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """What is found as a threshold falls past each score that occurs, highest first."""

    threshold: Float64  # (k,), falling: distinct scores; a row is found if at or above
    # true, false: (k,): true and false rows found so far
    true: Int64
    false: Int64

    @property
    def recall(self) -> Float64:
        """Share of all true rows found, (k,)."""
        return np.asarray(self.true / self.true[-1])

    @property
    def precision(self) -> Float64:
        """Share of the found rows that are true, (k,)."""
        return np.asarray(self.true / (self.true + self.false))


def steps(score: npt.ArrayLike, true: npt.ArrayLike) -> Steps:
    """Return the counts at every threshold that makes a difference.

    ``score`` (n,), higher is more likely true. ``true`` (n,), whether each row is true.
    """
    value, hit = np.asarray(score, np.float64), np.asarray(true, np.bool_)
    if value.ndim != 1 or value.shape != hit.shape:
        raise UsageError(
            f"score and true must be columns of one length; got {value.shape} and {hit.shape}"
        )
    if not len(value):
        raise UsageError("nothing to rank: score has no rows")
    if np.isnan(value).any():
        raise UsageError(f"score must be numbers; row {int(np.isnan(value).argmax())} is not one")
    order = np.argsort(-value, kind="stable")
    value, hit = value[order], hit[order]
    last = np.append(np.flatnonzero(np.diff(value)), len(value) - 1)
    found = np.cumsum(hit, dtype=np.int64)[last]
    return Steps(value[last], found, last + 1 - found)


def average_precision(score: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Return the mean precision over the true rows, in [0, 1]; NaN without a true row.

    The sum over thresholds of precision times gain in recall, without interpolation
    (Manning et al. 2008, "Introduction to Information Retrieval", section 8.4).

    >>> round(average_precision([4, 3, 2, 1], [True, False, True, False]), 4)
    0.8333
    """
    found = steps(score, true)
    if not found.true[-1]:
        return math.nan
    gain = np.diff(found.recall, prepend=0.0)
    return float((gain * found.precision).sum())


def recall_at_precision(score: npt.ArrayLike, true: npt.ArrayLike, precision: float) -> float:
    """Return the largest recall of a threshold whose precision is at least the one asked for.

    0 where no threshold reaches it, NaN without a true row.

    >>> recall_at_precision([4, 3, 2, 1], [True, True, False, True], 0.95)
    0.6666666666666666
    """
    if not 0.0 < precision <= 1.0:
        raise UsageError(f"precision must lie between 0 and 1; got {precision}")
    found = steps(score, true)
    if not found.true[-1]:
        return math.nan
    reached = found.precision >= precision
    return float(found.recall[reached].max(initial=0.0))


def roc_points(score: npt.ArrayLike, true: npt.ArrayLike) -> tuple[Float64, Float64, Float64]:
    """Return false-positive rates, true-positive rates and thresholds, each (k + 1,).

    Begins at (0, 0) with threshold infinity. A rate is NaN if there is nothing to count.
    """
    found = steps(score, true)
    with np.errstate(invalid="ignore"):
        rates = [
            np.append(0.0, c / c[-1] if c[-1] else c * np.nan) for c in (found.false, found.true)
        ]
    return rates[0], rates[1], np.append(np.inf, found.threshold)


def auc(score: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Return the chance that a true row outranks a false one, ties counting half; NaN if none.

    By ranks (Mann & Whitney 1947); equal to the area under :func:`roc_points`.

    >>> auc([3, 2, 2, 1], [True, True, False, False])
    0.875
    """
    found = steps(score, true)
    trues, falses = int(found.true[-1]), int(found.false[-1])
    if not trues or not falses:
        return math.nan
    here = np.diff(found.true, prepend=0)
    before = np.append(0, found.false[:-1])
    # whole numbers up to the last line: twice the pairs (true, false) in the wrong order
    wrong = int((here * (before + found.false)).sum())
    return 1.0 - wrong / (2 * trues * falses)
