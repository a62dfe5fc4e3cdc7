"""Relative increases, decision rules, and the certainty of an increase.

A rule compares one number of the relative increases between steps, its statistic, with the
threshold: at or below it the split counts as leaking. A chain is one repetition at all steps.

Certainties come from resampling chains with replacement. The distance of a resampled mean from the
observed one is multiplied by ``sqrt(n / (n - 1)) * sqrt((n - 1) / chi-square(n - 1))``, because the
variance of n chains is underestimated and uncertain; such means have the tails of a t distribution.
An increase is tested by ``excess``, which is linear in the scores: of normal scores the certainty
is that of a one-sided t test (Fieller 1954; Davison & Hinkley 1997, "Bootstrap methods and their
application", section 2.4). If the true increase equals the threshold, a verdict at .95 is wrong in
4 % of runs on average (5.6 % at most, with two repetitions); the plain bootstrap in up to 51 %
(``benchmarks/dlede/null.py``).

A statement about all of several increases, or metrics, is as certain as the least certain of them
(intersection-union test, Berger 1982). One about at least one of k increases, each with certainty
c, has certainty c to the power of k (Sidak 1967). Increases of successive steps are negatively
correlated, which Sidak excludes; by Bonferroni's inequality the error rate is still -log c at most,
.051 for .95.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri

from visleak.errors import UsageError
from visleak.records import Float64, Int64
from visleak.stats.bootstrap import Estimate
from visleak.stats.intervals import t_interval, t_test_power

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
    threshold; unlike that it is linear, and nothing is divided by what may be small (Fieller 1954,
    "Some problems in interval estimation").
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

    def of(self, increases: Float64) -> Float64:
        """Return the statistic of increases, (...); NaN if one is unknown."""
        return np.asarray(increases.max(axis=-1) if self.every else increases.min(axis=-1))

    def statistic(self, means: npt.ArrayLike, lower: bool = False) -> Float64:
        """Return the statistic of means, (...) of (..., steps).

        >>> float(RULES["both-steps"].statistic([0.5, 0.5, 0.6]).round(3))
        0.2
        """
        array = np.asarray(means, np.float64)
        pairs = self.pairs(array.shape[-1])
        return self.of(increase(array[..., pairs[:, 0]], array[..., pairs[:, 1]], lower))


#: ``both-steps`` is the rule in the text of Babu et al. 2025: leaking "if neither of the first two
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


CONFIDENCE: Final = 0.95  # of intervals, two-sided
#: Least share of a score that a drawn one may be, when an increase is divided by it.
_FLOOR: Final = 0.01


def draws(chains: int, resamples: int, seed: int = 0) -> Float64:
    """Return the weights of chains in drawn distances, (resamples, chains); each row sums to 0."""
    if chains < 2:
        return np.zeros((resamples, chains))
    rng = np.random.default_rng([seed, chains])
    counts = rng.multinomial(chains, np.full(chains, 1.0 / chains), size=resamples)
    stretch = np.sqrt(chains / rng.chisquare(chains - 1, size=resamples))
    return np.asarray((counts - 1.0) / chains * stretch[:, None])


def in_order(values: Float64) -> Float64:
    """Return (metrics, chains, steps) in an order that does not depend on the chains' numbers."""
    keys = np.concatenate(list(values.transpose(0, 2, 1)))
    return values[:, np.lexsort(keys[::-1])]


def distances(values: Float64, weights: Float64) -> Float64:
    """Return drawn means minus means, (resamples, ...), of the scores of chains, (chains, ...)."""
    return np.tensordot(weights, values - values.mean(axis=0), axes=1)


def unit(values: Float64) -> float:
    """Return the unit in which scores are known: those that were rounded, or that count images.

    It is the smallest difference where scores repeat; 0 where none does.

    >>> unit(np.array([0.48, 0.50, 0.50, 0.53])).__round__(6), unit(np.array([0.481, 0.502]))
    (0.02, 0.0)
    """
    known = np.sort(values[np.isfinite(values)])
    gaps = np.diff(known)
    apart = gaps[gaps > ROUNDING]
    return float(apart.min()) if 0 < len(apart) < len(gaps) else 0.0


