"""Registration: planted bends are undone, and nothing is moved without need."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verification.registration import registered


def bent(grey, moves):
    """Return an image moved by a smooth displacement, given at its four corners in pixels."""
    height, width = grey.shape
    corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    matrix = cv2.getPerspectiveTransform(corners, corners + np.float32(moves))
    return cv2.warpPerspective(grey, matrix, (width, height), borderMode=cv2.BORDER_REFLECT)


def correlation(one, other):
    inner = np.s_[12:-12, 12:-12]
    return float(np.corrcoef(one[inner].ravel(), other[inner].ravel())[0, 1])


@pytest.fixture
def grey(natural):
    return cv2.cvtColor(natural["astronaut"], cv2.COLOR_RGB2GRAY).astype(np.float32)


@pytest.mark.parametrize(
    "moves",
    [[[2.5, -1.5]] * 4, [[3, 1], [-2, 2], [-3, -1], [1, -2]], [[0, 0], [3, 0], [3, 3], [0, 3]]],
)
def test_a_planted_bend_is_undone(grey, moves):
    """A shift, a perspective and a stretch of up to three pixels."""
    moved = bent(grey, moves)
    whole = np.ones(grey.shape, np.bool_)
    found = registered(moved, grey, whole)
    assert correlation(found, grey) > 0.985
    assert correlation(found, grey) > correlation(moved, grey) + 0.01


def test_what_lies_in_register_stays(grey):
    """The same image is returned as it is."""
    whole = np.ones(grey.shape, np.bool_)
    np.testing.assert_array_equal(registered(grey, grey, whole), grey)


def test_images_without_texture_stay():
    """There is nothing to go by."""
    blank = np.full((200, 200), 90, np.float32)
    whole = np.ones(blank.shape, np.bool_)
    np.testing.assert_array_equal(registered(blank, blank + 1, whole), blank)
