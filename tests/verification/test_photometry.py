"""The photometric fit: planted gains, tints, inversions and captions."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_changes import jpeg
from visleak.verification.check import bounded
from visleak.verification.frame import Frame, Photo, common_frame
from visleak.verification.measures import grey
from visleak.verification.photometry import photometric_fit


def fit(query, reference):
    """Return the fit of two arrays that are content everywhere."""
    planes = [np.asarray(plane, np.float32) for plane in (query, reference)]
    return photometric_fit(Frame(*planes, np.ones(query.shape[:2], bool), np.eye(3), 1.0, 1.0))


@given(st.integers(0, 10**6), st.floats(0.2, 3), st.floats(-60, 60))
def test_planted_gain_and_offset_are_found(seed, gain, offset):
    query = np.random.default_rng(seed).uniform(0, 255, (24, 32, 3))
    found = fit(query, gain * query + offset)
    assert found.gain == pytest.approx(gain, rel=0.01)
    assert found.offset == pytest.approx(offset, abs=0.5 + 255 * 0.01 * gain)
    assert found.correlation == pytest.approx(1, abs=1e-4)
    assert found.colour == pytest.approx(1, abs=1e-4)


def test_least_squares_agrees_with_numpy():
    rng = np.random.default_rng(1)
    query = rng.uniform(0, 255, (40, 40, 3))
    target = query @ [0.7, -0.2, 0.1] + 60 + rng.normal(0, 1, (40, 40))
    found = fit(query, np.repeat(target[..., None], 3, axis=2))
    table = np.column_stack([query.reshape(-1, 3), np.ones(1600)])
    weights, *_ = np.linalg.lstsq(table, target.ravel(), rcond=None)
    np.testing.assert_allclose(found.fitted.ravel(), table @ weights, atol=8)


def test_a_caption_does_not_change_the_light(natural):
    query = np.clip(bounded(natural["astronaut"]) * 0.8 + 20, 0, 255).astype(np.uint8)
    captioned = query.copy()
    captioned[: len(query) // 4] = 255
    photos = Photo.of(bounded(natural["astronaut"])), Photo.of(captioned)
    found = photometric_fit(common_frame(*photos, np.eye(3)))
    assert (found.gain, found.offset) == pytest.approx((0.8, 20), rel=0.05, abs=2)


@pytest.mark.parametrize("quality", [50, 75, 90])
@pytest.mark.parametrize("side", [64, 200])
def test_artefacts_of_compression_on_plain_ground_do_not_change_the_contrast(quality, side):
    drawing = np.full((side, side, 3), 255, np.uint8)
    cv2.circle(drawing, (side // 3, side // 3), side // 6, (200, 40, 30), -1)
    cv2.line(drawing, (side // 4, side // 2), (side // 2, side // 2 + 6), (20, 20, 90), 3)
    found = fit(jpeg(drawing, quality), drawing)
    expected = grey(drawing.astype(np.float32))
    assert found.fitted.std() == pytest.approx(expected.std(), rel=0.1)
    assert found.gain == pytest.approx(1, abs=0.1)
