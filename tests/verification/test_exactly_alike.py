"""What is exact, against an independent implementation, and what differs by noise alone."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import uniform_filter

from invoices import invoice
from visleak.verification.check import bounded, check
from visleak.verification.exact import differ_by_noise, is_exact, is_identical
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo


def slowly_alike(query, reference):
    """Decide as the definition says, part by part, in double precision."""
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
    """Random grain and squares of larger differences, in images of any shape and contrast."""
    rng = np.random.default_rng(seed)
    query = rng.integers(125 - contrast, 126 + contrast, (height, width, 3), np.uint8)
    difference = rng.integers(-grain, grain + 1, query.shape)
    for y, x, side, levels in spots:
        difference[y : y + side, x : x + side] = levels
    reference = np.clip(query + difference, 0, 255).astype(np.uint8)
    assert is_exact(query, reference) == slowly_alike(query, reference)


def test_identical_pixels_are_exact_whatever_they_show(natural):
    """Blank, tiny, of any contrast."""
    images = [np.full(shape, 100, np.uint8) for shape in ((1, 1, 3), (1, 100, 3), (40, 41, 3))]
    for image in [*images, *natural.values()]:
        assert is_exact(image, image.copy())
        assert is_identical(image, image.copy())


def plate(seed, size=200, grain=3.0):
    """Return a surface of low contrast: shading and grain about mid-grey."""
    rng = np.random.default_rng(seed)
    shade = np.linspace(-6, 6, size)[None, :] * np.ones((size, 1))
    texture = cv2.GaussianBlur(rng.normal(0, 1, (size, size)), (0, 0), 1.2)
    grey = 110 + shade + grain * texture / texture.std()
    return np.repeat(np.clip(np.rint(grey), 0, 255).astype(np.uint8)[..., None], 3, axis=2)


def disc(size, x, y, radius):
    """Return where a disc lies."""
    rows, columns = np.mgrid[:size, :size]
    return (columns - x) ** 2 + (rows - y) ** 2 <= radius**2


@pytest.mark.parametrize("grain", [1.5, 3.0, 6.0])
def test_two_plates_are_never_exact(grain):
    """All their pixels are within 16 levels, and nothing in them is the same."""
    one, other = plate(1, grain=grain), plate(2, grain=grain)
    assert np.abs(one.astype(int) - other).mean() < 10
    assert not is_exact(one, other)


def test_a_hole_in_a_plate_is_not_exact():
    """A small dark spot is all that differs."""
    whole = plate(1)
    holed = whole.copy()
    holed[disc(200, 90, 120, 6)] -= 14
    assert not is_exact(whole, holed)


def test_night_frames_are_not_exact():
    """Dark frames with a few lights that moved."""
    rng = np.random.default_rng(3)
    frames = [rng.poisson(4, (240, 320, 3)).astype(np.uint8) for _ in range(2)]
    for step, frame in enumerate(frames):
        for x, y in ((60, 90), (150, 100), (250, 140)):
            frame[y : y + 4, x + 5 * step : x + 5 * step + 6] = 40
    assert not is_exact(*frames)


def test_neighbouring_slices_are_not_exact():
    """Two slices of a body: one ellipse a little larger, other noise."""
    rng = np.random.default_rng(4)
    slices = []
    for grow in (0, 3):
        grey = 20 + 3 * rng.normal(size=(256, 256))
        grey[disc(256, 128, 128, 90)] += 30
        grey[disc(256, 110, 120, 20 + grow)] += 12
        slices.append(np.repeat(np.clip(grey, 0, 255).astype(np.uint8)[..., None], 3, axis=2))
    assert not is_exact(*slices)


def test_a_photograph_saved_again_is_exact(natural):
    """At JPEG quality 90."""
    for name in ("astronaut", "coffee", "chelsea"):
        file = io.BytesIO()
        Image.fromarray(natural[name]).save(file, "JPEG", quality=90)
        assert is_exact(natural[name], np.asarray(Image.open(file).convert("RGB")))


def test_images_of_different_size_are_not_exact():
    """Whatever they show."""
    assert not is_exact(np.zeros((8, 9, 3), np.uint8), np.zeros((9, 8, 3), np.uint8))


def test_a_small_pasted_object_is_not_exact(natural):
    """2 % of the image, but all of a tile: the dog that was added."""
    query = bounded(natural["astronaut"])
    reference = query.copy()
    reference[100:132, 64:96] = 255 - reference[100:132, 64:96]
    assert not is_exact(query, reference)


def test_a_page_with_one_other_digit_is_not_exact_at_its_own_size():
    page, other = invoice(line_8="Total 763.95 EUR"), invoice(line_8="Total 763.96 EUR")
    file = io.BytesIO()
    Image.fromarray(page).save(file, "JPEG", quality=92)
    again = np.asarray(Image.open(file).convert("RGB"))
    assert is_exact(again, page)
    assert not is_exact(other, page)
    # reduced, the digit is lost: the check that follows looks at both sizes
    measures, _ = check(bounded(other), bounded(page), 0, (0.0, 0.0), same_size=True)
    fine, _ = add_fine_comparison(measures, Photo.of(other), Photo.of(page), np.eye(3))
    assert fine.exact == 0


def noisy(pixels, seed, sigma=3.0):
    """Return an image as a sensor sees it once more."""
    noise = np.random.default_rng(seed).normal(0, sigma, pixels.shape)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("sigma", [1.0, 2.0, 4.0])
def test_two_frames_of_one_scene_differ_by_noise(natural, sigma):
    for name in ("astronaut", "coffee", "chelsea"):
        # nothing of it is clipped, which noise would be on one side alone
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
    made = pixels.copy()
    made[disc(len(pixels), 90, 120, 4)[:, : pixels.shape[1]]] += 14
    return made


@pytest.mark.parametrize("change", [darker, shifted, warmer, spotted])
@pytest.mark.parametrize("sigma", [0.0, 2.0, 4.0])
def test_a_change_is_more_than_noise(natural, change, sigma):
    scene = np.ascontiguousarray(bounded(natural["chelsea"])[:160, :160]) // 2 + 64
    assert not differ_by_noise(noisy(scene, 1, sigma), noisy(change(scene), 2, sigma))


@pytest.mark.parametrize("grain", [1.5, 3.0, 6.0])
def test_plates_of_their_own_do_not_differ_by_noise(grain):
    assert not differ_by_noise(plate(1, grain=grain), plate(2, grain=grain))
    assert not differ_by_noise(noisy(plate(1, grain=grain), 1), noisy(plate(2, grain=grain), 2))


@pytest.mark.parametrize("sigma", [0.0, 2.0, 4.0])
def test_another_digit_is_more_than_noise(sigma):
    page, other = (invoice(line_8=f"Total 763.9{digit} EUR") // 2 + 64 for digit in (5, 6))
    assert not differ_by_noise(noisy(page, 1, sigma), noisy(other, 2, sigma))
    assert differ_by_noise(noisy(page, 1, sigma), noisy(page, 2, sigma))


def test_a_blank_image_hides_in_noise():
    """What little an image shows may be the noise."""
    blank = np.full((100, 100, 3), 128, np.uint8)
    assert not differ_by_noise(noisy(blank, 1), noisy(blank, 2))
