"""How many repetitions more would probably decide what is undecided."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import chdtri, nctdtr, stdtrit

from visleak.dlede.rules import Rule
from visleak.records import Float64

#: A number of repetitions is enough where it decides with this chance.
PROBABLY: Final = 0.8

#: More repetitions than these are not worth telling.
MOST: Final = 200

#: Repetitions that are told where there is one, of which no spread can be known.
FIRST: Final = 5


def needed(exceeds: Float64, rule: Rule, certainty: float) -> int | None:
    """Return how many repetitions beside those there are would probably decide a metric.

    The excess over the threshold is taken for what it is found to be, in the direction in which
    the means point; the rest is the power of a one-sided t test. The standard deviation of few
    chains is too small more often than not (of two, in two of three cases), so its median-unbiased
    estimate is taken.

    Args:
        exceeds: (chains, increases): by how much each chain exceeds the threshold
            (``increase.excess``) at each increase the rule looks at; two chains or more.
        rule: which of the increases count.
        certainty: that a verdict needs.

    Returns:
        1 or more; ``None`` where the means lie on the threshold or so close to it that more
        than :data:`MOST` repetitions more would be needed.
    """
    chains, increases = exceeds.shape
    means = exceeds.mean(axis=0)
    # the sum of squares over the median of its chi-square distribution
    spread = exceeds.std(axis=0, ddof=1) * np.sqrt((chains - 1) / chdtri(chains - 1, 0.5))
    clean = means.max() > 0.0 if rule.every else means.min() > 0.0
    distance = means if clean else -means
    # one increase is enough: the clearest of them, at a level that allows for the choice
    one_is_enough = rule.every == bool(clean)
    level = certainty ** (1.0 / increases) if one_is_enough else certainty
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = distance / spread
    deciding = float(ratio.max() if one_is_enough else ratio.min())
    if not deciding > 0.0:
        return None
    numbers = np.arange(chains + 1, chains + MOST + 1)
    critical = stdtrit(numbers - 1, level)
    # a huge distance decides for sure, and would overflow the distribution
    power = 1.0 - nctdtr(numbers - 1, np.minimum(deciding * np.sqrt(numbers), 30.0), critical)
    enough = np.flatnonzero(power >= PROBABLY)
    return int(numbers[enough[0]] - chains) if len(enough) else None
