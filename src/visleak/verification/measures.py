"""What the full check measures on a pair, by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bytes8


@dataclass(frozen=True, slots=True)
class Measures:
    """What the full check measured on one pair."""

    grey: float  # correlation of grey values over the overlap, -1..1
    gradient: float  # correlation of gradients over the overlap, -1..1
    core: float  # the same without the quarter of the tiles that agrees least
    colour: float  # mean correlation of the three channels, -1..1
    # root mean square difference after fitting brightness and contrast, grey levels
    residual: float
    within: float  # share of the overlap whose fitted difference is below 16 grey levels
    patch: float  # largest root mean square difference in a tile of 1/16 of the image, grey levels
    covered: float  # share of the reference that the moved query covers, 0..1
    used: float  # share of the query that lies on the reference, 0..1
    # brightness of the reference is gain times the query's, plus offset levels
    gain: float
    offset: float
    tint: float  # largest difference of the mean colour of a channel after the grey fit, levels
    features: float  # 1 where local features found the relation
    side: float  # pixels of the squares that were compared, or of the longest side that would be
    exact: float  # 1 where the pixels are the same up to re-encoding, see exact.is_exact
    identical: float = 0.0  # 1 where all pixels are identical
    # mean correlation of small windows, -1..1; this and what follows of photographs only
    structure: float = 0.0
    agree: float = 0.0  # share of the windows with contrast whose correlation is at least 0.6, 0..1
    # displacement that is left between the images, upper quartile, pixels compared
    drift: float = 0.0
    blur: float = 0.0  # pixels by which the sharper image was blurred before comparing
    # number of local features that agree on the relation, 0 if it was not made by them
    inliers: float = 0.0
    # 1 where the reference is like the inverted query; gain and offset are of that
    inverted: float = 0.0
    pixels: float = 0.0  # number of pixels that were compared
    # width over height of either image
    query_ratio: float = 1.0
    reference_ratio: float = 1.0
    # mean of gradient and the same of damped gradients, less where little overlaps; this and what
    # follows of tiny images only
    agreement: float = 0.0
    # agreement of the directions of gradients, however weak, upper quartile of the tiles of 1/16 of
    # the image, 0 where a tile is not covered
    directions: float = 0.0
    detail: float = 0.0  # correlation of second derivatives over the overlap, -1..1
    # share of the colours' variance that an affine map of the query's colours explains
    palette: float = 0.0
    # see detail.Detail; these and what follows of a fine comparison only
    amount: float = 0.0
    matched: float = 0.0
    opposed: float = 1.0
    windows: float = 0.0
    textured: float = 0.0
    # replaced, added, covered, exchanged, share, typical and places of differences.Differences
    replaced: float = 0.0
    added: float = 0.0
    hidden: float = 0.0
    exchanged: float = 0.0
    rewritten: float = 1.0
    typical: float = 0.0
    places: float = 0.0
    # usual, largest, more, less, marks and swapped of differences.Outliers
    usual: float = 0.0
    outlier: float = 0.0
    alone_more: float = 0.0
    alone_less: float = 0.0
    alone_places: float = 0.0
    swapped: float = 0.0
    # strength, rest, untinted, cells and covered of alteration.Alteration
    altered: float = -6.0
    altered_rest: float = -6.0
    altered_untinted: float = -6.0
    altered_cells: float = 0.0
    altered_covered: float = 0.0
    # content, more and less of laid_over.LaidOver
    laid_content: float = -6.0
    laid_more: float = -6.0
    laid_less: float = -6.0
    # number of the boxes of either
    altered_places: float = 0.0
    # more and less of tints.Tints
    tinted_more: float = 0.0
    tinted_less: float = 0.0
    # share of an image without any detail at all, the larger of both: paper, solid areas of a
    # rendering, 0..1
    plain: float = 0.0
    # long side of the frame of the fine comparison, pixels; -1 without one
    close_side: float = -1.0
    # correlation of three bands of detail, each an octave, without the quarter of the tiles that
    # agrees least, -1..1
    fine: float = 0.0
    middle: float = 0.0
    coarse: float = 0.0
    shapes: float = 0.0  # correlation of the coarse band over all tiles, -1..1
    # share of the reference's variance in all channels that one gain and one offset of the query
    # leave, 0..1
    unlike: float = 1.0
    contrast: float = 0.0  # deviation of the reference's grey values over the overlap, levels
    # see texture.Texture, of the images as they are
    texture_amount: float = 0.0
    texture_mean: float = 0.0
    texture_typical: float = 0.0
    texture_tiles: float = 0.0
    texture_opposed: float = 0.0
    # the same of the blurred images, in which a reduced or compressed copy is like its original
    form_amount: float = 0.0
    form_mean: float = 0.0
    form_typical: float = 0.0
    form_tiles: float = 0.0
    form_opposed: float = 0.0
    # 1 where a mirrored, turned or inverted query is compared; this and what follows are what the
    # relation is free to do, and each freedom makes unrelated images agree better
    viewed: float = 0.0
    # mean displacement of the corners from their places in the view, share of the side
    moved: float = 0.0
    enlarged: float = 0.0  # logarithm of the scale
    stretched: float = 0.0  # logarithm of the ratio of the axes
    turned: float = 0.0  # angle from the view, degrees


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


def grey(image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the luminance (h, w) of an RGB ``float32`` image."""
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.float32)


def correlation(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    """Return the correlation of two planes of details, whose means are 0."""
    energies = float(np.vdot(one, one)) * float(np.vdot(other, other))
    return float(np.vdot(one, other)) / float(np.sqrt(energies + 1e-6))


def ratio(product: float, energies: float) -> float:
    """Return a correlation from its sums; 0 where one side does not vary."""
    scale = math.sqrt(energies)
    return float(product) / scale if scale > 1e-3 else 0.0
