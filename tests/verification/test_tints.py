"""Colours that only one image has: on one image under an overlay, on both after a move."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from image_changes import grey, in_colour, jpeg
from invoices import invoice
from visleak.verification.tints import find_tints

RED, GREEN = (200, 40, 50), (40, 150, 70)


def coloured(pixels):
    """Return a page with a coloured field."""
    out = pixels.copy()
    out[-60:-20, 40:240] = (60, 90, 200)
    return out


def bar(pixels, box, colour):
    left, top, right, bottom = box
    out = pixels.copy()
    out[top:bottom, left:right] = colour
    return out


def between(one, other, mask=None):
    mask = np.ones(one.shape[:2], np.bool_) if mask is None else mask
    return find_tints(one.astype(np.float32), other.astype(np.float32), mask)


PAGE = coloured(invoice())
PROCESSED = {
    "original": lambda pixels: pixels,
    "jpeg": lambda pixels: jpeg(pixels, 75),
    "tinted paper": lambda pixels: np.uint8(pixels * (0.95, 0.9, 0.8)),
    "pale": lambda pixels: np.uint8(0.7 * pixels + 60),
    "moved": lambda pixels: np.roll(pixels, 1, axis=(0, 1)),
    "soft": lambda pixels: cv2.GaussianBlur(pixels, (0, 0), 1.5),
}


@pytest.mark.parametrize("name", PROCESSED)
def test_a_processed_page_has_no_colour_of_its_own(name):
    found = between(PROCESSED[name](PAGE), PAGE)
    assert found.less < 2
    assert found.more < 3


@pytest.mark.parametrize("name", PROCESSED)
def test_a_coloured_bar_is_found_in_its_place(name):
    marked = PROCESSED[name](bar(PAGE, (100, 200, 300, 230), RED))
    for found in (between(marked, PAGE), between(PAGE, marked)):
        assert found.more > 4 > found.less
        where = found.where
        assert where[205:225, 110:290].mean() > 0.95
        assert where.mean() < 0.1


def test_a_mark_that_moved_is_on_both():
    one, other = (bar(PAGE, (left, 200, left + 60, 220), GREEN) for left in (100, 400))
    found = between(one, other)
    assert found.less > 4
    assert found.less == pytest.approx(found.more, rel=0.15)


def test_a_grey_copy_has_no_colours():
    assert between(PAGE, in_colour(grey(PAGE))).less == 0


def test_colours_outside_the_mask_are_ignored():
    marked = bar(PAGE, (100, 200, 300, 230), RED)
    mask = np.ones(PAGE.shape[:2], np.bool_)
    mask[190:240] = False
    assert between(marked, PAGE, mask).where is None
    assert between(marked, PAGE, np.zeros_like(mask)).where is None
