"""Tiny images, and whether their colours agree where they lie."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from visleak.verification.in_place import COLOURS, in_place, is_tiny


def test_tiny_is_by_the_long_side() -> None:
    assert is_tiny(np.zeros((48, 10, 3), np.uint8))
    assert not is_tiny(np.zeros((10, 49, 3), np.uint8))


def test_tiny_pictures_must_agree_in_place(natural: dict[str, np.ndarray]) -> None:
    picture = np.asarray(Image.fromarray(natural["coffee"][:256, :256]).resize((16, 16)))
    noise = np.random.default_rng(0).normal(0, 10.0, picture.shape)
    assert in_place(picture, np.clip(picture + noise, 0, 255).astype(np.uint8)) > COLOURS
    mirrored = np.ascontiguousarray(picture[:, ::-1])
    assert in_place(picture, mirrored) < COLOURS
    assert in_place(picture, mirrored, "mirror") > 0.99
    assert in_place(picture, 255 - picture, "inverted") > 0.99


def test_a_common_frame_says_nothing_of_what_it_frames(natural: dict[str, np.ndarray]) -> None:
    framed = []
    for name in ("coffee", "astronaut"):
        picture = Image.fromarray(natural[name][:256, :256]).resize((12, 12))
        dark = np.asarray(picture) // 3
        framed.append(np.pad(dark, ((2, 2), (2, 2), (0, 0)), constant_values=230))
    flat = [each.astype(float) - each.mean((0, 1)) for each in framed]
    whole = np.vdot(*flat) / np.linalg.norm(flat[0]) / np.linalg.norm(flat[1])
    assert whole > COLOURS
    assert in_place(*framed) < COLOURS
    assert in_place(framed[0], framed[0]) > 0.99


def test_a_blank_middle_leaves_the_word_to_the_whole() -> None:
    framed, other = (np.full((16, 16, 3), 220, np.uint8) for _ in range(2))
    framed[2:14, 2:14] = (90, 40, 60)
    other[2:14, 2:14] = (40, 40, 110)
    noise = np.random.default_rng(0).normal(0, 3.0, framed.shape)
    assert in_place(framed, np.clip(framed + noise, 0, 255).astype(np.uint8)) > 0.9
    assert in_place(framed, other) < COLOURS
    assert in_place(framed[3:13, 3:13], framed[3:13, 3:13]) == 0.0


@pytest.mark.parametrize(
    ("ground", "drawn"),
    [
        ((255, 255, 255), (0, 0, 255)),
        ((0, 0, 0), (255, 0, 0)),
        ((200, 200, 200), (200, 60, 60)),
        ((230, 230, 230), (220, 40, 40)),
    ],
)
def test_a_channel_that_does_not_vary_has_no_say(
    ground: tuple[int, ...], drawn: tuple[int, ...]
) -> None:
    picture = np.full((128, 128, 3), ground, np.uint8)
    cv2.circle(picture, (60, 70), 36, drawn, -1)
    small = cv2.resize(picture, (16, 16), interpolation=cv2.INTER_AREA)
    noise = np.random.default_rng(0).normal(0, 10.0, small.shape)
    assert in_place(small, np.clip(small + noise, 0, 255).astype(np.uint8)) > 0.95
