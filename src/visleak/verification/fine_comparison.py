"""The fine comparison of two aligned images at up to 1,024 pixels: shared detail and differences.

Made where the check at 256 pixels finds any resemblance. What it costs is spent in three steps: a
glance at shared detail, shared detail at full size where the glance finds any, and places that
differ where there is some. Images that differ by noise alone share everything: a fixed camera
takes thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Bytes8, Float32
from visleak.verification import agreement, laid_over, large
from visleak.verification.align import Matrix, inverse
from visleak.verification.alteration import ALTERED_ALL_OVER, Alteration, Box, altered
from visleak.verification.bars import APART, without_bar
from visleak.verification.covers import Covers, covers_of
from visleak.verification.detail import Detail, shared_detail
from visleak.verification.differences import Differences, differences, settled
from visleak.verification.exact import differ_by_noise, is_exact
from visleak.verification.features import by_features
from visleak.verification.frame import (
    Photo,
    Placement,
    both_moved,
    both_whole,
    bounded,
    frame,
)
from visleak.verification.laid_over import LaidOver
from visleak.verification.measures import NOTHING, Measures
from visleak.verification.photometry import detail_fit
from visleak.verification.registration import Displacement, registered
from visleak.verification.tints import SIDE as TINTS_SIDE
from visleak.verification.tints import Tints, tints

#: Long side of the frame of a first glance, of that in which detail is compared, and of that in
#: which places are, pixels.
GLANCE_SIDE: Final = 256
DETAIL_SIDE: Final = 640
PLACES_SIDE: Final = 1024
#: Long side of images whose relation is measured, pixels, and the difference from no relation at
#: all, in shares of the sides, that does not matter.
BOUND: Final = 256
STILL: Final = 0.01
#: Amount of shared detail below which nothing more is looked for: no such pair is near. Below the
#: second one another relation is tried, and kept if it brings so much more.
SHARED: Final = 0.5
DOUBTED: Final = 1.5
BETTER: Final = 0.5
#: Long side of images whose local features are compared where nothing is shared, and share of an
#: image without any detail from which that is done: most of a chart or a page is.
FEATURES_SIDE: Final = 512
RENDERED: Final = 0.3
#: Share of the windows that contradict from which the whole content counts as altered, without a
#: search for single places.
CONTRADICTED: Final = 0.7
#: Log-odds of the most altered place up to which the content is the same: what is laid over is not
#: looked for. So it is in more than half of the copies of photographs, in none that matters.
SAME: Final = -3.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a fine comparison found."""

    detail: Detail = field(default_factory=Detail)  # what is shared
    differences: Differences = field(default_factory=Differences)  # places that differ
    alteration: Alteration = field(default_factory=Alteration)  # places whose content was altered
    laid: LaidOver = field(default_factory=LaidOver)  # what was laid over either image
    colours: Tints = field(default_factory=Tints)  # colours that one image alone has
    # long side of the frame that was compared, pixels; 0 where next to nothing overlaps
    side: int = 0

    @property
    def altered_places(self) -> tuple[Box, ...]:
        """Boxes in the frame of what was altered, or else moved; largest first."""
        return self.alteration.boxes or self.laid.boxes


