"""Comparisons without alignment: colours of tiny images, and layouts for any colours.

Verification was fitted on photographs. For drawings of 16 pixels it finds a relation under which
any two circles are near-duplicates: in a toy world of 6,012 training images, it called 99 of 300
new images near-duplicates of a training image. A model reproduces an image upright, in place and in
its colours, so tiny images count as copies only if their colours agree in place, with and without
margins: 17 of the 99 remain, most of them the same shape in other colours, and all of 96 damaged
copies (``benchmarks/layout_verdict.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import VIEWS, Bool, Bytes8, Float32
from visleak.verification import align
from visleak.verification.measures import square

#: Largest long side of tiny images. Their layouts are not compared: in a toy world of drawings of
#: 16 pixels, the scores of recoloured copies and of other drawings of the same objects overlap.
TINY: Final = 48

#: Smallest colour correlation of tiny images that are copies.
COLOURS: Final = 0.75

#: Side of the squares that are compared.
TINY_SIDE: Final = 32

#: Share of a side that is cropped at each end for the second comparison, because different images
#: may have the same frame.
MARGIN: Final = 1 / 8

#: Standard deviation (grey levels) below which a cropped image is blank, and largest difference of
#: two blank images of one colour.
BLANK: Final = 8.0
ONE_COLOUR: Final = 16.0

#: Version of the comparison: part of the digests of results that use it.
VERSION: Final = 1


def is_tiny(pixels: Bytes8) -> bool:
    """Whether an image is too small for verification fitted on photographs."""
    return bool(max(pixels.shape[:2]) <= TINY)


def colour_correlation(query: Bytes8, reference: Bytes8, view: str = "original") -> float:
    """Return the correlation of colours in place, -1..1: with or without margins, the lower."""
    if view == "inverted":
        query, view = 255 - query, "original"
    relation = align.view_matrix(VIEWS.index(view))
    whole = align.warp(square(query, TINY_SIDE), relation), square(reference, TINY_SIDE)
    # cropped before they are enlarged, which would blend the frame in
    cropped = (
        align.warp(square(_inner(query), TINY_SIDE), relation),
        square(_inner(reference), TINY_SIDE),
    )
    if _same_blank(*cropped):
        return _correlation(*whole)
    return min(_correlation(*whole), _correlation(*cropped))


def _inner(pixels: Bytes8) -> Bytes8:
    down, across = (round(side * MARGIN) for side in pixels.shape[:2])
    return pixels[down : len(pixels) - down, across : pixels.shape[1] - across]


def _correlation(one: Float32, other: Float32) -> float:
    """Return the correlation over all channels, each minus its own mean; 0 for blank images."""
    ours, theirs = (each - each.mean((0, 1)) for each in (one, other))
    energy = float(np.vdot(ours, ours)) * float(np.vdot(theirs, theirs))
    return float(np.vdot(ours, theirs)) / energy**0.5 if energy > 1.0 else 0.0


def _same_blank(one: Float32, other: Float32) -> bool:
    """Whether both images are blank and have the same colour."""
    apart = np.abs(one.mean((0, 1)) - other.mean((0, 1))).max()
    return bool(all(each.std((0, 1)).max() < BLANK for each in (one, other)) and apart < ONE_COLOUR)


# -- layouts --------------------------------------------------------------------------------------
# A memorized image is often one of many variants that differ in colours only (Hong et al. 2024,
# section 6): the model then reproduces the layout. Recolouring changes the strength of edges and
# their brighter side, but neither position nor orientation. Images are therefore reduced to the
# orientation of colour edges (the doubled angle of the colour structure tensor, Di Zenzo 1986;
# Bigun & Granlund 1987) and correlated over all shifts. The correlation in place is compared with
# those at other shifts, because different images of upright and level objects correlate a little
# at every shift.

Edges = npt.NDArray[np.complex64]

#: Side of the squares that are compared.
SIDE: Final = 64

#: Blur (pixels of the square) before gradients are taken.
BLUR: Final = 1.0

#: Gradient (grey levels per pixel) at which an edge has half the weight of the strongest edges.
NOISE: Final = 12.0

#: Largest shift "in place", as a share of the side; other shifts are larger than twice that.
PLACE: Final = 1 / 16

#: Smallest score and smallest correlation in place of images with the same layout. 95 to 99 % of
#: recoloured and reproduced photographs reach both; none of 31,125 pairs of different photographs
#: does, whose scores are up to 6.0 (``benchmarks/layout_verdict.py``).
SAME_LAYOUT: Final = 8.5
AGREES: Final = 0.25

#: Mean difference of colours (CIE76) from which colours do not agree.
OTHER_COLOURS: Final = 10.0

#: Side of the grid of layout vectors, and of the squares for these and for colours.
GRID_SIDE: Final = 16
SMALL: Final = 32


def edge_orientations(pixels: Bytes8, side: int = SIDE) -> Edges:
    """Return the orientations of colour edges (side, side): twice the angle of the gradient."""
    smooth = cv2.GaussianBlur(square(pixels, side), (0, 0), BLUR)
    across = cv2.Sobel(smooth, cv2.CV_32F, 1, 0, ksize=3) / 4
    down = cv2.Sobel(smooth, cv2.CV_32F, 0, 1, ksize=3) / 4
    difference = (across * across - down * down).sum(2)
    product = 2 * (across * down).sum(2)
    tensor = difference + 1j * product
    return np.asarray(tensor / (np.abs(tensor) + NOISE**2), np.complex64)


def layout_agreement(one: Edges, other: Edges) -> tuple[float, float]:
    """Return the correlation of two layouts in place, and its score.

    The correlation (-1..1) is the largest over shifts of at most 1/16 of the side. The score is the
    difference from the mean correlation over shifts of more than 1/8, in standard deviations of
    these. Both are 0 for images without edges.

    >>> rng = np.random.default_rng(0)
    >>> image = cv2.resize(rng.integers(0, 256, (8, 8, 3), np.uint8), (64, 64))
    >>> one, other = edge_orientations(image), edge_orientations(255 - image)
    >>> agreement, score = layout_agreement(one, other)
    >>> round(agreement, 3), score > 8
    (1.0, True)
    """
    energy = float(np.vdot(one, one).real * np.vdot(other, other).real)
    if energy <= 1e-6:
        return 0.0, 0.0
    spectrum = np.fft.fft2(one) * np.conj(np.fft.fft2(other))
    correlation = np.fft.ifft2(spectrum).real / np.sqrt(energy)
    near, far = _shifts(one.shape[0])
    agreement, others = float(correlation[near].max()), correlation[far]
    return agreement, float((agreement - others.mean()) / (others.std() + 1e-6))


def _shifts(side: int) -> tuple[Bool, Bool]:
    """Return the masks of cyclic shifts in place and of other shifts, (side, side) each."""
    steps = np.minimum(np.arange(side), side - np.arange(side))
    away = np.maximum(steps[:, None], steps[None, :])
    reach = round(side * PLACE)
    return away <= reach, away > 2 * reach


def same_layout(agreement: float, score: float) -> bool:
    """Whether two images have the same layout, by their :func:`layout_agreement`."""
    return score >= SAME_LAYOUT and agreement >= AGREES


def colour_difference(one: Bytes8, other: Bytes8) -> float:
    """Return the mean difference of colours in place at 32 x 32 (CIE76), from 0."""
    ours, theirs = (
        cv2.cvtColor(square(pixels, SMALL) / 255, cv2.COLOR_RGB2LAB) for pixels in (one, other)
    )
    return float(np.linalg.norm(ours - theirs, axis=2).mean())


class LayoutEncoder:
    """Encoder whose cosine is the correlation of edge orientations at 16 x 16."""

    name = "layout"
    digest = f"layout 1 {GRID_SIDE} {BLUR:g} {NOISE:g}"
    width = 2 * GRID_SIDE**2
    enough = 2 * SMALL
    batch = 256
    thresholds = None

    def encode(self, images: Sequence[Bytes8]) -> Float32:
        """Return one row per image (n, 512)."""
        rows = np.empty((len(images), self.width), np.float32)
        for row, pixels in zip(rows, images, strict=True):
            # means over the cells of the grid reduce the effect of small shifts
            fine = edge_orientations(pixels, SMALL)
            cells = fine.reshape(GRID_SIDE, 2, GRID_SIDE, 2).mean((1, 3)).ravel()
            row[: len(cells)], row[len(cells) :] = cells.real, cells.imag
        return rows
