"""The full check of tiny images: planted crops, borders and bars are aligned."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verification import tiny as tiny_check
from visleak.verification.align import shift_matrix, view_matrix
from visleak.verification.placements import matrix_of, place
from visleak.verification.screen import seen, thumbnail
from visleak.verification.tiny import SIDE, TinyPair, compared

STILL = np.eye(3)


def tiny(picture):
    return cv2.resize(np.ascontiguousarray(picture), (SIDE, SIDE), interpolation=cv2.INTER_AREA)


@pytest.fixture(scope="module")
def photographs(natural):
    return [natural[name] for name in ("astronaut", "chelsea", "coffee", "rocket")]


def check_tiny(query, reference, start, view):
    """Return what is measured on one pair."""
    return tiny_check.check_tiny([TinyPair(query, reference, start, view)])[0]


def crop(picture, left, top, right, bottom):
    height, width = picture.shape[:2]
    return picture[
        round(top * height) : round(bottom * height), round(left * width) : round(right * width)
    ]


def screened(query, reference):
    """Return what is measured from the placement that the screen finds."""
    sides = [thumbnail(np.ascontiguousarray(each))[None] for each in (query, reference)]
    _, placement = place(*sides, np.zeros(1, np.int8))
    return check_tiny(query, reference, matrix_of(tuple(placement[0].tolist())), STILL)


@pytest.mark.parametrize("window", [(0.05, 0.1, 0.85, 0.9), (0, 0.15, 1, 0.85), (0.2, 0, 1, 0.75)])
def test_a_crop_is_found(photographs, window):
    """The relation is the crop, to 8 % of the side, and the images agree under it."""
    left, top, right, bottom = window
    expected = np.array(
        [
            [1 / (right - left), 0, -left / (right - left)],
            [0, 1 / (bottom - top), -top / (bottom - top)],
            [0, 0, 1],
        ]
    )
    for picture in photographs:
        query, reference = tiny(picture), tiny(crop(picture, *window))
        measures, matrix = screened(query, reference)
        corners = np.array([[0.1, 0.9, 0.1], [0.1, 0.1, 0.9], [1, 1, 1.0]])
        inside = expected @ corners
        assert np.abs(matrix @ corners - inside).max() < 0.08
        assert measures.gradient > 0.85
        assert np.exp(measures.enlarged) == pytest.approx(
            np.sqrt(expected[0, 0] * expected[1, 1]), rel=0.1
        )


def test_a_bar_of_text_does_not_move_the_relation(photographs):
    """The rows that it covers agree with nothing, the others stay where they are."""
    for picture in photographs:
        query = tiny(picture)
        barred = query.copy()
        barred[-5:] = 255
        barred[-4:-1, 2:28:3] = 0
        measures, matrix = screened(barred, query)
        assert np.abs(matrix - STILL).max() < 0.04
        assert measures.core > 0.95
        assert measures.moved < 0.02


def test_what_a_relation_is_free_to_do_is_measured(photographs):
    """A mirrored query that is stretched by a quarter."""
    query = tiny(photographs[0])
    mirrored = view_matrix(VIEWS.index("mirror"))
    stretched = matrix_of((0.0, 0.0, 1.25, 1.0)) @ mirrored
    reference = cv2.warpAffine(
        np.ascontiguousarray(query[:, ::-1]),
        np.array([[1.25, 0, -0.25 * 15.5], [0, 1, 0]]), (SIDE, SIDE), flags=cv2.INTER_LINEAR,
    )  # fmt: skip
    measures, _ = check_tiny(query, reference, stretched, mirrored)
    assert measures.viewed == 1
    assert measures.stretched == pytest.approx(np.log(1.25), abs=0.03)
    assert measures.turned < 2


@pytest.mark.parametrize("view", range(8))
def test_views(photographs, view):
    """Mirrored and turned copies are compared as such."""
    for picture in photographs:
        query = tiny(picture)
        reference = np.ascontiguousarray(np.stack([seen(c, view) for c in query.T], axis=-1))
        reference = np.ascontiguousarray(
            np.stack([seen(query[..., c], view) for c in range(3)], axis=-1)
        )
        turned = view_matrix(view)
        measures, matrix = check_tiny(query, reference, turned, turned)
        assert measures.gradient > 0.99, VIEWS[view]
        np.testing.assert_allclose(matrix, turned, atol=0.02)


def test_different_pictures_do_not_agree(photographs):
    """Neither along their edges nor across them."""
    for number, picture in enumerate(photographs):
        other = photographs[number - 1]
        measures, _ = check_tiny(tiny(picture), tiny(other), STILL, STILL)
        assert measures.directions < 0.64
        assert measures.agreement < 0.75
        assert measures.texture_mean < 0.4


def test_nothing_overlaps(photographs):
    """A start beyond the border measures nothing, without a warning."""
    picture = tiny(photographs[0])
    measures = compared(picture, picture, shift_matrix(0.95, 0.95))
    assert (measures.gradient, measures.side) == (0, SIDE)


def cuts(picture):
    """Return pairs of images of which one lies within the other, and the part of the larger."""
    image, rows, columns = tiny(picture), slice(3, 25), slice(8, 30)
    part = np.ascontiguousarray(image[rows, columns])
    framed = cv2.copyMakeBorder(image, 2, 3, 4, 1, cv2.BORDER_CONSTANT, value=(90, 0, 200))
    inside = matrix_of((19 / 32 - 0.5, 14 / 32 - 0.5, 22 / 32, 22 / 32))
    without = matrix_of((1.5 / 32 * -1, 0.5 / 32, 37 / 32, 37 / 32))
    return (part, image, inside), (image, part, np.linalg.inv(inside)), (framed, image, without)


def test_an_image_within_another_is_found_to_the_pixel(photographs):
    """A crop stored as it was cut, and an image with a border; also where the view misleads."""
    mirror = view_matrix(VIEWS.index("mirror"))
    for picture in photographs:
        for query, reference, expected in cuts(picture):
            for view in (STILL, mirror):
                measures, matrix = check_tiny(query, reference, view, view)
                np.testing.assert_allclose(matrix, expected, atol=1e-9)
                assert measures.residual < 3
                assert measures.viewed == 0
                assert measures.turned == pytest.approx(0, abs=1e-6)


def test_a_mirrored_image_within_another_is_found_to_the_pixel(photographs):
    """In the view in which the pair is compared."""
    mirror = view_matrix(VIEWS.index("mirror"))
    for picture in photographs:
        for query, reference, expected in cuts(picture):
            mirrored = np.ascontiguousarray(query[:, ::-1])
            measures, matrix = check_tiny(mirrored, reference, mirror, mirror)
            np.testing.assert_allclose(matrix, expected @ mirror, atol=1e-9)
            assert measures.residual < 3
            assert measures.viewed == 1


def test_a_part_of_another_image_is_not_found(photographs):
    """There is always a best place, but the pixels differ there."""
    for number, picture in enumerate(photographs):
        query, _, _ = cuts(photographs[number - 1])[0]
        measures, _ = check_tiny(query, tiny(picture), STILL, STILL)
        assert measures.residual > 10
        assert measures.texture_mean < 0.4


def test_a_blank_image_within_another(photographs):
    """It lies nowhere in particular, without a warning."""
    blank = np.full((20, 20, 3), 90, np.uint8)
    measures, matrix = check_tiny(blank, tiny(photographs[0]), STILL, STILL)
    assert measures.gradient == 0
    np.testing.assert_array_equal(matrix, STILL)


def test_no_pair_depends_on_the_others(photographs):
    """Every measure of a pair is the same, to the bit, whatever is measured with it."""
    mirror = view_matrix(VIEWS.index("mirror"))
    squares = [tiny(picture) for picture in photographs]
    cropped = [picture[2:28, 3:31].copy() for picture in squares]
    pairs = [
        TinyPair(query, reference, start, view)
        for query in (*squares, *cropped)
        for reference in squares
        for start, view in ((STILL, STILL), (mirror, mirror), (shift_matrix(0.1, 0), STILL))
    ]
    together = tiny_check.check_tiny(pairs)
    for pair, (measures, matrix) in zip(pairs[::7], together[::7], strict=True):
        alone, relation = tiny_check.check_tiny([pair])[0]
        assert measures == alone
        assert (matrix == relation).all()
