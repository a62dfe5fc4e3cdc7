"""Regions in which two registered images differ: content replaced, added or covered.

Most of a document is paper and template, so a mean over the image hides the one field that differs;
local correlation at the scale of a stroke does not. A region differs only if no small shift of its
surroundings aligns the two images, so that the rest of a bend or perspective does not resemble
other text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32, Float64
from visleak.verification.regions import Box

#: Scale of the comparison, that of a small letter, pixels.
STROKE: Final = 2.0
#: The background is a median: factor of reduction before it, and its side in the reduced image.
GROUND_SHRINK: Final = 4
GROUND_SIDE: Final = 11
#: Smallest energy of content, as a share of the image's contrast.
CONTENT: Final = 0.12
#: Share of the energy (1: nothing in common) from which pixels differ: a multiple of the median of
#: the pair, within these bounds.
DIFFERS: Final = 0.3
TYPICAL: Final = 4.0
MAX_DIFFERS: Final = 0.8
#: Smallest region, pixels, and most regions.
SMALLEST: Final = 8
PLACES: Final = 400
#: Difference of the background, in contrasts, from which a region is covered rather than changed.
COVERED: Final = 0.6
#: A region is replaced if the smaller of removed and added content is this share of the larger.
REPLACED: Final = 0.2
#: Tiles that are matched again: side, margin and largest shift in pixels, most tiles, and share of
#: the energy that differs in them.
TILE: Final = 28
MARGIN: Final = 10
MAX_SHIFT: Final = 5
TILES: Final = 400
UNSETTLED: Final = 0.1
#: Smallest energy to be matched: share of the image's contrast, multiple of the noise, and levels.
FAINT: Final = (0.01, 4.0, 4.0)
#: Smallest ratio of the energies of content that both images have.
BOTH: Final = 0.15
#: Share of the energy from which a difference is an outlier: a multiple of the usual share of the
#: pair, within these bounds, for content of at least this share of the image's contrast.
OUTLIER: Final = 4.0
OUTLIER_BOUNDS: Final = (0.04, 0.8)
OUTLIER_CONTENT: Final = 0.03
#: Percentile of the usual share; a lower percentile, which large changes do not affect, and its
#: factor.
USUAL: Final = (95, 80, 3.0)
#: Smallest energy of outlying regions, in contrasts times pixels; ratio of the energies from which
#: only one image has content, and smallest share of a region for which that is so.
LEAST_ENERGY: Final = 0.2
ALONE: Final = 4.0
ONE_SIDED: Final = 0.75
#: Share of the energy that is added to the usual one.
LEAST_USUAL: Final = 0.01


@dataclass(frozen=True, slots=True)
class Outliers:
    """Regions that differ far more than is usual in the pair.

    Processing changes a copy a little everywhere, and even a small changed digit is an outlier. An
    overlay on a copy is an outlier as well, but only one image has it; if something moved, each
    image has content that the other lacks.
    """

    # log of the usual share of the energy that differs: 95th percentile of the content of both
    usual: float = math.log(LEAST_USUAL)
    largest: float = 0.0  # log of the largest share, relative to the usual one
    # energy of content that only one image has, of the image with more and of that with less of
    # it, as log(1 + contrasts times pixels)
    more: float = 0.0
    less: float = 0.0
    marks: float = 0.0  # number of regions with hardly any other content, as log(1 + n)
    # content removed where other content was added, sum over regions, as log(1 + amount)
    swapped: float = 0.0


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences of two images.

    Amounts are in contrasts of the image times pixels of the frame, as ``log(1 + amount)``.
    """

    # content removed where other content was added: of the largest region, or in total removed
    # from some regions and added to others
    replaced: float = 0.0
    added: float = 0.0  # content that only one image has, largest region
    covered: float = 0.0  # area of the largest region with another background
    # area of regions with a lighter background in the query, or in the reference, whichever is
    # smaller: a mark that moved leaves both
    exchanged: float = 0.0
    share: float = 0.0  # share of the content that is replaced
    typical: float = 0.0  # median share of the energy that differs, 0..1
    places: int = 0  # number of regions in which content is replaced or added
    boxes: tuple[Box, ...] = ()  # of these regions in the frame
    covers: tuple[Box, ...] = ()  # of covered regions
    outliers: Outliers = field(default_factory=Outliers)


