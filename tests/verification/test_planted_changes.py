"""Changes planted in pages: other content, and marks on one image or on both."""

from concurrent.futures import ThreadPoolExecutor
from importlib import resources

import cv2
import numpy as np
import onnx
import pytest

from image_changes import grey, in_colour, jpeg, noisy
from invoices import invoice
from visleak.verification import networks
from visleak.verification.alteration import MAX_LOG_ODDS, find_alterations
from visleak.verification.differences import find_differences, match_tiles
from visleak.verification.fine_comparison import compare
from visleak.verification.markings import Markings, find_markings
from visleak.verification.tints import find_tints

TOTAL = {"line_8": "Total              148.70 EUR"}


def stamped(left, top, colour=(190, 30, 40)):
    page = invoice().copy()
    cv2.rectangle(page, (left, top), (left + 150, top + 60), colour, 5)
    cv2.putText(page, "PAID", (left + 20, top + 45), cv2.FONT_HERSHEY_SIMPLEX, 1.4, colour, 4)
    return page


def selected(line):
    page, top = invoice().copy(), 70 * line + 70
    row = page[top : top + 60, 40:-40]
    page[top : top + 60, 40:-40] = np.uint8(0.55 * row + (20, 45, 90))
    return page


def compared(one, other):
    return compare(one, other, np.eye(3))


def halved(pixels):
    small = cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    return cv2.resize(small, pixels.shape[1::-1], interpolation=cv2.INTER_CUBIC)


PROCESSED = {
    "jpeg 60": lambda pixels: jpeg(pixels, 60),
    "scanned": lambda pixels: noisy(cv2.GaussianBlur(pixels, (0, 0), 0.7), 0, 5.0),
    "half": halved,
}


@pytest.mark.parametrize("name", PROCESSED)
def test_a_processed_copy_has_no_change(name):
    found = compared(PROCESSED[name](invoice()), invoice())
    assert found.alteration.strength < 0
    assert (found.differences.places, found.differences.replaced) == (0, 0)
    outliers = found.differences.outliers
    assert max(outliers.more, outliers.less, outliers.marks, outliers.swapped) == 0
    assert max(found.markings.more, found.markings.less) < 0
    assert max(found.tints.more, found.tints.less) < 2


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [("jpeg 60", 8, TOTAL["line_8"]), ("scanned", 2, "Market Road 64, Turku")],
)
def test_a_changed_field_is_found_in_its_place(name, line, text):
    changed = PROCESSED[name](invoice(**{f"line_{line}": text}))
    for one, other in ((changed, invoice()), (invoice(), changed)):
        found = compared(one, other)
        assert found.alteration.strength > 0
        assert found.alteration.rest < 0
        assert found.differences.replaced > 1
        assert 1 <= found.differences.places <= 2
        assert found.differences.outliers.largest > 2
        assert found.differences.outliers.swapped > 1
        # and is no marking
        assert found.markings.content > max(0, found.markings.more)
        for _, top, _, height in (*found.alteration.boxes, *found.differences.boxes):
            assert 70 * line + 60 < top < top + height < 70 * line + 130


def test_the_rest_is_altered_by_a_second_change_far_away():
    both = invoice(**TOTAL, line_1="Invoice 2024-148")
    assert compared(both, invoice()).alteration.rest > 0


@pytest.mark.parametrize(
    ("one", "other"), [(stamped(200, 400), invoice()), (invoice(), stamped(60, 90))]
)
def test_a_stamp_is_on_one_image_and_does_not_change_content(one, other):
    found = compared(one, other)
    assert found.differences.added > max(3, found.differences.replaced)
    assert found.differences.outliers.more > 1
    assert found.markings.more > 2
    assert found.markings.less < 0
    assert found.markings.content < found.markings.more
    assert (len(found.markings.boxes), len(found.tinted_boxes)) == (0, 1)
    assert found.tints.more > 4 > found.tints.less


@pytest.mark.parametrize(
    ("one", "other"), [(selected(3), selected(6)), (stamped(60, 90), stamped(300, 500))]
)
def test_a_mark_that_moved_is_on_both_and_has_two_boxes(one, other):
    found = compared(one, other)
    assert min(found.differences.outliers.more, found.differences.outliers.less) > 1
    assert found.markings.less > 1
    assert len(found.markings.boxes) >= 2


def test_changes_outside_the_mask_are_ignored():
    mask = np.ones(invoice().shape[:2], np.bool_)
    mask[300:] = False
    changed, stamp = grey(invoice(**TOTAL)), stamped(200, 400)
    assert find_alterations(changed, grey(invoice()), mask).strength < 0
    colours = find_tints(stamp.astype(np.float32), invoice().astype(np.float32), mask).colours
    assert find_markings(grey(stamp), grey(invoice()), mask, colours).more < 0


def test_blank_tiny_and_masked_images_have_no_changes():
    for side in (6, 200):
        blank, mask = np.full((side, side), 128, np.float32), np.ones((side, side), np.bool_)
        assert find_alterations(blank, blank, mask).strength < 0
        assert find_alterations(blank, blank, ~mask).strength == -MAX_LOG_ODDS
        marked = find_markings(blank, blank, mask)
        assert marked == Markings() if side == 6 else marked.more < 0
    masked = find_markings(blank, blank, ~mask)
    assert masked.content == masked.more == masked.less == -MAX_LOG_ODDS


