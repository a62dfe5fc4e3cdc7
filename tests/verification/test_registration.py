"""Registration: planted bends are undone, and nothing is moved without need."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from invoices import invoice
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
    found, displacement = registered(moved, grey, whole)
    assert correlation(found, grey) > 0.985
    assert correlation(found, grey) > correlation(moved, grey) + 0.01
    colours = np.repeat(moved[..., None], 3, axis=2)
    np.testing.assert_array_equal(displacement.moved(colours)[..., 1], found)


def test_a_perspective_is_undone_where_there_is_little_to_go_by():
    """Print in one part of a page says how far its corners are off."""
    page = np.full((900, 700), 235, np.float32)
    page[80:420, 200:640] = cv2.cvtColor(invoice()[60:400, 20:460], cv2.COLOR_RGB2GRAY)
    page[850:880, 30:110] = page[100:130, 210:290]
    moved = bent(page, [[9, 4], [-6, 3], [-5, -7], [12, -8]])
    found, _ = registered(moved, page, np.ones(page.shape, np.bool_))
    corner = np.s_[835:895, 20:130]
    assert correlation(moved[corner], page[corner]) < 0.5
    assert correlation(found[corner], page[corner]) > 0.9


def test_what_lies_in_register_stays(grey):
    """The same image is returned as it is."""
    whole = np.ones(grey.shape, np.bool_)
    np.testing.assert_array_equal(registered(grey, grey, whole)[0], grey)


def test_images_without_texture_stay():
    """There is nothing to go by."""
    blank = np.full((200, 200), 90, np.float32)
    whole = np.ones(blank.shape, np.bool_)
    np.testing.assert_array_equal(registered(blank, blank + 1, whole)[0], blank)
