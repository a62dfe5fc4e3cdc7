"""Regions that differ: found where they were planted, and nowhere else."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from image_changes import grey, jpeg
from visleak.verification.differences import find_differences, match_tiles

LINES = ("Invoice 2024-118", "Blue pencils 12", "Paper, 500 sheets 4", "Total 148.20 EUR", "Thanks")


def page(**lines):
    """Return a page of printed lines, some of them replaced."""
    image = Image.new("RGB", (420, 300), (252, 250, 245))
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(LINES):
        text, font = lines.get(f"line_{number}", line), ImageFont.load_default(size=22)
        draw.text((30, 30 + 48 * number), text, (25, 25, 30), font)
    return np.array(image)


def marked(y):
    return cv2.circle(page(), (340, y), 9, (30, 30, 30), -1)


def between(one, other):
    query, reference = grey(one), grey(other)
    whole = np.ones(query.shape, np.bool_)
    return find_differences(match_tiles(query, reference, whole), reference, whole)


@pytest.mark.parametrize(
    ("line", "text"), [(3, "Total 148.70 EUR"), (1, "Blue pencils 19"), (0, "Invoice 2024-148")]
)
@pytest.mark.parametrize("quality", [None, 85])
def test_one_digit_is_found_in_its_place(line, text, quality):
    changed = page(**{f"line_{line}": text})
    found = between(changed if quality is None else jpeg(changed, quality), page())
    assert found.replaced > 1
    assert 1 <= found.places <= 2
    for _, top, _, height in found.boxes:
        assert 20 + 48 * line <= top
        assert top + height <= 70 + 48 * line


@pytest.mark.parametrize("quality", [30, 60, 90])
def test_a_compressed_copy_has_none(quality):
    found = between(jpeg(page(), quality), page())
    assert found.places == 0
    assert found.replaced == 0


def test_a_line_shifted_by_two_pixels_is_matched():
    moved = page()
    moved[120:160] = np.roll(moved[120:160], 2, axis=1)
    assert between(moved, page()).replaced < 1


def test_a_stamp_is_added_and_a_moved_marker_is_replaced():
    stamped = cv2.rectangle(page(), (250, 180), (390, 240), (180, 30, 30), 3)
    assert between(stamped, page()).added > max(3, between(stamped, page()).replaced)
    assert between(marked(60), marked(250)).replaced > 3


def test_blank_images_have_none():
    blank = np.full((100, 120, 3), 200, np.uint8)
    assert between(blank, blank).places == 0
    assert between(blank[:9, :9], blank[:9, :9]).places == 0


def test_a_highlight_that_moved_is_exchanged_and_a_second_one_is_not():
    colour = (70, 110, 160)
    one, other, both = (page() for _ in range(3))
    for image, top in ((one, 30), (other, 174), (both, 30), (both, 174)):
        cv2.rectangle(image, (10, top - 6), (400, top + 34), colour, -1)
    assert between(other, one).exchanged > 5
    assert between(both, one).exchanged == 0


@pytest.mark.parametrize("quality", [None, 40, 85])
def test_a_changed_digit_is_an_outlier_after_processing(quality):
    changed, copy = (
        between(pixels if quality is None else jpeg(pixels, quality), page()).outliers
        for pixels in (page(line_3="Total 148.70 EUR"), page())
    )
    assert changed.largest > copy.largest + 1
    assert changed.swapped > 1
    assert copy.swapped == 0
    assert max(copy.more, copy.less, copy.marks) == 0


def test_a_marker_is_an_outlier_of_one_image_and_a_moved_one_of_both():
    added, moved = (between(marked(60), other).outliers for other in (page(), marked(250)))
    assert added.more > 1
    assert added.less == 0
    assert min(moved.more, moved.less) > 1


def test_outliers_are_searched_below_a_cover_as_well():
    """A selected row resembles a cover."""
    pages = [page() for _ in range(2)]
    for pixels, top in zip(pages, (60, 204), strict=True):
        pixels[top : top + 14, 30:200] = (70, 110, 160)
    query, reference = (grey(pixels) for pixels in pages)
    hidden = np.zeros(query.shape, np.bool_)
    hidden[200:222, 26:204] = True
    uncovered = np.where(hidden, reference, query)
    assert find_differences(uncovered, reference, ~hidden).outliers.less == 0
    found = find_differences(uncovered, reference, ~hidden, (query, hidden))
    assert found.outliers.less > 3
