"""How many of those drawn have something, exactly: strata by strata, summed.

Plain products of probabilities, no Fourier transform: it would leave nothing of tails below
1e-16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

#: Rarer than this is left out at both ends: no sum would show it, and numbers near the smallest
#: there are take a hundred times as long to multiply.
LEAST: Final = 1e-280


def hypergeometric_sum(
    sizes: Sequence[int], marked: Sequence[int], drawn: Sequence[int]
) -> tuple[int, Float64]:
    """Return how likely each number of marked ones is among those drawn from several strata.

    From stratum ``i`` of ``sizes[i]``, of whom ``marked[i]`` are marked, ``drawn[i]`` are drawn,
    each at most once.

    Returns the least number listed, and the probabilities of it and those that follow; they sum to
    1 up to rounding. What is not listed is rarer than :data:`LEAST`.

    >>> least, probability = hypergeometric_sum([4, 2], [2, 1], [2, 1])
    >>> least, [round(float(p), 4) for p in probability]
    (0, [0.0833, 0.4167, 0.4167, 0.0833])
    """
    parts = [_one(*stratum) for stratum in zip(sizes, marked, drawn, strict=True)]
    while len(parts) > 1:
        # neighbours first, so that only the last few products are long
        joined = [_joined(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = joined + parts[len(joined) * 2 :]
    return parts[0]


def _one(size: int, marked: int, drawn: int) -> tuple[int, Float64]:
    """Return the distribution in one stratum, from ratios of neighbours, out from the mode."""
    least, most = max(0, drawn + marked - size), min(drawn, marked)
    count = np.arange(least, most, dtype=np.float64)
    ratio = (marked - count) * (drawn - count) / ((count + 1) * (size - marked - drawn + count + 1))
    mode = min(most, max(least, (drawn + 1) * (marked + 1) // (size + 2))) - least
    above, below = np.cumprod(ratio[mode:]), np.cumprod(1.0 / ratio[:mode][::-1])[::-1]
    probability = np.concatenate([below, [1.0], above])
    return _trimmed(least, probability / probability.sum())


def _joined(first: tuple[int, Float64], second: tuple[int, Float64]) -> tuple[int, Float64]:
    """Return the distribution of the sum of two independent counts."""
    return _trimmed(first[0] + second[0], np.convolve(first[1], second[1]))


def _trimmed(least: int, probability: Float64) -> tuple[int, Float64]:
    kept = np.flatnonzero(probability > LEAST)
    return least + int(kept[0]), probability[kept[0] : kept[-1] + 1]
