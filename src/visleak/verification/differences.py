"""Where two images in register differ, and how: content replaced, added, or covered.

Most of a document is paper and template, so a mean over the image says nothing about the one field
that differs. Local correlation at the scale of a stroke does. A place counts as different only if
no small shift of its surroundings brings the two images together, so that what is left of a bend or
a perspective does not look like another text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32

#: Scale (pixels) at which images are compared: that of a small letter.
STROKE: Final = 2.0
#: Shrinking before, and side (of the smaller image) of, the median that is the ground.
GROUND_SHRINK: Final = 4
GROUND_SIDE: Final = 11
#: Energy, as a share of the image's contrast, from which a place has any content.
CONTENT: Final = 0.12
#: Share of the energy that differs (1: nothing in common) from which a place differs: at least
#: this, and so many times what is typical of the pair, up to the most.
DIFFERS: Final = 0.3
TYPICAL: Final = 4.0
MOST: Final = 0.8
#: Smallest place, pixels; most places that are looked into.
SMALLEST: Final = 8
PLACES: Final = 400
#: Difference of the ground, in contrasts, from which a place is covered rather than changed.
COVERED: Final = 0.6
#: A place is replaced if the lesser of removed and added is this share of the greater.
REPLACED: Final = 0.2
#: Tiles that are matched once more: side, surroundings and reach in pixels, how many at most, and
#: the share of the energy that differs there.
TILE: Final = 28
AROUND: Final = 10
SEEK: Final = 5
TILES: Final = 400
UNSETTLED: Final = 0.1
#: Energy of what is worth matching: a share of the image's contrast, times the noise, and levels.
FAINT: Final = (0.01, 4.0, 4.0)
#: Content of both images: the fainter has this share of the stronger's energy at least.
BOTH: Final = 0.15
#: Share of the energy that differs which stands out from what is usual in the pair: so many times
#: that, within these bounds; of places with this share of the image's contrast at least.
STANDS_OUT: Final = 4.0
OUT_BOUNDS: Final = (0.04, 0.8)
OUT_CONTENT: Final = 0.03
#: Percentile that is usual, and a lower one that large changes do not reach, times a factor.
USUAL: Final = (95, 80, 3.0)
#: Energy, in contrasts times pixels, of the smallest place that stands out; ratio of the energies
#: from which content is of one image alone, and share of a place that then is.
LEAST_ENERGY: Final = 0.2
ALONE: Final = 4.0
ONE_SIDED: Final = 0.75
#: Share of the energy that counts for none.
LEAST_USUAL: Final = 0.01

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Outliers:
    """Places that differ by far more than is usual in the pair.

    In a copy everything differs a little, as processing left it; a changed digit stands out from
    that however small it is. What was laid over a copy stands out as well, but only one of the
    images has it; where something moved, each has something the other lacks.
    """

    # log of the share of the energy that differs, 95th percentile of the content of both images,
    # and log of the largest such share relative to it
    usual: float = math.log(LEAST_USUAL)
    largest: float = 0.0
    # energy of content that one image alone has, of the image with more and of that with less of
    # it, as log(1 + contrasts times pixels); number of places with hardly anything else, as
    # log(1 + n)
    more: float = 0.0
    less: float = 0.0
    marks: float = 0.0
    # content taken away where other content was added, summed over places, as log(1 + amount)
    swapped: float = 0.0


@dataclass(frozen=True, slots=True)
class Differences:
    """Where two images differ.

    Amounts are in contrasts of the image times pixels of the frame, as ``log(1 + amount)``.
    """

    # content taken away where other content was added: the largest place, or what was taken away
    # here and added there
    replaced: float = 0.0
    added: float = 0.0  # content that only one image has, largest place
    covered: float = 0.0  # places whose ground differs as well, largest area
    # area of the places whose ground is lighter in the one image, or of those whose ground is
    # lighter in the other, whichever is smaller: a mark that moved leaves both
    exchanged: float = 0.0
    share: float = 0.0  # share of the content that is replaced
    typical: float = 0.0  # share of the energy that differs in the median, 0..1
    places: int = 0  # number of places where content is replaced or added
    boxes: tuple[Box, ...] = ()  # left, top, width, height of those places in the frame, pixels
    covers: tuple[Box, ...] = ()  # the same of places that are covered
    outliers: Outliers = field(default_factory=Outliers)


@dataclass(frozen=True, slots=True)
class _Inks:
    """What stands out from the ground of two images in one frame."""

    # grey minus ground, (h, w)
    ours: Float32
    theirs: Float32
    grounds: tuple[Float32, Float32]  # of both
    energy: tuple[Float32, Float32]  # of both, smoothed, levels squared
    energies: Float32  # the greater of both
    left: Float32  # energy of the difference, smoothed
    inside: Float32  # where both can be compared, 1 or 0, (h, w)
    contrast: float  # variance of strong content, levels squared
    noise: float  # median energy of the difference, levels squared

    @classmethod
    def of(cls, query: Float32, reference: Float32, mask: Bool) -> _Inks | None:
        """Return the inks of two grey images, ``None`` where too little can be compared."""
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
        """Return the share of the energy that differs in a part, with the query given."""
        theirs, inside = self.theirs[part], self.inside[part]
        energy = _smooth((ours * ours + theirs * theirs) * inside)
        left = _smooth((ours - theirs) ** 2 * inside)
        return np.asarray(left / (energy + self.noise + 0.02 * self.contrast), np.float32)


def settled(query: Float32, reference: Float32, mask: Bool) -> Float32:
    """Return the query with tiles that differ moved by the small shift that matches best.

    What is left of a bend or a perspective then does not look like another text: no shift turns
    one letter into another.
    """
    inks = _Inks.of(query, reference, mask)
    if inks is None:
        return query
    differing = inks.differing(inks.ours, np.s_[:, :])
    share, times, levels = FAINT
    strong = inks.energies > max(share * inks.contrast, times * inks.noise, levels)
    unsettled = (inks.inside > 0) & strong & (differing > UNSETTLED)
    return _matched_again(inks, differing, unsettled) + inks.grounds[0]


def differences(
    query: Float32, reference: Float32, mask: Bool, hidden: tuple[Float32, Bool] | None = None
) -> Differences:
    """Return where two grey images (h, w), settled, differ, of where the mask holds.

    ``hidden``: the query as it is, and where something covers one of the images. Outliers are
    searched there as well: a row that was selected looks like a cover.
    """
    inks = _Inks.of(query, reference, mask)
    if inks is None:
        return Differences()
    whole = inks
    if hidden is not None:
        query = np.where(hidden[1], hidden[0], query)
        whole = _Inks.of(query, reference, mask | hidden[1]) or inks
    return replace(_places(inks), outliers=_outliers(whole))


def _places(inks: _Inks) -> Differences:
    """Return the places that differ."""
    content = (inks.inside > 0) & (inks.energies > CONTENT * inks.contrast)
    if np.count_nonzero(content) < 30:
        return Differences()
    differing = inks.differing(inks.ours, np.s_[:, :])
    typical = float(np.median(differing[content]))
    limit = max(DIFFERS, min(MOST, TYPICAL * typical + 0.1))
    found = content & (differing > limit)
    return _summed(inks, found, int(np.count_nonzero(content)), typical)


def _smooth(plane: npt.NDArray[np.float32]) -> Float32:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), STROKE), np.float32)


def _ground(grey: Float32) -> Float32:
    """Return the level of the ground: a median over an area many strokes wide."""
    height, width = grey.shape
    size = (max(1, width // GROUND_SHRINK), max(1, height // GROUND_SHRINK))
    small = cv2.resize(np.clip(grey, 0, 255), size, interpolation=cv2.INTER_AREA).astype(np.uint8)
    side = min(GROUND_SIDE, (min(size) - 1) // 2 * 2 + 1)
    if side >= 3:
        small = np.asarray(cv2.medianBlur(small, side), np.uint8)
    return np.asarray(cv2.resize(small.astype(np.float32), (width, height)), np.float32)


def _matched_again(inks: _Inks, differing: Float32, found: Bool) -> Float32:
    """Return the query's ink after the surroundings of each tile with differences were matched."""
    height, width = found.shape
    rows, columns = -(-height // TILE), -(-width // TILE)
    counts = np.asarray(
        cv2.resize(found.astype(np.float32), (columns, rows), interpolation=cv2.INTER_AREA)
    ).ravel()
    order = np.argsort(-counts, kind="stable")[:TILES]
    ours = inks.ours.copy()
    # what lies at the border may have to move inwards
    wide = cv2.copyMakeBorder(inks.ours, *(4 * (SEEK,)), cv2.BORDER_REPLICATE)
    for tile in order[counts[order] > 0].tolist():
        row, column = divmod(tile, columns)
        top, left = row * height // rows, column * width // columns
        bottom, right = (row + 1) * height // rows, (column + 1) * width // columns
        around = np.s_[
            max(0, top - AROUND) : bottom + AROUND, max(0, left - AROUND) : right + AROUND
        ]
        moved = _best_moved(np.asarray(wide, np.float32), inks.theirs[around], around)
        if moved is None:
            continue
        inner = np.s_[
            top - around[0].start : bottom - around[0].start,
            left - around[1].start : right - around[1].start,
        ]
        tried = inks.differing(moved, around)[inner]
        here = np.s_[top:bottom, left:right]
        strong = found[here]
        if tried[strong].sum() < differing[here][strong].sum():
            ours[here] = moved[inner]
    return ours


def _best_moved(wide: Float32, theirs: Float32, part: tuple[slice, slice]) -> Float32 | None:
    """Return the query's part after the small shift that matches best; ``None`` for no shift.

    ``wide``: the query with a border of ``SEEK`` pixels.
    """
    (top, left), (height, width) = (max(0, cut.start) for cut in part), theirs.shape
    near = wide[top : top + height + 2 * SEEK, left : left + width + 2 * SEEK]
    score = cv2.matchTemplate(near, theirs, cv2.TM_CCORR_NORMED)
    row, column = divmod(int(score.argmax()), score.shape[1])
    down = row + _peak(score[:, column].tolist(), row)
    across = column + _peak(score[row].tolist(), column)
    if max(abs(down - SEEK), abs(across - SEEK)) < 0.05:
        return None
    shift = np.array([[1, 0, -across], [0, 1, -down]], np.float32)
    moved = cv2.warpAffine(
        near, shift, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(moved, np.float32)


def _peak(values: list[float], at: int) -> float:
    """Return by how much a parabola's peak lies beside the largest value."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, middle, after = values[at - 1 : at + 2]
    bend = before - 2 * middle + after
    return max(-0.5, min(0.5, (before - after) / (2 * bend))) if bend < -1e-6 else 0.0


def _outliers(inks: _Inks) -> Outliers:
    """Return what stands out from the usual differences of two images."""
    share = inks.left / (sum(inks.energy) + inks.noise + 0.02 * inks.contrast)
    content = (inks.inside > 0) & (inks.energies > CONTENT * inks.contrast)
    both = content & (np.minimum(*inks.energy) > BOTH * inks.energies)
    if np.count_nonzero(both) < 30:
        return Outliers()
    usual, robust = (float(value) for value in np.percentile(share[both], USUAL[:2]))
    limit = np.clip(STANDS_OUT * min(usual, USUAL[2] * robust + LEAST_USUAL), *OUT_BOUNDS)
    found = (inks.inside > 0) & (inks.energies > OUT_CONTENT * inks.contrast) & (share > limit)
    more, less, marks, swapped = _sided(inks, found)
    return Outliers(
        usual=math.log(usual + LEAST_USUAL),
        largest=math.log((float(share[both].max()) + LEAST_USUAL) / (usual + LEAST_USUAL)),
        more=math.log1p(more),
        less=math.log1p(less),
        marks=math.log1p(marks),
        swapped=math.log1p(swapped),
    )


def _sided(inks: _Inks, found: Bool) -> tuple[float, float, int, float]:
    """Return what one image alone has, more and less, in how many places, and what was swapped."""
    closed = cv2.morphologyEx(found.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    count, labels = cv2.connectedComponents(closed)
    place, energy = labels[found], inks.left[found] / inks.contrast

    def summed(values: Float32) -> npt.NDArray[np.float64]:
        return np.asarray(np.bincount(place, weights=values, minlength=count)[1:], np.float64)

    alone = [
        summed(energy * (one[found] > ALONE * other[found]))
        for one, other in (inks.energy, inks.energy[::-1])
    ]
    total = summed(energy)
    large = total > LEAST_ENERGY
    lone = large & (np.maximum(*alone) > ONE_SIDED * total)
    apart = np.abs(inks.ours - inks.theirs)[found] / math.sqrt(inks.contrast)
    removed = np.abs(inks.theirs)[found] > np.abs(inks.ours)[found]
    swapped = np.minimum(summed(apart * removed), summed(apart * ~removed))
    sums = sorted(float(side[large].sum()) for side in alone)
    # `more` is of such places only: other places have it where they cross content of both
    more = max(float(side[lone].sum()) for side in alone)
    return more, sums[0], int(np.count_nonzero(lone)), float(swapped[large].sum())


def _summed(inks: _Inks, found: Bool, content: int, typical: float) -> Differences:
    """Return the differences that connected places add up to."""
    closed = cv2.morphologyEx(found.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    count, labels, places, _ = cv2.connectedComponentsWithStats(closed)
    order = np.argsort(-places[1:count, cv2.CC_STAT_AREA], kind="stable")[:PLACES] + 1
    scale = math.sqrt(inks.contrast)
    replaced = covered = area_replaced = 0.0
    sums, lighter, largest, boxes, covers = [0.0, 0.0], [0.0, 0.0], 0.0, [], []
    for label in order.tolist():
        x, y, width, height, area = (int(value) for value in places[label])
        if area < SMALLEST:
            break
        here = np.s_[y : y + height, x : x + width]
        inner = labels[here] == label
        ours, theirs = inks.ours[here][inner], inks.theirs[here][inner]
        apart = np.abs(ours - theirs) / scale
        fainter = np.abs(theirs) > np.abs(ours)
        removed, added = float(apart[fainter].sum()), float(apart[~fainter].sum())
        lesser, greater = min(removed, added), max(removed, added)
        ground = inks.grounds[0][here][inner] - inks.grounds[1][here][inner]
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
