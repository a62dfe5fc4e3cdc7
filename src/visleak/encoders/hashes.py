"""Perceptual hashes as baselines: ``phash`` (64 bits) and ``pdq`` (256 bits).

A hash of ``n`` bits becomes the unit vector of its bits and their complements over ``sqrt(n)``:
the dot product of two such vectors is 1 - d / n, where d is their Hamming distance, exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.encoders.builtin import flat
from visleak.encoders.request import Request
from visleak.lazy import library
from visleak.records import Bool, Bytes8, DecodedImage, Float32

SIDE: Final = 32  # sides of the thumbnail of phash, and of its low frequencies that become bits
LOW: Final = 8
#: Most bits of 256 in which two PDQ hashes of one image differ, and the quality (0..100) from
#: which a hash is worth comparing: github.com/facebook/ThreatExchange, pdq/README.md, "Matching".
PDQ_DISTANCE: Final = 31
PDQ_QUALITY: Final = 50
Hash = Callable[[Bytes8], tuple[Bool, bool]]  # bits (k,) of an image, and whether they are reliable


class HashEncoder:
    """An encoder whose vectors are the bits of a hash of the whole image."""

    enough = 0
    views = 1
    cohort: Float32 | None = None

    def __init__(
        self,
        name: str,
        version: str,
        bits: int,
        hash_of: Hash,
        thresholds: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.digest = hashlib.blake2b(f"{name} {version}".encode(), digest_size=16).hexdigest()
        self.width = 2 * bits
        self.thresholds = thresholds
        self._hash_of = hash_of

    def encode(self, images: Sequence[DecodedImage]) -> tuple[Float32, Bool]:
        """Return unit vectors (n, width) and whether each image is flat (n,)."""
        vectors = np.empty((len(images), self.width), np.float32)
        blank = flat(images)
        for row, image in enumerate(images):
            bits, reliable = self._hash_of(image.pixels)
            vectors[row] = vector_of(bits)
            blank[row] |= not reliable
        return vectors, blank

    def view(self, vectors: Float32, view: int) -> Float32:
        """Return the vectors: only the original view can be made of them."""
        return vectors


def vector_of(bits: Bool) -> Float32:
    """Return the unit vector of a hash, (2 k,) of its k bits.

    >>> one, other = np.array([True, True, False, False]), np.array([True, False, False, False])
    >>> float(vector_of(one) @ vector_of(other))
    0.75
    """
    return np.concatenate([bits, ~bits]).astype(np.float32) / np.float32(np.sqrt(len(bits)))


def phash(pixels: Bytes8) -> Bool:
    """Return the 64 bits of the DCT hash, low frequencies above their median, row by row.

    The bits of ``imagehash.phash`` (ImageHash 4) with its default sizes, after
    hackerfactor.com, "Looks Like It" (2011).

    >>> int(phash(np.zeros((40, 60, 3), np.uint8)).sum())
    0
    """
    bits: Bool = phashes([thumbnail(Image.fromarray(pixels).convert("L"))])[0]
    return bits


def thumbnail(grey: Image.Image) -> Image.Image:
    """Return the 32 x 32 pixels that :func:`phash` reads of an image of mode ``L``."""
    if grey.size == (SIDE, SIDE):
        return grey
    return grey.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def phashes(thumbnails: Sequence[Image.Image]) -> Bool:
    """Return the bits of many images at once, (n, 64), each as :func:`phash` has them."""
    from scipy.fft import dct

    if not thumbnails:
        return np.empty((0, LOW * LOW), np.bool_)
    # one large image is copied out faster than many small ones
    column = Image.new("L", (SIDE, SIDE * len(thumbnails)))
    for number, each in enumerate(thumbnails):
        column.paste(each, (0, SIDE * number))
    greys = np.asarray(column, np.float64).reshape(-1, SIDE, SIDE)
    # every line is transformed alone, so lines of high frequencies need no second transform
    low: npt.NDArray[np.float64] = dct(dct(greys, axis=1)[:, :LOW], axis=2)[:, :, :LOW]
    lows = low.reshape(-1, LOW * LOW)
    return np.asarray(lows > np.median(lows, axis=1, keepdims=True))


def phash_encoder(request: Request) -> HashEncoder:
    """Return ``phash``, which has no published thresholds."""
    request.no_argument()
    request.allow_only()
    return HashEncoder("phash", "1", LOW * LOW, _reliable_phash)


def _reliable_phash(pixels: Bytes8) -> tuple[Bool, bool]:
    return phash(pixels), True


def pdq_encoder(request: Request) -> HashEncoder:
    """Return ``pdq`` (Facebook 2019) with its authors' threshold; low quality counts as flat."""
    request.no_argument()
    request.allow_only()
    library("pdqhash", "pdq", "the encoder pdq")
    same = 1.0 - PDQ_DISTANCE / 256
    source = (
        f"ThreatExchange, pdq/README.md: hashes match up to a distance of {PDQ_DISTANCE} of 256;"
        " it names one threshold, so nothing is soft alone"
    )
    thresholds = {"hard": same, "soft": same, "provenance": source}
    return HashEncoder("pdq", "1", 256, pdq, thresholds)


def pdq(pixels: Bytes8) -> tuple[Bool, bool]:
    """Return the 256 bits of PDQ, and whether their quality suffices for a comparison."""
    from pdqhash import compute

    bits, quality = compute(np.ascontiguousarray(pixels))
    return np.asarray(bits, np.bool_), int(quality) >= PDQ_QUALITY
