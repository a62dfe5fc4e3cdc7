"""Covers on images are found, replaced content is not."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from image_changes import in_colour
from visleak.verification.covers import find_covers
from visleak.verification.fine_comparison import compare


def textured(seed: int, spread: float = 40.0, blur: float = 1.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise = cv2.GaussianBlur(rng.normal(0, 1, (240, 240)), (0, 0), blur)
    return np.clip(np.rint(125 + spread * noise / noise.std()), 0, 255).astype(np.uint8)


def paper() -> np.ndarray:
    return np.full((240, 240), 235, np.uint8)


def labelled(grey: np.ndarray) -> np.ndarray:
    made = grey.copy()
    made[:36] = 255
    cv2.putText(made, "Holiday 1998", (8, 26), cv2.FONT_HERSHEY_SIMPLEX, 0.8, 0, 2)
    return made


def boxed(grey: np.ndarray) -> np.ndarray:
    made = grey.copy()
    made[70:170, 90:200] = 128
    return made


def dotted(grey: np.ndarray) -> np.ndarray:
    made = grey.copy()
    cv2.circle(made, (70, 160), 24, 30, -1)
    cv2.putText(made, "ab", (56, 166), cv2.FONT_HERSHEY_SIMPLEX, 0.6, 200, 1)
    return made


def covers(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    everywhere = np.ones(one.shape, np.bool_)
    planes = one.astype(np.float32), other.astype(np.float32)
    return find_covers(*planes, everywhere, everywhere).where


@pytest.mark.parametrize("cover", [labelled, boxed, dotted])
@pytest.mark.parametrize("size", [1, 3])
def test_a_cover_is_found_on_either_image(cover, size):
    plain = textured(0)
    hidden = cover(np.full_like(plain, 77)) == cover(np.full_like(plain, 180))
    larger = [
        cv2.resize(grey, None, fx=size, fy=size, interpolation=cv2.INTER_CUBIC)
        for grey in (plain, cover(plain))
    ]
    hidden = cv2.resize(
        hidden.astype(np.uint8), None, fx=size, fy=size, interpolation=cv2.INTER_NEAREST
    )
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


def test_different_images_do_not_cover_each_other():
    assert not covers(textured(3), boxed(textured(4))).any()


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
