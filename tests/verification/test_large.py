"""The full check of large images: planted relations are found, different images agree little."""

import cv2
import numpy as np
import pytest

from image_changes import grey, in_colour, largest_distance, noisy, strong_edges, surface
from visleak.records import VIEWS
from visleak.verification.align import unit_to_pixels, view_matrix
from visleak.verification.check import bounded, check, check_pairs
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo
from visleak.verification.image_pair import ImagePair
from visleak.verification.large import resembles

NAMES = ("astronaut", "chelsea", "coffee", "coins")
#: Points of the middle of the query, and its centre.
INNER = np.array([[0.2, 0.8, 0.2, 0.8, 0.5], [0.2, 0.2, 0.8, 0.8, 0.5], [1, 1, 1, 1, 1]])


def checked(query, reference, view=0):
    pair = bounded(np.ascontiguousarray(query)), bounded(np.ascontiguousarray(reference))
    return check(*pair, view, (0.0, 0.0), same_size=query.shape == reference.shape)


def assert_near(found, planted, tolerance=0.01):
    assert largest_distance(found, planted, INNER) < tolerance


def turned(image, degrees):
    """Return an image turned clockwise on its canvas, and the relation."""
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, 1.0)
    units = unit_to_pixels(width, height)
    there = np.linalg.inv(units) @ np.vstack([matrix, [0, 0, 1]]) @ units
    return cv2.warpAffine(image, matrix, (width, height)), there


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("degrees", [45, 135, 225, 315, 5])
def test_turned_images(natural, name, degrees):
    query, there = turned(natural[name], degrees)
    measures, matrix = checked(query, natural[name])
    assert_near(matrix, np.linalg.inv(there))
    assert measures.core > 0.95
    assert measures.drift < 0.2
    assert measures.inverted == 0
    # correlation is enough for small rotations
    assert measures.features == (degrees > 5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("degrees", [-5, 5])
def test_a_turned_surface_whose_edges_agree_under_wrong_relations(seed, degrees):
    edges = strong_edges(*np.random.default_rng(seed).integers(60, 180, 2))
    image = in_colour(np.floor(surface(seed, 0.7) + edges))
    query, there = turned(image, degrees)
    _, matrix = checked(query, image)
    assert_near(matrix, np.linalg.inv(there))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("view", [0, VIEWS.index("inverted"), VIEWS.index("turn-90")])
def test_a_surface_below_a_bar_with_more_contrast_than_its_texture(seed, view):
    plain, other = (in_colour(np.floor(surface(number, 1.5))) for number in (seed, seed + 10))
    for image, copied in ((plain.copy(), True), (other, False)):
        image[:36] = 255
        cv2.putText(image, "Plant 7, line 3", (6, 25), cv2.FONT_HERSHEY_SIMPLEX, 0.6, 3 * (0,), 2)
        measures, matrix = checked(image, plain, view)
        assert resembles(measures.structure, measures.core) == copied
        if copied:
            assert_near(matrix, np.eye(3))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("view", [0, VIEWS.index("mirror-turn-180")])
def test_a_part_of_a_symmetric_image_that_agrees_in_a_wrong_view(seed, view):
    rng = np.random.default_rng(seed)
    image = (240 + 3 * rng.normal(0, 1, (420, 720, 3))).clip(0, 255).astype(np.uint8)
    ends = np.cumsum(360 * rng.dirichlet(4 * np.ones(5)))
    for start, end in zip((0, *ends), ends, strict=False):
        colour = rng.integers(30, 220, 3).tolist()
        cv2.ellipse(image, (360, 210), (170, 170), 0, start, end, colour, -1)
    part = np.ascontiguousarray(image[60:360, 100:600])
    pair = ImagePair(
        bounded(part), bounded(image), view, (0, 0), same_size=False, magnification=500 / 720
    )
    cut = np.array([[500 / 720, 0, 100 / 720], [0, 300 / 420, 60 / 420], [0, 0, 1]])
    assert_near(check_pairs([pair])[0][1], cut)


def printed(seed):
    """Return a page of small print, 1,000 x 740 pixels."""
    rng, page = np.random.default_rng(seed), np.full((1000, 740, 3), 250, np.uint8)
    for row in np.cumsum(rng.integers(14, 24, 52)).tolist():
        letters = "".join(rng.choice(list("etaoinshr  du"), rng.integers(60, 110)))
        cv2.putText(page, letters, (30, row), cv2.FONT_HERSHEY_SIMPLEX, 0.38, (20, 20, 20), 1)
    return page


def located(query, reference):
    """Check a pair without local features, at the scale of the original images."""
    images = [np.ascontiguousarray(image) for image in (query, reference)]
    small = [bounded(image) for image in images]
    factors = [len(own) / len(image) for own, image in zip(small, images, strict=True)]
    times = factors[1] / factors[0]
    pair = ImagePair(*small, 0, (0, 0), same_size=False, local_features=False, magnification=times)
    measures, matrix = check_pairs([pair])[0]
    photos = [Photo.of(bounded(image, 1024)) for image in images]
    return measures, matrix, add_fine_comparison(measures, *photos, matrix)[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("swapped", [False, True])
def test_a_part_of_a_page_is_located_at_its_own_scale(seed, swapped):
    page, other = printed(seed), printed(seed + 10)
    part = page[30:630, 200:700]
    cut = np.array([[500 / 740, 0, 200 / 740], [0, 0.6, 0.03], [0, 0, 1]])
    measures, matrix, fine = located(page, part) if swapped else located(part, page)
    assert resembles(measures.structure, measures.core)
    # corners of the page outside of the part move with every step of the relation
    assert_near(matrix, np.linalg.inv(cut) if swapped else cut, tolerance=0.02)
    assert fine.amount > 2
    assert fine.opposed < 0.05
    # misaligned by a stroke, print would look altered
    assert fine.altered < 0
    *_, fine = located(other, part) if swapped else located(part, other)
    assert fine.amount < 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("border", [20, 50, 100])
def test_crops(natural, name, border):
    image = natural[name]
    height, width = image.shape[:2]
    query = image[border : height - border, border : width - border]
    measures, matrix = checked(query, image)
    x, y = border / width, border / height
    assert_near(matrix, np.array([[1 - 2 * x, 0, x], [0, 1 - 2 * y, y], [0, 0, 1]]))
    assert measures.core > 0.95
    assert measures.used > 0.97
    assert measures.covered == pytest.approx(query[..., 0].size / image[..., 0].size, abs=0.03)


@pytest.mark.parametrize("channel", range(3))
@pytest.mark.parametrize("view", [0, VIEWS.index("inverted")])
def test_images_in_shades_of_one_colour_in_a_wrong_view(natural, channel, view):
    tinted = np.zeros_like(natural["astronaut"])
    tinted[..., channel] = np.rint(grey(natural["astronaut"]))
    measures, matrix = checked(tinted, natural["astronaut"], view)
    assert_near(matrix, np.eye(3))
    assert measures.core > 0.95
    assert measures.drift < 0.1
    assert measures.inverted == 0


@pytest.mark.parametrize("view", [0, VIEWS.index("inverted")])
def test_inverted_images_in_any_view(natural, view):
    measures, matrix = checked(255 - natural["coffee"], natural["coffee"], view)
    assert_near(matrix, np.eye(3))
    assert measures.inverted == 1
    assert (measures.gain, measures.offset) == pytest.approx((1, 0), abs=2)
    assert measures.core > 0.98


def test_a_mirrored_turned_and_cropped_image_in_a_wrong_view(natural):
    query, there = turned(np.ascontiguousarray(natural["coffee"][:, ::-1]), 30)
    measures, matrix = checked(query, natural["coffee"])
    assert_near(matrix, view_matrix(VIEWS.index("mirror")) @ np.linalg.inv(there))
    assert measures.core > 0.95


def test_a_perspective_that_no_affine_relation_explains(natural):
    image = bounded(natural["chelsea"])
    height, width = image.shape[:2]
    size = np.float32([width, height])
    there = np.float32([[0.05, 0.04], [0.97, 0.0], [1.0, 0.93], [0.02, 1.0]])
    square = np.float32([[0, 0], [1, 0], [1, 1], [0, 1]])
    pixels = cv2.getPerspectiveTransform(square * size, there * size)
    measures, matrix = checked(cv2.warpPerspective(image, pixels, (width, height)), image)
    assert_near(matrix, cv2.getPerspectiveTransform(there, square).astype(float), 0.015)
    assert measures.core > 0.93
    assert matrix[2, :2].any()


@pytest.mark.parametrize("name", NAMES)
def test_blur_and_noise_change_little(natural, name):
    image = natural[name]
    for query in (cv2.GaussianBlur(image, (0, 0), 3), noisy(image, 0, 25.0)):
        measures, _ = checked(query, image)
        assert measures.core > 0.9
        assert measures.drift < 0.2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.03, 0.06])
def test_parallax_drifts(natural, name, share):
    """A disc in front moves relative to the background."""
    image = natural[name]
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    near = np.clip((1 - np.hypot((x / width - 0.5) / 0.3, (y / height - 0.5) / 0.3)) / 0.2, 0, 1)
    there = (x - share * width * near).astype(np.float32)
    moved = cv2.remap(image, there, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    assert checked(moved, image)[0].drift > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_another_object_on_the_same_background_disagrees(natural, name):
    image = natural[name].copy()
    height, width = image.shape[:2]
    h, w = int(0.7 * height), int(0.7 * width)
    y, x = (height - h) // 2, (width - w) // 2
    image[y : y + h, x : x + w] = cv2.resize(
        natural["rocket"], (w, h), interpolation=cv2.INTER_AREA
    )
    measures, _ = checked(image, natural[name])
    assert measures.agree < 0.7
    assert measures.drift > 0.4
