"""Relations of two images: planted ones are found, in unit coordinates."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verification.align import (
    believable,
    jacobian,
    overlaps,
    refine,
    refine_frame,
    shift_matrix,
    view_matrix,
    warp,
)
from visleak.verification.screen import seen

CORNERS = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1], [0.5, 0.5, 1]]).T


def about_centre(degrees=0.0, scale=1.0, across=0.0, down=0.0):
    """Return a unit matrix: turn clockwise and scale about the centre, then shift."""
    c, s = math.cos(math.radians(degrees)) * scale, math.sin(math.radians(degrees)) * scale
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return shift_matrix(0.5 + across, 0.5 + down) @ turn @ shift_matrix(-0.5, -0.5)


def moved(matrix, points=CORNERS):
    there = matrix @ points
    return there[:2] / there[2]


def assert_alike(found, planted, tolerance):
    """The centre and the corners land within a share of the side of where they should."""
    assert found is not None
    assert np.abs(moved(found) - moved(planted)).max() < tolerance


def grey(picture, side):
    small = cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.GaussianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), (0, 0), 0.7).astype(np.float32)


# -- views, shifts, warps ------------------------------------------------------------------------


@pytest.mark.parametrize("view", range(9), ids=VIEWS)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5)])
def test_view_matrices_move_pixels_as_views_do(view, shape):
    """The pixel at a place is seen where the matrix says, also when width and height swap."""
    picture = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    there = seen(picture, view)
    for y in range(shape[0]):
        for x in range(shape[1]):
            centre = np.array([(x + 0.5) / shape[1], (y + 0.5) / shape[0], 1])
            across, down, _ = view_matrix(view) @ centre
            value = there[int(down * there.shape[0]), int(across * there.shape[1])]
            assert value == (255 - picture[y, x] if VIEWS[view] == "inverted" else picture[y, x])


@pytest.mark.parametrize("view", range(8), ids=VIEWS[:8])
@pytest.mark.parametrize("channels", [(), (3,)])
def test_warping_by_a_view_is_seeing_it(view, channels):
    """Pixel for pixel, colours or grey."""
    rng = np.random.default_rng(view)
    square = rng.integers(0, 256, (32, 32, *channels)).astype(np.float32)
    planes = square[..., None] if not channels else square
    expected = np.stack([seen(planes[..., c], view) for c in range(planes.shape[-1])], axis=-1)
    got = warp(square, view_matrix(view)).reshape(expected.shape)
    np.testing.assert_allclose(got, expected, atol=0.51)  # OpenCV interpolates in 1/32 pixels


def test_shifts_move_right_and_down():
    """By shares of the side, edges drawn out."""
    square = np.random.default_rng(0).integers(0, 256, (32, 32)).astype(np.float32)
    got = warp(square, shift_matrix(0.25, 0.125))
    np.testing.assert_allclose(got[4:, 8:], square[:-4, :-8], atol=1e-3)
    np.testing.assert_allclose(got[10, :8], square[6, 0], atol=1e-3)


def test_overlaps():
    """All under the identity, the moved part under a shift, nothing when moved away."""
    whole, part, none = overlaps(
        np.stack([np.eye(3), shift_matrix(0.25, -0.5), shift_matrix(1.5, 0)]), 16
    )
    assert whole.all()
    assert not part[:, :4].any()
    assert not part[8:].any()
    assert part[:8, 4:].all()
    assert not none.any()
    assert overlaps(np.stack([view_matrix(view) for view in range(9)]), 16).all()


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
@pytest.mark.parametrize("planted", PLANTED)
def test_refining_finds_a_planted_relation(natural, name, planted):
    """To 0.5 % of the side: half a pixel of 96; also when light changed."""
    query = grey(natural[name], 96)
    reference = warp(query, PLANTED[planted]) * np.float32(0.8) + 20
    found = refine(query, reference, np.eye(3))
    assert_alike(found, PLANTED[planted], 0.005)


@pytest.mark.parametrize("view", range(8), ids=VIEWS[:8])
def test_refining_starts_from_a_view(natural, view):
    """A mirrored copy, shifted a little besides."""
    query = grey(natural["astronaut"], 96)
    planted = shift_matrix(0.03, 0.02) @ view_matrix(view)
    found = refine(query, warp(query, planted), view_matrix(view))
    assert_alike(found, planted, 0.005)


def test_refining_what_is_blank_finds_nothing():
    """No texture: no relation, no exception."""
    blank = np.full((96, 96), 90, np.float32)
    assert refine(blank, blank, np.eye(3)) is None


@pytest.mark.parametrize("pair", [("moon", "coffee"), ("rocket", "grass"), ("brick", "chelsea")])
def test_refining_the_unrelated_gives_nothing_wild(natural, pair):
    """Either no relation or one near the start."""
    found = refine(*(grey(natural[name], 96) for name in pair), np.eye(3))
    assert found is None or believable(found, np.eye(3))


@pytest.mark.parametrize(
    ("change", "believed"),
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
def test_what_is_believed(change, believed, view):
    """A moderate change of the start, whatever view that is."""
    start = view_matrix(view)
    assert believable(change @ start, start) == believed


# -- in a frame ----------------------------------------------------------------------------------


@pytest.mark.parametrize("planted", ["shifted", "turned", "sheared"])
def test_a_frame_is_refined_to_a_fraction_of_a_pixel(natural, planted):
    """Where something was pasted over, the mask leaves it out."""
    query = grey(natural["astronaut"], 128)
    small = (PLANTED[planted] - np.eye(3)) / 2 + np.eye(3)
    reference = warp(query, small)
    mask = np.ones((128, 128), bool)
    reference[:40, :40], mask[:44, :44] = 255, False
    assert_alike(refine_frame(query, reference, mask), small, 0.004)


def test_a_frame_may_be_refined_in_perspective(natural):
    """What no affine move explains."""
    query = grey(natural["coffee"], 128)
    planted = np.array([[1.02, 0.01, -0.01], [0.0, 0.99, 0.01], [0.04, -0.03, 1.0]])
    units = np.array([[128, 0, -0.5], [0, 128, -0.5], [0, 0, 1]])
    reference = cv2.warpPerspective(
        query, units @ planted @ np.linalg.inv(units), (128, 128), borderMode=cv2.BORDER_REPLICATE
    )
    mask = np.ones((128, 128), bool)
    found = refine_frame(query, reference, mask, perspective=True)
    assert_alike(found, planted, 0.006)
    affine = refine_frame(query, reference, mask)
    assert affine is None or np.abs(moved(affine) - moved(planted)).max() > 0.006


def test_a_blank_frame_is_not_refined():
    """No texture, no move, no exception."""
    blank = np.full((64, 64), 90, np.float32)
    assert refine_frame(blank, blank, np.ones((64, 64), bool)) is None


def test_the_jacobian_is_the_slope_in_the_middle():
    """Against differences, of a matrix with perspective."""
    matrix = np.array([[0.9, 0.1, 0.05], [-0.1, 1.1, 0.0], [0.2, -0.1, 1.0]])
    step = 1e-6
    columns = []
    for along in (np.array([step, 0]), np.array([0, step])):
        ends = [matrix @ np.append(np.array([0.5, 0.5]) + sign * along, 1) for sign in (1, -1)]
        columns.append((ends[0][:2] / ends[0][2] - ends[1][:2] / ends[1][2]) / (2 * step))
    np.testing.assert_allclose(jacobian(matrix), np.column_stack(columns), atol=1e-6)
