"""A bar that was laid along one edge of an image: a caption, a credit, a ticker.

Unlike a cover in the middle (:mod:`visleak.verification.covers`), a bar may have the colour of what
is around it, and most of it may be text. Three signs distinguish it from a heading that was
exchanged: the images differ nowhere else, one of them is of one colour there apart from what is
written on it, and the other has content that continues across the border of the bar.
"""

from __future__ import annotations

import math
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32
from visleak.verification.align import Matrix
from visleak.verification.frame import Photo, bounded, moved

#: Long side at which bars are found, pixels.
SIDE: Final = 320
#: Share of the image that shows in the other at least.
SHOWN: Final = 0.5
#: Fits of brightness and contrast, each to this share of the pixels that differ least.
FITS: Final = 3
USUAL: Final = 0.7
#: Difference, levels, from which a pixel differs, and times the median difference of all.
APART: Final = 10.0
TIMES: Final = 4.0
#: Share of the pixels that differ beside a bar at most, and of a row of one at least.
BESIDE: Final = 0.004
IN_ROW: Final = 0.01
#: Depth of a bar, share of the image.
DEPTH: Final = (0.04, 0.2)
#: Deviation, levels, from the colour of the bar, and share of it that has the colour at least.
EVEN: Final = 6.0
FILLED: Final = 0.5
#: Share of the border that cuts through content at least; on either side of it the other image
#: differs by this share of the step to the colour of the bar at most. Rows about the last one that
#: differs in which the border is, and distance of what is compared from it, pixels.
CUT: Final = 0.05
OFF: Final = 0.4
ABOUT: Final = 3
ACROSS: Final = 2


def without_bar(photo: Photo, other: Photo, matrix: Matrix) -> Photo | None:
    """Return an image without the bar that covers an edge of it, ``None`` if there is none.

    Args:
        photo: the image.
        other: the image that may show what the bar hides.
        matrix: the relation from the other image to this one, in unit coordinates.
    """
    own = bounded(photo.grey, SIDE)
    height, width = own.shape
    everywhere = np.full(other.content.shape, 255, np.uint8)
    theirs, inside = moved(other.grey, everywhere, matrix, (width, height))
    shown = np.asarray(inside == 255)
    if np.count_nonzero(shown) < SHOWN * shown.size:
        return None
    theirs = _at_levels_of(own, theirs, shown)
    difference = np.abs(cv2.blur(own, (3, 3)) - cv2.blur(theirs, (3, 3)))
    least = max(APART, TIMES * float(np.median(difference[shown])))
    differs = np.asarray((difference >= least) & shown)
    for turns in range(4):
        planes = (np.rot90(plane, turns) for plane in (own, theirs, differs, shown))
        depth = _depth(*planes)
        if depth:
            return _beside(photo, other, matrix, turns, depth)
    return None


def _at_levels_of(own: Float32, theirs: Float32, shown: Bool) -> Float32:
    """Return an image at brightness and contrast of another, which it resembles mostly."""
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
    if np.count_nonzero(differs[most:]) > BESIDE * differs[most:].size:
        return 0.0
    rows = np.flatnonzero(np.count_nonzero(differs[:most], axis=1) > IN_ROW * width)
    if not len(rows) or (last := int(rows[-1])) < least:
        return 0.0
    level = _level(own[: last + 1])
    if np.count_nonzero(np.abs(own[: last + 1] - level) <= EVEN) < FILLED * (last + 1) * width:
        return 0.0
    for border in range(max(ACROSS, last - ABOUT), min(last + ABOUT + 1, height - ACROSS)):
        above, below = border - ACROSS, border + ACROSS
        step = np.abs(theirs[above] - level)
        cut = (step >= APART) & (np.ptp(theirs[above : below + 1], axis=0) <= OFF * step)
        cut &= np.abs(own[below] - theirs[below]) <= OFF * step
        cut &= np.abs(own[above] - level) <= EVEN
        if np.count_nonzero(cut & shown[above] & shown[below]) >= CUT * width:
            return (last + ABOUT + 1) / int(height)
    return 0.0


def _level(plane: Float32) -> float:
    """Return the level that most of a plane has."""
    counts = np.histogram(plane, bins=64, range=(0, 256))[0]
    usual = float(4 * counts.argmax() + 2)
    own = plane[np.abs(plane - usual) <= EVEN]
    return float(np.median(own)) if own.size else usual


def _beside(photo: Photo, other: Photo, matrix: Matrix, turns: int, depth: float) -> Photo:
    """Return an image whose content ends at a bar, at the edge that these turns bring to the top.

    What the other image shows takes its place: else its border would differ as well.
    """
    height, width = photo.content.shape
    shown, _ = moved(other.pixels, other.content, matrix, (width, height))
    pixels, content = (np.rot90(plane, turns).copy() for plane in (photo.pixels, photo.content))
    rows = math.ceil(depth * len(content))
    pixels[:rows], content[:rows] = np.rint(np.rot90(shown, turns)[:rows]), 0
    back = [np.ascontiguousarray(np.rot90(plane, -turns)) for plane in (pixels, content)]
    return Photo(back[0], back[1])
