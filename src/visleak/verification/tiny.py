"""The full check of tiny images, which are aligned by correlation alone.

A pair is aligned from the placement that the screen found, or from the view alone if that agrees
better. The tiles that agree least are ignored when a relation is scored or refined, so that a bar
of text or a border has little influence. Where the images agree, their pixels decide between this
relation and simpler ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Bytes8, Float32, Int64
from visleak.verification import align
from visleak.verification.align import Matrix
from visleak.verification.image_pair import ImagePair
from visleak.verification.measures import NO_OVERLAP, Measures, grey, square
from visleak.verification.tiny_overlaps import TinyOverlaps
from visleak.verification.unexplained import recoded

#: Side of the squares that are compared.
SIDE: Final = 32
#: Refinements of the relation: least agreement without the worst tiles for which each is made,
#: steps, blur (pixels), and whether the tiles that agree least are masked.
REFINEMENTS: Final = (
    (0.2, 15, align.BLUR, False),
    (0.5, 15, align.BLUR, True),
    (0.7, 25, 0.5, False),
    (0.7, 25, 0.5, True),
)

#: Correlation of the gradients, without the worst tiles, from which a pair is compared after
#: compression as well.
AGREES: Final = 0.7
#: Least and greatest angle of a rotation about the centre that is tried, and what is tried beside
#: the angle of the relation, degrees.
TURNS: Final = (1.5, 20.0)
TURNS_BESIDE: Final = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
#: Largest range of the grey values around a pixel of a flat area, levels.
FLAT_RANGE: Final = 2

#: Measures of pairs with next to no overlap.
TINY_NO_OVERLAP: Final = replace(NO_OVERLAP, side=float(SIDE))

_IDENTITY: Final = np.eye(3)


def check_tiny(pairs: Sequence[ImagePair]) -> list[tuple[Measures, Matrix]]:
    """Return the measures of pairs of tiny images, and their relations."""
    pairs = [
        replace(each, query=np.asarray(255 - each.query)) if each.inverted else each
        for each in pairs
    ]
    fits = _Fits.of(pairs)
    moved = np.flatnonzero((fits.matrix != fits.view).any(axis=(1, 2)))
    fits.improve(moved, fits.view[moved])
    fits.refine()
    for turned in (False, True):
        fits.locate(pairs, turned=turned)
    measured = fits.measures(pairs, np.flatnonzero(np.isfinite(fits.overlaps.firm)))
    fits.settle(pairs, measured)
    return [
        (measured.get(row) or replace(TINY_NO_OVERLAP, **pair.ratios), fits.matrix[row])
        for row, pair in enumerate(pairs)
    ]


def measure(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two tiny images under a relation."""
    overlaps = TinyOverlaps.of([square(query, SIDE)], square(reference, SIDE)[None], matrix[None])
    if not np.isfinite(overlaps.firm[0]):
        return TINY_NO_OVERLAP
    measures = overlaps.measures([{"flat": _flat(query, reference)}])[0]
    return _recoded(measures, query, reference, matrix)


