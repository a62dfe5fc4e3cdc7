"""The full check of photographs: planted relations are recovered, look-alikes stay low."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verification.align import view_matrix
from visleak.verification.check import CheckedPair, bounded, check, check_pairs
from visleak.verification.features import stretched
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo
from visleak.verification.large import resembles

NAMES = ("astronaut", "chelsea", "coffee", "coins")
CORNERS = np.array([[0.2, 0.8, 0.2, 0.8, 0.5], [0.2, 0.2, 0.8, 0.8, 0.5], [1, 1, 1, 1, 1]])


def looked_at(query, reference, view=0):
    pair = bounded(np.ascontiguousarray(query)), bounded(np.ascontiguousarray(reference))
    return check(*pair, view, (0.0, 0.0), same_size=query.shape == reference.shape)


def assert_moved(found, planted, tolerance=0.01):
    """The query's middle lands within a share of the reference's side of where it should."""
    here, there = found @ CORNERS, planted @ CORNERS
    assert np.abs(here[:2] / here[2] - there[:2] / there[2]).max() < tolerance


def turned(picture, degrees):
    """Return an image turned clockwise on its canvas, and where that moves it, in unit units."""
    height, width = picture.shape[:2]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, 1.0)
    pixels = np.vstack([matrix, [0, 0, 1]])
    units = np.array([[width, 0, -0.5], [0, height, -0.5], [0, 0, 1]])
    return cv2.warpAffine(picture, matrix, (width, height)), np.linalg.inv(units) @ pixels @ units


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("degrees", [45, 135, 225, 315, 5])
def test_turned_pictures(natural, name, degrees):
    """By any angle, with black corners: the relation to a hundredth, the agreement near full."""
    query, there = turned(natural[name], degrees)
    measures, matrix = looked_at(query, natural[name])
    assert_moved(matrix, np.linalg.inv(there))
    assert measures.core > 0.95
    assert measures.drift < 0.2
    assert measures.inverted == 0


def printed(seed):
    """Return a page of small print, as an image of 1,000 x 740 pixels."""
    rng, page = np.random.default_rng(seed), np.full((1000, 740, 3), 250, np.uint8)
    for row in np.cumsum(rng.integers(14, 24, 52)).tolist():
        letters = "".join(rng.choice(list("etaoinshr  du"), rng.integers(60, 110)))
        cv2.putText(page, letters, (30, row), cv2.FONT_HERSHEY_SIMPLEX, 0.38, (20, 20, 20), 1)
    return page


def within(query, reference):
    """Compare an image with one that it may have been cut out of, without local features."""
    small = [bounded(np.ascontiguousarray(image)) for image in (query, reference)]
    factor, other = (
        len(own) / len(image) for own, image in zip(small, (query, reference), strict=True)
    )
    times = other / factor
    pair = CheckedPair(*small, 0, (0, 0), same_size=False, local=False, magnification=times)
    measures, matrix = check_pairs([pair])[0]
    photos = [Photo.of(bounded(np.ascontiguousarray(image), 1024)) for image in (query, reference)]
    return measures, matrix, add_fine_comparison(measures, *photos, matrix)[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("swapped", [False, True])
def test_a_part_of_a_page_is_found_at_its_own_size(seed, swapped):
    """It fits where it was cut out, at the size of the page."""
    page, other = printed(seed), printed(seed + 10)
    part = page[30:630, 200:700]
    cut = np.array([[500 / 740, 0, 200 / 740], [0, 0.6, 0.03], [0, 0, 1]])
    measures, matrix, close = within(page, part) if swapped else within(part, page)
    assert resembles(measures.structure, measures.core)
    # corners of the page that lie outside of the part move with every step of the relation
    assert_moved(matrix, np.linalg.inv(cut) if swapped else cut, tolerance=0.02)
    assert close.amount > 2
    assert close.opposed < 0.05
    *_, close = within(other, part) if swapped else within(part, other)
    assert close.amount < 1


@pytest.mark.parametrize("times", [1e-4, 0.01, 100.0, 1e4])
@pytest.mark.parametrize("shape", [(3, 256), (256, 3), (256, 256)])
def test_an_image_far_larger_than_the_other_is_not_cut_out_of_it(times, shape):
    """A panorama of 100,000 pixels beside an icon: next to nothing is left of one of them."""
    rng = np.random.default_rng(0)
    query, reference = (rng.integers(0, 256, (*size, 3), np.uint8) for size in (shape, (200, 256)))
    pair = CheckedPair(query, reference, 0, (0, 0), same_size=False, magnification=times)
    measures, _ = check_pairs([pair])[0]
    assert measures.core < 0.5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("border", [20, 50, 100])
def test_crops(natural, name, border):
    """A border cut off on all sides."""
    picture = natural[name]
    height, width = picture.shape[:2]
    query = picture[border : height - border, border : width - border]
    measures, matrix = looked_at(query, picture)
    planted = np.array(
        [
            [1 - 2 * border / width, 0, border / width],
            [0, 1 - 2 * border / height, border / height],
            [0, 0, 1],
        ]
    )
    assert_moved(matrix, planted)
    assert measures.core > 0.95
    assert measures.used > 0.97
    assert measures.covered == pytest.approx(query[..., 0].size / picture[..., 0].size, abs=0.03)


@pytest.mark.parametrize("channel", range(3))
@pytest.mark.parametrize("view", [0, VIEWS.index("inverted")])
def test_tints_in_whatever_view_they_were_found(natural, channel, view):
    """An image in shades of one colour is dark, and may look like an inverted one."""
    grey = cv2.cvtColor(natural["astronaut"], cv2.COLOR_RGB2GRAY)
    tinted = np.zeros_like(natural["astronaut"])
    tinted[..., channel] = grey
    measures, matrix = looked_at(tinted, natural["astronaut"], view)
    assert_moved(matrix, np.eye(3))
    assert measures.core > 0.95
    assert measures.drift < 0.1
    assert measures.inverted == 0


@pytest.mark.parametrize("view", [0, VIEWS.index("inverted")])
def test_inverted_pictures(natural, view):
    """Told as inverted, and gain and offset as of the inverted query."""
    measures, matrix = looked_at(255 - natural["coffee"], natural["coffee"], view)
    assert_moved(matrix, np.eye(3))
    assert measures.inverted == 1
    assert (measures.gain, measures.offset) == pytest.approx((1, 0), abs=2)
    assert measures.core > 0.98


def test_mirrored_turned_and_cut(natural):
    """All at once, found in a view that is not its own."""
    picture = natural["coffee"]
    mirrored = np.ascontiguousarray(picture[:, ::-1])
    query, there = turned(mirrored, 30)
    measures, matrix = looked_at(query, picture)
    assert_moved(matrix, view_matrix(VIEWS.index("mirror")) @ np.linalg.inv(there))
    assert measures.core > 0.95


def test_keystoned_pictures(natural):
    """A change of perspective that no affine relation explains."""
    picture = bounded(natural["chelsea"])
    height, width = picture.shape[:2]
    size = np.float32([width, height])
    there = np.float32([[0.05, 0.04], [0.97, 0.0], [1.0, 0.93], [0.02, 1.0]])
    square = np.float32([[0, 0], [1, 0], [1, 1], [0, 1]])
    pixels = cv2.getPerspectiveTransform(square * size, there * size)
    query = cv2.warpPerspective(picture, pixels, (width, height))
    measures, matrix = looked_at(query, picture)
    assert_moved(matrix, cv2.getPerspectiveTransform(there, square).astype(float), 0.015)
    assert measures.core > 0.93
    assert matrix[2, :2].any()


@pytest.mark.parametrize("name", NAMES)
def test_blur_and_noise_are_no_disagreement(natural, name):
    """Fine detail that one of the two does not have."""
    picture = natural[name]
    noise = np.random.default_rng(0).normal(0, 25, picture.shape)
    for query in (
        cv2.GaussianBlur(picture, (0, 0), 3),
        np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8),
    ):
        measures, _ = looked_at(query, picture)
        assert measures.core > 0.9
        assert measures.drift < 0.2


# -- what is not the same shot -------------------------------------------------------------------


def displaced(picture, across):
    height, width = picture.shape[:2]
    xs, ys = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    there = (xs - across).astype(np.float32)
    return cv2.remap(picture, there, ys, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.03, 0.06])
def test_parallax_drifts(natural, name, share):
    """A near disc moved against what is behind it: edges agree in most places, but drift."""
    picture = natural[name]
    height, width = picture.shape[:2]
    ys, xs = np.mgrid[:height, :width]
    disc = np.hypot((xs / width - 0.5) / 0.3, (ys / height - 0.5) / 0.3)
    near = np.clip((1 - disc) / 0.2, 0, 1)
    measures, _ = looked_at(displaced(picture, share * width * near), picture)
    assert measures.drift > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_another_object_before_the_backdrop_disagrees(natural, name):
    """Half of the image, in its middle, is of another one."""
    picture = natural[name].copy()
    height, width = picture.shape[:2]
    h, w = int(0.7 * height), int(0.7 * width)
    other = cv2.resize(natural["rocket"], (w, h), interpolation=cv2.INTER_AREA)
    y, x = (height - h) // 2, (width - w) // 2
    picture[y : y + h, x : x + w] = other
    measures, _ = looked_at(picture, natural[name])
    assert measures.agree < 0.7
    assert measures.drift > 0.4


@pytest.mark.parametrize("first", NAMES)
def test_the_unrelated_do_not_agree(natural, first):
    """Whatever relation fits best."""
    for second in (*NAMES, "rocket", "camera", "brick"):
        if first != second:
            measures, _ = looked_at(natural[first], natural[second])
            assert measures.structure < 0.5
            assert measures.agree < 0.5
            assert measures.drift > 0.4


def test_stretching_keeps_faint_levels(natural):
    """An image in shades of blue has 29 levels of luminance; its features need more."""
    picture = bounded(natural["astronaut"])
    blue = np.zeros_like(picture)
    blue[..., 2] = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    assert len(np.unique(cv2.cvtColor(blue, cv2.COLOR_RGB2GRAY))) <= 30
    assert len(np.unique(stretched(blue))) > 150
