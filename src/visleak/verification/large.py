"""The full check of large images: propose relations, refine them, compare the overlap.

Relations come from the view and shift of the screen, refined by correlation; from local features,
which find any rotation, crop and scale; and from template matching, because a small part of a page
has few features. Each is refined by correlation in the common frame of the two images, and the
relation with the highest score is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from visleak.records import Bytes8, Float32
from visleak.verification import agreement, align
from visleak.verification.align import Matrix
from visleak.verification.bars import without_bars
from visleak.verification.features import match_features
from visleak.verification.frame import MIN_SIDE, SIDE, Frame, Photo, bounded, common_frame
from visleak.verification.image_pair import ImagePair
from visleak.verification.measures import NO_OVERLAP, Measures, grey, square
from visleak.verification.photometry import PhotometricFit, photometric_fit

#: Side of the squares in which the view and shift are refined first.
COARSE_SIDE: Final = 64
#: Standard deviation (levels) at which normalization amplifies the contrast of a window by half.
QUIET: Final = 4.0
#: Smallest score and largest drift (pixels) of a relation that is trusted; otherwise other ways to
#: align are tried. Strong edges agree well under wrong relations, but not without drift.
GOOD: Final = 0.85
DRIFTED: Final = 0.4
#: Share of its agreement that an overlap of next to nothing loses.
SMALL: Final = 0.5
#: Agreement that a relation loses per pixel of drift.
LOOSE: Final = 0.05
#: Two images resemble each other from this structure or this core. Of true copies from twelve
#: domains, 3 of 4,600 are below both; of the wrong pairs of photographs, 80 %.
STRUCTURE: Final = 0.2
CORE: Final = 0.3
#: A relation with at least this score and less than this drift (pixels) is not refined; the start
#: is accepted from ``GOOD`` on. Below ``HOPELESS``, no perspective is fitted.
PERFECT: Final = 0.97
STILL: Final = 0.1
HOPELESS: Final = 0.3


def check_large(pair: ImagePair) -> tuple[Measures, Matrix]:
    """Return the measures of a pair of large images, and their relation."""
    query, reference, start = pair.query, pair.reference, pair.start
    photos = Photo.of(query), Photo.of(reference)
    first = _Aligned.under(start, photos)
    if first.score > GOOD and first.measures.drift < STILL:
        return first.measures, start
    shown = 255 - query if pair.inverted else query
    small = [_normalized(grey(square(image, COARSE_SIDE))) for image in (shown, reference)]
    coarse = _Aligned.under(align.by_correlation(small[0], small[1], start), photos)
    best = _refined(coarse if coarse.precedes(first) else first, photos)
    if pair.local_features and not best.is_trusted:
        mirrored = bool(np.linalg.det(start) < 0)
        match = match_features(query, reference, mirrored=mirrored, inverted=pair.inverted)
        if match is not None:
            best = best.or_better(match.matrix, photos, match.inliers)
    if not best.is_trusted and not pair.inverted:
        relation = _located(query, reference, pair.magnification)
        if relation is not None:
            best = best.or_better(relation, photos)
    if not resembles(best.measures.structure, best.measures.core):
        # a bar of text has more contrast than a smooth surface, and misleads the screen too
        without = without_bars(photos, np.eye(3))
        if without is not None:
            best = best.or_better(without[1], without[0])
    return best.measures, best.matrix


@dataclass(frozen=True, slots=True)
class _Aligned:
    """Two images under a relation."""

    measures: Measures
    matrix: Matrix  # the relation
    frame: tuple[Frame, PhotometricFit] | None  # None with next to no overlap

    @classmethod
    def under(cls, matrix: Matrix, photos: tuple[Photo, Photo], inliers: int = 0) -> _Aligned:
        frame = common_frame(*photos, matrix)
        if frame is None:
            return cls(NO_OVERLAP, matrix, None)
        fit = photometric_fit(frame)
        return cls(measure_frame(frame, inliers, fit), matrix, (frame, fit))

    @property
    def score(self) -> float:
        return score(self.measures)

    @property
    def is_trusted(self) -> bool:
        return self.score >= GOOD and self.measures.drift <= DRIFTED

    def precedes(self, other: _Aligned) -> bool:
        """Whether the images overlap, and agree better than under the other relation."""
        return self.frame is not None and (other.frame is None or self.score > other.score)

    def or_better(self, matrix: Matrix, photos: tuple[Photo, Photo], inliers: int = 0) -> _Aligned:
        """Return the refinement of another relation if the images agree better under it."""
        other = _refined(_Aligned.under(matrix, photos, inliers), photos, inliers)
        return other if other.score > self.score else self


def measure(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two images under a relation."""
    return _Aligned.under(matrix, (Photo.of(query), Photo.of(reference))).measures


