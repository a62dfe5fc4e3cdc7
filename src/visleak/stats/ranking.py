"""How well a score ranks what it should find: ROC and the area under it, exact with ties.

Rows with one score stand or fall together: no figure depends on the order of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.records import Float64, Int64


@dataclass(frozen=True, slots=True)
class Steps:
    """What is found as a threshold falls past each score that occurs, highest first."""

    threshold: Float64  # (k,), falling: distinct scores; a row is found if at or above
    # true, false: (k,): true and false rows found so far
    true: Int64
    false: Int64


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
