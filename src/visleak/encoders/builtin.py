"""The built-in fingerprint: an orientation grid and a coarse colour grid; no weights, no download.

The image is squeezed to 32 x 32. Its gradients vote into 8 x 8 cells of 8 unsigned orientation
bins (Dalal & Triggs 2005, with soft votes in space and angle); the square roots of the votes,
centred, are one part of the vector, a 4 x 4 grid of mean colours around mid-grey is the other.

All sums run over integers, so a vector depends on the image alone: not on the batch it came
with, the number of workers or the BLAS. And because the bins sit at multiples of 22.5 degrees,
mirroring, quarter turns and inversion only permute coordinates and flip signs: the views of
:data:`visleak.records.VIEWS` are made from stored vectors, exactly, without decoding again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.encoders.request import Request
from visleak.records import VIEWS, Bool, DecodedImage, Float32
from visleak.vectors import parts_of

SIDE: Final = 32
BINS: Final = 8
#: Gradient votes are counted in 1/32 grey levels: the largest sum still fits in 24 bits, so
#: float32 matrix products add them up without rounding, in any order.
VOTE_SCALE: Final = 32
#: Mean gradient (grey levels over two pixels) below which an image has nothing to compare.
FLAT_BELOW: Final = 0.6
LUMA: Final = (77, 150, 29)  # luma weights of ITU-R BT.601 in 1/256
BATCH: Final = 256  # images worked on at a time; only bounds memory


def flat(images: Sequence[DecodedImage]) -> Bool:
    """Return whether each image is flat (n,).

    >>> grey = np.full((40, 60, 3), 128, np.uint8)
    >>> flat([DecodedImage(grey, 60, 40)]).tolist()
    [True]
    """
    found = np.empty(len(images), np.bool_)
    for part in parts_of(len(images), BATCH):
        squares = np.stack([squeeze(image.pixels) for image in images[part]])
        found[part] = mean_gradient(gradient_votes(squares)) < FLAT_BELOW
    return found


def squeeze(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the image as a 32 x 32 square, aspect ratio given up."""
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
    # of whole numbers whose sum float32 holds, and much faster than a sum in float64
    total = votes.reshape(len(votes), -1).sum(axis=1)
    return np.asarray(total.astype(np.float64) / (VOTE_SCALE * SIDE * SIDE))


