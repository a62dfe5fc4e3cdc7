"""What counts as nearly the same image, by each of the similarities."""

import itertools

import cv2
import numpy as np
import pytest

from replaying_model import fresh, planted
from visleak.encoders import load_encoder
from visleak.memorization.extraction import similarity as verified
from visleak.memorization.extraction.similarity import (
    GATE,
    EncoderSimilarity,
    PixelSimilarity,
    VerifiedSimilarity,
    load_similarity,
)


def noisy(picture, count, seed=0, amount=5.0):
    draw = np.random.default_rng(seed)
    return [
        np.clip(picture + draw.normal(0, amount, picture.shape), 0, 255).astype(np.uint8)
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("name", "side"),
    # PDQ is for photographs: noise of 16 pixels flips its bits
    [("builtin", 16), ("builtin", 96), ("pixels", 16), ("pixels", 96), ("pdq", 96)],
)
def test_a_matrix_is_symmetric_with_ones_and_finds_the_copies(name, side):
    pictures = [*noisy(planted(0, side), 4), *noisy(planted(1, side), 3), fresh(1, side)]
    measure = load_similarity(name)
    alike = measure.matrix(pictures)
    assert alike.shape == (8, 8)
    assert np.array_equal(alike, alike.T)
    assert np.array_equal(np.diag(alike), np.ones(8))
    same = np.array([0, 0, 0, 0, 1, 1, 1, 2])
    near = 1 - alike <= measure.eps
    assert np.array_equal(near, same[:, None] == same[None, :])


@pytest.mark.parametrize("name", ["builtin", "pixels"])
def test_between_two_lists_says_what_the_matrix_of_both_says(name):
    one = [*noisy(planted(0, 32), 2), fresh(3, 32)]
    other = [*noisy(planted(0, 32), 2, seed=1), planted(2, 32)]
    measure = load_similarity(name)
    whole = measure.matrix([*one, *other])
    assert measure.between(one, other) == pytest.approx(whole[:3, 3:], abs=1e-9)


def test_pixels_are_the_correlation_of_the_pictures():
    one, other = planted(0, 32), planted(1, 32)
    left = (one - one.mean((0, 1))).ravel()
    right = (other - other.mean((0, 1))).ravel()
    expected = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
    alike = PixelSimilarity().matrix([one, other])
    assert alike[0, 1] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["builtin", "pixels"])
def test_blank_pictures_are_alike_where_their_colour_is(name):
    black, white = np.zeros((16, 16, 3), np.uint8), np.full((16, 16, 3), 250, np.uint8)
    alike = load_similarity(name).matrix([black, black.copy(), white, planted(0, 16)])
    near = alike > 0.5
    expected = np.eye(4, dtype=bool)
    expected[0, 1] = expected[1, 0] = True
    assert np.array_equal(near, expected)


@pytest.mark.parametrize("name", ["builtin", "pixels"])
def test_pictures_of_several_sizes_are_compared(name):
    alike = load_similarity(name).matrix([planted(0, 128), planted(0, 64), fresh(0, 32)])
    assert alike[0, 1] > 0.9


def test_verification_takes_back_what_the_fingerprint_alone_would_call_alike():
    """Two scenes of one layout: the same edges, other colours and noise."""

    def scene(seed):
        draw = np.random.default_rng(seed)
        made = np.full((64, 64, 3), draw.integers(60, 200, 3), np.float64)
        made[16:48, 16:48] = draw.integers(0, 255, 3)
        return np.clip(made + draw.normal(0, 8, made.shape), 0, 255).astype(np.uint8)

    pictures = [scene(0), scene(1)]
    raw = EncoderSimilarity(load_encoder("builtin")).matrix(pictures)[0, 1]
    assert raw >= GATE
    assert VerifiedSimilarity().matrix(pictures)[0, 1] == 0.0


def test_numbers_below_the_gate_are_zero_and_above_it_are_cosines():
    pictures = [*noisy(planted(0, 16), 6, amount=30.0), *[fresh(n, 16) for n in range(12)]]
    found = VerifiedSimilarity().matrix(pictures)
    raw = EncoderSimilarity(load_encoder("builtin")).matrix(pictures)
    kept = found > 0
    assert np.array_equal(found[kept], raw[kept])
    assert found[kept].min() >= GATE


def test_a_picture_that_is_refused_ten_times_is_left_alone(monkeypatch):
    """However many pairs pass the gate, the looks are bounded."""
    asked = []

    def refuses(self, left, right):
        asked.extend(zip(left.tolist(), right.tolist(), strict=True))
        return np.zeros(len(left), np.bool_)

    monkeypatch.setattr(verified._Verifier, "confirmed", refuses)
    alike = VerifiedSimilarity().matrix(noisy(planted(0, 16), 60))
    assert np.array_equal(alike, np.eye(60))
    assert len(asked) == len(set(asked))
    assert len(asked) < 60 * 2 * verified.REFUSALS


def test_links_join_pictures_that_were_not_compared(monkeypatch):
    """Against a naive closure: two images are linked where confirmed pairs connect them."""
    draw = np.random.default_rng(5)
    truth = draw.integers(0, 4, 30)

    def same(self, left, right):
        return truth[left] == truth[right]

    monkeypatch.setattr(verified._Verifier, "confirmed", same)
    monkeypatch.setattr(verified, "REFUSALS", 1000)
    alike = VerifiedSimilarity().matrix(noisy(planted(0, 16), 30))
    for one, other in itertools.combinations(range(30), 2):
        assert (alike[one, other] > 0) == (truth[one] == truth[other])


def test_tiny_pictures_must_agree_in_place():
    """Two drawings of one thing in two places: near to the grader, and no replay of one image."""

    def circle(across, down):
        slope = np.linspace(-40, 40, 128)[:, None, None]
        made = np.clip(np.full((128, 128, 3), (40, 60, 90)) + slope, 0, 255).astype(np.uint8)
        cv2.circle(made, (across, down), 20, (230, 180, 40), -1)
        return cv2.resize(made, (16, 16), interpolation=cv2.INTER_AREA)

    pictures = [circle(40, 56), circle(64, 64)]
    measure = VerifiedSimilarity()
    assert measure.matrix(pictures)[0, 1] == 0.0
    assert measure.between(pictures[:1], pictures[1:])[0, 0] == 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verified, "is_tiny", lambda picture: False)
        assert measure.matrix(pictures)[0, 1] > GATE
