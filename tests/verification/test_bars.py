"""Bars along an edge of an image are found, replaced headings are not."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verification.bars import without_bars
from visleak.verification.check import check
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo

SIDE = 300


def leaf() -> np.ndarray:
    """Return a textured shape on black ground that reaches all edges."""
    rng = np.random.default_rng(5)
    noise = cv2.GaussianBlur(rng.normal(0, 1, (SIDE, SIDE, 3)), (0, 0), 2)
    image = np.clip(np.rint(120 + 200 * noise), 1, 255).astype(np.uint8)
    mask = np.zeros((SIDE, SIDE), np.uint8)
    cv2.ellipse(mask, (150, 150), (140, 148), 20, 0, 360, 255, -1)
    image[mask == 0] = 0
    return image


def page(heading: str) -> np.ndarray:
    image = np.full((SIDE, SIDE, 3), 255, np.uint8)
    cv2.putText(image, heading, (20, 32), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (20, 20, 20), 2)
    cv2.rectangle(image, (6, 50), (SIDE - 7, SIDE - 7), (90, 90, 90), 2)
    for row in range(7):
        text = f"{row} Salzburg {37 * row % 11} of 25"
        cv2.putText(image, text, (20, 80 + 30 * row), cv2.FONT_HERSHEY_SIMPLEX, 0.6, 3 * (40,), 1)
    return image


def barred(pixels: np.ndarray, level: int, turns: int = 0, depth: int = 40) -> np.ndarray:
    """Return an image with a bar of text along an edge."""
    turned = np.rot90(pixels, turns).copy()
    turned[:depth] = level
    ink = 3 * (255 if level < 128 else 0,)
    cv2.putText(turned, "Holiday 1998, all rights", (6, 27), cv2.FONT_HERSHEY_SIMPLEX, 0.7, ink, 2)
    return np.ascontiguousarray(np.rot90(turned, -turns))


def content(own: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """Return the content of an image outside of a bar; ``None`` without one."""
    found = without_bars((Photo.of(own), Photo.of(other)), np.eye(3))
    return None if found is None else found[0][0].content > 0


@pytest.mark.parametrize("level", [0, 90, 255])
@pytest.mark.parametrize("turns", range(4))
def test_a_bar_along_any_edge_is_masked(level, turns):
    plain = leaf()
    found = content(barred(plain, level, turns), plain)
    assert found is not None
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
