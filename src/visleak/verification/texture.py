"""What two aligned tiny images share tile by tile, beyond their edges.

Two trousers, or two chests, agree along their outlines under a suitable relation. Across the
direction of the strongest edge of a tile they agree only where one is a copy of the other. So the
correlation of each tile is that of derivatives along its weaker direction (see
:mod:`visleak.verification.detail`, which does the same on the windows of large images).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Float32
from visleak.verification.detail import along_weaker

Float64 = npt.NDArray[np.float64]
#: Blur (pixels) of the texture and of the forms, and the energy of gradients that counts as noise,
#: levels squared.
TEXTURE: Final = (0.0, 16.0)
FORMS: Final = (1.0, 8.0)
#: Tiles along a side, and share of a tile that must be covered.
TILES: Final = 4
COVERED: Final = 0.25
#: Share of the weight below the correlation that is typical, and correlation below which a tile
#: with contrast contradicts.
TYPICAL: Final = 0.4
CONTRADICTS: Final = 0.35


@dataclass(frozen=True, slots=True)
class Texture:
    """The texture that two images share."""

    # correlation summed over tiles, in units of its spread if nothing were shared
    amount: float = 0.0
    mean: float = 0.0  # mean correlation, weighted by how much texture a tile has, -1..1
    typical: float = 0.0  # correlation of the tile at the lower two fifths of the weight, -1..1
    tiles: float = 0.0  # number of tiles with texture of their own, 0..16
    opposed: float = 0.0  # share of the tiles with contrast that do not correlate, 0..1


def shared_texture(
    grey: tuple[Float32, Float32], inner: Float32, blur: float, noise: float
) -> Texture:
    """Return the texture that two grey images (s, s) in one frame share."""
    tensors, share = _tensors(grey, inner, blur)
    ours, theirs, both = along_weaker(tensors)
    known = share > COVERED
    correlation = np.where(known, both / np.sqrt((ours + noise) * (theirs + noise)), 0.0)
    fainter = np.minimum(ours, theirs)
    weight = np.where(known, fainter / (fainter + noise), 0.0)
    total = float(weight.sum())
    order = np.argsort(correlation, kind="stable")
    place = int(np.searchsorted(np.cumsum(weight[order]) / (total + 1e-6), TYPICAL))
    return Texture(
        amount=float(weight @ correlation) / float(np.sqrt(weight @ weight + 0.05)),
        mean=float(weight @ correlation) / (total + 0.3),
        typical=float(correlation[order][min(place, len(order) - 1)]),
        tiles=total,
        opposed=_opposed(tensors, known, noise),
    )


def _tensors(grey: tuple[Float32, Float32], inner: Float32, blur: float) -> tuple[Float64, Float64]:
    """Return means over tiles of the products of gradients, and the share covered.

    The products (3, 3, n) are of the query with itself, of the reference with itself and of both:
    across-across, across-down (symmetrical) and down-down.
    """
    planes = [cv2.GaussianBlur(each, (0, 0), blur) if blur else each for each in grey]
    (ax, ay), (bx, by) = (
        [
            cv2.filter2D(plane, -1, kernel, borderType=cv2.BORDER_REPLICATE)
            for kernel in (_ACROSS, _ACROSS.T)
        ]
        for plane in planes
    )
    products = [
        *(ax * ax, ax * ay, ay * ay, bx * bx, bx * by, by * by),
        *(ax * bx, (ax * by + ay * bx) / 2, ay * by),
    ]
    side = len(inner) // TILES
    size = (TILES, TILES)
    share = cv2.resize(inner, size, interpolation=cv2.INTER_AREA).ravel().astype(np.float64)
    means = [
        cv2.resize(product * inner, size, interpolation=cv2.INTER_AREA).ravel()
        for product in products
    ]
    least = 1 / side**2
    tensors = np.array(means, np.float64) / np.maximum(share, least)
    return tensors.reshape(3, 3, -1), share


_ACROSS: Final = np.array([[-1, 0, 1]], np.float32)


def _opposed(tensors: Float64, known: npt.NDArray[np.bool_], noise: float) -> float:
    """Return the share of the tiles with contrast in both images that do not correlate."""
    ours, theirs, both = tensors[:, 0] + tensors[:, 2]
    fainter = np.minimum(ours, theirs)
    weight = np.where(known, fainter / (fainter + 2 * noise), 0.0)
    correlation = both / np.sqrt((ours + noise) * (theirs + noise))
    return float(weight @ (correlation < CONTRADICTS)) / (float(weight.sum()) + 0.5)
