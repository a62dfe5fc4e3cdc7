"""Places of aligned tiny images that differ by more than resampling and compression explain.

A blurred, rotated or compressed edge has levels between those of its neighbours. A pixel therefore
counts as unexplained as far as its levels lie outside the range of the 3 x 3 pixels around it in
the other image, after gain and offset of each channel were fitted where the images agree most. An
emblem that only one icon has, or another colour of a stripe, is unexplained; strokes of a reduced
copy are not.

What JPEG does to a tiny image depends on its blocks, and is more than that. Each image is therefore
also compressed at the resolution of the other one, which leaves little of the difference between an
image and its compressed copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Bytes8, Float32, Float64
from visleak.verification import texture
from visleak.verification.align import Matrix, inverse
from visleak.verification.frame import warped

#: Blur of both images, and that of their colours, which JPEG reduces (pixels).
BLUR: Final = 0.7
COLOUR_BLUR: Final = 1.2
#: Variance of a channel that is added for the fit, levels squared.
NOISE: Final = 4.0
#: Share of the places that are at most ``usual``.
USUAL: Final = 0.9
#: Depth of the strip along one edge, and of the border, that are left out, shares of the side.
STRIP: Final = 0.375
BORDER: Final = 0.1
#: Qualities of JPEG that are tried.
QUALITIES: Final = (20, 30, 42, 55, 67, 78, 88, 95)
#: Largest typical difference that they are tried on, levels.
MOST_LOST: Final = 32.0
#: Tiles along a side.
TILES: Final = 4
#: Smallest change of brightness (of mid-grey, levels) or contrast (factor) that is made before, and
#: largest contrast.
RELIT: Final = (4.0, 1.1)
MOST_GAIN: Final = 4.0
#: Smallest number of pixels that are compared.
FEWEST: Final = 64
#: Luminance and two opponent colours of red, green and blue.
OPPONENT: Final = ((0.299, 0.587, 0.114), (0.5, -0.5, 0.0), (-0.25, -0.25, 0.5))


@dataclass(frozen=True, slots=True)
class Recoded:
    """Difference of two images, one of them compressed like the other one; levels."""

    mean: float = 255.0  # root mean square
    # the same without the quarter of the tiles that differs most: small if a bar of text is all
    # that differs
    typical: float = 255.0
    largest: float = 255.0  # of a place of 3 x 3 pixels: mean of the largest of the channels


def recoded(
    query: Bytes8, reference: Bytes8, matrix: Matrix, light: tuple[float, float] = (1.0, 0.0),
    qualities: Sequence[int] = QUALITIES,
) -> Recoded:  # fmt: skip
    """Return the difference of two RGB images, one of them compressed like the other one.

    Args:
        query, reference: the images, at any size.
        matrix: the relation from query to reference, in unit coordinates.
        light: gain and offset of the query's brightness.
        qualities: those of JPEG that are tried.
    """
    gain, offset = light
    is_possible = 1 / MOST_GAIN < gain < MOST_GAIN
    if not is_possible or (
        abs(128 * gain + offset - 128) <= RELIT[0] and max(gain, 1 / gain) <= RELIT[1]
    ):
        gain, offset = 1.0, 0.0
    there = _recoded(query, reference, inverse(matrix), (1 / gain, -offset / gain), qualities)
    back = _recoded(reference, query, matrix, (gain, offset), qualities)
    return min(there, back, key=lambda own: own.typical)


def _recoded(
    compressed: Bytes8, original: Bytes8, matrix: Matrix, light: tuple[float, float],
    qualities: Sequence[int],
) -> Recoded:  # fmt: skip
    """Return the difference of an image from another one that is compressed as it may have been."""
    gain, offset = light
    height, width = compressed.shape[:2]
    whole = np.full(original.shape[:2], 255, np.uint8)
    moved, inside = warped(original, whole, matrix, (width, height))
    shown = np.asarray(inside == 255)
    if np.count_nonzero(shown) < FEWEST:
        return Recoded()
    levels = np.clip(np.rint(gain * moved + offset), 0, 255).astype(np.uint8)
    # around it, the other image affects the same blocks
    levels[~shown] = compressed[~shown]
    # the order of channels that OpenCV compresses
    target, levels = (np.ascontiguousarray(each[..., ::-1]) for each in (compressed, levels))
    best = _Difference.of(target, levels, shown)
    if best.typical <= MOST_LOST:
        for quality in qualities:
            tried = _Difference.of(target, _compressed(levels, quality), shown)
            best = tried if tried.typical < best.typical else best
    return best.summary()


def _compressed(pixels: Bytes8, quality: int) -> Bytes8:
    data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)


@dataclass(frozen=True, slots=True)
class _Difference:
    """The difference of two images where both are shown."""

    apart: Float32  # (h, w, 3), levels
    tiles: Float32  # mean squares of the tiles, in order (16,)
    share: float  # of the pixels that are shown, 0..1

    @classmethod
    def of(cls, one: Bytes8, other: Bytes8, shown: Bool) -> _Difference:
        apart = cv2.absdiff(one, other).astype(np.float32)
        apart[~shown] = 0
        squares = cv2.resize(apart * apart, (TILES, TILES), interpolation=cv2.INTER_AREA)
        tiles = np.sort(np.asarray(squares, np.float32).mean(axis=2).ravel())
        return cls(apart, tiles, np.count_nonzero(shown) / shown.size)

    @property
    def typical(self) -> float:
        return self._root(self.tiles[: TILES * TILES * 3 // 4])

    def summary(self) -> Recoded:
        largest = cv2.blur(self.apart.max(axis=2), (3, 3)).max()
        return Recoded(self._root(self.tiles), self.typical, float(largest))

    def _root(self, tiles: Float32) -> float:
        return math.sqrt(float(tiles.sum()) / (TILES * TILES * self.share))


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Unexplained differences of places of 3 x 3 pixels, levels, one value per pair."""

    usual: Float64  # 0.9 quantile
    # largest one outside of a strip along one edge, the edge where that is least: small if a bar
    # of text or a shift of the content is all that differs
    beside: Float64
    centre: Float64  # largest one away from the border


