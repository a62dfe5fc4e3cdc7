"""Equality of two images up to re-encoding or up to noise."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from visleak.records import Bytes8, Float32

#: Limits of ``exact`` for any contrast (after Barz & Denzler 2020): difference of a pixel in levels
#: and share of the pixels below it, and mean difference.
EXACT_LEVELS: Final = 16
EXACT_SHARE: Final = 0.95
EXACT_MEAN: Final = 3.0
#: Tiles along a side in which differences are compared with the contrast, and bounds of their side,
#: pixels: the larger one is that of a letter.
TILES: Final = 16
LEAST_TILE: Final = 4
MOST_TILE: Final = 16
#: Largest root mean square difference of a tile: levels, and shares of the contrast of the tile and
#: of the whole image.
ROUNDING: Final = 0.8
OF_PART: Final = 0.4
OF_WHOLE: Final = 0.15
#: Side of the local mean that is subtracted before contrast is measured, as a share of the long
#: side, so that shading is not contrast.
SHADING: Final = 0.1

#: Limits of noise, in images halved up to ``NOISE_LEVELS`` times: multiple of its standard
#: deviation (from the median), levels for rounding, levels in any case, and share of the variance
#: of either image.
NOISE_USUAL: Final = 9.0
NOISE_ROUNDING: Final = 0.5
NOISE_MOST: Final = 12.0
NOISE_SHARE: Final = 0.06
NOISE_LEVELS: Final = 4
#: Standard deviation of a normal distribution divided by the median of its absolute values.
DEVIATION: Final = 1.4826

_THIRDS: Final = np.full((1, 3), 1 / 3, np.float32)


def is_exact(query: Bytes8, reference: Bytes8) -> bool:
    """Return whether two images have the same size and, up to re-encoding, the same pixels.

    At least 95 % of the pixels are within 16/255 in every channel, the mean difference is at most
    3/255 (after Barz & Denzler 2020, grade "exact"), and in every tile the difference is small
    relative to the contrast of both images, so that images of low contrast are not always exact.
    """
    if query.shape != reference.shape:
        return False
    if cv2.norm(query, reference, cv2.NORM_L1) > EXACT_MEAN * query.size:
        return False
    difference = cv2.absdiff(query, reference)
    close = cv2.inRange(difference, (0, 0, 0), (EXACT_LEVELS,) * 3)
    if cv2.countNonZero(close) < EXACT_SHARE * close.size:
        return False
    squared = _mean_square(difference.astype(np.float32))
    parts = [_contrast(image) for image in (query, reference)]
    lesser = np.minimum(*parts)
    allowed = ROUNDING**2 + OF_PART**2 * lesser + OF_WHOLE**2 * min(part.mean() for part in parts)
    return bool((_means(squared) <= allowed).all())


def differ_by_noise(query: Bytes8, reference: Bytes8) -> bool:
    """Return whether two images have the same size and differ by noise alone.

    Noise has no structure: its means over growing neighbourhoods fall towards zero without
    outliers. A stroke, a spot, a shift or another brightness is an outlier at some size.
    """
    if query.shape != reference.shape:
        return False
    if cv2.norm(query, reference, cv2.NORM_L1) > NOISE_MOST * query.size:
        return False
    difference, *levels = (
        np.asarray(cv2.pyrDown(plane), np.float32)
        for plane in (cv2.subtract(query, reference, dtype=cv2.CV_32F), query, reference)
    )
    contrast = min(float(plane.var(axis=(0, 1)).mean()) for plane in levels)
    if float((difference * difference).mean()) > NOISE_SHARE * contrast:
        return False
    usual = DEVIATION * np.median(np.abs(difference), axis=(0, 1))
    most = np.minimum(NOISE_USUAL * usual + NOISE_ROUNDING, NOISE_MOST)
    for _ in range(NOISE_LEVELS):
        if (np.abs(difference).max(axis=(0, 1)) > most).any():
            return False
        difference = np.asarray(cv2.pyrDown(difference), np.float32)
        most = (most + NOISE_ROUNDING) / 2
    return True


def is_identical(query: Bytes8, reference: Bytes8) -> bool:
    """Return whether two images have the same size and pixels."""
    return np.array_equal(query, reference)


def _contrast(image: Bytes8) -> Float32:
    """Return the variance of the details of each tile, mean of the channels, levels squared."""
    side = max(3, 2 * round(SHADING * max(image.shape[:2]) / 2) + 1)
    levels = image.astype(np.float32)
    return _means(_mean_square(levels - cv2.blur(levels, (side, side))))


def _mean_square(levels: Float32) -> Float32:
    """Return the mean square (h, w) of three channels; several times as fast as with NumPy."""
    return np.asarray(cv2.transform(cv2.multiply(levels, levels), _THIRDS), np.float32)


def _means(plane: Float32) -> Float32:
    """Return the means of the tiles of a plane."""
    edges = []
    for side in plane.shape:
        count = max(1, min(TILES, side // LEAST_TILE), side // MOST_TILE)
        edges.append(np.linspace(0, side, count + 1).astype(int))
    sums = plane
    for axis, edge in enumerate(edges):
        sums = np.add.reduceat(sums, edge[:-1], axis=axis)
    sizes = np.diff(edges[0])[:, None] * np.diff(edges[1])[None, :]
    return np.asarray(sums / sizes, np.float32)
