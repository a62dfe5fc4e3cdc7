"""The detection limit: the smallest leak for which the verdict is ``leaking``.

A split that leaks a share L scores at step p what a clean one scores at L + p (1 - L), because a
share L of the drawn images is in training already. The repetitions scatter equally. The rest is
the power of the t tests of :mod:`visleak.dlede.judge`, with the bound of Bonferroni if several
must succeed, so that the probability is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.special import ndtr

from visleak.dlede.judge import CLEAN, ROUNDING, RULES, Rule, excess, margins, spread
from visleak.dlede.judge.judge import (
    DISAGREE,
    NO_CLEAN_CURVE,
    NONE_FOUND,
    NOT_CERTAIN,
    ONE_REPETITION,
    UNKNOWN_CHANCE,
    UNKNOWN_SCALE,
    bar,
    highest_start,
    is_share,
)
from visleak.dlede.judge.scores import Scores, chance_of
from visleak.dlede.results import DetectionLimit, Judgement
from visleak.records import Float64
from visleak.stats.intervals import t_test_power

PROBABILITY: Final = 0.9  # probability with which a leak as large as the limit is found
#: Assumptions of the calculation, in addition to splits without leaks.
ASSUMPTIONS: Final = (
    "a leak acts on the scores as leaks on purpose do",
    "beyond the last step scores rise in a straight line, up to 1",
    "repetitions scatter normally, and as much as without a leak",
    "the means of the splits without leaks are exact",
)
SHARES: Final = np.arange(1, 101) / 100.0  # shares that are tried


@dataclass(frozen=True)
class Protocol:
    """How a curve is judged, and by how many repetitions."""

    metrics: tuple[str, ...]  # names of those that decide
    steps: tuple[int, ...]  # percent of the test images that leak, of all steps that are known
    decided_by: tuple[int, ...]  # the steps that decide
    repetitions: int  # complete chains, two or more
    rule: Rule  # rule, threshold, certainty, chance, calibrated: as judge
    threshold: float
    certainty: float
    lower: frozenset[str] = frozenset()  # metrics of which less is better
    chance: Mapping[str, float] = field(default_factory=dict)
    calibrated: bool = False
    margins: Mapping[str, float] = field(default_factory=dict)  # see certainty.margins


def detection_probability(share: float, clean: Sequence[Float64], protocol: Protocol) -> float:
    """Return a lower bound of the probability that a split which leaks a share is ``leaking``.

    The mean over splits without leaks, ``clean``, each (metrics, chains, steps), taken for exact.
    """
    spreads = _spreads(clean, protocol)
    return float(np.mean([_of_one(share, scores, spreads, protocol) for scores in clean]))


def _of_one(share: float, scores: Float64, spreads: Float64, protocol: Protocol) -> float:
    rule, count = protocol.rule, protocol.repetitions
    leaked = np.array(protocol.decided_by) / 100.0
    pairs = rule.pairs(len(leaked))
    level = protocol.certainty if rule.every else protocol.certainty ** (1.0 / len(pairs))
    missed = 0.0
    for at, metric in enumerate(protocol.metrics):
        lower = metric in protocol.lower
        means = score_at(share + (1.0 - share) * leaked, protocol.steps, scores[at])
        missed += _held_back(metric, float(means[0]), scores[at], protocol)
        exceeds = excess(means[pairs[:, 0]], means[pairs[:, 1]], protocol.threshold, lower)
        powers = t_test_power(
            -exceeds - protocol.margins.get(metric, 0.0), spreads[at], count, level
        )
        missed += float((1.0 - powers).sum() if rule.every else (1.0 - powers).min())
    return max(0.0, 1.0 - missed)


def score_at(share: Float64, steps: Sequence[int], values: Float64) -> Float64:
    """Return the mean score where shares of the test images are in training.

    A straight line between the steps; beyond the last that from the first step to the last, which
    is rather too fast; not beyond 0 and 1 where all values, (chains, steps), are shares.
    """
    known = np.isfinite(values).any(axis=0)
    places = np.array(steps, np.float64)[known] / 100.0
    means = np.nanmean(values[:, known], axis=0)
    slope = (means[-1] - means[0]) / (places[-1] - places[0])
    beyond = np.maximum(share - places[-1], 0.0)
    score = np.interp(share, places, means) + slope * beyond
    return np.asarray(np.clip(score, 0.0, 1.0) if is_share(values) else score)


def _held_back(metric: str, start: float, values: Float64, protocol: Protocol) -> float:
    """Return the probability that the scores at step 0 leave the verdict ``undecided``."""
    if metric in protocol.lower or not is_share(values):
        return 0.0
    column = protocol.steps.index(protocol.decided_by[0])
    known = values[np.isfinite(values[:, column]), column]
    error = max(float(spread([known[:, None]])[0]), ROUNDING) / math.sqrt(protocol.repetitions)
    missed = float(ndtr((bar(protocol.chance.get(metric, 0.0)) - start) / error))
    if not protocol.calibrated:
        highest = highest_start(protocol.decided_by, protocol.rule, protocol.threshold)
        missed += float(ndtr((start - highest) / error))
    return missed


def _spreads(clean: Sequence[Float64], protocol: Protocol) -> Float64:
    """Return the spread of the excess over the threshold, (metrics, increases), of all splits."""
    columns = np.array([protocol.steps.index(step) for step in protocol.decided_by])
    pairs = columns[protocol.rule.pairs(len(columns))]
    rows = []
    for at, metric in enumerate(protocol.metrics):
        found = []
        for scores in clean:
            values = scores[at][np.isfinite(scores[:, :, columns]).all(axis=(0, 2))]
            before, after = values[:, pairs[:, 0]], values[:, pairs[:, 1]]
            found.append(excess(before, after, protocol.threshold, metric in protocol.lower))
        rows.append(spread(found))
    return np.array(rows)


def detection_limit(
    scores: Scores,
    judgement: Judgement,
    *,
    clean: Sequence[Scores] = (),
    calibrated: bool = False,
    chance: Mapping[str, float] | None = None,
) -> DetectionLimit:
    """Return how large a leak must be to be found, by clean splits or a curve that rises."""
    steps, count = judgement.decided_by, judgement.repetitions
    known = chance_of(scores, chance or {})
    shown = [each for each in clean if each.complete(steps).sum() > 1]
    reason = ""
    if count < 2:
        reason = ONE_REPETITION
    elif judgement.reason_code not in ("", NOT_CERTAIN, DISAGREE):
        reason = judgement.reason_code
    elif not shown and judgement.on_means != CLEAN:
        reason = NO_CLEAN_CURVE
    elif not calibrated:
        for each in judgement.metrics:
            scaled = not each.lower and is_share(scores.of(each.metric))
            if not scaled or each.metric not in known:
                reason = UNKNOWN_CHANCE if scaled else UNKNOWN_SCALE
                break
    if reason:
        return DetectionLimit(count, PROBABILITY, math.nan, math.nan, "", reason)
    of, rule = shown or [scores], RULES[judgement.rule]
    columns = np.array([scores.steps.index(step) for step in steps])
    names = tuple(each.metric for each in judgement.metrics)
    off = {}
    for name in names:
        values = scores.of(name)
        whole = values[np.isfinite(values[:, columns]).all(axis=1)]
        pairs = columns[rule.pairs(len(columns))]
        off[name] = float(margins(whole, pairs, judgement.threshold).max())
    lower = frozenset(each.metric for each in judgement.metrics if each.lower)
    bounds = judgement.threshold, judgement.certainty
    protocol = Protocol(
        *(names, of[0].steps, steps, count, rule, *bounds, lower, known, calibrated, off)
    )
    share, up_to = detection_range(
        [np.stack([each.of(name) for name in names]) for each in of], protocol
    )
    source, clean_is = "curve", "this split has no leak"
    if shown:
        source, clean_is = "calibration", "the clean splits have no leak"
    code = NONE_FOUND if math.isnan(share) else ""
    assumed = (clean_is, *ASSUMPTIONS)
    return DetectionLimit(count, PROBABILITY, share, up_to, source, code, assumed)


def detection_range(clean: Sequence[Float64], protocol: Protocol) -> tuple[float, float]:
    """Return the smallest and largest leak that is found with :data:`PROBABILITY`, NaN of none."""
    found = [detection_probability(each, clean, protocol) >= PROBABILITY for each in SHARES]
    if not any(found):
        return math.nan, math.nan
    first = found.index(True)
    missed = found.index(False, first) if False in found[first:] else len(found)
    return float(SHARES[first]), float(SHARES[missed - 1])
