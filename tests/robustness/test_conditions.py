"""The changes of images, which depend on condition and image only."""

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps
from scipy.ndimage import gaussian_filter

from visleak.robustness.conditions import CONDITIONS, CONSTANTS, PAPER, bounded


@pytest.fixture(scope="module")
def picture(natural):
    return bounded(natural["coffee"], 300)


@pytest.fixture(scope="module")
def others(natural):
    return [natural[name] for name in ("chelsea", "rocket", "astronaut")]


def made(name, picture, image_id="a.png"):
    return CONDITIONS[name].of(picture, image_id)


def test_the_paper_names_nineteen_conditions():
    """Figures 1 and 6 of Ramos et al. 2025 name these."""
    names = (
        "original flip-v flip-h rot-45 rot-135 rot-225 rot-315 crop-20 crop-50 crop-100 gauss"
        " noise rs-128 rs-256 gray invert red green blue"
    )
    assert [condition.name for condition in PAPER] == names.split()


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=list(CONDITIONS))
def test_a_result_is_an_image_and_the_input_does_not_change(condition, picture, others):
    """Random numbers depend on condition and id only; too little is left of a small image."""
    tiny = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    too_small = {"tiny": ("crop-20", "crop-50", "crop-100", "crop-area-20"), "300": ("crop-100",)}
    for name, image, company in (("tiny", tiny, [tiny] * 3), ("300", picture, others)):
        before = image.copy()
        result = condition.of(image, "a.png", company)
        assert (result is None) == (condition.name in too_small[name])
        assert np.array_equal(image, before)
        if result is not None:
            assert (result.dtype, result.ndim, result.shape[2]) == (np.uint8, 3, 3)
            assert np.array_equal(result, condition.of(image, "a.png", company))


def test_paper_changes_against_pillow(picture):
    image = Image.fromarray(picture)
    height, width = picture.shape[:2]
    expected = {
        "original": image,
        "flip-v": ImageOps.flip(image),
        "flip-h": ImageOps.mirror(image),
        "crop-20": image.crop((20, 20, width - 20, height - 20)),
        "crop-50": image.crop((50, 50, width - 50, height - 50)),
        "invert": ImageOps.invert(image),
    }
    for name, wanted in expected.items():
        assert np.array_equal(made(name, picture), np.asarray(wanted)), name


@pytest.mark.parametrize("degrees", [45, 315])
def test_turns_are_clockwise_with_black_corners(degrees, picture):
    """Pillow's angles are counterclockwise; its interpolation is nearly equal."""
    got = made(f"rot-{degrees}", picture)
    image = Image.fromarray(picture).rotate(-degrees, Image.Resampling.BILINEAR)
    assert got.shape == picture.shape
    assert got[0, 0].max() == 0
    assert np.abs(got.astype(int) - np.asarray(image)).mean() < 1.5
    away = Image.fromarray(picture).rotate(degrees, Image.Resampling.BILINEAR)
    assert np.abs(got.astype(int) - np.asarray(away)).mean() > 15


def test_a_crop_must_leave_32_pixels():
    """On the short side."""
    assert made("crop-20", np.zeros((71, 200, 3), np.uint8)) is None
    assert made("crop-20", np.zeros((72, 200, 3), np.uint8)).shape == (32, 160, 3)


def test_noise_has_the_stated_level_and_seed():
    """Mid-grey is hardly clipped; every image gets the same noise (seed 0)."""
    grey = np.full((200, 300, 3), 128, np.uint8)
    noisy = made("noise", grey)
    assert abs(noisy.astype(float).std() - 25) < 0.3
    assert np.array_equal(noisy, made("noise", grey, "another.png"))
    wanted = grey + np.random.default_rng(0).normal(0, 25, grey.shape)
    assert np.array_equal(noisy, np.clip(np.rint(wanted), 0, 255))


def test_sizes_blur_and_tints(picture):
    assert made("rs-128", picture).shape == (128, 128, 3)
    assert made("rs-256", picture).shape == (256, 256, 3)
    blurred = gaussian_filter(picture.astype(float), (3, 3, 0), mode="mirror")
    assert np.abs(made("gauss", picture) - blurred).max() < 2
    luma = picture.astype(float) @ (0.299, 0.587, 0.114)
    for channel, name in enumerate(("red", "green", "blue")):
        tinted = made(name, picture)
        assert np.abs(tinted[..., channel] - luma).max() <= 1
        assert not np.delete(tinted, channel, axis=2).any()
    assert np.abs(made("gray", picture) - luma[..., None]).max() <= 1


def test_changed_images_contain_the_image(picture, others):
    stretched = made("aspect", picture)
    ratio = (stretched.shape[1] / stretched.shape[0]) / (picture.shape[1] / picture.shape[0])
    assert abs(ratio - CONSTANTS["stretch"]) < 0.02
    assert abs(stretched.size / picture.size - 1) < 0.01
    height, width = picture.shape[:2]
    border = made("border", picture)
    side = border.shape[0]
    assert border.shape[0] == border.shape[1]
    y, x = (side - height) // 2, (side - width) // 2
    assert np.array_equal(border[y : y + height, x : x + width], picture)
    assert border.sum() == picture.sum()
    part = made("crop-area-20", picture)
    assert abs(part.size / picture.size - 0.2) < 0.01
    x, y = cv2.minMaxLoc(cv2.matchTemplate(picture, part, cv2.TM_SQDIFF))[2]
    assert np.array_equal(picture[y : y + part.shape[0], x : x + part.shape[1]], part)
    collage = CONDITIONS["collage"].of(picture, "a", others)
    half = cv2.resize(picture, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    assert cv2.matchTemplate(collage, half, cv2.TM_SQDIFF_NORMED).min() < 1e-6
    assert CONDITIONS["collage"].of(picture, "a", others[:2]) is None
    size = round(0.7 * width), round(0.7 * height)
    shown = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    page = made("screenshot", picture)
    assert cv2.matchTemplate(page, shown, cv2.TM_SQDIFF_NORMED).min() < 1e-6
