"""Tiny pictures, and whether their colours agree where they lie."""

from __future__ import annotations

import numpy as np
from PIL import Image

from visleak.memorization.inplace import COLOURS, in_place, is_tiny
from visleak.verify import tiny
from visleak.verify.align import view_matrix


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
    whole = tiny.compared(*framed, view_matrix(0)).colour
    assert whole > COLOURS
    assert in_place(*framed) < COLOURS
    assert in_place(framed[0], framed[0]) > 0.99
