"""Edges, structure, drift and what is left, against slow ways and planted differences."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verification import agreement
from visleak.verification.agreement import agreeing, blurred_equally, by_tile, edges, local, rest

SHAPE = (96, 128)
ALL = np.ones(SHAPE, bool)


@pytest.fixture
def picture(natural):
    small = cv2.resize(natural["astronaut"], SHAPE[::-1], interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)


def shifted(picture, across, down):
    move = np.float32([[1, 0, across], [0, 1, down]])
    size = picture.shape[::-1]
    return cv2.warpAffine(picture, move, size, borderMode=cv2.BORDER_REFLECT)


@pytest.mark.parametrize("shape", [(4, 4), (16, 20), (17, 31), (96, 128)])
def test_tiles_add_up_to_the_whole(shape):
    """Sixteen of them, of any shape, against slices."""
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    rows = [slice(a * shape[0] // 4, (a + 1) * shape[0] // 4) for a in range(4)]
    columns = [slice(a * shape[1] // 4, (a + 1) * shape[1] // 4) for a in range(4)]
    expected = [values[r, c].sum() for r in rows for c in columns]
    np.testing.assert_allclose(by_tile(values), expected, atol=1e-3)


def test_plain_tiles_do_not_stand_for_the_others():
    """The core of a small drawing on plain ground is the drawing."""
    drawing = np.full(SHAPE, 255, np.float32)
    cv2.circle(drawing, (40, 40), 12, 30, 2)
    # as a compression leaves it: where something is drawn
    drawn = cv2.dilate((drawing < 255).astype(np.uint8), np.ones((9, 9))) > 0
    noise = np.random.default_rng(0).normal(0, 4, SHAPE).astype(np.float32)
    assert edges(drawing + noise * drawn, drawing, ALL).core > 0.9


def test_equal_pictures_agree(picture):
    """Fully, and without drift."""
    found, near = edges(picture, picture, ALL), local(picture, picture, ALL)
    assert (found.gradient, found.core) == pytest.approx((1, 1))
    assert near.structure > 0.9
    assert near.agree > 0.95
    assert near.drift < 0.01
    left = rest(picture, picture, ALL)
    assert (left.residual, left.within, left.patch) == (0, 1, 0)


def test_the_edge_correlation_is_the_plain_one(picture):
    """Of Sobel gradients inside the image, computed by numpy."""
    other = cv2.GaussianBlur(picture, (0, 0), 1.5) + shifted(picture, 3, 2) / 3
    inside = np.zeros(SHAPE, bool)
    inside[1:-1, 1:-1] = True
    fields = []
    for one in (picture, other):
        sobel = [cv2.Sobel(one, cv2.CV_32F, *along, ksize=3) for along in ((1, 0), (0, 1))]
        fields.append(np.concatenate([field[2:-2, 2:-2].ravel() for field in sobel]).astype(float))
    a, b = fields
    expected = (a @ b) / np.sqrt((a @ a) * (b @ b))
    assert edges(picture, other, inside).gradient == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("step", [(0.3, 0.0), (0.0, -0.5), (0.6, 0.8)])
def test_drift_is_about_the_planted_displacement(picture, step):
    """In pixels: the upper quartile of windows, so rather more than less."""
    moved = shifted(picture, *step)
    drift = local(picture, moved, ALL).drift
    assert 0.8 * np.hypot(*step) < drift < 1.7 * np.hypot(*step)


def test_drift_needs_texture(picture):
    """Nothing to go by is no sign of the same shot."""
    blank = np.full(SHAPE, 80, np.float32)
    for pair in ((blank, blank), (picture, blank), (blank, picture)):
        assert local(*pair, ALL).drift == agreement.UNKNOWN


def test_a_layer_that_moved_drifts(picture):
    """Parallax: half of the image three pixels aside, the other half in place."""
    moved = picture.copy()
    moved[:, 64:] = shifted(picture, 3, 0)[:, 64:]
    still = local(picture, picture + np.float32(5), ALL)
    assert local(picture, moved, ALL).drift > 10 * still.drift + 0.5


def test_a_caption_leaves_core_structure_and_drift(picture):
    """Letters along one edge: what a patch hides, the rest still tells."""
    written = np.rint(picture).astype(np.uint8)
    cv2.putText(written, "CAPTION", (4, 92), cv2.FONT_HERSHEY_DUPLEX, 0.6, 255, 2)
    captioned = written.astype(np.float32)
    found, near = edges(picture, captioned, ALL), local(picture, captioned, ALL)
    assert found.gradient < 0.9
    assert found.core > 0.97
    assert near.agree > 0.8
    assert near.drift < 0.3


def test_what_contradicts_is_left_out_of_an_alignment(picture):
    """The pasted corner, and not much else."""
    pasted = picture.copy()
    pasted[:48, :64] = picture[48:, 64:][::-1]
    kept = agreeing(picture, pasted, ALL)
    assert kept[:40, :56].mean() < 0.35
    assert kept[56:, 72:].mean() > 0.85


def test_where_all_contradicts_nothing_is_left_out(picture):
    """The alignment has to begin somewhere."""
    other = np.random.default_rng(0).uniform(0, 255, SHAPE).astype(np.float32)
    np.testing.assert_array_equal(agreeing(picture, other, ALL), ALL)


@pytest.mark.parametrize("sigma", [0.7, 1.4, 2.0])
@pytest.mark.parametrize("first", [True, False])
def test_a_blur_is_undone(picture, sigma, first):
    """The sharper one is blurred about as much, whichever it is."""
    soft = cv2.GaussianBlur(picture, (0, 0), sigma)
    pair = (picture, soft) if first else (soft, picture)
    before = edges(*pair, ALL).gradient
    ours, theirs, blur = blurred_equally(*pair, ALL)
    assert 0.6 * sigma <= blur <= 1.5 * sigma
    assert edges(ours, theirs, ALL).gradient > max(before, 0.98)


def test_noise_is_smoothed_away(picture):
    """It is fine detail that the other image does not have."""
    noisy = picture + np.random.default_rng(0).normal(0, 30, SHAPE).astype(np.float32)
    ours, theirs, blur = blurred_equally(noisy, picture, ALL)
    assert blur > 0
    assert edges(ours, theirs, ALL).gradient > edges(noisy, picture, ALL).gradient


def test_what_is_left_by_hand():
    """Squares, shares and the worst tile of a planted difference."""
    query, reference = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)
    reference[:2, :2] = 20
    mask = np.ones((8, 8), bool)
    mask[4:] = False
    left = rest(query, reference, mask)
    assert left.residual == pytest.approx(np.sqrt(4 * 400 / 32))
    assert left.within == pytest.approx(1 - 4 / 32)
    assert left.patch == pytest.approx(np.sqrt(4 * 400 / (4 + 0.5)))
