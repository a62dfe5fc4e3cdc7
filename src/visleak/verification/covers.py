"""Parts of an image that something opaque hides: a bar of text, a rectangle, a sticker.

What is below a cover cannot be compared, and the cover itself says nothing about the rest. Two
signs distinguish it from content that was exchanged. It is a compact area of one colour, apart from
what is written on it, where the other image has something else. And its border cuts through what
the other image shows, while an exchanged field, emblem or portrait keeps to the layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Bytes8, Float32
from visleak.verification.measures import correlation

#: Long side of the frame in which covers are found, pixels.
SIDE: Final = 256
#: Levels: range about a pixel of a flat area, deviation from its colour, and difference from what
#: it hides and from what is around it.
FLAT: Final = 6.0
EVEN: Final = 5.0
APART: Final = 10.0
#: Bins of the histogram in which the colours of flat areas are found, and number of colours, most.
BINS: Final = 64
COLOURS: Final = 8
#: Share of the content that a cover has at least, that all covers have at most, and that may differ
#: by ``APART`` beside them: where more does, the images are not one.
LEAST: Final = 0.004
MOST: Final = 0.4
DIFFERENT: Final = 0.25
#: Share that a cover has of its convex hull, that its colour has of the cover, and of that colour
#: that hides something, at least.
COMPACT: Final = 0.8
FILLED: Final = 0.4
HIDES: Final = 0.5
#: Gap that writing leaves in a colour, surroundings that are examined, and rim that is excluded as
#: well, pixels.
GAP: Final = 9
REACH: Final = 8
RIM: Final = 3
#: Width of the ring about a cover, between these distances, and its pixels that differ from the
#: colour at least.
RING: Final = (2, 5)
SEEN: Final = 8
#: Beside its border, the images differ by this share of the step to the cover's colour at most, in
#: this share of the ring at least.
OFF: Final = 0.4
SAME: Final = 0.5
#: Share of the ring in which the other image has content that continues below the cover at least,
#: and distance of the one from the other, pixels.
CUT: Final = 0.15
ACROSS: Final = 8
#: Share of the image that has content at least: a chart, a form or a dialog is mostly plain, and a
#: bar that grew, or a row that was selected, is content there.
BUSY: Final = 0.3
#: Area of the same colour elsewhere, as a share of the cover's, up to which it is foreign to a
#: smooth image: the bars of a chart have one colour.
FOREIGN: Final = 0.25
#: Product (levels squared) of the details of a smooth surface whose grain both images show, and
#: share of it at least: grain is content as well.
GRAIN: Final = 0.02
GRAINED: Final = 0.6
#: Correlation of the details of both images inside, at most: more is not hidden.
KEPT: Final = 0.3

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Covers:
    """What covers one of two images in a frame."""

    where: Bool  # (h, w)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Left, top, width and height of each, pixels."""
        _, _, places, _ = cv2.connectedComponentsWithStats(self.where.astype(np.uint8))
        return tuple((int(x), int(y), int(w), int(h)) for x, y, w, h in places[1:, :4])

    def resized(self, size: tuple[int, int]) -> Covers:
        """Return the same in the frame at another width and height."""
        where = cv2.resize(self.where.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
        return Covers(np.asarray(where > 0))


def covers_of(query: Float32, reference: Float32, whole: Bool, content: Bool) -> Covers:
    """Return what covers one of two grey images (h, w) in one frame, in register to some pixels.

    ``whole``: where both images lie, with their margins; ``content``: where both have content.
    """
    height, width = whole.shape
    shrink = max(1.0, max(height, width) / SIDE)
    size = (max(1, round(width / shrink)), max(1, round(height / shrink)))
    ours, theirs = (
        np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_AREA), np.float32)
        for plane in (query, reference)
    )
    inside, compared = (
        cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
        for mask in (whole, content)
    )
    total = int(np.count_nonzero(compared))
    difference = np.abs(ours - theirs)
    apart = (difference >= APART) & compared
    if np.count_nonzero(apart) > (MOST + DIFFERENT) * total or not _may_hide(
        difference[inside], FILLED * LEAST * total
    ):
        return Covers(np.zeros_like(whole))
    details = [plane - cv2.GaussianBlur(plane, (5, 5), 0) for plane in (ours, theirs)]
    area = np.zeros(inside.shape, np.uint8)
    for one, other, *both in ((ours, theirs, *details), (theirs, ours, *details[::-1])):
        lively = _range(other) > FLAT
        busy = bool(np.count_nonzero(lively & compared) >= BUSY * total)
        sight = _Sight(one, other, (both[0], both[1]), inside, lively, busy)
        area |= _hiding(sight, total)
    known = LEAST * total <= np.count_nonzero(compared[area > 0]) <= MOST * total
    if not known or np.count_nonzero(apart[area == 0]) > DIFFERENT * total:
        return Covers(np.zeros_like(whole))
    return Covers(cv2.dilate(area, _square(2 * RIM + 1)) > 0).resized((width, height))


def _may_hide(difference: Float32, least: float) -> bool:
    """Whether any ``least`` pixels differ by ``APART`` on average, as below the smallest cover."""
    count = max(1, int(least))
    if count >= len(difference):
        return True
    return float(np.partition(difference, -count)[-count:].mean()) >= APART


