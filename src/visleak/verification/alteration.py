"""Altered content of two registered images, detected by a small convolutional network.

One changed digit is a millionth of a page, and in a noisy scan no threshold on differences
separates it from a blurred stroke. The network classifies windows of about 40 pixels: the same
content, possibly processed or overlaid, or other content in its place. It was trained on rendered
documents and on copies of photographs by ``benchmarks/fit_alteration.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32
from visleak.verification import networks
from visleak.verification.regions import Box

#: Side of a cell, for which the network has one output, pixels.
CELL: Final = 4
#: Side (pixels) of the windows whose mean and contrast normalize the input, and the variance
#: (levels squared) that is added to theirs.
WINDOW_SIDE: Final = 49
QUIET: Final = 16.0
#: Largest absolute log-odds.
MAX_LOG_ODDS: Final = 6.0
#: Fewest cells of an altered region.
MIN_CELLS: Final = 3
#: Distance, in cells, up to which cells belong to an altered region, not to the rest of the pair.
NEARBY: Final = 8
#: Largest energy of the details of a plain cell, levels squared.
PLAIN: Final = 2.0
#: Long side to which smaller frames are enlarged, pixels, and largest factor.
SIDE: Final = 1024
MAX_ENLARGEMENT: Final = 2.0
#: Width of the border of the mask that is ignored, pixels.
BORDER: Final = 9


@dataclass(frozen=True, slots=True)
class Alteration:
    """The altered content of a pair."""

    strength: float = -MAX_LOG_ODDS  # largest log-odds, mean of 2 x 2 cells, -6..6
    # largest log-odds without the region of the strongest alteration: high if processing alone
    # resembles alteration, or if much was altered
    rest: float = -MAX_LOG_ODDS
    # largest log-odds where neither image has a colour that the other lacks
    untinted: float = -MAX_LOG_ODDS
    cells: int = 0  # number of cells that are more likely altered than not
    covered: float = 0.0  # share of these cells where only one image is plain (sticker, bar), 0..1
    boxes: tuple[Box, ...] = ()  # of the altered regions in the frame, largest first


#: Alteration of images whose content differs nearly everywhere.
ALTERED_EVERYWHERE: Final = Alteration(
    strength=MAX_LOG_ODDS, rest=MAX_LOG_ODDS, untinted=MAX_LOG_ODDS
)


def find_alterations(
    query: Float32, reference: Float32, mask: Bool, tinted: Bool | None = None
) -> Alteration:
    """Return the altered content of two registered grey images (h, w) inside a mask.

    ``tinted``: where one of them has a colour that the other lacks.
    """
    if min(mask.shape) < 2 * CELL:
        return Alteration()
    query, reference, mask, times = enlarged(query, reference, mask)
    planes = normalized_planes(query, reference, mask)
    odds = networks.run_network(networks.ALTERATION, looks=planes)[0]
    odds = masked(np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS), mask)
    found = odds > 0
    smoothed = smooth(odds)
    strength = untinted = float(smoothed.max())
    if tinted is not None:
        size = odds.shape[::-1]
        beside = cv2.resize(tinted.astype(np.uint8), size, interpolation=cv2.INTER_AREA) == 0
        untinted = float(smoothed[beside].max()) if beside.any() else -MAX_LOG_ODDS
    return Alteration(
        strength=strength,
        rest=_rest(smoothed, strength),
        untinted=untinted,
        cells=round(np.count_nonzero(found) / times**2),
        covered=_covered(query, reference, found),
        boxes=boxes_of(found, CELL / times),
    )


def enlarged(
    query: Float32, reference: Float32, mask: Bool
) -> tuple[Float32, Float32, Bool, float]:
    """Return two small images and their mask enlarged, and the factor."""
    times = min(MAX_ENLARGEMENT, max(1.0, SIDE / max(mask.shape)))
    if times > 1:
        query, reference = (_enlarged(plane, times) for plane in (query, reference))
        mask = _enlarged(mask.astype(np.uint8), times) > 0
    return query, reference, mask, times


def _enlarged(plane: npt.NDArray[np.uint8 | np.float32], times: float) -> Float32:
    """Return a plane enlarged; the network was trained on strokes of more than one pixel."""
    method = cv2.INTER_CUBIC if plane.dtype == np.float32 else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(plane, None, fx=times, fy=times, interpolation=method), np.float32)


def masked(odds: Float32, mask: Bool) -> Float32:
    """Return log-odds of cells, the lowest outside of a mask (h, w) and near its border."""
    inner = cv2.erode(mask.astype(np.uint8), np.ones((BORDER, BORDER), np.uint8))
    inside = cv2.resize(inner, odds.shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
    return np.where(inside, odds, np.float32(-MAX_LOG_ODDS))


def smooth(odds: Float32) -> Float32:
    """Return means of 2 x 2 cells, because one cell alone is not reliable."""
    return np.asarray(cv2.blur(odds, (2, 2)), np.float32)


def boxes_of(found: Bool, cell: float) -> tuple[Box, ...]:
    """Return the boxes of connected cells with a side of ``cell`` pixels, largest first."""
    _, _, stats, _ = cv2.connectedComponentsWithStats(found.astype(np.uint8))
    order = np.argsort(-stats[1:, cv2.CC_STAT_AREA], kind="stable") + 1
    kept = stats[order[stats[order, cv2.CC_STAT_AREA] >= MIN_CELLS], :4]
    return tuple(
        (round(cell * x), round(cell * y), round(cell * w), round(cell * h))
        for x, y, w, h in kept.tolist()
    )


def _rest(odds: Float32, strength: float) -> float:
    """Return the largest log-odds outside of the strongest region and its surroundings."""
    side = 2 * NEARBY + 1
    high = (odds >= min(0.0, strength)).astype(np.uint8)
    _, regions = cv2.connectedComponents(cv2.dilate(high, np.ones((side, side), np.uint8)))
    others = odds[regions != regions.flat[int(odds.argmax())]]
    return float(others.max()) if others.size else -MAX_LOG_ODDS


def _covered(query: Float32, reference: Float32, found: Bool) -> float:
    """Return the share of the altered cells where only one image is plain."""
    if not found.any():
        return 0.0
    one, other = (
        cv2.resize(energy, found.shape[::-1], interpolation=cv2.INTER_AREA) < PLAIN
        for energy in (_energy(query), _energy(reference))
    )
    return float((one != other)[found].mean())


def _energy(grey: Float32) -> Float32:
    """Return the energy of the details around each pixel, levels squared."""
    details = grey - cv2.GaussianBlur(grey, (0, 0), 2.0)
    return np.asarray(cv2.blur(details * details, (2 * CELL + 1, 2 * CELL + 1)), np.float32)


def normalized_planes(query: Float32, reference: Float32, mask: Bool) -> Float32:
    """Return the input of the network, (3, h, w): both images and their difference.

    Local mean and contrast, over both images, are normalized.
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
    return np.asarray(cv2.blur(plane, (WINDOW_SIDE, WINDOW_SIDE)), np.float32)
