"""The share of an image that another one shows too: tiles, crops, re-framed shots.

A relation is believed only if the images agree wherever it lays them on each other, and if no other
displacement agrees about as well: stripes, grids and plain ground agree with themselves in many
places, so of these nothing is claimed. Two prints of one form agree in most places, but parts of
one image agree in all of them, up to what compression and resampling change. What is left is exact
to a fraction of a pixel, because dozens of local features were fitted, and so is the share.
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
from visleak.verification.features import SMALLEST, by_features
from visleak.verification.frame import Photo, Placement, both_moved, bounded
from visleak.verification.regions import share_of
from visleak.verification.registration import registered

#: Long side of the frame in which the overlap is compared, pixels.
SIDE: Final = 512
#: A strip is enlarged this much at most to be wide enough to be judged.
ENLARGED: Final = 1.5
#: Least shared detail, in units of its spread by chance, least correlation of the windows of the
#: upper quartile, largest share of the windows that contradict, and least number of windows with
#: texture.
AMOUNT: Final = 2.0
MATCHED: Final = 0.4
OPPOSED: Final = 0.2
WINDOWS: Final = 4.0
#: Least share of the usual noise, of images that differ by less.
QUIET: Final = 0.25
#: Of the energy of a window, resampling may change this share, and compression so much (levels
#: squared per pixel squared). A window matters with this share of the energy of the strongest ones,
#: and so large a share of these may have changed more.
RESAMPLED: Final = 0.1
COMPRESSED: Final = 20.0
MATTERS: Final = 0.05
CHANGED: Final = 0.02
#: Strokes on a plain ground, as in print: so large a share of the windows has less than this share
#: of the energy of the strongest ones.
GROUND: Final = 0.15
FAINT: Final = 0.02
#: Another displacement must agree at least this much less, as a share of the agreement found; it is
#: one of more than so many pixels, at which this share of the energy still overlaps.
ELSEWHERE: Final = 0.4
APART: Final = 6
LEFT: Final = 0.25
#: Long side at which displacements are tried, pixels; and the least share of the energy of either
#: image, of images that are laid on each other by a displacement alone.
COARSE: Final = 256
STRIP: Final = 0.05
#: A share below this is not told from images that touch.
LEAST: Final = 0.02
#: Version of the measurement: part of the key of cached overlaps.
VERSION: Final = 4


def overlap_of(query: Bytes8, reference: Bytes8, starts: Sequence[Matrix] = ()) -> Matrix | None:
    """Return the relation of two images that overlap, ``None`` where none is sure.

    Args:
        query, reference: RGB ``uint8`` (h, w, 3).
        starts: relations that are tried first, query to reference in unit coordinates; of images
            that are copies in part, so that what was changed does not count.
    """
    for matrix in starts:
        if agrees(query, reference, matrix, changed=1.0):
            return matrix
    for matrix, inverted in _relations(query, reference):
        if agrees(np.asarray(255 - query) if inverted else query, reference, matrix):
            return matrix
    return None


def _relations(query: Bytes8, reference: Bytes8) -> Iterator[tuple[Matrix, bool]]:
    """Yield relations that may hold, and whether the query is inverted."""
    found = by_features(query, reference)
    if found is not None:
        yield found.matrix, found.inverted
    displaced = by_displacement(query, reference)
    if displaced is not None:
        yield displaced, False


def agrees(query: Bytes8, reference: Bytes8, matrix: Matrix, *, changed: float = CHANGED) -> bool:
    """Return whether two images agree under a relation, and under no other about as well.

    ``changed``: share of what matters that may have changed.
    """
    if share_of(matrix) < LEAST:
        return False
    place = Placement.of(query.shape[:2], reference.shape[:2], matrix, SIDE)
    if place is None:
        return False
    place = _wide(place)
    one, other = _whole(query), _whole(reference)
    ours, theirs, mask = both_moved(
        (one.grey, other.grey), (one.content, other.content), matrix, place
    )
    if mask is None:
        return False
    ours, _ = registered(ours, theirs, mask)
    windows = windows_of(ours, theirs, mask)
    # texture that is fainter than the usual noise counts where the images differ by less
    noise = noise_of(windows)
    detail = detail_of(windows, noise)
    return (
        detail.amount >= AMOUNT
        and detail.matched >= MATCHED
        and detail.opposed <= OPPOSED
        and detail.windows >= WINDOWS
        and changed_share(windows) <= changed
        and _elsewhere(ours, theirs, mask, noise).amount <= ELSEWHERE * detail.amount
    )


def _wide(place: Placement) -> Placement:
    """Return a placement in which a narrow strip is two windows wide, if that enlarges little."""
    enlarged = 2 * WINDOW / min(place.size)
    if not 1 < enlarged <= ENLARGED:
        return place
    width, height = (math.ceil(enlarged * side) for side in place.size)
    return replace(place, size=(width, height))


def _whole(pixels: Bytes8) -> Photo:
    """Return an image all of which is content."""
    return Photo(pixels, np.full(pixels.shape[:2], 255, np.uint8))


def noise_of(windows: Sequence[Float64]) -> list[float]:
    """Return the noise of each level by which two images differ in most windows, at most ``NOISE``.

    Of parts of one image this is what compression and resampling left. Other images differ by all
    of their texture.
    """
    noise = []
    for level, most in zip(windows, NOISE, strict=False):
        ours, theirs, both = level[:, 0] + level[:, 2]
        # two directions of two images
        own = float(np.median(ours + theirs - 2 * both)) / 4
        noise.append(min(max(own, QUIET * most), most))
    return noise


def changed_share(levels: Sequence[Float64]) -> float:
    """Return the share of the windows with contrast in either image that were changed, 0..1.

    More than compression and resampling do: another word in a form, not another quality. These
    change the finest details most, so that coarser ones are compared; but two prints of one form
    differ in the finest only.
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
    """Return the energy of the gradients in windows (3, 3, n), of the image with more of it."""
    return np.asarray((windows[:2, 0] + windows[:2, 2]).max(axis=0))


