"""Differences of tiny images that resampling does not explain."""

import cv2
import numpy as np
import pytest
from scipy import ndimage

from image_changes import jpeg
from visleak.verification.unexplained import Recoded, neighbours, recoded, unexplained

SIDE = 32
EVERYWHERE = np.ones((1, SIDE, SIDE), np.float32)


@pytest.fixture
def drawing():
    """A disc with a dark centre on pale ground."""
    image = np.full((SIDE, SIDE, 3), (230, 240, 250), np.float32)
    cv2.circle(image, (15, 15), 10, (200, 60, 40), -1)
    cv2.circle(image, (15, 15), 4, (20, 30, 90), -1)
    return image


def measured(query, reference, inner=EVERYWHERE, agreeing=EVERYWHERE):
    return unexplained(query[None], reference[None], inner, agreeing > 0)


def test_light_blur_and_a_small_turn_explain_their_differences(drawing):
    turn = cv2.getRotationMatrix2D((15.5, 15.5), 5, 1.0)
    turned = cv2.warpAffine(drawing, turn, (SIDE, SIDE), borderMode=cv2.BORDER_REPLICATE)
    for copy in (0.7 * drawing + 20, cv2.GaussianBlur(drawing, (0, 0), 0.8), turned):
        for found in measured(copy, drawing):
            assert found.usual[0] <= found.centre[0] < 20


def test_another_part_and_another_colour_are_unexplained(drawing):
    other = drawing.copy()
    cv2.circle(other, (22, 22), 3, (20, 200, 60), -1)
    level, tone = measured(other, drawing)
    assert min(level.beside[0], level.centre[0], tone.beside[0], tone.centre[0]) > 30
    hidden = EVERYWHERE.copy()
    hidden[:, 17:, 17:] = 0
    assert measured(other, drawing, hidden)[0].centre[0] < 5


def test_a_bar_along_an_edge_is_left_out(drawing):
    for bar in (np.s_[:5], np.s_[-5:], np.s_[:, :5], np.s_[:, -5:]):
        barred = drawing.copy()
        barred[bar] = 0
        agreeing = EVERYWHERE.copy()
        agreeing[0][bar] = 0
        level, _ = measured(barred, drawing, agreeing=agreeing)
        assert level.beside[0] < 20 < 100 < level.centre[0]


@pytest.mark.parametrize(("extreme", "oracle"), [
    (np.minimum, ndimage.minimum_filter), (np.maximum, ndimage.maximum_filter),
])  # fmt: skip
def test_neighbours_are_the_eight_around_a_pixel(extreme, oracle):
    planes = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    assert np.array_equal(neighbours(planes, extreme), oracle(planes, (1, 1, 3, 3), mode="nearest"))


@pytest.mark.parametrize("relation", [np.eye(3), np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]])])
def test_compression_leaves_little_of_a_difference(drawing, relation):
    image = drawing.astype(np.uint8)
    shown = image if relation[0, 0] == 1 else image[:, ::-1]
    copy = jpeg(cv2.resize(np.ascontiguousarray(shown), (24, 24)), 45)
    other = image.copy()
    cv2.circle(other, (22, 10), 3, (20, 200, 60), -1)
    for one, second, matrix in ((copy, image, relation), (image, copy, np.linalg.inv(relation))):
        found = recoded(one, second, matrix, (1.0, 0.0))
        assert found.mean < 10
        assert found.largest < 30
    wrong = recoded(copy, other, relation, (1.0, 0.0))
    assert wrong.largest > 60
    lighter = np.clip(copy.astype(float) * 0.8 + 30, 0, 255).astype(np.uint8)
    assert recoded(lighter, image, relation, (1.25, -37.5)).mean < 12


def test_images_that_hardly_overlap_have_the_largest_difference(drawing):
    aside = np.array([[1.0, 0, 0.97], [0, 1, 0], [0, 0, 1]])
    image = drawing.astype(np.uint8)
    assert recoded(image, image, aside, (1.0, 0.0)) == Recoded()
