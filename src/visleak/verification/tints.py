"""Where one of two images in register has a colour that the other lacks.

A stamp, a highlighter and most stickers bring a colour of their own. What is below and beside them
can then be judged without them. A mark that moved, and another portrait in its frame, bring a
colour and take one away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32

Float64 = npt.NDArray[np.float64]
#: Long side of the frame in which colours are compared, and scale (pixels) at which.
SIDE: Final = 512
SCALE: Final = 1.2
#: Distance of two colours (levels) from which they differ: this, and so many times what is usual:
#: that of the most different pixels but this share of them, percent.
APART: Final = 14.0
TIMES: Final = 3.0
USUAL: Final = 80
#: The same of where both images vary, as a share of the range of their colours in windows of so
#: many pixels.
VARIED: Final = 0.7
REACH: Final = 9
#: Pull of the colours' fit towards equal colours, levels squared; and the distance (levels) at
#: which a pixel counts half in it.
RIDGE: Final = 25.0
OFF: Final = 6.0
#: Rounds of the fit, and the contrast of one image relative to the other's, at most.
FITS: Final = 5
MOST_CONTRAST: Final = 3.0
#: Pixels that the fit is made of, at most.
MOST: Final = 4096
#: Pixels around a colour that are its own as well: the width of an edge.
AROUND: Final = 5
#: Distance (levels) that counts as one in an amount.
UNIT: Final = 32.0

#: Opponent colours of RGB: red less green, and both less blue.
_OPPONENTS: Final = np.array([[1, -1, 0], [0.5, 0.5, -1]], np.float32)


@dataclass(frozen=True, slots=True)
class Tints:
    """Colours that one image alone has.

    Amounts are in ``UNIT`` levels times pixels of the frame of ``SIDE``, as ``log(1 + amount)``.
    """

    more: float = 0.0  # of the image that has more of them
    less: float = 0.0  # of the image that has less of them
    where: Bool | None = None  # where either has some, (h, w); None for nowhere
    # opponent colours of both beside what is usual, in UNIT levels, (h, w, 4): the query's as the
    # reference would have them, and the reference's; None where nothing overlaps
    colours: Float32 | None = None


def tints(query: Float32, reference: Float32, mask: Bool) -> Tints:
    """Return what colours one of two RGB images (h, w, 3) alone has, of where the mask holds."""
    inside = cv2.erode(mask.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    if np.count_nonzero(inside) < MOST // 16:
        return Tints()
    expected = _as_reference(query, reference, inside)
    theirs = _opponents(reference)
    usual = _usual(theirs, inside)
    colours = np.concatenate([expected - usual, theirs - usual], axis=2, dtype=np.float32) / UNIT
    distance = np.sqrt(_smooth(((expected - theirs) ** 2).sum(axis=2)))
    limit = max(APART, TIMES * float(np.percentile(distance[inside], USUAL)))
    # where both vary, compression and half a pixel make as much of a difference
    either = np.minimum(_range(expected), _range(theirs))
    found = inside & (distance > limit + VARIED * either)
    found = cv2.morphologyEx(found.astype(np.uint8), cv2.MORPH_OPEN, np.ones((2, 2), np.uint8)) > 0
    if not found.any():
        return Tints(colours=colours)
    ours_more = _saturation(expected, _usual(expected, inside)) > _saturation(theirs, usual)
    amounts = sorted(_by_side(found, distance, ours_more))
    around = cv2.dilate(found.astype(np.uint8), np.ones((2 * AROUND + 1,) * 2, np.uint8)) > 0
    return Tints(math.log1p(amounts[1]), math.log1p(amounts[0]), around, colours)


def _by_side(found: Bool, distance: Float32, ours_more: Bool) -> tuple[float, float]:
    """Return the amounts of colour that either image alone has; each place is of one of them."""
    count, labels = cv2.connectedComponents(found.astype(np.uint8))
    place, signed = labels[found], np.where(ours_more, distance, -distance)[found] / UNIT
    sums = np.bincount(place, weights=signed, minlength=count)
    totals = np.bincount(place, weights=np.abs(signed), minlength=count)
    return float(totals[sums > 0].sum()), float(totals[sums < 0].sum())


def _opponents(pixels: Float32) -> Float32:
    return np.asarray(cv2.transform(pixels, _OPPONENTS), np.float32)


def _range(opponents: Float32) -> Float32:
    """Return by how much the colours about each pixel vary, levels."""
    around = np.ones((REACH, REACH), np.uint8)
    ranges = cv2.dilate(opponents, around) - cv2.erode(opponents, around)
    return np.asarray(np.linalg.norm(ranges, axis=2), np.float32)


def _smooth(plane: Float32) -> Float32:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), SCALE), np.float32)


def _saturation(opponents: Float32, usual: Float32) -> Float32:
    """Return by how much the colour of each pixel differs from the usual one (2,) of the image."""
    return np.asarray(np.linalg.norm(opponents - usual, axis=2), np.float32)


def _usual(opponents: Float32, inside: Bool) -> Float32:
    """Return the opponent colours that are usual in the image, (2,)."""
    sampled = opponents[inside][:: 1 + np.count_nonzero(inside) // MOST]
    return np.asarray(np.median(sampled, axis=0), np.float32)


def _as_reference(query: Float32, reference: Float32, inside: Bool) -> Float32:
    """Return the opponent colours (h, w, 2) that the reference would have where nothing differs.

    An affine map of the query's colours, fitted robustly: what was laid over must not rule. It is
    pulled towards equal colours of the reference's contrast, for print in black says nothing about
    others.
    """
    pixels = np.flatnonzero(inside)
    pixels = pixels[:: 1 + len(pixels) // MOST]
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
        trust = 1 / (1 + ((left - rows @ moved) ** 2).sum(axis=1) / OFF**2)
        weighted = rows * trust[:, None]
        square = weighted.T @ rows / trust.sum() + ridge
        moved = np.linalg.solve(square, weighted.T @ left / trust.sum())
    linear = (equal + moved).T
    constant = linear[:, 3] - linear[:, :3] @ centre
    shifted = np.column_stack([linear[:, :3], constant]).astype(np.float32)
    return np.asarray(cv2.transform(query, shifted), np.float32)


def _contrast(ours: Float64, theirs: Float64) -> float:
    """Return the contrast of the reference relative to the query's, of their median channels."""
    own, other = (np.median(side, axis=1) for side in (ours, theirs))
    own, other = np.abs(own - np.median(own)), np.abs(other - np.median(other))
    strong = (own > APART) & (other > APART)
    if not strong.any():
        return 1.0
    return float(np.clip(np.median(other[strong] / own[strong]), 1 / MOST_CONTRAST, MOST_CONTRAST))
