"""Rates and bounds of calibrated thresholds."""

import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta
from tiny_encoder import BlindEncoder, TinyEncoder, blobs

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.pipeline import RunContext
from visleak.pipeline.comparison import read_thresholds
from visleak.pipeline.fingerprints import fingerprint
from visleak.robustness import calibrate
from visleak.robustness.conditions import CONDITIONS, compressed
from visleak.robustness.thresholding import STEP, rates, threshold_at
from visleak.storage import write_json

NAMES = ("original", "flip-h", "gauss", "red")
tiny = partial(calibrate, encoder=TinyEncoder(), conditions=NAMES, verify=False, cache=None)


@pytest.fixture(scope="module")
def found():
    return tiny(blobs(30), fpr=(0.003, 0.05))


@pytest.fixture(scope="module")
def wrong():
    """The similarities of all wrong pairs of the same experiment, by loops."""
    encoder, pictures, result = TinyEncoder(), blobs(30), []
    with RunContext.at(None, 1, None) as place:
        plain = np.array(fingerprint(open_images(pictures), encoder, place).matrix, np.float64)
        for name in NAMES:
            changed = [CONDITIONS[name].of(p, str(i)) for i, p in enumerate(pictures)]
            matrix = np.float64(fingerprint(open_images(changed), encoder, place).matrix)
            result += [matrix[i] @ plain[j] for i in range(30) for j in range(30) if i != j]
    return np.array(result, np.float32)


def test_the_rate_of_wrong_pairs(found, wrong):
    """Counted by loops; the next lower threshold has a higher rate than requested."""
    assert found.hard.pairs == found.soft.pairs == len(wrong) == 30 * 29 * 4
    assert found.hard.image_pairs == 30 * 29 // 2
    for level in (found.hard, found.soft):
        assert level.supported
        above = (wrong >= np.float32(level.threshold)).sum()
        assert above == level.false <= level.asked * len(wrong)
        assert (wrong >= np.float32(level.threshold - STEP)).mean() > level.asked
    assert found.hard.threshold > found.soft.threshold
    # an encoder without views does not find a mirrored blob
    assert found.hard.original.share == 1.0
    assert found.hard.conditions["flip-h"].share < 0.5
    assert found.hard.changed.total == 90


def test_the_bounds_by_their_definitions(found, wrong):
    """Clopper and Pearson over all pairs; wider for fewer independent cases."""
    level = found.soft
    k, n = level.false, level.pairs
    assert level.upper_pairs == pytest.approx(beta.ppf(0.95, k + 1, n - k))
    assert level.rate < level.upper_pairs < level.upper_independent < level.upper_images < 1
    share = (wrong >= np.float32(level.threshold)).mean()
    for cases, bound in ((435, level.upper_independent), (15, level.upper_images)):
        divergence = share * math.log(share / bound)
        divergence += (1 - share) * math.log((1 - share) / (1 - bound))
        assert cases * divergence == pytest.approx(math.log(20), rel=1e-6)
    assert 0 <= level.interval[0] <= level.rate <= level.interval[1]


def test_a_rate_that_is_too_low_for_the_set_is_noted():
    found = tiny(blobs(30), fpr=[1e-6])
    assert found.hard.false == 0
    assert not found.hard.supported
    assert found.hard.asked == 1e-6
    assert found.soft.asked == 1e-4
    assert "cannot support a rate of 1e-06: with 435 pairs of images the" in found.notes[0]
    assert found.hard.interval is None


def test_copies_are_excluded_and_near_ones_by_verification(natural):
    """An image that is in the set twice would raise the threshold to 1."""
    pictures = [natural[name][:160, :200] for name in ("astronaut", "coffee", "rocket", "moon")]
    again = [*pictures, pictures[1], compressed(np.ascontiguousarray(pictures[0]), 60)]
    verified = calibrate(again, fpr=[0.1], conditions=["original"], cache=None)
    assert verified.twins == 2
    assert verified.hard.threshold < 0.9
    unverified = calibrate(again, fpr=[0.05], conditions=["original"], cache=None, verify=False)
    assert unverified.twins == 1
    assert unverified.hard.pairs == 6 * 5 - 2
    assert unverified.hard.threshold > 0.9


def test_the_file_is_read_for_its_encoder_only(found, tmp_path):
    path = tmp_path / "thresholds.json"
    write_json(path, found.as_dict())
    entry = read_thresholds(path, TinyEncoder())
    assert entry["hard"] == found.hard.threshold
    about = json.loads(path.read_text())["encoders"]["tiny-1"]["calibration"]
    assert about["conditions"] == list(NAMES)
    assert about["hard"]["pairs"] == found.hard.pairs
    assert "hard at a false-positive rate of 0.003, soft at a false" in entry["provenance"]
    with pytest.raises(UsageError, match=r"holds thresholds of tiny .*, not of blind"):
        read_thresholds(path, BlindEncoder())


@given(st.lists(st.floats(-1, 0.9375, width=32), min_size=1, max_size=50), st.integers(0, 60))
def test_a_threshold_is_the_lowest_step(values, allowed):
    """At most the allowed number reach it, and more reach the step below."""
    largest = np.sort(np.array(values, np.float32))[::-1]
    threshold = threshold_at(largest, allowed)
    assert (largest >= np.float32(threshold)).sum() <= max(allowed, 0)
    if allowed < len(largest):
        assert (largest >= np.float32(threshold - 1.01 * STEP)).sum() > allowed


def test_invalid_rates_are_refused():
    for wrong, said in (
        ([0.1, 0.2, 0.3], "fpr must be one rate or two, hard and soft; got 3"),
        ([math.nan], "fpr must be a rate between 0 and 1, such as 1e-6; got nan"),
        ([1e-3, 1e-4], "rate, that of the hard threshold, first; got 0.001 and 0.0001"),
    ):
        assert said in refusal(UsageError, rates, wrong)


def test_encoders_and_sets_without_a_threshold_are_refused():
    with pytest.raises(VisleakError, match=r"no threshold has a rate this low: .* cannot separate"):
        calibrate(blobs(6), BlindEncoder(), fpr=[0.01], verify=False, cache=None)
    with pytest.raises(VisleakError, match="has copies of one image only"):
        tiny(blobs(1) * 3, fpr=[0.01])
