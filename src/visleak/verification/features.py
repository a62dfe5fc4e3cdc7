"""Alignment by local features: any rotation, crop and scale, mirrored or not, inverted or not.

SIFT (Lowe, IJCV 2004) with square-rooted descriptors (Arandjelovic & Zisserman, CVPR 2012) and
RANSAC (Fischler & Bolles 1981). The relation is a hypothesis that the comparison of the two images
confirms or rejects.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Final

import cv2
import numpy as np

from visleak.records import VIEWS, Bytes8, Float32, Float64, Int64
from visleak.verification.align import Matrix, inverse, unit_to_pixels, view_matrix

# OpenCV's type hints lack SIFT and the calls without a mask
_cv: Any = cv2
#: Smallest short side of images whose local features are matched, pixels.
SMALLEST: Final = 32
#: Most features of an image, and least contrast of a feature (OpenCV's scale).
FEATURES: Final = 600
CONTRAST: Final = 0.02
#: Adaptive equalization: limit of the contrast, and tiles along a side.
CLIP: Final = 4.0
TILES: Final = 6
#: Largest ratio of the distances to the nearest and second nearest descriptor (Lowe's ratio).
RATIO: Final = 0.85
#: Fewest matches that agree on an affine relation, and their largest error, pixels.
INLIERS: Final = 8
RANSAC_PIXELS: Final = 3.0
#: Number of inliers from which no other view is tried.
PLENTY: Final = 30
#: Bounds of plausible relations: singular values in pixels, and largest ratio of the two.
SCALES: Final = (0.1, 10.0)
STRETCH: Final = 3.0
#: Percent of the pixels that saturate at each end when contrast is stretched.
_TAIL: Final = 0.5
#: Number of images whose features are cached: a query is compared with many references.
_CACHED: Final = 64


@dataclass(frozen=True, slots=True)
class LocalFeatures:
    """The local features of an image."""

    points: Float32  # float32 (n, 2): x and y in pixels, the centre of the first pixel at 0, 0
    descriptors: Float32  # float32 (n, 128): whole numbers, so that sums of products are exact
    # of the image, pixels
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class FeatureMatch:
    """A relation on which local features agree."""

    matrix: Matrix  # query to reference, unit coordinates
    inverted: bool  # whether the features of the inverted query agreed
    inliers: int  # number of features that agree


def match_features(
    query: Bytes8, reference: Bytes8, *, mirrored: bool = False, inverted: bool = False
) -> FeatureMatch | None:
    """Return the relation on which most local features agree, or ``None``.

    ``mirrored``, ``inverted``: the view to try first.
    """
    if min(*query.shape[:2], *reference.shape[:2]) < SMALLEST:
        return None
    own, others = local_features(query), local_features(reference)
    if min(len(own.points), len(others.points)) < INLIERS:
        return None
    best: FeatureMatch | None = None
    for inversion, mirror in product((inverted, not inverted), (mirrored, not mirrored)):
        found = _related(_in_view(own, mirror, inversion), others)
        if found is not None and (best is None or found[1] > best.inliers):
            matrix = found[0] @ view_matrix(VIEWS.index("mirror")) if mirror else found[0]
            best = FeatureMatch(matrix, inversion, found[1])
            if best.inliers >= PLENTY:
                break
    return best


def local_features(image: Bytes8) -> LocalFeatures:
    """Return the strongest local features of an RGB ``uint8`` image; cached."""
    return _computed(image.tobytes(), image.shape[0], image.shape[1])


@lru_cache(maxsize=_CACHED)
def _computed(data: bytes, height: int, width: int) -> LocalFeatures:
    image = np.frombuffer(data, np.uint8).reshape(height, width, 3)
    sift = _cv.SIFT_create(
        nfeatures=FEATURES, contrastThreshold=CONTRAST, enable_precise_upscale=True
    )
    found, raw = sift.detectAndCompute(equalized(image), None)
    if not found:
        none = np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32)
        return LocalFeatures(*none, width, height)
    points = np.array([k.pt for k in found], np.float32)
    total = np.maximum(raw.sum(axis=1, keepdims=True, dtype=np.float64), 1.0)
    descriptors = np.rint(512 * np.sqrt(raw / total)).astype(np.float32)
    return LocalFeatures(points, descriptors, width, height)


def equalized(image: Bytes8) -> Bytes8:
    """Return an image in grey (h, w) with the same contrast everywhere.

    Contrast is stretched before rounding, because the luminance of an image in shades of blue has
    only 29 levels. Adaptive equalization (CLAHE, Zuiderveld 1994) then reveals the texture of
    smooth surfaces next to black bars and edges.
    """
    grey = cv2.cvtColor(image.astype(np.float32), cv2.COLOR_RGB2GRAY)
    low, high = np.percentile(grey, (_TAIL, 100 - _TAIL))
    scaled = (grey - np.float32(low)) * np.float32(255 / max(high - low, 1.0))
    full = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    return np.asarray(cv2.createCLAHE(CLIP, (TILES, TILES)).apply(full), np.uint8)


def _in_view(own: LocalFeatures, mirrored: bool, inverted: bool) -> LocalFeatures:
    """Return the features of the mirrored or inverted image.

    A descriptor is 4 x 4 cells of 8 directions in the frame of the patch. Mirroring flips one axis
    of the frame and the sign of the directions; inversion rotates frame and directions by 180°.
    """
    points, descriptors = own.points, own.descriptors.reshape(-1, 4, 4, 8)
    if mirrored:
        points = np.stack([own.width - 1 - points[:, 0], points[:, 1]], axis=1)
        descriptors = descriptors[:, ::-1][..., -np.arange(8) % 8]
    if inverted:
        descriptors = descriptors[:, ::-1, ::-1]
    return LocalFeatures(points, descriptors.reshape(-1, 128), own.width, own.height)


def _related(own: LocalFeatures, others: LocalFeatures) -> tuple[Matrix, int] | None:
    """Return the relation on which enough features agree, and their number."""
    mine, theirs = _matches(own.descriptors, others.descriptors)
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
    if inliers < INLIERS or np.linalg.det(pixels) <= 0 or not _is_plausible(stretches):
        return None
    to_units = inverse(unit_to_pixels(others.width, others.height))
    return to_units @ pixels @ unit_to_pixels(own.width, own.height), inliers


def _is_plausible(stretches: Float64) -> bool:
    """Whether the singular values of a relation, the larger first, are those of a copy."""
    large, small = (float(value) for value in stretches)
    return SCALES[0] <= small and large <= SCALES[1] and large <= STRETCH * small


def _matches(mine: Float32, theirs: Float32) -> tuple[Int64, Int64]:
    """Return the positions of features that match by Lowe's ratio test, each used once.

    Of several features with the same match, the nearest is kept, and of equals the first.
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
