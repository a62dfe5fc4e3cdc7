"""The full check of tiny pictures: correlation is all there is to go by.

A pair is aligned from the view and shift that the search found. Where that makes it look
promising, or its fingerprints do, other scales and shifts are tried as well: a crop or a stretch
at 32 pixels leads the simple way astray, and most pairs are not worth the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from visleak.records import Bytes8, Float32
from visleak.verify import align
from visleak.verify.align import Matrix
from visleak.verify.measures import NOTHING, Measures, grey, square
from visleak.verify.overlay import Overlay, measured
from visleak.verify.starts import starts

#: Side of the squares that are compared.
SIDE: Final = 32

#: Agreement of directions from which a pair is worth a search for better relations.
PROMISING: Final = 0.64

#: Relations that are tried then, and steps of their refinement.
TRIED: Final = 1
STEPS: Final = 12
LAST_STEPS: Final = 25

#: Blur (pixels) before the last refinement, when little is left to find.
LAST_BLUR: Final = 0.5

#: What is measured where next to nothing overlaps.
NOTHING_SEEN: Final = replace(NOTHING, side=float(SIDE))


def check_tiny(
    query: Bytes8,
    reference: Bytes8,
    start: Matrix,
    view: Matrix,
    *,
    inverted: bool = False,
    hopeful: bool = False,
) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair of tiny pictures, and their relation.

    Args:
        query, reference: RGB ``uint8`` pictures.
        start: unit matrix to begin from: view and shift.
        view: unit matrix of the view alone.
        inverted: whether the inverted query is compared.
        hopeful: search for better relations even where the first one does not look promising.
    """
    squares = square(255 - query if inverted else query, SIDE), square(reference, SIDE)
    greys = grey(squares[0]), grey(squares[1])
    matrix = align.by_correlation(*greys, start)
    overlay = Overlay.of(*squares, matrix)
    if hopeful or (overlay is not None and overlay.directions >= PROMISING):
        overlay, matrix = _searched(squares, greys, view, (overlay, matrix))
    return (NOTHING_SEEN if overlay is None else measured(overlay, inverted=inverted)), matrix


def compared(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two tiny pictures under a relation."""
    overlay = Overlay.of(square(query, SIDE), square(reference, SIDE), matrix)
    return NOTHING_SEEN if overlay is None else measured(overlay)


def _searched(
    squares: tuple[Float32, Float32],
    greys: tuple[Float32, Float32],
    view: Matrix,
    begun: tuple[Overlay | None, Matrix],
) -> tuple[Overlay | None, Matrix]:
    """Return the overlay that agrees best among those of several scales and shifts."""
    relations = [start @ view for start in starts(align.warp(greys[0], view), greys[1], TRIED)]
    query, reference = (align.blurred(grey_square) for grey_square in greys)
    refined = [align.refine(query, reference, relation, STEPS) for relation in relations]
    # refining may also lead away: what was found first stands beside it
    best = _better(squares, begun, [*relations, *refined])
    query, reference = (align.blurred(grey_square, LAST_BLUR) for grey_square in greys)
    return _better(squares, best, [align.refine(query, reference, best[1], LAST_STEPS)])


def _better(
    squares: tuple[Float32, Float32],
    best: tuple[Overlay | None, Matrix],
    relations: Sequence[Matrix | None],
) -> tuple[Overlay | None, Matrix]:
    """Return the best overlay so far or a better one."""
    agreement = best[0].agreement if best[0] is not None else -1.0
    for relation in relations:
        overlay = None if relation is None else Overlay.of(*squares, relation)
        if relation is not None and overlay is not None and overlay.agreement > agreement:
            best, agreement = (overlay, relation), overlay.agreement
    return best
