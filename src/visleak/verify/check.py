"""The full check of a pair: align the pictures, fit brightness and colour, compare the overlap."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, fields
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bytes8
from visleak.verify import align, screen
from visleak.verify.align import Matrix

#: Pictures up to this side are compared at 32 x 32, larger ones at 96 x 96.
TINY: Final = 48
TINY_SIDE: Final = 32
LARGE_SIDE: Final = 96

#: Long side to which pictures are bounded before the check.
BOUND: Final = 256

#: Gradient agreement below which another way of aligning is tried.
GOOD: Final = 0.8

#: What `exact` allows (DESIGN: almost all pixels approximately identical).
EXACT_LEVELS: Final = 16
EXACT_SHARE: Final = 0.95
EXACT_MEAN: Final = 3.0
EXACT_TILE: Final = 24.0
TILES: Final = 8

#: Tiles along a side in which local disagreement is measured.
_TILES: Final = 4

_THREE: Final = np.ones((3, 3), np.uint8)

#: Version of the measures: part of the digest that keys cached evidence.
VERSION: Final = 4


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


def digest() -> bytes:
    """Return the digest of everything that evidence depends on beside the two pictures."""
    own = [VERSION, TINY, TINY_SIDE, LARGE_SIDE, BOUND, GOOD, TILES]
    exact = [EXACT_LEVELS, EXACT_SHARE, EXACT_MEAN, EXACT_TILE]
    moving = [align.STEPS, align.CHANGE, *align.SCALES, align.STRETCH, align.SHIFT]
    local = [align.FEATURE_SIDE, align.FEATURES, align.RATIO, align.INLIERS, align.RANSAC_PIXELS]
    recipe = [own, exact, moving, local, [screen.SIDE, screen.REACH, screen.DAMPING]]
    return hashlib.blake2b(json.dumps(recipe).encode(), digest_size=16).digest()


def bounded(pixels: Bytes8) -> Bytes8:
    """Return the picture with its long side at most 256 pixels."""
    height, width = pixels.shape[:2]
    ratio = BOUND / max(height, width)
    if ratio >= 1:
        return pixels
    size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def check(
    query: Bytes8,
    reference: Bytes8,
    view: int,
    shift: tuple[float, float],
    *,
    same_size: bool,
    features: bool = True,
) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair, and the relation from query to reference.

    Args:
        query, reference: bounded RGB pictures.
        view: the view in which the query looked most like the reference.
        shift: where the screen found the reference's content, in shares of width and height.
        same_size: whether the full pictures have equal width and height.
        features: align by local features where correlation does not do.
    """
    tiny = max(*query.shape[:2], *reference.shape[:2]) <= TINY
    side = TINY_SIDE if tiny else LARGE_SIDE
    left, right = _square(query, side), _square(reference, side)
    inverted = view == 8
    if inverted:
        left = 255 - left
    start = align.shift_matrix(*shift) @ align.view_matrix(view)
    matrix = _by_correlation(left, right, start)
    measures = _compare(left, right, matrix)
    if features and measures.gradient < GOOD and not tiny:
        found = align.by_features(255 - query if inverted else query, reference)
        if found is not None:
            other = _compare(left, right, found, features=True)
            if other.gradient > measures.gradient:
                measures, matrix = other, found
    # whatever the view: a symmetric picture may look more like its mirror image
    if same_size and exactly_alike(query, reference):
        unmoved = _compare(left, right, np.eye(3), exact=True)
        return unmoved, np.eye(3)
    return measures, matrix


def exactly_alike(query: Bytes8, reference: Bytes8) -> bool:
    """Whether almost all pixels of two pictures of one size are approximately identical.

    That is, at least 95 % of the pixels within 16/255 in every channel, a mean difference of at
    most 3/255, and no tile of 1/64 of the picture over 24/255 (after Barz & Denzler 2020, grade
    "exact"; this project's constants).
    """
    if query.shape != reference.shape:
        return False
    if cv2.norm(query, reference, cv2.NORM_L1) > EXACT_MEAN * query.size:
        return False
    difference = cv2.absdiff(query, reference)
    if (difference.max(axis=2) <= EXACT_LEVELS).mean() < EXACT_SHARE:
        return False
    mean = difference.mean(axis=2, dtype=np.float32)
    height, width = mean.shape
    down = np.unique(np.linspace(0, height, min(TILES, height) + 1).astype(int))[:-1]
    across = np.unique(np.linspace(0, width, min(TILES, width) + 1).astype(int))[:-1]
    sums = np.add.reduceat(np.add.reduceat(mean, down, axis=0), across, axis=1)
    sizes = np.diff(np.append(down, height))[:, None] * np.diff(np.append(across, width))[None, :]
    return bool((sums / sizes).max() <= EXACT_TILE)


def _square(pixels: Bytes8, side: int) -> npt.NDArray[np.float32]:
    """Return the picture as a ``float32`` (side, side, 3) square, aspect ratio given up."""
    height, width = pixels.shape[:2]
    if (height, width) != (side, side):
        method = cv2.INTER_AREA if min(height, width) >= side else cv2.INTER_LINEAR
        pixels = np.asarray(cv2.resize(pixels, (side, side), interpolation=method), np.uint8)
    return pixels.astype(np.float32)


def _grey(square: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(cv2.cvtColor(square, cv2.COLOR_RGB2GRAY), np.float32)


def _by_correlation(
    left: npt.NDArray[np.float32], right: npt.NDArray[np.float32], start: Matrix
) -> Matrix:
    """Return the affine relation found by correlation, coarse to fine, or the start."""
    greys = (_grey(left), _grey(right))
    for side in sorted({TINY_SIDE, left.shape[0]}):
        query, reference = (_blurred(grey, side) for grey in greys)
        found = align.refine(query, reference, start)
        if found is None:
            return start
        start = found
    return start


def _blurred(grey: npt.NDArray[np.float32], side: int) -> npt.NDArray[np.float32]:
    """Return a grey square at a side, a little blurred: noise has no place in an alignment."""
    if grey.shape[0] != side:
        grey = np.asarray(cv2.resize(grey, (side, side), interpolation=cv2.INTER_AREA))
    return np.asarray(cv2.GaussianBlur(grey, (0, 0), 0.7), np.float32)


def _compare(
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
    query, reference = _grey(moved), _grey(right)
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
