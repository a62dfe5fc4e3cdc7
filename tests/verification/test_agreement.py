"""Edges, structure, drift and residual: against slow computations and planted differences."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from image_changes import grey
from visleak.verification.agreement import (
    by_tile,
    consistent_mask,
    edge_agreement,
    equally_blurred,
    residual,
    window_agreement,
)
from visleak.verification.measures import UNKNOWN_DRIFT

SHAPE = (96, 128)
ALL = np.ones(SHAPE, bool)


@pytest.fixture
def image(natural):
    return grey(cv2.resize(natural["astronaut"], SHAPE[::-1], interpolation=cv2.INTER_AREA))


def shifted(image, across, down):
    move = np.float32([[1, 0, across], [0, 1, down]])
    return cv2.warpAffine(image, move, image.shape[::-1], borderMode=cv2.BORDER_REFLECT)


@pytest.mark.parametrize("shape", [(4, 4), (16, 20), (17, 31), (96, 128)])
def test_tiles_add_up_to_the_whole(shape):
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    rows = [slice(a * shape[0] // 4, (a + 1) * shape[0] // 4) for a in range(4)]
    columns = [slice(a * shape[1] // 4, (a + 1) * shape[1] // 4) for a in range(4)]
    expected = [values[r, c].sum() for r in rows for c in columns]
    np.testing.assert_allclose(by_tile(values), expected, atol=1e-3)


def test_plain_tiles_are_not_part_of_the_core():
    drawing = np.full(SHAPE, 255, np.float32)
    cv2.circle(drawing, (40, 40), 12, 30, 2)
    # artefacts of compression are near strokes only
    drawn = cv2.dilate((drawing < 255).astype(np.uint8), np.ones((9, 9))) > 0
    noise = np.random.default_rng(0).normal(0, 4, SHAPE).astype(np.float32)
    assert edge_agreement(drawing + noise * drawn, drawing, ALL)["core"] > 0.9


def test_equal_images_agree(image):
    assert edge_agreement(image, image, ALL) == pytest.approx({"gradient": 1, "core": 1})
    windows = window_agreement(image, image, ALL)
    assert min(windows["structure"], windows["agree"]) > 0.9
    assert windows["drift"] < 0.01
    assert residual(image, image, ALL) == {"residual": 0, "within": 1, "patch": 0}


def test_gradient_is_the_correlation_of_sobel_gradients(image):
    other = cv2.GaussianBlur(image, (0, 0), 1.5) + shifted(image, 3, 2) / 3
    inside = np.zeros(SHAPE, bool)
    inside[1:-1, 1:-1] = True
    a, b = (
        np.concatenate(
            [cv2.Sobel(one, cv2.CV_32F, *along, ksize=3)[2:-2, 2:-2].ravel().astype(float)
             for along in ((1, 0), (0, 1))]
        )
        for one in (image, other)
    )  # fmt: skip
    expected = (a @ b) / np.sqrt((a @ a) * (b @ b))
    assert edge_agreement(image, other, inside)["gradient"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("step", [(0.3, 0.0), (0.0, -0.5), (0.6, 0.8)])
def test_drift_is_about_the_planted_displacement(image, step):
    drift = window_agreement(image, shifted(image, *step), ALL)["drift"]
    assert 0.8 * np.hypot(*step) < drift < 1.7 * np.hypot(*step)


def test_drift_is_unknown_without_texture(image):
    blank = np.full(SHAPE, 80, np.float32)
    for pair in ((blank, blank), (image, blank), (blank, image)):
        assert window_agreement(*pair, ALL)["drift"] == UNKNOWN_DRIFT


def test_parallax_drifts(image):
    moved = image.copy()
    moved[:, 64:] = shifted(image, 3, 0)[:, 64:]
    still = window_agreement(image, image + np.float32(5), ALL)
    assert window_agreement(image, moved, ALL)["drift"] > 10 * still["drift"] + 0.5


def test_a_caption_changes_core_structure_and_drift_little(image):
    written = np.rint(image).astype(np.uint8)
    cv2.putText(written, "CAPTION", (4, 92), cv2.FONT_HERSHEY_DUPLEX, 0.6, 255, 2)
    captioned = written.astype(np.float32)
    edges, windows = edge_agreement(image, captioned, ALL), window_agreement(image, captioned, ALL)
    assert edges["gradient"] < 0.9
    assert edges["core"] > 0.97
    assert windows["agree"] > 0.8
    assert windows["drift"] < 0.3


def test_the_mask_excludes_contradictions_unless_all_contradicts(image):
    pasted = image.copy()
    pasted[:48, :64] = image[48:, 64:][::-1]
    mask = consistent_mask(image, pasted, ALL)
    assert mask[:40, :56].mean() < 0.35
    assert mask[56:, 72:].mean() > 0.85
    other = np.random.default_rng(0).uniform(0, 255, SHAPE).astype(np.float32)
    np.testing.assert_array_equal(consistent_mask(image, other, ALL), ALL)


@pytest.mark.parametrize("sigma", [0.7, 1.4, 2.0])
@pytest.mark.parametrize("first", [True, False])
def test_the_sharper_image_is_blurred(image, sigma, first):
    soft = cv2.GaussianBlur(image, (0, 0), sigma)
    pair = (image, soft) if first else (soft, image)
    before = edge_agreement(*pair, ALL)["gradient"]
    ours, theirs, blur = equally_blurred(*pair, ALL)
    assert 0.6 * sigma <= blur <= 1.5 * sigma
    assert edge_agreement(ours, theirs, ALL)["gradient"] > max(before, 0.98)


def test_noise_is_blurred(image):
    noise = image + np.random.default_rng(0).normal(0, 30, SHAPE).astype(np.float32)
    ours, theirs, blur = equally_blurred(noise, image, ALL)
    assert blur > 0
    after, before = edge_agreement(ours, theirs, ALL), edge_agreement(noise, image, ALL)
    assert after["gradient"] > before["gradient"]


def test_the_residual_by_hand():
    query, reference = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)
    reference[:2, :2] = 20
    mask = np.arange(8)[:, None] < np.full(8, 4)
    expected = {
        "residual": np.sqrt(4 * 400 / 32),
        "within": 1 - 4 / 32,
        "patch": np.sqrt(4 * 400 / (4 + 0.5)),
    }
    assert residual(query, reference, mask) == pytest.approx(expected)
