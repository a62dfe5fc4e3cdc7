"""Measures of tiny images against slow, independent computations."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st

from visleak.verification import align
from visleak.verification.tiny_overlaps import DIRECTED, NOISE, TILES, TinyOverlaps

SIDE = 32


def square(seed):
    """Return a smooth random RGB square."""
    rng = np.random.default_rng(seed)
    noise = cv2.GaussianBlur(rng.normal(size=(SIDE, SIDE, 3)), (0, 0), 1.2)
    return np.clip(127 + 60 * noise / noise.std(), 0, 255).astype(np.float32)


def overlap(left, right, matrix):
    """Return the overlap of one pair."""
    return TinyOverlaps.of(left[None], right[None], matrix[None])


def measured(left, right, matrix):
    return overlap(left, right, matrix).measures()[0]


def moved(across, down, scale=1.0):
    return np.array([[scale, 0, across], [0, scale, down], [0, 0, 1.0]])


MATRICES = [np.eye(3), moved(0.1, -0.05), moved(-0.2, -0.2, 1.3), align.view_matrix(5)]


def central(values, axis):
    """Return differences of neighbours, edges replicated, by SciPy."""
    kernel = np.array([-1.0, 0, 1])
    return scipy.ndimage.correlate1d(values.astype(np.float64), kernel, axis=axis, mode="nearest")


def gradients(pair):
    """Return the gradients of both images inside the inner mask, (2, s, s, 2)."""
    return [
        np.stack([central(g, 1), central(g, 0)], axis=-1) * pair.inner[0][..., None]
        for g in pair.grey[0]
    ]


@pytest.mark.parametrize("matrix", MATRICES)
def test_gradient_and_agreement_are_correlations(matrix):
    pair = overlap(square(0), square(1), matrix)
    a, b = gradients(pair)

    def correlation(x, y):
        return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())

    def damped(x):
        return x / np.sqrt(np.linalg.norm(x, axis=-1, keepdims=True) + NOISE)

    assert pair.gradient == pytest.approx(correlation(a, b), abs=1e-4)
    both = (correlation(a, b) + correlation(damped(a), damped(b))) / 2
    assert pair.agreement == pytest.approx(both * pair.inner.mean() ** 0.25, abs=1e-4)


@pytest.mark.parametrize("matrix", MATRICES)
def test_directions_are_the_upper_quartile_of_the_tiles(matrix):
    pair = overlap(square(2), square(3), matrix)
    a, b = (x / (np.linalg.norm(x, axis=-1, keepdims=True) + NOISE) for x in gradients(pair))
    step = SIDE // TILES
    agreed = []
    for y in range(0, SIDE, step):
        for x in range(0, SIDE, step):
            p, q = a[y : y + step, x : x + step], b[y : y + step, x : x + step]
            scale = np.sqrt((p * p).sum() * (q * q).sum()) + DIRECTED * step * step
            agreed.append((p * q).sum() / scale)
    assert pair.directions == pytest.approx(np.quantile(agreed, 0.75), abs=1e-4)


def test_a_caption_over_two_tiles_does_not_change_the_core():
    left = square(4)
    right = left.copy()
    right[24:, :16] = 255
    right[26:30, 2:14:2] = 0
    pair = overlap(left, right, np.eye(3))
    assert pair.core > 0.95
    assert pair.gradient < 0.7


@pytest.mark.parametrize("matrix", MATRICES)
def test_detail_correlates_second_derivatives(matrix):
    pair = overlap(square(5), square(6), matrix)
    inside = pair.inner[0] > 0
    a, b = (
        scipy.ndimage.laplace(g.astype(np.float64), mode="mirror")[inside] for g in pair.grey[0]
    )
    expected = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
    assert pair.detail == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("matrix", MATRICES)
def test_palette_is_the_share_of_variance_explained(matrix):
    pair = overlap(square(7), square(8), matrix)
    inside = pair.mask[0] > 0
    ours = np.column_stack([pair.moved[0][inside], np.ones(inside.sum())])
    theirs = pair.reference[0][inside]
    fit, *_ = np.linalg.lstsq(ours, theirs, rcond=None)
    rest = ((theirs - ours @ fit) ** 2).sum()
    expected = 1 - rest / ((theirs - theirs.mean(axis=0)) ** 2).sum()
    assert pair.measures()[0].palette == pytest.approx(expected, abs=2e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0.4, 1.6), st.floats(-40, 40), st.permutations(range(3)))
def test_light_and_order_of_channels_do_not_change_agreement(seed, gain, offset, channels):
    left = square(seed) * 0.5 + 60
    right = (left * gain + offset).astype(np.float32)
    same = overlap(left, right, np.eye(3))
    assert same.gradient == pytest.approx(1, abs=1e-3)
    assert same.agreement > 0.97
    assert measured(left, right[..., channels], np.eye(3)).palette > 0.97


def test_overlaps_below_a_sixteenth_are_not_measured():
    assert overlap(square(9), square(9), moved(0.9, 0.9)).firm == -np.inf
    assert overlap(square(9), square(9), moved(0.6, 0.6)).firm > -np.inf


def test_used_and_covered():
    small = measured(square(1), square(1), moved(0.25, 0.25, 0.5))
    assert (small.covered, small.used) == pytest.approx((0.25, 1.0), abs=0.07)
    large = measured(square(1), square(1), moved(-0.5, -0.5, 2.0))
    assert (large.covered, large.used) == pytest.approx((1.0, 0.25), abs=0.02)
