"""What the paper does to a picture, as functions on arrays.

Every function takes and returns ``uint8`` RGB of shape (height, width, 3) and changes nothing in
place. The paper (Ramos et al. 2025, section 6.1) names the changes and gives few constants: all
of them stand here by name, and :mod:`visleak.robustness.conditions` stores them with a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import cv2
import numpy as np

from visleak.records import Bytes8

#: Long side to which a picture is bounded before it is changed, pixels.
LONG_SIDE: Final = 500

#: A crop that leaves a shorter side than this does not apply, pixels.
LEAST_LEFT: Final = 32

#: Standard deviation of the Gaussian filter, pixels.
BLUR_SIGMA: Final = 3.0

#: Standard deviation of the noise, levels of 255, and the seed it is drawn with.
NOISE_SIGMA: Final = 25.0
NOISE_SEED: Final = 0

#: Takes a picture, others of the collection, and a source of random numbers; ``None``: does not
#: apply to this picture.
Change = Callable[[Bytes8, Sequence[Bytes8], np.random.Generator], Bytes8 | None]


def plain(function: Callable[[Bytes8], Bytes8 | None]) -> Change:
    """Return a change that needs neither other pictures nor chance."""
    return lambda pixels, _others, _rng: function(pixels)


def bounded(pixels: Bytes8, side: int = LONG_SIDE) -> Bytes8:
    """Return the picture with its long side at most ``side``, averaged; small ones as they are.

    >>> bounded(np.zeros((300, 1000, 3), np.uint8)).shape
    (150, 500, 3)
    """
    height, width = pixels.shape[:2]
    factor = side / max(height, width)
    if factor >= 1.0:
        return pixels
    return resized(pixels, max(1, round(width * factor)), max(1, round(height * factor)))


def resized(pixels: Bytes8, width: int, height: int) -> Bytes8:
    """Return the picture at a size: averaged where both sides shrink, else interpolated."""
    shrinks = width <= pixels.shape[1] and height <= pixels.shape[0]
    method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=method), np.uint8)


def flipped(pixels: Bytes8, axis: int) -> Bytes8:
    """Return the picture upside down (axis 0) or mirrored (axis 1)."""
    return np.ascontiguousarray(np.flip(pixels, axis))


def turned(pixels: Bytes8, degrees: float) -> Bytes8:
    """Return the picture turned clockwise about its centre; canvas kept, corners black."""
    height, width = pixels.shape[:2]
    # OpenCV counts turns against the clock
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, 1.0)
    return np.asarray(cv2.warpAffine(pixels, matrix, (width, height)), np.uint8)


def cropped(pixels: Bytes8, border: int) -> Bytes8 | None:
    """Return the picture without ``border`` pixels on each side; ``None`` if too little is left."""
    height, width = pixels.shape[:2]
    if min(height, width) - 2 * border < LEAST_LEFT:
        return None
    return np.ascontiguousarray(pixels[border : height - border, border : width - border])


def blurred(pixels: Bytes8) -> Bytes8:
    """Return the picture after a Gaussian filter of :data:`BLUR_SIGMA`."""
    return np.asarray(cv2.GaussianBlur(pixels, (0, 0), BLUR_SIGMA), np.uint8)


def noisy(pixels: Bytes8, _others: Sequence[Bytes8], rng: np.random.Generator) -> Bytes8:
    """Return the picture with Gaussian noise on every channel, rounded and clipped."""
    noise = rng.normal(0.0, NOISE_SIGMA, pixels.shape)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


def luminance(pixels: Bytes8) -> Bytes8:
    """Return the luminance of ITU-R BT.601, (height, width)."""
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8)


def grey(pixels: Bytes8) -> Bytes8:
    """Return the picture without its colours."""
    return np.repeat(luminance(pixels)[..., None], 3, axis=2)


def inverted(pixels: Bytes8) -> Bytes8:
    """Return the negative."""
    return np.asarray(255 - pixels, np.uint8)


def tinted(pixels: Bytes8, channel: int) -> Bytes8:
    """Return the luminance mapped from black to full red (0), green (1) or blue (2)."""
    result = np.zeros_like(pixels)
    result[..., channel] = luminance(pixels)
    return result
