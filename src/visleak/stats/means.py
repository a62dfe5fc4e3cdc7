"""The interval of a mean."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError


def t_interval(values: npt.ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean of independent values; NaN of fewer than two.

    Args:
        values: (n,); NaN are left out.
        confidence: between 0 and 1, both excluded.

    >>> [round(end, 3) for end in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    from scipy.special import stdtrit

    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence must lie between 0 and 1; got {confidence}")
    array = np.asarray(values, np.float64)
    known = array[~np.isnan(array)]
    if len(known) < 2:
        return math.nan, math.nan
    error = known.std(ddof=1) / math.sqrt(len(known))
    reach = float(stdtrit(len(known) - 1, 0.5 + confidence / 2) * error)
    return float(known.mean()) - reach, float(known.mean()) + reach