@dataclass(frozen=True, slots=True)
class _Foregrounds:
    """Two images in one frame without their background."""

    # grey minus background, (h, w)
    ours: Float32
    theirs: Float32
    grounds: tuple[Float32, Float32]  # backgrounds of both
    energy: tuple[Float32, Float32]  # of both, smoothed, levels squared
    energies: Float32  # the larger of both
    left: Float32  # energy of the difference, smoothed
    inside: Float32  # 1 inside the mask, else 0, (h, w)
    contrast: float  # variance of strong content, levels squared
    noise: float  # median energy of the difference, levels squared

    @classmethod
    def of(cls, query: Float32, reference: Float32, mask: Bool) -> _Foregrounds | None:
        """Return the foregrounds of two grey images, ``None`` if the mask is too small."""
        inside = cv2.erode(mask.astype(np.uint8), np.ones((7, 7), np.uint8)) > 0
        if np.count_nonzero(inside) < 400:
            return None
        grounds = _ground(query), _ground(reference)
        ours, theirs = query - grounds[0], reference - grounds[1]
        weight = inside.astype(np.float32)
        energy = _smooth(ours * ours * weight), _smooth(theirs * theirs * weight)
        energies, left = np.maximum(*energy), _smooth((ours - theirs) ** 2 * weight)
        contrast = float(np.percentile(energies[inside], 92)) + 4
        noise = float(np.median(left[inside]))
        return cls(ours, theirs, grounds, energy, energies, left, weight, contrast, noise)

    def differing(self, ours: Float32, part: tuple[slice, slice]) -> Float32:
        """Return the share of the energy that differs in a part, for another query."""
        theirs, inside = self.theirs[part], self.inside[part]
        energy = _smooth((ours * ours + theirs * theirs) * inside)
        left = _smooth((ours - theirs) ** 2 * inside)
        return np.asarray(left / (energy + self.noise + 0.02 * self.contrast), np.float32)


def match_tiles(query: Float32, reference: Float32, mask: Bool) -> Float32:
    """Return the query with tiles that differ moved by the small shift that matches best.

    The rest of a bend or perspective then does not resemble other text, and no shift turns one
    letter into another.
    """
    planes = _Foregrounds.of(query, reference, mask)
    if planes is None:
        return query
    differing = planes.differing(planes.ours, np.s_[:, :])
    share, times, levels = FAINT
    strong = planes.energies > max(share * planes.contrast, times * planes.noise, levels)
    unsettled = (planes.inside > 0) & strong & (differing > UNSETTLED)
    return _matched_again(planes, differing, unsettled) + planes.grounds[0]


def find_differences(
    query: Float32, reference: Float32, mask: Bool, hidden: tuple[Float32, Bool] | None = None
) -> Differences:
    """Return the differences of two grey images (h, w), with matched tiles, inside a mask.

    ``hidden``: the original query, and the area that a cover hides. Outliers are searched there as
    well, because a selected row of a table resembles a cover.
    """
    planes = _Foregrounds.of(query, reference, mask)
    if planes is None:
        return Differences()
    whole = planes
    if hidden is not None:
        query = np.where(hidden[1], hidden[0], query)
        whole = _Foregrounds.of(query, reference, mask | hidden[1]) or planes
    return replace(_regions(planes), outliers=_outliers(whole))


def _regions(planes: _Foregrounds) -> Differences:
    content = (planes.inside > 0) & (planes.energies > CONTENT * planes.contrast)
    if np.count_nonzero(content) < 30:
        return Differences()
    differing = planes.differing(planes.ours, np.s_[:, :])
    typical = float(np.median(differing[content]))
    limit = max(DIFFERS, min(MAX_DIFFERS, TYPICAL * typical + 0.1))
    found = content & (differing > limit)
    return _summed(planes, found, int(np.count_nonzero(content)), typical)