def compare(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Comparison:
    """Return what two images share, and where they differ."""
    return _compared(align((Photo.of(query), Photo.of(reference)), matrix, DETAIL_SIDE))


@dataclass(frozen=True, slots=True)
class Alignment:
    """Two images under a relation, and the detail that they share."""

    sides: _Sides | None  # both images; None where next to nothing overlaps
    matrix: Matrix  # the relation
    found: _Registered | None  # both in register; None where next to nothing overlaps
    detail: Detail  # what they share
    covers: Covers | None  # what covers one of them, if anything is known to

    @classmethod
    def of(
        cls,
        sides: _Sides | None,
        matrix: Matrix,
        framed: _Framed | None,
        covers: Covers | None = None,
    ) -> Alignment:
        """Compare two images in a frame, beside what covers them."""
        found = None if framed is None else framed.in_register(covers)
        detail = Detail() if found is None else shared_detail(*found.beside)
        return cls(sides, matrix, found, detail, covers)

    @property
    def side(self) -> int:
        """Long side of the frame, pixels."""
        return 0 if self.found is None else max(self.found.mask.shape)


def align(photos: tuple[Photo, Photo], matrix: Matrix, side: int) -> Alignment:
    """Align query and reference, and again beside what covers them where they share any detail."""
    sides = _sides(photos, matrix)
    framed = _Framed.of(sides, matrix, side)
    aligned = Alignment.of(sides, matrix, framed)
    if framed is None or aligned.detail.amount < SHARED:
        return aligned
    covers = framed.covers()
    return aligned if covers is None else Alignment.of(sides, matrix, framed, covers)


def _compared(aligned: Alignment) -> Comparison:
    """Return what is shared, and the places that differ where that is enough to look for them."""
    if aligned.found is None:
        return Comparison()
    detail, found = aligned.detail, aligned.found
    if detail.amount < SHARED:
        return Comparison(detail, side=aligned.side)
    if aligned.side >= DETAIL_SIDE:
        framed = _Framed.of(aligned.sides, aligned.matrix, PLACES_SIDE)
        found = found if framed is None else framed.in_register(aligned.covers)
    ours, theirs, mask = found.beside
    colours = found.tints(aligned.sides, aligned.matrix)
    alteration, laid = ALTERED_ALL_OVER, laid_over.EVERYWHERE
    if detail.opposed <= CONTRADICTED:
        ours = settled(ours, theirs, mask)
        alteration = altered(ours, theirs, mask, colours.where)
        laid = LaidOver()
        if alteration.strength > SAME:
            laid = laid_over.laid_over(*found.whole(ours), mask, colours.colours, found.hidden)
    hidden = None if found.hidden is None else (found.query, found.hidden)
    different = differences(ours, theirs, mask, hidden)
    if aligned.covers is not None:
        boxes = aligned.covers.resized((mask.shape[1], mask.shape[0])).boxes
        different = replace(different, covers=(*different.covers, *boxes))
    return Comparison(detail, different, alteration, laid, colours, max(mask.shape))


def seen(photos: tuple[Photo, Photo], matrix: Matrix) -> laid_over.Looks | None:
    """Return what the network of :mod:`laid_over` sees of two images under a relation.

    ``None`` where too little is shared for it to be asked.
    """
    aligned = align(photos, matrix, PLACES_SIDE)
    if aligned.found is None or aligned.detail.amount < SHARED:
        return None
    found, colours = aligned.found, aligned.found.tints(aligned.sides, aligned.matrix)
    ours, theirs = found.whole(settled(*found.beside))
    mask = found.mask if found.hidden is None else found.mask | found.hidden
    return laid_over.Looks.of(ours, theirs, mask, colours.colours)


def add_fine_comparison(
    measures: Measures, query: Photo, reference: Photo, matrix: Matrix
) -> tuple[Measures, Matrix]:
    """Return the measures of a pair with those of its fine comparison, and the relation.

    Smooth shapes can agree better under a wrong relation than under the true one, of which a bar of
    text hides a part. Detail cannot: where little is shared, or something covers an image, no
    transformation at all is tried. Of a part of a page or a chart little is left at ``BOUND``
    pixels to find its place by: local features of more are tried where nothing is shared.
    """
    photos = query, reference
    still = np.allclose(matrix, np.eye(3), atol=STILL)
    if still and differ_by_noise(query.pixels, reference.pixels):
        return _with(measures, _but_for_noise(photos), query, reference), matrix
    aligned = _best_aligned(photos, matrix)
    if aligned.matrix is not matrix:
        small = [Photo.of(bounded(each.pixels, BOUND)) for each in photos]
        measures = _again(measures, (small[0], small[1]), aligned.matrix)
    found = _compared(aligned)
    if found.detail.amount >= SHARED and measures.patch >= APART:
        beside = _without_bars(photos, aligned.matrix)
        if beside is not None:
            aligned = _best_aligned(*beside)
            small = [each.bounded(BOUND) for each in beside[0]]
            measures = _again(measures, (small[0], small[1]), aligned.matrix)
            found = _compared(aligned)
    return _with(measures, found, query, reference), aligned.matrix


def _best_aligned(photos: tuple[Photo, Photo], matrix: Matrix) -> Alignment:
    """Align two images under a relation, or under another one that more detail agrees with."""
    aligned = align(photos, matrix, GLANCE_SIDE)
    for other in _other_relations(photos, matrix, aligned):
        tried = align(photos, other, GLANCE_SIDE)
        if tried.detail.amount > aligned.detail.amount + BETTER:
            aligned = tried
    if aligned.detail.amount >= SHARED and aligned.side >= GLANCE_SIDE:
        framed = _Framed.of(aligned.sides, aligned.matrix, DETAIL_SIDE)
        aligned = Alignment.of(aligned.sides, aligned.matrix, framed, aligned.covers)
    return aligned


def _again(measures: Measures, photos: tuple[Photo, Photo], matrix: Matrix) -> Measures:
    """Return the measures of the check of two images at ``BOUND`` pixels under another relation."""
    overlap = frame(*photos, matrix)
    again = NOTHING if overlap is None else large.measured(overlap)
    ratios = measures.query_ratio, measures.reference_ratio
    return replace(again, query_ratio=ratios[0], reference_ratio=ratios[1])


def _without_bars(
    photos: tuple[Photo, Photo], matrix: Matrix
) -> tuple[tuple[Photo, Photo], Matrix] | None:
    """Return both images without the bars along an edge of one, and the relation that shows them.

    A bar draws the relation to itself: no transformation at all is tried as well.
    """
    query, reference = photos
    for relation in (matrix, np.eye(3)):
        ours = without_bar(query, reference, inverse(relation))
        theirs = without_bar(reference, query, relation)
        if ours is not None or theirs is not None:
            return (ours or query, theirs or reference), relation
    return None


def _but_for_noise(photos: tuple[Photo, Photo]) -> Comparison:
    """Return what two images share that differ by noise alone: nothing is altered."""
    ours, theirs = (bounded(photo.grey, DETAIL_SIDE) for photo in photos)
    content = np.minimum(*(bounded(photo.content, DETAIL_SIDE) for photo in photos))
    detail = shared_detail(ours, theirs, content > 0)
    return Comparison(detail, side=max(ours.shape))


def _other_relations(
    photos: tuple[Photo, Photo], matrix: Matrix, aligned: Alignment
) -> Iterator[Matrix]:
    """Yield the relations that are tried beside the one that the check found."""
    doubted = aligned.detail.amount < DOUBTED or aligned.covers is not None
    if doubted and not np.allclose(matrix, np.eye(3), atol=STILL):
        yield np.eye(3)
    if aligned.detail.amount < SHARED and all(_is_fine(photo) for photo in photos):
        mirrored = bool(np.linalg.det(matrix) < 0)
        small = [bounded(photo.pixels, FEATURES_SIDE) for photo in photos]
        relation = by_features(small[0], small[1], mirrored=mirrored)
        if relation is not None and not relation.inverted:
            yield relation.matrix


def _is_fine(photo: Photo) -> bool:
    """Whether an image is strokes on a plain ground, most of which are lost at ``BOUND`` pixels."""
    return max(photo.pixels.shape[:2]) > BOUND and photo.plain >= RENDERED


def _with(measures: Measures, found: Comparison, query: Photo, reference: Photo) -> Measures:
    """Return measures with those of a fine comparison, which also sees whether pixels are equal."""
    different, alteration = found.differences, found.alteration
    return replace(
        measures,
        exact=float(measures.exact and is_exact(query.pixels, reference.pixels)),
        **{field.name: getattr(found.detail, field.name) for field in fields(Detail)},
        replaced=different.replaced,
        added=different.added,
        hidden=different.covered,
        exchanged=different.exchanged,
        rewritten=different.share,
        typical=different.typical,
        places=float(different.places),
        usual=different.outliers.usual,
        outlier=different.outliers.largest,
        alone_more=different.outliers.more,
        alone_less=different.outliers.less,
        alone_places=different.outliers.marks,
        swapped=different.outliers.swapped,
        altered=alteration.strength,
        altered_rest=alteration.rest,
        altered_untinted=alteration.untinted,
        altered_cells=float(alteration.cells),
        altered_covered=alteration.covered,
        laid_content=found.laid.content,
        laid_more=found.laid.more,
        laid_less=found.laid.less,
        altered_places=float(len(found.altered_places)),
        tinted_more=found.colours.more,
        tinted_less=found.colours.less,
        plain=max(query.plain, reference.plain),
        close_side=float(found.side),
    )


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two images, and both in grey, the query's as the reference's follow from its colours."""

    query: Float32
    reference: Float32
    photos: tuple[Photo, Photo]

    @property
    def contents(self) -> tuple[Bytes8, Bytes8]:
        """Where each has content."""
        return self.photos[0].content, self.photos[1].content


def _sides(photos: tuple[Photo, Photo], matrix: Matrix) -> _Sides | None:
    query = photos[0].pixels
    overlap = frame(*photos, matrix)
    if overlap is None:
        return None
    fit = detail_fit(overlap)
    weights = fit.weights.astype(np.float32)[None]
    mixed = cv2.transform(query.astype(np.float32), weights) + np.float32(fit.level)
    return _Sides(np.asarray(mixed, np.float32), photos[1].grey, photos)


@dataclass(frozen=True, slots=True)
class _Framed:
    """Two images in one frame."""

    # grey, (h, w)
    query: Float32
    reference: Float32
    mask: Bool  # where both have content
    place: Placement  # of the frame

    @classmethod
    def of(cls, sides: _Sides | None, matrix: Matrix, side: int) -> _Framed | None:
        """Return both images in a frame of a long side of at most ``side`` pixels.

        ``None`` where next to nothing overlaps.
        """
        if sides is None:
            return None
        place = Placement.of(sides.query.shape, sides.reference.shape, matrix, side)
        if place is None:
            return None
        planes = sides.query, sides.reference
        ours, theirs, mask = both_moved(planes, sides.contents, matrix, place)
        return None if mask is None else cls(ours, theirs, mask, place)

    def covers(self) -> Covers | None:
        found = covers_of(self.query, self.reference, both_whole(self.place), self.mask)
        return found if found.where.any() else None

    def in_register(self, covers: Covers | None) -> _Registered:
        """Return both images in register and equally sharp."""
        ours, theirs, mask = self.query, self.reference, self.mask
        hidden = None if covers is None else covers.resized(self.place.size).where
        if hidden is not None:
            mask = mask & ~hidden
        ours, displacement = registered(ours, theirs, mask)
        ours, theirs, _ = agreement.blurred_equally(ours, theirs, mask)
        return _Registered(ours, theirs, mask, hidden, displacement)


@dataclass(frozen=True, slots=True)
class _Registered:
    """Two images in register and equally sharp."""

    # grey, (h, w)
    query: Float32
    reference: Float32
    mask: Bool  # where both have content and nothing covers one of them
    hidden: Bool | None  # where something covers one of them, if anything does
    displacement: Displacement  # that brought the query into register

    @property
    def beside(self) -> tuple[Float32, Float32, Bool]:
        """Both images beside what covers them, and their mask."""
        if self.hidden is None:
            return self.query, self.reference, self.mask
        # what is beside a cover has no ground in common with it
        return np.where(self.hidden, self.reference, self.query), self.reference, self.mask

    def whole(self, settled: Float32) -> tuple[Float32, Float32]:
        """Return the settled query with what is covered as it is, and the reference."""
        if self.hidden is None:
            return settled, self.reference
        return np.where(self.hidden, self.query, settled), self.reference

    def tints(self, sides: _Sides | None, matrix: Matrix) -> Tints:
        """Return the colours that one image alone has beside what covers them."""
        if sides is None:
            return Tints()
        query, reference = sides.photos
        shapes = query.pixels.shape[:2], reference.pixels.shape[:2]
        place = Placement.of(*shapes, matrix, min(TINTS_SIDE, max(self.mask.shape)))
        if place is None:
            return Tints()
        pixels = query.pixels, reference.pixels
        ours, theirs, _ = both_moved(pixels, sides.contents, matrix, place)
        inside = _resized(self.mask, place.size)
        found = tints(self.displacement.moved(ours), theirs, inside)
        where = found.where
        height, width = self.mask.shape
        return found if where is None else replace(found, where=_resized(where, (width, height)))


def _resized(mask: Bool, size: tuple[int, int]) -> Bool:
    """Return a mask at another width and height."""
    return np.asarray(cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0)
