"""Comparing two grey images in their common frame: edges, structure, drift, what is left.

A processed copy agrees in its edges once light, colour and blur are fitted, and a caption or a
logo is one patch of disagreement. Another shot of the same scene has the same light and colour,
but no single relation brings all of its edges together: parts stay displaced (parallax, motion).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32
from visleak.verification.exact import EXACT_LEVELS
from visleak.verification.measures import UNKNOWN, ratio

Float64 = npt.NDArray[np.float64]
#: Tiles along a side in which patches of disagreement are found.
TILES: Final = 4
#: Share of the energy of the strongest tile below which a tile is plain.
PLAIN: Final = 0.01
#: Blurs (pixels of the frame) that are tried on the sharper image.
BLURS: Final = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
#: Side of the windows of local structure and drift, as a share of the frame's long side.
WINDOW: Final = 0.11
#: Variance (levels squared) below which a window has no structure to speak of.
FAINT: Final = 6.0
#: Correlation from which a window agrees.
AGREES: Final = 0.6
#: Standard deviation (levels) above which a window counts no more than others.
STRONG: Final = 20.0
#: Weight of a window at the image's edge, of 1 in its middle.
EDGE: Final = 0.3
#: Share of the windows that drift less than what is told.
QUANTILE: Final = 0.75
#: Weight of the unknown drift of images without texture: 1/100 of that of usual texture.
PRIOR: Final = 5e-4
#: A window of less correlation contradicts, and what contradicts is left out of an alignment if
#: this share at least is left.
CONTRADICTS: Final = 0.3
KEPT: Final = 0.3

_THREE: Final = np.ones((3, 3), np.uint8)


@dataclass(frozen=True, slots=True)
class Edges:
    """How the edges of two grey images agree."""

    gradient: float  # correlation of the gradients over the overlap, -1..1
    core: float  # the same without the quarter of the tiles that agrees least, of those with edges


@dataclass(frozen=True, slots=True)
class Local:
    """How windows of two grey images agree, weighted by their contrast."""

    structure: float  # mean correlation of a window, -1..1
    agree: float  # share of the windows whose correlation is at least AGREES, 0..1
    drift: float  # upper quartile of the displacement that is left, pixels of the frame


def blurred_equally(
    query: Float32, reference: Float32, mask: Bool
) -> tuple[Float32, Float32, float]:
    """Return two grey images with the sharper one blurred to the other's share of fine detail.

    Undoes a blur, and takes noise away too, which is fine detail that the other does not have.
    """
    inner = _inner(mask)
    energies = [_fineness(image, mask, inner) for image in (query, reference)]
    sharper = int(energies[1] > energies[0])
    images, goal = [query, reference], energies[1 - sharper]
    best, chosen = abs(math.log((energies[sharper] + 1e-6) / (goal + 1e-6))), 0.0
    start = images[sharper]
    for sigma in BLURS if best > 0.1 else ():
        tried = np.asarray(cv2.GaussianBlur(start, (0, 0), sigma), np.float32)
        miss = abs(math.log((_fineness(tried, mask, inner) + 1e-6) / (goal + 1e-6)))
        if miss >= best:
            break
        best, chosen, images[sharper] = miss, sigma, tried
    return images[0], images[1], chosen


def _fineness(image: Float32, mask: Bool, inner: Float32) -> float:
    """Return the energy of the gradients as a share of the variance."""
    across, down = _gradients(image, inner)
    variance = float(image[mask].var()) * mask.size
    return float((across * across + down * down).sum()) / max(variance, 1.0)


def _inner(mask: Bool) -> Float32:
    return np.asarray(cv2.erode(mask.astype(np.uint8), _THREE), np.float32)


def _gradients(image: Float32, inner: Float32) -> tuple[Float32, Float32]:
    across, down = (
        np.asarray(cv2.Sobel(image, cv2.CV_32F, *along, ksize=3) * inner, np.float32)
        for along in ((1, 0), (0, 1))
    )
    return across, down


def edges(query: Float32, reference: Float32, mask: Bool) -> Edges:
    """Return how the edges of two grey images (h, w) agree where the mask holds."""
    inner = _inner(mask)
    product, energy_a, energy_b = (np.zeros(TILES * TILES) for _ in range(3))
    for a, b in zip(_gradients(query, inner), _gradients(reference, inner), strict=True):
        product += by_tile(a * b)
        energy_a += by_tile(a * a)
        energy_b += by_tile(b * b)
    energy = energy_a + energy_b
    # a tile of plain ground agrees with anything
    there = np.flatnonzero((by_tile(inner) > 0) & (energy >= PLAIN * energy.max()))
    order = there[np.argsort((energy - 2 * product)[there], kind="stable")]
    core = order[: max(1, len(order) * 3 // 4)]
    whole = ratio(product.sum(), energy_a.sum() * energy_b.sum())
    left = ratio(product[core].sum(), energy_a[core].sum() * energy_b[core].sum())
    return Edges(whole, left)


def local(query: Float32, reference: Float32, mask: Bool) -> Local:
    """Return how windows of two grey images (h, w) agree where the mask holds.

    The correlation is the structure of Wang et al. (SSIM, 2004). The displacement is one step of
    Lucas & Kanade (1981) on images whose windows were given one mean and variance.
    """
    windows = _Windows.of(query, reference, mask)
    spread_a, spread_b = windows.spread
    correlation = windows.correlation
    # of the fainter one: what was laid over an image has more contrast than the image
    fainter = np.minimum(spread_a, spread_b)
    contrast = np.minimum(fainter, STRONG) * mask * _centrality(*mask.shape)
    total = float(contrast.sum()) + 1e-6
    agree = float(contrast[correlation >= AGREES].sum()) / total
    trust = contrast / (np.maximum(spread_a, spread_b) + math.sqrt(FAINT))
    drift = _drift(windows, mask.astype(np.float32), np.asarray(trust, np.float32))
    return Local(float((contrast * correlation).sum()) / total, agree, drift)


def agreeing(query: Float32, reference: Float32, mask: Bool) -> Bool:
    """Return where windows do not contradict each other, or the mask where little does not.

    A relation is refined there: what was laid over an image must not pull at it.
    """
    kept = mask & (_Windows.of(query, reference, mask).correlation >= CONTRADICTS)
    enough = np.count_nonzero(kept) >= KEPT * np.count_nonzero(mask)
    return np.asarray(kept if enough else mask)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Local statistics of two grey images, a window about each pixel, (h, w)."""

    alike: tuple[Float32, Float32]  # both images, their windows brought to one mean and variance
    spread: tuple[Float32, Float32]  # their standard deviations
    correlation: Float32  # of the windows
    side: int  # of a window, pixels

    @classmethod
    def of(cls, query: Float32, reference: Float32, mask: Bool) -> _Windows:
        """Return the statistics; pixels outside the mask have no part in them."""
        height, width = mask.shape
        side = max(5, 2 * round(WINDOW * max(height, width) / 2) + 1)
        weight = mask.astype(np.float32)
        share = np.maximum(_window(weight, side), 1e-3)

        def mean(values: Float32) -> Float32:
            return np.asarray(_window(values * weight, side) / share, np.float32)

        a, b = query - mean(query), reference - mean(reference)
        spreads = [np.asarray(np.sqrt(np.maximum(mean(x * x), 0)), np.float32) for x in (a, b)]
        correlation = mean(a * b) / (spreads[0] * spreads[1] + np.float32(FAINT))
        level = np.float32(math.sqrt(FAINT))
        scaled = (a / (spreads[0] + level), b / (spreads[1] + level))
        return cls(scaled, (spreads[0], spreads[1]), np.asarray(correlation, np.float32), side)


