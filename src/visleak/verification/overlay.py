"""What is measured on two tiny images once one lies on the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Float32
from visleak.verification import align, texture
from visleak.verification.align import Matrix
from visleak.verification.exact import EXACT_LEVELS
from visleak.verification.measures import Measures, grey, ratio

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

_THREE: Final = np.ones((3, 3), np.uint8)
#: Rows of the query's and the reference's channels in the moments.
_OURS, _THEIRS = np.arange(4), np.arange(4, 8)


@dataclass(frozen=True, slots=True)
class Overlay:
    """The query moved onto the reference."""

    # RGB float32 (s, s, 3)
    moved: Float32
    reference: Float32
    grey: tuple[Float32, Float32]  # of both, float32 (s, s)
    mask: Float32  # 1 where the moved query covers the reference, else 0, (s, s)
    inner: Float32  # the mask without its rim: where both have gradients of their own
    used: float  # share of the query that lies on the reference, 0..1
    # sums over 4 x 4 tiles inside the inner mask, float64 (3, 3, 16): of the product of the
    # gradients, the energy of the query's and of the reference's; of the gradients as they are,
    # damped, and of their directions alone
    tiles: npt.NDArray[np.float64]
    core: float  # correlation of the gradients without the quarter of the tiles that agrees least
    firm: float  # agreement without the quarter of the tiles that agrees least

    @classmethod
    def of(cls, left: Float32, right: Float32, matrix: Matrix) -> Overlay | None:
        """Return the overlay of an image on a square; ``None`` where little overlaps."""
        side = right.shape[0]
        mask = align.overlap(matrix, side)
        covered = float(mask.sum()) / mask.size
        if covered < LEAST:
            return None
        moved = align.placed(left, matrix, side)
        inner = np.asarray(cv2.erode(mask, _THREE), np.float32)
        greys = grey(moved), grey(right)
        (a, b), (c, d) = matrix[:2, :2].tolist()
        # an affine relation scales all areas equally
        used = min(1.0, covered / max(abs(a * d - b * c), 1e-6))
        tiles = _agreements(*greys, inner)
        core, damped = (_correlation(each[:, _least(each)]) for each in tiles[:2])
        firm = (core + damped) / 2 * _of_share(inner)
        return cls(moved, right, greys, mask, inner, used, tiles, core, firm)

    @property
    def gradient(self) -> float:
        """Correlation of the gradients, -1..1."""
        return _correlation(self.tiles[0])

    @property
    def agreement(self) -> float:
        """Mean of the correlations of gradients and damped gradients, less for small overlaps."""
        return (self.gradient + _correlation(self.tiles[1])) / 2 * _of_share(self.inner)

    @property
    def directions(self) -> float:
        """How far the directions of gradients agree, upper quartile of the tiles, -1..1.

        A silhouette against the sky agrees in the few tiles that its outline crosses; the same
        shot agrees wherever there is any texture.
        """
        product, ours, theirs = self.tiles[2]
        tile = self.mask.size / TILES**2
        agreed = np.sort(product / (np.sqrt(ours * theirs) + DIRECTED * tile))
        # the quartile of sixteen, by linear interpolation
        return float(0.75 * agreed[11] + 0.25 * agreed[12])

    @property
    def agreeing(self) -> Float32:
        """1 in the tiles that agree most and 0 in the others, (s, s)."""
        chosen = np.zeros(TILES * TILES, np.float32)
        chosen[_least(self.tiles[1])] = 1
        side = self.mask.shape[0] // TILES
        return np.kron(chosen.reshape(TILES, TILES), np.ones((side, side), np.float32))

    @property
    def bands(self) -> tuple[float, float, float, float]:
        """Correlations of three bands of detail in the tiles that agree, and of the last in all.

        The finest band is lost in a reduced or compressed copy, the coarse ones are not; different
        images of one shape agree in the coarse bands at most.
        """
        levels = [np.stack(self.grey, axis=-1)]
        levels += [
            np.asarray(cv2.GaussianBlur(levels[0], (0, 0), blur), np.float32) for blur in BANDS
        ]
        found = [0.0] * 4
        for number in range(len(BANDS)):
            ours, theirs = np.moveaxis(levels[number] - levels[number + 1], -1, 0) * self.inner
            sums = _by_tile(np.stack([ours * theirs, ours * ours, theirs * theirs]))
            found[number] = _correlation(sums[:, _least(sums)])
            found[3] = _correlation(sums)
        return found[0], found[1], found[2], found[3]

    @property
    def detail(self) -> float:
        """Correlation of the second derivatives, -1..1."""
        a, b = (cv2.Laplacian(image, cv2.CV_32F) * self.inner for image in self.grey)
        return ratio(float(np.vdot(a, b)), float(np.vdot(a, a)) * float(np.vdot(b, b)))


def measured(overlay: Overlay, *, inverted: bool = False) -> Measures:
    """Return the measures of two tiny images; ``inverted``: the query is its own inversion."""
    mask, side = overlay.mask, overlay.mask.shape[0]
    pixels = float(mask.sum())
    mean, moments = _moments(overlay, pixels)
    product, square_a, square_b = (
        moments[rows, columns]
        for rows, columns in ((_OURS, _THEIRS), (_OURS, _OURS), (_THEIRS, _THEIRS))
    )
    scale = np.sqrt(square_a * square_b)
    correlation = np.where(scale > 1e-3, product / np.maximum(scale, 1e-3), 0.0)
    gain = float(product[0] / (square_a[0] + pixels))
    shift = mean[_THEIRS] - gain * mean[_OURS]
    ours, theirs = overlay.grey
    difference = (theirs - np.float32(gain) * ours - np.float32(shift[0])) * mask
    fine, middle, coarse, shapes = overlay.bands
    return Measures(
        grey=float(correlation[0]),
        gradient=overlay.gradient,
        core=overlay.core,
        colour=float(correlation[1:].mean()),
        residual=math.sqrt(float(np.vdot(difference, difference)) / pixels),
        within=1 - np.count_nonzero(np.abs(difference) >= EXACT_LEVELS) / pixels,
        patch=_worst_tile(difference, mask),
        covered=pixels / mask.size,
        used=overlay.used,
        gain=gain,
        offset=float(shift[0]),
        tint=float(np.abs(shift[1:] - shift[0]).max()),
        features=0.0,
        side=float(side),
        exact=0.0,
        inverted=float(inverted),
        agreement=overlay.agreement,
        directions=overlay.directions,
        detail=overlay.detail,
        palette=_explained(moments, pixels),
        fine=fine,
        middle=middle,
        coarse=coarse,
        shapes=shapes,
        unlike=_unlike(mean, moments, gain, pixels),
        contrast=math.sqrt(float(square_b[0]) / pixels),
        **_texture("texture", overlay, texture.TEXTURE),
        **_texture("form", overlay, texture.FORMS),
    )


def _texture(name: str, overlay: Overlay, kind: tuple[float, float]) -> dict[str, float]:
    found = texture.shared_texture(overlay.grey, overlay.inner, *kind)
    return {f"{name}_{key}": getattr(found, key) for key in texture.Texture.__slots__}


def _moments(
    overlay: Overlay, pixels: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return means (8,) and centred products (8, 8) of grey, red, green, blue of both images.

    The query's come first; sums run over the overlap.
    """
    weights = overlay.mask.ravel()
    rows = np.empty((8, weights.size), np.float32)
    for first, grey_values, square in (
        (0, overlay.grey[0], overlay.moved),
        (4, overlay.grey[1], overlay.reference),
    ):
        rows[first] = grey_values.ravel()
        rows[first + 1 : first + 4] = square.reshape(-1, 3).T
    mean = rows @ weights / np.float32(pixels)
    rows = (rows - mean[:, None]) * weights
    return mean.astype(np.float64), (rows @ rows.T).astype(np.float64)


