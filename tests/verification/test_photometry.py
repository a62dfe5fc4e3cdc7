"""The fit of light and colour: planted gains, tints, inversions and captions."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from visleak.verification.check import bounded
from visleak.verification.frame import Frame, Photo, frame
from visleak.verification.measures import grey
from visleak.verification.photometry import photometric_fit


def lying(query, reference):
    """Return two images of one size, one straight over the other."""
    return frame(Photo.of(bounded(query)), Photo.of(bounded(reference)), np.eye(3))


def bare(query, reference):
    """Return a frame of two arrays, all of them content."""
    pictures = [np.asarray(picture, np.float32) for picture in (query, reference)]
    return Frame(*pictures, np.ones(query.shape[:2], bool), np.eye(3), 1.0, 1.0)


@given(st.integers(0, 10**6), st.floats(0.2, 3), st.floats(-60, 60))
def test_planted_light_is_found(seed, gain, offset):
    """Any gain and offset, to a hundredth and half a level."""
    query = np.random.default_rng(seed).uniform(0, 255, (24, 32, 3))
    found = photometric_fit(bare(query, gain * query + offset))
    assert found.gain == pytest.approx(gain, rel=0.01)
    assert found.offset == pytest.approx(offset, abs=0.5 + 255 * 0.01 * gain)
    assert found.correlation == pytest.approx(1, abs=1e-4)
    assert found.colour == pytest.approx(1, abs=1e-4)


def test_least_squares_agrees_with_numpy():
    """Colours mixed by planted weights, with noise: nearly what numpy's least squares finds."""
    rng = np.random.default_rng(1)
    query = rng.uniform(0, 255, (40, 40, 3))
    target = query @ [0.7, -0.2, 0.1] + 60 + rng.normal(0, 1, (40, 40))
    found = photometric_fit(bare(query, np.repeat(target[..., None], 3, axis=2)))
    table = np.column_stack([query.reshape(-1, 3), np.ones(1600)])
    weights, *_ = np.linalg.lstsq(table, target.ravel(), rcond=None)
    np.testing.assert_allclose(found.fitted.ravel(), table @ weights, atol=8)


@pytest.mark.parametrize("channel", range(3))
@pytest.mark.parametrize("name", ["astronaut", "coffee"])
def test_tints_keep_their_signal(natural, name, channel):
    """Luminance mapped from black to a colour: blue holds 29 levels of grey, and all of it."""
    picture = bounded(natural[name])
    tinted = np.zeros_like(picture)
    tinted[..., channel] = np.rint(grey(picture.astype(np.float32)))
    for pair in ((tinted, picture), (picture, tinted)):
        found = photometric_fit(lying(*pair))
        assert found.correlation > 0.99
        assert found.tint > 20


@pytest.mark.parametrize("name", ["astronaut", "coins"])
def test_inversion_has_a_negative_gain(natural, name):
    """Minus one, from 255."""
    found = photometric_fit(lying(255 - natural[name], natural[name]))
    assert (found.gain, found.offset) == pytest.approx((-1, 255), abs=0.02 * 255)
    assert found.correlation == pytest.approx(1, abs=1e-3)


def test_a_caption_does_not_change_the_light(natural):
    """A quarter painted white: gain and offset stay those of the rest."""
    query = np.clip(bounded(natural["astronaut"]) * 0.8 + 20, 0, 255).astype(np.uint8)
    captioned = query.copy()
    captioned[: len(query) // 4] = 255
    found = photometric_fit(lying(bounded(natural["astronaut"]), captioned))
    assert (found.gain, found.offset) == pytest.approx((0.8, 20), rel=0.05, abs=2)


@pytest.mark.parametrize("levels", [(0, 0), (0, 255), (90, 91)])
def test_blank_pictures_have_no_correlation(levels):
    """Numbers, no warning, and no agreement from nothing."""
    one, other = (np.full((20, 20, 3), level, np.float32) for level in levels)
    found = photometric_fit(bare(one, other))
    assert (found.correlation, found.colour) == (0, 0)
    assert np.isfinite([found.gain, found.offset, found.tint]).all()


@pytest.mark.parametrize("quality", [50, 75, 90])
@pytest.mark.parametrize("side", [64, 200])
def test_what_compression_leaves_on_plain_paper_does_not_decide(quality, side):
    """A drawing that covers little of its ground keeps its contrast."""
    drawing = np.full((side, side, 3), 255, np.uint8)
    cv2.circle(drawing, (side // 3, side // 3), side // 6, (200, 40, 30), -1)
    cv2.line(drawing, (side // 4, side // 2), (side // 2, side // 2 + 6), (20, 20, 90), 3)
    file = io.BytesIO()
    Image.fromarray(drawing).save(file, "JPEG", quality=quality)
    copy = np.asarray(Image.open(file).convert("RGB"))
    found = photometric_fit(bare(copy, drawing))
    expected = grey(drawing.astype(np.float32))
    assert found.fitted.std() == pytest.approx(expected.std(), rel=0.1)
    assert found.gain == pytest.approx(1, abs=0.1)
