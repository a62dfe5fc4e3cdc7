"""The full check of tiny images: planted crops, borders and bars are aligned."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verify.align import shift_matrix, view_matrix
from visleak.verify.placements import matrix_of, place
from visleak.verify.screen import seen, thumbnail
from visleak.verify.tiny import SIDE, check_tiny, compared

STILL = np.eye(3)


def tiny(picture):
    return cv2.resize(np.ascontiguousarray(picture), (SIDE, SIDE), interpolation=cv2.INTER_AREA)


@pytest.fixture(scope="module")
def photographs(natural):
    return [natural[name] for name in ("astronaut", "chelsea", "coffee", "rocket")]


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
