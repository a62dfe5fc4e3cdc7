"""Which pictures are flat: blank and black frames, whose edges are noise.

All encoders judge it alike, by the mean gradient of the picture squeezed to 32 x 32; the built-in
one makes its vector of the same gradients. All sums run over integers, so the answer depends on
the picture alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, DecodedImage, Float32

SIDE: Final = 32
BINS: Final = 8

#: Gradient votes are counted in 1/32 grey levels: the largest sum still fits in 24 bits, so
#: float32 matrix products add them up without rounding, in any order.
VOTE_SCALE: Final = 32

#: Mean gradient (grey levels over two pixels) below which a picture has nothing to compare.
FLAT_BELOW: Final = 0.6

#: Luma weights of ITU-R BT.601 in 1/256.
LUMA: Final = (77, 150, 29)

#: Pictures worked on at a time; only bounds memory.
BATCH: Final = 256


def flat(pictures: Sequence[DecodedImage]) -> Bool:
    """Return whether each picture is flat (n,).

    >>> grey = np.full((40, 60, 3), 128, np.uint8)
    >>> flat([DecodedImage(grey, 60, 40)]).tolist()
    [True]
    """
    found = np.empty(len(pictures), np.bool_)
    for start in range(0, len(pictures), BATCH):
        part = slice(start, start + BATCH)
        squares = np.stack([squeeze(picture.pixels) for picture in pictures[part]])
        found[part] = mean_gradient(gradient_votes(squares)) < FLAT_BELOW
    return found


def squeeze(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the picture as a 32 x 32 square, aspect ratio given up."""
    height, width = pixels.shape[:2]
    if (height, width) == (SIDE, SIDE):
        return pixels
    shrinking = height >= SIDE and width >= SIDE
    method = cv2.INTER_AREA if shrinking else cv2.INTER_LINEAR
    if not shrinking and max(height, width) > 4 * SIDE:
        # linear interpolation would skip most pixels of the long side: average that one first
        shape = (min(width, SIDE), min(height, SIDE))
        pixels = np.asarray(cv2.resize(pixels, shape, interpolation=cv2.INTER_AREA), np.uint8)
    return np.asarray(cv2.resize(pixels, (SIDE, SIDE), interpolation=method), np.uint8)


def gradient_votes(squares: npt.NDArray[np.uint8]) -> Float32:
    """Return what the gradients of RGB squares (n, 32, 32, 3) vote for, (n, 32, 32, 8).

    In 1/32 grey levels, whole numbers; the bins are unsigned orientations at multiples of 22.5
    degrees.
    """
    grey = squares.astype(np.int32) @ np.array(LUMA, np.int32)
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = _grey_levels(padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2])
    down = _grey_levels(padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1])
    return np.take(_vote_table(), (across + 255) * 511 + (down + 255), axis=0)


def mean_gradient(votes: Float32) -> npt.NDArray[np.float64]:
    """Return the mean gradient of squares (n,) in grey levels, from their votes."""
    total = votes.sum(axis=(1, 2, 3), dtype=np.float64)
    return np.asarray(total / (VOTE_SCALE * SIDE * SIDE))


def _grey_levels(difference: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Round differences in 1/256 grey levels to whole ones, alike for both signs."""
    rounded = (np.abs(difference) + 128) >> 8
    return np.where(difference < 0, -rounded, rounded)


@cache
def _vote_table() -> Float32:
    """Return the votes of a gradient (across, down), each in -255..255: (511 * 511, 8).

    Computed for angles of 0 to 45 degrees and unfolded, so that mirrored and turned gradients
    give exactly the mirrored and turned votes.
    """
    table = np.zeros((511, 511, BINS), np.float32)
    across, down = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    octant = down <= across
    angle = np.degrees(np.arctan2(down, across)) / 22.5
    magnitude = np.rint(np.hypot(across, down) * VOTE_SCALE)
    first = np.zeros((256, 256, BINS), np.float32)
    for bin_ in range(3):
        share = np.maximum(0.0, 1.0 - np.abs(angle - bin_))
        first[..., bin_] = np.where(octant, np.rint(magnitude * share), 0.0)
    swapped = np.swapaxes(first, 0, 1)[..., (4 - np.arange(BINS)) % BINS]
    quadrant = np.where(octant[..., None], first, swapped)
    mirrored = quadrant[..., -np.arange(BINS) % BINS]
    table[255:, 255:] = quadrant
    table[255::-1, 255::-1] = quadrant
    table[255::-1, 255:] = mirrored
    table[255:, 255::-1] = mirrored
    return np.asarray(table.reshape(-1, BINS))
