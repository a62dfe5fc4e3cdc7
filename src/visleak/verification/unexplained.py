"""Places of aligned tiny images that differ by more than resampling and compression explain.

A blurred, rotated or compressed edge has levels between those of its neighbours. A pixel therefore
counts as unexplained as far as its levels lie outside the range of the 3 x 3 pixels around it in
the other image, after gain and offset of each channel were fitted where the images agree most. An
emblem that only one icon has, or another colour of a stripe, is unexplained; strokes of a reduced
copy are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32, Float64
from visleak.verification import texture

#: Blur of both images, and that of their colours, which JPEG reduces (pixels).
BLUR: Final = 0.7
COLOUR_BLUR: Final = 1.2
#: Variance of a channel that is added for the fit, levels squared.
NOISE: Final = 4.0
#: Share of the places that are at most ``usual``.
USUAL: Final = 0.9
#: Depth of the strip along one edge, and of the border, that are left out, shares of the side.
STRIP: Final = 0.3
BORDER: Final = 0.1
#: Luminance and two opponent colours of red, green and blue.
OPPONENT: Final = ((0.299, 0.587, 0.114), (0.5, -0.5, 0.0), (-0.25, -0.25, 0.5))


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