def unexplained(
    query: Float32, reference: Float32, inner: Float32, agreeing: Bool
) -> tuple[Unexplained, Unexplained]:
    """Return the unexplained differences of pairs in luminance and in colour.

    Args:
        query, reference: RGB of aligned pairs, (n, s, s, 3).
        inner: 1 where they overlap, else 0, (n, s, s).
        agreeing: where they agree most, (n, s, s).
    """
    ours, theirs = (texture.blurred(np.moveaxis(each, 3, 1), BLUR) for each in (query, reference))
    ours = _fitted(ours, theirs, (inner * agreeing)[:, None])
    opponent = np.array(OPPONENT, np.float32)
    ours, theirs = (
        (opponent @ each.reshape(*each.shape[:2], -1)).reshape(each.shape)
        for each in (ours, theirs)
    )
    colours = [texture.blurred(each[:, 1:], COLOUR_BLUR) for each in (ours, theirs)]
    return _summary(ours[:, :1], theirs[:, :1], inner), _summary(colours[0], colours[1], inner)


def _fitted(query: Float32, reference: Float32, weight: Float32) -> Float32:
    """Return channels (n, 3, s, s) with the gain and offset that fit the reference best."""
    total = np.maximum(weight.sum(axis=(2, 3), dtype=np.float64), 1.0)

    def mean(values: Float32) -> Float64:
        return np.asarray((values * weight).sum(axis=(2, 3), dtype=np.float64) / total)

    ours, theirs = mean(query), mean(reference)
    covariance = mean(query * reference) - ours * theirs
    gain = (covariance + NOISE) / (mean(query * query) - ours * ours + NOISE)
    factor, offset = (
        each.astype(np.float32)[:, :, None, None] for each in (gain, theirs - gain * ours)
    )
    return np.asarray(factor * query + offset, np.float32)


def _summary(query: Float32, reference: Float32, inner: Float32) -> Unexplained:
    excess = (_outside(query, reference) + _outside(reference, query)) * inner
    side = excess.shape[1]
    mean = _mean_matrix(side)
    places = mean @ excess @ mean.T
    strip, border = round(STRIP * side), round(BORDER * side)
    rows, columns = places.max(axis=2), places.max(axis=1)
    rests = [
        rest.max(axis=1)
        for lines in (rows, columns)
        for rest in (lines[:, strip:], lines[:, :-strip])
    ]
    usual = round(USUAL * side**2)
    return Unexplained(
        np.partition(places.reshape(len(places), -1), usual, axis=1)[:, usual].astype(np.float64),
        np.min(rests, axis=0).astype(np.float64),
        places[:, border:-border, border:-border].max(axis=(1, 2)).astype(np.float64),
    )


def _outside(values: Float32, others: Float32) -> Float32:
    """Return how far values (n, c, s, s) are outside the range of others nearby, (n, s, s)."""
    low, high = neighbours(others, np.minimum), neighbours(others, np.maximum)
    beyond = np.maximum(values - high, low - values).max(axis=1)
    return np.asarray(np.maximum(beyond, 0), np.float32)


def neighbours(planes: Float32, extreme: np.ufunc) -> Float32:
    """Return the least or greatest of the 3 x 3 values around each of (.., s, s).

    Args:
        planes: the values.
        extreme: ``np.minimum`` or ``np.maximum``.
    """
    for axis in (-2, -1):
        made = planes.copy()
        along, found = planes.swapaxes(axis, -1), made.swapaxes(axis, -1)
        extreme(found[..., 1:], along[..., :-1], out=found[..., 1:])
        extreme(found[..., :-1], along[..., 1:], out=found[..., :-1])
        planes = made
    return planes


@cache
def _mean_matrix(side: int) -> Float32:
    """Return the matrix (side, side) that averages three rows of a square."""
    return np.asarray(cv2.blur(np.eye(side, dtype=np.float32), (1, 3)), np.float32)
