"""Measures of pairs of tiny images after alignment.

Pairs are measured together, because calls of NumPy take longer than 32 x 32 pixels. No measure of a
pair depends on other pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32, Float64, Int64
from visleak.verification import align, texture
from visleak.verification.align import Matrix
from visleak.verification.exact import EXACT_LEVELS
from visleak.verification.measures import Measures
from visleak.verification.screen import central_differences
from visleak.verification.unexplained import Unexplained, neighbours, unexplained

#: Tiles along a side in which local agreement is measured.
TILES: Final = 4
#: Gradients of up to this magnitude (grey levels over two pixels) are noise. Damped gradients grow
#: with the square root of the magnitude beyond it; directions have equal weight beyond it.
NOISE: Final = 4.0
#: Share of a tile's pixels that is added to the energy of its directions: tiles with fewer
#: directions hardly agree.
DIRECTED: Final = 0.02
#: Blurs (pixels) that separate the bands of detail.
BANDS: Final = (0.7, 1.4, 2.8)
#: Energy of a tile without edges, at most, as a share of that of the strongest tile.
PLAIN: Final = 0.01
#: Smallest share of the reference of an overlap that is measured.
MIN_OVERLAP: Final = 1 / 16


@dataclass(frozen=True, slots=True)
class TinyOverlaps:
    """Queries warped onto their references; each array has one row per pair."""

    # RGB float32 (n, s, s, 3)
    moved: Float32
    reference: Float32
    grey: Float32  # query and reference, float32 (n, 2, s, s)
    mask: Float32  # 1 where the warped query covers the reference, else 0, (n, s, s)
    inner: Float32  # the mask without its border pixels, whose gradients are undefined
    used: Float64  # share of the query inside the reference, 0..1
    # sums over 4 x 4 tiles inside the inner mask, float64 (n, 3, 3, 16). First axis: gradients,
    # damped gradients, directions. Second axis: product, energy of the query, of the reference
    tiles: Float64
    # both -inf where the overlap is too small; without the tiles that differ most
    core: Float64  # correlation of the gradients
    firm: Float64  # agreement

    @classmethod
    def of(cls, left: Iterable[Float32], right: Float32, matrices: Matrix) -> TinyOverlaps:
        """Return the overlaps of images with squares (n, s, s, 3) under relations (n, 3, 3)."""
        side = right.shape[1]
        moved = np.empty((len(right), side, side, 3), np.float32)
        for row, (image, matrix) in enumerate(zip(left, matrices, strict=True)):
            moved[row] = align.warp_to_square(image, matrix, side)
        mask = align.coverage(matrices, side)
        covered = mask.mean(axis=(1, 2), dtype=np.float64)
        inner = neighbours(mask, np.minimum)
        greys = np.stack([_grey(moved), _grey(right)], axis=1)
        # an affine relation scales all areas equally
        area = np.abs(np.linalg.det(matrices[:, :2, :2]))
        used = np.minimum(1.0, covered / np.maximum(area, 1e-6))
        tiles = _agreements(greys, inner)
        core, damped = (_correlation(_without_least(tiles[:, kind])) for kind in (0, 1))
        firm = (core + damped) / 2 * _overlap_factor(inner)
        core, firm = (np.where(covered >= MIN_OVERLAP, each, -np.inf) for each in (core, firm))
        return cls(moved, np.array(right), greys, mask, inner, used, tiles, core, firm)

    def only(self, rows: Int64 | Bool) -> TinyOverlaps:
        """Return the overlaps of some pairs."""
        return TinyOverlaps(*(getattr(self, each.name)[rows] for each in fields(self)))

    def put(self, rows: Int64, others: TinyOverlaps) -> None:
        """Replace the overlaps of some pairs."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(others, each.name)

    @property
    def gradient(self) -> Float64:
        """Correlation of the gradients, -1..1."""
        return _correlation(self.tiles[:, 0])

    @property
    def agreement(self) -> Float64:
        """Mean correlation of gradients and damped gradients, reduced for small overlaps."""
        return (self.gradient + _correlation(self.tiles[:, 1])) / 2 * _overlap_factor(self.inner)

    @property
    def directions(self) -> Float64:
        """Agreement of the directions of gradients, upper quartile of the tiles, -1..1.

        Two silhouettes against the sky agree in the few tiles that the outline crosses; copies
        agree in all tiles with texture.
        """
        product, ours, theirs = np.moveaxis(self.tiles[:, 2], 1, 0)
        tile = self.mask.shape[1] ** 2 / TILES**2
        agreed = np.sort(product / (np.sqrt(ours * theirs) + DIRECTED * tile), axis=1)
        # the quartile of sixteen, by linear interpolation
        return np.asarray(0.75 * agreed[:, 11] + 0.25 * agreed[:, 12])

    @property
    def agreeing(self) -> Bool:
        """Mask of the tiles that agree most, (n, s, s)."""
        chosen = _agreeing(self.tiles[:, 1])
        side = self.mask.shape[1] // TILES
        return chosen.reshape(-1, TILES, TILES).repeat(side, axis=1).repeat(side, axis=2)

    @property
    def bands(self) -> dict[str, Float64]:
        """Correlations of three bands of detail in the tiles that agree; ``shapes`` in all tiles.

        A reduced or compressed copy loses the finest band and keeps the coarse ones. Different
        images of one shape agree in the coarse bands only.
        """
        levels = [self.grey, *(texture.blurred(self.grey, blur) for blur in BANDS)]
        found = {}
        names = ("fine", "middle", "coarse")
        for name, (level, coarser) in zip(names, pairwise(levels), strict=True):
            both = (level - coarser) * self.inner[:, None]
            product, energy = both[:, :1] * both[:, 1:], both * both
            sums = _by_tile(np.concatenate([product, energy], axis=1))
            found[name] = _correlation(_without_least(sums))
            found["shapes"] = _correlation(sums)
        return found

    @property
    def detail(self) -> Float64:
        """Correlation of the second derivatives, -1..1."""
        wide = np.pad(self.grey, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
        second = wide[..., :-2, 1:-1] + wide[..., 2:, 1:-1] + wide[..., 1:-1, :-2]
        second = (second + wide[..., 1:-1, 2:] - 4 * self.grey) * self.inner[:, None]
        flat = second.reshape(*second.shape[:2], -1)
        sums = (flat @ flat.swapaxes(1, 2)).astype(np.float64)
        return _ratio(sums[:, 0, 1], sums[:, 0, 0] * sums[:, 1, 1])

    def measures(self, known: Sequence[Mapping[str, float]] = ()) -> list[Measures]:
        """Return the measures of pairs that overlap, with the known ones of each pair."""
        columns = _columns(self)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        side = float(self.mask.shape[1])
        return [
            Measures(
                **dict(zip(columns, row, strict=True)), features=0.0, side=side, exact=0.0, **others
            )
            for row, others in zip(rows, known or [{}] * len(self.mask), strict=True)
        ]


def _columns(overlaps: TinyOverlaps) -> dict[str, Float64]:
    """Return the measures of all pairs, by name."""
    mask, side = overlaps.mask, overlaps.mask.shape[1]
    pixels = mask.sum(axis=(1, 2), dtype=np.float64)
    mean, moments = _moments(overlaps, pixels)
    energies = np.diagonal(moments, axis1=1, axis2=2)
    product = np.diagonal(moments[:, :4, 4:], axis1=1, axis2=2)
    scale = np.sqrt(energies[:, :4] * energies[:, 4:])
    correlation = np.where(scale > 1e-3, product / np.maximum(scale, 1e-3), 0.0)
    gain = product[:, 0] / (energies[:, 0] + pixels)
    shift = mean[:, 4:] - gain[:, None] * mean[:, :4]
    ours, theirs = overlaps.grey[:, 0], overlaps.grey[:, 1]
    factor, offset = (each.astype(np.float32)[:, None, None] for each in (gain, shift[:, 0]))
    difference = (theirs - factor * ours - offset) * mask
    off = (np.abs(difference) >= EXACT_LEVELS).sum(axis=(1, 2))
    return {
        "grey": correlation[:, 0],
        "gradient": overlaps.gradient,
        "core": overlaps.core,
        "colour": correlation[:, 1:].mean(axis=1),
        "residual": np.sqrt((difference * difference).sum(axis=(1, 2)) / pixels),
        "within": 1 - off / pixels,
        "patch": _worst_tile(difference, mask),
        "covered": pixels / side**2,
        "used": overlaps.used,
        "gain": gain,
        "offset": shift[:, 0],
        "tint": np.abs(shift[:, 1:] - shift[:, :1]).max(axis=1),
        "agreement": overlaps.agreement,
        "directions": overlaps.directions,
        "detail": overlaps.detail,
        "palette": _explained(moments, pixels),
        **overlaps.bands,
        "unlike": _unlike(mean, moments, gain, pixels),
        "contrast": np.sqrt(energies[:, 4] / pixels),
        **{
            f"{name}_{each.name}": getattr(found, each.name)
            for name, found in _summaries(overlaps).items()
            for each in fields(found)
        },
    }


def _summaries(overlaps: TinyOverlaps) -> dict[str, texture.Texture | Unexplained]:
    """Return the groups of measures by the prefix of their names."""
    grey, inner = overlaps.grey, overlaps.inner
    level, tone = unexplained(overlaps.moved, overlaps.reference, inner, overlaps.agreeing)
    return {
        "texture": texture.shared_texture(grey, inner, *texture.TEXTURE),
        "form": texture.shared_texture(grey, inner, *texture.FORMS),
        "level": level,
        "tone": tone,
    }


def _moments(overlaps: TinyOverlaps, pixels: Float64) -> tuple[Float64, Float64]:
    """Return means (n, 8) and centred products (n, 8, 8) of eight channels over the overlap.

    Grey, red, green and blue of the query, then of the reference.
    """
    weights = overlaps.mask.reshape(len(pixels), 1, -1)
    planes = np.empty((len(pixels), 8, weights.shape[2]), np.float32)
    for image, square in enumerate((overlaps.moved, overlaps.reference)):
        planes[:, 4 * image] = overlaps.grey[:, image].reshape(len(pixels), -1)
        planes[:, 4 * image + 1 : 4 * image + 4] = square.reshape(len(pixels), -1, 3).swapaxes(1, 2)
    mean = (planes @ weights.swapaxes(1, 2))[..., 0] / pixels.astype(np.float32)[:, None]
    planes = (planes - mean[..., None]) * weights
    return mean.astype(np.float64), (planes @ planes.swapaxes(1, 2)).astype(np.float64)


def _explained(moments: Float64, pixels: Float64) -> Float64:
    """Return the share of the colour variance that an affine map of the query explains."""
    # a variance of one grey level keeps the map finite for an image of one colour
    square = moments[:, 1:4, 1:4] + pixels[:, None, None] * np.eye(3)
    shared = moments[:, 1:4, 5:8]
    explained = (shared * np.linalg.solve(square, shared)).sum(axis=(1, 2))
    return np.asarray(explained / (_trace(moments[:, 5:8, 5:8]) + pixels))


def _unlike(mean: Float64, moments: Float64, gain: Float64, pixels: Float64) -> Float64:
    """Return the share of the colour variance that one gain and one offset do not explain."""
    ours, theirs = _trace(moments[:, 1:4, 1:4]), _trace(moments[:, 5:8, 5:8])
    offset = mean[:, 5:8] - gain[:, None] * mean[:, 1:4]
    left = theirs + gain**2 * ours - 2 * gain * _trace(moments[:, 1:4, 5:8])
    left += pixels * _scatter(offset)
    whole = theirs + pixels * _scatter(mean[:, 5:8])
    return np.minimum(1.0, np.maximum(0.0, left) / (whole + 3 * pixels))


def _trace(squares: Float64) -> Float64:
    return np.asarray(np.trace(squares, axis1=1, axis2=2))


def _scatter(values: Float64) -> Float64:
    """Return the sum of squared deviations from the mean of each row (n, k)."""
    apart = values - values.mean(axis=1, keepdims=True)
    return np.asarray((apart * apart).sum(axis=1))


def _agreements(grey: Float32, inner: Float32) -> Float64:
    """Return the sums of gradients over tiles: ``TinyOverlaps.tiles``."""
    across, down = central_differences(grey)
    product = (across[:, 0] * across[:, 1] + down[:, 0] * down[:, 1]) * inner
    energy = (across * across + down * down) * inner[:, None]
    weight = 1 / (np.sqrt(energy) + np.float32(NOISE))
    plain = np.concatenate([product[:, None], energy], axis=1)
    weights = np.concatenate([weight[:, :1] * weight[:, 1:], weight * weight], axis=1)
    return _by_tile(np.stack([plain, plain * np.sqrt(weights), plain * weights], axis=1))


def _grey(images: Float32) -> Float32:
    """Return the luminance (n, s, s) of RGB images."""
    rows = images.reshape(-1, images.shape[2], 3)
    return np.asarray(cv2.cvtColor(rows, cv2.COLOR_RGB2GRAY), np.float32).reshape(images.shape[:3])


def _agreeing(tiles: Float64) -> Bool:
    """Return which tiles (n, 3, 16) agree: all but those that differ most, (n, 16).

    They are a quarter of all, and at most half of those with edges: most of a small drawing on
    plain ground agrees with anything.
    """
    energy = tiles[:, 1] + tiles[:, 2]
    edged = (energy > PLAIN * energy.max(axis=1, keepdims=True)).sum(axis=1)
    dropped = np.minimum(TILES * TILES // 4, edged // 2)
    rank = np.argsort(np.argsort(energy - 2 * tiles[:, 0], axis=1, kind="stable"), axis=1)
    return np.asarray(rank < TILES * TILES - dropped[:, None])


def _without_least(tiles: Float64) -> Float64:
    """Return tiles (n, 3, 16) with 0 in those that differ most."""
    return tiles * _agreeing(tiles)[:, None]


def _overlap_factor(inner: Float32) -> Float64:
    """Return the factors that reduce the agreement of small overlaps."""
    return np.asarray(np.sqrt(np.sqrt(inner.mean(axis=(1, 2), dtype=np.float64))))


def _correlation(tiles: Float64) -> Float64:
    """Return correlations from sums over tiles (n, 3, t): product and both energies."""
    sums = tiles.sum(axis=2)
    return _ratio(sums[:, 0], sums[:, 1] * sums[:, 2])


def _ratio(product: Float64, energies: Float64) -> Float64:
    """Return correlations from their sums, 0 for constant images."""
    scale = np.sqrt(energies)
    return np.where(scale > 1e-3, product / np.maximum(scale, 1e-3), 0.0)


def _by_tile(values: Float32) -> Float64:
    """Return the sums over 4 x 4 tiles, (.., s, s) to (.., 16)."""
    member = _members(values.shape[-1])
    sums = member @ values @ member.T
    return sums.reshape(*values.shape[:-2], -1).astype(np.float64)


@cache
def _members(side: int) -> Float32:
    """Return the matrix (4, side) that sums pixel rows over rows of tiles."""
    return np.repeat(np.eye(TILES, dtype=np.float32), side // TILES, axis=1)


def _worst_tile(difference: Float32, mask: Float32) -> Float64:
    """Return the largest root mean square difference of a tile, per pair."""
    squares, counts = _by_tile(difference * difference), _by_tile(mask)
    tile = mask.shape[1] ** 2 / TILES**2
    return np.asarray(np.sqrt((squares / (counts + tile / 8)).max(axis=1)))
