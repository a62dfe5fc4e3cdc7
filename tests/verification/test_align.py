"""Relations of two images: views, by correlation, in a frame, by features, and registration."""

import itertools
import math

import cv2
import numpy as np
import pytest

from image_changes import grey as in_grey
from image_changes import largest_distance
from invoices import invoice
from visleak.records import VIEWS
from visleak.verification import frame
from visleak.verification.align import (
    coverage,
    is_plausible,
    jacobian,
    refine,
    refine_frame,
    shift_matrix,
    unit_to_pixels,
    view_matrix,
    warp,
)
from visleak.verification.check import bounded
from visleak.verification.features import SMALLEST, match_features
from visleak.verification.frame import Photo, content_mask
from visleak.verification.registration import register
from visleak.verification.screen import apply_view

ALL = np.ones((128, 128), bool)


def about_centre(degrees=0.0, scale=1.0, across=0.0, down=0.0):
    """Return a relation: turn clockwise and scale about the centre, then shift."""
    c, s = math.cos(math.radians(degrees)) * scale, math.sin(math.radians(degrees)) * scale
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return shift_matrix(0.5 + across, 0.5 + down) @ turn @ shift_matrix(-0.5, -0.5)


def smooth(image, side):
    small = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.GaussianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), (0, 0), 0.7).astype(np.float32)


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


def test_coverage():
    moves = np.eye(3), shift_matrix(0.25, -0.5), shift_matrix(1.5, 0)
    whole, part, none = coverage(np.stack(moves), 16)
    assert whole.all()
    expected = np.zeros((16, 16))
    expected[:8, 4:] = 1
    np.testing.assert_array_equal(part, expected)
    assert not none.any()
    assert coverage(np.stack([view_matrix(view) for view in range(9)]), 16).all()


PLANTED = {
    "shifted": about_centre(across=0.04, down=-0.03),
    "turned": about_centre(degrees=5),
    "larger": about_centre(scale=1.1),
    "smaller": about_centre(scale=0.92, across=0.02),
    "all": about_centre(degrees=-3, scale=1.05, across=0.02, down=0.02),
    "sheared": np.array([[1.0, 0.05, -0.02], [0, 1.02, 0], [0, 0, 1]]),
}


@pytest.mark.parametrize(
    ("name", "view"), [("astronaut", 0), ("chelsea", 1), ("coffee", 3), ("rocket", 4), ("coins", 6)]
)
@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_refinement_finds_a_relation_to_half_a_pixel_in_other_light(natural, name, view, planted):
    query, start = smooth(natural[name], 96), view_matrix(view)
    reference = warp(query, planted @ start) * np.float32(0.8) + 20
    assert largest_distance(refine(query, reference, start), planted @ start) < 0.005


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


@pytest.mark.parametrize("planted", ["shifted", "turned", "sheared"])
def test_a_frame_is_refined_to_a_fraction_of_a_pixel_inside_the_mask(natural, planted):
    query = smooth(natural["astronaut"], 128)
    small = (PLANTED[planted] - np.eye(3)) / 2 + np.eye(3)
    reference, mask = warp(query, small), ALL.copy()
    reference[:40, :40], mask[:44, :44] = 255, False
    assert largest_distance(refine_frame(query, reference, mask), small) < 0.004


def test_the_jacobian_is_the_slope_at_the_centre():
    matrix = np.array([[0.9, 0.1, 0.05], [-0.1, 1.1, 0.0], [0.2, -0.1, 1.0]])
    step, columns = 1e-6, []
    for along in (np.array([step, 0]), np.array([0, step])):
        ends = [matrix @ np.append(np.array([0.5, 0.5]) + sign * along, 1) for sign in (1, -1)]
        columns.append((ends[0][:2] / ends[0][2] - ends[1][:2] / ends[1][2]) / (2 * step))
    np.testing.assert_allclose(jacobian(matrix), np.column_stack(columns), atol=1e-6)


@pytest.fixture
def image(natural):
    return bounded(natural["astronaut"])


def common_frame(query, reference, matrix):
    return frame.common_frame(Photo.of(query), Photo.of(reference), matrix)


def test_a_crop_is_compared_at_its_own_resolution(image):
    matrix = np.array([[1 / 2, 0, 96 / 256], [0, 1 / 4, 64 / 256], [0, 0, 1.0]])
    found = common_frame(image[64:128, 96:224], image, matrix)
    assert found.mask.shape == (64, 128)
    assert (found.covered, found.used) == pytest.approx((1 / 8, 1))
    inner = np.s_[2:-2, 2:-2]
    np.testing.assert_allclose(found.query[inner], found.reference[inner], atol=1)


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
    assert common_frame(image[:1, :1], image, np.eye(3)) is None


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


MIRROR = view_matrix(VIEWS.index("mirror"))


