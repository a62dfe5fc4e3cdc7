"""Comparisons in place: colours of tiny images, and layouts for any colours."""

import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from generated_images import crop, recoloured
from generated_images import noisy as replayed
from image_changes import noisy
from visleak.encoders import load_encoder
from visleak.verification.in_place import (
    COLOURS,
    OTHER_COLOURS,
    SAME_LAYOUT,
    LayoutEncoder,
    colour_correlation,
    colour_difference,
    edge_orientations,
    is_tiny,
    layout_agreement,
    same_layout,
)


def test_tiny_images_are_compared_in_their_view(natural):
    image = np.asarray(Image.fromarray(natural["coffee"][:256, :256]).resize((16, 16)))
    assert colour_correlation(image, noisy(image, 0, 10.0)) > COLOURS
    mirrored = np.ascontiguousarray(image[:, ::-1])
    assert colour_correlation(image, mirrored) < COLOURS
    assert colour_correlation(image, mirrored, "mirror") > 0.99
    assert colour_correlation(image, 255 - image, "inverted") > 0.99


def test_different_images_in_one_frame_do_not_agree(natural):
    framed = []
    for name in ("coffee", "astronaut"):
        dark = np.asarray(Image.fromarray(natural[name][:256, :256]).resize((12, 12))) // 3
        framed.append(np.pad(dark, ((2, 2), (2, 2), (0, 0)), constant_values=230))
    flat = [each.astype(float) - each.mean((0, 1)) for each in framed]
    whole = np.vdot(*flat) / np.linalg.norm(flat[0]) / np.linalg.norm(flat[1])
    assert whole > COLOURS
    assert colour_correlation(*framed) < COLOURS
    assert colour_correlation(framed[0], framed[0]) > 0.99


def test_images_that_are_blank_without_margins_are_compared_with_them():
    framed, other = (np.full((16, 16, 3), 220, np.uint8) for _ in range(2))
    framed[2:14, 2:14] = (90, 40, 60)
    other[2:14, 2:14] = (40, 40, 110)
    assert colour_correlation(framed, noisy(framed, 0, 3.0)) > 0.9
    assert colour_correlation(framed, other) < COLOURS
    assert colour_correlation(framed[3:13, 3:13], framed[3:13, 3:13]) == 0.0


@pytest.mark.parametrize(("ground", "drawn"), [(255, (0, 0, 255)), (200, (200, 60, 60))])
def test_constant_channels_have_no_effect(ground, drawn):
    image = cv2.circle(np.full((128, 128, 3), ground, np.uint8), (60, 70), 36, drawn, -1)
    small = cv2.resize(image, (16, 16), interpolation=cv2.INTER_AREA)
    assert colour_correlation(small, noisy(small, 0, 10.0)) > 0.95


#: Without the rocket, whose mast against the sky agrees at many shifts.
NAMES = ("astronaut", "chelsea", "coffee", "camera", "coins")


def test_agreement_equals_that_of_shifts_one_by_one():
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
def test_orientations_do_not_depend_on_channels_and_inversion(order, inverted):
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    changed = np.ascontiguousarray(image[..., order])
    found = edge_orientations(255 - changed if inverted else changed)
    np.testing.assert_allclose(found, edge_orientations(image), atol=1e-5)


def test_blank_images_have_no_layout():
    flat = edge_orientations(np.full((64, 64, 3), 90, np.uint8))
    assert layout_agreement(flat, flat) == (0.0, 0.0)
    assert not same_layout(0.0, 0.0)


def test_recoloured_images_have_the_same_layout(natural):
    for seed, name in enumerate(NAMES):
        image = crop(natural[name], 1)
        made = replayed(recoloured(image, seed), seed)
        found = layout_agreement(edge_orientations(made), edge_orientations(image))
        assert same_layout(*found), name
        assert colour_difference(made, image) >= OTHER_COLOURS, name


def test_different_images_have_not(natural):
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


def test_colour_difference_is_cie76():
    black, white = np.zeros((40, 40, 3), np.uint8), np.full((40, 40, 3), 255, np.uint8)
    assert colour_difference(black, white) == pytest.approx(100, abs=0.1)
    assert colour_difference(white, white) == 0


def test_vectors_are_most_similar_to_those_of_recoloured_images(natural):
    images = [crop(image, 1) for image in natural.values()]
    assert not any(map(is_tiny, images))
    encoder = load_encoder(LayoutEncoder())
    vectors = encoder.forward([*images])
    for row, image in enumerate(images):
        own = encoder.forward([replayed(recoloured(image, row), row)])[0]
        assert np.argmax(vectors @ own) == row
        np.testing.assert_array_equal(LayoutEncoder().encode(images)[row],
                                      LayoutEncoder().encode([image])[0])  # fmt: skip
