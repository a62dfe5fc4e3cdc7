"""The full check of tiny pictures: planted crops are found where one looks for long."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verify.align import shift_matrix, view_matrix
from visleak.verify.screen import seen
from visleak.verify.tiny import PROMISING, SIDE, check_tiny, compared

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


@pytest.mark.parametrize("window", [(0.05, 0.1, 0.85, 0.9), (0, 0.15, 1, 0.85), (0.2, 0, 1, 0.75)])
def test_a_crop_is_found_by_searching(photographs, window):
    """The relation is the crop, to 3 % of the side, and the pictures agree under it."""
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
        measures, matrix = check_tiny(query, reference, STILL, STILL, hopeful=True)
        corners = np.array([[0.1, 0.9, 0.1], [0.1, 0.1, 0.9], [1, 1, 1.0]])
        inside = expected @ corners
        assert np.abs(matrix @ corners - inside).max() < 0.06
        assert measures.gradient > 0.85


def test_the_search_is_never_worse(photographs):
    """What one finds by looking for long agrees at least as well."""
    for picture in photographs:
        query, reference = tiny(picture), tiny(crop(picture, 0.1, 0, 1, 0.8))
        short, _ = check_tiny(query, reference, STILL, STILL)
        long, _ = check_tiny(query, reference, STILL, STILL, hopeful=True)
        assert long.agreement >= short.agreement


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
        measures, matrix = check_tiny(query, reference, turned, turned, hopeful=True)
        assert measures.gradient > 0.99, VIEWS[view]
        np.testing.assert_allclose(matrix, turned, atol=0.02)


def test_different_pictures_do_not_agree(photographs):
    """However long one looks."""
    for number, picture in enumerate(photographs):
        other = photographs[number - 1]
        measures, _ = check_tiny(tiny(picture), tiny(other), STILL, STILL, hopeful=True)
        assert measures.directions < PROMISING
        assert measures.agreement < 0.75


def test_nothing_overlaps(photographs):
    """A start beyond the border measures nothing, without a warning."""
    picture = tiny(photographs[0])
    measures = compared(picture, picture, shift_matrix(0.95, 0.95))
    assert (measures.gradient, measures.side) == (0, SIDE)
