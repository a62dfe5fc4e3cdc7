"""The texts of a result: true in every state, and never more than retraining shows."""

import math
from dataclasses import replace

import pytest
from dlede_making import cirrus, curves, early, kitti, result, whole

from visleak.dlede.document.text import headline, statements
from visleak.dlede.hashes import hash_line
from visleak.dlede.results import Calibration, precise_rise

RISES = (
    "leaking 10 % of the test images on purpose raises mAP@0.5 by 0.5 % and F1 by 0.4 %, the next"
    " 10 % by 1.2 % and 1.0 %"
)
CLEAN = (
    "leaking 10 % of the test images on purpose raises mAP@0.5 by 22.4 % and F1 by 16.3 %, the"
    " next 10 % by 14.1 % and 12.3 % (each above 5 % at one step or more)"
)


def judged(made, **changes):
    return replace(made, judgement=replace(made.judgement, **changes))


def text(made):
    return "\n".join((headline(made), *statements(made)))


def flat(repetitions=10):
    """A detector that may rise, and does not."""
    means = {"map50": (0.5, 0.5025, 0.5075), "f1": (0.4, 0.402, 0.406)}
    return result(curves(means, repetitions, 0.002 if repetitions > 1 else 0.0))


def test_the_papers_curves():
    assert headline(cirrus()) == "no leak shows (certainty over 99.9 %, 10 repetitions)"
    assert CLEAN in text(cirrus())
    # KITTI starts at F1 .839: memorizing 10 % adds .1 (1 - .839) / .839 = 1.9 %, leak or not
    assert headline(kitti()).startswith("undecided")
    for words in ("0.852 and 0.839", "so high", "about 1.9 %", "--calibrate", RISES, ": leaking"):
        assert words in text(kitti())


@pytest.mark.parametrize(
    ("rule", "of", "words"),
    [
        ("any-step", flat, "(each at most 5 % at one step or more)"),
        ("any-step", cirrus, "(all above 5 %)"),
        ("cumulative", flat, "leaking 20 % of the test images on purpose raises mAP@0.5 by 1.5 %"),
        ("cumulative", cirrus, "by 39.7 % and F1 by 30.6 % (above 5 %)"),
    ],
)
def test_every_rule_states_what_it_compares(rule, of, words):
    made = of()
    (other,) = (each for each in made.others if each.rule == rule)
    assert words in text(replace(made, judgement=other))


def test_undecided_states_what_would_decide_it():
    made = judged(early(), leaking=0.72, clean=0.031, more=6, verdict="undecided")
    for words in ("undecided", "5 repetitions", "72.0 %", "3.1 %", "--repetitions 11"):
        assert words in text(made)
    assert "more repetitions would hardly decide it" in text(judged(made, more=None))
    # training runs made elsewhere cannot be repeated here
    assert "--repetitions" not in text(replace(judged(made, more=1), trainer={"name": "scores"}))


def test_metrics_that_contradict_each_other():
    means = {"map50": (0.6, 0.605, 0.61), "f1": (0.5, 0.6, 0.7)}
    made = result(curves(means, 8, 0.002))
    assert made.judgement.disagree
    for each in (made, result(curves(means))):
        assert "by mAP@0.5 the split seems to leak already and by F1 no leak" in headline(each)


def test_many_metrics_are_given_as_a_range():
    means = {f"m{n}": (0.5, 0.5 + n / 100, 0.6) for n in range(1, 6)}
    made = result(curves(means, 5, 0.0005), tuple(means))
    assert "raises 5 metrics by 2.0 to 10.0 %, the next 10 % by 9.1 to 17.6 %" in text(made)


@pytest.mark.parametrize("repetitions", [1, 5])
def test_a_reason_of_several_metrics_is_given_once(repetitions):
    both = (
        ({"map50": (0.8, 0.81, 0.82), "f1": (0.75, 0.76, 0.77)}, "0.800 and 0.750", "so high"),
        ({"map50": (0.02, 0.02, 0.0203), "f1": (0.01, 0.01, 0.0102)}, "0.020 and 0.010", "guess"),
    )
    for means, scores, words in both:
        told = text(result(curves(means, repetitions, 0.00001)))
        assert f"mAP@0.5 and F1 of {scores} without leaks on purpose are" in told
        assert told.count(words) == 1
    mixed = {"map50": (0.8, 0.81, 0.82), "f1": (0.01, 0.01, 0.0102)}
    told = text(result(curves(mixed, repetitions, 0.00001)))
    assert "F1 of 0.010" in told
    assert "mAP@0.5 of 0.800" in told


def test_a_calibrated_threshold():
    made = whole()
    assert "the threshold is 8.3 %, by which the means say that the split seems" in text(made)
    found = made.calibration
    assert isinstance(found, Calibration)
    for threshold, words in ((0.001, "show no leak"), (0.01, "contradict each other")):
        other = replace(made, calibration=replace(found, threshold=threshold))
        assert f"by which the means {words}" in text(other)
    assert "the threshold is calibrated on 2 clean splits" in text(judged(made, threshold=0.083))
    unknown = replace(made, calibration=replace(found, threshold=math.nan))
    assert "by which the means" not in text(unknown)
    # of a split that leaks the score starts higher, which the increase alone does not show
    assert "is 0.852 on this split and 0.486 on clean splits of the same images" in text(made)


def test_a_rounded_number_keeps_its_side_of_the_threshold():
    for share in (0.0496, 0.04999, 0.05, 0.0500001, 0.0501, 0.12):
        assert (float(precise_rise(share, 0.05)) > 5.0) == (share > 0.0500005)


def test_hashes_in_a_line():
    """Table 5 of the paper: 851 equal, 27,369 up to 10 (its printed 27,000 is no sum)."""
    hashes = kitti().hashes
    assert hashes is not None
    for words in ("851 pairs", "27,369 differ in at most 10 bits; 77.5 %", "3 images could not"):
        assert words in hash_line(hashes)
    assert hash_line(replace(hashes, unreadable=1)).endswith("1 image could not be read")
