"""Two aligned images: edges, drift, residual and light, by slow computations and planted ones."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_changes import grey, jpeg
from visleak.verification.agreement import (
    consistent_mask,
    edge_agreement,
    equally_blurred,
    residual,
    window_agreement,
)
from visleak.verification.frame import Frame
from visleak.verification.measures import UNKNOWN_DRIFT
from visleak.verification.photometry import photometric_fit

SHAPE = (96, 128)
ALL = np.ones(SHAPE, bool)


@pytest.fixture
def image(natural):
    return grey(cv2.resize(natural["astronaut"], SHAPE[::-1], interpolation=cv2.INTER_AREA))


def shifted(image, across, down):
    move = np.float32([[1, 0, across], [0, 1, down]])
    return cv2.warpAffine(image, move, image.shape[::-1], borderMode=cv2.BORDER_REFLECT)


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


def test_plain_tiles_are_not_part_of_the_core():
    drawing = np.full(SHAPE, 255, np.float32)
    cv2.circle(drawing, (40, 40), 12, 30, 2)
    # artefacts of compression are near strokes only
    drawn = cv2.dilate((drawing < 255).astype(np.uint8), np.ones((9, 9))) > 0
    noise = np.random.default_rng(0).normal(0, 4, SHAPE).astype(np.float32)
    assert edge_agreement(drawing + noise * drawn, drawing, ALL)["core"] > 0.9


def test_a_caption_changes_the_core_and_the_drift_little(image):
    captioned = np.uint8(image)
    cv2.putText(captioned, "CAPTION", (4, 92), cv2.FONT_HERSHEY_DUPLEX, 0.6, 255, 2)
    captioned = captioned.astype(np.float32)
    edges, windows = (
        compare(image, captioned, ALL) for compare in (edge_agreement, window_agreement)
    )
    assert edges["gradient"] < 0.9 < 0.97 < edges["core"]
    assert windows["agree"] > 0.8
    assert windows["drift"] < 0.3


@pytest.mark.parametrize("step", [(0.3, 0.0), (0.0, -0.5), (0.6, 0.8)])
def test_drift_is_about_the_planted_displacement(image, step):
    drift = window_agreement(image, shifted(image, *step), ALL)["drift"]
    assert 0.8 * np.hypot(*step) < drift < 1.7 * np.hypot(*step)


def test_drift_is_unknown_without_texture(image):
    blank = np.full(SHAPE, 80, np.float32)
    for pair in ((blank, blank), (image, blank), (blank, image)):
        assert window_agreement(*pair, ALL)["drift"] == UNKNOWN_DRIFT


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


def test_the_residual_by_hand():
    query, reference = np.zeros((9, 10), np.float32), np.zeros((9, 10), np.float32)
    reference[:2, :2] = 20
    mask = np.arange(9)[:, None] < np.full(10, 4)
    expected = {
        "residual": np.sqrt(4 * 400 / 40),
        "within": 1 - 4 / 40,
        "patch": np.sqrt(4 * 400 / (4 + 90 / 16 / 8)),
    }
    assert residual(query, reference, mask) == pytest.approx(expected)


def fit(query, reference):
    """Return the fit of two arrays that are content everywhere."""
    planes = [np.asarray(plane, np.float32) for plane in (query, reference)]
    return photometric_fit(Frame(*planes, np.ones(query.shape[:2], bool), np.eye(3), 1.0, 1.0))


@given(st.integers(0, 10**6), st.floats(0.2, 3), st.floats(-60, 60))
def test_planted_gain_and_offset_are_found(seed, gain, offset):
    query = np.random.default_rng(seed).uniform(0, 255, (24, 32, 3))
    found = fit(query, gain * query + offset)
    assert found.gain == pytest.approx(gain, rel=0.01)
    assert found.offset == pytest.approx(offset, abs=0.5 + 255 * 0.01 * gain)
    assert found.correlation == pytest.approx(1, abs=1e-4)
    assert found.colour == pytest.approx(1, abs=1e-4)


def test_a_caption_does_not_change_the_light(image):
    query = np.repeat(image[..., None], 3, axis=2)
    captioned = 0.8 * query + 20
    captioned[:12] = 255
    found = fit(query, captioned)
    assert (found.gain, found.offset) == pytest.approx((0.8, 20), rel=0.05, abs=2)


def test_least_squares_agrees_with_numpy():
    rng = np.random.default_rng(1)
    query = rng.uniform(0, 255, (40, 40, 3))
    target = query @ [0.7, -0.2, 0.1] + 60 + rng.normal(0, 1, (40, 40))
    found = fit(query, np.repeat(target[..., None], 3, axis=2))
    table = np.column_stack([query.reshape(-1, 3), np.ones(1600)])
    weights, *_ = np.linalg.lstsq(table, target.ravel(), rcond=None)
    np.testing.assert_allclose(found.fitted.ravel(), table @ weights, atol=8)


@pytest.mark.parametrize("quality", [50, 75, 90])
@pytest.mark.parametrize("side", [64, 200])
def test_artefacts_of_compression_on_plain_ground_do_not_change_the_contrast(quality, side):
    drawing = np.full((side, side, 3), 255, np.uint8)
    cv2.circle(drawing, (side // 3, side // 3), side // 6, (200, 40, 30), -1)
    cv2.line(drawing, (side // 4, side // 2), (side // 2, side // 2 + 6), (20, 20, 90), 3)
    found = fit(jpeg(drawing, quality), drawing)
    expected = grey(drawing)
    assert found.fitted.std() == pytest.approx(expected.std(), rel=0.1)
    assert found.gain == pytest.approx(1, abs=0.1)
