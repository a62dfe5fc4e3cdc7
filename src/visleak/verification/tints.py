"""Colours that only one of two registered images has.

A stamp, a highlight and most stickers add a colour. A mark that moved, and another portrait in its
frame, add one colour and remove another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32, Float64

#: Long side of the frame in which colours are compared, and scale of the comparison, pixels.
SIDE: Final = 512
SCALE: Final = 1.2
#: Smallest distance of colours that differ: levels, and multiple of the usual distance of the pair,
#: a percentile.
MIN_DIFFERENCE: Final = 14.0
TIMES: Final = 3.0
USUAL: Final = 80
#: Distance that is added where both images vary, as a share of the range of their colours in
#: windows of this side, pixels.
VARIED: Final = 0.7
REACH: Final = 9
#: Ridge of the colour fit towards equal colours, levels squared; and residual (levels) at which a
#: pixel has half its weight.
RIDGE: Final = 25.0
HALF_WEIGHT: Final = 6.0
#: Rounds of the fit, and largest ratio of the contrasts of two images.
FITS: Final = 5
MOST_CONTRAST: Final = 3.0
#: Most pixels of the fit.
MAX_PIXELS: Final = 4096
#: Pixels around a colour that belong to it, the width of an edge.
MARGIN: Final = 5
#: Distance of colours that is 1 in amounts, levels.
UNIT: Final = 32.0

#: Opponent colours of RGB: red minus green, and both minus blue.
_OPPONENTS: Final = np.array([[1, -1, 0], [0.5, 0.5, -1]], np.float32)


@dataclass(frozen=True, slots=True)
class Tints:
    """The colours that only one image has.

    Amounts are in ``UNIT`` levels times pixels of the frame of ``SIDE``, as ``log(1 + amount)``.
    """

    more: float = 0.0  # amount in the image with more of them
    less: float = 0.0  # amount in the image with less of them
    where: Bool | None = None  # mask of these colours in either image, (h, w); None if empty
    # opponent colours of both relative to the median, in UNIT levels, (h, w, 4): those of the query
    # mapped to the reference, and those of the reference; None if the mask is too small
    colours: Float32 | None = None


def find_tints(query: Float32, reference: Float32, mask: Bool) -> Tints:
    """Return the colours that only one of two registered RGB images (h, w, 3) has inside a mask."""
    inside = cv2.erode(mask.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    if np.count_nonzero(inside) < MAX_PIXELS // 16:
        return Tints()
    expected = _as_reference(query, reference, inside)
    theirs = _opponents(reference)
    usual = _usual(theirs, inside)
    colours = np.concatenate([expected - usual, theirs - usual], axis=2, dtype=np.float32) / UNIT
    distance = np.sqrt(_smooth(_square(expected - theirs)))
    limit = max(MIN_DIFFERENCE, TIMES * float(np.percentile(distance[inside], USUAL)))
    # where both vary, compression and a shift of half a pixel cause the same distance
    either = np.minimum(_range(expected), _range(theirs))
    found = inside & (distance > limit + VARIED * either)
    found = cv2.morphologyEx(found.astype(np.uint8), cv2.MORPH_OPEN, np.ones((2, 2), np.uint8)) > 0
    if not found.any():
        return Tints(colours=colours)
    ours_more = _saturation(expected, _usual(expected, inside)) > _saturation(theirs, usual)
    amounts = sorted(_by_side(found, distance, ours_more))
    around = cv2.dilate(found.astype(np.uint8), np.ones((2 * MARGIN + 1,) * 2, np.uint8)) > 0
    return Tints(math.log1p(amounts[1]), math.log1p(amounts[0]), around, colours)


def _by_side(found: Bool, distance: Float32, ours_more: Bool) -> tuple[float, float]:
    """Return the amounts in query and reference; each region belongs to one of them."""
    count, labels = cv2.connectedComponents(found.astype(np.uint8))
    region, signed = labels[found], np.where(ours_more, distance, -distance)[found] / UNIT
    sums = np.bincount(region, weights=signed, minlength=count)
    totals = np.bincount(region, weights=np.abs(signed), minlength=count)
    return float(totals[sums > 0].sum()), float(totals[sums < 0].sum())


def _opponents(pixels: Float32) -> Float32:
    return np.asarray(cv2.transform(pixels, _OPPONENTS), np.float32)


def _range(opponents: Float32) -> Float32:
    """Return the range of the colours around each pixel, levels."""
    around = np.ones((REACH, REACH), np.uint8)
    ranges = cv2.dilate(opponents, around) - cv2.erode(opponents, around)
    return np.sqrt(_square(ranges))


def _smooth(plane: Float32) -> Float32:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), SCALE), np.float32)


def _saturation(opponents: Float32, usual: Float32) -> Float32:
    """Return the distance of each colour from the median colour (2,) of the image."""
    return np.sqrt(_square(opponents - usual))


def _square(opponents: Float32) -> Float32:
    """Return the squared lengths (h, w) of opponent colours; a sum along an axis is slow."""
    return np.asarray(opponents[..., 0] ** 2 + opponents[..., 1] ** 2, np.float32)


def _usual(opponents: Float32, inside: Bool) -> Float32:
    """Return the median opponent colours of the image, (2,)."""
    sampled = opponents[inside][:: 1 + np.count_nonzero(inside) // MAX_PIXELS]
    return np.asarray(np.median(sampled, axis=0), np.float32)


def _as_reference(query: Float32, reference: Float32, inside: Bool) -> Float32:
    """Return the opponent colours (h, w, 2) of the query, mapped to the reference.

    The map is affine and fitted robustly, so that overlays have little influence. A ridge favours
    equal colours at the reference's contrast, because black print does not determine a map.
    """
    pixels = np.flatnonzero(inside)
    pixels = pixels[:: 1 + len(pixels) // MAX_PIXELS]
    ours, theirs = (
        _smooth(image).reshape(-1, 3)[pixels].astype(np.float64) for image in (query, reference)
    )
    opponents = _OPPONENTS.T.astype(np.float64)
    centre = np.median(ours, axis=0)
    rows = np.column_stack([ours - centre, np.ones(len(pixels))])
    target = theirs @ opponents
    equal = np.vstack([_contrast(ours, theirs) * opponents, np.median(target, axis=0)])
    left = target - rows @ equal
    ridge = np.diag([RIDGE, RIDGE, RIDGE, 1e-3])
    moved = np.zeros((4, 2))
    for _ in range(FITS):
        trust = 1 / (1 + ((left - rows @ moved) ** 2).sum(axis=1) / HALF_WEIGHT**2)
        weighted = rows * trust[:, None]
        square = weighted.T @ rows / trust.sum() + ridge
        moved = np.linalg.solve(square, weighted.T @ left / trust.sum())
    linear = (equal + moved).T
    constant = linear[:, 3] - linear[:, :3] @ centre
    shifted = np.column_stack([linear[:, :3], constant]).astype(np.float32)
    return np.asarray(cv2.transform(query, shifted), np.float32)


def _contrast(ours: Float64, theirs: Float64) -> float:
    """Return the ratio of the contrasts of reference and query, by their median channels."""
    own, other = (np.median(side, axis=1) for side in (ours, theirs))
    own, other = np.abs(own - np.median(own)), np.abs(other - np.median(other))
    strong = (own > MIN_DIFFERENCE) & (other > MIN_DIFFERENCE)
    if not strong.any():
        return 1.0
    return float(np.clip(np.median(other[strong] / own[strong]), 1 / MOST_CONTRAST, MOST_CONTRAST))
