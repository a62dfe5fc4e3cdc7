"""Changes that make a true copy of an image, for planting leaks with known truth.

Every change maps RGB ``uint8`` pixels and a generator to RGB ``uint8`` pixels; sizes and positions
are shares of the image, so that a change is equivalent at 28 and at 1,000 pixels.

- ``PLANTED``: changes that are usual for data sets: re-saves, reduction, crop, mirror, light, a
  small rotation, a text bar. They can be planted in every data set.
- ``OCCLUDING``: changes that cover or distort a part of a photograph.
- ``FITTED``: further changes for fitting a grader, not for reporting.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Pixels = npt.NDArray[np.uint8]
Change = Callable[[Pixels, np.random.Generator], Pixels]

#: Letters of random captions.
_LETTERS = np.array(list("abcdefghiklmnoprstuvw"))


def generator(*parts: object) -> np.random.Generator:
    """Return a generator seeded by some names."""
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


# -- single operations ----------------------------------------------------------------------------


def compressed(pixels: Pixels, quality: int) -> Pixels:
    """Return an image after JPEG compression."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def resized(pixels: Pixels, scale: float) -> Pixels:
    """Return an image with both sides multiplied by a scale, at least 8 pixels."""
    height, width = pixels.shape[:2]
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(pixels, size, interpolation=method), np.uint8)


def cropped(pixels: Pixels, share: float, rng: np.random.Generator) -> Pixels:
    """Return a crop of the given share of both sides, at a random place."""
    height, width = pixels.shape[:2]
    h, w = max(8, round(height * share)), max(8, round(width * share))
    y, x = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    return pixels[y : y + h, x : x + w].copy()


def rotated(pixels: Pixels, degrees: float, *, fill: bool = False) -> Pixels:
    """Return an image rotated about its centre, canvas kept, corners black or continued."""
    height, width = pixels.shape[:2]
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, 1.0)
    border = cv2.BORDER_REPLICATE if fill else cv2.BORDER_CONSTANT
    return np.asarray(
        cv2.warpAffine(pixels, turn, (width, height), flags=cv2.INTER_LINEAR, borderMode=border),
        np.uint8,
    )


def relit(pixels: Pixels, gain: float, offset: float) -> Pixels:
    """Return an image with another contrast about mid-grey, and another brightness."""
    return np.clip(np.rint((pixels.astype(np.float32) - 128) * gain + 128 + offset), 0, 255).astype(
        np.uint8
    )


def words(rng: np.random.Generator, count: int) -> str:
    """Return random words."""
    return " ".join(
        "".join(rng.choice(_LETTERS, int(rng.integers(3, 9)))).capitalize() for _ in range(count)
    )


def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=max(6.0, size))


def barred(pixels: Pixels, rng: np.random.Generator, share: float = 0.14) -> Pixels:
    """Return an image with a bar of text across its top or bottom."""
    height, width = pixels.shape[:2]
    bar = max(4, round(share * height))
    top = 0 if rng.random() < 0.5 else height - bar
    dark = bool(rng.random() < 0.5)
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, top, width, top + bar - 1), fill=(0, 0, 0) if dark else (255, 255, 255))
    ink = (255, 255, 255) if dark else (0, 0, 0)
    draw.text((0.02 * width, top + 0.1 * bar), words(rng, 8), fill=ink, font=_font(0.65 * bar))
    return np.asarray(image)


