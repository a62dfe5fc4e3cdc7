"""The changes of images, which depend on condition and image only."""

import hashlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from visleak.errors import UsageError
from visleak.robustness.conditions import BEYOND, CONDITIONS, CONSTANTS, PAPER, bounded, named

ALL = pytest.mark.parametrize("condition", CONDITIONS.values(), ids=list(CONDITIONS))


@pytest.fixture(scope="module")
def picture(natural):
    small = bounded(natural["coffee"], 300)
    small.setflags(write=False)
    return small


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
    assert {condition.group for condition in PAPER} == {"paper"}
    assert {condition.group for condition in BEYOND} == {"beyond"}
    assert len(CONDITIONS) == len(PAPER) + len(BEYOND)


@ALL
def test_a_result_is_an_image_and_the_input_does_not_change(condition, picture, others):
    before = hashlib.blake2b(picture.tobytes()).digest()
    result = condition.of(picture, "a.png", others)
    if condition.name == "crop-100":
        assert result is None  # 300 x 200 has nothing left
        return
    assert result.dtype == np.uint8
    assert result.ndim == 3
    assert result.shape[2] == 3
    assert hashlib.blake2b(picture.tobytes()).digest() == before
    # random numbers depend on condition and id only
    np.random.default_rng(1).normal(size=9)
    assert np.array_equal(result, condition.of(picture, "a.png", others))


@ALL
def test_tiny_images_are_changed_too(condition):
    """As the 32 pixels of CIFAR."""
    tiny = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    result = condition.of(tiny, "7", [tiny] * 3)
    gone = ("crop-20", "crop-50", "crop-100", "crop-area-20")
    assert (result is None) == (condition.name in gone)


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


@pytest.mark.parametrize("degrees", [45, 135, 225, 315])
def test_turns_are_clockwise_with_black_corners(degrees, picture):
    """Pillow's angles are counterclockwise; its interpolation is nearly equal."""
    got = made(f"rot-{degrees}", picture)
    image = Image.fromarray(picture).rotate(-degrees, Image.Resampling.BILINEAR)
    assert got.shape == picture.shape
    assert got[0, 0].max() == 0
    assert np.abs(got.astype(int) - np.asarray(image)).mean() < 1.5
    away = Image.fromarray(picture).rotate(degrees, Image.Resampling.BILINEAR)
    assert np.abs(got.astype(int) - np.asarray(away)).mean() > 15


@pytest.mark.parametrize(("side", "applies"), [(71, False), (72, True)])
def test_a_crop_must_leave_32_pixels(side, applies):
    """On the short side."""
    picture = np.zeros((side, 200, 3), np.uint8)
    result = CONDITIONS["crop-20"].of(picture, "a")
    assert (result is not None) == applies
    if result is not None:
        assert result.shape == (32, 160, 3)


def test_noise_has_the_stated_level_and_seed():
    """Mid-grey is hardly clipped; every image gets the same noise (seed 0)."""
    grey = np.full((200, 300, 3), 128, np.uint8)
    noisy = made("noise", grey)
    assert abs(noisy.astype(float).std() - 25) < 0.3
    assert np.array_equal(noisy, made("noise", grey, "another.png"))
    wanted = grey + np.random.default_rng(0).normal(0, 25, grey.shape)
    assert np.array_equal(noisy, np.clip(np.rint(wanted), 0, 255))


def test_gauss_has_sigma_three():
    point = np.zeros((61, 61, 3), np.uint8)
    point[27:34, 27:34] = 255
    blurred = made("gauss", point)[..., 0].astype(float)
    rows = blurred.sum(axis=1)
    moment = (rows * (np.arange(61) - 30.0) ** 2).sum() / rows.sum()
    assert abs(moment - (9 + (49 - 1) / 12)) < 0.8


def test_sizes_and_tints(picture):
    assert made("rs-128", picture).shape == (128, 128, 3)
    assert made("rs-256", picture).shape == (256, 256, 3)
    luma = picture.astype(float) @ (0.299, 0.587, 0.114)
    for channel, name in enumerate(("red", "green", "blue")):
        tinted = made(name, picture)
        assert np.abs(tinted[..., channel] - luma).max() <= 1
        assert not np.delete(tinted, channel, axis=2).any()
    assert np.abs(made("gray", picture) - luma[..., None]).max() <= 1


def test_changed_images_contain_the_image(picture, others):
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
    shown = cv2.resize(
        picture, (round(0.7 * width), round(0.7 * height)), interpolation=cv2.INTER_AREA
    )
    page = made("screenshot", picture)
    assert cv2.matchTemplate(page, shown, cv2.TM_SQDIFF_NORMED).min() < 1e-6


def test_aspect_keeps_the_area(picture):
    result = made("aspect", picture)
    ratio = (result.shape[1] / result.shape[0]) / (picture.shape[1] / picture.shape[0])
    assert abs(ratio - CONSTANTS["stretch"]) < 0.02
    assert abs(result.size / picture.size - 1) < 0.01


def test_a_collage_needs_three_others(picture, others):
    assert CONDITIONS["collage"].of(picture, "a", others[:2]) is None
    assert CONDITIONS["collage"].others == 3


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["grey"], r"conditions must be among paper, beyond, all, original, .*; got 'grey'"),
        ([], r"conditions must name at least one, or paper, beyond, all; got none"),
    ],
)
def test_unknown_conditions_are_refused(names, said):
    with pytest.raises(UsageError, match=said) as caught:
        named(names)
    assert "\n" not in str(caught.value)
