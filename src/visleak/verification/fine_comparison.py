"""The fine comparison of two aligned images at up to 1,024 pixels: shared detail and differences.

Made where the check at 256 pixels finds any resemblance, in steps that each need the previous one:
shared detail in a small frame, shared detail at full size, and a search for places that differ.
Images that differ by noise alone, of which a fixed camera takes thousands, skip the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Bytes8, Float32
from visleak.verification import agreement, large, markings
from visleak.verification.align import Matrix
from visleak.verification.alteration import (
    ALTERED_EVERYWHERE,
    Alteration,
    boxes_of,
    find_alterations,
)
from visleak.verification.bars import MIN_DIFFERENCE, without_bars
from visleak.verification.clipping import equally_clipped
from visleak.verification.covers import Covers, find_covers
from visleak.verification.detail import Detail, shared_detail
from visleak.verification.differences import Differences, find_differences, match_tiles
from visleak.verification.exact import differ_by_noise, is_exact
from visleak.verification.features import match_features
from visleak.verification.frame import (
    Photo,
    Placement,
    bounded,
    common_extent,
    common_frame,
    warp_both,
)
from visleak.verification.markings import Markings
from visleak.verification.measures import NO_OVERLAP, Measures
from visleak.verification.photometry import detail_fit
from visleak.verification.regions import Box
from visleak.verification.registration import Displacement, register
from visleak.verification.tints import SIDE as TINTS_SIDE
from visleak.verification.tints import Tints, find_tints

#: Long side of the frame of the first step, of that in which detail is compared, and of that in
#: which places that differ are searched, pixels.
GLANCE_SIDE: Final = 256
DETAIL_SIDE: Final = 640
PLACES_SIDE: Final = 1024
#: Long side of the images of the check, pixels, and largest difference of a relation from the
#: identity, as a share of the sides, that is ignored.
BOUND: Final = 256
STILL: Final = 0.01
#: Amount of shared detail below which places that differ are not searched; amount below which
#: another relation is tried; and the gain in amount for which that is kept.
SHARED: Final = 0.5
DOUBTED: Final = 1.5
BETTER: Final = 0.5
#: Images of fine print: least share of an image without any detail (most of a chart or page is
#: plain), and long side at which local features align them: if nothing is shared, and if the check
#: left more drift than this, pixels of its frame.
RENDERED: Final = 0.3
FEATURES_SIDE: Final = 512
SHARP: Final = 0.15
#: Share of the windows that contradict from which all content counts as altered, without a search.
CONTRADICTED: Final = 0.7
#: Levels of the largest difference after the photometric fit from which clipping is tried.
UNEXPLAINED: Final = 4.0
#: Number of windows with texture above which images that share no detail have other content. All
#: near copies of the fitting sets that share none have fewer: they have little to share.
FEW_WINDOWS: Final = 5.0
#: Log-odds of the strongest alteration up to which content is the same and markings are not
#: searched: true of more than half of the copies of photographs, and of no relevant change.
SAME: Final = -3.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a fine comparison."""

    detail: Detail = field(default_factory=Detail)  # that both images share
    differences: Differences = field(default_factory=Differences)
    alteration: Alteration = field(default_factory=Alteration)
    markings: Markings = field(default_factory=Markings)
    tints: Tints = field(default_factory=Tints)
    side: int = 0  # long side of the frame, pixels; 0 with next to no overlap

    @property
    def altered_boxes(self) -> tuple[Box, ...]:
        """Boxes of alterations in the frame, or else of markings that moved; largest first."""
        return self.alteration.boxes or self.markings.boxes

    @property
    def tinted_boxes(self) -> tuple[Box, ...]:
        """Boxes of the colours that only one image has, in the frame; largest first."""
        return () if self.tints.where is None else boxes_of(self.tints.where, 1.0)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Two images aligned under a relation."""

    matrix: Matrix  # the relation
    registered: RegisteredPair | None  # None with next to no overlap
    detail: Detail  # that both images share
    covers: Covers | None  # of either image, if any were found

    @classmethod
    def of(
        cls, matrix: Matrix, framed: _FramedPair | None, covers: Covers | None = None
    ) -> Alignment:
        """Register two images in a frame and compare the detail that is not covered."""
        registered = None if framed is None else framed.registered(covers)
        detail = Detail() if registered is None else shared_detail(*registered.uncovered)
        return cls(matrix, registered, detail, covers)

    @property
    def side(self) -> int:
        """Long side of the frame, pixels."""
        return 0 if self.registered is None else max(self.registered.mask.shape)


def align(photos: tuple[Photo, Photo], matrix: Matrix, side: int) -> Alignment:
    """Align query and reference; without the covers of either if they share any detail."""
    grey = _GreyPair.of(photos, matrix)
    framed = None if grey is None else _FramedPair.of(grey, side)
    aligned = Alignment.of(matrix, framed)
    if framed is None or aligned.detail.amount < SHARED:
        return aligned
    covers = framed.covers()
    return aligned if covers is None else Alignment.of(matrix, framed, covers)


def compare(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Comparison:
    """Return the detail that two images share under a relation, and their differences."""
    photos = Photo.of(query), Photo.of(reference)
    relit = equally_clipped(photos, matrix)
    return _compared(align(photos if relit is None else relit.photos, matrix, DETAIL_SIDE))


def _compared(aligned: Alignment) -> Comparison:
    """Return shared detail, and the places that differ if enough detail is shared."""
    detail, pair = aligned.detail, aligned.registered
    alteration, marked = ALTERED_EVERYWHERE, markings.MARKED_EVERYWHERE
    if pair is None or detail.amount < SHARED:
        if detail.windows <= FEW_WINDOWS:
            alteration, marked = Alteration(), Markings()
        return Comparison(detail, alteration=alteration, markings=marked, side=aligned.side)
    if aligned.side >= DETAIL_SIDE:
        framed = _FramedPair.of(pair.grey, PLACES_SIDE)
        pair = pair if framed is None else framed.registered(aligned.covers)
    ours, theirs, mask = pair.uncovered
    tints = pair.tints()
    if detail.opposed <= CONTRADICTED:
        ours = match_tiles(ours, theirs, mask)
        alteration = find_alterations(ours, theirs, mask, tints.where)
        marked = Markings()
        if alteration.strength > SAME:
            marked = markings.find_markings(*pair.whole(ours), mask, tints.colours, pair.hidden)
    hidden = None if pair.hidden is None else (pair.query, pair.hidden)
    different = find_differences(ours, theirs, mask, hidden)
    if aligned.covers is not None:
        boxes = aligned.covers.resized((mask.shape[1], mask.shape[0])).boxes
        different = replace(different, covers=(*different.covers, *boxes))
    return Comparison(detail, different, alteration, marked, tints, max(mask.shape))


def markings_input(photos: tuple[Photo, Photo], matrix: Matrix) -> markings.NetworkInput | None:
    """Return the input of the network of :mod:`markings` for two images under a relation.

    ``None`` if the images share too little detail for the network to be used.
    """
    aligned = align(photos, matrix, PLACES_SIDE)
    pair = aligned.registered
    if pair is None or aligned.detail.amount < SHARED:
        return None
    ours, theirs = pair.whole(match_tiles(*pair.uncovered))
    mask = pair.mask if pair.hidden is None else pair.mask | pair.hidden
    return markings.NetworkInput.of(ours, theirs, mask, pair.tints().colours)


def add_fine_comparison(
    measures: Measures, query: Photo, reference: Photo, matrix: Matrix
) -> tuple[Measures, Matrix]:
    """Return the measures of a pair with those of its fine comparison, and the relation.

    Smooth shapes can agree better under a wrong relation than under the true one if a bar of text
    hides a part of them; detail cannot. If little is shared, or something covers an image, the
    identity is tried as well. At ``BOUND`` pixels, too little detail of a page or chart remains to
    locate a part of it: if nothing is shared, local features at a larger size are tried. If a
    change of brightness clipped one image, the other one is clipped in the same way first.
    """
    photos = query, reference
    still = np.allclose(matrix, np.eye(3), atol=STILL)
    if still and differ_by_noise(query.pixels, reference.pixels):
        return _with_comparison(measures, _noise_only(photos), photos), matrix
    relit = equally_clipped(photos, matrix) if measures.patch >= UNEXPLAINED else None
    if relit is None:
        return _add_comparison(measures, photos, matrix)
    measures = _remeasured(measures, relit.photos, matrix)
    measures, matrix = _add_comparison(measures, relit.photos, matrix)
    return replace(measures, gain=relit.gain, offset=relit.offset), matrix


def _add_comparison(
    measures: Measures, photos: tuple[Photo, Photo], matrix: Matrix
) -> tuple[Measures, Matrix]:
    """Return the measures with those of the fine comparison, and the relation that it chose."""
    if measures.drift > SHARP:
        measures, matrix = _sharpened(measures, photos, matrix)
    aligned = _best_aligned(photos, matrix)
    if aligned.matrix is not matrix:
        small = [Photo.of(bounded(each.pixels, BOUND)) for each in photos]
        measures = _remeasured(measures, (small[0], small[1]), aligned.matrix)
    found = _compared(aligned)
    if found.detail.amount >= SHARED and measures.patch >= MIN_DIFFERENCE:
        without = without_bars(photos, aligned.matrix)
        if without is not None:
            aligned = _best_aligned(*without)
            measures = _remeasured(measures, without[0], aligned.matrix)
            found = _compared(aligned)
    return _with_comparison(measures, found, photos), aligned.matrix


def _best_aligned(photos: tuple[Photo, Photo], matrix: Matrix) -> Alignment:
    """Align two images under a relation, or under another one if more detail agrees."""
    aligned = align(photos, matrix, GLANCE_SIDE)
    for other in _other_relations(photos, matrix, aligned):
        tried = align(photos, other, GLANCE_SIDE)
        if tried.detail.amount > aligned.detail.amount + BETTER:
            aligned = tried
    pair = aligned.registered
    if pair is not None and aligned.detail.amount >= SHARED and aligned.side >= GLANCE_SIDE:
        framed = _FramedPair.of(pair.grey, DETAIL_SIDE)
        aligned = Alignment.of(aligned.matrix, framed, aligned.covers)
    return aligned


def _sharpened(
    measures: Measures, photos: tuple[Photo, Photo], matrix: Matrix
) -> tuple[Measures, Matrix]:
    """Return the relation by local features of fine print if it agrees better, and its measures.

    At ``BOUND`` pixels, print is a blur that correlation cannot align to a stroke.
    """
    found = _by_features(photos, mirrored=bool(np.linalg.det(matrix) < 0))
    if found is None:
        return measures, matrix
    again = _remeasured(measures, photos, found)
    return (again, found) if large.score(again) > large.score(measures) else (measures, matrix)


def _remeasured(measures: Measures, photos: tuple[Photo, Photo], matrix: Matrix) -> Measures:
    """Return the measures of the check of two images under another relation."""
    query, reference = (photo.bounded(BOUND) for photo in photos)
    frame = common_frame(query, reference, matrix)
    again = NO_OVERLAP if frame is None else large.measure_frame(frame)
    kept = ("alignment", "query_ratio", "reference_ratio")
    return replace(again, **{name: getattr(measures, name) for name in kept})


def _noise_only(photos: tuple[Photo, Photo]) -> Comparison:
    """Return the comparison of two images that differ by noise alone."""
    ours, theirs = (bounded(photo.grey, DETAIL_SIDE) for photo in photos)
    content = np.minimum(*(bounded(photo.content, DETAIL_SIDE) for photo in photos))
    detail = shared_detail(ours, theirs, content > 0)
    return Comparison(detail, side=max(ours.shape))


def _other_relations(
    photos: tuple[Photo, Photo], matrix: Matrix, aligned: Alignment
) -> Iterator[Matrix]:
    """Yield relations to try beside that of the check."""
    doubted = aligned.detail.amount < DOUBTED or aligned.covers is not None
    if doubted and not np.allclose(matrix, np.eye(3), atol=STILL):
        yield np.eye(3)
    if aligned.detail.amount < SHARED:
        found = _by_features(photos, mirrored=bool(np.linalg.det(matrix) < 0))
        if found is not None:
            yield found


@lru_cache(maxsize=1)
def _by_features(photos: tuple[Photo, Photo], *, mirrored: bool) -> Matrix | None:
    """Return the relation of the local features of fine print; cached, as a pair may need it twice.

    ``mirrored``: the view to try first.
    """
    if not all(_has_fine_print(photo) for photo in photos):
        return None
    small = [bounded(photo.pixels, FEATURES_SIDE) for photo in photos]
    match = match_features(small[0], small[1], mirrored=mirrored)
    return None if match is None or match.inverted else match.matrix


def _has_fine_print(photo: Photo) -> bool:
    """Whether an image has strokes on plain ground, most of which are lost at ``BOUND`` pixels."""
    return max(photo.pixels.shape[:2]) > BOUND and photo.plain >= RENDERED


def _with_comparison(
    measures: Measures, found: Comparison, photos: tuple[Photo, Photo]
) -> Measures:
    """Return measures with those of a fine comparison; ``exact`` must hold at full size as well."""
    query, reference = photos
    different, alteration = found.differences, found.alteration
    return replace(
        measures,
        exact=float(measures.exact and is_exact(query.pixels, reference.pixels)),
        **asdict(found.detail),
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
        laid_content=found.markings.content,
        laid_more=found.markings.more,
        laid_less=found.markings.less,
        altered_places=float(len(found.altered_boxes)),
        tinted_more=found.tints.more,
        tinted_less=found.tints.less,
        recoloured=0.0 if measures.inverted else found.tints.recoloured,
        plain=max(query.plain, reference.plain),
        close_side=float(found.side),
    )


@dataclass(frozen=True, slots=True)
class _GreyPair:
    """Two images in grey; the query's colours are mixed so that its details fit the reference."""

    query: Float32
    reference: Float32
    photos: tuple[Photo, Photo]
    matrix: Matrix  # the relation

    @classmethod
    def of(cls, photos: tuple[Photo, Photo], matrix: Matrix) -> _GreyPair | None:
        """Return both images in grey, ``None`` with next to no overlap."""
        frame = common_frame(*photos, matrix)
        if frame is None:
            return None
        fit = detail_fit(frame)
        weights = fit.weights.astype(np.float32)[None]
        mixed = cv2.transform(photos[0].pixels.astype(np.float32), weights) + np.float32(fit.level)
        return cls(np.asarray(mixed, np.float32), photos[1].grey, photos, matrix)

    @property
    def contents(self) -> tuple[Bytes8, Bytes8]:
        """The masks of content of both images."""
        return self.photos[0].content, self.photos[1].content


