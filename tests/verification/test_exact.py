"""Exact images against an independent implementation, and images that differ by noise alone."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import uniform_filter

from image_changes import in_colour, jpeg, noisy
from invoices import invoice
from visleak.verification.check import bounded, check
from visleak.verification.exact import differ_by_noise, is_exact, is_identical
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo


def is_exact_by_definition(query, reference):
    """Decide tile by tile, in double precision."""
    height, width = query.shape[:2]
    difference = np.abs(query.astype(float) - reference)
    if (difference.max(axis=2) <= 16).mean() < 0.95 or difference.mean() > 3:
        return False
    side = max(3, 2 * round(0.1 * max(height, width) / 2) + 1)
    contrasts = []
    for image in (query.astype(float), reference.astype(float)):
        channels = [uniform_filter(image[..., c], side, mode="mirror") for c in range(3)]
        contrasts.append(((image - np.stack(channels, axis=2)) ** 2).mean(axis=2))
    counts = [max(1, min(16, length // 4), length // 16) for length in (height, width)]
    edges = [
        np.linspace(0, length, count + 1).astype(int)
        for length, count in zip((height, width), counts, strict=True)
    ]
    parts = [np.s_[a:b, c:d] for a, b in zip(edges[0], edges[0][1:], strict=False)
             for c, d in zip(edges[1], edges[1][1:], strict=False)]  # fmt: skip
    whole = min(np.mean([contrast[part].mean() for part in parts]) for contrast in contrasts)
    for part in parts:
        lesser = min(contrast[part].mean() for contrast in contrasts)
        if (difference[part] ** 2).mean() > 0.8**2 + 0.4**2 * lesser + 0.15**2 * whole:
            return False
    return True


@given(
    st.integers(0, 10**6),
    st.integers(2, 90),
    st.integers(2, 90),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([1, 8, 75]),
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 80), st.integers(1, 9), st.integers(1, 40))
    ),
)
def test_exact_equals_an_independent_implementation(seed, height, width, grain, contrast, spots):
    rng = np.random.default_rng(seed)
    query = rng.integers(125 - contrast, 126 + contrast, (height, width, 3), np.uint8)
    difference = rng.integers(-grain, grain + 1, query.shape)
    for y, x, side, levels in spots:
        difference[y : y + side, x : x + side] = levels
    reference = np.clip(query + difference, 0, 255).astype(np.uint8)
    assert is_exact(query, reference) == is_exact_by_definition(query, reference)


def test_identical_pixels_are_exact_and_other_sizes_are_not(natural):
    images = [np.full(shape, 100, np.uint8) for shape in ((1, 1, 3), (1, 100, 3), (40, 41, 3))]
    for image in [*images, *natural.values()]:
        assert is_exact(image, image.copy())
        assert is_identical(image, image.copy())
    assert not is_exact(np.zeros((8, 9, 3), np.uint8), np.zeros((9, 8, 3), np.uint8))


def plate(seed, grain=3.0):
    """Return a surface of low contrast: shading and grain around mid-grey."""
    texture = cv2.GaussianBlur(np.random.default_rng(seed).normal(0, 1, (200, 200)), (0, 0), 1.2)
    return in_colour(110 + np.linspace(-6, 6, 200) + grain * texture / texture.std())


def disc(size, x, y, radius):
    """Return the mask of a disc."""
    rows, columns = np.mgrid[:size, :size]
    return (columns - x) ** 2 + (rows - y) ** 2 <= radius**2


@pytest.mark.parametrize("grain", [1.5, 3.0, 6.0])
def test_two_plates_of_low_contrast_are_not_exact(grain):
    one, other = plate(1, grain), plate(2, grain)
    assert np.abs(one.astype(int) - other).mean() < 10
    assert not is_exact(one, other)
    assert not differ_by_noise(one, other)
    assert not differ_by_noise(noisy(one, 1, 3.0), noisy(other, 2, 3.0))


def test_a_hole_in_a_plate_is_not_exact():
    holed = plate(1)
    holed[disc(200, 90, 120, 6)] -= 14
    assert not is_exact(plate(1), holed)


def test_dark_frames_with_lights_that_moved_are_not_exact():
    rng = np.random.default_rng(3)
    frames = [rng.poisson(4, (240, 320, 3)).astype(np.uint8) for _ in range(2)]
    for step, frame in enumerate(frames):
        for x, y in ((60, 90), (150, 100), (250, 140)):
            frame[y : y + 4, x + 5 * step : x + 5 * step + 6] = 40
    assert not is_exact(*frames)


def test_neighbouring_slices_of_a_body_are_not_exact():
    rng = np.random.default_rng(4)
    slices = []
    for grow in (0, 3):
        plane = 20 + 3 * rng.normal(size=(256, 256))
        plane[disc(256, 128, 128, 90)] += 30
        plane[disc(256, 110, 120, 20 + grow)] += 12
        slices.append(in_colour(plane))
    assert not is_exact(*slices)


def test_a_photograph_saved_again_is_exact_and_one_with_a_pasted_object_is_not(natural):
    for name in ("astronaut", "coffee", "chelsea"):
        assert is_exact(natural[name], jpeg(natural[name], 90))
    query = bounded(natural["astronaut"])
    pasted = query.copy()
    pasted[100:132, 64:96] = 255 - pasted[100:132, 64:96]
    assert not is_exact(query, pasted)


def test_a_page_with_another_digit_is_not_exact_at_full_size():
    page, other = invoice(line_8="Total 763.95 EUR"), invoice(line_8="Total 763.96 EUR")
    assert is_exact(jpeg(page, 92), page)
    assert not is_exact(other, page)
    # reduction removes the difference
    measures, _ = check(bounded(other), bounded(page), 0, (0.0, 0.0), same_size=True)
    fine, _ = add_fine_comparison(measures, Photo.of(other), Photo.of(page), np.eye(3))
    assert fine.exact == 0


@pytest.mark.parametrize("sigma", [1.0, 2.0, 4.0])
def test_two_frames_of_one_scene_differ_by_noise(natural, sigma):
    for name in ("astronaut", "coffee", "chelsea"):
        # without extremes, at which noise is clipped on one side
        scene = bounded(natural[name]) // 2 + 64
        assert differ_by_noise(noisy(scene, 1, sigma), noisy(scene, 2, sigma))


def darker(pixels):
    return np.clip(pixels.astype(int) - 3, 0, 255).astype(np.uint8)


def shifted(pixels):
    across = np.float32([[1, 0, 2], [0, 1, 0]])
    return cv2.warpAffine(pixels, across, pixels.shape[1::-1], borderMode=cv2.BORDER_REPLICATE)


def warmer(pixels):
    return np.clip(pixels + np.array([4, 0, -4]), 0, 255).astype(np.uint8)


def spotted(pixels):
    changed = pixels.copy()
    changed[disc(len(pixels), 90, 120, 4)[:, : pixels.shape[1]]] += 14
    return changed


@pytest.mark.parametrize("change", [darker, shifted, warmer, spotted])
@pytest.mark.parametrize("sigma", [0.0, 2.0, 4.0])
def test_a_change_is_more_than_noise(natural, change, sigma):
    scene = np.ascontiguousarray(bounded(natural["chelsea"])[:160, :160]) // 2 + 64
    assert not differ_by_noise(noisy(scene, 1, sigma), noisy(change(scene), 2, sigma))


@pytest.mark.parametrize("sigma", [0.0, 2.0, 4.0])
def test_another_digit_is_more_than_noise(sigma):
    page, other = (invoice(line_8=f"Total 763.9{digit} EUR") // 2 + 64 for digit in (5, 6))
    assert not differ_by_noise(noisy(page, 1, sigma), noisy(other, 2, sigma))
    assert differ_by_noise(noisy(page, 1, sigma), noisy(page, 2, sigma))


def test_blank_images_may_differ_by_more_than_noise():
    """Their little content may be the noise."""
    blank = np.full((100, 100, 3), 128, np.uint8)
    assert not differ_by_noise(noisy(blank, 1, 3.0), noisy(blank, 2, 3.0))
