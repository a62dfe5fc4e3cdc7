"""How alike two generated images are: the similarity that clusters and copies are judged by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.records import Bytes8, Encoder, Picture

Float64 = npt.NDArray[np.float64]

#: Largest distance (1 - similarity) of neighbours, in the authors' code, for SSCD.
EPS: Final = 0.5

#: Side of the squares that ``pixels`` compares, and its eps. On a tiny model (16 x 16, trained to
#: know twelve pictures) replays of one picture correlate by 0.93 to 0.97 in the median. Images of
#: ordinary captions lie below 0.7, but some of their pairs reach 0.85: an eps of 0.15
#: already makes clusters of them.
SIDE: Final = 32
PIXEL_EPS: Final = 0.1

#: Pictures an encoder is given at a time; only bounds memory.
CHUNK: Final = 64


class CopySimilarity(Protocol):
    """A measure of copying between pictures.

    Attributes:
        name: as the command line calls it.
        number: what its numbers are, in words.
        digest: changes whenever any of its numbers could.
        eps: distance (1 - similarity) up to which two images are neighbours, unless told;
            ``None`` where nobody knows one.
        least: its lowest value; the highest is 1.
    """

    name: str
    number: str
    digest: str
    eps: float | None
    least: float

    def matrix(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return the similarities of pictures among themselves (n, n), higher is more alike.

        Symmetric, ones on the diagonal. Pictures are ``uint8`` (height, width, 3), of any sizes.
        """
        ...

    def between(self, one: Sequence[Bytes8], other: Sequence[Bytes8]) -> Float64:
        """Return the similarities (n, m) of some pictures to others."""
        ...


class EncoderSimilarity:
    """Cosine similarity of an encoder's vectors: with SSCD, what MemBench does (section 4).

    Its eps is 0.5 for SSCD, else that of the soft threshold which came with the encoder.
    """

    number = "cosine of the encoder's vectors"
    least: float = -1.0

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.name = encoder.name
        self.digest = encoder.digest
        limits = encoder.thresholds
        own = None if limits is None else 1.0 - float(limits["soft"])
        self.eps: float | None = EPS if self.name.partition(":")[0] == "sscd" else own

    def vectors(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return unit vectors (n, width)."""
        parts = [np.empty((0, self.encoder.width))]
        for start in range(0, len(pictures), CHUNK):
            some = [
                Picture(each, each.shape[1], each.shape[0])
                for each in pictures[start : start + CHUNK]
            ]
            parts.append(self.encoder.encode(some)[0].astype(np.float64))
        return np.concatenate(parts)

    def matrix(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return the cosines among pictures, see :class:`CopySimilarity`."""
        return among(self.vectors(pictures))

    def between(self, one: Sequence[Bytes8], other: Sequence[Bytes8]) -> Float64:
        """Return the cosines to other pictures."""
        return np.asarray(np.clip(self.vectors(one) @ self.vectors(other).T, -1.0, 1.0))


class PixelSimilarity:
    """Normalised cross-correlation of pixels at 32 x 32, exact and without a model.

    Blind to brightness and contrast, and to nothing else: a shift by a few pixels is another
    picture. Pictures without any variation are alike where they are equal, and else not at all.

    Args:
        mean: picture (32, 32, 3) in grey levels to subtract, such as that of a training set; by
            default each picture's own mean colour.
    """

    name = "pixels"
    least: float = -1.0
    eps: float | None = PIXEL_EPS

    def __init__(self, mean: npt.ArrayLike | None = None) -> None:
        self._mean = None if mean is None else np.asarray(mean, np.float64)
        if self._mean is not None and self._mean.shape != (SIDE, SIDE, 3):
            raise UsageError(
                f"mean is a picture {SIDE} x {SIDE} x 3; got an array {self._mean.shape}"
            )
        subtracted = "its mean colour" if mean is None else "a mean picture"
        self.number = f"correlation of pixels at {SIDE} x {SIDE}, less {subtracted}"
        stamp = b"" if self._mean is None else self._mean.tobytes()
        text = f"pixels 1 {SIDE} ".encode() + stamp
        self.digest = hashlib.blake2b(text, digest_size=16).hexdigest()

    def vectors(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return the pixels less their mean at unit length (n, 3072)."""
        rows = np.empty((len(pictures), SIDE * SIDE * 3))
        for row, pixels in enumerate(pictures):
            square = squeezed(pixels)
            mean = square.mean((0, 1)) if self._mean is None else self._mean
            rows[row] = _unit_or_one_colour((square - mean).ravel(), square)
        return rows

    def matrix(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return the correlations among pictures, see :class:`CopySimilarity`."""
        return among(self.vectors(pictures))

    def between(self, one: Sequence[Bytes8], other: Sequence[Bytes8]) -> Float64:
        """Return the correlations with other pictures."""
        return np.asarray(np.clip(self.vectors(one) @ self.vectors(other).T, -1.0, 1.0))


def squeezed(pixels: Bytes8) -> Float64:
    """Return a picture as a square of 32 pixels, averaged or enlarged, (32, 32, 3)."""
    method = cv2.INTER_AREA if min(pixels.shape[:2]) >= SIDE else cv2.INTER_LINEAR
    square = cv2.resize(pixels.astype(np.float32), (SIDE, SIDE), interpolation=method)
    return np.asarray(square, np.float64)


def _unit_or_one_colour(row: Float64, square: Float64) -> Float64:
    """Return a row at unit length; one without variation becomes a direction of its colour's own.

    Such directions are drawn at random: of two colours they are at a right angle, nearly.
    """
    length = float(np.linalg.norm(row))
    if length > 1e-3:
        return row / length
    colour = np.rint(square.mean((0, 1))).astype(np.uint8)
    drawn = np.random.default_rng([*colour.tolist(), 1]).standard_normal(len(row))
    return np.asarray(drawn / np.linalg.norm(drawn))


def among(vectors: Float64) -> Float64:
    """Return the cosines of unit rows among themselves: symmetric, ones on the diagonal."""
    alike = np.clip(vectors @ vectors.T, -1.0, 1.0)
    alike = (alike + alike.T) / 2
    np.fill_diagonal(alike, 1.0)
    return np.asarray(alike)
