"""Where two images in register differ, and how: content replaced, added, or covered.

Most of a document is paper and template, so a mean over the image says nothing about the one field
that differs. Local correlation at the scale of a stroke does. A place counts as different only if
no small shift of its surroundings brings the two images together, so that what is left of a bend or
a perspective does not look like another text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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

Box = tuple[int, int, int, int]


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


@dataclass(frozen=True, slots=True)
class _Inks:
    """What stands out from the ground of two images in one frame."""

    # grey minus ground, (h, w)
    ours: Float32
    theirs: Float32
    grounds: tuple[Float32, Float32]  # of both
    energies: Float32  # the greater of both, smoothed, levels squared
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
        energies = np.maximum(_smooth(ours * ours * weight), _smooth(theirs * theirs * weight))
        contrast = float(np.percentile(energies[inside], 92)) + 4
        noise = float(np.median(_smooth((ours - theirs) ** 2 * weight)[inside]))
        return cls(ours, theirs, grounds, energies, weight, contrast, noise)

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


def differences(query: Float32, reference: Float32, mask: Bool) -> Differences:
    """Return where two grey images (h, w), settled, differ, of where the mask holds."""
    inks = _Inks.of(query, reference, mask)
    if inks is None:
        return Differences()
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
    for tile in order[counts[order] > 0].tolist():
        row, column = divmod(tile, columns)
        top, left = row * height // rows, column * width // columns
        bottom, right = (row + 1) * height // rows, (column + 1) * width // columns
        around = np.s_[
            max(0, top - AROUND) : bottom + AROUND, max(0, left - AROUND) : right + AROUND
        ]
        moved = _best_moved(inks, around)
        if moved is None:
            continue
        inner = np.s_[
            top - around[0].start : bottom - around[0].start,
            left - around[1].start : right - around[1].start,
        ]
        tried = inks.differing(moved, around)[inner]
        here = np.s_[top:bottom, left:right]
        ours[here] = np.where(tried < differing[here], moved[inner], ours[here])
    return ours


def _best_moved(inks: _Inks, part: tuple[slice, slice]) -> Float32 | None:
    """Return the query's part after the small shift that matches best; ``None`` for no shift."""
    theirs = inks.theirs[part]
    top, left = (max(0, cut.start - SEEK) for cut in part)
    wide = inks.ours[top : part[0].stop + SEEK, left : part[1].stop + SEEK]
    score = cv2.matchTemplate(wide, theirs, cv2.TM_CCORR_NORMED)
    row, column = divmod(int(score.argmax()), score.shape[1])
    down = row + _peak(score[:, column].tolist(), row)
    across = column + _peak(score[row].tolist(), column)
    if max(abs(down - (part[0].start - top)), abs(across - (part[1].start - left))) < 0.05:
        return None
    shift = np.array([[1, 0, -across], [0, 1, -down]], np.float32)
    size = (theirs.shape[1], theirs.shape[0])
    moved = cv2.warpAffine(
        wide, shift, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(moved, np.float32)


def _peak(values: list[float], at: int) -> float:
    """Return by how much a parabola's peak lies beside the largest value."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, middle, after = values[at - 1 : at + 2]
    bend = before - 2 * middle + after
    return max(-0.5, min(0.5, (before - after) / (2 * bend))) if bend < -1e-6 else 0.0


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
