"""The rules by which a curve is judged, by name.

A rule looks at relative increases between steps, and compares one number of them, its statistic,
with the threshold: at or below it the split counts as leaking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.dlede.increase import increase
from visleak.records import Float64, Int64

#: Increases that differ by less are the same: (0.525 - 0.5) / 0.5 is above 0.05 in binary.
ROUNDING: Final = 1e-9

LEAKING: Final = "leaking"
CLEAN: Final = "clean"
UNDECIDED: Final = "undecided"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        words: when it calls a split leaking.
        whole: it looks at the increase from the first step to the last; else at the increase of
            every step.
        every: all these increases must be at or below the threshold; else one of them.
    """

    words: str
    whole: bool = False
    every: bool = True

    def pairs(self, steps: int) -> Int64:
        """Return which of the deciding steps it compares, (increases, 2): before and after."""
        if self.whole:
            return np.array([[0, steps - 1]])
        return np.stack([np.arange(steps - 1), np.arange(1, steps)], axis=1)

    def increases(self, means: npt.ArrayLike, lower: bool = False) -> Float64:
        """Return the increases it looks at, (..., increases), of means (..., steps)."""
        array = np.asarray(means, np.float64)
        pairs = self.pairs(array.shape[-1])
        return increase(array[..., pairs[:, 0]], array[..., pairs[:, 1]], lower)

    def of(self, increases: Float64) -> Float64:
        """Return the statistic of the increases it looks at, (...); NaN where one is not known."""
        return np.asarray(increases.max(axis=-1) if self.every else increases.min(axis=-1))

    def statistic(self, means: npt.ArrayLike, lower: bool = False) -> Float64:
        """Return what is compared with the threshold, (...), of means (..., steps).

        >>> float(RULES["both-steps"].statistic([0.5, 0.5, 0.6]).round(3))
        0.2
        """
        return self.of(self.increases(means, lower))


#: ``both-steps`` is what the text of Babu et al. 2025 says: leaking "if neither of the first two
#: steps" brings more than 5 %. ``any-step`` is their Algorithm 1 as printed: it sets TRUE at any
#: step that brings at most 5 % (and never increments its counter, so as printed it never ends;
#: read here as a loop over the deciding steps). ``cumulative`` is how section 9 can be read: the
#: rise from no leak to the last deciding step, (C_20 - P_0) / P_0.
RULES: Final[dict[str, Rule]] = {
    "both-steps": Rule("no deciding step brings more than the threshold"),
    "any-step": Rule("a deciding step brings no more than the threshold", every=False),
    "cumulative": Rule("all deciding steps together bring no more than the threshold", whole=True),
}


def on_means(statistic: float, threshold: float) -> str:
    """Return the paper's verdict: leaking at or below the threshold (Algorithm 1), else clean.

    >>> on_means((0.525 - 0.5) / 0.5, 0.05)
    'leaking'
    """
    if np.isnan(statistic):
        return UNDECIDED
    return LEAKING if statistic <= threshold + ROUNDING else CLEAN
