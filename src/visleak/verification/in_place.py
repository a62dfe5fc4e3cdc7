"""Two comparisons of images in place: colours of tiny images, and layouts whatever the colours.

Verification was fitted on photographs. Of drawings of 16 pixels it finds a relation under which any
two circles are near-duplicates: in a toy world of 6,012 training images it called 99 of 300 new
ones near-duplicates of some training image. A model that replays an image replays it upright, in
place and in its colours, so tiny images count as copies only where these agree, with and without
their margins: of the 99 that leaves 17, most of them the same shape in the same place in other
colours, and of 96 damaged copies it leaves all (``benchmarks/layout_verdict.py``).
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

#: Images up to this long side are tiny. No layout is told of these either: in a toy world of
#: drawings of 16 pixels, recoloured copies stand out no further than other drawings of the same
#: things.
TINY: Final = 48

#: Correlation of the colours of tiny images in place from which they are copies.
COLOURS: Final = 0.75

#: Side of the squares that are compared.
TINY_SIDE: Final = 32

#: Share of a side that is left away at each end for the second comparison: a frame says nothing of
#: what it frames.
MARGIN: Final = 1 / 8

#: Deviation (grey levels) below which what is framed is blank, and the largest difference of two
#: blank colours that are one.
BLANK: Final = 8.0
ONE_COLOUR: Final = 16.0

#: Version of the comparison: part of the digest of what is built on it.
VERSION: Final = 1


def is_tiny(pixels: Bytes8) -> bool:
    """Whether an image is too small for what was fitted on photographs."""
    return bool(max(pixels.shape[:2]) <= TINY)


def in_place(query: Bytes8, reference: Bytes8, view: str = "original") -> float:
    """Return the correlation of colours in place, -1 to 1: whole or without margins, the lower."""
    if view == "inverted":
        query, view = 255 - query, "original"
    relation = align.view_matrix(VIEWS.index(view))
    whole = align.warp(square(query, TINY_SIDE), relation), square(reference, TINY_SIDE)
    # cut before they are enlarged, or the frame would shine in
    framed = (
        align.warp(square(_inner(query), TINY_SIDE), relation),
        square(_inner(reference), TINY_SIDE),
    )
    if _one_blank(*framed):
        return _correlation(*whole)
    return min(_correlation(*whole), _correlation(*framed))


def _inner(pixels: Bytes8) -> Bytes8:
    down, across = (round(side * MARGIN) for side in pixels.shape[:2])
    return pixels[down : len(pixels) - down, across : pixels.shape[1] - across]


def _correlation(one: Float32, other: Float32) -> float:
    """Return the correlation over all channels, each less its own mean; 0 of a blank image."""
    ours, theirs = (each - each.mean((0, 1)) for each in (one, other))
    energy = float(np.vdot(ours, ours)) * float(np.vdot(theirs, theirs))
    return float(np.vdot(ours, theirs)) / energy**0.5 if energy > 1.0 else 0.0


def _one_blank(one: Float32, other: Float32) -> bool:
    apart = np.abs(one.mean((0, 1)) - other.mean((0, 1))).max()
    return bool(all(each.std((0, 1)).max() < BLANK for each in (one, other)) and apart < ONE_COLOUR)


# -- layouts --------------------------------------------------------------------------------------
# A memorized image is often one of many variants that differ in colours only (Hong et al. 2024,
# section 6): the model then replays the layout. Where the boundaries are, and which way they run,
# is what no recolouring changes; how strong they are, and which side is the brighter, changes with
# any. So images are reduced to directions of colour edges without sign or strength (the doubled
# angle of the colour structure tensor, Di Zenzo 1986; Bigun & Granlund 1987), correlated over all
# shifts, and the correlation in place is compared with those elsewhere: two different images of
# upright and level things agree a little at every shift.

Edges = npt.NDArray[np.complex64]

#: Side of the squares that are compared.
SIDE: Final = 64

#: Blur (pixels of the square) before gradients are taken.
BLUR: Final = 1.0

#: Gradients of this size (grey levels a pixel) have half the weight of the strongest.
NOISE: Final = 12.0

#: "In place" is a shift of at most this share of the side, "elsewhere" one of more than twice it.
PLACE: Final = 1 / 16

#: Layouts agree where the correlation in place stands out by this many standard deviations of those
#: elsewhere, and is this high. ``benchmarks/layout_verdict.py``: 95 to 99 % of recoloured and
#: replayed photographs do, and none of 31,125 pairs of different ones, which reach 6.0.
STANDS_OUT: Final = 8.5
AGREES: Final = 0.25

#: Mean difference of colours (CIE76) from which colours do not agree.
OTHER_COLOURS: Final = 10.0

#: Side of the grids by which layouts are looked for, and of the squares they are made of and
#: colours are compared at.
PRINT_SIDE: Final = 16
SMALL: Final = 32


def edges(pixels: Bytes8, side: int = SIDE) -> Edges:
    """Return directions of colour edges (side, side), without sign: twice the gradient's angle."""
    method = cv2.INTER_AREA if min(pixels.shape[:2]) >= side else cv2.INTER_LINEAR
    square = np.asarray(cv2.resize(pixels, (side, side), interpolation=method), np.float32)
    square = np.asarray(cv2.GaussianBlur(square, (0, 0), BLUR), np.float32)
    across = cv2.Sobel(square, cv2.CV_32F, 1, 0, ksize=3) / 4
    down = cv2.Sobel(square, cv2.CV_32F, 0, 1, ksize=3) / 4
    difference = (across * across - down * down).sum(2)
    product = 2 * (across * down).sum(2)
    tensor = difference + 1j * product
    return np.asarray(tensor / (np.abs(tensor) + NOISE**2), np.complex64)


