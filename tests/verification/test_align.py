"""Alignment by correlation: planted relations are found, in unit coordinates."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest

from image_changes import largest_distance
from visleak.records import VIEWS
from visleak.verification.align import (
    coverage,
    is_plausible,
    jacobian,
    refine,
    refine_frame,
    shift_matrix,
    view_matrix,
    warp,
)
from visleak.verification.screen import apply_view

BLANK = np.full((96, 96), 90, np.float32)
ALL = np.ones((128, 128), bool)


def about_centre(degrees=0.0, scale=1.0, across=0.0, down=0.0):
    """Return a relation: turn clockwise and scale about the centre, then shift."""
    c, s = math.cos(math.radians(degrees)) * scale, math.sin(math.radians(degrees)) * scale
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return shift_matrix(0.5 + across, 0.5 + down) @ turn @ shift_matrix(-0.5, -0.5)


def smooth(image, side):
    small = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.GaussianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), (0, 0), 0.7).astype(np.float32)


# -- views, shifts, warps ------------------------------------------------------------------------


@pytest.mark.parametrize("view", range(9), ids=VIEWS)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5)])
def test_view_matrices_move_pixels_as_views_do(view, shape):
    image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    there = apply_view(image, view)
    for y in range(shape[0]):
        for x in range(shape[1]):
            centre = np.array([(x + 0.5) / shape[1], (y + 0.5) / shape[0], 1])
            across, down, _ = view_matrix(view) @ centre
            value = there[int(down * there.shape[0]), int(across * there.shape[1])]
            assert value == (255 - image[y, x] if VIEWS[view] == "inverted" else image[y, x])


@pytest.mark.parametrize("view", range(8), ids=VIEWS[:8])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_warp_by_the_matrix_of_a_view_is_that_view(view, channels):
    square = np.random.default_rng(view).integers(0, 256, (32, 32, channels)).astype(np.float32)
    expected = np.stack([apply_view(square[..., c], view) for c in range(channels)], axis=-1)
    got = warp(square if channels > 1 else square[..., 0], view_matrix(view))
    # OpenCV interpolates in 1/32 pixels
    np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=0.51)


def test_shifts_move_right_and_down_and_replicate_edges():
    square = np.random.default_rng(0).integers(0, 256, (32, 32)).astype(np.float32)
    got = warp(square, shift_matrix(0.25, 0.125))
    np.testing.assert_allclose(got[4:, 8:], square[:-4, :-8], atol=1e-3)
    np.testing.assert_allclose(got[10, :8], square[6, 0], atol=1e-3)


def test_coverage():
    moves = np.eye(3), shift_matrix(0.25, -0.5), shift_matrix(1.5, 0)
    whole, part, none = coverage(np.stack(moves), 16)
    assert whole.all()
    expected = np.zeros((16, 16))
    expected[:8, 4:] = 1
    np.testing.assert_array_equal(part, expected)
    assert not none.any()
    assert coverage(np.stack([view_matrix(view) for view in range(9)]), 16).all()


# -- by correlation ------------------------------------------------------------------------------

PLANTED = {
    "shifted": about_centre(across=0.04, down=-0.03),
    "turned": about_centre(degrees=5),
    "larger": about_centre(scale=1.1),
    "smaller": about_centre(scale=0.92, across=0.02),
    "all": about_centre(degrees=-3, scale=1.05, across=0.02, down=0.02),
    "sheared": np.array([[1.0, 0.05, -0.02], [0, 1.02, 0], [0, 0, 1]]),
}


@pytest.mark.parametrize("name", ["astronaut", "chelsea", "coffee", "rocket", "coins"])
@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_refinement_finds_a_relation_to_half_a_pixel_in_other_light(natural, name, planted):
    query = smooth(natural[name], 96)
    reference = warp(query, planted) * np.float32(0.8) + 20
    assert largest_distance(refine(query, reference, np.eye(3)), planted) < 0.005


@pytest.mark.parametrize("view", range(8), ids=VIEWS[:8])
def test_refinement_starts_from_a_view(natural, view):
    query = smooth(natural["astronaut"], 96)
    planted = shift_matrix(0.03, 0.02) @ view_matrix(view)
    found = refine(query, warp(query, planted), view_matrix(view))
    assert largest_distance(found, planted) < 0.005


def test_blank_images_are_not_aligned():
    assert refine(BLANK, BLANK, np.eye(3)) is None
    assert refine_frame(BLANK, BLANK, np.ones(BLANK.shape, bool)) is None


@pytest.mark.parametrize("pair", [("moon", "coffee"), ("rocket", "grass"), ("brick", "chelsea")])
def test_unrelated_images_have_no_implausible_relation(natural, pair):
    found = refine(*(smooth(natural[name], 96) for name in pair), np.eye(3))
    assert found is None or is_plausible(found, np.eye(3))


@pytest.mark.parametrize(
    ("change", "plausible"),
    [
        (about_centre(), True),
        (about_centre(scale=1.75), True),
        (about_centre(scale=1.85), False),
        (about_centre(scale=0.57), True),
        (about_centre(scale=0.5), False),
        (about_centre(across=0.44), True),
        (about_centre(down=-0.46), False),
        (about_centre(degrees=15), True),
        (about_centre(degrees=90), False),
        (np.diag([1.0, 2.0, 1.0]), False),
        (np.diag([-1.0, 1.0, 1.0]), False),
    ],
)
@pytest.mark.parametrize("view", [0, 1, 4, 6])
def test_moderate_changes_of_the_start_are_plausible(change, plausible, view):
    start = view_matrix(view)
    assert is_plausible(change @ start, start) == plausible


# -- in a frame ----------------------------------------------------------------------------------


@pytest.mark.parametrize("planted", ["shifted", "turned", "sheared"])
def test_a_frame_is_refined_to_a_fraction_of_a_pixel_inside_the_mask(natural, planted):
    query = smooth(natural["astronaut"], 128)
    small = (PLANTED[planted] - np.eye(3)) / 2 + np.eye(3)
    reference, mask = warp(query, small), ALL.copy()
    reference[:40, :40], mask[:44, :44] = 255, False
    assert largest_distance(refine_frame(query, reference, mask), small) < 0.004


def test_a_perspective_is_refined_that_no_affine_move_explains(natural):
    query = smooth(natural["coffee"], 128)
    planted = np.array([[1.02, 0.01, -0.01], [0.0, 0.99, 0.01], [0.04, -0.03, 1.0]])
    units = np.array([[128, 0, -0.5], [0, 128, -0.5], [0, 0, 1]])
    reference = cv2.warpPerspective(
        query, units @ planted @ np.linalg.inv(units), (128, 128), borderMode=cv2.BORDER_REPLICATE
    )
    assert largest_distance(refine_frame(query, reference, ALL, perspective=True), planted) < 0.006
    affine = refine_frame(query, reference, ALL)
    assert affine is None or largest_distance(affine, planted) > 0.006


def test_the_jacobian_is_the_slope_at_the_centre():
    matrix = np.array([[0.9, 0.1, 0.05], [-0.1, 1.1, 0.0], [0.2, -0.1, 1.0]])
    step, columns = 1e-6, []
    for along in (np.array([step, 0]), np.array([0, step])):
        ends = [matrix @ np.append(np.array([0.5, 0.5]) + sign * along, 1) for sign in (1, -1)]
        columns.append((ends[0][:2] / ends[0][2] - ends[1][:2] / ends[1][2]) / (2 * step))
    np.testing.assert_allclose(jacobian(matrix), np.column_stack(columns), atol=1e-6)