def _explained(moments: npt.NDArray[np.float64], pixels: float) -> float:
    """Return the share of the colours' variance that an affine map of the query's explains."""
    # one grey level of noise keeps the map of an image of one colour from running away
    square = moments[1:4, 1:4] + pixels * np.eye(3)
    shared = moments[1:4, 5:8]
    explained = float(np.vdot(shared, np.linalg.solve(square, shared)))
    return explained / (float(np.trace(moments[5:8, 5:8])) + pixels)


def _unlike(
    mean: npt.NDArray[np.float64], moments: npt.NDArray[np.float64], gain: float, pixels: float
) -> float:
    """Return the share of the colours' variance that one gain and one offset do not explain."""
    ours, theirs = np.arange(1, 4), np.arange(5, 8)
    offset = mean[theirs] - gain * mean[ours]
    left = np.trace(moments[5:8, 5:8]) + gain**2 * np.trace(moments[1:4, 1:4])
    left += pixels * ((offset - offset.mean()) ** 2).sum() - 2 * gain * moments[ours, theirs].sum()
    spread = mean[theirs] - mean[theirs].mean()
    whole = np.trace(moments[5:8, 5:8]) + pixels * (spread**2).sum()
    return float(min(1.0, max(0.0, left) / (whole + 3 * pixels)))


