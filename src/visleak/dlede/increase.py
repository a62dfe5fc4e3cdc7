"""How much better a metric got from one step to the next (Babu et al. 2025, equation 1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visleak.records import Float64


def relative_increase(means: npt.ArrayLike, lower: bool = False) -> Float64:
    """Return the increase of each step relative to the step before.

    R = (C - P) / P, of the score C of a step and P of the step before; (P - C) / P of a metric
    of which less is better, so that what is positive is better in any case.

    Args:
        means: (..., steps): means over repetitions.
        lower: less is better.

    Returns:
        (..., steps - 1): shares; NaN where P is not above 0, for a share of nothing, or of less
        than nothing, says nothing.

    Source: Babu et al. 2025, equation 1.

    >>> relative_increase([0.5, 0.6, 0.6]).round(3).tolist()
    [0.2, 0.0]
    >>> relative_increase([2.0, 1.0], lower=True).tolist()
    [0.5]
    """
    array = np.asarray(means, np.float64)
    return increase(array[..., :-1], array[..., 1:], lower)


def increase(before: Float64, after: Float64, lower: bool = False) -> Float64:
    """Return equation 1 of scores before and after, of any one shape."""
    known = before > 0.0
    return np.divide(gain(before, after, lower), before, where=known, out=_unknown(before))


def gain(before: Float64, after: Float64, lower: bool = False) -> Float64:
    """Return by how much a metric got better, in its own unit."""
    return before - after if lower else after - before


def excess(before: Float64, after: Float64, threshold: float, lower: bool = False) -> Float64:
    """Return by how much a gain exceeds a share of the score before, in the metric's own unit.

    Where the score before is above 0, it is above 0 exactly if the relative increase is above the
    threshold. Unlike the increase it is linear in both scores, so its mean is the excess of the
    means, and nothing is divided by what may be small (Fieller 1954, "Some problems in interval
    estimation").
    """
    return gain(before, after, lower) - threshold * before


def _unknown(like: Float64) -> Float64:
    return np.full(np.shape(like), np.nan)
