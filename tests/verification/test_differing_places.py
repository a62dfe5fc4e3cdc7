"""Differing places: found where they were planted, and nowhere else."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from visleak.verification.differences import differences, settled

LINES = ("Invoice 2024-118", "Blue pencils 12", "Paper, 500 sheets 4", "Total 148.20 EUR", "Thanks")


def page(lines=LINES):
    """Return a page of printed lines."""
    image = Image.new("RGB", (420, 300), (252, 250, 245))
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((30, 30 + 48 * number), line, (25, 25, 30), ImageFont.load_default(size=22))
    return np.asarray(image)


def saved(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def between(one, other):
    greys = [cv2.cvtColor(p, cv2.COLOR_RGB2GRAY).astype(np.float32) for p in (one, other)]
    whole = np.ones(greys[0].shape, np.bool_)
    return differences(settled(*greys, whole), greys[1], whole)


@pytest.mark.parametrize(
    ("line", "text"), [(3, "Total 148.70 EUR"), (1, "Blue pencils 19"), (0, "Invoice 2024-148")]
)
@pytest.mark.parametrize("quality", [None, 85])
def test_one_digit_is_found_where_it_is(line, text, quality):
    """As it is, and after compression."""
    changed = page([text if n == line else known for n, known in enumerate(LINES)])
    found = between(changed if quality is None else saved(changed, quality), page())
    assert found.replaced > 1
    assert 1 <= found.places <= 2
    for _, top, _, height in found.boxes:
        assert 20 + 48 * line <= top
        assert top + height <= 70 + 48 * line


@pytest.mark.parametrize("quality", [30, 60, 90])
def test_a_compressed_copy_has_none(quality):
    """Compression leaves no place that another text would explain."""
    found = between(saved(page(), quality), page())
    assert found.places == 0
    assert found.replaced == 0


def test_a_line_that_moved_a_little_is_none():
    """Two pixels of what a bend may leave are matched again."""
    moved = page().copy()
    moved[120:160] = np.roll(moved[120:160], 2, axis=1)
    found = between(moved, page())
    assert found.replaced < 1


def test_a_stamp_is_added_and_replaces_little():
    """Content that one image has and the other has not."""
    stamped = page().copy()
    cv2.rectangle(stamped, (250, 180), (390, 240), (180, 30, 30), 3)
    found = between(stamped, page())
    assert found.added > 3
    assert found.added > found.replaced


def test_a_moved_marker_is_replaced():
    """Taken away here and added there, though each place alone is only one of the two."""
    pages = [page().copy() for _ in range(2)]
    cv2.circle(pages[0], (340, 60), 9, (30, 30, 30), -1)
    cv2.circle(pages[1], (340, 250), 9, (30, 30, 30), -1)
    found = between(*pages)
    assert found.replaced > 3


def test_blank_images_have_none():
    """Nothing is compared, and nothing fails."""
    blank = np.full((100, 120, 3), 200, np.uint8)
    assert between(blank, blank).places == 0
    assert between(blank[:9, :9], blank[:9, :9]).places == 0


def test_a_mark_that_moved_leaves_both_of_its_places():
    """A selected row is taken away here and added there; a bar laid over is only added."""
    whole, other, barred = page().copy(), page().copy(), page().copy()
    for image, top in ((whole, 30), (other, 174), (barred, 30)):
        cv2.rectangle(image, (10, top - 6), (400, top + 34), (70, 110, 160), -1)
    cv2.rectangle(barred, (10, 168), (400, 208), (70, 110, 160), -1)
    assert between(other, whole).exchanged > 5
    assert between(barred, whole).exchanged == 0


@pytest.mark.parametrize("quality", [None, 40, 85])
def test_what_was_changed_stands_out_from_what_processing_left(quality):
    """One digit of a page, whatever the page went through; a copy has nothing of the kind."""
    changed = page([*LINES[:3], "Total 148.70 EUR", LINES[4]])
    versions = [
        pixels if quality is None else saved(pixels, quality) for pixels in (changed, page())
    ]
    altered, copy = (between(pixels, page()).outliers for pixels in versions)
    assert altered.largest > copy.largest + 1
    assert altered.swapped > 1
    assert copy.swapped == 0
    assert max(copy.more, copy.less, copy.marks) == 0


def test_a_stamp_stands_out_of_one_image_and_a_moved_mark_of_both():
    """Nobody stamps a copy where the original had another stamp."""
    here, there = page().copy(), page().copy()
    cv2.circle(here, (340, 60), 9, (30, 30, 30), -1)
    cv2.circle(there, (340, 250), 9, (30, 30, 30), -1)
    stamped, moved = between(here, page()).outliers, between(here, there).outliers
    assert stamped.more > 1
    assert stamped.less == 0
    assert min(moved.more, moved.less) > 1


def test_outliers_are_searched_below_a_cover_too():
    """A row that was selected looks like a cover, and another row was selected before."""
    greys = []
    for top in (60, 204):
        pixels = page().copy()
        pixels[top : top + 14, 30:200] = (70, 110, 160)
        greys.append(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).astype(np.float32))
    hidden = np.zeros(greys[0].shape, np.bool_)
    hidden[200:222, 26:204] = True
    query, reference = greys
    beside = np.where(hidden, reference, query)
    assert differences(beside, reference, ~hidden).outliers.less == 0
    assert differences(beside, reference, ~hidden, (query, hidden)).outliers.less > 3
