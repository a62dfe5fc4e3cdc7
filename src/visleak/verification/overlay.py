"""What is measured on pairs of tiny images once one image of each lies on the other.

Pairs are measured together: an image of 32 x 32 pixels is less work than a call of NumPy. Every
operation keeps to its pair, so that no measure depends on the other pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise, repeat
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32, Int64
from visleak.verification import align, texture
from visleak.verification.align import Matrix
from visleak.verification.exact import EXACT_LEVELS
from visleak.verification.measures import Measures
from visleak.verification.screen import central_differences

Float64 = npt.NDArray[np.float64]
#: Tiles along a side in which local agreement is measured.
TILES: Final = 4
#: Gradients of this size (grey levels over two pixels) and less are noise: in damped gradients
#: they count in full and larger ones by their root, in directions larger ones count equally.
NOISE: Final = 4.0
#: Share of a tile's pixels that must have a direction before the tile can agree.
DIRECTED: Final = 0.02
#: Blurs (pixels) between which the bands of detail lie.
BANDS: Final = (0.7, 1.4, 2.8)
#: Share of the reference below which an overlap is not measured.
LEAST: Final = 1 / 16


@dataclass(frozen=True, slots=True)
class Overlays:
    """Queries moved onto their references; each array has a row per pair."""

    # RGB float32 (n, s, s, 3)
    moved: Float32
    reference: Float32
    grey: Float32  # of both, float32 (n, 2, s, s)
    mask: Float32  # 1 where the moved query covers the reference, else 0, (n, s, s)
    inner: Float32  # the mask without its rim: where both have gradients of their own
    used: Float64  # share of the query that lies on the reference, 0..1
    # sums over 4 x 4 tiles inside the inner mask, float64 (n, 3, 3, 16): of the product of the
    # gradients, the energy of the query's and of the reference's; of the gradients as they are,
    # damped, and of their directions alone
    tiles: Float64
    # -inf where too little overlaps to be measured
    core: Float64  # correlation of the gradients without the quarter of the tiles that agrees least
    firm: Float64  # agreement without the quarter of the tiles that agrees least

    @classmethod
    def of(cls, left: Iterable[Float32], right: Float32, matrices: Matrix) -> Overlays:
        """Return the overlays of images on squares (n, s, s, 3) under relations (n, 3, 3)."""
        side = right.shape[1]
        moved = np.empty((len(right), side, side, 3), np.float32)
        for row, (image, matrix) in enumerate(zip(left, matrices, strict=True)):
            moved[row] = align.placed(image, matrix, side)
        mask = align.overlaps(matrices, side)
        covered = mask.mean(axis=(1, 2), dtype=np.float64)
        inner = _eroded(mask)
        greys = np.stack([_grey(moved), _grey(right)], axis=1)
        # an affine relation scales all areas equally
        area = np.abs(np.linalg.det(matrices[:, :2, :2]))
        used = np.minimum(1.0, covered / np.maximum(area, 1e-6))
        tiles = _agreements(greys, inner)
        core, damped = (_correlation(_without_least(tiles[:, kind])) for kind in (0, 1))
        firm = (core + damped) / 2 * _of_share(inner)
        core, firm = (np.where(covered >= LEAST, each, -np.inf) for each in (core, firm))
        return cls(moved, np.array(right), greys, mask, inner, used, tiles, core, firm)

    def only(self, rows: Int64 | Bool) -> Overlays:
        """Return some of the overlays."""
        return Overlays(*(getattr(self, each.name)[rows] for each in fields(self)))

    def put(self, rows: Int64, others: Overlays) -> None:
        """Replace some of the overlays."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(others, each.name)

    @property
    def gradient(self) -> Float64:
        """Correlation of the gradients, -1..1."""
        return _correlation(self.tiles[:, 0])

    @property
    def agreement(self) -> Float64:
        """Mean of the correlations of gradients and damped gradients, less for small overlaps."""
        return (self.gradient + _correlation(self.tiles[:, 1])) / 2 * _of_share(self.inner)

    @property
    def directions(self) -> Float64:
        """How far the directions of gradients agree, upper quartile of the tiles, -1..1.

        A silhouette against the sky agrees in the few tiles that its outline crosses; the same
        shot agrees wherever there is any texture.
        """
        product, ours, theirs = np.moveaxis(self.tiles[:, 2], 1, 0)
        tile = self.mask.shape[1] ** 2 / TILES**2
        agreed = np.sort(product / (np.sqrt(ours * theirs) + DIRECTED * tile), axis=1)
        # the quartile of sixteen, by linear interpolation
        return np.asarray(0.75 * agreed[:, 11] + 0.25 * agreed[:, 12])

    @property
    def agreeing(self) -> Bool:
        """Which pixels are in the tiles that agree most, (n, s, s)."""
        chosen = np.zeros((len(self.tiles), TILES * TILES), np.bool_)
        np.put_along_axis(chosen, _least(self.tiles[:, 1]), True, axis=1)
        side = self.mask.shape[1] // TILES
        return chosen.reshape(-1, TILES, TILES).repeat(side, axis=1).repeat(side, axis=2)

    @property
    def bands(self) -> dict[str, Float64]:
        """Correlations of three bands of detail in the tiles that agree, and of the last in all.

        The finest band is lost in a reduced or compressed copy, the coarse ones are not; different
        images of one shape agree in the coarse bands at most.
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


def measured(
    overlays: Overlays, known: Iterable[Mapping[str, float]] = repeat({})
) -> list[Measures]:
    """Return the measures of pairs of tiny images that overlap, with known ones of each pair."""
    mask, side = overlays.mask, overlays.mask.shape[1]
    pixels = mask.sum(axis=(1, 2), dtype=np.float64)
    mean, moments = _moments(overlays, pixels)
    energies = np.diagonal(moments, axis1=1, axis2=2)
    product = np.diagonal(moments[:, :4, 4:], axis1=1, axis2=2)
    scale = np.sqrt(energies[:, :4] * energies[:, 4:])
    correlation = np.where(scale > 1e-3, product / np.maximum(scale, 1e-3), 0.0)
    gain = product[:, 0] / (energies[:, 0] + pixels)
    shift = mean[:, 4:] - gain[:, None] * mean[:, :4]
    ours, theirs = overlays.grey[:, 0], overlays.grey[:, 1]
    factor, offset = (each.astype(np.float32)[:, None, None] for each in (gain, shift[:, 0]))
    difference = (theirs - factor * ours - offset) * mask
    off = (np.abs(difference) >= EXACT_LEVELS).sum(axis=(1, 2))
    columns = {
        "grey": correlation[:, 0],
        "gradient": overlays.gradient,
        "core": overlays.core,
        "colour": correlation[:, 1:].mean(axis=1),
        "residual": np.sqrt((difference * difference).sum(axis=(1, 2)) / pixels),
        "within": 1 - off / pixels,
        "patch": _worst_tile(difference, mask),
        "covered": pixels / side**2,
        "used": overlays.used,
        "gain": gain,
        "offset": shift[:, 0],
        "tint": np.abs(shift[:, 1:] - shift[:, :1]).max(axis=1),
        "agreement": overlays.agreement,
        "directions": overlays.directions,
        "detail": overlays.detail,
        "palette": _explained(moments, pixels),
        **overlays.bands,
        "unlike": _unlike(mean, moments, gain, pixels),
        "contrast": np.sqrt(energies[:, 4] / pixels),
        **_texture("texture", overlays, texture.TEXTURE),
        **_texture("form", overlays, texture.FORMS),
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    found = (dict(zip(columns, row, strict=True)) for row in rows)
    return [
        Measures(features=0.0, side=float(side), exact=0.0, **measures, **others)
        for measures, others in zip(found, known, strict=False)
    ]


def _texture(name: str, overlays: Overlays, kind: tuple[float, float]) -> dict[str, Float64]:
    found = texture.shared_texture(overlays.grey, overlays.inner, *kind)
    return {f"{name}_{each.name}": getattr(found, each.name) for each in fields(found)}


def _moments(overlays: Overlays, pixels: Float64) -> tuple[Float64, Float64]:
    """Return means (n, 8) and centred products (n, 8, 8) of grey, red, green, blue of both images.

    The query's come first; sums run over the overlap.
    """
    weights = overlays.mask.reshape(len(pixels), 1, -1)
    planes = np.empty((len(pixels), 8, weights.shape[2]), np.float32)
    for image, square in enumerate((overlays.moved, overlays.reference)):
        planes[:, 4 * image] = overlays.grey[:, image].reshape(len(pixels), -1)
        planes[:, 4 * image + 1 : 4 * image + 4] = square.reshape(len(pixels), -1, 3).swapaxes(1, 2)
    mean = (planes @ weights.swapaxes(1, 2))[..., 0] / pixels.astype(np.float32)[:, None]
    planes = (planes - mean[..., None]) * weights
    return mean.astype(np.float64), (planes @ planes.swapaxes(1, 2)).astype(np.float64)


def _explained(moments: Float64, pixels: Float64) -> Float64:
    """Return the share of the colours' variance that an affine map of the query's explains."""
    # one grey level of noise keeps the map of an image of one colour from running away
    square = moments[:, 1:4, 1:4] + pixels[:, None, None] * np.eye(3)
    shared = moments[:, 1:4, 5:8]
    explained = (shared * np.linalg.solve(square, shared)).sum(axis=(1, 2))
    return np.asarray(explained / (_trace(moments[:, 5:8, 5:8]) + pixels))


def _unlike(mean: Float64, moments: Float64, gain: Float64, pixels: Float64) -> Float64:
    """Return the share of the colours' variance that one gain and one offset do not explain."""
    ours, theirs = _trace(moments[:, 1:4, 1:4]), _trace(moments[:, 5:8, 5:8])
    offset = mean[:, 5:8] - gain[:, None] * mean[:, 1:4]
    left = theirs + gain**2 * ours - 2 * gain * _trace(moments[:, 1:4, 5:8])
    left += pixels * _scatter(offset)
    whole = theirs + pixels * _scatter(mean[:, 5:8])
    return np.minimum(1.0, np.maximum(0.0, left) / (whole + 3 * pixels))