@dataclass(frozen=True, slots=True)
class _Sight:
    """Two images in one frame, one of which may hide parts of the other."""

    # grey, (h, w)
    one: Float32
    other: Float32
    details: tuple[Float32, Float32]  # of both
    inside: Bool  # where both lie
    lively: Bool  # where the other has content
    busy: bool  # it has content in many places

    def part(self, cut: tuple[slice, slice]) -> _Sight:
        details = self.details[0][cut], self.details[1][cut]
        return replace(
            self,
            one=self.one[cut],
            other=self.other[cut],
            details=details,
            inside=self.inside[cut],
            lively=self.lively[cut],
        )

    def is_cover(self, fill: Bool, area: Bytes8, level: float, *, foreign: bool) -> bool:
        """Whether a compact area covers the other image; ``foreign``: no other has its level."""
        apart = np.abs(self.one - self.other)
        if float(apart[fill].mean()) < APART:
            return False
        inner, outer = (cv2.dilate(area, _square(2 * reach + 1)) for reach in RING)
        ring = (outer > inner) & self.inside
        step = np.abs(self.other - level)
        seen = ring & (step >= APART)
        if np.count_nonzero(seen) < SEEN or (apart <= OFF * step)[seen].mean() < SAME:
            return False
        if abs(correlation(*(plane[area > 0] for plane in self.details))) > KEPT:
            return False
        quiet = seen & ~self.lively
        ours, theirs = (plane[quiet] for plane in self.details)
        if not foreign or not quiet.any() or (ours * theirs >= GRAIN).mean() < GRAINED:
            if not self.busy:
                return False
            # what is cut is on either side of the border
            inner, outer = (cv2.erode(area, _square(2 * reach + 1)) for reach in RING)
            beyond = (((inner > outer) & self.lively) > 0).astype(np.uint8)
            seen = seen & self.lively & (cv2.dilate(beyond, _square(2 * ACROSS + 1)) > 0)
        return bool(np.count_nonzero(seen) >= CUT * np.count_nonzero(ring))


def _hiding(sight: _Sight, total: int) -> Bytes8:
    """Return 1 where the one image has a cover; ``total``: pixels that are compared."""
    found = np.zeros(sight.inside.shape, np.uint8)
    least = LEAST * total
    flat = (_range(sight.one) <= FLAT) & sight.inside
    other = sight.inside & (np.abs(sight.one - sight.other) >= APART) | (flat & sight.lively)
    hiding = flat & other
    core = cv2.erode(hiding.astype(np.uint8), _square(3))
    near = flat & (cv2.dilate(core, _square(2 * REACH + 1)) > 0)
    # a cover of the colour of its surroundings shows only where it hides something
    fills = (*_fills(sight.one, near, near, least), *_fills(sight.one, hiding, other, least))
    for level, fill in fills:
        count, labels, places, _ = cv2.connectedComponentsWithStats(_closed(fill))
        for label in np.flatnonzero(places[1:count, cv2.CC_STAT_AREA] >= least) + 1:
            left, top, width, height = (int(value) for value in places[label, :4])
            here = np.s_[
                max(0, top - REACH) : top + height + REACH,
                max(0, left - REACH) : left + width + REACH,
            ]
            own = (labels[here] == label) & fill[here]
            if np.count_nonzero(own & other[here]) <= HIDES * np.count_nonzero(own):
                continue
            area = _outlined(own)
            whole = np.count_nonzero(area)
            if not least <= whole <= MOST * total or np.count_nonzero(own) < FILLED * whole:
                continue
            elsewhere = flat & ~other & (np.abs(sight.one - level) <= EVEN)
            foreign = bool(np.count_nonzero(elsewhere) <= FOREIGN * np.count_nonzero(own))
            if sight.part(here).is_cover(own, area, level, foreign=foreign):
                found[here] |= area
    return found


def _fills(grey: Float32, flat: Bool, wanted: Bool, least: float) -> Iterator[tuple[float, Bool]]:
    """Yield the levels that flat parts of an image have in some area, and where it has them."""
    left = flat
    for _ in range(COLOURS):
        levels = grey[left]
        if len(levels) < FILLED * least:
            return
        counts, edges = np.histogram(levels, BINS, (0, 256))
        middle = edges[int(counts.argmax())] + 128 / BINS
        near = levels[np.abs(levels - middle) <= EVEN]
        if len(near) < FILLED * least:
            return
        level = float(np.median(near))
        yield level, wanted & (np.abs(grey - level) <= EVEN)
        left = left & (np.abs(grey - level) > EVEN) & (np.abs(grey - middle) > EVEN)


def _outlined(fill: Bool) -> Bytes8:
    """Return the area within the outline of a fill; none where that is not compact."""
    area = np.zeros(fill.shape, np.uint8)
    outlines, _ = cv2.findContours(_closed(fill), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    largest = max(outlines, key=cv2.contourArea)
    if cv2.contourArea(largest) >= COMPACT * cv2.contourArea(cv2.convexHull(largest)):
        cv2.drawContours(area, [largest], -1, 1, cv2.FILLED)
    return np.asarray(cv2.dilate(area, _square(3)), np.uint8)


def _closed(fill: Bool) -> Bytes8:
    """Return a fill without the gaps that writing leaves in it."""
    wide = cv2.copyMakeBorder(fill.astype(np.uint8), GAP, GAP, GAP, GAP, cv2.BORDER_REPLICATE)
    closed = cv2.morphologyEx(wide, cv2.MORPH_CLOSE, _square(GAP))
    return np.asarray(closed[GAP:-GAP, GAP:-GAP], np.uint8)


def _range(grey: Float32) -> Float32:
    return np.asarray(cv2.dilate(grey, _square(3)) - cv2.erode(grey, _square(3)), np.float32)


def _square(side: int) -> Bytes8:
    return np.ones((side, side), np.uint8)
