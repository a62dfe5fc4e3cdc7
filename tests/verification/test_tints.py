"""Colours that one image alone has: overlays have one, processed copies none, swaps have both."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from invoices import invoice
from visleak.verification.tints import tints

RED, GREEN = (200, 40, 50), (40, 150, 70)


def coloured(pixels):
    """A page with a coloured field, as most have."""
    out = pixels.copy()
    out[-60:-20, 40:240] = (60, 90, 200)
    return out


def bar(pixels, box, colour):
    left, top, right, bottom = box
    out = pixels.copy()
    out[top:bottom, left:right] = colour
    return out


def jpeg(pixels, quality=75):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def between(one, other):
    mask = np.ones(one.shape[:2], np.bool_)
    return tints(one.astype(np.float32), other.astype(np.float32), mask)


PAGE = coloured(invoice())
PROCESSED = {
    "as it is": lambda pixels: pixels,
    "jpeg": jpeg,
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
def test_a_coloured_bar_is_found_where_it_is(name):
    marked = PROCESSED[name](bar(PAGE, (100, 200, 300, 230), RED))
    for found in (between(marked, PAGE), between(PAGE, marked)):
        assert found.more > 4 > found.less
        where = found.where
        assert where[205:225, 110:290].mean() > 0.95
        assert where.mean() < 0.1


def test_a_mark_that_moved_is_of_both():
    one, other = (bar(PAGE, (left, 200, left + 60, 220), GREEN) for left in (100, 400))
    found = between(one, other)
    assert found.less > 4
    assert found.less == pytest.approx(found.more, rel=0.15)


def test_a_grey_copy_says_nothing_about_colours():
    grey = np.repeat(cv2.cvtColor(PAGE, cv2.COLOR_RGB2GRAY)[..., None], 3, axis=2)
    assert between(PAGE, grey).less == 0


def test_only_what_the_mask_holds_counts():
    marked = bar(PAGE, (100, 200, 300, 230), RED)
    mask = np.ones(PAGE.shape[:2], np.bool_)
    mask[190:240] = False
    found = tints(marked.astype(np.float32), PAGE.astype(np.float32), mask)
    assert found.where is None
    blank = np.zeros_like(mask)
    assert tints(marked.astype(np.float32), PAGE.astype(np.float32), blank).where is None
