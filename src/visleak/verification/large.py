"""The full check of photographs: guess relations, refine them, compare closely.

Correlation guesses from the view and shift that the search found; local features guess any turn,
crop and scale. A small part of a page has few features, but fits where it was cut out. Each guess
is refined by correlation in the common frame of the two images, and the relation under which edges
agree best is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Bytes8, Float32
from visleak.verification import agreement, align
from visleak.verification.align import Matrix
from visleak.verification.features import by_features
from visleak.verification.frame import LEAST, SIDE, Frame, Photo, bounded, frame
from visleak.verification.measures import NOTHING, Measures, grey, square
from visleak.verification.photometry import PhotometricFit, photometric_fit

Real = float | Float32

#: Side of the squares in which the view and shift are refined first.
COARSE_SIDE: Final = 64
#: Windows of the squares are brought to one contrast; of this many levels and less they are not.
QUIET: Final = 4.0
#: Worth of a relation below which another way of aligning is tried.
GOOD: Final = 0.85
#: How much of its agreement an overlap of next to nothing loses.
SMALL: Final = 0.5
#: How much of its agreement a relation loses for a pixel of drift.
LOOSE: Final = 0.05
#: Structure or core from which two images resemble each other: below both, 3 of 4,600 true copies
#: of twelve domains lie, and 80 % of the wrong pairs of photographs.
STRUCTURE: Final = 0.2
CORE: Final = 0.3
#: Worth and drift (pixels) with which no better relation is looked for (of that worth the start is
#: taken from GOOD on, for so small a drift leaves nothing to find), and the worth below which no
#: perspective is.
PERFECT: Final = 0.97
STILL: Final = 0.1
HOPELESS: Final = 0.3


def check_large(
    query: Bytes8,
    reference: Bytes8,
    start: Matrix,
    *,
    inverted: bool = False,
    features: bool = True,
    magnification: float = 1.0,
) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair of photographs, and their relation.

    Args:
        query, reference: the images.
        start: the relation that the search found.
        inverted: whether the query is compared inverted.
        features: whether local features are compared where correlation does not do.
        magnification: pixels of the reference that one of the query is, at the images' own sizes.
    """
    photos = Photo.of(query), Photo.of(reference)
    found = _as_begun(photos, start)
    if found is not None:
        return found, start
    looks = 255 - query if inverted else query
    small = [_even(grey(square(image, COARSE_SIDE))) for image in (looks, reference)]
    coarse = align.by_correlation(small[0], small[1], start)
    best = _refined(photos, (start, coarse))
    if features and worth(best[0]) < GOOD:
        mirrored = bool(np.linalg.det(start) < 0)
        relation = by_features(query, reference, mirrored=mirrored, inverted=inverted)
        if relation is not None:
            best = _better(best, _refined(photos, (relation.matrix,), relation.inliers))
    if not resembles(best[0].structure, best[0].core) and not inverted:
        place = _cut_out(query, reference, magnification)
        if place is not None:
            best = _better(best, _refined(photos, (place,)))
    return best


def _better(
    one: tuple[Measures, Matrix], other: tuple[Measures, Matrix]
) -> tuple[Measures, Matrix]:
    """Return the relation with its measures that is worth more, the first of equals."""
    return other if worth(other[0]) > worth(one[0]) else one


def resembles(structure: Real, core: Real) -> Bool:
    """Return which checks found any resemblance, by their measures of these names (n,)."""
    return np.asarray((structure >= STRUCTURE) | (core >= CORE))


def _cut_out(query: Bytes8, reference: Bytes8, magnification: float) -> Matrix | None:
    """Return where one image was cut out of the other, if it fits into it at its own size."""
    sides = [
        round(max(image.shape[:2]) * min(1.0, times))
        for image, times in ((query, magnification), (reference, 1 / magnification))
    ]
    if min(sides) < LEAST:
        return None
    return align.cut_out(bounded(query, sides[0]), bounded(reference, sides[1]))


