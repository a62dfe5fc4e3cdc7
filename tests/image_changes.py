"""Changes of images that copies have, and a comparison of relations."""

import io

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]

#: Corners and centre of an image in unit coordinates, as columns.
CORNERS = np.array([[0, 1, 0, 1, 0.5], [0, 0, 1, 1, 0.5], [1, 1, 1, 1, 1.0]])


def jpeg(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def grey(pixels):
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.float32)


def noisy(pixels, seed, sigma):
    noise = np.random.default_rng(seed).normal(0, sigma, pixels.shape)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


def in_colour(plane):
    """Return a grey plane as an RGB image."""
    return np.repeat(np.clip(np.rint(plane), 0, 255).astype(np.uint8)[..., None], 3, axis=2)


def surface(seed, grain):
    """Return a smooth surface (224, 224) with faint texture of a grain size, pixels."""
    noise = np.random.default_rng(seed).normal(0, 1, (224, 224))
    noise = cv2.GaussianBlur(noise, (0, 0), grain)
    return np.asarray(128 + 2 * noise / noise.std())


def strong_edges(edge, line):
    """Return a step at an edge, and a bright line, to be added to a surface."""
    down, across = np.mgrid[:224, :224]
    bright = 40 * np.exp(-(((across - line) / 9) ** 2))
    return np.asarray(bright - 80 * (across + 0.1 * down > edge))


def largest_distance(found, planted, points=CORNERS):
    """Return the largest distance of points that two relations move, along an axis."""
    here, there = found @ points, planted @ points
    return float(np.abs(here[:2] / here[2] - there[:2] / there[2]).max())
