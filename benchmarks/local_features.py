"""How well voting by local features finds the sources of changed photographs, and how fast.

Run with ``VISLEAK_DATA=<folder> python benchmarks/local_features.py [--large N]``; the photographs
are ``$VISLEAK_DATA/photos/*.jpg``, sorted by name. Positions 0 and 1 modulo 4 were used for tuning;
every figure is of queries at positions 2 and 3. References are all photographs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
#: Takes the picture, three others, and a generator of random numbers; ``None``: does not apply.
Change = Callable[[Image, list[Image], np.random.Generator], Image | None]


def _cropped(pixels: int) -> Change:
    def change(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image | None:
        height, width = image.shape[:2]
        if min(height, width) - 2 * pixels < 32:
            return None
        return image[pixels : height - pixels, pixels : width - pixels]

    return change


def _part(image: Image, _others: list[Image], rng: np.random.Generator) -> Image:
    """Keep a fifth of the area, of the picture's own shape, at a random place."""
    height, width = image.shape[:2]
    h, w = round(height * np.sqrt(0.2)), round(width * np.sqrt(0.2))
    y, x = rng.integers(height - h + 1), rng.integers(width - w + 1)
    return image[y : y + h, x : x + w]


def _turned(degrees: float) -> Change:
    """Turn clockwise about the centre; the canvas stays, its corners turn black."""

    def change(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
        height, width = image.shape[:2]
        matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, 1.0)
        return np.asarray(cv2.warpAffine(image, matrix, (width, height)), np.uint8)

    return change


def _noisy(image: Image, _others: list[Image], rng: np.random.Generator) -> Image:
    noise = rng.normal(0, 25, image.shape)
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)


def _grey(image: Image) -> Image:
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)


def _red(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
    tinted = np.zeros_like(image)
    tinted[..., 0] = _grey(image)
    return tinted


def _jpeg(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
    _, stored = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 20])
    return np.asarray(cv2.imdecode(stored, cv2.IMREAD_COLOR), np.uint8)[..., ::-1].copy()


def _lettered(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
    """Write three white lines with black rims, as wide as the picture."""
    image = image.copy()
    height, width = image.shape[:2]
    for line, text in enumerate(("SAMPLE TEXT", "do not copy", "visleak 2024")):
        at = (round(0.05 * width), round(height * (0.25 + 0.3 * line)))
        for colour, thickness in (((0, 0, 0), 5), ((255, 255, 255), 2)):
            cv2.putText(image, text, at, cv2.FONT_HERSHEY_DUPLEX, width / 270, colour, thickness)
    return image


def _collage(image: Image, others: list[Image], rng: np.random.Generator) -> Image:
    """Tile a canvas of the picture's size with the picture and three others, at half size."""
    height, width = image.shape[0] // 2, image.shape[1] // 2
    parts = [cv2.resize(p, (width, height), interpolation=cv2.INTER_AREA) for p in (image, *others)]
    a, b, c, d = (parts[i] for i in rng.permutation(4))
    return np.vstack([np.hstack([a, b]), np.hstack([c, d])])


def _scaled(side: int) -> Change:
    def change(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
        return np.asarray(cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA), np.uint8)

    return change


CONDITIONS: Mapping[str, Change] = {
    "original": lambda image, _o, _r: image,
    "flip-h": lambda image, _o, _r: image[:, ::-1],
    "flip-v": lambda image, _o, _r: image[::-1],
    "crop-20": _cropped(20),
    "crop-50": _cropped(50),
    "crop-100": _cropped(100),
    "part-20%": _part,
    "rot-45": _turned(45),
    "rot-135": _turned(135),
    "noise": _noisy,
    "blur": lambda image, _o, _r: np.asarray(cv2.GaussianBlur(image, (0, 0), 3), np.uint8),
    "rs-128": _scaled(128),
    "rs-256": _scaled(256),
    "grey": lambda image, _o, _r: np.repeat(_grey(image)[..., None], 3, axis=2),
    "inverted": lambda image, _o, _r: 255 - image,
    "red": _red,
    "jpeg-20": _jpeg,
    "text": _lettered,
    "collage": _collage,
}