def captioned(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image with one to three lines of text on it, with or without an outline."""
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    size = float(rng.uniform(0.04, 0.13)) * image.height
    dark, outlined = rng.random() < 0.3, rng.random() < 0.6
    ink = (0, 0, 0) if dark else (255, 255, 255)
    if rng.random() < 0.3:
        ink = tuple(rng.integers(0, 256, 3).tolist())
    edge = (255, 255, 255) if dark else (0, 0, 0)
    top = float(rng.uniform(0.02, 0.9 - 0.1 * outlined)) * image.height
    for line in range(rng.integers(1, 4)):
        place = (float(rng.uniform(0.02, 0.3)) * image.width, top + 1.2 * line * size)
        width = max(1, round(size / 14)) if outlined else 0
        text = words(rng, int(rng.integers(1, 6)))
        draw.text(place, text, ink, _font(size), stroke_width=width, stroke_fill=edge)
    return np.asarray(image)


def covered(pixels: Pixels, rng: np.random.Generator, area: float = 0.25) -> Pixels:
    """Return an image with a grey rectangle over a share of its area."""
    height, width = pixels.shape[:2]
    ratio = float(np.exp(rng.uniform(-0.4, 0.4)))
    h, w = min(0.95, np.sqrt(area) * ratio) * height, min(0.95, np.sqrt(area) / ratio) * width
    y, x = rng.uniform(0, height - h), rng.uniform(0, width - w)
    made = pixels.copy()
    made[int(y) : int(y + h), int(x) : int(x + w)] = int(rng.integers(90, 170))
    return made


def watermarked(pixels: Pixels, rng: np.random.Generator, opacity: float = 0.35) -> Pixels:
    """Return an image with a repeated half-transparent slanted word."""
    height, width = pixels.shape[:2]
    side = int(1.5 * max(height, width))
    layer = Image.new("L", (side, side))
    draw = ImageDraw.Draw(layer)
    size = 0.05 * max(height, width)
    text = words(rng, 1)
    step = (size * (0.7 * len(text) + 1), 2.6 * size)
    for row, y in enumerate(np.arange(0, side, step[1])):
        for x in np.arange(-(row % 2) * step[0] / 2, side, step[0]):
            draw.text((x, y), text, fill=255, font=_font(size))
    layer = layer.rotate(float(rng.uniform(20, 40)))
    x, y = (side - width) // 2, (side - height) // 2
    mask = np.asarray(layer)[y : y + height, x : x + width, None] / 255 * opacity
    ink = 255.0 if rng.random() < 0.7 else 0.0
    return np.rint(pixels * (1 - mask) + ink * mask).astype(np.uint8)


def vignetted(pixels: Pixels, strength: float = 0.85) -> Pixels:
    """Return an image that darkens towards its corners."""
    height, width = pixels.shape[:2]
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    light = 1 - strength * np.clip((x * x + y * y) / 2, 0, 1)
    return np.rint(pixels * light[..., None]).astype(np.uint8)


def stickered(pixels: Pixels, rng: np.random.Generator, count: int = 5) -> Pixels:
    """Return an image with coloured discs and boxes of 12-22 % of the short side."""
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    height, width = pixels.shape[:2]
    for _ in range(count):
        side = float(rng.uniform(0.12, 0.22)) * min(height, width)
        x, y = rng.uniform(0, width - side), rng.uniform(0, height - side)
        colour, other = (tuple(int(c) for c in rng.integers(0, 256, 3)) for _ in range(2))
        box = (x, y, x + side, y + side)
        shape = draw.ellipse if rng.random() < 0.6 else draw.rectangle
        shape(box, fill=colour, outline=other, width=max(1, round(0.06 * side)))
        draw.text((x + 0.2 * side, y + 0.25 * side), words(rng, 1)[:3], other, _font(0.4 * side))
    return np.asarray(image)


def hue_turned(pixels: Pixels, degrees: float) -> Pixels:
    """Return an image with its hues turned."""
    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(int) + round(degrees / 2)) % 180
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), np.uint8)


def combined(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image rotated, cropped, with other hues, a vignette and JPEG 50."""
    made = rotated(pixels, float(rng.choice([-1, 1]) * rng.uniform(4, 8)))
    made = cropped(made, float(rng.uniform(0.75, 0.85)), rng)
    made = vignetted(hue_turned(made, float(rng.uniform(25, 60))), 0.6)
    return compressed(made, 50)


def mosaic(pixels: Pixels, block: int = 12) -> Pixels:
    """Return an image made of uniform blocks."""
    height, width = pixels.shape[:2]
    small = (max(1, round(width / block)), max(1, round(height / block)))
    coarse = cv2.resize(pixels, small, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_NEAREST))


def framed(pixels: Pixels, rng: np.random.Generator, margin: float = 0.1) -> Pixels:
    """Return an image with a border of one colour around it."""
    height, width = pixels.shape[:2]
    down, across = (
        max(1, round(margin * side * rng.uniform(0.5, 1.5))) for side in (height, width)
    )
    colour = [int(c) for c in rng.integers(0, 256, 3)] if rng.random() < 0.5 else [0, 0, 0]
    return np.asarray(
        cv2.copyMakeBorder(pixels, down, down, across, across, cv2.BORDER_CONSTANT, value=colour)
    )