def resembles(structure: float, core: float) -> bool:
    """Whether the images of a pair resemble each other, by these measures."""
    return structure >= STRUCTURE or core >= CORE


def _located(query: Bytes8, reference: Bytes8, magnification: float) -> Matrix | None:
    """Return the position of one image within the other, both at the scale of their originals."""
    sides = [
        round(max(image.shape[:2]) * min(1.0, times))
        for image, times in ((query, magnification), (reference, 1 / magnification))
    ]
    if min(sides) < MIN_SIDE:
        return None
    return align.locate(bounded(query, sides[0]), bounded(reference, sides[1]))


def _normalized(grey: Float32) -> Float32:
    """Return a grey square with the same local mean and contrast everywhere.

    A black bar would dominate the correlation otherwise.
    """
    side = grey.shape[0] // 4 * 2 + 1
    details = grey - cv2.blur(grey, (side, side))
    spread = np.sqrt(np.maximum(cv2.blur(details * details, (side, side)), 0))
    return np.asarray(128 + 20 * details / (spread + QUIET), np.float32)


def _refined(best: _Aligned, photos: tuple[Photo, Photo], inliers: int = 0) -> _Aligned:
    """Return a relation, or its refinement by correlation if the images agree better under it."""
    for perspective in (False, True):
        settled = best.score > PERFECT and best.measures.drift < STILL
        if best.frame is None or settled or (perspective and best.score < HOPELESS):
            break
        frame, fit = best.frame
        ours, theirs = fit.fitted, grey(frame.reference)
        mask = agreement.consistent_mask(ours, theirs, frame.mask)
        move = align.refine_frame(ours, theirs, mask, perspective=perspective)
        if move is None:
            continue
        moved = align.inverse(frame.to_frame) @ move @ frame.to_frame @ best.matrix
        refined = _Aligned.under(moved, photos, inliers)
        if refined.frame is not None and refined.score > best.score:
            best = refined
    return best


def score(measures: Measures) -> float:
    """Return the score of a relation: its agreement, reduced for drift and small overlaps.

    Agreement hardly changes with the last fraction of a pixel, but drift does. Overlays on an image
    change ``core`` and ``structure`` little. A small overlap agrees by chance more easily.
    """
    share = max(measures.covered, measures.used)
    agreement = (measures.core + measures.structure) / 2 - LOOSE * min(measures.drift, 1.0)
    return agreement * (1 - SMALL * (1 - share))


def measure_frame(frame: Frame, inliers: int = 0, fit: PhotometricFit | None = None) -> Measures:
    """Return the measures of a pair in its common frame; ``fit`` is its photometric fit."""
    fit, mask = fit or photometric_fit(frame), frame.mask
    ours, theirs, blur = agreement.equally_blurred(fit.fitted, grey(frame.reference), mask)
    inverted = fit.gain < 0
    return Measures(
        grey=fit.correlation,
        colour=fit.colour,
        covered=frame.covered,
        used=frame.used,
        # of the inverted query if the gain is negative
        gain=abs(fit.gain),
        offset=fit.offset + 255 * fit.gain if inverted else fit.offset,
        tint=fit.tint,
        features=float(inliers > 0),
        side=float(SIDE),
        exact=0.0,
        blur=blur,
        inliers=float(inliers),
        inverted=float(inverted),
        pixels=float(np.count_nonzero(mask)),
        **agreement.edge_agreement(ours, theirs, mask),
        **agreement.window_agreement(ours, theirs, mask),
        **agreement.residual(ours, theirs, mask),
    )
