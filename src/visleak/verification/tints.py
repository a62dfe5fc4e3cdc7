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

from visleak.records import Bool, Float32, Float64, Int32

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

#: Levels that a layer may have.
LAYERS: Final = range(0, 256, 15)

#: Deviation (levels) across the main direction of the colours below which an image is grey or of
#: one hue: it may have lost its colours.
ONE_HUE: Final = 8.0

#: Agreement of edges from which two images show the same shapes: 0.5 to 0.7 with another portrait,
#: less than 0.5 under most captions and stickers.
SAME_EDGES: Final = 0.5

#: Opponent colours of RGB: red minus green, and both minus blue.
_OPPONENTS: Final = np.array([[1, -1, 0], [0.5, 0.5, -1]], np.float32)


@dataclass(frozen=True, slots=True)
class Tints:
    """The colours that only one image has.

    Amounts are in ``UNIT`` levels times pixels of the frame of ``SIDE``, as ``log(1 + amount)``.
    """

    more: float = 0.0  # amount in the image with more of them
    less: float = 0.0  # amount in the image with less of them
    # amount of the difference in these places that no layer on one of the images explains
    recoloured: float = 0.0
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
    less, more = (math.log1p(amount) for amount in sorted(_by_side(found, distance, ours_more)))
    around = cv2.dilate(found.astype(np.uint8), np.ones((2 * MARGIN + 1,) * 2, np.uint8)) > 0
    hues = min(_second_deviation(image, inside) for image in (query, reference))
    recoloured = _unexplained(query, reference, found, around) if hues >= ONE_HUE else 0.0
    return Tints(more, less, math.log1p(recoloured), around, colours)


def _second_deviation(pixels: Float32, inside: Bool) -> float:
    """Return the deviation of the colours across their main direction, levels."""
    variances = np.linalg.eigvalsh(np.cov(_sampled(pixels, inside).T))
    return math.sqrt(max(0.0, float(variances[1])))


def _unexplained(query: Float32, reference: Float32, found: Bool, around: Bool) -> float:
    """Return the amount of the differences that no layer on one of the images explains.

    A layer, opaque or translucent, moves each level towards its own, or towards black if it
    multiplies. Where content has other colours, or a layer moved, some levels move beyond it or
    away from it. So they do under a sticker of several colours, but there the edges differ as
    well, and the region does not count. Regions are taken together if their surroundings touch.
    """
    count, regions = cv2.connectedComponents(around.astype(np.uint8))
    labels = np.asarray(regions, np.int32)
    smooth = _smooth(query), _smooth(reference)
    places = np.flatnonzero(found)
    each = 1 + len(places) // MAX_PIXELS
    region = labels.ravel()[places[::each]]
    ours, theirs = (image.reshape(-1, 3)[places[::each]].T for image in smooth)

    def unexplained(under: Float32, over: Float32) -> Float64:
        total = np.zeros(count)
        for one, other in zip(under, over, strict=True):
            sums = [
                np.bincount(region, weights=_beyond(one, other, level), minlength=count)
                for level in LAYERS
            ]
            total += np.min(sums, axis=0)
        return total

    least = np.minimum(unexplained(theirs, ours), unexplained(ours, theirs))
    if least.any():
        least[_agreement_of_edges(*smooth, labels) < SAME_EDGES] = 0
    return float(least.sum()) * each / UNIT


def _agreement_of_edges(query: Float32, reference: Float32, labels: Int32) -> Float64:
    """Return the cosine of the structure tensors of two smooth images in each region, 0..1."""
    ours, theirs = (_structure(image).reshape(-1, 3) for image in (query, reference))
    products = [
        np.bincount(labels.ravel(), weights=((one * other) @ (1, 1, 2)))
        for one, other in ((ours, theirs), (ours, ours), (theirs, theirs))
    ]
    return np.asarray(products[0] / np.sqrt(products[1] * products[2] + 1e-6))


def _structure(smooth: Float32) -> Float32:
    """Return the structure tensor (h, w, 3) of the colours: xx, yy, xy, of the size of a gradient.

    It has no sign, because an edge between two other colours may go the other way.
    """
    across, down = (
        cv2.Sobel(smooth, cv2.CV_32F, *along, ksize=3, scale=1 / 8) for along in ((1, 0), (0, 1))
    )
    products = (across * across, down * down, across * down)
    tensor = np.stack([product.sum(axis=2) for product in products], axis=2)
    return np.asarray(tensor / np.sqrt(tensor[..., :2].sum(axis=2, keepdims=True) + 1), np.float32)


def _beyond(under: Float32, over: Float32, level: int) -> Float32:
    """Return the levels by which pixels are not between those under a layer and its own level."""
    between = np.clip(over, np.minimum(under, level), np.maximum(under, level))
    return np.asarray(np.maximum(np.abs(over - between) - MIN_DIFFERENCE, 0), np.float32)


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
    return np.asarray(np.median(_sampled(opponents, inside), axis=0), np.float32)


def _sampled(colours: Float32, inside: Bool) -> Float32:
    """Return the colours of evenly spaced pixels inside a mask, at most ``MAX_PIXELS``."""
    return colours[inside][:: 1 + np.count_nonzero(inside) // MAX_PIXELS]


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
