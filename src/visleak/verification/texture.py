"""The texture that pairs of aligned tiny images share, by tile.

Two garments or two chest X-rays agree along their outlines under some relation. Only copies agree
along the weaker direction of a tile as well, so correlation is measured on derivatives along it
(:mod:`visleak.verification.detail` does the same in windows of large images).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32, Float64
from visleak.verification.detail import along_weaker_direction
from visleak.verification.screen import central_differences

#: Blur (pixels) and energy of the noise of gradients (levels squared), of texture and of forms.
TEXTURE: Final = (0.0, 16.0)
FORMS: Final = (1.0, 8.0)
#: Tiles along a side, and smallest share of a tile that is covered.
TILES: Final = 4
COVERED: Final = 0.25
#: Quantile of the correlations that is typical, and correlation below which a tile with contrast
#: contradicts.
TYPICAL: Final = 0.4
CONTRADICTS: Final = 0.35


@dataclass(frozen=True, slots=True)
class Texture:
    """The texture that pairs of images share, one value per pair."""

    # sum of the correlations of tiles, in units of its standard deviation for unrelated images
    amount: Float64
    mean: Float64  # mean correlation of the tiles, weighted by texture, -1..1
    typical: Float64  # 0.4 quantile of the correlations of the tiles, weighted by texture, -1..1
    tiles: Float64  # number of tiles with texture in both images, 0..16
    opposed: Float64  # share of the tiles with contrast that contradict, 0..1


def shared_texture(grey: Float32, inner: Float32, blur: float, noise: float) -> Texture:
    """Return the texture that grey images of pairs in one frame share.

    Args:
        grey: query and reference of each pair, (n, 2, s, s).
        inner: 1 where both have gradients, else 0, (n, s, s).
        blur, noise: ``TEXTURE`` or ``FORMS``.
    """
    tensors, share = _tensors(blurred(grey, blur) if blur else grey, inner)
    count = len(share)
    along = along_weaker_direction(tensors.reshape(3, 3, -1))
    ours, theirs, both = (each.reshape(count, -1) for each in along)
    covered = share > COVERED
    correlation = np.where(covered, both / np.sqrt((ours + noise) * (theirs + noise)), 0.0)
    fainter = np.minimum(ours, theirs)
    weight = np.where(covered, fainter / (fainter + noise), 0.0)
    total = weight.sum(axis=1)
    order = np.argsort(correlation, axis=1, kind="stable")
    below = np.take_along_axis(weight, order, axis=1).cumsum(axis=1) / (total + 1e-6)[:, None]
    place = np.minimum((below < TYPICAL).sum(axis=1), TILES * TILES - 1)
    rows = np.arange(count)
    product = (weight * correlation).sum(axis=1)
    return Texture(
        amount=product / np.sqrt((weight * weight).sum(axis=1) + 0.05),
        mean=product / (total + 0.3),
        typical=correlation[rows, order[rows, place]],
        tiles=total,
        opposed=_opposed(tensors, covered, noise),
    )


def blurred(planes: Float32, blur: float) -> Float32:
    """Return grey squares (.., s, s) after a Gaussian blur."""
    kernel = _blur_matrix(planes.shape[-1], blur)
    return np.asarray(kernel @ planes @ kernel.T, np.float32)


@cache
def _blur_matrix(side: int, blur: float) -> Float32:
    """Return the matrix (side, side) that blurs the rows of a square."""
    rows = cv2.GaussianBlur(np.eye(side, dtype=np.float64), (1, 0), sigmaX=0.1, sigmaY=blur)
    return np.asarray(rows, np.float32)


def _tensors(grey: Float32, inner: Float32) -> tuple[Float64, Float64]:
    """Return structure tensors of tiles (3, 3, n, tiles), and the shares covered (n, tiles).

    The axes of a tensor are those of :func:`visleak.verification.detail.windows_of`.
    """
    (ax, bx), (ay, by) = (np.moveaxis(each, 1, 0) for each in central_differences(grey))
    products = np.stack(
        [
            *(ax * ax, ax * ay, ay * ay, bx * bx, bx * by, by * by),
            *(ax * bx, (ax * by + ay * bx) / 2, ay * by),
        ]
    )
    side = inner.shape[1] // TILES
    share, means = _tile_means(inner), _tile_means(products * inner)
    tensors = means / np.maximum(share, 1 / side**2)
    return tensors.reshape(3, 3, *share.shape), share


def _tile_means(planes: Float32) -> Float64:
    """Return the means over 4 x 4 tiles, (.., s, s) to (.., 16)."""
    side = planes.shape[-1] // TILES
    member = np.repeat(np.eye(TILES, dtype=np.float32) / np.float32(side), side, axis=1)
    means = member @ planes @ member.T
    return means.reshape(*planes.shape[:-2], -1).astype(np.float64)


def _opposed(tensors: Float64, covered: Bool, noise: float) -> Float64:
    """Return the share of the tiles with contrast in both images that contradict."""
    ours, theirs, both = tensors[:, 0] + tensors[:, 2]
    fainter = np.minimum(ours, theirs)
    weight = np.where(covered, fainter / (fainter + 2 * noise), 0.0)
    correlation = both / np.sqrt((ours + noise) * (theirs + noise))
    contradicts = (weight * (correlation < CONTRADICTS)).sum(axis=1)
    return np.asarray(contradicts / (weight.sum(axis=1) + 0.5))