def by_displacement(query: Bytes8, reference: Bytes8) -> Matrix | None:
    """Return the displacement, at one scale, at which two images agree best.

    Faint texture correlates over a strip where no local feature survives its compression.
    """
    scale = min(1.0, COARSE / max(*query.shape, *reference.shape))
    own, other = (
        _clipped(_band(_whole(bounded(pixels, round(scale * max(pixels.shape)))).grey))
        for pixels in (query, reference)
    )
    if min(*own.shape, *other.shape) < SMALLEST:
        return None
    found = _correlations(own, other, np.ones_like(own), np.ones_like(other), STRIP)
    # by chance it varies with the inverse root of the area
    place = int((found.score * np.sqrt(found.area)).argmax())
    if found.score.flat[place] <= 0:
        return None
    down, across = found.steps(place)
    shift = np.array([[1.0, 0, across], [0, 1, down], [0, 0, 1]])
    to_units = inverse(unit_to_pixels(other.shape[1], other.shape[0]))
    return np.asarray(to_units @ shift @ unit_to_pixels(own.shape[1], own.shape[0]))


@dataclass(frozen=True, slots=True)
class _Correlations:
    """How two planes correlate at all displacements of the second, cyclic."""

    score: Float64  # -1..1, 0 where too little of either overlaps, (rows, columns)
    area: Float64  # of the overlap, pixels

    def steps(self, place: int) -> tuple[int, int]:
        """Return the displacement at a place, down and across."""
        size = np.array(self.score.shape)
        at = np.array(np.unravel_index(place, self.score.shape))
        down, across = ((at + size // 2) % size - size // 2).tolist()
        return down, across


def _correlations(
    one: Float32, other: Float32, mask: Float32, other_mask: Float32, least: float
) -> _Correlations:
    """Return the correlation at all displacements that leave a share of the energy of both."""
    size = [
        scipy.fft.next_fast_len(a + b, real=True)
        for a, b in zip(one.shape, other.shape, strict=True)
    ]
    left, right, there, here, own, others = (
        scipy.fft.rfft2(plane, size) for plane in (one, other, mask, other_mask, one**2, other**2)
    )
    # of all displacements at once: the product, the energy of either image that overlaps, the area
    product, energy, energies, area = (
        scipy.fft.irfft2(np.conj(first) * second, size)
        for first, second in ((left, right), (own, here), (there, others), (there, here))
    )
    enough = (energy >= least * (one**2).sum()) & (energies >= least * (other**2).sum())
    score = np.where(enough, product / np.sqrt(np.maximum(energy * energies, 1e-3)), 0.0)
    return _Correlations(score, np.maximum(area, 0.0))


def _elsewhere(query: Float32, reference: Float32, mask: Bool, noise: Sequence[float]) -> Detail:
    """Return the detail that is shared at the displacement that agrees best beside none at all.

    Of periodic and of plain images it is about as much.
    """
    small = [bounded(plane, COARSE) for plane in (query, reference, mask.astype(np.float32))]
    inside = (small[2] > 0.99).astype(np.float32)
    planes = [_band(plane) * inside for plane in small[:2]]
    found = _correlations(planes[0], planes[1], inside, inside, LEFT)
    near = np.arange(-APART, APART + 1)
    found.score[np.ix_(near, near)] = 0.0
    steps = np.array(found.steps(int(found.score.argmax())))
    down, across = np.rint(steps * np.array(mask.shape) / inside.shape).astype(int).tolist()
    shifted = _shifted(query, down, across)
    both = mask & (_shifted(mask.astype(np.float32), down, across) > 0)
    return detail_of(windows_of(shifted, reference, both), noise)


def _shifted(plane: Float32, down: int, across: int) -> Float32:
    """Return a plane moved by whole pixels, zero where nothing is left."""
    matrix = np.array([[1.0, 0, across], [0, 1, down]])
    return np.asarray(cv2.warpAffine(plane, matrix, plane.shape[::-1], flags=cv2.INTER_NEAREST))


def _band(plane: Float32) -> Float32:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), 0.7) - cv2.blur(plane, (9, 9)), np.float32)


def _clipped(details: Float32) -> Float32:
    """Return details of which a few strong ones do not decide."""
    limit = 3 * float(np.median(np.abs(details))) + 3
    return np.clip(details, -limit, limit)