def letterboxed(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image on a square canvas, or on a wide one where it is nearly square."""
    height, width = pixels.shape[:2]
    side = max(height, width) if abs(height / width - 1) > 0.1 else round(1.35 * max(height, width))
    canvas = (side, width) if width >= height else (height, side)
    made = np.full((*canvas, 3), int(rng.choice([0, 0, 255, 128])), np.uint8)
    y, x = (canvas[0] - height) // 2, (canvas[1] - width) // 2
    made[y : y + height, x : x + width] = pixels
    return made


def noisy(pixels: Pixels, rng: np.random.Generator, sigma: float) -> Pixels:
    """Return an image with Gaussian noise of a deviation in levels."""
    return np.clip(np.rint(pixels + rng.normal(0, sigma, pixels.shape)), 0, 255).astype(np.uint8)


def in_perspective(pixels: Pixels, rng: np.random.Generator, most: float = 0.06) -> Pixels:
    """Return an image whose corners moved inwards by up to a share of the sides."""
    height, width = pixels.shape[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    inwards = np.sign(np.array([width / 2, height / 2]) - corners)
    there = corners + inwards * rng.uniform(0, most, (4, 2)) * (width, height)
    matrix = cv2.getPerspectiveTransform(corners, there.astype(np.float32))
    return np.asarray(cv2.warpPerspective(pixels, matrix, (width, height)), np.uint8)


# -- the lists ------------------------------------------------------------------------------------

#: Changes that are usual for data sets.
PLANTED: Mapping[str, Change] = {
    "jpeg-50 at 70 %": lambda p, rng: compressed(resized(p, 0.7), 50),
    "crop 70 %": lambda p, rng: cropped(p, 0.7, rng),
    "mirror": lambda p, rng: p[:, ::-1].copy(),
    "brightness, contrast": lambda p, rng: relit(
        p, float(rng.choice([0.7, 1.3])), float(rng.choice([-20, 20]))
    ),
    "rotation 5°": lambda p, rng: rotated(p, float(rng.choice([-5, 5]))),
    "text bar": barred,
    "re-save 90": lambda p, rng: compressed(p, 90),
}

#: Changes that cover or distort a part of a photograph.
OCCLUDING: Mapping[str, Change] = {
    "grey quarter": covered,
    "watermark": watermarked,
    "vignette": lambda p, rng: vignetted(p),
    "stickers": stickered,
    "combined": combined,
    "mosaic 12": lambda p, rng: mosaic(p),
}

#: Further changes for fitting only.
FITTED: Mapping[str, Change] = {
    "jpeg-10": lambda p, rng: compressed(p, 10),
    "jpeg-30 at 50 %": lambda p, rng: compressed(resized(p, 0.5), 30),
    "blur": lambda p, rng: np.asarray(
        cv2.GaussianBlur(p, (0, 0), float(rng.uniform(0.004, 0.012)) * max(p.shape)), np.uint8
    ),
    "noise": lambda p, rng: noisy(p, rng, float(rng.uniform(5, 30))),
    "frame": framed,
    "letterbox": letterboxed,
    "perspective": in_perspective,
    "stretch": lambda p, rng: np.asarray(
        cv2.resize(p, None, fx=float(rng.uniform(0.75, 1.33)), fy=1.0), np.uint8
    ),
    "crop 50 %": lambda p, rng: cropped(p, 0.5, rng),
    "crop 85 %, jpeg-40": lambda p, rng: compressed(cropped(p, 0.85, rng), 40),
    "grey, gamma": lambda p, rng: np.repeat(
        (255 * (cv2.cvtColor(p, cv2.COLOR_RGB2GRAY)[..., None] / 255) ** rng.uniform(0.5, 2.0))
        .astype(np.uint8), 3, axis=2,
    ),
    "hue": lambda p, rng: hue_turned(p, float(rng.uniform(20, 180))),
    "rotation 90°": lambda p, rng: np.rot90(p).copy(),
    "rotation 15°": lambda p, rng: rotated(p, float(rng.uniform(8, 20)), fill=True),
    "upside down": lambda p, rng: p[::-1].copy(),
    "inverted": lambda p, rng: np.asarray(255 - p),
    "bar, mirror, jpeg-60": lambda p, rng: compressed(
        barred(p[:, ::-1].copy(), rng, float(rng.uniform(0.08, 0.2))), 60
    ),
}  # fmt: skip

#: Changes with text on the image, for fitting only. They are apart from the others, whose draws
#: depend on their number.
LETTERED: Mapping[str, Change] = {
    "caption": captioned,
    "caption, jpeg-60": lambda p, rng: compressed(captioned(p, rng), 60),
    "caption, crop 85 %": lambda p, rng: cropped(captioned(p, rng), 0.85, rng),
}


def changed(pixels: Pixels, name: str, image: str) -> Pixels:
    """Return an image after a change; determined by the names of image and change."""
    change = {**PLANTED, **OCCLUDING, **FITTED, **LETTERED}[name]
    return change(pixels, generator(name, image))
