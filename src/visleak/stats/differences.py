"""Whether two shares differ: of the same images, or of two sets of images."""

from __future__ import annotations

import math

from scipy.stats import binom

from visleak.errors import UsageError
from visleak.rates import check_confidence, wilson


def mcnemar_exact(only_before: int, only_after: int) -> float:
    """Return the two-sided probability of so uneven a change, if nothing had really changed.

    For one list of images that is asked a yes-no question twice. Images that answer the same
    both times say nothing; of the others each answer is as likely as the other if nothing
    changed, so their counts are those of a fair coin.

    Returns between 0 and 1; 1 where nothing changed at all.

    Source: McNemar 1947, "Note on the sampling error of the difference between correlated
    proportions or percentages", in its exact binomial form.
    """
    if only_before < 0 or only_after < 0:
        raise UsageError(f"counts must be 0 or more; got {only_before} and {only_after}")
    changed = only_before + only_after
    return min(1.0, 2.0 * float(binom.cdf(min(only_before, only_after), changed, 0.5)))


def newcombe(
    before: tuple[int, int], after: tuple[int, int], confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of the difference of two shares, after minus before.

    For two independent samples. Where they share images it is wider than it need be.

    Returns both ends, within [-1, 1]; ``(nan, nan)`` where one sample is empty.

    Source: Newcombe 1998, "Interval estimation for the difference between independent
    proportions", method 10.
    """
    ends_before = wilson(*before, confidence)
    ends_after = wilson(*after, confidence)
    if not before[1] or not after[1]:
        return math.nan, math.nan
    share_before, share_after = before[0] / before[1], after[0] / after[1]
    change = share_after - share_before
    down = math.hypot(share_after - ends_after[0], ends_before[1] - share_before)
    up = math.hypot(ends_after[1] - share_after, share_before - ends_before[0])
    return max(-1.0, change - down), min(1.0, change + up)


def newcombe_paired(
    both: int, only_before: int, only_after: int, neither: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of the difference of two shares of the same images, after minus before.

    For one list of images that is asked a yes-no question twice.

    Returns both ends, within [-1, 1]; ``(nan, nan)`` where there are no images.

    Source: Newcombe 1998, "Improved confidence intervals for the difference between binomial
    proportions based on paired data", method 10.
    """
    if min(both, only_before, only_after, neither) < 0:
        raise UsageError(
            f"counts must be 0 or more; got {both}, {only_before}, {only_after} and {neither}"
        )
    check_confidence(confidence)
    n = both + only_before + only_after + neither
    if not n:
        return math.nan, math.nan
    before, after = both + only_before, both + only_after
    low_before, high_before = wilson(before, n, confidence)
    low_after, high_after = wilson(after, n, confidence)
    phi = _corrected_phi(both, only_before, only_after, neither)
    change = (after - before) / n
    down = _joined(after / n - low_after, high_before - before / n, phi)
    up = _joined(high_after - after / n, before / n - low_before, phi)
    return max(-1.0, change - down), min(1.0, change + up)


def _corrected_phi(both: int, only_before: int, only_after: int, neither: int) -> float:
    """Return the correlation of two answers, a positive one corrected for continuity."""
    n = both + only_before + only_after + neither
    before, after = both + only_before, both + only_after
    spread = before * (n - before) * after * (n - after)
    if not spread:
        return 0.0
    excess: float = both * neither - only_before * only_after
    if excess > 0:
        excess = max(excess - n / 2, 0.0)
    return excess / math.sqrt(spread)


def _joined(first: float, second: float, correlation: float) -> float:
    """Return the half-width of a difference whose two sides have these half-widths."""
    return math.sqrt(max(0.0, first**2 - 2.0 * correlation * first * second + second**2))
