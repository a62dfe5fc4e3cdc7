"""The common frame: the overlap of two images and its resolution."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verification import frame as module
from visleak.verification.align import inverse, shift_matrix, view_matrix
from visleak.verification.check import bounded
from visleak.verification.frame import Photo, content_mask


@pytest.fixture
def image(natural):
    return bounded(natural["astronaut"])


def common_frame(query, reference, matrix):
    return module.common_frame(Photo.of(query), Photo.of(reference), matrix)


def test_an_image_overlaps_with_itself_pixel_for_pixel(image):
    found = common_frame(image, image, np.eye(3))
    assert found.mask.shape == (module.SIDE, module.SIDE)
    np.testing.assert_array_equal(found.query, found.reference)
    assert (found.covered, found.used) == (1, 1)


def test_rounding_of_a_relation_does_not_change_the_overlap(image):
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = np.eye(3) + rng.normal(0, 1e-7, (3, 3)) * [[1], [1], [0]]
        found = common_frame(image, image, matrix)
        assert (found.covered, found.used) == pytest.approx((1, 1), abs=1e-4)


def test_a_crop_is_compared_at_its_own_resolution(image):
    matrix = np.array([[1 / 2, 0, 96 / 256], [0, 1 / 4, 64 / 256], [0, 0, 1.0]])
    found = common_frame(image[64:128, 96:224], image, matrix)
    assert found.mask.shape == (64, 128)
    assert (found.covered, found.used) == pytest.approx((1 / 8, 1))
    inner = np.s_[2:-2, 2:-2]
    np.testing.assert_allclose(found.query[inner], found.reference[inner], atol=1)


def test_a_reduced_image_sets_the_resolution(image):
    small = cv2.resize(image, (48, 48), interpolation=cv2.INTER_AREA)
    for pair in ((small, image), (image, small)):
        found = common_frame(*pair, np.eye(3))
        assert found.mask.shape == (48, 48)
        assert np.abs(found.query - found.reference)[2:-2, 2:-2].mean() < 4


@pytest.mark.parametrize("view", range(8))
def test_mirrored_and_turned_queries_are_turned_back(image, view):
    turned = np.rot90(image[:, ::-1] if view >= 4 else image, -(view % 4))
    found = common_frame(np.ascontiguousarray(turned), image, inverse(view_matrix(view)))
    np.testing.assert_allclose(found.query, found.reference, atol=1.5)


@pytest.mark.parametrize(
    ("matrix", "covered", "used"),
    [
        (shift_matrix(0.25, 0), 0.75, 0.75),
        (np.diag([0.5, 0.5, 1]), 0.25, 1),
        (np.diag([2.0, 2.0, 1]), 1, 0.25),
    ],
)
def test_shares_of_the_overlap(image, matrix, covered, used):
    found = common_frame(image, image, matrix)
    assert (found.covered, found.used) == pytest.approx((covered, used))


@pytest.mark.parametrize("matrix", [shift_matrix(1.2, 0), shift_matrix(0.999, 0.999)])
def test_images_with_next_to_no_overlap_have_no_frame(image, matrix):
    assert common_frame(image, image, matrix) is None


def test_a_perspective_is_undone(image):
    there = np.float32([[0.1, 0.05], [0.95, 0], [1, 0.9], [0, 1]])
    square = np.float32([[0, 0], [1, 0], [1, 1], [0, 1]])
    matrix = cv2.getPerspectiveTransform(there, square).astype(np.float64)
    pixels = np.diag([256.0, 256, 1]) @ np.linalg.inv(matrix) @ np.diag([1 / 256, 1 / 256, 1])
    found = common_frame(cv2.warpPerspective(image, pixels, (256, 256)), image, matrix)
    assert np.median(np.abs(found.query - found.reference)[found.mask]) < 6
    assert found.covered == pytest.approx(1, abs=0.01)
    assert found.used == pytest.approx(cv2.contourArea(there), abs=0.01)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (17, 5)])
def test_a_frame_has_a_smallest_side(shape):
    rng = np.random.default_rng(0)
    one, other = (rng.integers(0, 256, (*s, 3), np.uint8) for s in (shape, (64, 64)))
    found = common_frame(one, other, np.eye(3))
    assert found is None or min(found.mask.shape) >= module.MIN_SIDE


# -- content -------------------------------------------------------------------------------------


def test_a_letterbox_is_masked(image):
    content = content_mask(
        cv2.copyMakeBorder(image, 40, 40, 0, 0, cv2.BORDER_CONSTANT, value=(0, 0, 255))
    )
    assert not content[:40].any()
    assert not content[-40:].any()
    assert (content[40:-40] > 0).mean() > 0.9


def test_the_canvas_of_a_turned_image_is_masked(image):
    turn = cv2.getRotationMatrix2D((128, 128), 45, 1)
    content = content_mask(cv2.warpAffine(np.maximum(image, 40), turn, (256, 256)))
    assert not content[0, 0]
    assert not content[-1, -1]
    assert content[64:192, 64:192].all()


def test_blank_images_are_not_masked():
    assert content_mask(np.full((30, 40, 3), 7, np.uint8)).all()


def test_read_only_images_are_accepted_and_not_changed(image):
    before = image.copy()
    image.setflags(write=False)
    content_mask(image)
    np.testing.assert_array_equal(image, before)
