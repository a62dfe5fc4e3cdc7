"""The area that a trade-off curve covers: one number for all settings of a method.

Similarity to the memorized images is to fall, alignment or quality to stay up. A setting covers
the rectangle between itself and a reference point (base similarity, 0); the hypervolume is the
area that all settings of a method cover together (Zitzler & Thiele 1998, "Multiobjective
optimization using evolutionary algorithms"). A setting that another one beats in both adds
nothing, and no curve is drawn between settings.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError


def hypervolume(
    falling: npt.ArrayLike, rising: npt.ArrayLike, reference: tuple[float, float]
) -> float:
    """Return the area covered by points of which one number is to fall and one to rise, exactly.

    Args:
        falling: (n,): smaller is better, such as similarity.
        rising: (n,): larger is better, such as alignment.
        reference: the worst corner: points that are not better than it in both cover nothing.

    Returns:
        0 or more; 0 of no points.

    Raises:
        UsageError: columns of different lengths, or a value is no finite number.

    >>> hypervolume([0.5, 0.25], [1.0, 0.5], (1.0, 0.0))
    0.625
    """
    low, high = np.asarray(falling, np.float64), np.asarray(rising, np.float64)
    if low.ndim != 1 or low.shape != high.shape:
        raise UsageError(
            f"falling and rising are columns of one length; got {low.shape} and {high.shape}"
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(reference).all()):
        raise UsageError("a hypervolume is of finite numbers; leave out settings without one")
    area, floor = 0.0, reference[1]
    # from the best falling number on: what a point adds lies above all points before it
    for row in np.lexsort((-high, low)):
        wide = reference[0] - low[row]
        if wide > 0 and high[row] > floor:
            area += wide * (high[row] - floor)
            floor = high[row]
    return float(area)


def share_of_ideal(
    falling: npt.ArrayLike, rising: npt.ArrayLike, base: tuple[float, float]
) -> float:
    """Return the hypervolume by that of an ideal method: similarity 0 at the base's alignment.

    The reference point is (base similarity, 0), so that this compares over models and scores. It
    may pass 1 where a method raises alignment above the base's.

    Args:
        falling, rising: (n,): of the settings of one method.
        base: the same two numbers without mitigation.

    Returns:
        0 for a method that lowers nothing; NaN where the base has no similarity or no alignment
        above 0 to speak of.

    >>> share_of_ideal([0.25], [0.3], (0.5, 0.3)), share_of_ideal([0.6], [0.3], (0.5, 0.3))
    (0.5, 0.0)
    """
    ideal = base[0] * base[1]
    if not (base[0] > 0 and base[1] > 0):
        return math.nan
    return hypervolume(falling, rising, (base[0], 0.0)) / ideal
