"""Many questions asked at once: one in twenty would be answered yes by chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError


def holm(p: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return probabilities corrected for how many there are, by Holm's step-down method.

    However the tests depend on each other: if those below 0.05 are believed, the chance that any
    of them is a false alarm is at most 0.05.

    ``p`` (n,): probabilities in [0, 1]; NaN if there was no test, which does not count. Returns
    (n,): in [0, 1], none below its ``p``; NaN if ``p`` is.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    given = np.asarray(p, np.float64)
    if given.ndim != 1:
        raise UsageError(f"p must be a column; got the shape {given.shape}")
    known = np.flatnonzero(~np.isnan(given))
    if ((given[known] < 0.0) | (given[known] > 1.0)).any():
        raise UsageError("p must lie between 0 and 1 in every row, or be NaN")
    order = known[np.argsort(given[known], kind="stable")]
    # the smallest is one of all, the next one of all but one, and none may overtake another
    stepped = given[order] * np.arange(len(order), 0, -1)
    corrected = np.full(len(given), np.nan)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(stepped))
    return corrected
