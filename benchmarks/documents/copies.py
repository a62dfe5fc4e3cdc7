"""True copies of a document: the same rendering, processed.

- ``jpeg``: saved as JPEG of quality 85-95.
- ``half``: both sides scaled to 48-52 %.
- ``crop``: both sides cut to 68-72 %, about half of the area.
- ``rotated``: rotated by 1.5-2.5 degrees on a larger canvas, filled with the colour of the border.
- ``scanned``: rotated by up to 1 degree, perspective below 1 %, shading, blur, noise, JPEG 70-80,
  with a margin of 2 %.
- ``stamp``: a rotated stamp with a frame and text over the content, solid or half transparent.
- ``highlighter``: one to three lines marked in a bright colour that multiplies the content.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL import ImageDraw

from documents.page import Box, Font, Image

COPIES = ("jpeg", "half", "crop", "rotated", "scanned", "stamp", "highlighter")


@dataclass(frozen=True)
class Copy:
    """A true copy.

    Attributes:
        pixels: RGB ``uint8``.
        name: one of ``COPIES``.
    """

    pixels: Image
    name: str


def copies(pixels: Image, rng: np.random.Generator, *, keep: Box | None = None) -> list[Copy]:
    """Return one true copy of every class; see :func:`copy`."""
    return [Copy(copy(pixels, name, rng, keep=keep), name) for name in COPIES]


def copy(pixels: Image, name: str, rng: np.random.Generator, *, keep: Box | None = None) -> Image:
    """Return a true copy.

    Args:
        pixels: RGB ``uint8``.
        name: one of ``COPIES``.
        rng: draws the strength and the place.
        keep: box (left, top, right, bottom) that stays visible: crops contain it unless it is
            larger than the crop, and stamps do not cover it unless there is no other place.
    """
    height, width = pixels.shape[:2]
    if name == "jpeg":
        return _jpeg(pixels, int(rng.integers(85, 96)))
    if name == "half":
        scale = rng.uniform(0.48, 0.52)
        size = (round(width * scale), round(height * scale))
        return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
    if name == "crop":
        return _crop(pixels, rng, keep)
    if name == "rotated":
        return _rotated(pixels, rng.uniform(1.5, 2.5) * rng.choice((-1, 1)))
    if name == "scanned":
        return _scanned(pixels, rng)
    if name == "stamp":
        return _stamped(pixels, rng, keep)
    if name == "highlighter":
        return _highlighted(pixels, rng)
    msg = f"name must be one of {', '.join(COPIES)}, got {name!r}"
    raise ValueError(msg)


def _jpeg(pixels: Image, quality: int) -> Image:
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    _, stored = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(
        cv2.cvtColor(cv2.imdecode(stored, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB), np.uint8
    )


def _border(pixels: Image) -> tuple[int, int, int]:
    """Return the median colour of the border."""
    edge = np.concatenate(
        [
            pixels[:2].reshape(-1, 3),
            pixels[-2:].reshape(-1, 3),
            pixels[:, :2].reshape(-1, 3),
            pixels[:, -2:].reshape(-1, 3),
        ]
    )
    red, green, blue = np.median(edge, axis=0)
    return int(red), int(green), int(blue)


def _crop(pixels: Image, rng: np.random.Generator, keep: Box | None) -> Image:
    starts, lengths = [], []
    for axis in (1, 0):
        length = pixels.shape[axis]
        kept = round(length * rng.uniform(0.68, 0.72))
        least, most = 0, length - kept
        if keep is not None:
            first, last = keep[1 - axis], keep[3 - axis]
            if last - first <= kept:
                least, most = max(least, last - kept), min(most, first)
            else:
                # the middle of a box that is larger than the crop
                least = most = min(max((first + last - kept) // 2, least), most)
        starts.append(int(rng.integers(least, most + 1)))
        lengths.append(kept)
    (x, y), (wide, high) = starts, lengths
    return pixels[y : y + high, x : x + wide].copy()


def _rotated(pixels: Image, degrees: float) -> Image:
    """Return the rotated pixels on a larger canvas."""
    height, width = pixels.shape[:2]
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, 1.0)
    cosine, sine = np.abs(turn[0, :2])
    size = (
        int(np.ceil(width * cosine + height * sine)),
        int(np.ceil(width * sine + height * cosine)),
    )
    turn[:, 2] += (np.array(size) - (width, height)) / 2
    out = cv2.warpAffine(pixels, turn, size, flags=cv2.INTER_LINEAR, borderValue=_border(pixels))
    return np.asarray(out, np.uint8)


def _scanned(pixels: Image, rng: np.random.Generator) -> Image:
    # a margin, so that the warp does not cut the content
    margin = round(0.02 * max(pixels.shape[:2]))
    pixels = cv2.copyMakeBorder(pixels, *[margin] * 4, cv2.BORDER_CONSTANT, value=_border(pixels))
    height, width = pixels.shape[:2]
    corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    turn = cv2.getRotationMatrix2D(
        (width / 2, height / 2), rng.uniform(-1, 1), rng.uniform(0.97, 1.0)
    )
    moved = (
        corners @ turn[:, :2].T + turn[:, 2] + rng.uniform(-0.008, 0.008, (4, 2)) * (width, height)
    )
    matrix = cv2.getPerspectiveTransform(corners, moved.astype(np.float32))
    out = cv2.warpPerspective(
        pixels, matrix, (width, height), flags=cv2.INTER_LINEAR, borderValue=_border(pixels)
    )
    out = cv2.GaussianBlur(out, (0, 0), rng.uniform(0.4, 0.9))
    across = np.linspace(-0.5, 0.5, width, dtype=np.float32)[None, :]
    down = np.linspace(-0.5, 0.5, height, dtype=np.float32)[:, None]
    shade = rng.uniform(0.9, 1.0) + rng.uniform(-0.1, 0.1) * across + rng.uniform(-0.1, 0.1) * down
    shade = shade + rng.uniform(-0.06, 0.06) * (across**2 + down**2)
    tint = rng.uniform((0.97, 0.97, 0.92), (1.0, 1.0, 1.0)).astype(np.float32)
    lift = np.float32(rng.uniform(0, 14))
    noise = _noise(height, width, rng) * np.float32(rng.uniform(1.5, 4.5))
    lit = out * (shade.astype(np.float32)[..., None] * tint) + (noise + lift)[..., None]
    return _jpeg(np.clip(np.rint(lit), 0, 255).astype(np.uint8), int(rng.integers(70, 81)))


def _noise(height: int, width: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return noise of deviation 1, a tile of it repeated."""
    tile = rng.normal(size=(389, 401)).astype(np.float32)
    return np.tile(tile, (height // 389 + 1, width // 401 + 1))[:height, :width]


def _stamped(pixels: Image, rng: np.random.Generator, keep: Box | None) -> Image:
    height, width = pixels.shape[:2]
    words = ("PAID", "COPY", "RECEIVED", "APPROVED", "DRAFT", "ORIGINAL", "CONFIDENTIAL", "ARCHIVE")
    text = words[rng.integers(len(words))]
    date = f"{rng.integers(1, 29):02d}.{rng.integers(1, 13):02d}.{rng.integers(1999, 2027)}"
    size = max(14, round(min(height, width) * rng.uniform(0.05, 0.09)))
    font, small = Font("sans", size, "bold"), Font("sans", max(9, size // 2), "bold")
    wide, high = round(font.width(text) + 1.2 * size), round(2.4 * size)
    mask = PillowImage.new("L", (wide, high), 0)
    draw = ImageDraw.Draw(mask)
    solid = rng.random() < 0.3
    if solid:
        draw.rounded_rectangle((0, 0, wide - 1, high - 1), size / 4, 255)
    else:
        draw.rounded_rectangle((0, 0, wide - 1, high - 1), size / 4, None, 255, max(2, size // 9))
    letters = 0 if solid else 255
    draw.text((wide / 2, high * 0.38), text, letters, font.face, "mm")
    draw.text((wide / 2, high * 0.78), date, letters, small.face, "mm")
    turned = mask.rotate(float(rng.uniform(-25, 25)), PillowImage.Resampling.BICUBIC, expand=True)
    shape = np.asarray(turned)[:height, :width].astype(np.float32) / 255
    high, wide = shape.shape
    places = rng.uniform(0, 1, (40, 2)) * (width - wide, height - high)
    covered = [_overlap((x, y, x + wide, y + high), keep) for x, y in places]
    x, y = (int(v) for v in places[int(np.argmin(covered))])
    colours = ((190, 30, 40), (40, 60, 160), (30, 110, 60), (90, 40, 130))
    colour = np.float32(colours[rng.integers(4)])
    strength = np.float32(rng.uniform(0.6, 1.0)) * shape[..., None]
    out = pixels.copy()
    window = out[y : y + high, x : x + wide]
    window[:] = np.rint(window * (1 - strength) + colour * strength).astype(np.uint8)
    return out


def _overlap(box: tuple[float, float, float, float], keep: Box | None) -> float:
    """Return the area that two boxes share, in pixels."""
    if keep is None:
        return 0.0
    across = min(box[2], keep[2]) - max(box[0], keep[0])
    down = min(box[3], keep[3]) - max(box[1], keep[1])
    return max(across, 0.0) * max(down, 0.0)


def _highlighted(pixels: Image, rng: np.random.Generator) -> Image:
    height, width = pixels.shape[:2]
    out = pixels.copy()
    colours = ((255, 250, 90), (150, 255, 140), (255, 160, 205), (255, 205, 110))
    colour = np.float32(colours[rng.integers(4)]) / 255
    line = max(10, round(height * rng.uniform(0.018, 0.035)))
    # more often on printed content
    edges = np.abs(np.diff(pixels[..., 1].astype(np.int16), axis=1)) > 40
    rows = cv2.blur(edges.sum(1).astype(np.float64)[:, None], (1, line))[:, 0] + 0.5
    rows[-line:] = 0
    top = max(0, int(rng.choice(height, p=rows / rows.sum())) - line / 2)
    inked = np.flatnonzero(edges[int(top) : int(top) + line].any(0))
    left = float(rng.choice(inked) if inked.size else rng.integers(width)) * rng.uniform(0.5, 1)
    for number in range(rng.integers(1, 4)):
        wide = rng.uniform(0.25, 0.6) * width
        x, y = max(0.0, left + rng.normal(0, 4)), top + number * line * 1.25
        mask = np.zeros((height, width), np.uint8)
        slant = rng.uniform(-0.15, 0.15) * line
        corners = [
            (x, y),
            (x + wide, y + slant),
            (x + wide + 3, y + line + slant),
            (x - 2, y + line),
        ]
        cv2.fillPoly(
            mask, [np.round(np.float32(corners) * 16).astype(np.int32)], 255, cv2.LINE_AA, 4
        )
        band = slice(max(0, int(y) - 12), int(y) + line + 14)
        share = mask[band, :, None].astype(np.float32) / 255
        out[band] = np.rint(out[band] * (1 - share * (1 - colour))).astype(np.uint8)
    return out