def _centrality(height: int, width: int) -> Float32:
    """Return a weight (h, w): what an image shows is in its middle, captions are at its edge."""
    down, across = (np.sin(np.pi * (np.arange(n) + 0.5) / n) for n in (height, width))
    return np.asarray(EDGE + (1 - EDGE) * np.outer(down, across), np.float32)


def _drift(windows: _Windows, weight: Float32, trust: Float32) -> float:
    """Return the upper quartile of the displacement between normalised images, pixels."""
    query, reference = windows.alike
    side = windows.side
    both = np.asarray((query + reference) / 2, np.float32)
    inner = np.asarray(cv2.erode(weight, _THREE), np.float32)
    across, down = (np.asarray(x / 8, np.float32) for x in _gradients(both, inner))
    change = (reference - query) * inner
    xx, yy, xy = (
        _window(product, side) for product in (across * across, down * down, across * down)
    )
    xt, yt = _window(across * change, side), _window(down * change, side)
    damping = np.float32(1e-3)
    area = (xx + damping) * (yy + damping) - xy * xy
    x = ((yy + damping) * xt - xy * yt) / area
    y = ((xx + damping) * yt - xy * xt) / area
    # as sure as the weaker of the two directions
    sure = (xx + yy) / 2 - np.sqrt(((xx - yy) / 2) ** 2 + xy * xy)
    sure = np.asarray(np.sqrt(np.maximum(sure, 0)) * inner * trust, np.float32)
    # windows overlap: every third one says the same
    grid = np.s_[1::3, 1::3]
    distance, sure = np.hypot(x, y)[grid].ravel(), sure[grid].ravel()
    # without anything to go by the drift is large, not zero
    values, weights = np.append(distance, UNKNOWN), np.append(sure, PRIOR * len(sure))
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order], dtype=np.float64)
    return float(values[order[np.searchsorted(sums, QUANTILE * sums[-1])]])


def _window(values: Float32, side: int) -> Float32:
    return np.asarray(cv2.blur(values, (side, side)), np.float32)


def by_tile(values: Float32) -> Float64:
    """Return the sums over 4 x 4 tiles (16,) of an image of any size from 4 x 4."""
    height, width = values.shape
    starts = [[place * side // TILES for place in range(TILES)] for side in (height, width)]
    sums = np.add.reduceat(np.add.reduceat(values, starts[0], axis=0), starts[1], axis=1)
    return np.asarray(sums.ravel(), np.float64)


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left between two grey images once light is fitted."""

    residual: float  # root mean square difference, levels
    within: float  # share of the overlap whose difference is below 16 levels
    patch: float  # largest root mean square difference of a tile of 1/16 of the frame, levels


def rest(query: Float32, reference: Float32, mask: Bool) -> Rest:
    """Return what is left between two grey images (h, w) where the mask holds."""
    difference = (reference - query) * mask
    pixels = int(np.count_nonzero(mask)) or 1
    squares, counts = by_tile(difference * difference), by_tile(mask.astype(np.float32))
    tile = mask.size / TILES**2
    return Rest(
        residual=math.sqrt(float((difference * difference).sum()) / pixels),
        within=1 - np.count_nonzero(np.abs(difference) >= EXACT_LEVELS) / pixels,
        patch=float(np.sqrt((squares / (counts + tile / 8)).max())),
    )
