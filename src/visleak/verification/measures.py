"""What the full check measures on a pair, by name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bytes8


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
        patch: largest root mean square difference in a tile of 1/16 of the image, grey levels.
        covered: share of the reference that the moved query covers, 0..1.
        used: share of the query that lies on the reference, 0..1.
        gain, offset: brightness of the reference is gain times the query's, plus offset levels.
        tint: largest difference of the mean colour of a channel after the grey fit, levels.
        features: 1 where local features found the relation.
        side: pixels of the squares that were compared, or of the longest side that would be.
        exact: 1 where the pixels are the same up to re-encoding, see ``exact.is_exact``.
        identical: 1 where all pixels are identical.
        structure: mean correlation of small windows, -1..1; this and what follows of photographs
            only.
        agree: share of the windows with contrast whose correlation is at least 0.6, 0..1.
        drift: displacement that is left between the images, upper quartile, pixels compared.
        blur: pixels by which the sharper image was blurred before comparing.
        inliers: number of local features that agree on the relation, 0 if it was not made by them.
        inverted: 1 where the reference is like the inverted query; gain and offset are of that.
        pixels: number of pixels that were compared.
        query_ratio, reference_ratio: width over height of either image.
        agreement: mean of ``gradient`` and the same of damped gradients, less where little
            overlaps; this and what follows of tiny images only.
        directions: agreement of the directions of gradients, however weak, upper quartile of the
            tiles of 1/16 of the image, 0 where a tile is not covered.
        detail: correlation of second derivatives over the overlap, -1..1.
        palette: share of the colours' variance that an affine map of the query's colours explains.
        fine, middle, coarse: correlation of three bands of detail, each an octave, without the
            quarter of the tiles that agrees least, -1..1.
        shapes: correlation of the coarse band over all tiles, -1..1.
        unlike: share of the reference's variance in all channels that one gain and one offset of
            the query leave, 0..1.
        contrast: deviation of the reference's grey values over the overlap, levels.
        texture_amount, texture_mean, texture_typical, texture_tiles, texture_opposed: see
            ``texture.Texture``, of the images as they are.
        form_amount, form_mean, form_typical, form_tiles, form_opposed: the same of the blurred
            images, in which a reduced or compressed copy is like its original.
        viewed: 1 where a mirrored, turned or inverted query is compared; this and what follows
            are what the relation is free to do, and each freedom makes unrelated images agree
            better.
        moved: mean displacement of the corners from their places in the view, share of the side.
        enlarged: logarithm of the scale.
        stretched: logarithm of the ratio of the axes.
        turned: angle from the view, degrees.
        amount, matched, opposed, windows, textured: see ``detail.Detail``;
            these and what follows of a fine comparison only.
        replaced, added, hidden, exchanged, rewritten, typical, places: ``replaced``, ``added``,
            ``covered``, ``exchanged``, ``share``, ``typical`` and ``places`` of
            ``differences.Differences``.
        altered, altered_rest, altered_cells, altered_covered, altered_places: ``strength``,
            ``rest``, ``cells``, ``covered`` and number of ``boxes`` of
            ``alteration.Alteration``.
        plain: share of an image without any detail at all, the larger of both: paper, solid
            areas of a rendering, 0..1.
        close_side: long side of the frame of the fine comparison, pixels; -1 without one.
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
    identical: float = 0.0
    structure: float = 0.0
    agree: float = 0.0
    drift: float = 0.0
    blur: float = 0.0
    inliers: float = 0.0
    inverted: float = 0.0
    pixels: float = 0.0
    query_ratio: float = 1.0
    reference_ratio: float = 1.0
    agreement: float = 0.0
    directions: float = 0.0
    detail: float = 0.0
    palette: float = 0.0
    amount: float = 0.0
    matched: float = 0.0
    opposed: float = 1.0
    windows: float = 0.0
    textured: float = 0.0
    replaced: float = 0.0
    added: float = 0.0
    hidden: float = 0.0
    exchanged: float = 0.0
    rewritten: float = 1.0
    typical: float = 0.0
    places: float = 0.0
    altered: float = -6.0
    altered_rest: float = -6.0
    altered_cells: float = 0.0
    altered_covered: float = 0.0
    altered_places: float = 0.0
    plain: float = 0.0
    close_side: float = -1.0
    fine: float = 0.0
    middle: float = 0.0
    coarse: float = 0.0
    shapes: float = 0.0
    unlike: float = 1.0
    contrast: float = 0.0
    texture_amount: float = 0.0
    texture_mean: float = 0.0
    texture_typical: float = 0.0
    texture_tiles: float = 0.0
    texture_opposed: float = 0.0
    form_amount: float = 0.0
    form_mean: float = 0.0
    form_typical: float = 0.0
    form_tiles: float = 0.0
    form_opposed: float = 0.0
    viewed: float = 0.0
    moved: float = 0.0
    enlarged: float = 0.0
    stretched: float = 0.0
    turned: float = 0.0


#: Names of the checks, in the order in which they are stored.
CHECKS: Final = tuple(field.name for field in fields(Measures))

#: Drift (pixels) where nothing tells how much there is: that of images unlike each other.
UNKNOWN: Final = 3.0

#: What is measured where next to nothing overlaps.
NOTHING: Final = Measures(0, 0, 0, 0, 255, 0, 255, 0, 0, 1, 0, 0, 0, 128, 0, drift=UNKNOWN)


def square(pixels: Bytes8, side: int) -> npt.NDArray[np.float32]:
    """Return the image as a ``float32`` (side, side, 3) square, aspect ratio given up."""
    height, width = pixels.shape[:2]
    if (height, width) != (side, side):
        method = cv2.INTER_AREA if min(height, width) >= side else cv2.INTER_LINEAR
        pixels = np.asarray(cv2.resize(pixels, (side, side), interpolation=method), np.uint8)
    return pixels.astype(np.float32)


def grey(square: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the luminance of a square (s, s, 3), (s, s)."""
    return np.asarray(cv2.cvtColor(square, cv2.COLOR_RGB2GRAY), np.float32)
