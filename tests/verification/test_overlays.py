"""Covers and bars on images are found, replaced content is not."""

import cv2
import numpy as np
import pytest

from image_changes import in_colour
from visleak.verification.bars import without_bars
from visleak.verification.check import check
from visleak.verification.covers import find_covers
from visleak.verification.fine_comparison import add_fine_comparison, compare
from visleak.verification.frame import Photo


def textured(seed, spread=40.0, blur=1.5):
    rng = np.random.default_rng(seed)
    noise = cv2.GaussianBlur(rng.normal(0, 1, (240, 240)), (0, 0), blur)
    return np.clip(np.rint(125 + spread * noise / noise.std()), 0, 255).astype(np.uint8)


def paper():
    return np.full((240, 240), 235, np.uint8)


def labelled(grey):
    made = grey.copy()
    made[:36] = 255
    cv2.putText(made, "Holiday 1998", (8, 26), cv2.FONT_HERSHEY_SIMPLEX, 0.8, 0, 2)
    return made


def boxed(grey):
    made = grey.copy()
    made[70:170, 90:200] = 128
    return made


def dotted(grey):
    made = grey.copy()
    cv2.circle(made, (70, 160), 24, 30, -1)
    cv2.putText(made, "ab", (56, 166), cv2.FONT_HERSHEY_SIMPLEX, 0.6, 200, 1)
    return made


def covers(one, other):
    everywhere = np.ones(one.shape, np.bool_)
    planes = one.astype(np.float32), other.astype(np.float32)
    return find_covers(*planes, everywhere, everywhere).where


@pytest.mark.parametrize("cover", [labelled, boxed, dotted])
@pytest.mark.parametrize("size", [1, 3])
def test_a_cover_is_found_on_either_image(cover, size):
    plain = textured(0)
    hidden = cover(np.full_like(plain, 77)) == cover(np.full_like(plain, 180))
    larger = [
        cv2.resize(each, None, fx=size, fy=size, interpolation=cv2.INTER_CUBIC)
        for each in (plain, cover(plain))
    ]
    hidden = np.kron(hidden.astype(np.uint8), np.ones((size, size), np.uint8))
    for one, other in (larger, larger[::-1]):
        found = covers(one, other)
        assert found[hidden > 0].mean() > 0.99
        # with a rim of some pixels
        around = cv2.dilate(hidden, np.ones((2 * 9 * size + 1,) * 2, np.uint8))
        assert not found[around == 0].any()


def test_a_cover_on_a_smooth_surface_cuts_its_grain():
    plate, other = (textured(seed, spread=1.5, blur=0.6) for seed in (1, 2))
    assert covers(plate, labelled(plate))[18, 120]
    assert not covers(plate, labelled(other)).any()


def test_replaced_content_respects_the_layout():
    one, other = paper(), paper()
    cv2.circle(one, (120, 120), 40, 60, -1)
    cv2.rectangle(other, (95, 95), (145, 145), 60, -1)
    for grey in (one, other):
        cv2.rectangle(grey, (20, 20), (220, 220), 100, 3)
    assert not covers(one, other).any()


def test_a_selected_row_is_not_covered():
    plain = paper()
    for row in range(5):
        cv2.putText(plain, f"Row {row} Salzburg", (20, 50 + 40 * row),
                    cv2.FONT_HERSHEY_SIMPLEX, 0.7, 40, 2)  # fmt: skip
    selected = plain.copy()
    selected[105:145][plain[105:145] > 200] = 170
    assert not covers(plain, selected).any()


@pytest.mark.parametrize("cover", [labelled, boxed, dotted])
def test_a_covered_copy_is_compared_like_the_copy(cover):
    plain = textured(5)
    found = compare(in_colour(cover(plain)), in_colour(plain), np.eye(3))
    assert found.detail.opposed < 0.05
    assert found.alteration.strength < 0
    assert found.differences.replaced == 0
    assert len(found.differences.covers) == 1