def _smooth(plane: Float32) -> Float32:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), STROKE), np.float32)


def _ground(grey: Float32) -> Float32:
    """Return the background: the median of an area many strokes wide."""
    height, width = grey.shape
    size = (max(1, width // GROUND_SHRINK), max(1, height // GROUND_SHRINK))
    small = cv2.resize(np.clip(grey, 0, 255), size, interpolation=cv2.INTER_AREA).astype(np.uint8)
    side = min(GROUND_SIDE, (min(size) - 1) // 2 * 2 + 1)
    if side >= 3:
        small = np.asarray(cv2.medianBlur(small, side), np.uint8)
    return np.asarray(cv2.resize(small.astype(np.float32), (width, height)), np.float32)


def _matched_again(planes: _Foregrounds, differing: Float32, found: Bool) -> Float32:
    """Return the query's foreground after each tile with differences was matched."""
    height, width = found.shape
    rows, columns = -(-height // TILE), -(-width // TILE)
    counts = np.asarray(
        cv2.resize(found.astype(np.float32), (columns, rows), interpolation=cv2.INTER_AREA)
    ).ravel()
    order = np.argsort(-counts, kind="stable")[:TILES]
    ours = planes.ours.copy()
    # content at the border may have to move inwards
    wide = cv2.copyMakeBorder(planes.ours, *(4 * (MAX_SHIFT,)), cv2.BORDER_REPLICATE)
    for tile in order[counts[order] > 0].tolist():
        row, column = divmod(tile, columns)
        top, left = row * height // rows, column * width // columns
        bottom, right = (row + 1) * height // rows, (column + 1) * width // columns
        around = np.s_[
            max(0, top - MARGIN) : bottom + MARGIN, max(0, left - MARGIN) : right + MARGIN
        ]
        moved = _best_moved(np.asarray(wide, np.float32), planes.theirs[around], around)
        if moved is None:
            continue
        inner = np.s_[
            top - around[0].start : bottom - around[0].start,
            left - around[1].start : right - around[1].start,
        ]
        tried = planes.differing(moved, around)[inner]
        here = np.s_[top:bottom, left:right]
        strong = found[here]
        if tried[strong].sum() < differing[here][strong].sum():
            ours[here] = moved[inner]
    return ours


def _best_moved(wide: Float32, theirs: Float32, part: tuple[slice, slice]) -> Float32 | None:
    """Return a part of the query after the small shift that matches best; ``None`` for no shift.

    ``wide``: the query with a border of ``MAX_SHIFT`` pixels.
    """
    (top, left), (height, width) = (max(0, cut.start) for cut in part), theirs.shape
    near = wide[top : top + height + 2 * MAX_SHIFT, left : left + width + 2 * MAX_SHIFT]
    score = cv2.matchTemplate(near, theirs, cv2.TM_CCORR_NORMED)
    row, column = divmod(int(score.argmax()), score.shape[1])
    down = row + _peak(score[:, column].tolist(), row)
    across = column + _peak(score[row].tolist(), column)
    if max(abs(down - MAX_SHIFT), abs(across - MAX_SHIFT)) < 0.05:
        return None
    shift = np.array([[1, 0, -across], [0, 1, -down]], np.float32)
    moved = cv2.warpAffine(
        near, shift, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(moved, np.float32)


def _peak(values: list[float], at: int) -> float:
    """Return the offset of a parabola's peak from the largest value."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, middle, after = values[at - 1 : at + 2]
    bend = before - 2 * middle + after
    return max(-0.5, min(0.5, (before - after) / (2 * bend))) if bend < -1e-6 else 0.0


def _outliers(planes: _Foregrounds) -> Outliers:
    share = planes.left / (sum(planes.energy) + planes.noise + 0.02 * planes.contrast)
    inside, contrast = planes.inside > 0, planes.contrast
    content = inside & (planes.energies > CONTENT * contrast)
    both = content & (np.minimum(*planes.energy) > BOTH * planes.energies)
    if np.count_nonzero(both) < 30:
        return Outliers()
    usual, robust = (float(value) for value in np.percentile(share[both], USUAL[:2]))
    limit = np.clip(OUTLIER * min(usual, USUAL[2] * robust + LEAST_USUAL), *OUTLIER_BOUNDS)
    found = inside & (planes.energies > OUTLIER_CONTENT * contrast) & (share > limit)
    more, less, marks, swapped = _sided(planes, found)
    return Outliers(
        usual=math.log(usual + LEAST_USUAL),
        largest=math.log((float(share[both].max()) + LEAST_USUAL) / (usual + LEAST_USUAL)),
        more=math.log1p(more),
        less=math.log1p(less),
        marks=math.log1p(marks),
        swapped=math.log1p(swapped),
    )


def _sided(planes: _Foregrounds, found: Bool) -> tuple[float, float, int, float]:
    """Return ``more``, ``less``, ``marks`` and ``swapped`` of :class:`Outliers`, linear."""
    closed = cv2.morphologyEx(found.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    count, labels = cv2.connectedComponents(closed)
    region, energy = labels[found], planes.left[found] / planes.contrast

    def summed(values: Float32) -> Float64:
        return np.asarray(np.bincount(region, weights=values, minlength=count)[1:], np.float64)

    alone = [
        summed(energy * (one[found] > ALONE * other[found]))
        for one, other in (planes.energy, planes.energy[::-1])
    ]
    total = summed(energy)
    large = total > LEAST_ENERGY
    lone = large & (np.maximum(*alone) > ONE_SIDED * total)
    apart = np.abs(planes.ours - planes.theirs)[found] / math.sqrt(planes.contrast)
    removed = np.abs(planes.theirs)[found] > np.abs(planes.ours)[found]
    swapped = np.minimum(summed(apart * removed), summed(apart * ~removed))
    sums = sorted(float(side[large].sum()) for side in alone)
    # of these regions only: others have some where they cross content of both images
    more = max(float(side[lone].sum()) for side in alone)
    return more, sums[0], int(np.count_nonzero(lone)), float(swapped[large].sum())


def _summed(planes: _Foregrounds, found: Bool, content: int, typical: float) -> Differences:
    """Return the differences as sums over connected regions."""
    closed = cv2.morphologyEx(found.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(closed)
    order = np.argsort(-stats[1:count, cv2.CC_STAT_AREA], kind="stable")[:PLACES] + 1
    scale = math.sqrt(planes.contrast)
    replaced = covered = area_replaced = 0.0
    sums, lighter, largest, boxes, covers = [0.0, 0.0], [0.0, 0.0], 0.0, [], []
    for label in order.tolist():
        x, y, width, height, area = (int(value) for value in stats[label])
        if area < SMALLEST:
            break
        here = np.s_[y : y + height, x : x + width]
        inner = labels[here] == label
        ours, theirs = planes.ours[here][inner], planes.theirs[here][inner]
        apart = np.abs(ours - theirs) / scale
        fainter = np.abs(theirs) > np.abs(ours)
        removed, added = float(apart[fainter].sum()), float(apart[~fainter].sum())
        lesser, greater = min(removed, added), max(removed, added)
        ground = planes.grounds[0][here][inner] - planes.grounds[1][here][inner]
        if float(np.median(np.abs(ground))) / scale >= COVERED:
            covered = max(covered, float(area))
            lighter[int(np.median(ground) > 0)] += area
            covers.append((x, y, width, height))
            continue
        boxes.append((x, y, width, height))
        if lesser > REPLACED * greater:
            replaced, area_replaced = max(replaced, lesser), area_replaced + area
        else:
            sums[int(added > removed)] += greater
            largest = max(largest, greater)
    return Differences(
        replaced=math.log1p(max(replaced, min(sums))),
        added=math.log1p(largest),
        covered=math.log1p(covered),
        exchanged=math.log1p(min(lighter)),
        share=area_replaced / content,
        typical=typical,
        places=len(boxes),
        boxes=tuple(boxes),
        covers=tuple(covers),
    )