def _grey_levels(difference: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Round differences in 1/256 grey levels to whole ones, symmetrically."""
    rounded = (np.abs(difference) + 128) >> 8
    return np.where(difference < 0, -rounded, rounded)


@cache
def _vote_table() -> Float32:
    """Return the votes of a gradient (across, down), each in -255..255: (511 * 511, 8).

    Computed for angles of 0 to 45 degrees and unfolded, so that views have exactly the turned
    votes.
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


CELLS: Final = 8
COLOURS: Final = 4
ORIENTATION_WIDTH: Final = CELLS * CELLS * BINS
WIDTH: Final = ORIENTATION_WIDTH + COLOURS * COLOURS * 3
#: Weight of the colour part beside the orientation part (measured on judged CIFAR-10 pairs:
#: 0.3-0.5 hardly differ, 0.7 and more lose near-duplicates with changed colours).
COLOUR_WEIGHT: Final = 0.4
#: Square roots of votes are kept as whole multiples of 1/16, for sums without rounding.
ROOT_SCALE: Final = 16


class BuiltinEncoder:
    """Encoder of the base install: see the module's description."""

    name = "builtin"
    width = WIDTH
    enough = 2 * SIDE
    views = len(VIEWS)

    def __init__(self) -> None:
        shipped = _shipped()
        self.thresholds: Mapping[str, float | str] | None = shipped["thresholds"]
        self.cohort: Float32 | None = _cohort()
        self.digest = _digest(self.cohort)

    def encode(self, images: Sequence[DecodedImage]) -> tuple[Float32, Bool]:
        """Return unit vectors (n, 560) and whether each image is flat (n,)."""
        vectors = np.empty((len(images), WIDTH), np.float32)
        flat = np.empty(len(images), np.bool_)
        for part in parts_of(len(images), BATCH):
            squares = np.stack([squeeze(image.pixels) for image in images[part]])
            vectors[part], flat[part] = describe(squares)
        return vectors, flat

    # without an encoder, so that what is worked out from the views serves every instance
    @staticmethod
    def view(vectors: Float32, view: int) -> Float32:
        """Return the vectors of the given view (index into ``VIEWS``) of the same images."""
        order, sign = view_coordinates(view)
        return np.asarray(vectors[:, order] * sign)

    @staticmethod
    def colours(vectors: Float32) -> Float32:
        """Return the mean colour (n, 3) of images, around mid-grey."""
        cells = vectors[:, ORIENTATION_WIDTH:].reshape(len(vectors), COLOURS * COLOURS, 3)
        return np.asarray(cells.mean(axis=1))


def builtin_encoder(request: Request) -> BuiltinEncoder:
    """Return the built-in encoder, which has nothing to choose."""
    request.no_argument()
    request.allow_only()
    return BuiltinEncoder()


def describe(squares: npt.NDArray[np.uint8]) -> tuple[Float32, Bool]:
    """Return fingerprints (n, 560) and flatness (n,) of 32 x 32 RGB squares (n, 32, 32, 3)."""
    orientation, energy = _orientation_grid(squares)
    flat = energy < FLAT_BELOW
    # the edges of a blank image are noise: only its colour matters
    orientation[flat] = 0
    colour = _colour_grid(squares)
    parts = [_unit(orientation), COLOUR_WEIGHT * _unit(colour)]
    vectors = np.concatenate(parts, axis=1)
    # either part may be all zero (no edges; exactly mid-grey), both only for blank mid-grey,
    # whose fingerprint is the zero vector: similar to nothing, found by digest and colour
    has_edges = (orientation != 0).any(axis=1)
    has_colour = (colour != 0).any(axis=1)
    norms = np.sqrt(has_edges + COLOUR_WEIGHT**2 * has_colour)
    vectors /= np.where(norms > 0, norms, 1.0)[:, None]
    return vectors.astype(np.float32), flat


def _orientation_grid(
    squares: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return centred roots of the orientation votes (n, 512) and the mean gradient (n,)."""
    votes = gradient_votes(squares)
    energy = mean_gradient(votes)
    count = len(squares)
    spread = _spread()
    rows = spread @ votes.reshape(count, SIDE, SIDE * BINS)
    grid = np.einsum("cx,nrxb->nrcb", spread, rows.reshape(count, CELLS, SIDE, BINS), optimize=True)
    roots = np.rint(np.sqrt(grid.astype(np.float64)) * ROOT_SCALE).astype(np.int64)
    roots = roots.reshape(count, ORIENTATION_WIDTH)
    centred = roots * ORIENTATION_WIDTH - roots.sum(axis=1, keepdims=True)
    return np.asarray(centred, np.int64), energy


def _colour_grid(squares: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return twice the sums of (colour - 127.5) over 8 x 8 pixel cells, (n, 48)."""
    step = SIDE // COLOURS
    cells = squares.reshape(len(squares), COLOURS, step, COLOURS, step, 3)
    # one axis after the other, which is several times as fast
    sums = cells.sum(axis=2, dtype=np.int64).sum(axis=3).reshape(len(squares), -1)
    return np.asarray(2 * sums - 255 * step * step, np.int64)


def _unit(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return whole-number rows at unit length; zero rows stay zero."""
    squared = (rows * rows).sum(axis=1)
    length = np.sqrt(squared.astype(np.float64))
    return rows / np.where(length > 0, length, 1.0)[:, None]


@cache
def _spread() -> Float32:
    """Return the soft assignment of 32 pixels to 8 cells along one axis, in 1/8, (8, 32)."""
    centre = (np.arange(SIDE) + 0.5) * CELLS / SIDE - 0.5
    distance = np.abs(np.clip(centre, 0, CELLS - 1)[None, :] - np.arange(CELLS)[:, None])
    return np.asarray(np.rint(8 * np.maximum(0, 1 - distance)), np.float32)


@cache
def view_coordinates(view: int) -> tuple[npt.NDArray[np.int64], Float32]:
    """Return order (560,) and sign (560,) such that ``vector[order] * sign`` is the view's vector.

    >>> order, sign = view_coordinates(0)
    >>> bool((order == np.arange(560)).all() and (sign == 1).all())
    True
    """
    sign = np.ones(WIDTH, np.float32)
    orientation = np.arange(ORIENTATION_WIDTH).reshape(CELLS, CELLS, BINS)
    colour = np.arange(ORIENTATION_WIDTH, WIDTH).reshape(COLOURS, COLOURS, 3)
    if VIEWS[view] == "inverted":
        sign[ORIENTATION_WIDTH:] = -1.0
    else:
        if view >= VIEWS.index("mirror"):
            orientation = orientation[:, ::-1, -np.arange(BINS) % BINS]
            colour = colour[:, ::-1]
        for _ in range(view % 4):
            orientation = np.rot90(orientation, -1)[:, :, (np.arange(BINS) + BINS // 2) % BINS]
            colour = np.rot90(colour, -1)
    return np.concatenate([orientation.ravel(), colour.ravel()]), sign


@cache
def _shipped() -> dict[str, dict[str, float | str]]:
    """Return what ships with the encoder: its thresholds and where they come from."""
    text = resources.files("visleak.encoders").joinpath("builtin.json").read_text("utf-8")
    shipped: dict[str, dict[str, float | str]] = json.loads(text)
    return shipped


@cache
def _cohort() -> Float32 | None:
    """Return the cohort's unit vectors (m, 560), or ``None`` where none ships."""
    path = resources.files("visleak.encoders").joinpath("builtin_cohort.npy")
    if not path.is_file():
        return None
    with resources.as_file(path) as file:
        stored = np.load(file, allow_pickle=False).astype(np.float64)
    return np.asarray(stored / np.linalg.norm(stored, axis=1, keepdims=True), np.float32)


def _digest(cohort: Float32 | None) -> str:
    """Return the digest of everything a stored vector depends on."""
    recipe = {
        "name": "builtin",
        "version": 1,
        "side": SIDE,
        "cells": CELLS,
        "bins": BINS,
        "colours": COLOURS,
        "colour_weight": COLOUR_WEIGHT,
        "scales": [VOTE_SCALE, ROOT_SCALE],
        "luma": LUMA,
        "flat_below": FLAT_BELOW,
        "enough": BuiltinEncoder.enough,
    }
    hasher = hashlib.blake2b(json.dumps(recipe, sort_keys=True).encode(), digest_size=16)
    hasher.update(b"" if cohort is None else cohort.tobytes())
    return hasher.hexdigest()
