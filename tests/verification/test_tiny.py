"""The full check of tiny images: planted crops, borders and bars are aligned."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verification import tiny as tiny_check
from visleak.verification.align import shift_matrix, view_matrix
from visleak.verification.image_pair import ImagePair
from visleak.verification.placements import matrix_of, place
from visleak.verification.screen import thumbnail
from visleak.verification.tiny import SIDE, measure

MIRROR = VIEWS.index("mirror")
STILL = (0.0, 0.0, 1.0, 1.0)


def tiny(image):
    return cv2.resize(np.ascontiguousarray(image), (SIDE, SIDE), interpolation=cv2.INTER_AREA)


@pytest.fixture(scope="module")
def photographs(natural):
    return [natural[name] for name in ("astronaut", "chelsea", "coffee", "rocket")]


def image_pair(query, reference, view=0, placement=STILL):
    return ImagePair(query, reference, view, placement[:2], same_size=False, enlarged=placement[2:])


def check_tiny(query, reference, view=0, placement=STILL):
    """Return measures and relation of one pair."""
    return tiny_check.check_tiny([image_pair(query, reference, view, placement)])[0]


def screened(query, reference):
    """Return measures and relation of one pair, from the placement of the screen."""
    sides = [thumbnail(np.ascontiguousarray(each))[None] for each in (query, reference)]
    _, placement = place(*sides, np.zeros(1, np.int8))
    return check_tiny(query, reference, placement=tuple(placement[0].tolist()))


@pytest.mark.parametrize("window", [(0.05, 0.1, 0.85, 0.9), (0, 0.15, 1, 0.85), (0.2, 0, 1, 0.75)])
def test_a_crop_is_found(photographs, window):
    left, top, right, bottom = window
    expected = np.array(
        [
            [1 / (right - left), 0, -left / (right - left)],
            [0, 1 / (bottom - top), -top / (bottom - top)],
            [0, 0, 1],
        ]
    )
    for image in photographs:
        height, width = image.shape[:2]
        part = image[round(top * height) : round(bottom * height),
                     round(left * width) : round(right * width)]  # fmt: skip
        measures, matrix = screened(tiny(image), tiny(part))
        corners = np.array([[0.1, 0.9, 0.1], [0.1, 0.1, 0.9], [1, 1, 1.0]])
        assert np.abs(matrix @ corners - expected @ corners).max() < 0.08
        assert measures.gradient > 0.85
        assert np.exp(measures.enlarged) == pytest.approx(
            np.sqrt(expected[0, 0] * expected[1, 1]), rel=0.1
        )


def test_a_bar_of_text_does_not_move_the_relation(photographs):
    for image in photographs:
        query = tiny(image)
        barred = query.copy()
        barred[-5:] = 255
        barred[-4:-1, 2:28:3] = 0
        measures, matrix = screened(barred, query)
        assert np.abs(matrix - np.eye(3)).max() < 0.04
        assert measures.core > 0.95
        assert measures.moved < 0.02


def test_the_freedom_of_a_relation_is_measured(photographs):
    query = tiny(photographs[0])
    reference = cv2.warpAffine(
        np.ascontiguousarray(query[:, ::-1]),
        np.array([[1.25, 0, -0.25 * 15.5], [0, 1, 0]]), (SIDE, SIDE), flags=cv2.INTER_LINEAR,
    )  # fmt: skip
    measures, _ = check_tiny(query, reference, MIRROR, (0.0, 0.0, 1.25, 1.0))
    assert measures.viewed == 1
    assert measures.stretched == pytest.approx(np.log(1.25), abs=0.03)
    assert measures.turned < 2


def test_different_images_do_not_agree(photographs):
    for number, image in enumerate(photographs):
        measures, _ = check_tiny(tiny(image), tiny(photographs[number - 1]))
        assert measures.directions < 0.64
        assert measures.agreement < 0.75
        assert measures.texture_mean < 0.4


def test_images_without_overlap_are_not_measured(photographs):
    image = tiny(photographs[0])
    measures = measure(image, image, shift_matrix(0.95, 0.95))
    assert (measures.gradient, measures.side) == (0, SIDE)


def cuts(image):
    """Return pairs of images of which one is a part of the other, and their relations."""
    image = tiny(image)
    part = np.ascontiguousarray(image[3:25, 8:30])
    framed = cv2.copyMakeBorder(image, 2, 3, 4, 1, cv2.BORDER_CONSTANT, value=(90, 0, 200))
    inside = matrix_of((19 / 32 - 0.5, 14 / 32 - 0.5, 22 / 32, 22 / 32))
    without = matrix_of((1.5 / 32 * -1, 0.5 / 32, 37 / 32, 37 / 32))
    return (part, image, inside), (image, part, np.linalg.inv(inside)), (framed, image, without)


@pytest.mark.parametrize("mirrored", [False, True])
def test_an_image_within_another_is_located_to_the_pixel(photographs, mirrored):
    """In its view, and if it is not mirrored also in a wrong view."""
    for image in photographs:
        for original, reference, expected in cuts(image):
            query = np.ascontiguousarray(original[:, ::-1]) if mirrored else original
            relation = expected @ view_matrix(MIRROR) if mirrored else expected
            for view in [MIRROR] if mirrored else [0, MIRROR]:
                measures, matrix = check_tiny(query, reference, view)
                np.testing.assert_allclose(matrix, relation, atol=1e-9)
                assert measures.residual < 3
                assert measures.viewed == mirrored
                assert measures.turned == pytest.approx(0, abs=1e-6)


def test_a_part_of_another_image_differs_at_its_best_position(photographs):
    for number, image in enumerate(photographs):
        query, _, _ = cuts(photographs[number - 1])[0]
        measures, _ = check_tiny(query, tiny(image))
        assert measures.residual > 10
        assert measures.texture_mean < 0.4


def test_a_blank_image_is_not_located(photographs):
    blank = np.full((20, 20, 3), 90, np.uint8)
    measures, matrix = check_tiny(blank, tiny(photographs[0]))
    assert measures.gradient == 0
    np.testing.assert_array_equal(matrix, np.eye(3))


def test_no_pair_depends_on_the_others(photographs):
    squares = [tiny(image) for image in photographs]
    cropped = [image[2:28, 3:31].copy() for image in squares]
    pairs = [
        image_pair(query, reference, view, placement)
        for query in (*squares, *cropped)
        for reference in squares
        for view, placement in ((0, STILL), (MIRROR, STILL), (0, (0.1, 0.0, 1.0, 1.0)))
    ]
    together = tiny_check.check_tiny(pairs)
    for pair, (measures, matrix) in zip(pairs[::7], together[::7], strict=True):
        alone, relation = tiny_check.check_tiny([pair])[0]
        assert measures == alone
        assert (matrix == relation).all()
