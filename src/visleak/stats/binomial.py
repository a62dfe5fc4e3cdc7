"""Upper bounds on rare rates that hold for any number of cases, however few."""

from __future__ import annotations

import math
from typing import Final

from scipy.optimize import brentq
from scipy.stats import beta

from visleak.errors import UsageError
from visleak.rates import check_counts

CONFIDENCE: Final = 0.95


def clopper_pearson_upper(k: int, n: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of a rate of which ``k`` in ``n`` *independent* cases came.

    The largest rate at which ``k`` or fewer would still come with probability
    ``1 - confidence``. 1 where ``k`` is ``n`` or nothing was seen.

    Source: Clopper & Pearson 1934, "The use of confidence or fiducial limits".
    """
    check_counts(k, n, confidence)
    return 1.0 if k == n else float(beta.ppf(confidence, k + 1, n - k))


def clopper_pearson(k: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact two-sided interval of a rate; never too narrow, also without replacement.

    >>> [round(end, 4) for end in clopper_pearson(0, 100)]
    [0.0, 0.0362]
    """
    each = 0.5 + confidence / 2
    return 1.0 - clopper_pearson_upper(n - k, n, each), clopper_pearson_upper(k, n, each)


def chernoff_upper(rate: float, cases: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of the mean of independent cases that lie in [0, 1].

    Unlike :func:`clopper_pearson_upper` a case may count by parts, such as a pair that is wrong
    under some of its conditions. The bound is the mean ``p`` at which
    ``cases * KL(rate || p) = -log(1 - confidence)``; where nothing was seen it is
    ``1 - (1 - confidence) ** (1 / cases)``, the exact binomial one.

    ``rate``: mean over the cases, in [0, 1].

    Source: Hoeffding 1963, "Probability inequalities for sums of bounded random variables",
    theorem 1.
    """
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"rate must lie between 0 and 1; got {rate}")
    check_counts(0, cases, confidence)
    needed = -math.log(1.0 - confidence)
    if cases == 0 or rate == 1.0:
        return 1.0
    if rate == 0.0:
        return -math.expm1(-needed / cases)
    almost = 1.0 - 1e-15
    if rate >= almost or cases * _divergence(rate, almost) < needed:
        return 1.0
    return float(brentq(lambda p: cases * _divergence(rate, p) - needed, rate, almost, xtol=1e-15))


def clustered_upper(rate: float, images: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of a rate over *pairs of images*, however they depend.

    Two pairs that share an image are not independent: an image that is similar to everything
    affects all of its pairs at once. The mean over all pairs of ``m`` images drawn independently
    of each other is an average, over all ways to group them, of means of ``m // 2`` independent
    pairs; so the bound of so many independent cases holds for it (Hoeffding 1963, section 5). It
    needs no assumption about the pairs of an image, and so is wide.

    ``rate``: mean over the pairs, in [0, 1]; a pair may count by parts.
    """
    if images < 0:
        raise UsageError(f"images must be 0 or more; got {images}")
    return chernoff_upper(rate, images // 2, confidence)


def _divergence(rate: float, p: float) -> float:
    """Return the relative entropy of two coins, in nats; ``0 < rate < 1``."""
    return rate * math.log(rate / p) + (1.0 - rate) * (math.log1p(-rate) - math.log1p(-p))