def margins(values: Float64, pairs: Int64, threshold: float) -> Float64:
    """Return by how much the unit of scores may move the mean excess over a threshold.

    A score that is rounded to a unit u is off by up to u / 2; where scores scatter with a
    deviation s, their mean is off by about exp(-2 (pi s / u)^2) of that (Widrow & Kollar 2008,
    "Quantization noise", chapter 4).
    """
    step = unit(values)
    if not step or len(values) < 2:
        return np.zeros(len(pairs))
    known = values[:, pairs]
    off = step / 2.0 * np.exp(-2.0 * math.pi**2 * known.var(axis=0, ddof=1) / step**2)
    return np.asarray((1.0 + abs(threshold)) * off[:, 0] + off[:, 1])


def chance_above(
    before: Float64,
    after: Float64,
    threshold: float,
    lower: bool,
    weights: Float64,
    margin: float = 0.0,
) -> float:
    """Return the chance that the increase of the means, plus ``margin``, exceeds the threshold."""
    if len(before) < 2 or not before.mean() > 0.0:
        return math.nan
    drawn = distances(excess(before, after, threshold, lower), weights)
    centre = excess(before.mean(), after.mean(), threshold, lower) + margin
    return float((centre + drawn > ROUNDING * before.mean()).mean())


def chances(above: Sequence[float], rule: Rule) -> tuple[float, float]:
    """Return how certain it is that a metric is leaking, and that it is clean.

    ``above``: the chance that each compared increase exceeds the threshold. Both results add up to
    1 for one increase, to 1 at most for more, and are NaN where a chance is.

    >>> from visleak.dlede.judge import RULES
    >>> [round(chance, 3) for chance in chances([0.5, 0.96], RULES["both-steps"])]
    [0.04, 0.922]
    """
    exceeding = np.asarray(above, np.float64)
    if np.isnan(exceeding).any():
        return math.nan, math.nan
    # that one of several holds, by Sidak
    at_most, some = (float(each.max() ** len(above)) for each in (1.0 - exceeding, exceeding))
    if rule.every:
        return float((1.0 - exceeding).min()), some
    return at_most, float(exceeding.min())


def mean_interval(values: Float64) -> Estimate:
    """Return the mean of a column with its t interval (Student 1908); NaN ends of one value."""
    mean = float(values.mean()) if len(values) else math.nan
    return Estimate(mean, *t_interval(values, CONFIDENCE))


def drawn_increases(before: Float64, after: Float64, lower: bool, weights: Float64) -> Float64:
    """Return increases of drawn means, (resamples,), over a hundredth of the mean at least."""
    first, last = before.mean(), after.mean()
    base = first + distances(before, weights)
    gained = gain(base, last + distances(after, weights), lower)
    return np.asarray(gained / np.maximum(base, _FLOOR * first))


def statistic_interval(increases: Float64, drawn: Float64, rule: Rule) -> Estimate:
    """Return the rule's statistic with its interval.

    Its end on the side where one increase is enough is that of Sidak's intervals, as
    :func:`chances`.
    """
    value = float(rule.of(increases))
    if math.isnan(value):
        return Estimate(math.nan)
    tail = (1.0 - CONFIDENCE) / 2.0
    shared = 1.0 - (1.0 - tail) ** (1.0 / len(increases))
    low, high = (shared, 1.0 - tail) if rule.every else (tail, 1.0 - shared)
    ends = np.quantile(drawn, [low, high], axis=0)
    return Estimate(value, *map(float, rule.of(ends)))


PROBABLY: Final = 0.8  # a number of repetitions is enough where it decides with this chance
MOST: Final = 200  # more repetitions than these are not worth telling
FIRST: Final = 5  # repetitions that are recommended if there is one, whose spread is not known


def needed(exceeds: Float64, rule: Rule, certainty: float, off: npt.ArrayLike = 0.0) -> int | None:
    """Return how many more repetitions would probably decide a metric.

    The excess over the threshold is taken for what it is found to be; the rest is the power of a
    one-sided t test.
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
    """
    squares = sum(((each - each.mean(axis=0)) ** 2).sum(axis=0) for each in exceeds)
    free = sum(len(each) - 1 for each in exceeds)
    return np.asarray(np.sqrt(squares / chdtri(free, 0.5)))
