"""A second check of tiny images: do their colours agree where they lie?

Verification was fitted on photographs. Of drawings of 16 pixels it finds a relation under which
any two circles are near-duplicates: in a toy world of 6,012 training images it called 99 of 300
new ones near-duplicates of some training image. A model that replays an image replays it
upright, in place and in its colours, so tiny images count as copies only where these agree, with
and without their margins: of the 99 that leaves 17, most of them the same shape in the same place
in other colours, and of 96 damaged copies it leaves all (``benchmarks/layout_verdict.py``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.records import VIEWS, Bytes8, Float32
from visleak.verification import align
from visleak.verification.measures import square

#: Images up to this long side are tiny. No layout is told of these either: in a toy world of
#: drawings of 16 pixels, recoloured copies stand out no further than other drawings of the same
#: things.
TINY: Final = 48

#: Correlation of the colours of tiny images in place from which they are copies.
COLOURS: Final = 0.75

#: Side of the squares that are compared.
SIDE: Final = 32

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
    """Return the correlation of the colours of two images in place, -1 to 1.

    Of the images as a whole and without their margins, whichever is lower. All channels count
    together, so that one which does not vary has no say. Where both images without their margins
    are blank and of one colour, the whole decides.
    """
    if view == "inverted":
        query, view = 255 - query, "original"
    relation = align.view_matrix(VIEWS.index(view))
    whole = align.warp(square(query, SIDE), relation), square(reference, SIDE)
    # cut before they are enlarged, or the frame would shine in
    framed = align.warp(square(_inner(query), SIDE), relation), square(_inner(reference), SIDE)
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