@pytest.fixture(scope="module")
def images(natural):
    return {name: bounded(image) for name, image in natural.items()}


def rotated_and_cropped(image, degrees, border):
    """Return an image turned about its centre, without a border, and the relation."""
    height, width = image.shape[:2]
    turn = np.vstack([cv2.getRotationMatrix2D((width / 2, height / 2), -degrees, 1), [0, 0, 1]])
    there = cv2.warpAffine(image, turn[:2], (width, height))[border:-border, border:-border]
    pixels = np.array([[1.0, 0, -border], [0, 1, -border], [0, 0, 1]]) @ turn
    to_units = np.linalg.inv(unit_to_pixels(there.shape[1], there.shape[0]))
    return there, to_units @ pixels @ unit_to_pixels(width, height)


@pytest.mark.parametrize("name", ["astronaut", "chelsea", "coffee", "coins", "brick"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_rotated_crop_is_found(images, name, mirrored):
    query = images[name]
    source = np.ascontiguousarray(query[:, ::-1]) if mirrored else query
    reference, planted = rotated_and_cropped(source, 45, min(source.shape[:2]) // 8)
    found = match_features(query, reference)
    assert largest_distance(found.matrix, planted @ MIRROR if mirrored else planted) < 0.02


def test_the_likely_view_is_tried_first(images):
    half = images["astronaut"]
    both = np.concatenate([half, half[:, ::-1]], axis=1)
    assert np.linalg.det(match_features(half, both).matrix) > 0
    assert np.linalg.det(match_features(half, both, mirrored=True).matrix) < 0


def test_unrelated_images_have_no_relation(images):
    names = ["astronaut", "chelsea", "coffee", "rocket", "moon", "coins", "brick"]
    pairs = itertools.permutations(names, 2)
    assert [pair for pair in pairs if match_features(*(images[name] for name in pair))] == []


def test_small_and_blank_images_have_no_relation(images):
    whole = images["astronaut"]
    blank, small = np.full_like(whole, 128), np.ascontiguousarray(whole[: SMALLEST - 1])
    for pair in ((whole, small), (small, whole), (whole, blank), (blank, whole), (blank, blank)):
        assert match_features(*pair) is None


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("inverted", [False, True])
def test_mirrored_and_inverted_images_are_found(images, mirrored, inverted):
    image = images["coffee"]
    query = np.ascontiguousarray(image[:, ::-1]) if mirrored else image
    found = match_features(255 - query if inverted else query, image)
    assert largest_distance(found.matrix, MIRROR if mirrored else np.eye(3)) < 0.01
    assert found.inverted == inverted


def bent(grey, moves):
    """Return an image displaced smoothly, by pixels at its four corners."""
    height, width = grey.shape
    corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    matrix = cv2.getPerspectiveTransform(corners, corners + np.float32(moves))
    return cv2.warpPerspective(grey, matrix, (width, height), borderMode=cv2.BORDER_REFLECT)


def correlation(one, other):
    inner = np.s_[12:-12, 12:-12]
    return float(np.corrcoef(one[inner].ravel(), other[inner].ravel())[0, 1])


@pytest.fixture
def grey(natural):
    return in_grey(natural["astronaut"])


@pytest.mark.parametrize(
    "moves",
    [[[2.5, -1.5]] * 4, [[3, 1], [-2, 2], [-3, -1], [1, -2]], [[0, 0], [3, 0], [3, 3], [0, 3]]],
)
def test_a_shift_a_perspective_and_a_stretch_are_undone(grey, moves):
    moved = bent(grey, moves)
    found, displacement = register(moved, grey, np.ones(grey.shape, np.bool_))
    assert correlation(found, grey) > 0.985
    assert correlation(found, grey) > correlation(moved, grey) + 0.01
    colours = np.repeat(moved[..., None], 3, axis=2)
    np.testing.assert_array_equal(displacement.moved(colours)[..., 1], found)


def test_print_in_one_part_of_a_page_determines_a_perspective():
    page = np.full((900, 700), 235, np.float32)
    page[80:420, 200:640] = in_grey(invoice()[60:400, 20:460])
    page[850:880, 30:110] = page[100:130, 210:290]
    moved = bent(page, [[9, 4], [-6, 3], [-5, -7], [12, -8]])
    found, _ = register(moved, page, np.ones(page.shape, np.bool_))
    corner = np.s_[835:895, 20:130]
    assert correlation(moved[corner], page[corner]) < 0.5
    assert correlation(found[corner], page[corner]) > 0.9


def test_images_in_register_or_without_texture_are_not_moved(grey):
    blank = np.full((200, 200), 90, np.float32)
    for query, reference in ((grey, grey), (blank, blank + 1)):
        found, _ = register(query, reference, np.ones(query.shape, np.bool_))
        np.testing.assert_array_equal(found, query)
