"""The full check of tiny images: correlation is all there is to go by.

A pair is aligned from the placement that the screen found, or from the view alone where that agrees
better. A relation is judged by the tiles that agree: a bar of text or a border must not decide, and
for the same reason the tiles that agree least are left out of the alignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from visleak.records import Bool, Bytes8, Float32, Int64
from visleak.verification import align
from visleak.verification.align import Matrix
from visleak.verification.measures import NOTHING, Measures, grey, square
from visleak.verification.overlay import Overlays, measured

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

_STILL: Final = np.eye(3)
#: What is measured where next to nothing overlaps.
NOTHING_SEEN: Final = replace(NOTHING, side=float(SIDE))


@dataclass(frozen=True, slots=True)
class TinyPair:
    """A pair of tiny images to be checked."""

    query: Bytes8
    reference: Bytes8
    start: Matrix  # unit matrix of the placement that the screen found
    view: Matrix  # unit matrix of the view
    inverted: bool = False  # whether the query is compared inverted


def check_tiny(pairs: Sequence[TinyPair]) -> list[tuple[Measures, Matrix]]:
    """Return what is measured on pairs of tiny images, and their relations."""
    pairs = [
        replace(each, query=np.asarray(255 - each.query)) if each.inverted else each
        for each in pairs
    ]
    fits = _Fits.of(pairs)
    moved = np.flatnonzero([not (each.start == each.view).all() for each in pairs])
    fits.improve(moved, fits.view[moved])
    fits.refine()
    for turned in (False, True):
        fits.cut_out(pairs, turned=turned)
    result = [(NOTHING_SEEN, matrix) for matrix in fits.matrix]
    seen = np.flatnonzero(np.isfinite(fits.overlays.firm))
    free = [_freedom(fits.matrix[row], fits.view[row], pairs[row]) for row in seen]
    for row, measures in zip(seen, measured(fits.overlays.only(seen), free), strict=True):
        result[row] = measures, fits.matrix[row]
    return result


def compared(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two tiny images under a relation."""
    overlays = Overlays.of([square(query, SIDE)], square(reference, SIDE)[None], matrix[None])
    if not np.isfinite(overlays.firm[0]):
        return NOTHING_SEEN
    return measured(overlays)[0]


@dataclass(slots=True)
class _Fits:
    """The relations of pairs that agree best so far, a row per pair; see :func:`check_tiny`."""

    # squares of both images, RGB float32 (n, s, s, 3)
    query: Float32
    reference: Float32
    matrix: Matrix  # unit matrices of the relations (n, 3, 3)
    view: Matrix  # those of the views that the relations start from
    overlays: Overlays  # under the relations

    @classmethod
    def of(cls, pairs: Sequence[TinyPair]) -> _Fits:
        """Return the relations that the screen found."""
        query = np.stack([square(each.query, SIDE) for each in pairs])
        reference = np.stack([square(each.reference, SIDE) for each in pairs])
        matrix, view = np.stack([p.start for p in pairs]), np.stack([p.view for p in pairs])
        return cls(query, reference, matrix, view, Overlays.of(query, reference, matrix))

    def improve(self, rows: Int64, matrices: Matrix) -> None:
        """Replace relations of some pairs by others whose overlays agree better."""
        if len(rows):
            others = Overlays.of(self.query[rows], self.reference[rows], matrices)
            self._keep(rows, others, matrices, others.firm > self.overlays.firm[rows])

    def _keep(self, rows: Int64, others: Overlays, matrices: Matrix, better: Bool) -> None:
        self.overlays.put(rows[better], others.only(better))
        self.matrix[rows[better]] = matrices[better]

    def refine(self) -> None:
        """Refine the relations of pairs that agree enough, step by step."""
        active: Bool = np.ones(len(self.matrix), np.bool_)
        planes: dict[float, list[tuple[Float32, Float32] | None]] = {}
        for least, steps, blur, masked in REFINEMENTS:
            active &= self.overlays.firm >= least
            own = planes.setdefault(blur, [None] * len(active))
            agreeing = self.overlays.agreeing.astype(np.float32) if masked else None
            found = {}
            for row in np.flatnonzero(active).tolist():
                blurred = own[row] = own[row] or self._blurred(row, blur)
                back = align.inverse(self.matrix[row])
                mask = None if agreeing is None else align.warp(agreeing[row], back) > 0.5
                relation = align.refine(*blurred, self.matrix[row], steps, mask)
                if relation is not None:
                    found[row] = relation
            if found:
                self.improve(np.array(list(found)), np.stack(list(found.values())))

    def _blurred(self, row: int, blur: float) -> tuple[Float32, Float32]:
        sides = (self.query[row], self.reference[row])
        query, reference = (align.blurred(grey(each), blur) for each in sides)
        return query, reference

    def cut_out(self, pairs: Sequence[TinyPair], *, turned: bool) -> None:
        """Replace relations by the best places of one image within the other, where these agree.

        No pixel is resampled there: a crop stored as it was cut, and an image with a border, equal
        their original. As the images are, or in the view (``turned``): of a symmetrical image the
        view of a crop is a matter of chance. There are none where neither image fits into the
        other, and where the smaller one is blank. These relations had less freedom, so their
        gradients alone are compared.
        """
        found = {}
        for row, pair in enumerate(pairs):
            still = bool((pair.view == _STILL).all())
            if pair.query.shape == pair.reference.shape or (still and turned):
                continue
            relation = align.cut_out(pair.query, pair.reference, pair.view if turned else _STILL)
            if relation is not None:
                found[row] = relation
        if not found:
            return
        rows, matrices = np.array(list(found)), np.stack(list(found.values()))
        # both from their own pixels: two interpolations would not give the same values
        queries = [pairs[row].query.astype(np.float32) for row in found]
        grounds = [
            align.placed(pairs[row].reference.astype(np.float32), _STILL, SIDE) for row in found
        ]
        others = Overlays.of(queries, np.stack(grounds), matrices)
        better = others.core > self.overlays.core[rows]
        self._keep(rows, others, matrices, better)
        for row in rows[better].tolist():
            self.view[row] = pairs[row].view if turned else _STILL


def _freedom(matrix: Matrix, view: Matrix, pair: TinyPair) -> dict[str, float]:
    """Return what an affine relation does: ``viewed`` and so on of :class:`Measures`."""
    relation = matrix @ align.inverse(view)
    (a, b, x), (c, d, y) = relation[:2].tolist()
    corners = [(u, v) for u in (0, 1) for v in (0, 1)]
    moves = [abs(a * u + b * v + x - u) + abs(c * u + d * v + y - v) for u, v in corners]
    area = max(abs(a * d - b * c), 1e-6)
    # half the sum of the squared singular values over their product
    half = max(1.0, (a * a + b * b + c * c + d * d) / (2 * area))
    return {
        "inverted": float(pair.inverted),
        "viewed": float(pair.inverted or not (view == _STILL).all()),
        "moved": sum(moves) / 8,
        "enlarged": math.log(area) / 2,
        "stretched": math.acosh(half),
        "turned": math.degrees(abs(math.atan2(c - b, a + d))),
    }
