"""The detection limit: against simulated splits that are judged, and where there is none."""

import math

import numpy as np
import pytest
from dlede_making import cirrus, curves, early, judge, kitti, result

from visleak.dlede.document.text import detection_line
from visleak.dlede.judge import RULES
from visleak.dlede.judge.detection_limit import (
    PROBABILITY,
    Protocol,
    detection_limit,
    detection_probability,
    detection_range,
    score_at,
)
from visleak.dlede.judge.scores import Scores

STEPS = (0, 10, 20)
METRICS = ("map50", "f1")
NOISE = 0.004


def chains(means, repetitions, rng):
    return means[:, None] + rng.normal(0, NOISE, (len(means), repetitions, means.shape[1]))


#: A trainer that scores .3 on what is new, and gains .4 a share of the test images that leaks.
CLEAN = np.array([(0.30, 0.34, 0.38), (0.28, 0.32, 0.36)])


def protocol(rule="both-steps", repetitions=10, calibrated=True):
    return Protocol(
        METRICS, STEPS, STEPS, repetitions, RULES[rule], 0.05, 0.95, calibrated=calibrated
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("repetitions", [3, 10])
def test_splits_that_leak_are_found_as_often_as_it_says(rule, repetitions):
    rng = np.random.default_rng(1)
    # many chains, so that the spread is known
    clean = [chains(CLEAN, 400, rng)]
    asked = protocol(rule, repetitions)
    share, up_to = detection_range(clean, asked)
    assert up_to == 1.0
    leaked = share + (1.0 - share) * np.array(STEPS) / 100.0
    means = np.stack([score_at(leaked, STEPS, each) for each in clean[0]])
    runs = 100
    numbers = tuple(range(1, repetitions + 1))
    drawn = (Scores(METRICS, STEPS, numbers, chains(means, repetitions, rng)) for _ in range(runs))
    verdicts = [judge(each, rule=rule, calibrated=True).verdict for each in drawn]
    # less three standard errors; and the limit is not far above what is seldom found
    assert verdicts.count("leaking") / runs > PROBABILITY - 0.09
    assert detection_probability(share - 0.3, clean, asked) < 0.2


def test_without_noise_the_limit_is_where_the_increase_falls_to_the_threshold():
    """.4 (1 - L) / 10 = .05 (.3 + .4 L): L = .417; the other metric, which starts lower, .433."""
    clean = [np.repeat(CLEAN[:, None], 3, axis=1)]
    assert detection_range(clean, protocol())[0] == pytest.approx(0.44)
    assert detection_probability(0.43, clean, protocol()) == 0.0
    assert detection_probability(0.44, clean, protocol()) == 1.0
    # without calibration a leak of .917 starts too high, at .667
    found = detection_range(clean, protocol(calibrated=False))
    assert found == pytest.approx((0.44, 0.91))


def test_scores_between_and_beyond_the_steps():
    values = np.array([[0.3, 0.5, 0.7, np.nan]] * 2)
    found = score_at(np.array([0.0, 0.05, 0.2, 0.3, 0.9]), (0, 10, 20, 30), values)
    assert found == pytest.approx([0.3, 0.4, 0.7, 0.9, 1.0])


def test_a_limit_of_an_accuracy_needs_to_know_what_guessing_scores():
    rng = np.random.default_rng(0)
    scores = Scores(("accuracy",), STEPS, tuple(range(10)), chains(CLEAN[:1], 10, rng))
    assert detection_limit(scores, judge(scores)).reason_code == "chance-not-known"
    # named in other letters than in the scores
    known = {"Accuracy": 0.1}
    assert detection_limit(scores, judge(scores, chance=known), chance=known).share > 0.0


def limited(made, *clean):
    return detection_limit(made.scores, made.judgement, clean=clean, calibrated=bool(clean))


@pytest.mark.parametrize(
    ("make", "repetitions", "code", "words"),
    [
        (kitti, 10, "score-too-high", "no leak of any size"),
        (cirrus, 1, "one-repetition", "not known from one repetition"),
        (early, 5, "no-split-without-leaks", "not known"),
        # it begins at .49, and what leaks takes it above .67 before it rises little enough
        (cirrus, 10, "no-leak-is-found", "start too high"),
    ],
)
def test_where_there_is_no_limit_the_reason_is_told(make, repetitions, code, words):
    found = limited(make(repetitions))
    assert math.isnan(found.share)
    assert found.reason_code == code
    assert words in detection_line(found)


def test_a_limit_is_told_with_what_it_assumes():
    means = dict(zip(METRICS, CLEAN.tolist(), strict=True))
    leaking = dict.fromkeys(METRICS, (0.5, 0.505, 0.51))
    splits = [curves(means, 5, 0.004, seed=n) for n in range(3)]
    for curve, clean, source, assumed in (
        (means, [], "curve", "this split has no leak"),
        (leaking, splits, "calibration", "the clean splits have no leak"),
    ):
        found = limited(result(curves(curve, 10, 0.004)), *clean)
        assert (found.source, found.reason_code, found.repetitions) == (source, "", 10)
        assert 0.4 < found.share < 0.6
        assert assumed in detection_line(found)
        assert found.up_to == 1.0 or not clean
