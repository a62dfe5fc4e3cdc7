"""The correlation of the colours of tiny images in place."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from image_changes import noisy
from visleak.verification.in_place import COLOURS, colour_correlation, is_tiny


def test_tiny_is_by_the_long_side() -> None:
    assert is_tiny(np.zeros((48, 10, 3), np.uint8))
    assert not is_tiny(np.zeros((10, 49, 3), np.uint8))


def test_tiny_images_are_compared_in_their_view(natural: dict[str, np.ndarray]) -> None:
    image = np.asarray(Image.fromarray(natural["coffee"][:256, :256]).resize((16, 16)))
    assert colour_correlation(image, noisy(image, 0, 10.0)) > COLOURS
    mirrored = np.ascontiguousarray(image[:, ::-1])
    assert colour_correlation(image, mirrored) < COLOURS
    assert colour_correlation(image, mirrored, "mirror") > 0.99
    assert colour_correlation(image, 255 - image, "inverted") > 0.99


def test_different_images_in_one_frame_do_not_agree(natural: dict[str, np.ndarray]) -> None:
    framed = []
    for name in ("coffee", "astronaut"):
        dark = np.asarray(Image.fromarray(natural[name][:256, :256]).resize((12, 12))) // 3
        framed.append(np.pad(dark, ((2, 2), (2, 2), (0, 0)), constant_values=230))
    flat = [each.astype(float) - each.mean((0, 1)) for each in framed]
    whole = np.vdot(*flat) / np.linalg.norm(flat[0]) / np.linalg.norm(flat[1])
    assert whole > COLOURS
    assert colour_correlation(*framed) < COLOURS
    assert colour_correlation(framed[0], framed[0]) > 0.99


def test_images_that_are_blank_without_margins_are_compared_with_them() -> None:
    framed, other = (np.full((16, 16, 3), 220, np.uint8) for _ in range(2))
    framed[2:14, 2:14] = (90, 40, 60)
    other[2:14, 2:14] = (40, 40, 110)
    assert colour_correlation(framed, noisy(framed, 0, 3.0)) > 0.9
    assert colour_correlation(framed, other) < COLOURS
    assert colour_correlation(framed[3:13, 3:13], framed[3:13, 3:13]) == 0.0


@pytest.mark.parametrize(
    ("ground", "drawn"),
    [
        ((255, 255, 255), (0, 0, 255)),
        ((0, 0, 0), (255, 0, 0)),
        ((200, 200, 200), (200, 60, 60)),
        ((230, 230, 230), (220, 40, 40)),
    ],
)
def test_constant_channels_have_no_effect(ground: tuple[int, ...], drawn: tuple[int, ...]) -> None:
    image = cv2.circle(np.full((128, 128, 3), ground, np.uint8), (60, 70), 36, drawn, -1)
    small = cv2.resize(image, (16, 16), interpolation=cv2.INTER_AREA)
    assert colour_correlation(small, noisy(small, 0, 10.0)) > 0.95
