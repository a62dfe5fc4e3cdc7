"""The share of an image that another one shows too: tiles, crops, re-framed shots.

A relation is believed only if the images agree wherever it lays them on each other, and if no other
displacement agrees about as well: stripes, grids and plain ground agree with themselves in many
places, so of these nothing is claimed. What is left is exact to a fraction of a pixel, because
dozens of local features were fitted, and so is the share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import scipy.fft

from visleak.records import Bool, Bytes8, Float32
from visleak.verification.align import Matrix
from visleak.verification.detail import Detail, shared_detail
from visleak.verification.features import by_features
from visleak.verification.frame import Photo, Placement, both_moved, bounded
from visleak.verification.regions import share_of
from visleak.verification.registration import registered

#: Long side of the frame in which the overlap is compared, pixels.
SIDE: Final = 512
#: Least shared detail, in units of its spread by chance, least correlation of the windows of the
#: upper quartile, largest share of the windows that contradict, and least number of windows with
#: texture.
AMOUNT: Final = 2.0
MATCHED: Final = 0.4
OPPOSED: Final = 0.2
WINDOWS: Final = 4.0
#: Another displacement must agree at least this much less, as a share of the agreement found; it is
#: one of more than so many pixels, at which this share of the energy still overlaps.
ELSEWHERE: Final = 0.5
APART: Final = 6
LEFT: Final = 0.25
#: Long side at which other displacements are tried, pixels.
COARSE: Final = 256
#: A share below this is not told from images that touch.
LEAST: Final = 0.02
#: Version of the measurement: part of the key of cached overlaps.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well two images agree where a relation lays them on each other."""

    detail: Detail
    elsewhere: float  # amount of shared detail at another displacement, as a share of that found

    @property
    def holds(self) -> bool:
        """Whether the relation is believed."""
        return (
            self.detail.amount >= AMOUNT
            and self.detail.matched >= MATCHED
            and self.detail.opposed <= OPPOSED
            and self.detail.windows >= WINDOWS
            and self.elsewhere <= ELSEWHERE
        )


def overlap_of(query: Bytes8, reference: Bytes8, starts: Sequence[Matrix] = ()) -> Matrix | None:
    """Return the relation of two images that overlap, ``None`` where none is sure.

    Args:
        query, reference: RGB ``uint8`` (h, w, 3).
        starts: relations that are tried first, query to reference in unit coordinates.
    """
    for matrix in starts:
        found = agreement_of(query, reference, matrix)
        if found is not None and found.holds:
            return matrix
    relation = by_features(query, reference)
    if relation is None:
        return None
    if relation.inverted:
        query = np.asarray(255 - query)
    found = agreement_of(query, reference, relation.matrix)
    return relation.matrix if found is not None and found.holds else None


def agreement_of(query: Bytes8, reference: Bytes8, matrix: Matrix) -> Agreement | None:
    """Return how well two images agree under a relation, ``None`` where too little overlaps."""
    if share_of(matrix) < LEAST:
        return None
    place = Placement.of(query.shape[:2], reference.shape[:2], matrix, SIDE)
    if place is None:
        return None
    one, other = (
        Photo(pixels, np.full(pixels.shape[:2], 255, np.uint8)) for pixels in (query, reference)
    )
    ours, theirs, mask = both_moved(
        (one.grey, other.grey), (one.content, other.content), matrix, place
    )
    if mask is None:
        return None
    ours, _ = registered(ours, theirs, mask)
    detail = shared_detail(ours, theirs, mask)
    if detail.amount < AMOUNT:
        return Agreement(detail, 1.0)
    return Agreement(detail, _elsewhere(ours, theirs, mask).amount / detail.amount)


def _elsewhere(query: Float32, reference: Float32, mask: Bool) -> Detail:
    """Return the detail that is shared at the displacement that agrees best beside none at all.

    Of periodic and of plain images it is about as much.
    """
    small = [bounded(plane, COARSE) for plane in (query, reference, mask.astype(np.float32))]
    inside = (small[2] > 0.99).astype(np.float32)
    planes = [_band(plane) * inside for plane in small[:2]]
    size = [scipy.fft.next_fast_len(2 * side, real=True) for side in inside.shape]
    one, other, there, own, others = (
        scipy.fft.rfft2(plane, size)
        for plane in (*planes, inside, planes[0] * planes[0], planes[1] * planes[1])
    )
    # of all displacements at once: the product, and the energy of either image that overlaps
    product, energy, energies = (
        scipy.fft.irfft2(np.conj(left) * right, size)
        for left, right in ((one, other), (own, there), (there, others))
    )
    enough = (energy >= LEFT * energy[0, 0]) & (energies >= LEFT * energies[0, 0])
    score = np.where(enough, product / np.sqrt(np.maximum(energy * energies, 1e-3)), 0.0)
    near = np.arange(-APART, APART + 1)
    score[np.ix_(near, near)] = 0.0
    place = np.array(np.unravel_index(int(score.argmax()), score.shape))
    steps = (place + np.array(size) // 2) % size - np.array(size) // 2
    down, across = np.rint(steps * np.array(mask.shape) / inside.shape).astype(int).tolist()
    shifted = _shifted(query, down, across)
    return shared_detail(
        shifted, reference, mask & (_shifted(mask.astype(np.float32), down, across) > 0)
    )


def _shifted(plane: Float32, down: int, across: int) -> Float32:
    """Return a plane moved by whole pixels, zero where nothing is left."""
    matrix = np.array([[1.0, 0, across], [0, 1, down]])
    return np.asarray(cv2.warpAffine(plane, matrix, plane.shape[::-1], flags=cv2.INTER_NEAREST))


def _band(plane: Float32) -> Float32:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), 0.7) - cv2.blur(plane, (9, 9)), np.float32)
