"""The photometric fit: planted gains, tints, inversions and captions."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_changes import jpeg
from visleak.verification.check import bounded
from visleak.verification.frame import Frame
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


@pytest.mark.parametrize("channel", range(3))
@pytest.mark.parametrize("name", ["astronaut", "coffee"])
def test_images_in_shades_of_one_colour_correlate(natural, name, channel):
    image = bounded(natural[name])
    tinted = np.zeros_like(image)
    tinted[..., channel] = np.rint(grey(image.astype(np.float32)))
    for pair in ((tinted, image), (image, tinted)):
        found = fit(*pair)
        assert found.correlation > 0.99
        assert found.tint > 20


@pytest.mark.parametrize("name", ["astronaut", "coins"])
def test_inversion_has_a_negative_gain(natural, name):
    found = fit(bounded(255 - natural[name]), bounded(natural[name]))
    assert (found.gain, found.offset) == pytest.approx((-1, 255), abs=0.02 * 255)
    assert found.correlation == pytest.approx(1, abs=1e-3)


def test_a_caption_does_not_change_the_light(natural):
    query = np.clip(bounded(natural["astronaut"]) * 0.8 + 20, 0, 255).astype(np.uint8)
    captioned = query.copy()
    captioned[: len(query) // 4] = 255
    found = fit(bounded(natural["astronaut"]), captioned)
    assert (found.gain, found.offset) == pytest.approx((0.8, 20), rel=0.05, abs=2)


@pytest.mark.parametrize("levels", [(0, 0), (0, 255), (90, 91)])
def test_blank_images_have_no_correlation(levels):
    found = fit(*(np.full((20, 20, 3), level) for level in levels))
    assert (found.correlation, found.colour) == (0, 0)
    assert np.isfinite([found.gain, found.offset, found.tint]).all()


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
