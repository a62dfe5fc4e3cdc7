"""Changes of images that copies have, and a comparison of relations."""

import io

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
Matrix = npt.NDArray[np.floating]

#: Corners and centre of an image in unit coordinates, as columns.
CORNERS = np.array([[0, 1, 0, 1, 0.5], [0, 0, 1, 1, 0.5], [1, 1, 1, 1, 1.0]])


def jpeg(pixels: Pixels, quality: int) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def grey(pixels: Pixels) -> npt.NDArray[np.float32]:
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.float32)


def noisy(pixels: npt.NDArray[np.number], seed: int, sigma: float) -> Pixels:
    noise = np.random.default_rng(seed).normal(0, sigma, pixels.shape)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


def in_colour(plane: npt.NDArray[np.number]) -> Pixels:
    """Return a grey plane as an RGB image."""
    return np.repeat(np.clip(np.rint(plane), 0, 255).astype(np.uint8)[..., None], 3, axis=2)


def largest_distance(found: Matrix, planted: Matrix, points: Matrix = CORNERS) -> float:
    """Return the largest distance of points that two relations move, along an axis."""
    here, there = found @ points, planted @ points
    return float(np.abs(here[:2] / here[2] - there[:2] / there[2]).max())
