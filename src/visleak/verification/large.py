"""The full check of large images: propose relations, refine them, compare the overlap.

Relations come from the view and shift of the screen, refined by correlation; from local features,
which find any rotation, crop and scale; and from template matching, because a small part of a page
has few features. Each is refined by correlation in the common frame of the two images, and the
relation with the highest score is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    measures = _measures_at(photos, start)
    if score(measures) > GOOD and measures.drift < STILL:
        return measures, start
    shown = 255 - query if pair.inverted else query
    small = [_normalized(grey(square(image, COARSE_SIDE))) for image in (shown, reference)]
    coarse = align.by_correlation(small[0], small[1], start)
    best = _refined(photos, (start, coarse))
    if pair.local_features and not _is_trusted(best[0]):
        mirrored = bool(np.linalg.det(start) < 0)
        match = match_features(query, reference, mirrored=mirrored, inverted=pair.inverted)
        if match is not None:
            best = _better(best, _refined(photos, (match.matrix,), match.inliers))
    if not _is_trusted(best[0]) and not pair.inverted:
        relation = _located(query, reference, pair.magnification)
        if relation is not None:
            best = _better(best, _refined(photos, (relation,)))
    if not resembles(best[0].structure, best[0].core):
        # a bar of text has more contrast than a smooth surface, and misleads the screen too
        without = without_bars(photos, np.eye(3))
        if without is not None:
            best = _better(best, _refined(without[0], (without[1],)))
    return best


def _is_trusted(measures: Measures) -> bool:
    return score(measures) >= GOOD and measures.drift <= DRIFTED


def measure(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two images under a relation."""
    return _measures_at((Photo.of(query), Photo.of(reference)), matrix)


def _measures_at(photos: tuple[Photo, Photo], matrix: Matrix) -> Measures:
    frame = common_frame(*photos, matrix)
    return NO_OVERLAP if frame is None else measure_frame(frame)


def _better(
    one: tuple[Measures, Matrix], other: tuple[Measures, Matrix]
) -> tuple[Measures, Matrix]:
    return other if score(other[0]) > score(one[0]) else one


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


def _refined(
    photos: tuple[Photo, Photo], starts: Sequence[Matrix], inliers: int = 0
) -> tuple[Measures, Matrix]:
    """Return the best of some relations after refinement by correlation, with its measures."""
    found = [(common_frame(*photos, start), start) for start in starts]
    measured = [_measured(frame, start, inliers) for frame, start in found if frame is not None]
    if not measured:
        return NO_OVERLAP, starts[0]
    measures, matrix, frame, fit = max(measured, key=lambda item: score(item[0]))
    for perspective in (False, True):
        settled = score(measures) > PERFECT and measures.drift < STILL
        if settled or (perspective and score(measures) < HOPELESS):
            break
        ours, theirs = fit.fitted, grey(frame.reference)
        mask = agreement.consistent_mask(ours, theirs, frame.mask)
        move = align.refine_frame(ours, theirs, mask, perspective=perspective)
        if move is None:
            continue
        moved = align.inverse(frame.to_frame) @ move @ frame.to_frame @ matrix
        moved_frame = common_frame(*photos, moved)
        if moved_frame is None:
            continue
        refined = _measured(moved_frame, moved, inliers)
        if score(refined[0]) > score(measures):
            measures, matrix, frame, fit = refined
    return measures, matrix


def _measured(
    frame: Frame, matrix: Matrix, inliers: int
) -> tuple[Measures, Matrix, Frame, PhotometricFit]:
    fit = photometric_fit(frame)
    return measure_frame(frame, inliers, fit), matrix, frame, fit


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
