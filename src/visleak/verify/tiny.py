"""The full check of tiny images: correlation is all there is to go by.

A pair is aligned from the placement that the screen found, or from the view alone where that agrees
better. A relation is judged by the tiles that agree: a bar of text or a border must not decide, and
for the same reason the tiles that agree least are left out of the alignment.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from visleak.records import Bytes8, Float32
from visleak.verify import align
from visleak.verify.align import Matrix
from visleak.verify.measures import NOTHING, Measures, grey, square
from visleak.verify.overlay import Overlay, measured

#: Side of the squares that are compared.
SIDE: Final = 32

#: Refinements of the relation: agreement without the worst tiles from which each is worth its time,
#: steps, blur (pixels), and whether the tiles that agree least are left out.
REFINEMENTS: Final = (
    (0.2, 15, align.BLUR, False),
    (0.5, 15, align.BLUR, True),
    (0.6, 25, 0.5, False),
    (0.6, 25, 0.5, True),
)

#: What is measured where next to nothing overlaps.
NOTHING_SEEN: Final = replace(NOTHING, side=float(SIDE))


def check_tiny(
    query: Bytes8, reference: Bytes8, start: Matrix, view: Matrix, *, inverted: bool = False
) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair of tiny images, and their relation.

    Args:
        query, reference: RGB ``uint8`` images.
        start: unit matrix to begin from: view and placement.
        view: unit matrix of the view alone.
        inverted: whether the inverted query is compared.
    """
    squares = square(255 - query if inverted else query, SIDE), square(reference, SIDE)
    best = Overlay.of(*squares, start), start
    if not (start == view).all():
        best = _better(best, (Overlay.of(*squares, view), view))
    for least, steps, blur, masked in REFINEMENTS:
        if best[0] is None or best[0].firm < least:
            break
        relation = _refined(squares, best[0] if masked else None, best[1], steps, blur)
        if relation is not None:
            best = _better(best, (Overlay.of(*squares, relation), relation))
    overlay, matrix = best
    if overlay is None:
        return NOTHING_SEEN, matrix
    viewed = float(inverted or not (view == np.eye(3)).all())
    measures = measured(overlay, inverted=inverted)
    return replace(measures, viewed=viewed, **_freedom(matrix @ align.inverse(view))), matrix


def compared(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two tiny pictures under a relation."""
    overlay = Overlay.of(square(query, SIDE), square(reference, SIDE), matrix)
    return NOTHING_SEEN if overlay is None else measured(overlay)


def _freedom(relation: Matrix) -> dict[str, float]:
    """Return what an affine relation does: ``moved`` and so on of :class:`Measures`."""
    (a, b, x), (c, d, y) = relation[:2].tolist()
    corners = [(u, v) for u in (0, 1) for v in (0, 1)]
    moves = [abs(a * u + b * v + x - u) + abs(c * u + d * v + y - v) for u, v in corners]
    area = max(abs(a * d - b * c), 1e-6)
    # half the sum of the squared singular values over their product
    half = max(1.0, (a * a + b * b + c * c + d * d) / (2 * area))
    return {
        "moved": sum(moves) / 8,
        "enlarged": math.log(area) / 2,
        "stretched": math.acosh(half),
        "turned": math.degrees(abs(math.atan2(c - b, a + d))),
    }


def _refined(
    squares: tuple[Float32, Float32],
    overlay: Overlay | None,
    relation: Matrix,
    steps: int,
    blur: float,
) -> Matrix | None:
    """Return the relation near another that correlates best, where an overlay agrees."""
    query, reference = (align.blurred(grey(each), blur) for each in squares)
    agreeing = None
    if overlay is not None:
        agreeing = align.warp(overlay.agreeing, align.inverse(relation)) > 0.5
    return align.refine(query, reference, relation, steps, agreeing)


def _better(
    best: tuple[Overlay | None, Matrix], other: tuple[Overlay | None, Matrix]
) -> tuple[Overlay | None, Matrix]:
    """Return the relation whose overlay agrees better, the first one where both do."""
    if other[0] is None:
        return best
    return other if best[0] is None or other[0].firm > best[0].firm else best
