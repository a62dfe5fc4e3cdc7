"""The full check of tiny images: correlation is all there is to go by.

A pair is aligned from the placement that the screen found, or from the view alone where that agrees
better. A relation is judged by the tiles that agree: a bar of text or a border must not decide, and
for the same reason the tiles that agree least are left out of the alignment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np

from visleak.records import Bytes8, Float32
from visleak.verification import align
from visleak.verification.align import Matrix
from visleak.verification.measures import NOTHING, Measures, grey, square
from visleak.verification.overlay import Overlay, measured

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
#: Deviation of grey values, levels, below which an image is not searched for within another.
BLANK: Final = 1.0

_STILL: Final = np.eye(3)
#: What is measured where next to nothing overlaps.
NOTHING_SEEN: Final = replace(NOTHING, side=float(SIDE))


def check_tiny(
    query: Bytes8, reference: Bytes8, start: Matrix, view: Matrix, *, inverted: bool = False
) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair of tiny images, and their relation."""
    query = np.asarray(255 - query) if inverted else query
    squares = square(query, SIDE), square(reference, SIDE)
    best = _Fit(Overlay.of(*squares, start), start, view)
    if not (start == view).all():
        best = best.better(_Fit(Overlay.of(*squares, view), view, view))
    for least, steps, blur, masked in REFINEMENTS:
        if best.overlay is None or best.overlay.firm < least:
            break
        relation = _refined(squares, best.overlay if masked else None, best.matrix, steps, blur)
        if relation is not None:
            best = best.better(_Fit(Overlay.of(*squares, relation), relation, view))
    for within in _within(query, reference, view):
        best = best.better(within, simpler=True)
    if best.overlay is None:
        return NOTHING_SEEN, best.matrix
    viewed = float(inverted or not (best.view == _STILL).all())
    measures = measured(best.overlay, inverted=inverted)
    freedom = _freedom(best.matrix @ align.inverse(best.view))
    return replace(measures, viewed=viewed, **freedom), best.matrix


def compared(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two tiny images under a relation."""
    overlay = Overlay.of(square(query, SIDE), square(reference, SIDE), matrix)
    return NOTHING_SEEN if overlay is None else measured(overlay)


@dataclass(frozen=True, slots=True)
class _Fit:
    """A relation, and the overlay under it."""

    overlay: Overlay | None  # None where little overlaps
    matrix: Matrix  # unit matrix
    view: Matrix  # unit matrix of the view that the relation starts from

    def better(self, other: _Fit, *, simpler: bool = False) -> _Fit:
        """Return the fit whose overlay agrees better, this one where both do.

        Of a simpler fit, which had less freedom, the gradients alone are compared.
        """
        if self.overlay is None or other.overlay is None:
            return self if other.overlay is None else other
        if simpler:
            return other if other.overlay.core > self.overlay.core else self
        return other if other.overlay.firm > self.overlay.firm else self


def _within(query: Bytes8, reference: Bytes8, view: Matrix) -> Iterator[_Fit]:
    """Yield the best places of one image within the other at which no pixel is resampled.

    A crop stored as it was cut, and an image with a border, equal their original there. As the
    images are and in the view: of a symmetrical image the view of a crop is a matter of chance.
    There are none where neither image fits into the other, and where the smaller one is blank.
    """
    if query.shape == reference.shape:
        return
    for turn in (view,) if (view == _STILL).all() else (_STILL, view):
        relation = _cut_out(query, reference, turn)
        if relation is not None:
            # both from their own pixels: two interpolations would not give the same values
            ground = align.placed(reference.astype(np.float32), _STILL, SIDE)
            overlay = Overlay.of(query.astype(np.float32), ground, relation)
            yield _Fit(overlay, relation, turn)


def _cut_out(query: Bytes8, reference: Bytes8, view: Matrix) -> Matrix | None:
    """Return the shift by whole pixels at which an image within the other correlates best."""
    turned, to_pixels = _turned(query, view)
    spare = np.subtract(reference.shape[:2], turned.shape[:2])
    if spare.min() * spare.max() < 0:
        return None
    sides = [cv2.cvtColor(side, cv2.COLOR_RGB2GRAY) for side in (turned, reference)]
    larger, smaller = sides if spare.min() < 0 else sides[::-1]
    if smaller.std() < BLANK:
        return None
    found = cv2.matchTemplate(larger, smaller, cv2.TM_CCOEFF_NORMED)
    down, across = divmod(int(found.argmax()), found.shape[1])
    sign = -1 if spare.min() < 0 else 1
    shift = align.shift_matrix(sign * across, sign * down)
    height, width = reference.shape[:2]
    return np.asarray(align.inverse(align.unit_to_pixels(width, height)) @ shift @ to_pixels)


def _turned(query: Bytes8, view: Matrix) -> tuple[Bytes8, Matrix]:
    """Return an image in a view, and the matrix from its unit coordinates to those pixels."""
    height, width = query.shape[:2]
    size = (width, height) if view[0, 0] != 0 else (height, width)
    to_pixels = align.unit_to_pixels(*size) @ view
    if (view == _STILL).all():
        return query, to_pixels
    pixels = to_pixels @ align.inverse(align.unit_to_pixels(width, height))
    turned = cv2.warpAffine(query, pixels[:2], size, flags=cv2.INTER_NEAREST)
    return np.asarray(turned, np.uint8), to_pixels


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
