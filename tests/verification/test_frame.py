"""The common frame: what of two images is compared, and at which resolution."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verification.align import inverse, shift_matrix, view_matrix
from visleak.verification.check import bounded
from visleak.verification.frame import LEAST, SIDE, Photo, content_of, frame


def crop_matrix(left, top, right, bottom):
    """Return where a crop (shares of the reference) lies in the reference."""
    return np.array([[right - left, 0, left], [0, bottom - top, top], [0, 0, 1.0]])


@pytest.fixture
def picture(natural):
    return bounded(natural["astronaut"])


def test_a_picture_on_itself(picture):
    """All of it, at the frame's full size, pixel for pixel the same."""
    found = frame(Photo.of(picture), Photo.of(picture), np.eye(3))
    assert found.mask.shape == (SIDE, SIDE)
    np.testing.assert_array_equal(found.query, found.reference)
    assert (found.covered, found.used) == (1, 1)


def test_edges_that_nearly_coincide_are_shared(picture):
    """Alignment leaves a relation that is off by rounding: all of the image is shared still."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = np.eye(3) + rng.normal(0, 1e-7, (3, 3)) * [[1], [1], [0]]
        found = frame(Photo.of(picture), Photo.of(picture), matrix)
        assert (found.covered, found.used) == pytest.approx((1, 1), abs=1e-4)


def test_a_crop_is_compared_in_its_own_detail(picture):
    """The frame is the crop's place, not the whole; its pixels are the finer image's."""
    query = picture[64:128, 96:224]
    matrix = crop_matrix(96 / 256, 64 / 256, 224 / 256, 128 / 256)
    found = frame(Photo.of(query), Photo.of(picture), matrix)
    assert found.mask.shape == (64, 128)
    assert found.covered == pytest.approx(1 / 8)
    assert found.used == pytest.approx(1)
    inner = np.s_[2:-2, 2:-2]
    np.testing.assert_allclose(found.query[inner], found.reference[inner], atol=1)


def test_a_reduced_picture_sets_the_resolution(picture):
    """Detail that one of the two lost is not compared."""
    small = cv2.resize(picture, (48, 48), interpolation=cv2.INTER_AREA)
    for pair in ((small, picture), (picture, small)):
        found = frame(Photo.of(pair[0]), Photo.of(pair[1]), np.eye(3))
        assert found.mask.shape == (48, 48)
        inner = np.s_[2:-2, 2:-2]
        off = np.abs(found.query[inner] - found.reference[inner])
        assert off.mean() < 4


@pytest.mark.parametrize("view", range(8))
def test_views_lie_on_the_reference(picture, view):
    """Mirrored and turned queries are put right."""
    turned = np.rot90(picture[:, ::-1] if view >= 4 else picture, -(view % 4))
    found = frame(
        Photo.of(np.ascontiguousarray(turned)), Photo.of(picture), inverse(view_matrix(view))
    )
    np.testing.assert_allclose(found.query, found.reference, atol=1.5)


@pytest.mark.parametrize(
    ("matrix", "covered", "used"),
    [
        (shift_matrix(0.25, 0), 0.75, 0.75),
        (np.diag([0.5, 0.5, 1]), 0.25, 1),
        (np.diag([2.0, 2.0, 1]), 1, 0.25),
    ],
)
def test_shares_of_the_overlap(picture, matrix, covered, used):
    """Of either image, by geometry."""
    found = frame(Photo.of(picture), Photo.of(picture), matrix)
    assert (found.covered, found.used) == pytest.approx((covered, used))


@pytest.mark.parametrize("matrix", [shift_matrix(1.2, 0), shift_matrix(0.999, 0.999)])
def test_pictures_apart_have_no_frame(picture, matrix):
    """Nothing in common, or a corner that says nothing."""
    assert frame(Photo.of(picture), Photo.of(picture), matrix) is None


def test_perspective_is_followed(picture):
    """A keystoned query is put right to a pixel or so."""
    there = np.float32([[0.1, 0.05], [0.95, 0], [1, 0.9], [0, 1]])
    square = np.float32([[0, 0], [1, 0], [1, 1], [0, 1]])
    matrix = cv2.getPerspectiveTransform(there, square).astype(np.float64)
    pixels = np.diag([256.0, 256, 1]) @ np.linalg.inv(matrix) @ np.diag([1 / 256, 1 / 256, 1])
    query = cv2.warpPerspective(picture, pixels, (256, 256))
    found = frame(Photo.of(query), Photo.of(picture), matrix)
    off = np.abs(found.query - found.reference)[found.mask]
    assert np.median(off) < 6
    assert found.covered == pytest.approx(1, abs=0.01)
    assert found.used == pytest.approx(cv2.contourArea(there), abs=0.01)


# -- content -------------------------------------------------------------------------------------


def test_margins_are_no_content(picture):
    """A letterbox is left out, the image within it is not."""
    boxed = cv2.copyMakeBorder(picture, 40, 40, 0, 0, cv2.BORDER_CONSTANT, value=(0, 0, 255))
    content = content_of(boxed)
    assert not content[:40].any()
    assert not content[-40:].any()
    assert (content[40:-40] > 0).mean() > 0.9


def test_the_canvas_of_a_turned_picture_is_no_content(picture):
    """Its black corners; a bright middle stays."""
    bright = np.maximum(picture, 40)
    turn = cv2.getRotationMatrix2D((128, 128), 45, 1)
    content = content_of(cv2.warpAffine(bright, turn, (256, 256)))
    assert not content[0, 0]
    assert not content[-1, -1]
    assert content[64:192, 64:192].all()


def test_blank_pictures_are_all_content():
    """Where nothing would be left, nothing is left out."""
    assert content_of(np.full((30, 40, 3), 7, np.uint8)).all()


def test_inputs_are_not_changed(picture):
    """Read-only images are accepted."""
    before = picture.copy()
    picture.setflags(write=False)
    content_of(picture)
    np.testing.assert_array_equal(picture, before)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (17, 5)])
def test_odd_shapes(shape):
    """A frame of the least size or none, no exception."""
    rng = np.random.default_rng(0)
    one, other = (rng.integers(0, 256, (*s, 3), np.uint8) for s in (shape, (64, 64)))
    found = frame(Photo.of(one), Photo.of(other), np.eye(3))
    assert found is None or min(found.mask.shape) >= LEAST