def _trace(squares: Float64) -> Float64:
    return np.asarray(np.trace(squares, axis1=1, axis2=2))


def _scatter(values: Float64) -> Float64:
    """Return the sum of squared differences from the mean of rows (n, k)."""
    apart = values - values.mean(axis=1, keepdims=True)
    return np.asarray((apart * apart).sum(axis=1))


def _agreements(grey: Float32, inner: Float32) -> Float64:
    """Return the sums over tiles of products and energies of gradients, see ``Overlays.tiles``."""
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


def _eroded(masks: Float32) -> Float32:
    """Return masks (n, s, s) without the pixels beside one outside; the edge is not outside."""
    for axis in (1, 2):
        along, made = masks.swapaxes(axis, 2), masks.copy().swapaxes(axis, 2)
        np.minimum(made[..., 1:], along[..., :-1], out=made[..., 1:])
        np.minimum(made[..., :-1], along[..., 1:], out=made[..., :-1])
        masks = made.swapaxes(axis, 2)
    return masks


def _least(tiles: Float64) -> Int64:
    """Return the three quarters of the tiles (n, 3, 16) whose two sides differ least."""
    order = np.argsort(tiles[:, 1] + tiles[:, 2] - 2 * tiles[:, 0], axis=1, kind="stable")
    return order[:, : TILES * TILES * 3 // 4]


def _without_least(tiles: Float64) -> Float64:
    """Return tiles (n, 3, 16) without the quarter whose two sides differ most, (n, 3, 12)."""
    return np.take_along_axis(tiles, _least(tiles)[:, None], axis=2)


def _of_share(inner: Float32) -> Float64:
    """Return the factors by which an agreement falls where less is covered."""
    return np.asarray(np.sqrt(np.sqrt(inner.mean(axis=(1, 2), dtype=np.float64))))


def _correlation(tiles: Float64) -> Float64:
    """Return correlations from sums over tiles (n, 3, t): products, energies of either side."""
    sums = tiles.sum(axis=2)
    return _ratio(sums[:, 0], sums[:, 1] * sums[:, 2])


def _ratio(product: Float64, energies: Float64) -> Float64:
    """Return correlations from their sums; 0 where one side does not vary."""
    scale = np.sqrt(energies)
    return np.where(scale > 1e-3, product / np.maximum(scale, 1e-3), 0.0)


def _by_tile(values: Float32) -> Float64:
    """Return the sums over 4 x 4 tiles, (.., s, s) to (.., 16)."""
    member = _members(values.shape[-1])
    sums = member @ values @ member.T
    return sums.reshape(*values.shape[:-2], -1).astype(np.float64)


@cache
def _members(side: int) -> Float32:
    """Return which rows belong to which row of tiles, (4, side)."""
    return np.repeat(np.eye(TILES, dtype=np.float32), side // TILES, axis=1)


def _worst_tile(difference: Float32, mask: Float32) -> Float64:
    """Return the largest root mean square differences in a tile of 1/16 of the image."""
    squares, counts = _by_tile(difference * difference), _by_tile(mask)
    tile = mask.shape[1] ** 2 / TILES**2
    return np.asarray(np.sqrt((squares / (counts + tile / 8)).max(axis=1)))
