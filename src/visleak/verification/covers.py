"""Opaque covers on parts of an image: a bar of text, a rectangle, a sticker.

The content below a cover cannot be compared. Two properties distinguish a cover from replaced
content: it is a compact area of one colour, except for text on it, where the other image differs;
and its border cuts through content of the other image, while a replaced field, emblem or portrait
respects the layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Bytes8, Float32
from visleak.verification.measures import correlation
from visleak.verification.regions import Box

#: Long side of the frame in which covers are found, pixels.
SIDE: Final = 256
#: Levels: largest local range in a flat area, largest deviation from its colour, and smallest
#: difference from hidden content and from the surroundings.
FLAT: Final = 6.0
EVEN: Final = 5.0
MIN_DIFFERENCE: Final = 10.0
#: Bins of the histogram in which the colours of flat areas are found, and most colours.
BINS: Final = 64
COLOURS: Final = 8
#: Shares of the content: smallest of a cover, largest of all covers, and largest that differs
#: outside of them. If more differs, the images are not copies.
MIN_SHARE: Final = 0.004
MAX_SHARE: Final = 0.4
DIFFERENT: Final = 0.25
#: Smallest shares: of its convex hull that a cover fills, of the cover with its colour, and of this
#: colour where the other image differs.
COMPACT: Final = 0.8
FILLED: Final = 0.4
HIDES: Final = 0.5
#: Gaps in a colour that text leaves, surroundings that are examined, and rim that is masked as
#: well, pixels.
GAP: Final = 9
REACH: Final = 8
RIM: Final = 3
#: Distances from a cover between which its ring lies, and fewest pixels of the ring that differ
#: from the colour of the cover.
RING: Final = (2, 5)
MIN_RING: Final = 8
#: Largest difference of the images in the ring, as a share of the difference from the colour of the
#: cover, and smallest share of the ring with it.
CONTINUES: Final = 0.4
SAME: Final = 0.5
#: Smallest share of the ring where content of the other image continues below the cover, and
#: distance of the two, pixels.
CUT: Final = 0.15
ACROSS: Final = 8
#: Smallest share of the image with content. Charts, forms and dialogs have less: in these, a bar
#: that grew, or a row that was selected, is content.
BUSY: Final = 0.3
#: Largest area of the same colour elsewhere in a smooth image, as a share of the cover: the bars of
#: a chart have one colour.
FOREIGN: Final = 0.25
#: Smallest product (levels squared) of the details of two images that show the same grain, and
#: smallest share of a smooth surface with it: grain is content as well.
GRAIN: Final = 0.02
GRAINED: Final = 0.6
#: Largest correlation of the details of both images inside a cover; more is not hidden.
KEPT: Final = 0.3


@dataclass(frozen=True, slots=True)
class Covers:
    """The covers on two images in a frame."""

    where: Bool  # (h, w)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The box of each cover."""
        _, _, places, _ = cv2.connectedComponentsWithStats(self.where.astype(np.uint8))
        return tuple((int(x), int(y), int(w), int(h)) for x, y, w, h in places[1:, :4])

    def resized(self, size: tuple[int, int]) -> Covers:
        """Return the covers at another width and height of the frame."""
        where = cv2.resize(self.where.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
        return Covers(np.asarray(where > 0))


def find_covers(query: Float32, reference: Float32, whole: Bool, content: Bool) -> Covers:
    """Return the covers on two grey images (h, w) in one frame, registered to a few pixels.

    ``whole``: extent of both images including their margins; ``content``: content of both.
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
    apart = (difference >= MIN_DIFFERENCE) & compared
    if np.count_nonzero(apart) > (MAX_SHARE + DIFFERENT) * total or not _may_hide(
        difference[inside], FILLED * MIN_SHARE * total
    ):
        return Covers(np.zeros_like(whole))
    details = [plane - cv2.GaussianBlur(plane, (5, 5), 0) for plane in (ours, theirs)]
    area = np.zeros(inside.shape, np.uint8)
    for one, other, *both in ((ours, theirs, *details), (theirs, ours, *details[::-1])):
        lively = _range(other) > FLAT
        busy = bool(np.count_nonzero(lively & compared) >= BUSY * total)
        pair = _CoveredPair(one, other, (both[0], both[1]), inside, lively, busy)
        area |= _covered(pair, total)
    allowed = MIN_SHARE * total <= np.count_nonzero(compared[area > 0]) <= MAX_SHARE * total
    if not allowed or np.count_nonzero(apart[area == 0]) > DIFFERENT * total:
        return Covers(np.zeros_like(whole))
    return Covers(cv2.dilate(area, _square(2 * RIM + 1)) > 0).resized((width, height))


def _may_hide(difference: Float32, least: float) -> bool:
    """Whether any ``least`` pixels differ enough on average for the smallest cover."""
    count = max(1, int(least))
    if count >= len(difference):
        return True
    return float(np.partition(difference, -count)[-count:].mean()) >= MIN_DIFFERENCE


@dataclass(frozen=True, slots=True)
class _CoveredPair:
    """Two images in one frame, of which ``one`` may have covers that hide parts of ``other``."""

    # grey, (h, w)
    one: Float32
    other: Float32
    details: tuple[Float32, Float32]  # of both
    inside: Bool  # extent of both
    lively: Bool  # where the other has content
    busy: bool  # whether much of the other has content

    def part(self, cut: tuple[slice, slice]) -> _CoveredPair:
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
        """Whether a compact area is a cover; ``foreign``: no other area has its level."""
        apart = np.abs(self.one - self.other)
        if float(apart[fill].mean()) < MIN_DIFFERENCE:
            return False
        inner, outer = (cv2.dilate(area, _square(2 * reach + 1)) for reach in RING)
        ring = (outer > inner) & self.inside
        step = np.abs(self.other - level)
        distinct = ring & (step >= MIN_DIFFERENCE)
        if np.count_nonzero(distinct) < MIN_RING:
            return False
        if (apart <= CONTINUES * step)[distinct].mean() < SAME:
            return False
        if abs(correlation(*(plane[area > 0] for plane in self.details))) > KEPT:
            return False
        quiet = distinct & ~self.lively
        ours, theirs = (plane[quiet] for plane in self.details)
        if not foreign or not quiet.any() or (ours * theirs >= GRAIN).mean() < GRAINED:
            if not self.busy:
                return False
            # content that is cut is on both sides of the border
            inner, outer = (cv2.erode(area, _square(2 * reach + 1)) for reach in RING)
            beyond = (((inner > outer) & self.lively) > 0).astype(np.uint8)
            distinct &= self.lively & (cv2.dilate(beyond, _square(2 * ACROSS + 1)) > 0)
        return bool(np.count_nonzero(distinct) >= CUT * np.count_nonzero(ring))


def _covered(pair: _CoveredPair, total: int) -> Bytes8:
    """Return 1 where ``pair.one`` has a cover; ``total``: number of pixels that are compared."""
    found = np.zeros(pair.inside.shape, np.uint8)
    least = MIN_SHARE * total
    flat = (_range(pair.one) <= FLAT) & pair.inside
    apart = np.abs(pair.one - pair.other) >= MIN_DIFFERENCE
    other = pair.inside & apart | (flat & pair.lively)
    hiding = flat & other
    core = cv2.erode(hiding.astype(np.uint8), _square(3))
    near = flat & (cv2.dilate(core, _square(2 * REACH + 1)) > 0)
    # a cover with the colour of its surroundings is visible only where it hides content
    fills = (*_fills(pair.one, near, near, least), *_fills(pair.one, hiding, other, least))
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
            if not least <= whole <= MAX_SHARE * total or np.count_nonzero(own) < FILLED * whole:
                continue
            elsewhere = flat & ~other & (np.abs(pair.one - level) <= EVEN)
            foreign = bool(np.count_nonzero(elsewhere) <= FOREIGN * np.count_nonzero(own))
            if pair.part(here).is_cover(own, area, level, foreign=foreign):
                found[here] |= area
    return found


def _fills(grey: Float32, flat: Bool, wanted: Bool, least: float) -> Iterator[tuple[float, Bool]]:
    """Yield the most frequent levels of flat parts of an image, and the wanted area with each."""
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
    """Return the area inside the outline of a fill, empty if that is not compact."""
    area = np.zeros(fill.shape, np.uint8)
    outlines, _ = cv2.findContours(_closed(fill), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    largest = max(outlines, key=cv2.contourArea)
    if cv2.contourArea(largest) >= COMPACT * cv2.contourArea(cv2.convexHull(largest)):
        cv2.drawContours(area, [largest], -1, 1, cv2.FILLED)
    return np.asarray(cv2.dilate(area, _square(3)), np.uint8)


def _closed(fill: Bool) -> Bytes8:
    """Return a fill with the gaps of text closed."""
    wide = cv2.copyMakeBorder(fill.astype(np.uint8), GAP, GAP, GAP, GAP, cv2.BORDER_REPLICATE)
    closed = cv2.morphologyEx(wide, cv2.MORPH_CLOSE, _square(GAP))
    return np.asarray(closed[GAP:-GAP, GAP:-GAP], np.uint8)


def _range(grey: Float32) -> Float32:
    return np.asarray(cv2.dilate(grey, _square(3)) - cv2.erode(grey, _square(3)), np.float32)


def _square(side: int) -> Bytes8:
    return np.ones((side, side), np.uint8)
