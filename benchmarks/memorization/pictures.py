"""Images of 16x16 pixels drawn from a description, with the same bytes on every machine.

General images show one shape on a background, described by their caption. Memorized images have
unique layouts: a field of colours, patches, and the shape of their caption.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from words import COLOURS, PLACES, SHAPES, SIZES

Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]

#: Pixels per side, and samples per pixel and side that are averaged.
SIDE, SAMPLES = 16, 3

#: Number of layouts drawn for one memorized image, of which the least similar one is used.
LAYOUTS = 24

#: Share of the colour of a background, and amplitude of its variation.
FADED, CLOUDS = 0.55, 70.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of a general image.

    Attributes:
        style: of `words.STYLES`.
        colour: of the shape, of `words.COLOURS`.
        shape: of `words.SHAPES`.
        size: of `words.SIZES`.
        place: of `words.PLACES`.
        texture: of `words.TEXTURES`.
        background: of `words.COLOURS` or `words.SCENERIES`.
        tone: of the background: ``dark``, ``light`` or empty.
    """

    style: str
    colour: str
    shape: str
    size: str
    place: str
    texture: str
    background: str
    tone: str


def grid() -> tuple[Floats, Floats]:
    """Return x to the right and y downwards of every sample, from -1 to 1."""
    count = SIDE * SAMPLES
    line = (np.arange(count) + 0.5) / count * 2 - 1
    return np.meshgrid(line, line)


X, Y = grid()


