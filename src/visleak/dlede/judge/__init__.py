"""Relative increases, and the rules by which a curve is judged.

A rule compares one number of the relative increases between steps, its statistic, with the
threshold: at or below it the split counts as leaking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.records import Float64, Int64

#: Increases that differ by less are the same: (0.525 - 0.5) / 0.5 is above 0.05 in binary.
ROUNDING: Final = 1e-9

LEAKING: Final = "leaking"
CLEAN: Final = "clean"
UNDECIDED: Final = "undecided"


def increase(before: Float64, after: Float64, lower: bool = False) -> Float64:
    """Return the relative increase of scores before and after, of any one shape.

    (C - P) / P of the score C of a step and P of the step before (Babu et al. 2025, equation 1);
    (P - C) / P where lower is better, so that a positive value is an improvement. NaN if P is not
    above 0.
    """
    found: Float64 = np.full(np.shape(before), np.nan)
    return np.divide(gain(before, after, lower), before, where=before > 0.0, out=found)


def gain(before: Float64, after: Float64, lower: bool = False) -> Float64:
    """Return the improvement of a metric, in its own unit."""
    return before - after if lower else after - before


def excess(before: Float64, after: Float64, threshold: float, lower: bool = False) -> Float64:
    """Return the excess of a gain over a share of the score before, in the metric's own unit.

    For a score before above 0, it is above 0 exactly if the relative increase exceeds the
    threshold. Unlike the increase it is linear in both scores, so its mean is the excess of the
    means, and nothing is divided by what may be small (Fieller 1954, "Some problems in interval
    estimation").
    """
    return gain(before, after, lower) - threshold * before


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule."""

    words: str  # the condition for leaking
    whole: bool = False  # the increase from the first step to the last, not that of every step
    every: bool = True  # all compared increases must be at or below the threshold, not one

    @property
    def compared(self) -> str:
        """The statistic in words.

        >>> RULES["both-steps"].compared, RULES["cumulative"].compared
        ('largest increase', 'increase over all steps')
        """
        if self.whole:
            return "increase over all steps"
        return "largest increase" if self.every else "smallest increase"

    def pairs(self, steps: int) -> Int64:
        """Return the deciding steps that are compared, (increases, 2): before and after."""
        if self.whole:
            return np.array([[0, steps - 1]])
        return np.stack([np.arange(steps - 1), np.arange(1, steps)], axis=1)

    def increases(self, means: npt.ArrayLike, lower: bool = False) -> Float64:
        """Return the increases compared, (..., increases), of means (..., steps)."""
        array = np.asarray(means, np.float64)
        pairs = self.pairs(array.shape[-1])
        return increase(array[..., pairs[:, 0]], array[..., pairs[:, 1]], lower)

    def of(self, increases: Float64) -> Float64:
        """Return the statistic of increases, (...); NaN if one is unknown."""
        return np.asarray(increases.max(axis=-1) if self.every else increases.min(axis=-1))

    def statistic(self, means: npt.ArrayLike, lower: bool = False) -> Float64:
        """Return the statistic of means, (...) of (..., steps).

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


def check_steps(rule: str, steps: Sequence[int]) -> None:
    """Refuse fewer steps than a rule compares."""
    if len(steps) < 3 and not RULES[rule].whole:
        raise UsageError(
            f"rule {rule} needs two steps above 0, and there is one, {steps[-1]} %; give two, such"
            " as 10,20, or --decision-rule cumulative"
        )
