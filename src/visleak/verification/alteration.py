"""Whether content of two registered images was altered, as a small convolutional network sees it.

One changed digit is a millionth of a page, and under a scan's noise no threshold on differences
tells it from a stroke that was blurred. The network judges windows of about 40 pixels: the same
content processed or overlaid, or other content in its place. It was trained on rendered documents
and on copies of photographs by ``benchmarks/fit_alteration.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32
from visleak.verification import networks

#: Side of a cell, for which the network gives one answer, pixels.
CELL: Final = 4
#: Side (pixels) of the area whose mean and contrast normalise a place, and the variance, levels
#: squared, that counts for none.
AROUND: Final = 49
QUIET: Final = 16.0
#: Log-odds are bounded here.
MOST: Final = 6.0
#: Cells of a place, at least.
SMALLEST: Final = 3
#: Cells about a place that are not part of the rest of the pair.
NEARBY: Final = 8
#: Energy of the details of a plain place, levels squared, at most.
PLAIN: Final = 2.0
#: Long side to which smaller frames are enlarged, pixels, and by how much at most.
SIDE: Final = 1024
LARGEST: Final = 2.0
#: Border of the mask that is not judged, pixels.
BORDER: Final = 9

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Alteration:
    """Where content was altered."""

    strength: float = -MOST  # log-odds of the most altered place, mean of 2 x 2 cells, -6..6
    # the same of the rest of the pair, without that place and what is near it: high where
    # processing alone looks altered, or where much was altered
    rest: float = -MOST
    # the strength of the most altered place where neither image has a colour of its own
    untinted: float = -MOST
    cells: int = 0  # number of cells that are more likely altered than not
    # share of those cells where one image alone is plain, 0..1: a sticker, or a bar
    covered: float = 0.0
    # left, top, width, height of the altered places in the frame, pixels; largest first
    boxes: tuple[Box, ...] = ()


#: What is said of images whose content differs nearly everywhere.
ALTERED_ALL_OVER: Final = Alteration(strength=MOST, rest=MOST, untinted=MOST)


def altered(
    query: Float32, reference: Float32, mask: Bool, tinted: Bool | None = None
) -> Alteration:
    """Return where two grey images (h, w) in register were altered, of where the mask holds.

    ``tinted``: where one of them has a colour of its own.
    """
    if min(mask.shape) < 2 * CELL:
        return Alteration()
    query, reference, mask, times = enlarged(query, reference, mask)
    odds = networks.answers(networks.ALTERATION, looks=planes(query, reference, mask))[0]
    odds = within(np.clip(odds, -MOST, MOST), mask)
    found = odds > 0
    smoothed = smooth(odds)
    strength = untinted = float(smoothed.max())
    if tinted is not None:
        size = odds.shape[::-1]
        beside = cv2.resize(tinted.astype(np.uint8), size, interpolation=cv2.INTER_AREA) == 0
        untinted = float(smoothed[beside].max()) if beside.any() else -MOST
    return Alteration(
        strength=strength,
        rest=_rest(smoothed, strength),
        untinted=untinted,
        cells=round(np.count_nonzero(found) / times**2),
        covered=_covered(query, reference, found),
        boxes=places(found, CELL / times),
    )


def enlarged(
    query: Float32, reference: Float32, mask: Bool
) -> tuple[Float32, Float32, Bool, float]:
    """Return two small images and their mask enlarged, and how many times their sides are."""
    times = min(LARGEST, max(1.0, SIDE / max(mask.shape)))
    if times > 1:
        query, reference = (_enlarged(plane, times) for plane in (query, reference))
        mask = _enlarged(mask.astype(np.uint8), times) > 0
    return query, reference, mask, times


def _enlarged(plane: npt.NDArray[np.uint8 | np.float32], times: float) -> Float32:
    """Return a plane enlarged: strokes of one pixel are less than the network was trained on."""
    method = cv2.INTER_CUBIC if plane.dtype == np.float32 else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(plane, None, fx=times, fy=times, interpolation=method), np.float32)


def within(odds: Float32, mask: Bool) -> Float32:
    """Return log-odds of cells, lowest where the mask (h, w) does not hold, or hardly."""
    inner = cv2.erode(mask.astype(np.uint8), np.ones((BORDER, BORDER), np.uint8))
    judged = cv2.resize(inner, odds.shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
    return np.where(judged, odds, np.float32(-MOST))


def smooth(odds: Float32) -> Float32:
    """Return the mean of 2 x 2 cells: one cell alone is not a place."""
    return np.asarray(cv2.blur(odds, (2, 2)), np.float32)


def places(found: Bool, cell: float) -> tuple[Box, ...]:
    """Return the boxes of connected cells, whose sides are given in pixels; largest first."""
    _, _, stats, _ = cv2.connectedComponentsWithStats(found.astype(np.uint8))
    order = np.argsort(-stats[1:, cv2.CC_STAT_AREA], kind="stable") + 1
    kept = stats[order[stats[order, cv2.CC_STAT_AREA] >= SMALLEST], :4]
    return tuple(
        (round(cell * x), round(cell * y), round(cell * w), round(cell * h))
        for x, y, w, h in kept.tolist()
    )


def _rest(odds: Float32, strength: float) -> float:
    """Return the largest log-odds without the strongest place, and places near it."""
    side = 2 * NEARBY + 1
    high = (odds >= min(0.0, strength)).astype(np.uint8)
    _, places = cv2.connectedComponents(cv2.dilate(high, np.ones((side, side), np.uint8)))
    others = odds[places != places.flat[int(odds.argmax())]]
    return float(others.max()) if others.size else -MOST


def _covered(query: Float32, reference: Float32, found: Bool) -> float:
    """Return the share of the altered cells where one of two images alone is plain."""
    if not found.any():
        return 0.0
    one, other = (
        cv2.resize(energy, found.shape[::-1], interpolation=cv2.INTER_AREA) < PLAIN
        for energy in (_energy(query), _energy(reference))
    )
    return float((one != other)[found].mean())


def _energy(grey: Float32) -> Float32:
    """Return the energy of the details about each pixel, levels squared."""
    details = grey - cv2.GaussianBlur(grey, (0, 0), 2.0)
    return np.asarray(cv2.blur(details * details, (2 * CELL + 1, 2 * CELL + 1)), np.float32)


def planes(query: Float32, reference: Float32, mask: Bool) -> Float32:
    """Return the input of the network, (3, h, w): both images and their difference.

    Mean and contrast of the surroundings, one for both images, are taken out.
    """
    inside = cv2.erode(mask.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(np.float32)
    share = np.maximum(_mean(inside), 0.05)
    mean = (_mean(query * inside) + _mean(reference * inside)) / (2 * share)
    ours, theirs = (query - mean) * inside, (reference - mean) * inside
    variance = (_mean(ours * ours) + _mean(theirs * theirs)) / (2 * share)
    scale = 1 / np.sqrt(variance + QUIET)
    ours, theirs = ours * scale, theirs * scale
    return np.stack([ours, theirs, 2 * (ours - theirs)]).astype(np.float32)


def _mean(plane: Float32) -> Float32:
    return np.asarray(cv2.blur(plane, (AROUND, AROUND)), np.float32)