def test_threads_do_not_share_a_network():
    def altered(number):
        one, other = (grey(invoice(n)[: 400 + 40 * number]) for n in (number, number + 1))
        return find_alterations(one, other, np.ones(one.shape, np.bool_))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(altered, range(8))) == list(map(altered, range(8)))


def test_the_network_has_input_sizes_that_opencv_4_accepts():
    """OpenCV 4 replaces a missing size by 1, and then refuses the network."""
    stored = resources.files("visleak.verification").joinpath(networks.LAID_OVER).read_bytes()
    inputs = {each.name: each.type for each in onnx.load_from_string(stored).graph.input}
    sides = {
        name: [d.dim_value for d in kind.tensor_type.shape.dim[2:]] for name, kind in inputs.items()
    }
    assert min(sides["looks"]) >= 8
    assert [2 * side for side in sides["colours"]] == sides["looks"]


def differences(one, other):
    query, reference = grey(one), grey(other)
    whole = np.ones(query.shape, np.bool_)
    return find_differences(match_tiles(query, reference, whole), reference, whole)


def test_a_line_shifted_by_two_pixels_is_matched():
    moved = invoice().copy()
    moved[210:280] = np.roll(moved[210:280], 2, axis=1)
    assert differences(moved, invoice()).replaced < 1


def test_blank_images_have_none():
    blank = np.full((100, 120, 3), 200, np.uint8)
    assert differences(blank, blank).places == 0
    assert differences(blank[:9, :9], blank[:9, :9]).places == 0


def test_a_highlight_that_moved_is_exchanged_and_a_second_one_is_not():
    blue = (70, 110, 160)
    one, other, both = (invoice().copy() for _ in range(3))
    for image, top in ((one, 150), (other, 430), (both, 150), (both, 430)):
        cv2.rectangle(image, (30, top - 6), (580, top + 34), blue, -1)
    assert differences(other, one).exchanged > 5
    assert differences(both, one).exchanged == 0


def test_outliers_are_searched_below_a_cover_as_well():
    """A selected row resembles a cover."""
    pages = [invoice().copy() for _ in range(2)]
    for pixels, top in zip(pages, (128, 408), strict=True):
        pixels[top : top + 14, 30:200] = (70, 110, 160)
    query, reference = (grey(pixels) for pixels in pages)
    hidden = np.zeros(query.shape, np.bool_)
    hidden[404:426, 26:204] = True
    uncovered = np.where(hidden, reference, query)
    assert find_differences(uncovered, reference, ~hidden).outliers.less == 0
    found = find_differences(uncovered, reference, ~hidden, (query, hidden))
    assert found.outliers.less > 3


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


def tints(one, other, mask=None):
    mask = np.ones(one.shape[:2], np.bool_) if mask is None else mask
    return find_tints(one.astype(np.float32), other.astype(np.float32), mask)


PAGE = coloured(invoice())
LIGHTS = {
    "tinted paper": lambda pixels: np.uint8(pixels * (0.95, 0.9, 0.8)),
    "pale": lambda pixels: np.uint8(0.7 * pixels + 60),
    "moved": lambda pixels: np.roll(pixels, 1, axis=(0, 1)),
    "soft": lambda pixels: cv2.GaussianBlur(pixels, (0, 0), 1.5),
}


@pytest.mark.parametrize("name", LIGHTS)
def test_a_coloured_bar_is_found_in_its_place(name):
    plain, marked = map(LIGHTS[name], (PAGE, bar(PAGE, (100, 200, 300, 230), RED)))
    found = tints(plain, PAGE)
    assert found.less < 2
    assert found.more < 3
    for found in (tints(marked, PAGE), tints(PAGE, marked)):
        assert found.more > 4 > found.less
        where = found.where
        assert where[205:225, 110:290].mean() > 0.95
        assert where.mean() < 0.1


def test_a_mark_that_moved_is_on_both():
    one, other = (bar(PAGE, (left, 200, left + 60, 220), GREEN) for left in (100, 400))
    found = tints(one, other)
    assert found.less > 4
    assert found.less == pytest.approx(found.more, rel=0.15)


def portrait(hair, skin):
    return bar(bar(PAGE, (100, 200, 300, 250), hair), (100, 250, 300, 320), skin)


def test_no_layer_explains_other_colours():
    one = portrait((80, 50, 30), (230, 190, 170))
    assert tints(one, portrait((150, 140, 60), (90, 110, 60))).recoloured > 5
    highlighted, stuck = one.copy(), bar(one, (150, 230, 350, 280), GREEN)
    highlighted[190:260, 90:350] = highlighted[190:260, 90:350] * (1.0, 0.95, 0.3)
    for layered in (highlighted, stuck, jpeg(one, 60), in_colour(grey(one)), one * (1, 0, 0)):
        assert max(tints(layered, one).recoloured, tints(one, layered).recoloured) < 1
    assert tints(PAGE, in_colour(grey(PAGE))).less == 0


def test_colours_outside_the_mask_are_ignored():
    marked = bar(PAGE, (100, 200, 300, 230), RED)
    mask = np.ones(PAGE.shape[:2], np.bool_)
    mask[190:240] = False
    assert tints(marked, PAGE, mask).where is None
    assert tints(marked, PAGE, np.zeros_like(mask)).where is None
