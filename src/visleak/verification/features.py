"""Relations by local features: any turn, crop and scale, mirrored or not, inverted or not.

SIFT (Lowe, IJCV 2004) with square-rooted descriptors (Arandjelovic & Zisserman, CVPR 2012) and
RANSAC (Fischler & Bolles 1981). What a relation is worth is not decided here: it is a guess, which
the comparison of the two images then confirms or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import VIEWS, Bytes8, Float32, Int64
from visleak.verification.align import Matrix, inverse, unit_to_pixels, view_matrix

# OpenCV's type hints know neither SIFT nor the calls without a mask
_cv: Any = cv2
#: Local features are tried where the short side has this many pixels.
SMALLEST: Final = 32
#: The most features of an image, and the least contrast of one (OpenCV's scale).
FEATURES: Final = 600
CONTRAST: Final = 0.02
#: Adaptive equalization: the limit of the contrast, and tiles along a side.
CLIP: Final = 4.0
TILES: Final = 6
#: A match must be this much nearer than the second nearest (Lowe's ratio of distances).
RATIO: Final = 0.85
#: Matches that one affine relation explains, to this many pixels of the reference.
INLIERS: Final = 8
RANSAC_PIXELS: Final = 3.0
#: So many are enough to try no other view.
PLENTY: Final = 30
#: What is believed of a relation: scale of lengths in pixels, ratio of its two stretches.
SCALES: Final = (0.1, 10.0)
STRETCH: Final = 3.0
#: The darkest and brightest share of the pixels that may saturate when contrast is stretched.
_TAIL: Final = 0.5
#: Images whose features are kept, because a query meets many references.
_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Described:
    """The local features of an image."""

    points: Float32  # float32 (n, 2): x and y in pixels, the centre of the first pixel at 0, 0
    words: Float32  # float32 (n, 128): whole numbers, so that sums of products are exact
    # of the image in pixels
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation that local features agree on."""

    matrix: Matrix  # query to reference, unit coordinates
    inverted: bool  # whether the features of the inverted query agreed
    inliers: int  # number of features that agree


def by_features(
    query: Bytes8, reference: Bytes8, *, mirrored: bool = False, inverted: bool = False
) -> Relation | None:
    """Return the relation that most local features agree on, or ``None``."""
    if min(*query.shape[:2], *reference.shape[:2]) < SMALLEST:
        return None
    own, others = describe(query), describe(reference)
    if min(len(own.points), len(others.points)) < INLIERS:
        return None
    best: Relation | None = None
    for mirror, inversion in _views(mirrored, inverted):
        found = _related(_seen(own, mirror, inversion), others)
        if found is not None and (best is None or found[1] > best.inliers):
            matrix = found[0] @ view_matrix(VIEWS.index("mirror")) if mirror else found[0]
            best = Relation(matrix, inversion, found[1])
            if best.inliers >= PLENTY:
                break
    return best


def _views(mirrored: bool, inverted: bool) -> Iterator[tuple[bool, bool]]:
    """Yield (mirrored, inverted), the likely one first."""
    for inversion in (inverted, not inverted):
        for mirror in (mirrored, not mirrored):
            yield mirror, inversion


def describe(image: Bytes8) -> Described:
    """Return the strongest local features of an RGB ``uint8`` image; the last ones are kept."""
    return _described(image.tobytes(), image.shape[0], image.shape[1])


@lru_cache(maxsize=_KEPT)
def _described(data: bytes, height: int, width: int) -> Described:
    image = np.frombuffer(data, np.uint8).reshape(height, width, 3)
    sift = _cv.SIFT_create(
        nfeatures=FEATURES, contrastThreshold=CONTRAST, enable_precise_upscale=True
    )
    found, raw = sift.detectAndCompute(stretched(image), None)
    if not found:
        return Described(
            np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32), width, height
        )
    points = np.array([k.pt for k in found], np.float32)
    total = np.maximum(raw.sum(axis=1, keepdims=True, dtype=np.float64), 1.0)
    return Described(points, np.rint(512 * np.sqrt(raw / total)).astype(np.float32), width, height)


def stretched(image: Bytes8) -> Bytes8:
    """Return an image in grey (h, w), its contrast brought to one level everywhere.

    First over the whole range: the luminance of an image in shades of blue has only 29 levels, so
    it is rounded after that. Then by limited adaptive equalization (Zuiderveld 1994), which makes
    the texture of a smooth surface visible beside a black bar or an edge.
    """
    grey = cv2.cvtColor(image.astype(np.float32), cv2.COLOR_RGB2GRAY)
    low, high = np.percentile(grey, (_TAIL, 100 - _TAIL))
    scaled = (grey - np.float32(low)) * np.float32(255 / max(high - low, 1.0))
    full = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    return np.asarray(cv2.createCLAHE(CLIP, (TILES, TILES)).apply(full), np.uint8)


def _seen(own: Described, mirrored: bool, inverted: bool) -> Described:
    """Return the features that the mirrored or inverted image has.

    A descriptor is 4 x 4 cells of 8 directions in the frame of the patch. A mirror flips one axis
    of the frame and the sign of the directions, inversion turns frame and directions by half.
    """
    points, words = own.points, own.words.reshape(-1, 4, 4, 8)
    if mirrored:
        points = np.stack([own.width - 1 - points[:, 0], points[:, 1]], axis=1)
        words = words[:, ::-1][..., -np.arange(8) % 8]
    if inverted:
        words = words[:, ::-1, ::-1]
    return Described(points, words.reshape(-1, 128), own.width, own.height)


def _related(own: Described, others: Described) -> tuple[Matrix, int] | None:
    """Return the unit matrix that enough features agree on, and how many do."""
    mine, theirs = _matches(own.words, others.words)
    if len(mine) < INLIERS:
        return None
    cv2.setRNGSeed(0)
    found, inside = cv2.estimateAffine2D(
        own.points[mine],
        others.points[theirs],
        method=cv2.RANSAC,
        ransacReprojThreshold=RANSAC_PIXELS,
        maxIters=2000,
    )
    if found is None or inside is None or not np.isfinite(found).all():
        return None
    inliers = int(inside.sum())
    pixels = np.vstack([np.asarray(found, np.float64), [0, 0, 1]])
    stretches = np.linalg.svd(pixels[:2, :2], compute_uv=False)
    if inliers < INLIERS or np.linalg.det(pixels) <= 0 or not _believable(stretches):
        return None
    to_units = inverse(unit_to_pixels(others.width, others.height))
    return to_units @ pixels @ unit_to_pixels(own.width, own.height), inliers


def _believable(stretches: npt.NDArray[np.float64]) -> bool:
    """Whether the two stretches of a relation, the larger first, are those of a processed shot."""
    large, small = (float(value) for value in stretches)
    return SCALES[0] <= small and large <= SCALES[1] and large <= STRETCH * small


def _matches(mine: Float32, theirs: Float32) -> tuple[Int64, Int64]:
    """Return pairs of features: each one's nearest, clearly nearer than the second nearest.

    Of several features with one nearest the first of the nearest stays.
    """
    products = mine @ theirs.T
    squares = (mine * mine).sum(axis=1)[:, None] + (theirs * theirs).sum(axis=1) - 2 * products
    rows = np.arange(len(mine))
    nearest = squares.argmin(axis=1)
    distance = squares[rows, nearest]
    squares[rows, nearest] = np.inf
    second = squares.min(axis=1)
    good = np.flatnonzero(distance < RATIO**2 * second)
    order = good[np.lexsort((good, distance[good]))]
    _, first = np.unique(nearest[order], return_index=True)
    kept = np.sort(order[first])
    return kept, nearest[kept]
