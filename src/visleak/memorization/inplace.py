"""A second look at tiny pictures: do their colours agree where they lie?

Verification was fitted on photographs. Of drawings of 16 pixels it finds a relation under which
any two circles are near-duplicates: in a toy world of 6,012 training pictures it called 99 of 300
new ones near-duplicates of some training picture. A model that replays a picture replays it
upright, in place and in its colours, so tiny pictures count as copies only where these agree, with
and without their margins: of the 99 that leaves 18, most of them the same shape in the same place
in other colours, and of 96 damaged copies it leaves all (``benchmarks/layout_verdict.py``).
"""

from __future__ import annotations

from typing import Final

from visleak.records import VIEWS, Bytes8
from visleak.verify import tiny
from visleak.verify.align import view_matrix

#: Pictures up to this long side are tiny. No layout is told of these either: in a toy world of
#: drawings of 16 pixels, recoloured copies stand out no further than other drawings of the same
#: things.
TINY: Final = 48

#: Mean correlation of the colours of tiny pictures in place from which they are copies.
COLOURS: Final = 0.75

#: Share of a side that is left away at each end for the second comparison: a frame says nothing of
#: what it frames.
MARGIN: Final = 1 / 8


def is_tiny(pixels: Bytes8) -> bool:
    """Whether a picture is too small for what was fitted on photographs."""
    return bool(max(pixels.shape[:2]) <= TINY)


def in_place(query: Bytes8, reference: Bytes8, view: str = "original") -> float:
    """Return the mean correlation of the colours of two pictures in place, -1 to 1.

    Of the pictures as a whole and without their margins, whichever is lower.

    Args:
        query, reference: RGB ``uint8``.
        view: of the query that is compared.
    """
    if view == "inverted":
        query, view = 255 - query, "original"
    relation = view_matrix(VIEWS.index(view))
    whole = tiny.compared(query, reference, relation).colour
    inside = tiny.compared(_inner(query), _inner(reference), relation).colour
    return min(whole, inside)


def _inner(pixels: Bytes8) -> Bytes8:
    """Return a picture without its margins."""
    down, across = (round(side * MARGIN) for side in pixels.shape[:2])
    return pixels[down : len(pixels) - down, across : pixels.shape[1] - across]