def _as_begun(photos: tuple[Photo, Photo], start: Matrix) -> Measures | None:
    """Return the measures under the start where no displacement is left to be found."""
    overlap = frame(*photos, start)
    measures = measured(overlap) if overlap is not None else NOTHING
    return measures if worth(measures) > GOOD and measures.drift < STILL else None


def _even(grey: Float32) -> Float32:
    """Return a grey square with one mean and contrast everywhere: a black bar must not rule."""
    side = grey.shape[0] // 4 * 2 + 1
    details = grey - cv2.blur(grey, (side, side))
    spread = np.sqrt(np.maximum(cv2.blur(details * details, (side, side)), 0))
    return np.asarray(128 + 20 * details / (spread + QUIET), np.float32)


def compared(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Measures:
    """Return the measures of two images under a relation."""
    overlap = frame(Photo.of(query), Photo.of(reference), matrix)
    return measured(overlap) if overlap is not None else NOTHING


def _refined(
    photos: tuple[Photo, Photo], starts: Sequence[Matrix], inliers: int = 0
) -> tuple[Measures, Matrix]:
    """Return the measures under the best relation, and the better one correlation makes of it."""
    found = [(frame(*photos, start), start) for start in starts]
    seen = [_seen(each, start, inliers) for each, start in found if each is not None]
    if not seen:
        return NOTHING, starts[0]
    measures, matrix, overlap, fit = max(seen, key=lambda item: worth(item[0]))
    for perspective in (False, True):
        settled = worth(measures) > PERFECT and measures.drift < STILL
        if settled or (perspective and worth(measures) < HOPELESS):
            break
        ours, theirs = fit.fitted, grey(overlap.reference)
        where = agreement.agreeing(ours, theirs, overlap.mask)
        moved = align.refine_frame(ours, theirs, where, perspective=perspective)
        if moved is None:
            continue
        there = align.inverse(overlap.to_frame) @ moved @ overlap.to_frame @ matrix
        better = frame(*photos, there)
        if better is None:
            continue
        again = _seen(better, there, inliers)
        if worth(again[0]) > worth(measures):
            measures, matrix, overlap, fit = again
    return measures, matrix


def _seen(
    overlap: Frame, matrix: Matrix, inliers: int
) -> tuple[Measures, Matrix, Frame, PhotometricFit]:
    fit = photometric_fit(overlap)
    return measured(overlap, inliers, fit), matrix, overlap, fit


def worth(measures: Measures) -> float:
    """Return how much speaks for a relation: agreement, less where little overlaps.

    Agreement hardly changes with the last fraction of a pixel, the drift does. Of what was laid
    over an image neither ``core`` nor ``structure`` makes much. A small overlap agrees by chance
    more easily.
    """
    share = max(measures.covered, measures.used)
    agreement = (measures.core + measures.structure) / 2 - LOOSE * min(measures.drift, 1.0)
    return agreement * (1 - SMALL * (1 - share))


def measured(overlap: Frame, inliers: int = 0, fit: PhotometricFit | None = None) -> Measures:
    """Return the measures of a pair in its common frame; ``fit`` is its photometric fit."""
    fit, mask = fit or photometric_fit(overlap), overlap.mask
    ours, theirs, blur = agreement.blurred_equally(fit.fitted, grey(overlap.reference), mask)
    edges = agreement.edges(ours, theirs, mask)
    local = agreement.local(ours, theirs, mask)
    rest = agreement.rest(ours, theirs, mask)
    inverted = fit.gain < 0
    return Measures(
        grey=fit.correlation,
        gradient=edges.gradient,
        core=edges.core,
        colour=fit.colour,
        residual=rest.residual,
        within=rest.within,
        patch=rest.patch,
        covered=overlap.covered,
        used=overlap.used,
        # of the inverted query where that is what the reference is like
        gain=abs(fit.gain),
        offset=fit.offset + 255 * fit.gain if inverted else fit.offset,
        tint=fit.tint,
        features=float(inliers > 0),
        side=float(SIDE),
        exact=0.0,
        structure=local.structure,
        agree=local.agree,
        drift=local.drift,
        blur=blur,
        inliers=float(inliers),
        inverted=float(inverted),
        pixels=float(np.count_nonzero(mask)),
    )
