"""Bars along one edge of an image: a caption, a credit line, a ticker.

Unlike a cover in the middle (:mod:`visleak.verification.covers`), a bar may have the colour of its
surroundings, and most of it may be text. Three properties distinguish it from a replaced heading:
the images differ nowhere else, the bar has one colour except for its text, and content of the other
image continues across the border of the bar.
"""

from __future__ import annotations

import math
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32
from visleak.verification.align import Matrix, inverse
from visleak.verification.frame import Photo, bounded, warped

#: Long side at which bars are found, pixels.
SIDE: Final = 320
#: Smallest share of the image that the other image shows.
SHOWN: Final = 0.5
#: Fits of brightness and contrast, and share of the pixels, with the smallest residuals, of each.
FITS: Final = 3
USUAL: Final = 0.7
#: A pixel differs from this many levels on, and this many times the median difference.
MIN_DIFFERENCE: Final = 10.0
TIMES: Final = 4.0
#: Largest share of pixels that differ outside of a bar, and smallest in each of its rows.
OUTSIDE: Final = 0.004
IN_ROW: Final = 0.01
#: Bounds of the depth of a bar, shares of the image.
DEPTH: Final = (0.04, 0.2)
#: Largest deviation from the colour of a bar (levels), and smallest share of it with this colour.
EVEN: Final = 6.0
FILLED: Final = 0.5
#: Smallest share of the border that cuts through content, and largest change of the other image
#: across the border, as a share of its difference from the colour of the bar.
CUT: Final = 0.05
CONTINUES: Final = 0.4
#: Distance of the border from the last row that differs, at most, and distance from the border at
#: which rows are compared, pixels.
BORDER_ROWS: Final = 3
ACROSS: Final = 2


def without_bars(
    photos: tuple[Photo, Photo], matrix: Matrix
) -> tuple[tuple[Photo, Photo], Matrix] | None:
    """Return both images without the bars along an edge, and the relation that reveals these.

    A bar biases the relation, so the identity is tried as well. ``None`` if neither has a bar.
    """
    query, reference = photos
    still = np.eye(3)
    for relation in (still,) if np.array_equal(matrix, still) else (matrix, still):
        ours = _without_bar(query, reference, inverse(relation))
        theirs = _without_bar(reference, query, relation)
        if ours is not None or theirs is not None:
            return (ours or query, theirs or reference), relation
    return None


def _without_bar(photo: Photo, other: Photo, matrix: Matrix) -> Photo | None:
    """Return an image with the bar along one of its edges masked, ``None`` if it has none.

    Args:
        photo: the image.
        other: the image that may show the content below the bar.
        matrix: the relation from the other image to this one, in unit coordinates.
    """
    own = bounded(photo.grey, SIDE)
    height, width = own.shape
    everywhere = np.full(other.content.shape, 255, np.uint8)
    theirs, inside = warped(other.grey, everywhere, matrix, (width, height))
    shown = np.asarray(inside == 255)
    if np.count_nonzero(shown) < SHOWN * shown.size:
        return None
    theirs = _with_levels_of(own, theirs, shown)
    difference = np.abs(cv2.blur(own, (3, 3)) - cv2.blur(theirs, (3, 3)))
    least = max(MIN_DIFFERENCE, TIMES * float(np.median(difference[shown])))
    differs = np.asarray((difference >= least) & shown)
    for turns in range(4):
        planes = (np.rot90(plane, turns) for plane in (own, theirs, differs, shown))
        depth = _depth(*planes)
        if depth:
            return _masked(photo, other, matrix, turns, depth)
    return None


def _with_levels_of(own: Float32, theirs: Float32, shown: Bool) -> Float32:
    """Return ``theirs`` with the brightness and contrast of ``own``, fitted robustly."""
    ours, others = own[shown], theirs[shown]
    gain, offset = 1.0, 0.0
    for _ in range(FITS):
        miss = np.abs(gain * others + offset - ours)
        kept = miss <= np.quantile(miss, USUAL)
        mean, level = float(others[kept].mean()), float(ours[kept].mean())
        apart = others[kept] - mean
        energy = float(apart @ apart) + len(apart)
        gain = (float(apart @ (ours[kept] - level)) + len(apart)) / energy
        offset = level - gain * mean
    return np.asarray(gain * theirs + offset, np.float32)


def _depth(own: Float32, theirs: Float32, differs: Bool, shown: Bool) -> float:
    """Return the depth of the bar at the top of an image, as a share of its height; 0 if none."""
    height, width = own.shape
    least, most = (round(share * height) for share in DEPTH)
    if np.count_nonzero(differs[most:]) > OUTSIDE * differs[most:].size:
        return 0.0
    rows = np.flatnonzero(np.count_nonzero(differs[:most], axis=1) > IN_ROW * width)
    if not len(rows) or (last := int(rows[-1])) < least:
        return 0.0
    level = _level(own[: last + 1])
    if np.count_nonzero(np.abs(own[: last + 1] - level) <= EVEN) < FILLED * (last + 1) * width:
        return 0.0
    first, end = max(ACROSS, last - BORDER_ROWS), min(last + BORDER_ROWS + 1, height - ACROSS)
    for border in range(first, end):
        above, below = border - ACROSS, border + ACROSS
        step = np.abs(theirs[above] - level)
        change = np.ptp(theirs[above : below + 1], axis=0)
        cut = (step >= MIN_DIFFERENCE) & (change <= CONTINUES * step)
        cut &= np.abs(own[below] - theirs[below]) <= CONTINUES * step
        cut &= np.abs(own[above] - level) <= EVEN
        if np.count_nonzero(cut & shown[above] & shown[below]) >= CUT * width:
            return (last + BORDER_ROWS + 1) / int(height)
    return 0.0


def _level(plane: Float32) -> float:
    """Return the most frequent level of a plane."""
    counts = np.histogram(plane, bins=64, range=(0, 256))[0]
    usual = float(4 * counts.argmax() + 2)
    own = plane[np.abs(plane - usual) <= EVEN]
    return float(np.median(own)) if own.size else usual


def _masked(photo: Photo, other: Photo, matrix: Matrix, turns: int, depth: float) -> Photo:
    """Return an image with a bar masked, at the edge that is on top after so many turns.

    The other image replaces the bar, so that its border does not count as a difference.
    """
    height, width = photo.content.shape
    shown, _ = warped(other.pixels, other.content, matrix, (width, height))
    pixels, content = (np.rot90(plane, turns).copy() for plane in (photo.pixels, photo.content))
    rows = math.ceil(depth * len(content))
    pixels[:rows], content[:rows] = np.rint(np.rot90(shown, turns)[:rows]), 0
    back = [np.ascontiguousarray(np.rot90(plane, -turns)) for plane in (pixels, content)]
    return Photo(back[0], back[1])
