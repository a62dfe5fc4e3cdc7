"""The full check of a pair: align the pictures, fit brightness and colour, compare the overlap."""

from __future__ import annotations

import hashlib
import json
from typing import Final

import cv2
import numpy as np

from visleak.records import VIEWS, Bytes8
from visleak.verify import align, exact, large, screen, tiny
from visleak.verify.align import Matrix
from visleak.verify.measures import Measures, compare, square

#: Pictures up to this side are compared as tiny ones.
TINY: Final = 48

#: Long side to which pictures are bounded before the check.
BOUND: Final = 256

#: Version of the measures: part of the digest that keys cached evidence.
VERSION: Final = 5


def digest() -> bytes:
    """Return the digest of everything that evidence depends on beside the two pictures."""
    own = [VERSION, TINY, BOUND, tiny.SIDE, large.SIDE, large.COARSE_SIDE, large.GOOD]
    pixels = [exact.EXACT_LEVELS, exact.EXACT_SHARE, exact.EXACT_MEAN, exact.EXACT_TILE]
    moving = [align.STEPS, align.CHANGE, *align.SCALES, align.STRETCH, align.SHIFT]
    local = [align.FEATURE_SIDE, align.FEATURES, align.RATIO, align.INLIERS, align.RANSAC_PIXELS]
    recipe = [own, pixels, exact.TILES, moving, local]
    recipe.append([screen.SIDE, screen.REACH, screen.DAMPING])
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
    is_tiny = max(*query.shape[:2], *reference.shape[:2]) <= TINY
    # whatever the view: a symmetric picture may look more like its mirror image
    if same_size and exact.exactly_alike(query, reference):
        side = tiny.SIDE if is_tiny else large.SIDE
        unmoved = np.eye(3)
        return compare(square(query, side), square(reference, side), unmoved, exact=True), unmoved
    start = align.shift_matrix(*shift) @ align.view_matrix(view)
    looks = 255 - query if VIEWS[view] == "inverted" else query
    if is_tiny:
        return tiny.check_tiny(looks, reference, start)
    return large.check_large(looks, reference, start, features=features)