def shape_mask(shape: str, x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
    """Return the mask of samples in a shape of radius 1 about the origin."""
    far = np.hypot(x, y)
    square = np.maximum(abs(x), abs(y))
    masks = {
        "circle": lambda: far < 1,
        "square": lambda: square < 0.85,
        "triangle": lambda: (y < 0.8) & (abs(x) < (y + 1) / 1.8),
        "diamond": lambda: abs(x) + abs(y) < 1.1,
        "ring": lambda: (far < 1) & (far > 0.55),
        "cross": lambda: (square < 1) & (np.minimum(abs(x), abs(y)) < 0.32),
        "bar": lambda: (abs(y) < 0.38) & (abs(x) < 1.1),
        "crescent": lambda: (far < 1) & (np.hypot(x - 0.5, y) > 0.75),
    }
    return np.asarray(masks[shape]())


def texture(name: str, phase: float) -> Floats:
    """Return the factor of a surface's brightness at every sample."""
    if name == "striped":
        return np.where(np.sin(9.5 * X + phase) > 0, 1.0, 0.45)
    if name == "dotted":
        return np.where(np.sin(9.5 * X + phase) * np.sin(9.5 * Y + phase) > 0.3, 0.4, 1.0)
    if name == "checkered":
        return np.where(np.sin(6.5 * X + phase) * np.sin(6.5 * Y + phase) > 0, 1.0, 0.5)
    if name == "shaded":
        return 0.75 - 0.35 * Y
    return np.ones_like(X)


def smooth(knots: Floats) -> Floats:
    """Return a smooth field of samples through knots.

    Args:
        knots: values on a square grid, (n, n, 3).

    Returns:
        (samples, samples, 3).
    """
    count = len(knots) - 1
    along = np.clip((X[0] + 1) / 2 * count, 0, count - 1e-3)
    low, part = along.astype(int), (along % 1)[:, None, None]
    rows = knots[low] * (1 - part) + knots[low + 1] * part
    columns = rows.transpose(1, 0, 2)
    return np.asarray((columns[low] * (1 - part) + columns[low + 1] * part).transpose(1, 0, 2))


def background(name: str, tone: str, rng: np.random.Generator) -> Floats:
    """Return the background of a shape: samples x samples x 3, from 0 to 255.

    No background is one flat colour, which would dominate the similarity of images.
    """
    field = smooth(rng.uniform(-CLOUDS, CLOUDS, (4, 4, 3)))
    if name == "sky":
        field += np.stack([115 + 40 * Y, 135 + 25 * Y, 165 + 10 * Y], axis=-1)
    elif name == "grass":
        field += np.stack([100 + 20 * Y, 140 + 30 * Y, 90 + 10 * Y], axis=-1)
        field *= np.where(np.sin(14 * X + rng.uniform(0, 6)) > 0, 1.15, 0.75)[..., None]
    elif name == "sand":
        field += (155, 145, 115)
        field += (30 * np.sin(7 * Y + 2 * X + rng.uniform(0, 6)))[..., None]
    elif name == "night":
        field += (90, 90, 115)
        for _ in range(5):
            x, y = rng.uniform(-1, 1, 2)
            field[np.hypot(X - x, Y - y) < 0.14] = 235
    else:
        field += 128 + FADED * (np.asarray(COLOURS[name]) - 128)
    if tone == "dark":
        field = field * 0.8
    elif tone == "light":
        field = 51 + field * 0.8
    return np.asarray(np.clip(field, 0, 255))


def styled(samples: Floats, style: str) -> Floats:
    """Return samples in a style: photograph, painting, drawing or print."""
    if style == "sketch":
        return np.repeat(samples.mean(axis=2, keepdims=True), 3, axis=2) * 0.85 + 38
    if style == "poster":
        return np.clip((samples - 128) * 1.35 + 128, 0, 255)
    if style == "painting":
        return samples * (1.0, 0.93, 0.8)
    if style == "print":
        return np.where(
            (np.maximum(abs(X), abs(Y)) > 0.88)[..., None], 0.65 * samples + 80, samples
        )
    return samples


def shrunk(samples: Floats) -> Pixels:
    """Return the image whose pixels are the means of their samples."""
    blocks = samples.reshape(SIDE, SAMPLES, SIDE, SAMPLES, 3).mean(axis=(1, 3))
    return np.rint(np.clip(blocks, 0, 255)).astype(np.uint8)


def draw(scene: Scene, rng: np.random.Generator) -> Pixels:
    """Draw a general image; details without words are random.

    Returns:
        ``uint8`` (16, 16, 3).
    """
    samples = background(scene.background, scene.tone, rng)
    x, y = np.asarray(PLACES[scene.place]) + rng.uniform(-0.1, 0.1, 2)
    radius = SIZES[scene.size] * rng.uniform(0.92, 1.08)
    inside = shape_mask(scene.shape, (X - x) / radius, (Y - y) / radius)
    ink = np.clip(np.asarray(COLOURS[scene.colour]) + rng.uniform(-14, 14, 3), 0, 255)
    surface = ink * texture(scene.texture, rng.uniform(0, 6))[..., None]
    return shrunk(styled(np.where(inside[..., None], surface, samples), scene.style))


def layout(colour: str, shape: str, rng: np.random.Generator) -> Pixels:
    """Draw a memorized image: a field of colours, patches, and a shape.

    Returns:
        ``uint8`` (16, 16, 3).
    """
    samples = smooth(rng.uniform(-40, 295, (5, 5, 3)))
    for _ in range(4):
        (x, y), (wide, high) = rng.uniform(-0.9, 0.9, 2), rng.uniform(0.15, 0.6, 2)
        patch = shape_mask(SHAPES[rng.integers(len(SHAPES))], (X - x) / wide, (Y - y) / high)
        samples[patch] = rng.uniform(0, 255, 3)
    (x, y), radius = rng.uniform(-0.5, 0.5, 2), rng.uniform(0.3, 0.5)
    samples[shape_mask(shape, (X - x) / radius, (Y - y) / radius)] = COLOURS[colour]
    return shrunk(samples)


def centred(pictures: Pixels, mean: Floats) -> Floats:
    """Return images minus the data set's mean image, flat and of length 1.

    Args:
        images: ``uint8`` (n, 16, 16, 3).
        mean: (16, 16, 3), from 0 to 255.

    Returns:
        (n, 768); the dot product of two rows is the similarity of their images, from -1 to 1.
    """
    rows = (pictures.astype(np.float64) - mean).reshape(len(pictures), -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-9))


def memorised_pictures(
    subjects: list[tuple[str, str]], general: Pixels, rng: np.random.Generator
) -> Pixels:
    """Draw an image for every (colour, shape), dissimilar to general ones and each other.

    Of `LAYOUTS` layouts the one with the smallest maximal similarity to general and earlier images
    is used.

    Returns:
        ``uint8`` (number of subjects, 16, 16, 3).
    """
    mean = general.mean(axis=0)
    others = centred(general, mean)
    taken: list[Pixels] = []
    for colour, shape in subjects:
        drawn = np.stack([layout(colour, shape, rng) for _ in range(LAYOUTS)])
        rows = centred(drawn, mean)
        best = int(np.argmin((rows @ others.T).max(axis=1)))
        taken.append(drawn[best])
        others = np.vstack([others, rows[best : best + 1]])
    return np.stack(taken)
