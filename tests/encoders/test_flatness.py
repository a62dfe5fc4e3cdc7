"""Flat images: judged alike by every encoder."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.encoders.builtin import FLAT_BELOW, BuiltinEncoder, flat
from visleak.records import DecodedImage


def picture(pixels: np.ndarray) -> DecodedImage:
    return DecodedImage(pixels.astype(np.uint8), pixels.shape[1], pixels.shape[0])


@pytest.mark.parametrize(("height", "width"), [(1, 1), (32, 32), (31, 200), (300, 40)])
def test_one_colour_is_flat_and_noise_is_not(height, width):
    grey = np.full((height, width, 3), 77)
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3))
    assert flat([picture(grey), picture(noise)]).tolist() == [True, height * width == 1]


@pytest.mark.parametrize("slope", [FLAT_BELOW * 0.3, FLAT_BELOW * 0.9])
def test_a_ramp_is_flat_below_the_mean_gradient(slope):
    ramp = np.rint(np.arange(32) * slope + 100)
    pixels = np.broadcast_to(ramp[None, :, None], (32, 32, 3))
    padded = np.pad(ramp, 1, mode="edge")
    mean = np.abs(padded[2:] - padded[:-2]).mean()
    assert flat([picture(pixels)]).tolist() == [mean < FLAT_BELOW]


def test_the_builtin_encoder_judges_alike():
    rng = np.random.default_rng(1)
    pictures = []
    for number in range(300):
        height, width = rng.integers(1, 120, 2)
        span = 256 if number % 3 else 1 + number % 5
        pictures.append(picture(rng.integers(0, span, (height, width, 3))))
    judged = flat(pictures)
    assert 20 < judged.sum() < 150
    assert judged.tolist() == BuiltinEncoder().encode(pictures)[1].tolist()
