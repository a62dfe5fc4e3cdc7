"""The measures of a pair, by name."""

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
    """The measures of one pair after alignment; their names are columns of the evidence."""

    grey: float  # correlation of grey values over the overlap, -1..1
    gradient: float  # correlation of gradients over the overlap, -1..1
    core: float  # gradient without the quarter of the tiles that agrees least
    colour: float  # mean correlation of the three channels, -1..1
    # root mean square difference after fitting brightness and contrast, grey levels
    residual: float
    within: float  # share of the overlap whose fitted difference is below 16 grey levels
    patch: float  # largest root mean square difference in a tile of 1/16 of the image, grey levels
    covered: float  # share of the reference that the query covers, 0..1
    used: float  # share of the query inside the reference, 0..1
    # brightness of the reference is gain times the query's, plus offset levels
    gain: float
    offset: float
    tint: float  # largest difference of the mean colour of a channel after the grey fit, levels
    features: float  # 1 if local features found the relation
    side: float  # side of the squares that were compared, or largest side of a frame, pixels
    exact: float  # 1 if the pixels are the same up to re-encoding, see exact.is_exact
    identical: float = 0.0  # 1 if all pixels are identical
    # -- large images only, down to ``pixels``; ``inverted`` also of tiny ones --
    # mean correlation of small windows, -1..1
    structure: float = 0.0
    agree: float = 0.0  # share of the windows with contrast whose correlation is at least 0.6, 0..1
    drift: float = 0.0  # remaining displacement of the windows, upper quartile, pixels
    blur: float = 0.0  # pixels by which the sharper image was blurred before comparing
    inliers: float = 0.0  # number of local features that agree on the relation, 0 without them
    inverted: float = 0.0  # 1 if gain and offset are those of the inverted query
    pixels: float = 0.0  # number of pixels that were compared
    # score of the check's relation if the images resemble each other under it (see large.score, at
    # least 0; 1 if exact), else -1; decides which pairs get a fine comparison, and which first
    alignment: float = -1.0
    # width over height of either image
    query_ratio: float = 1.0
    reference_ratio: float = 1.0
    # -- tiny images only, down to ``palette`` --
    # mean correlation of gradients and of damped gradients, reduced for small overlaps
    agreement: float = 0.0
    # agreement of the directions of gradients, upper quartile of the tiles of 1/16 of the image, 0
    # in tiles that are not covered
    directions: float = 0.0
    detail: float = 0.0  # correlation of second derivatives over the overlap, -1..1
    # share of the colour variance that an affine map of the query's colours explains, 0..1
    palette: float = 0.0
    # -- fine comparison only, down to ``close_side`` --
    # see detail.Detail
    amount: float = 0.0
    matched: float = 0.0
    opposed: float = 1.0
    windows: float = 0.0
    textured: float = 0.0
    # see differences.Differences: replaced, added, covered, exchanged, share, typical, places
    replaced: float = 0.0
    added: float = 0.0
    hidden: float = 0.0
    exchanged: float = 0.0
    rewritten: float = 1.0
    typical: float = 0.0
    places: float = 0.0
    # see differences.Outliers: usual, largest, more, less, marks, swapped
    usual: float = 0.0
    outlier: float = 0.0
    alone_more: float = 0.0
    alone_less: float = 0.0
    alone_places: float = 0.0
    swapped: float = 0.0
    # see alteration.Alteration: strength, rest, untinted, cells, covered
    altered: float = -6.0
    altered_rest: float = -6.0
    altered_untinted: float = -6.0
    altered_cells: float = 0.0
    altered_covered: float = 0.0
    # see markings.Markings: content, more, less
    laid_content: float = -6.0
    laid_more: float = -6.0
    laid_less: float = -6.0
    altered_places: float = 0.0  # number of boxes of alterations, or else of markings
    # see tints.Tints: more, less, recoloured
    tinted_more: float = 0.0
    tinted_less: float = 0.0
    recoloured: float = 0.0
    # share of an image without any detail (paper, solid areas of a rendering), the larger of both
    plain: float = 0.0
    # long side of the frame of the fine comparison, pixels; -1 without one
    close_side: float = -1.0
    # -- tiny images only --
    # correlation of three bands of detail, one octave each, without the quarter of the tiles that
    # agrees least, -1..1
    fine: float = 0.0
    middle: float = 0.0
    coarse: float = 0.0
    shapes: float = 0.0  # correlation of the coarse band over all tiles, -1..1
    flat: float = 0.0  # share of flat areas, the larger of both, 0..1; small in most photographs
    # share of the colour variance of the reference that one gain and offset do not explain, 0..1
    unlike: float = 1.0
    contrast: float = 0.0  # standard deviation of the reference's grey values, levels
    # see texture.Texture
    texture_amount: float = 0.0
    texture_mean: float = 0.0
    texture_typical: float = 0.0
    texture_tiles: float = 0.0
    texture_opposed: float = 0.0
    # the same for blurred images, in which reduced and compressed copies equal their original
    form_amount: float = 0.0
    form_mean: float = 0.0
    form_typical: float = 0.0
    form_tiles: float = 0.0
    form_opposed: float = 0.0
    # see unexplained.Unexplained, of luminance and of colour
    level_usual: float = 255.0
    level_beside: float = 255.0
    level_centre: float = 255.0
    tone_usual: float = 255.0
    tone_beside: float = 255.0
    tone_centre: float = 255.0
    # see unexplained.Recoded
    recoded_mean: float = 255.0
    recoded_typical: float = 255.0
    recoded_largest: float = 255.0
    # the freedom that the relation uses, which makes unrelated images agree better:
    viewed: float = 0.0  # 1 if the query is compared mirrored, turned or inverted
    moved: float = 0.0  # mean displacement of the corners relative to the view, share of the side
    enlarged: float = 0.0  # logarithm of the scale
    stretched: float = 0.0  # logarithm of the ratio of the axes
    turned: float = 0.0  # rotation relative to the view, degrees


#: Names of the measures, in the order in which they are stored.
CHECKS: Final = tuple(field.name for field in fields(Measures))
#: Drift of images without texture, pixels: that of different images.
UNKNOWN_DRIFT: Final = 3.0
#: Measures of a pair with next to no overlap.
NO_OVERLAP: Final = Measures(0, 0, 0, 0, 255, 0, 255, 0, 0, 1, 0, 0, 0, 128, 0, drift=UNKNOWN_DRIFT)


def square(pixels: Bytes8, side: int) -> npt.NDArray[np.float32]:
    """Return the image resized to a ``float32`` (side, side, 3) square."""
    height, width = pixels.shape[:2]
    if (height, width) != (side, side):
        method = cv2.INTER_AREA if min(height, width) >= side else cv2.INTER_LINEAR
        pixels = np.asarray(cv2.resize(pixels, (side, side), interpolation=method), np.uint8)
    return pixels.astype(np.float32)


def grey(image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the luminance (h, w) of an RGB ``float32`` image."""
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.float32)


def correlation(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    """Return the correlation of two planes whose means are 0."""
    energies = float(np.vdot(one, one)) * float(np.vdot(other, other))
    return float(np.vdot(one, other)) / float(np.sqrt(energies + 1e-6))


def ratio(product: float, energies: float) -> float:
    """Return a correlation from its sums, 0 for constant images."""
    scale = math.sqrt(energies)
    return float(product) / scale if scale > 1e-3 else 0.0
