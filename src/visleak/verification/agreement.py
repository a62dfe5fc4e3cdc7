"""Agreement of two grey images in their common frame, as fields of ``Measures``.

The edges of a processed copy agree after brightness, colour and blur are fitted, except in the
patch of a caption or a logo. Another shot of the same scene has the same light and colour, but no
single relation aligns all of its edges: parts stay displaced (parallax, motion).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32, Float64
from visleak.verification.exact import EXACT_LEVELS
from visleak.verification.measures import UNKNOWN_DRIFT, ratio

#: Tiles along a side in which patches of disagreement are found.
TILES: Final = 4
#: Energy of a plain tile, at most, as a share of that of the strongest tile.
PLAIN: Final = 0.01
#: Blurs (pixels of the frame) that are tried on the sharper image.
BLURS: Final = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
#: Side of the windows of local structure and drift, as a share of the frame's long side.
WINDOW: Final = 0.11
#: Variance of noise in a window, levels squared.
FAINT: Final = 6.0
#: Correlation from which a window agrees.
AGREES: Final = 0.6
#: Standard deviation (levels) from which the weight of a window no longer grows.
STRONG: Final = 20.0
#: Weight of a window at the edge of the image; 1 in its middle.
EDGE: Final = 0.3
#: Quantile of the drifts of all windows that is measured.
QUANTILE: Final = 0.75
#: Weight of the unknown drift, which images without texture have: 1/100 of that of usual texture.
PRIOR: Final = 5e-4
#: A window of less correlation contradicts. Such windows are masked in an alignment if at least
#: this share remains.
CONTRADICTS: Final = 0.3
KEPT: Final = 0.3

_THREE: Final = np.ones((3, 3), np.uint8)


def equally_blurred(
    query: Float32, reference: Float32, mask: Bool
) -> tuple[Float32, Float32, float]:
    """Return two grey images, the sharper one blurred to the other's fineness, and that blur.

    Noise is removed as well: it is fine detail that the other image lacks.
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


def edge_agreement(query: Float32, reference: Float32, mask: Bool) -> dict[str, float]:
    """Return ``gradient`` and ``core`` of two grey images (h, w) inside a mask."""
    inner = _inner(mask)
    product, energy_a, energy_b = (np.zeros(TILES * TILES) for _ in range(3))
    for a, b in zip(_gradients(query, inner), _gradients(reference, inner), strict=True):
        product += by_tile(a * b)
        energy_a += by_tile(a * a)
        energy_b += by_tile(b * b)
    energy = energy_a + energy_b
    # a plain tile agrees with anything
    there = np.flatnonzero((by_tile(inner) > 0) & (energy >= PLAIN * energy.max()))
    order = there[np.argsort((energy - 2 * product)[there], kind="stable")]
    core = order[: max(1, len(order) * 3 // 4)]
    whole = ratio(product.sum(), energy_a.sum() * energy_b.sum())
    left = ratio(product[core].sum(), energy_a[core].sum() * energy_b[core].sum())
    return {"gradient": whole, "core": left}


def window_agreement(query: Float32, reference: Float32, mask: Bool) -> dict[str, float]:
    """Return ``structure``, ``agree`` and ``drift`` of two grey images (h, w) inside a mask.

    The correlation is the structure term of SSIM (Wang et al., 2004). The displacement is one step
    of Lucas & Kanade (1981) on images normalized to the same local mean and variance.
    """
    windows = _Windows.of(query, reference, mask)
    spread_a, spread_b = windows.spread
    correlation = windows.correlation
    # of the fainter image: an overlay has more contrast than the image below it
    fainter = np.minimum(spread_a, spread_b)
    contrast = np.minimum(fainter, STRONG) * mask * _centrality(*mask.shape)
    total = float(contrast.sum()) + 1e-6
    agree = float(contrast[correlation >= AGREES].sum()) / total
    trust = contrast / (np.maximum(spread_a, spread_b) + math.sqrt(FAINT))
    drift = _drift(windows, mask.astype(np.float32), np.asarray(trust, np.float32))
    structure = float((contrast * correlation).sum()) / total
    return {"structure": structure, "agree": agree, "drift": drift}


def consistent_mask(query: Float32, reference: Float32, mask: Bool) -> Bool:
    """Return the mask without windows that contradict each other, if enough remains.

    A relation is refined inside it, so that overlays on an image do not bias it.
    """
    kept = mask & (_Windows.of(query, reference, mask).correlation >= CONTRADICTS)
    enough = np.count_nonzero(kept) >= KEPT * np.count_nonzero(mask)
    return np.asarray(kept if enough else mask)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Statistics of the windows around each pixel of two grey images, (h, w)."""

    normalized: tuple[Float32, Float32]  # both images, with the same local mean and variance
    spread: tuple[Float32, Float32]  # standard deviations
    correlation: Float32
    side: int  # of a window, pixels

    @classmethod
    def of(cls, query: Float32, reference: Float32, mask: Bool) -> _Windows:
        """Return the statistics of the pixels inside the mask."""
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
    """Return weights (h, w) that fall towards the edge, where captions are."""
    down, across = (np.sin(np.pi * (np.arange(n) + 0.5) / n) for n in (height, width))
    return np.asarray(EDGE + (1 - EDGE) * np.outer(down, across), np.float32)


def _drift(windows: _Windows, weight: Float32, trust: Float32) -> float:
    """Return the upper quartile of the displacement between normalized images, pixels."""
    query, reference = windows.normalized
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
    # the smaller eigenvalue: certainty in the weaker direction
    sure = (xx + yy) / 2 - np.sqrt(((xx - yy) / 2) ** 2 + xy * xy)
    sure = np.asarray(np.sqrt(np.maximum(sure, 0)) * inner * trust, np.float32)
    # windows overlap: every third one is enough
    grid = np.s_[1::3, 1::3]
    distance, sure = np.hypot(x, y)[grid].ravel(), sure[grid].ravel()
    # without texture the drift is large, not zero
    values, weights = np.append(distance, UNKNOWN_DRIFT), np.append(sure, PRIOR * len(sure))
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order], dtype=np.float64)
    return float(values[order[np.searchsorted(sums, QUANTILE * sums[-1])]])


def _window(values: Float32, side: int) -> Float32:
    return np.asarray(cv2.blur(values, (side, side)), np.float32)


def by_tile(values: Float32) -> Float64:
    """Return the sums over 4 x 4 tiles (16,) of an image of at least 4 x 4 pixels."""
    height, width = values.shape
    starts = [[place * side // TILES for place in range(TILES)] for side in (height, width)]
    sums = np.add.reduceat(np.add.reduceat(values, starts[0], axis=0), starts[1], axis=1)
    return np.asarray(sums.ravel(), np.float64)


def residual(query: Float32, reference: Float32, mask: Bool) -> dict[str, float]:
    """Return ``residual``, ``within`` and ``patch`` of two grey images (h, w) inside a mask."""
    difference = (reference - query) * mask
    pixels = int(np.count_nonzero(mask)) or 1
    squares, counts = by_tile(difference * difference), by_tile(mask.astype(np.float32))
    tile = mask.size / TILES**2
    return {
        "residual": math.sqrt(float((difference * difference).sum()) / pixels),
        "within": 1 - np.count_nonzero(np.abs(difference) >= EXACT_LEVELS) / pixels,
        "patch": float(np.sqrt((squares / (counts + tile / 8)).max())),
    }