def _recoded(measures: Measures, query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return measures with the differences that compression of one image leaves."""
    found = recoded(query, reference, matrix, (measures.gain, measures.offset))
    values = {f"recoded_{each.name}": getattr(found, each.name) for each in fields(found)}
    return replace(measures, **values)


@dataclass(slots=True)
class _Fits:
    """The best relations of pairs so far, one row per pair; see :func:`check_tiny`."""

    # squares of both images, RGB float32 (n, s, s, 3)
    query: Float32
    reference: Float32
    matrix: Matrix  # relations, matrices in unit coordinates (n, 3, 3)
    view: Matrix  # relations of the views from which they start (n, 3, 3)
    overlaps: TinyOverlaps  # under the relations

    @classmethod
    def of(cls, pairs: Sequence[ImagePair]) -> _Fits:
        """Return the relations that the screen found."""
        query = np.stack([square(each.query, SIDE) for each in pairs])
        reference = np.stack([square(each.reference, SIDE) for each in pairs])
        matrix, view = np.stack([p.start for p in pairs]), np.stack([p.view_matrix for p in pairs])
        return cls(query, reference, matrix, view, TinyOverlaps.of(query, reference, matrix))

    def improve(self, rows: Int64, matrices: Matrix) -> None:
        """Replace the relations of some pairs where others agree better."""
        if len(rows):
            others = TinyOverlaps.of(self.query[rows], self.reference[rows], matrices)
            self._replace(rows, others, matrices, others.firm > self.overlaps.firm[rows])

    def _replace(self, rows: Int64, others: TinyOverlaps, matrices: Matrix, better: Bool) -> None:
        self.overlaps.put(rows[better], others.only(better))
        self.matrix[rows[better]] = matrices[better]

    def measures(self, pairs: Sequence[ImagePair], rows: Int64) -> dict[int, Measures]:
        """Return the measures of some pairs, by row."""
        if not len(rows):
            return {}
        known = [
            _freedom(self.matrix[row], self.view[row], pairs[row])
            | {"flat": _flat(pairs[row].query, pairs[row].reference)}
            | pairs[row].ratios
            for row in rows
        ]
        overlaps = self.overlaps.only(rows)
        found = dict(zip(rows.tolist(), overlaps.measures(known), strict=True))
        for row in rows[overlaps.core >= AGREES].tolist():
            pair = pairs[row]
            found[row] = _recoded(found[row], pair.query, pair.reference, self.matrix[row])
        return found

    def settle(self, pairs: Sequence[ImagePair], measured: dict[int, Measures]) -> None:
        """Replace relations, and their measures, by others under which the pixels differ less.

        Images with few edges, such as flags, agree as well if they are shifted along an edge; and
        affine relations follow the black corners of a turned image.
        """
        agree = np.flatnonzero(self.overlaps.core >= AGREES)
        viewed = agree[(self.view[agree] != _IDENTITY).any(axis=(1, 2))]
        for rows, views in (
            (agree, self.view[agree]),
            (viewed, np.tile(_IDENTITY, (len(viewed), 1, 1))),
        ):
            self._settle(pairs, rows, views, views, measured)
        found = (
            (row, _turn(pairs[row], self.matrix[row], self.view[row])) for row in agree.tolist()
        )
        turns = {row: turn for row, turn in found if turn is not None}
        if turns:
            rows = np.array(list(turns))
            self._settle(pairs, rows, np.stack(list(turns.values())), self.view[rows], measured)

    def _settle(
        self, pairs: Sequence[ImagePair], rows: Int64, matrices: Matrix, views: Matrix,
        measured: dict[int, Measures],
    ) -> None:  # fmt: skip
        changed = (self.matrix[rows] != matrices).any(axis=(1, 2))
        rows, matrices, views = rows[changed], matrices[changed], views[changed]
        if not len(rows):
            return
        others = TinyOverlaps.of(self.query[rows], self.reference[rows], matrices)
        agree = others.core >= AGREES
        rows, matrices, views = rows[agree], matrices[agree], views[agree]
        tried = _Fits(self.query[rows], self.reference[rows], matrices, views, others.only(agree))
        found = tried.measures([pairs[row] for row in rows], np.arange(len(rows)))
        better = np.array([
            own.recoded_typical < measured[row].recoded_typical
            for row, own in zip(rows.tolist(), found.values(), strict=True)
        ], np.bool_)  # fmt: skip
        self._replace(rows, tried.overlaps, matrices, better)
        self.view[rows[better]] = views[better]
        measured |= {int(rows[place]): found[place] for place in np.flatnonzero(better).tolist()}

    def refine(self) -> None:
        """Refine the relations of pairs that agree enough, step by step."""
        active: Bool = np.ones(len(self.matrix), np.bool_)
        planes: dict[float, list[tuple[Float32, Float32] | None]] = {}
        for least, steps, blur, masked in REFINEMENTS:
            active &= self.overlaps.firm >= least
            own = planes.setdefault(blur, [None] * len(active))
            agreeing = self.overlaps.agreeing.astype(np.float32) if masked else None
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

    def locate(self, pairs: Sequence[ImagePair], *, turned: bool) -> None:
        """Replace relations by the best position of one image within the other, if that agrees.

        No pixel is resampled there: a crop that was not resized, and an image with an added border,
        equal their original. The query is searched as it is, or in its view (``turned``): the view
        of a crop of a symmetric image is arbitrary. These relations had less freedom, so only
        their gradients are compared.
        """
        found = {}
        for row, pair in enumerate(pairs):
            view = pair.view_matrix if turned else _IDENTITY
            same_view = bool((pair.view_matrix == _IDENTITY).all())
            if pair.query.shape == pair.reference.shape or (same_view and turned):
                continue
            relation = align.locate(pair.query, pair.reference, view)
            if relation is not None:
                found[row] = relation
        if not found:
            return
        rows, matrices = np.array(list(found)), np.stack(list(found.values()))
        # both from their original pixels: two interpolations would not give the same values
        queries = [pairs[row].query.astype(np.float32) for row in found]
        references = [
            align.warp_to_square(pairs[row].reference.astype(np.float32), _IDENTITY, SIDE)
            for row in found
        ]
        others = TinyOverlaps.of(queries, np.stack(references), matrices)
        better = others.core > self.overlaps.core[rows]
        self._replace(rows, others, matrices, better)
        for row in rows[better].tolist():
            self.view[row] = pairs[row].view_matrix if turned else _IDENTITY


def _flat(query: Bytes8, reference: Bytes8) -> float:
    """Return the share of an image without any edge or texture, the larger one of both."""
    around = np.ones((3, 3), np.uint8)
    shares = []
    for image in (query, reference):
        levels = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        ranges = cv2.morphologyEx(levels, cv2.MORPH_GRADIENT, around)
        shares.append(cv2.countNonZero(cv2.inRange(ranges, 0, FLAT_RANGE)) / ranges.size)
    return max(shares)


def _turn(pair: ImagePair, matrix: Matrix, view: Matrix) -> Matrix | None:
    """Return the rotation about the centre, near a relation, under which two images differ least.

    ``None`` if their shapes differ, or if the relation hardly turns the query.
    """
    height, width = pair.reference.shape[:2]
    to_pixels = align.unit_to_pixels(width, height)
    pixels = to_pixels @ matrix @ align.inverse(view) @ align.inverse(to_pixels)
    angle = math.degrees(math.atan2(pixels[1, 0] - pixels[0, 1], pixels[0, 0] + pixels[1, 1]))
    shape = pair.query.shape[:2] if view[0, 0] != 0 else pair.query.shape[1::-1]
    if shape != (height, width) or not TURNS[0] <= abs(angle) <= TURNS[1]:
        return None
    centre = (width - 1) / 2, (height - 1) / 2
    tried = []
    for off in TURNS_BESIDE:
        turn = np.eye(3)
        turn[:2] = cv2.getRotationMatrix2D(centre, -angle - off, 1.0)
        tried.append(align.inverse(to_pixels) @ turn @ to_pixels @ view)
    found = [recoded(pair.query, pair.reference, each, qualities=()).typical for each in tried]
    return np.asarray(tried[int(np.argmin(found))])


def _freedom(matrix: Matrix, view: Matrix, pair: ImagePair) -> dict[str, float]:
    """Return the measures of an affine relation itself, ``viewed`` to ``turned``."""
    relation = matrix @ align.inverse(view)
    (a, b, x), (c, d, y) = relation[:2].tolist()
    corners = [(u, v) for u in (0, 1) for v in (0, 1)]
    moves = [abs(a * u + b * v + x - u) + abs(c * u + d * v + y - v) for u, v in corners]
    area = max(abs(a * d - b * c), 1e-6)
    # half the sum of the squared singular values over their product
    half = max(1.0, (a * a + b * b + c * c + d * d) / (2 * area))
    return {
        "inverted": float(pair.inverted),
        "viewed": float(pair.inverted or not (view == _IDENTITY).all()),
        "moved": sum(moves) / 8,
        "enlarged": math.log(area) / 2,
        "stretched": math.acosh(half),
        "turned": math.degrees(abs(math.atan2(c - b, a + d))),
    }