def test_other_content_outside_of_a_cover_counts():
    plain = textured(6)
    changed = labelled(plain)
    changed[120:180, 60:160] = textured(7)[120:180, 60:160]
    found = compare(in_colour(changed), in_colour(plain), np.eye(3))
    assert found.alteration.strength > 0
    assert found.differences.replaced > 0


LEAF = 300


def leaf():
    """Return a textured shape on black ground that reaches all edges."""
    rng = np.random.default_rng(5)
    noise = cv2.GaussianBlur(rng.normal(0, 1, (LEAF, LEAF, 3)), (0, 0), 2)
    image = np.clip(np.rint(120 + 200 * noise), 1, 255).astype(np.uint8)
    mask = np.zeros((LEAF, LEAF), np.uint8)
    cv2.ellipse(mask, (150, 150), (140, 148), 20, 0, 360, 255, -1)
    image[mask == 0] = 0
    return image


def page(heading):
    image = np.full((LEAF, LEAF, 3), 255, np.uint8)
    cv2.putText(image, heading, (20, 32), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (20, 20, 20), 2)
    cv2.rectangle(image, (6, 50), (LEAF - 7, LEAF - 7), (90, 90, 90), 2)
    for row in range(7):
        text = f"{row} Salzburg {37 * row % 11} of 25"
        cv2.putText(image, text, (20, 80 + 30 * row), cv2.FONT_HERSHEY_SIMPLEX, 0.6, 3 * (40,), 1)
    return image


def barred(pixels, level, turns=0, depth=40):
    """Return an image with a bar of text along an edge."""
    turned = np.rot90(pixels, turns).copy()
    turned[:depth] = level
    ink = 3 * (255 if level < 128 else 0,)
    cv2.putText(turned, "Holiday 1998, all rights", (6, 27), cv2.FONT_HERSHEY_SIMPLEX, 0.7, ink, 2)
    return np.ascontiguousarray(np.rot90(turned, -turns))


def content(own, other):
    """Return the content of an image outside of a bar; ``None`` without one."""
    found = without_bars((Photo.of(own), Photo.of(other)), np.eye(3))
    return None if found is None else found[0][0].content > 0


@pytest.mark.parametrize("level", [0, 90, 255])
@pytest.mark.parametrize("turns", range(4))
def test_a_bar_along_any_edge_is_masked(level, turns):
    plain = leaf()
    found = content(barred(plain, level, turns), plain)
    turned = np.rot90(found, turns)
    assert not turned[:40].any()
    assert turned[52:].any(axis=1).mean() > 0.95


def test_a_copy_with_a_bar_of_its_background_colour_is_compared_outside_of_it():
    plain, copy = leaf(), barred(leaf(), 0)
    measures, _ = check(copy, plain, 0, (0.0, 0.0), same_size=True)
    for pixels in ((copy, plain), (plain, copy)):
        found, _ = add_fine_comparison(measures, *map(Photo.of, pixels), np.eye(3))
        assert found.patch < 5
        assert found.altered < 0
        assert found.swapped < 1
        assert found.exact == 0


def test_a_replaced_heading_is_not_a_bar():
    plain = page("Invoice 4711")
    for heading in ("Receipt", "Invoice 4712, second"):
        assert content(plain, page(heading)) is None
        assert content(page(heading), plain) is None
    blue, green = page("Invoice 4711"), page("Receipt 25")
    for image, ground in ((blue, (40, 60, 160)), (green, (40, 120, 60))):
        heading = image[:46]
        heading[heading.min(axis=2) > 200] = ground
    assert content(blue, green) is None
    assert content(green, blue) is None


def test_other_content_outside_of_a_bar_counts():
    plain, copy = leaf(), barred(leaf(), 255)
    copy[150:190, 120:180] = leaf()[60:100, 120:180]
    assert content(copy, plain) is None
