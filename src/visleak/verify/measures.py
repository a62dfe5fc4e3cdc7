"""What is measured on two squares once one lies on the other."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bytes8
from visleak.verify import align
from visleak.verify.align import Matrix
from visleak.verify.exact import EXACT_LEVELS

#: Tiles along a side in which local disagreement is measured.
_TILES: Final = 4

_THREE: Final = np.ones((3, 3), np.uint8)


@dataclass(frozen=True, slots=True)
class Measures:
    """What the full check measured on one pair.

    Attributes:
        grey: correlation of grey values over the overlap, -1..1.
        gradient: correlation of gradients over the overlap, -1..1.
        core: the same without the quarter of the tiles that agrees least.
        colour: mean correlation of the three channels, -1..1.
        residual: root mean square difference after fitting brightness and contrast, grey levels.
        within: share of the overlap whose fitted difference is below 16 grey levels.
        patch: largest root mean square difference in a tile of 1/16 of the picture, grey levels.
        covered: share of the reference that the moved query covers, 0..1.
        used: share of the query that lies on the reference, 0..1.
        gain, offset: brightness of the reference is gain times the query's, plus offset levels.
        tint: largest difference of the mean colour of a channel after the grey fit, levels.
        features: 1 where local features found the relation.
        side: pixels of the squares that were compared.
        exact: 1 where almost all pixels are approximately identical.
    """

    grey: float
    gradient: float
    core: float
    colour: float
    residual: float
    within: float
    patch: float
    covered: float
    used: float
    gain: float
    offset: float
    tint: float
    features: float
    side: float
    exact: float


#: Names of the checks, in the order in which they are stored.
CHECKS: Final = tuple(field.name for field in fields(Measures))


def square(pixels: Bytes8, side: int) -> npt.NDArray[np.float32]:
    """Return the picture as a ``float32`` (side, side, 3) square, aspect ratio given up."""
    height, width = pixels.shape[:2]
    if (height, width) != (side, side):
        method = cv2.INTER_AREA if min(height, width) >= side else cv2.INTER_LINEAR
        pixels = np.asarray(cv2.resize(pixels, (side, side), interpolation=method), np.uint8)
    return pixels.astype(np.float32)


def grey(square: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the luminance of a square (s, s, 3), (s, s)."""
    return np.asarray(cv2.cvtColor(square, cv2.COLOR_RGB2GRAY), np.float32)


def compare(
    left: npt.NDArray[np.float32],
    right: npt.NDArray[np.float32],
    matrix: Matrix,
    *,
    features: bool = False,
    exact: bool = False,
) -> Measures:
    """Return the measures of a pair under a relation."""
    side = left.shape[0]
    moved = align.warp(left, matrix)
    mask = align.overlap(matrix, side)
    pixels = float(mask.sum())
    covered = pixels / mask.size
    # an affine relation scales all areas alike
    used = min(1.0, covered * abs(float(np.linalg.det(align.inverse(matrix)[:2, :2]))))
    if pixels < mask.size / 16:
        return Measures(0, 0, 0, 0, 255, 0, 255, covered, used, 1, 0, 0, features, side, exact)
    query, reference = grey(moved), grey(right)
    weights = mask.ravel()
    a, b = _channels(query, moved), _channels(reference, right)
    mean_a, mean_b = a @ weights / pixels, b @ weights / pixels
    a, b = (a - mean_a[:, None]) * weights, (b - mean_b[:, None]) * weights
    product, square_a, square_b = (np.einsum("ij,ij->i", x, y) for x, y in ((a, b), (a, a), (b, b)))
    scale = np.sqrt(square_a * square_b)
    correlation = np.where(scale > 1e-3, product / np.maximum(scale, 1e-3), 0.0)
    gain = float(product[0] / (square_a[0] + pixels))
    difference = (b[0] - np.float32(gain) * a[0]).reshape(side, side)
    gradient, core = _gradient_correlation(query, reference, mask)
    return Measures(
        grey=float(correlation[0]),
        gradient=gradient,
        core=core,
        colour=float(correlation[1:].mean()),
        residual=math.sqrt(float((difference * difference).sum()) / pixels),
        within=1 - np.count_nonzero(np.abs(difference) >= EXACT_LEVELS) / pixels,
        patch=_worst_tile(difference, mask),
        covered=covered,
        used=used,
        gain=gain,
        offset=float(mean_b[0] - gain * mean_a[0]),
        tint=float(np.abs(mean_b[1:] - mean_b[0] - gain * (mean_a[1:] - mean_a[0])).max()),
        features=float(features),
        side=float(side),
        exact=float(exact),
    )


def _channels(
    grey: npt.NDArray[np.float32], square: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return grey and the three colours as rows (4, pixels)."""
    rows = np.empty((4, grey.size), np.float32)
    rows[0] = grey.ravel()
    rows[1:] = square.reshape(-1, 3).T
    return rows


def _gradient_correlation(
    query: npt.NDArray[np.float32],
    reference: npt.NDArray[np.float32],
    mask: npt.NDArray[np.float32],
) -> tuple[float, float]:
    """Return the correlation of the gradient fields inside the overlap, and of its core.

    The core leaves out the quarter of the tiles that agree least: a caption, a logo or a swapped
    corner stays in a few tiles, the parallax of another shot is everywhere.
    """
    inner = cv2.erode(mask, _THREE)
    product, energy_a, energy_b = (np.zeros(_TILES * _TILES) for _ in range(3))
    for along in ((1, 0), (0, 1)):
        a = cv2.Sobel(query, cv2.CV_32F, *along, ksize=3) * inner
        b = cv2.Sobel(reference, cv2.CV_32F, *along, ksize=3) * inner
        product += _by_tile(a * b)
        energy_a += _by_tile(a * a)
        energy_b += _by_tile(b * b)
    core = np.argsort(energy_a + energy_b - 2 * product, kind="stable")[: len(product) * 3 // 4]
    whole = _ratio(product.sum(), energy_a.sum() * energy_b.sum())
    return whole, _ratio(product[core].sum(), energy_a[core].sum() * energy_b[core].sum())


def _ratio(product: float, energies: float) -> float:
    """Return a correlation from its sums; 0 where one side does not vary."""
    scale = math.sqrt(energies)
    return float(product) / scale if scale > 1e-3 else 0.0


def _by_tile(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the sums over 4 x 4 tiles (16,)."""
    step = values.shape[0] // _TILES
    tiles = values.reshape(_TILES, step, _TILES, step)
    return np.asarray(tiles.sum(axis=(1, 3), dtype=np.float64).ravel())


def _worst_tile(difference: npt.NDArray[np.float32], mask: npt.NDArray[np.float32]) -> float:
    """Return the largest root mean square difference in a tile of 1/16 of the picture."""
    squares, counts = _by_tile(difference * difference), _by_tile(mask)
    tile = difference.size / _TILES**2
    return float(np.sqrt((squares / (counts + tile / 8)).max()))
