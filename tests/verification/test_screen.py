"""The screen: planted shifts, views and changes of light; unrelated images."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.records import VIEWS
from visleak.verification import screen as module
from visleak.verification.screen import REACH, SIDE, apply_view, screen, thumbnail


@pytest.fixture(scope="module")
def wide(natural):
    """Return grey images larger than thumbnails, to crop shifted ones."""
    side = SIDE + 2 * REACH
    small = [cv2.resize(p, (side, side), interpolation=cv2.INTER_AREA) for p in natural.values()]
    return np.stack([cv2.cvtColor(p, cv2.COLOR_RGB2GRAY) for p in small])


def middle(wide, across=0, down=0):
    """Return the middle, with its content shifted right and down."""
    return np.ascontiguousarray(
        wide[:, REACH - down : REACH - down + SIDE, REACH - across : REACH - across + SIDE]
    )


def original(count):
    return np.zeros(count, np.int8)


@pytest.mark.parametrize(
    ("across", "down"), [(0, 0), (3, 0), (0, 3), (-4, 2), (8, -8), (-8, 5), (1, 1), (7, 7)]
)
def test_planted_shifts_are_found(wide, across, down):
    query, reference = middle(wide), middle(wide, across, down)
    score, shift = screen(query, reference, original(len(wide)))
    np.testing.assert_array_equal(shift, [[across, down]] * len(wide))
    assert score.min() > 0.6 * (1 - abs(across) / SIDE) * (1 - abs(down) / SIDE) + 0.2


def test_the_same_image_scores_one(wide):
    query = middle(wide)
    score, shift = screen(query, query, original(len(wide)))
    np.testing.assert_allclose(score, 1, atol=1e-4)
    assert not shift.any()
    assert score.dtype == np.float32
    assert shift.dtype == np.int8


@pytest.mark.parametrize("view", range(9), ids=VIEWS)
def test_views_are_undone(wide, view):
    query = middle(wide)
    reference = np.ascontiguousarray(apply_view(query, view))
    score, shift = screen(query, reference, np.full(len(wide), view, np.int8))
    np.testing.assert_allclose(score, 1, atol=1e-4)
    assert not shift.any()
    if view:
        assert (screen(query, reference, original(len(wide)))[0] < score - 0.2).all()


def test_each_pair_is_compared_in_its_own_view(wide):
    query = middle(wide)
    view = np.arange(len(wide)).astype(np.int8)
    reference = np.stack([apply_view(one, int(v)) for one, v in zip(query, view, strict=True)])
    score, _ = screen(query, reference, view)
    np.testing.assert_allclose(score, 1, atol=1e-4)


@pytest.mark.parametrize(("gain", "offset"), [(1.0, 40), (0.6, 60), (0.8, -5), (0.5, 0)])
def test_light_changes_little(wide, gain, offset):
    query = middle(wide)
    bright = np.clip(query * gain + offset, 0, 255).astype(np.uint8)
    score, shift = screen(query, bright, original(len(wide)))
    assert score.min() > 0.85
    assert not shift.any()


def test_blur_and_noise_change_little(wide):
    query = middle(wide)
    blurred = np.stack([cv2.GaussianBlur(one, (0, 0), 0.6) for one in query])
    noise = np.random.default_rng(0).normal(0, 3, query.shape)
    noisy = np.clip(query + noise, 0, 255).astype(np.uint8)
    for changed in (blurred, noisy):
        assert screen(query, changed, original(len(wide)))[0].min() > 0.7


def test_unrelated_images_score_low(wide):
    query = middle(wide)
    n = len(query)
    first, second = np.nonzero(~np.eye(n, dtype=bool))
    score, _ = screen(query[first], query[second], original(len(first)))
    assert score.max() < 0.45
    assert np.median(score) < 0.25


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 9))
def test_batches_change_nothing(seed, count, batch):
    rng = np.random.default_rng(seed)
    query, reference = rng.integers(0, 256, (2, count, SIDE, SIDE), np.uint8)
    view = rng.integers(0, 9, count).astype(np.int8)
    score, shift = screen(query, reference, view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH", batch)
        again, shift_again = screen(query, reference, view)
    np.testing.assert_array_equal(score, again)
    np.testing.assert_array_equal(shift, shift_again)
    assert np.abs(score).max() <= 1 + 1e-4


def test_the_score_is_the_normalised_correlation(wide):
    rng = np.random.default_rng(1)
    query, reference = middle(wide)[:2], rng.integers(0, 256, (2, SIDE, SIDE), np.uint8)
    score, shift = screen(query, reference, original(2))
    for n in range(2):
        a, b = (
            module.damped_gradient(one[n : n + 1])[0].astype(complex) for one in (query, reference)
        )
        best = max(
            (slow_score(a, b, across, down), -down, -across)
            for down in range(-REACH, REACH + 1)
            for across in range(-REACH, REACH + 1)
        )
        assert score[n] == pytest.approx(best[0], abs=1e-4)
        assert slow_score(a, b, *map(int, shift[n])) == pytest.approx(best[0], abs=1e-4)


def slow_score(a, b, across, down):
    """Correlate the parts that overlap if b's content is shifted relative to a's."""

    def cut(plane, right, below):
        return plane[max(0, below) : SIDE + min(0, below), max(0, right) : SIDE + min(0, right)]

    first, second = cut(a, -across, -down), cut(b, across, down)
    energy = (np.abs(first) ** 2).sum() * (np.abs(second) ** 2).sum()
    share = (1 - abs(across) / SIDE) * (1 - abs(down) / SIDE)
    return (np.conj(first) * second).real.sum() / np.sqrt(max(energy, 1e-6)) * np.sqrt(share)


@pytest.mark.parametrize("count", [0, 3])
def test_blank_images_and_no_images_score_nothing(count):
    blank = np.full((count, SIDE, SIDE), 90, np.uint8)
    score, shift = screen(blank, blank, original(count))
    np.testing.assert_array_equal(score, np.zeros(count))
    assert shift.shape == (count, 2)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (32, 32), (31, 200), (700, 400)])
def test_thumbnails_of_any_shape(shape):
    pixels = np.random.default_rng(2).integers(0, 256, (*shape, 3), np.uint8)
    got = thumbnail(pixels)
    assert (got.shape, got.dtype) == ((SIDE, SIDE), np.uint8)
    if shape == (SIDE, SIDE):
        np.testing.assert_array_equal(got, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))