def _agreements(query: Float32, reference: Float32, inner: Float32) -> npt.NDArray[np.float64]:
    """Return the sums over tiles of products and energies of gradients, see ``Overlay.tiles``."""
    across, down = _gradient(np.stack([query, reference]))
    product = (across[0] * across[1] + down[0] * down[1]) * inner
    energy = (across * across + down * down) * inner
    weight = 1 / (np.sqrt(energy) + NOISE)
    both = weight[0] * weight[1]
    plain = np.stack([product, energy[0], energy[1]])
    weights = np.stack([both, weight[0] ** 2, weight[1] ** 2])
    return _by_tile(np.stack([plain, plain * np.sqrt(weights), plain * weights]))


def _gradient(grey: Float32) -> tuple[Float32, Float32]:
    """Return central differences across and down of images (n, s, s), edges repeated."""
    across, down = np.empty_like(grey), np.empty_like(grey)
    for along, made in ((grey, across), (np.swapaxes(grey, 1, 2), np.swapaxes(down, 1, 2))):
        np.subtract(along[..., 2:], along[..., :-2], out=made[..., 1:-1])
        np.subtract(along[..., 1], along[..., 0], out=made[..., 0])
        np.subtract(along[..., -1], along[..., -2], out=made[..., -1])
    return across, down


def _least(tiles: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the three quarters of the tiles (3, 16) whose two sides differ least."""
    product, ours, theirs = tiles
    return np.argsort(ours + theirs - 2 * product, kind="stable")[: TILES * TILES * 3 // 4]


def _of_share(inner: Float32) -> float:
    """Return the factor by which an agreement falls where less is covered."""
    return math.sqrt(math.sqrt(float(inner.sum()) / inner.size))


def _correlation(tiles: npt.NDArray[np.float64]) -> float:
    """Return a correlation from sums over tiles: products, energies of either side."""
    product, ours, theirs = tiles.sum(axis=1).tolist()
    return ratio(product, ours * theirs)


def _by_tile(values: Float32) -> npt.NDArray[np.float64]:
    """Return the sums over 4 x 4 tiles, (.., s, s) to (.., 16)."""
    member = _members(values.shape[-1])
    sums = member @ values @ member.T
    return sums.reshape(*values.shape[:-2], -1).astype(np.float64)


@cache
def _members(side: int) -> Float32:
    """Return which rows belong to which row of tiles, (4, side)."""
    return np.repeat(np.eye(TILES, dtype=np.float32), side // TILES, axis=1)


def _worst_tile(difference: Float32, mask: Float32) -> float:
    """Return the largest root mean square difference in a tile of 1/16 of the image."""
    squares, counts = _by_tile(difference * difference), _by_tile(mask)
    tile = difference.size / TILES**2
    return float(np.sqrt((squares / (counts + tile / 8)).max()))
