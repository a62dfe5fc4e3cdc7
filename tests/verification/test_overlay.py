"""Measures of tiny images, against slow and independent ways to compute them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st

from visleak.verification import align
from visleak.verification.measures import grey
from visleak.verification.overlay import DIRECTED, NOISE, TILES, Overlays, measured

SIDE = 32


def picture(seed, blur=1.2):
    """Return a smooth random RGB square."""
    rng = np.random.default_rng(seed)
    noise = cv2.GaussianBlur(rng.normal(size=(SIDE, SIDE, 3)), (0, 0), blur)
    return np.clip(127 + 60 * noise / noise.std(), 0, 255).astype(np.float32)


def laid(left, right, matrix):
    """Return the overlay of one pair."""
    return Overlays.of(left[None], right[None], matrix[None])


def moved(across, down, scale=1.0):
    return np.array([[scale, 0, across], [0, scale, down], [0, 0, 1.0]])


MATRICES = [np.eye(3), moved(0.1, -0.05), moved(-0.2, -0.2, 1.3), align.view_matrix(5)]


def central(values, axis):
    """Return differences of neighbours, edges repeated, by scipy."""
    kernel = np.array([-1.0, 0, 1])
    return scipy.ndimage.correlate1d(values.astype(np.float64), kernel, axis=axis, mode="nearest")


def fields(overlay):
    """Return the gradients of both images inside the inner mask, (2, s, s, 2)."""
    return [
        np.stack([central(g, 1), central(g, 0)], axis=-1) * overlay.inner[0][..., None]
        for g in overlay.grey[0]
    ]


@pytest.mark.parametrize("matrix", MATRICES)
def test_gradient_and_agreement_are_correlations(matrix):
    """Of plain gradients, and of gradients divided by the root of their damped size."""
    overlay = laid(picture(0), picture(1), matrix)
    a, b = fields(overlay)

    def correlation(x, y):
        return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())

    def damped(x):
        return x / np.sqrt(np.linalg.norm(x, axis=-1, keepdims=True) + NOISE)

    assert overlay.gradient == pytest.approx(correlation(a, b), abs=1e-4)
    both = (correlation(a, b) + correlation(damped(a), damped(b))) / 2
    assert overlay.agreement == pytest.approx(both * overlay.inner.mean() ** 0.25, abs=1e-4)


@pytest.mark.parametrize("matrix", MATRICES)
def test_directions_are_the_upper_quartile_of_the_tiles(matrix):
    """Tile by tile in a loop, and numpy's own quantile."""
    overlay = laid(picture(2), picture(3), matrix)
    a, b = (x / (np.linalg.norm(x, axis=-1, keepdims=True) + NOISE) for x in fields(overlay))
    step = SIDE // TILES
    agreed = []
    for y in range(0, SIDE, step):
        for x in range(0, SIDE, step):
            p, q = a[y : y + step, x : x + step], b[y : y + step, x : x + step]
            scale = np.sqrt((p * p).sum() * (q * q).sum()) + DIRECTED * step * step
            agreed.append((p * q).sum() / scale)
    assert overlay.directions == pytest.approx(np.quantile(agreed, 0.75), abs=1e-4)


def test_core_leaves_out_the_tiles_that_agree_least():
    """A caption over two tiles costs the gradient much and the core little."""
    left = picture(4)
    right = left.copy()
    right[24:, :16] = 255
    right[26:30, 2:14:2] = 0
    overlay = laid(left, right, np.eye(3))
    assert overlay.core > 0.95
    assert overlay.gradient < 0.7


@pytest.mark.parametrize("matrix", MATRICES)
def test_detail_correlates_second_derivatives(matrix):
    """By scipy's Laplacian."""
    overlay = laid(picture(5), picture(6), matrix)
    inside = overlay.inner[0] > 0
    a, b = (
        scipy.ndimage.laplace(g.astype(np.float64), mode="mirror")[inside] for g in overlay.grey[0]
    )
    expected = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
    assert overlay.detail == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("matrix", MATRICES)
def test_palette_is_the_share_of_variance_explained(matrix):
    """By least squares over the pixels themselves."""
    overlay = laid(picture(7), picture(8), matrix)
    inside = overlay.mask[0] > 0
    ours = np.column_stack([overlay.moved[0][inside], np.ones(inside.sum())])
    theirs = overlay.reference[0][inside]
    fit, *_ = np.linalg.lstsq(ours, theirs, rcond=None)
    rest = ((theirs - ours @ fit) ** 2).sum()
    expected = 1 - rest / ((theirs - theirs.mean(axis=0)) ** 2).sum()
    assert measured(overlay)[0].palette == pytest.approx(expected, abs=2e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0.4, 1.6), st.floats(-40, 40), st.permutations(range(3)))
def test_another_light_changes_nothing_that_matters(seed, gain, offset, channels):
    """Gain, offset and a turn of the colours leave the agreement of an image with itself."""
    left = picture(seed) * 0.5 + 60
    right = (left * gain + offset).astype(np.float32)[..., channels]
    same = laid(left, (left * gain + offset).astype(np.float32), np.eye(3))
    assert same.gradient == pytest.approx(1, abs=1e-3)
    assert same.agreement > 0.97
    assert measured(laid(left, right, np.eye(3)))[0].palette > 0.97


def test_little_overlap_is_not_measured():
    """Under a sixteenth of the reference there is nothing to say."""
    assert laid(picture(9), picture(9), moved(0.9, 0.9)).firm == -np.inf
    assert laid(picture(9), picture(9), moved(0.6, 0.6)).firm > -np.inf


def test_blank_pictures_have_no_agreement():
    """Neither numbers that are none, nor warnings."""
    blank = np.full((SIDE, SIDE, 3), 90, np.float32)
    for left, right in ((blank, blank), (blank, picture(1)), (picture(1), blank)):
        measures = measured(laid(left, right, np.eye(3)))[0]
        for name in ("gradient", "core", "agreement", "directions", "detail", "grey"):
            assert abs(getattr(measures, name)) < 1e-6, name
        assert 0 <= measures.palette <= 0.01


def test_used_and_covered():
    """A query at half size lies wholly on a quarter of the reference; the other way round too."""
    small = measured(laid(picture(1), picture(1), moved(0.25, 0.25, 0.5)))[0]
    assert (small.covered, small.used) == pytest.approx((0.25, 1.0), abs=0.07)
    large = measured(laid(picture(1), picture(1), moved(-0.5, -0.5, 2.0)))[0]
    assert (large.covered, large.used) == pytest.approx((1.0, 0.25), abs=0.02)


def test_light_is_fitted():
    """Gain, offset and what is left after them."""
    left = picture(3) * 0.4 + 50
    right = left * 1.2 + 10
    measures = measured(laid(left, right, np.eye(3)))[0]
    assert measures.gain == pytest.approx(1.2, abs=0.02)
    assert measures.offset == pytest.approx(10, abs=2)
    assert (measures.residual, measures.tint) == pytest.approx((0, 0), abs=1)
    assert (measures.within, measures.patch) == pytest.approx((1, 0), abs=1)
    assert grey(left).shape == (SIDE, SIDE)