@dataclass(frozen=True, slots=True)
class _FramedPair:
    """Two images in one frame."""

    # grey, (h, w)
    query: Float32
    reference: Float32
    mask: Bool  # content of both
    place: Placement  # of the frame
    grey: _GreyPair  # the images

    @classmethod
    def of(cls, grey: _GreyPair, side: int) -> _FramedPair | None:
        """Return both images in a frame with a long side of at most ``side`` pixels.

        ``None`` with next to no overlap.
        """
        place = Placement.of(grey.query.shape, grey.reference.shape, grey.matrix, side)
        if place is None:
            return None
        planes = grey.query, grey.reference
        ours, theirs, mask = warp_both(planes, grey.contents, grey.matrix, place)
        return None if mask is None else cls(ours, theirs, mask, place, grey)

    def covers(self) -> Covers | None:
        found = find_covers(self.query, self.reference, common_extent(self.place), self.mask)
        return found if found.where.any() else None

    def registered(self, covers: Covers | None) -> RegisteredPair:
        """Return both images in register and equally sharp."""
        ours, theirs, mask = self.query, self.reference, self.mask
        hidden = None if covers is None else covers.resized(self.place.size).where
        if hidden is not None:
            mask = mask & ~hidden
        ours, displacement = register(ours, theirs, mask)
        ours, theirs, _ = agreement.equally_blurred(ours, theirs, mask)
        return RegisteredPair(ours, theirs, mask, hidden, displacement, self.grey)


