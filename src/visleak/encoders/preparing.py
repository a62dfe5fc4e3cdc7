"""From a decoded picture to what a network takes: resized, cropped, still in ``uint8``.

The libraries that networks come from do this through Pillow; the steps here give their numbers
to the bit. Scaling and normalisation are left to the network's side, where they cost nothing and
the picture travels there at a quarter of the size. Nothing here needs torch: it runs wherever
pictures are decoded.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
from PIL import Image

from visleak.records import Bytes8, DecodedImage

#: What ``prep`` of CLIP may be.
PREPS: Final = ("none", "laion", "laion-nojpeg")

#: Side and JPEG quality of the pictures that LAION's vectors were made of.
LAION_SIDE: Final = 256
LAION_QUALITY: Final = 95

#: A resized picture of more pixels than this is made only where it is not cropped away, and not
#: longer than this where it is not cropped.
MOST_PIXELS: Final = 16_000_000


@dataclass(frozen=True, slots=True)
class PixelPreparation:
    """Resizes and crops a picture as its network's library does.

    Attributes:
        resize: ``(short,)`` for the length of the short side, ``(height, width)`` for a size
            whatever the shape, ``()`` to leave it.
        crop: ``(height, width)`` about the centre, with black where the picture is smaller; ``()``
            to leave it.
        resample: Pillow's number of the filter (2 bilinear, 3 bicubic).
        rounding: ``floor`` begins an odd crop as transformers does, ``even`` as torchvision.
        prep: what is done before, one of :data:`PREPS`.
    """

    resize: tuple[int, ...]
    crop: tuple[int, ...] = ()
    resample: int = 3
    rounding: str = "floor"
    prep: str = "none"

    @property
    def shape(self) -> tuple[int, int] | None:
        """Height and width that every picture gets; ``None`` where they depend on the picture."""
        if self.crop:
            return self.crop[0], self.crop[1]
        return (self.resize[0], self.resize[1]) if len(self.resize) == 2 else None

    def __call__(self, picture: DecodedImage) -> Bytes8:
        """Return the prepared picture, ``uint8`` (height, width, 3)."""
        pixels = picture.pixels
        if self.prep != "none":
            pixels = as_laion(pixels, jpeg=self.prep == "laion")
        size = self._size(*pixels.shape[:2])
        crop = self._crop(*size)
        top, left = max(crop.top, 0), max(crop.left, 0)
        bottom = min(crop.top + crop.height, size[0])
        right = min(crop.left + crop.width, size[1])
        kept = _resized(pixels, size, (top, left, bottom, right), self.resample)
        if kept.shape[:2] == (crop.height, crop.width):
            return np.ascontiguousarray(kept)
        whole = np.zeros((crop.height, crop.width, 3), np.uint8)
        down, across = top - crop.top, left - crop.left
        whole[down : down + bottom - top, across : across + right - left] = kept
        return whole

    def recipe(self) -> dict[str, Any]:
        """Return everything the prepared pixels depend on, as plain values."""
        return {
            "resize": list(self.resize),
            "crop": list(self.crop),
            "resample": self.resample,
            "rounding": self.rounding,
            "prep": self.prep,
        }

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the resized picture."""
        if not self.resize:
            return height, width
        if len(self.resize) == 2:
            return self.resize[0], self.resize[1]
        short, long = min(height, width), max(height, width)
        longest = int(self.resize[0] * long / short)
        if not self.crop:
            # a line of pixels would become gigabytes
            longest = min(longest, MOST_PIXELS // self.resize[0])
        sides = self.resize[0], longest
        return sides if height <= width else sides[::-1]

    def _crop(self, height: int, width: int) -> _Crop:
        if not self.crop:
            return _Crop(0, 0, height, width)
        tall, wide = self.crop
        return _Crop(self._start(height, tall), self._start(width, wide), tall, wide)

    def _start(self, side: int, crop: int) -> int:
        if side < crop:
            # transformers pads in front with the larger half, torchvision with the smaller
            spare = crop - side
            return -((spare + 1) // 2 if self.rounding == "floor" else spare // 2)
        return (side - crop) // 2 if self.rounding == "floor" else round((side - crop) / 2)


@dataclass(frozen=True, slots=True)
class _Crop:
    """What is kept of a resized picture; may reach beyond it."""

    top: int
    left: int
    height: int
    width: int


def _resized(
    pixels: Bytes8, size: tuple[int, int], kept: tuple[int, int, int, int], resample: int
) -> Bytes8:
    """Return the part (top, left, bottom, right) of the picture resized to (height, width).

    A picture a thousand times as wide as high would be resized to gigabytes, of which next to
    nothing is kept: there, only that part is made.
    """
    height, width = pixels.shape[:2]
    top, left, bottom, right = kept
    if size == (height, width):
        return pixels[top:bottom, left:right]
    image = Image.fromarray(pixels)
    if size[0] * size[1] <= MOST_PIXELS or kept == (0, 0, *size):
        whole = image.resize(size[::-1], Image.Resampling(resample))
        return np.asarray(whole)[top:bottom, left:right]
    down, across = height / size[0], width / size[1]
    region = left * across, top * down, right * across, bottom * down
    shape = right - left, bottom - top
    return np.asarray(image.resize(shape, Image.Resampling(resample), box=region))


def as_laion(pixels: Bytes8, jpeg: bool = True) -> Bytes8:
    """Return a picture as those that LAION's vectors were made of, (256, 256, 3).

    The mode ``border`` of img2dataset: the longest side is resized to 256 (area when shrinking,
    Lanczos when enlarging), white is added on either side up to a square, and the result is
    stored as JPEG.

    Args:
        pixels: ``uint8`` (height, width, 3), RGB.
        jpeg: store it as JPEG of quality 95 and read it again.
    """
    height, width = pixels.shape[:2]
    longest = max(height, width)
    if longest != LAION_SIDE:
        scale = LAION_SIDE / longest
        shape = max(round(width * scale), 1), max(round(height * scale), 1)
        method = cv2.INTER_AREA if longest > LAION_SIDE else cv2.INTER_LANCZOS4
        pixels = np.asarray(cv2.resize(pixels, shape, interpolation=method), np.uint8)
        height, width = pixels.shape[:2]
    square = np.full((LAION_SIDE, LAION_SIDE, 3), 255, np.uint8)
    top, left = (LAION_SIDE - height) // 2, (LAION_SIDE - width) // 2
    square[top : top + height, left : left + width] = pixels
    if not jpeg:
        return square
    quality = [int(cv2.IMWRITE_JPEG_QUALITY), LAION_QUALITY]
    _, stored = cv2.imencode(".jpg", square[..., ::-1], quality)
    with Image.open(io.BytesIO(stored.tobytes())) as image:
        return np.asarray(image.convert("RGB"))
