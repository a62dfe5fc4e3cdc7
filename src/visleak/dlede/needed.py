"""How many repetitions more would probably decide what is undecided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri

from visleak.dlede.rules import Rule
from visleak.records import Float64
from visleak.stats.means import t_test_power

#: A number of repetitions is enough where it decides with this chance.
PROBABLY: Final = 0.8

#: More repetitions than these are not worth telling.
MOST: Final = 200

#: Repetitions that are told where there is one, of which no spread can be known.
FIRST: Final = 5


def needed(exceeds: Float64, rule: Rule, certainty: float, off: npt.ArrayLike = 0.0) -> int | None:
    """Return how many repetitions beside those there are would probably decide a metric.

    The excess over the threshold is taken for what it is found to be, in the direction in which
    the means point; the rest is the power of a one-sided t test.

    Args:
        exceeds: (chains, increases): by how much each chain exceeds the threshold
            (``increase.excess``) at each increase the rule looks at; two chains or more.
        rule: which of the increases count.
        certainty: that a verdict needs.
        off: by how much each excess may be off, see :func:`visleak.dlede.certainty.margins`.

    Returns:
        1 or more; ``None`` where the means lie on the threshold or so close to it that more
        than :data:`MOST` repetitions more would be needed.
    """
    chains, increases = exceeds.shape
    means = exceeds.mean(axis=0)
    clean = means.max() > 0.0 if rule.every else means.min() > 0.0
    distance = (means if clean else -means) - np.asarray(off)
    # one increase is enough: the clearest of them, at a level that allows for the choice
    one_is_enough = rule.every == bool(clean)
    level = certainty ** (1.0 / increases) if one_is_enough else certainty
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = distance / spread([exceeds])
    deciding = float(ratio.max() if one_is_enough else ratio.min())
    if not deciding > 0.0:
        return None
    numbers = np.arange(chains + 1, chains + MOST + 1)
    enough = np.flatnonzero(t_test_power(deciding, 1.0, numbers, level) >= PROBABLY)
    return int(numbers[enough[0]] - chains) if len(enough) else None


def spread(exceeds: Sequence[Float64]) -> Float64:
    """Return the median-unbiased standard deviation of chains around the mean of their own split.

    The usual one is too small more often than not: of two chains in two of three cases.

    Args:
        exceeds: of each split (chains, increases); two chains or more.

    Returns:
        (increases,): the root of the sum of squares over the median of its chi-square
        distribution.
    """
    squares = sum(((each - each.mean(axis=0)) ** 2).sum(axis=0) for each in exceeds)
    free = sum(len(each) - 1 for each in exceeds)
    return np.asarray(np.sqrt(squares / chdtri(free, 0.5)))