@dataclass(frozen=True, slots=True)
class RegisteredPair:
    """Two images in one frame, in register and equally sharp."""

    # grey, (h, w)
    query: Float32
    reference: Float32
    mask: Bool  # content of both that is not covered
    hidden: Bool | None  # covered area, if any
    displacement: Displacement  # of the query by registration
    grey: _GreyPair  # the images

    @property
    def uncovered(self) -> tuple[Float32, Float32, Bool]:
        """Both images and their mask; equal where covered."""
        if self.hidden is None:
            return self.query, self.reference, self.mask
        # so that a cover does not affect the ground level of its surroundings
        return np.where(self.hidden, self.reference, self.query), self.reference, self.mask

    def whole(self, matched: Float32) -> tuple[Float32, Float32]:
        """Return the matched query, unchanged where covered, and the reference."""
        if self.hidden is None:
            return matched, self.reference
        return np.where(self.hidden, self.query, matched), self.reference

    def tints(self) -> Tints:
        """Return the colours that only one image has, in the area that is not covered."""
        query, reference = self.grey.photos
        shapes = query.pixels.shape[:2], reference.pixels.shape[:2]
        side = min(TINTS_SIDE, max(self.mask.shape))
        place = Placement.of(*shapes, self.grey.matrix, side)
        if place is None:
            return Tints()
        pixels = query.pixels, reference.pixels
        ours, theirs, _ = warp_both(pixels, self.grey.contents, self.grey.matrix, place)
        inside = _resized(self.mask, place.size)
        found = find_tints(self.displacement.moved(ours), theirs, inside)
        where = found.where
        height, width = self.mask.shape
        return found if where is None else replace(found, where=_resized(where, (width, height)))


def _resized(mask: Bool, size: tuple[int, int]) -> Bool:
    """Return a mask at another width and height."""
    return np.asarray(cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0)
