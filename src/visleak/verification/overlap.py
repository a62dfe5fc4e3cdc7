"""The share of an image that another image shows: tiles, crops, re-framed shots.

A relation is accepted only if the images agree everywhere in the overlap, and if no other
displacement agrees about as well: stripes, grids and plain ground agree at many displacements. Two
prints of one form agree almost everywhere; parts of one image agree everywhere, up to compression
and resampling. The share is exact to a fraction of a pixel, because dozens of local features were
fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np
import scipy.fft

from visleak.records import Bool, Bytes8, Float32, Float64
from visleak.verification.align import Matrix, inverse, unit_to_pixels
from visleak.verification.detail import NOISE, WINDOW, Detail, detail_of, windows_of
from visleak.verification.features import SMALLEST, match_features
from visleak.verification.frame import Photo, Placement, bounded, warp_both
from visleak.verification.regions import share_of
from visleak.verification.registration import register

#: Long side of the frame in which the overlap is compared, pixels.
SIDE: Final = 512
#: Largest enlargement of a strip that is too narrow for windows.
ENLARGED: Final = 1.5
#: Limits of ``Detail``: least amount, least matched, largest opposed, least windows.
AMOUNT: Final = 2.0
MATCHED: Final = 0.4
OPPOSED: Final = 0.2
WINDOWS: Final = 4.0
#: Smallest noise, as a share of the usual one, of images that differ little.
QUIET: Final = 0.25
#: Change of a window due to resampling (share of its energy) and compression (levels squared per
#: pixel squared); smallest energy of a relevant window, as a share of that of the strongest ones;
#: and largest share of relevant windows that change more.
RESAMPLED: Final = 0.1
COMPRESSED: Final = 20.0
MATTERS: Final = 0.05
CHANGED: Final = 0.02
#: Print is strokes on plain ground: this share of the windows has less than this share of the
#: energy of the strongest ones.
GROUND: Final = 0.15
FAINT: Final = 0.02
#: Largest amount of detail at another displacement, as a share of that at the relation; smallest
#: such displacement, pixels; and smallest share of the energy that overlaps there.
ELSEWHERE: Final = 0.4
OTHER_SHIFT: Final = 6
OVERLAPS: Final = 0.25
#: Long side at which displacements are tried, pixels, and smallest share of the energy of either
#: image in an overlap that is found by displacement alone.
COARSE: Final = 256
STRIP: Final = 0.05
#: Smallest share of an overlap; below it, images only touch.
MIN_OVERLAP: Final = 0.02
#: Version of the measurement: part of the key of cached overlaps.
VERSION: Final = 4


def overlap_of(query: Bytes8, reference: Bytes8, starts: Sequence[Matrix] = ()) -> Matrix | None:
    """Return the relation of two images that overlap, ``None`` if none is certain.

    Args:
        query, reference: RGB ``uint8`` (h, w, 3).
        starts: relations of verified copies, query to reference in unit coordinates. They are tried
            first, and changes are ignored.
    """
    for matrix in starts:
        if agrees(query, reference, matrix, changed=1.0):
            return matrix
    for matrix, inverted in _relations(query, reference):
        if agrees(np.asarray(255 - query) if inverted else query, reference, matrix):
            return matrix
    return None


def _relations(query: Bytes8, reference: Bytes8) -> Iterator[tuple[Matrix, bool]]:
    """Yield candidate relations, and whether the query is inverted."""
    match = match_features(query, reference)
    if match is not None:
        yield match.matrix, match.inverted
    displaced = best_displacement(query, reference)
    if displaced is not None:
        yield displaced, False


def agrees(query: Bytes8, reference: Bytes8, matrix: Matrix, *, changed: float = CHANGED) -> bool:
    """Return whether two images agree under a relation, and less under any other displacement.

    ``changed``: largest share of relevant windows that changed.
    """
    if share_of(matrix) < MIN_OVERLAP:
        return False
    place = Placement.of(query.shape[:2], reference.shape[:2], matrix, SIDE)
    if place is None:
        return False
    place = _widened(place)
    one, other = _unmasked(query), _unmasked(reference)
    ours, theirs, mask = warp_both(
        (one.grey, other.grey), (one.content, other.content), matrix, place
    )
    if mask is None:
        return False
    ours, _ = register(ours, theirs, mask)
    windows = windows_of(ours, theirs, mask)
    # texture below the usual noise counts if the images differ less
    noise = noise_of(windows)
    detail = detail_of(windows, noise)
    return (
        detail.amount >= AMOUNT
        and detail.matched >= MATCHED
        and detail.opposed <= OPPOSED
        and detail.windows >= WINDOWS
        and changed_share(windows) <= changed
        and _displaced_detail(ours, theirs, mask, noise).amount <= ELSEWHERE * detail.amount
    )


def _widened(place: Placement) -> Placement:
    """Return a placement in which a narrow strip is two windows wide, if it is nearly so."""
    enlarged = 2 * WINDOW / min(place.size)
    if not 1 < enlarged <= ENLARGED:
        return place
    width, height = (math.ceil(enlarged * side) for side in place.size)
    return replace(place, size=(width, height))


def _unmasked(pixels: Bytes8) -> Photo:
    """Return an image that is content everywhere."""
    return Photo(pixels, np.full(pixels.shape[:2], 255, np.uint8))


def noise_of(windows: Sequence[Float64]) -> list[float]:
    """Return the noise of each level: the median difference of the windows, at most ``NOISE``.

    Parts of one image differ by compression and resampling, other images by all of their texture.
    """
    noise = []
    for level, most in zip(windows, NOISE, strict=False):
        ours, theirs, both = level[:, 0] + level[:, 2]
        # two directions of two images
        own = float(np.median(ours + theirs - 2 * both)) / 4
        noise.append(min(max(own, QUIET * most), most))
    return noise


def changed_share(levels: Sequence[Float64]) -> float:
    """Return the share of relevant windows with changes beyond compression and resampling, 0..1.

    These affect the finest level most, so a coarser one is compared. For print the finest level is
    compared, because two prints of one form may differ in no other.
    """
    energy = _energy(levels[0])
    is_print = np.mean(energy < FAINT * np.percentile(energy, 90)) >= GROUND
    windows = levels[: 1 if is_print else 2][-1]
    energy = _energy(windows)
    matters = energy > MATTERS * np.percentile(energy, 90)
    ours, theirs, both = windows[:, 0] + windows[:, 2]
    lost = 1 - both * np.abs(both) / np.maximum(ours * theirs, 1e-6)
    changed = matters & (lost > RESAMPLED + COMPRESSED / np.maximum(energy, 1e-3))
    return float(changed.sum()) / max(1.0, float(matters.sum()))


def _energy(windows: Float64) -> Float64:
    """Return the energy of the gradients in windows (3, 3, n), the larger of both images."""
    return np.asarray((windows[:2, 0] + windows[:2, 2]).max(axis=0))


def best_displacement(query: Bytes8, reference: Bytes8) -> Matrix | None:
    """Return the displacement, without scaling, at which two images agree best.

    Faint texture of a strip correlates even if compression left no local features.
    """
    scale = min(1.0, COARSE / max(*query.shape, *reference.shape))
    own, other = (
        _clipped(_band(_unmasked(bounded(pixels, round(scale * max(pixels.shape)))).grey))
        for pixels in (query, reference)
    )
    if min(*own.shape, *other.shape) < SMALLEST:
        return None
    found = _correlations(own, other, np.ones_like(own), np.ones_like(other), STRIP)
    # the standard deviation by chance is the inverse root of the area
    best = int((found.score * np.sqrt(found.area)).argmax())
    if found.score.flat[best] <= 0:
        return None
    down, across = found.shift(best)
    shift = np.array([[1.0, 0, across], [0, 1, down], [0, 0, 1]])
    to_units = inverse(unit_to_pixels(other.shape[1], other.shape[0]))
    return np.asarray(to_units @ shift @ unit_to_pixels(own.shape[1], own.shape[0]))


@dataclass(frozen=True, slots=True)
class _Correlations:
    """Correlations of two planes at all cyclic displacements of the second."""

    score: Float64  # -1..1, 0 where too little overlaps, (rows, columns)
    area: Float64  # of the overlap, pixels

    def shift(self, index: int) -> tuple[int, int]:
        """Return the displacement of a flat index, down and across."""
        size = np.array(self.score.shape)
        at = np.array(np.unravel_index(index, self.score.shape))
        down, across = ((at + size // 2) % size - size // 2).tolist()
        return down, across


def _correlations(
    one: Float32, other: Float32, mask: Float32, other_mask: Float32, least: float
) -> _Correlations:
    """Correlate at all displacements, with the least share of both energies in the overlap."""
    size = [
        scipy.fft.next_fast_len(a + b, real=True)
        for a, b in zip(one.shape, other.shape, strict=True)
    ]
    left, right, there, here, own, others = (
        scipy.fft.rfft2(plane, size) for plane in (one, other, mask, other_mask, one**2, other**2)
    )
    # at all displacements: product, energies of both images in the overlap, area
    product, energy, energies, area = (
        scipy.fft.irfft2(np.conj(first) * second, size)
        for first, second in ((left, right), (own, here), (there, others), (there, here))
    )
    enough = (energy >= least * (one**2).sum()) & (energies >= least * (other**2).sum())
    score = np.where(enough, product / np.sqrt(np.maximum(energy * energies, 1e-3)), 0.0)
    return _Correlations(score, np.maximum(area, 0.0))


def _displaced_detail(
    query: Float32, reference: Float32, mask: Bool, noise: Sequence[float]
) -> Detail:
    """Return the detail shared at the best displacement other than zero.

    In periodic and plain images it is about the same as at zero.
    """
    small = [bounded(plane, COARSE) for plane in (query, reference, mask.astype(np.float32))]
    inside = (small[2] > 0.99).astype(np.float32)
    planes = [_band(plane) * inside for plane in small[:2]]
    found = _correlations(planes[0], planes[1], inside, inside, OVERLAPS)
    near = np.arange(-OTHER_SHIFT, OTHER_SHIFT + 1)
    found.score[np.ix_(near, near)] = 0.0
    shift = np.array(found.shift(int(found.score.argmax())))
    down, across = np.rint(shift * np.array(mask.shape) / inside.shape).astype(int).tolist()
    shifted = _shifted(query, down, across)
    both = mask & (_shifted(mask.astype(np.float32), down, across) > 0)
    return detail_of(windows_of(shifted, reference, both), noise)


def _shifted(plane: Float32, down: int, across: int) -> Float32:
    """Return a plane shifted by whole pixels, zero outside."""
    matrix = np.array([[1.0, 0, across], [0, 1, down]])
    return np.asarray(cv2.warpAffine(plane, matrix, plane.shape[::-1], flags=cv2.INTER_NEAREST))


def _band(plane: Float32) -> Float32:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), 0.7) - cv2.blur(plane, (9, 9)), np.float32)


def _clipped(details: Float32) -> Float32:
    """Return details clipped so that strong ones do not dominate."""
    limit = 3 * float(np.median(np.abs(details))) + 3
    return np.clip(details, -limit, limit)