def standing_out(one: Edges, other: Edges) -> tuple[float, float]:
    """Return how far two layouts agree in place, and how far that stands out.

    Returns the largest correlation (-1 to 1) over shifts of at most 1/16 of the side; and that
    minus the mean correlation over shifts of more than 1/8, in standard deviations of those. Both 0
    where an image has no edges.

    >>> rng = np.random.default_rng(0)
    >>> image = cv2.resize(rng.integers(0, 256, (8, 8, 3), np.uint8), (64, 64))
    >>> agreement, score = standing_out(edges(image), edges(255 - image))
    >>> round(agreement, 3), score > 8
    (1.0, True)
    """
    energy = float(np.vdot(one, one).real * np.vdot(other, other).real)
    if energy <= 1e-6:
        return 0.0, 0.0
    spectrum = np.fft.fft2(one) * np.conj(np.fft.fft2(other))
    correlation = np.fft.ifft2(spectrum).real / np.sqrt(energy)
    near, far = _places(one.shape[0])
    agreement, elsewhere = float(correlation[near].max()), correlation[far]
    return agreement, float((agreement - elsewhere.mean()) / (elsewhere.std() + 1e-6))


def _places(side: int) -> tuple[Bool, Bool]:
    """Return which cyclic shifts are in place and which elsewhere, (side, side) each."""
    steps = np.minimum(np.arange(side), side - np.arange(side))
    away = np.maximum(steps[:, None], steps[None, :])
    reach = round(side * PLACE)
    return away <= reach, away > 2 * reach


def same_layout(agreement: float, score: float) -> bool:
    """Whether :func:`standing_out` says that two images have one layout."""
    return score >= STANDS_OUT and agreement >= AGREES


def colour_difference(one: Bytes8, other: Bytes8) -> float:
    """Return the mean difference of colours in place at 32 x 32 (CIE76), 0 to 100 and more."""
    squares = []
    for pixels in (one, other):
        method = cv2.INTER_AREA if min(pixels.shape[:2]) >= SMALL else cv2.INTER_LINEAR
        square = cv2.resize(pixels, (SMALL, SMALL), interpolation=method)
        squares.append(cv2.cvtColor(square.astype(np.float32) / 255, cv2.COLOR_RGB2LAB))
    return float(np.linalg.norm(squares[0] - squares[1], axis=2).mean())


class LayoutPrints:
    """Fingerprints whose cosine is the correlation of edges at 16 x 16, whatever the colours."""

    name = "layout"
    digest = f"layout 1 {PRINT_SIDE} {BLUR:g} {NOISE:g}"
    width = 2 * PRINT_SIDE**2
    enough = 2 * SMALL
    batch = 256
    thresholds = None

    def encode(self, images: Sequence[Bytes8]) -> Float32:
        """Return a row per image (n, 512)."""
        rows = np.empty((len(images), self.width), np.float32)
        for row, pixels in zip(rows, images, strict=True):
            # the strength of edges is smoothed over a cell of the grid, so that small shifts count
            # little
            fine = edges(pixels, SMALL)
            cells = fine.reshape(PRINT_SIDE, 2, PRINT_SIDE, 2).mean((1, 3)).ravel()
            row[: len(cells)], row[len(cells) :] = cells.real, cells.imag
        return rows
