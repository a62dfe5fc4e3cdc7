"""Registration: planted displacements are undone, and images in register are not moved."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from image_changes import grey as in_grey
from invoices import invoice
from visleak.verification.registration import register


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
