"""Layouts: exact properties, recoloured images, different images."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generated_images import crop, noisy, recoloured
from visleak.encoders import load_encoder
from visleak.verification.in_place import (
    OTHER_COLOURS,
    SAME_LAYOUT,
    LayoutEncoder,
    colour_difference,
    edge_orientations,
    is_tiny,
    layout_agreement,
    same_layout,
)

#: Without the rocket, whose mast against the sky agrees at many shifts.
NAMES = ("astronaut", "chelsea", "coffee", "camera", "coins")


def test_agreement_equals_that_of_shifts_one_by_one() -> None:
    rng = np.random.default_rng(0)
    one, other = (
        edge_orientations(rng.integers(0, 256, (16, 16, 3), np.uint8), 16) for _ in range(2)
    )
    agreement, score = layout_agreement(one, other)
    energy = np.sqrt((abs(one) ** 2).sum() * (abs(other) ** 2).sum())
    near, far = [], []
    for down, across in itertools.product(range(16), repeat=2):
        moved = np.roll(other, (down, across), (0, 1))
        away = max(min(down, 16 - down), min(across, 16 - across))
        value = float((one * moved.conj()).real.sum() / energy)
        (near if away <= 1 else far if away > 2 else []).append(value)
    assert agreement == pytest.approx(max(near), abs=1e-5)
    assert score == pytest.approx((max(near) - np.mean(far)) / np.std(far), rel=1e-3)


@given(st.permutations(range(3)), st.booleans())
def test_orientations_do_not_depend_on_channels_and_inversion(
    order: list[int], inverted: bool
) -> None:
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    changed = np.ascontiguousarray(image[..., order])
    found = edge_orientations(255 - changed if inverted else changed)
    np.testing.assert_allclose(found, edge_orientations(image), atol=1e-5)


def test_orientations_of_a_vertical_and_a_horizontal_edge() -> None:
    across = np.zeros((64, 64, 3), np.uint8)
    across[:, 32:] = 200
    assert edge_orientations(across)[32, 32] == pytest.approx(1, abs=0.02)
    down = np.ascontiguousarray(across.transpose(1, 0, 2))
    assert edge_orientations(down)[32, 32].real < -0.98


def test_blank_images_have_no_layout() -> None:
    flat = edge_orientations(np.full((64, 64, 3), 90, np.uint8))
    assert layout_agreement(flat, flat) == (0.0, 0.0)
    assert not same_layout(0.0, 0.0)


def test_recoloured_images_have_the_same_layout(natural: dict[str, np.ndarray]) -> None:
    for seed, name in enumerate(NAMES):
        image = crop(natural[name], 1)
        made = noisy(recoloured(image, seed), seed)
        found = layout_agreement(edge_orientations(made), edge_orientations(image))
        assert same_layout(*found), name
        assert colour_difference(made, image) >= OTHER_COLOURS, name


def test_different_images_have_not(natural: dict[str, np.ndarray]) -> None:
    layouts = [
        (name, edge_orientations(crop(image, seed)))
        for name, image in natural.items()
        for seed in range(4)
    ]
    scores = [
        layout_agreement(one, other)[1]
        for (name, one), (other_name, other) in itertools.combinations(layouts, 2)
        if name != other_name
    ]
    assert len(scores) == 576
    assert max(scores) < SAME_LAYOUT


def test_colour_difference_is_cie76() -> None:
    black, white = np.zeros((40, 40, 3), np.uint8), np.full((40, 40, 3), 255, np.uint8)
    assert colour_difference(black, white) == pytest.approx(100, abs=0.1)
    assert colour_difference(white, white) == 0


def test_vectors_are_most_similar_to_those_of_recoloured_images(
    natural: dict[str, np.ndarray],
) -> None:
    images = [crop(image, 1) for image in natural.values()]
    assert not any(map(is_tiny, images))
    encoder = load_encoder(LayoutEncoder())
    vectors = encoder.forward([*images])
    for row, image in enumerate(images):
        own = encoder.forward([noisy(recoloured(image, row), row)])[0]
        assert np.argmax(vectors @ own) == row
        np.testing.assert_array_equal(LayoutEncoder().encode(images)[row],
                                      LayoutEncoder().encode([image])[0])  # fmt: skip


def test_small_moves_keep_a_layout(natural: dict[str, np.ndarray]) -> None:
    image = crop(natural["chelsea"], 1)
    matrix = np.array([[1.02, 0, 2.0], [0, 1.02, -2.0]])
    moved = recoloured(cv2.warpAffine(image, matrix, (128, 128), borderMode=2))
    assert same_layout(*layout_agreement(edge_orientations(moved), edge_orientations(image)))
