"""The photometric fit of two images: brightness, contrast and colours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from visleak.records import Float32, Float64
from visleak.verification.frame import Frame
from visleak.verification.measures import grey

#: Ridge of the colour fit towards luminance, levels squared.
RIDGE: Final = 10.0
#: Residual beyond which a pixel is excluded from the fit: levels, plus robust standard deviations.
OFF_LEVELS: Final = 2.0
OFF_SPREADS: Final = 2.5
#: Largest details of plain ground (levels), and multiple of the median details with half weight.
GROUND: Final = 0.5
USUAL: Final = 3.0
#: Medians are computed on every fifth value, because neighbours are similar.
STRIDE: Final = 5
#: Side (pixels of the frame) of the local mean that is subtracted to leave the details.
DETAIL_SIDE: Final = 9
#: Gain of the levels below which that of the details is used: a bar of text reduces it to zero.
LEAST_GAIN: Final = 0.2
#: Largest gain of details.
MOST_GAIN: Final = 20.0

_LUMINANCE: Final = np.array([0.299, 0.587, 0.114])
#: Median absolute deviation to standard deviation.
_SPREAD: Final = 1.4826


@dataclass(frozen=True, slots=True)
class PhotometricFit:
    """The fit of the reference's grey values by the query's colours."""

    # grey of the reference is gain times the query's grey, plus offset levels; the gain is negative
    # if one image is inverted
    gain: float
    offset: float
    fitted: Float32  # the query's colours as grey values of the reference, float32 (h, w)
    correlation: float  # of fitted with the reference's grey, -1..1
    colour: float  # mean correlation of the three channels, -1..1
    tint: float  # largest difference of a channel's mean from the grey fit, levels


@dataclass(frozen=True, slots=True)
class _Moments:
    """Means and covariances of six channels: query, then reference."""

    mean: Float64
    covariance: Float64

    @classmethod
    def of(cls, rows: Float32, weight: Float32) -> _Moments:
        """Return the moments of channels (6, n), weighted by pixel (n,)."""
        total = max(1.0, float(weight.sum()))
        mean = (rows @ weight).astype(np.float64) / total
        centred = (rows - mean.astype(np.float32)[:, None]) * weight
        return cls(mean, (centred @ centred.T).astype(np.float64) / total)

    def fit(self) -> tuple[float, Float64, float]:
        """Return the gain, the weights of the query's channels and the level that is added.

        Least squares with a ridge towards luminance, because an image in shades of red does not
        determine the weights of green and blue.
        """
        own = self.covariance[:3, :3]
        across = self.covariance[:3, 3:] @ _LUMINANCE
        gain = float(_LUMINANCE @ across / (_LUMINANCE @ own @ _LUMINANCE + 1))
        weights = np.linalg.solve(own + RIDGE * np.eye(3), across + RIDGE * gain * _LUMINANCE)
        return gain, weights, float(self.mean[3:] @ _LUMINANCE - self.mean[:3] @ weights)


def photometric_fit(frame: Frame) -> PhotometricFit:
    """Fit brightness, contrast and colour, including tints and inversions.

    Least squares, repeated without the pixels of large residuals, such as those of a caption.
    """
    rows = np.concatenate([frame.query.reshape(-1, 3).T, frame.reference.reshape(-1, 3).T])
    target = grey(frame.reference).ravel()
    weight = frame.mask.ravel().astype(np.float32)
    first = _Moments.of(rows, weight)
    _, weights, level = first.fit()
    off = np.abs(target - _mixed(rows, weights, level))
    limit = OFF_LEVELS + OFF_SPREADS * _SPREAD * _median(off[frame.mask.ravel()])
    moments = _Moments.of(rows, weight * (off <= limit))
    gain, weights, _ = moments.fit()
    detail = detail_fit(frame)
    mixed = _mixed(rows, detail.weights, detail.level).reshape(frame.mask.shape)
    if abs(gain) <= LEAST_GAIN:
        gain = detail.gain
    return PhotometricFit(
        gain=gain,
        offset=float((moments.mean[3:] - gain * moments.mean[:3]) @ _LUMINANCE),
        fitted=mixed,
        correlation=_explained(first, weights),
        colour=_by_channel(first),
        tint=_tint(moments, gain),
    )


@dataclass(frozen=True, slots=True)
class DetailFit:
    """The fit of the reference's details by the query's."""

    gain: float  # of the details, negative if one image is inverted
    weights: Float64  # of the query's channels (3,)
    level: float  # that is added, levels


def detail_fit(frame: Frame) -> DetailFit:
    """Fit the weights of the query's colours to the details of the reference.

    Details are differences from a local mean; levels are ignored, because a black bar or a vignette
    changes them. Weights reduce the influence of strong edges and of overlays.
    """
    inner = cv2.erode(frame.mask.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    if np.count_nonzero(inner) < 100:
        inner = frame.mask
    luminance = _LUMINANCE.astype(np.float32)
    pixels = np.flatnonzero(inner)
    ours = _details(frame.query).reshape(-1, 3).take(pixels, axis=0)
    theirs = _details(grey(frame.reference)).ravel().take(pixels)
    strength = np.maximum(np.abs(ours @ luminance), np.abs(theirs))
    # artefacts of compression on plain ground would outweigh the rest
    there = np.flatnonzero(strength > GROUND)
    if len(there) >= 100:
        ours, theirs, strength = ours.take(there, axis=0), theirs.take(there), strength.take(there)
    trust = 1 / (1 + (strength / (USUAL * _median(strength) + 0.5)) ** 2)
    gain, weights = 0.0, _LUMINANCE
    for _ in range(2):
        weighted = ours * trust[:, None]
        square = (weighted.T @ ours).astype(np.float64) / float(trust.sum())
        across = (weighted.T @ theirs).astype(np.float64) / float(trust.sum())
        gain = float(_LUMINANCE @ across / (_LUMINANCE @ square @ _LUMINANCE + 0.05))
        pull = 0.05 * float(np.trace(square)) / 3 + 0.02
        weights = np.linalg.solve(square + pull * np.eye(3), across + pull * gain * _LUMINANCE)
        miss = np.abs(ours @ weights.astype(np.float32) - theirs)
        limit = OFF_SPREADS * (_SPREAD * _median(miss) + 0.3)
        trust = trust / (1 + (miss / limit) ** 2)
    weights = _at_contrast(weights, ours, theirs, trust)
    pixels = np.flatnonzero(frame.mask)
    mixed = frame.query.reshape(-1, 3).take(pixels, axis=0) @ weights.astype(np.float32)
    level = _median(grey(frame.reference).ravel().take(pixels) - mixed)
    return DetailFit(gain, weights, level)


def _details(plane: Float32) -> Float32:
    return np.asarray(plane - cv2.blur(plane, (DETAIL_SIDE, DETAIL_SIDE)), np.float32)


def _median(values: Float32) -> float:
    return float(np.median(values[::STRIDE]))


def _at_contrast(weights: Float64, ours: Float32, theirs: Float32, trust: Float32) -> Float64:
    """Return the weights, scaled to give both images' details the same contrast."""
    size = float(np.abs(weights).sum())
    if size < 1e-6:
        return _LUMINANCE
    mixed = ours @ weights.astype(np.float32)
    product = float(np.vdot(trust * mixed, theirs))
    if product <= 0:
        return weights
    scale = math.sqrt(
        float(np.vdot(trust * theirs, theirs)) / (np.vdot(trust * mixed, mixed) + 1e-6)
    )
    return np.asarray(weights * min(scale, MOST_GAIN / size))


def _mixed(rows: Float32, weights: Float64, level: float) -> Float32:
    return np.asarray(weights.astype(np.float32) @ rows[:3] + np.float32(level), np.float32)


def _explained(moments: _Moments, weights: Float64) -> float:
    """Return the correlation of the weighted channels with the reference's grey."""
    own, others = moments.covariance[:3, :3], moments.covariance[3:, 3:]
    product = float(weights @ moments.covariance[:3, 3:] @ _LUMINANCE)
    energies = float(weights @ own @ weights) * float(_LUMINANCE @ others @ _LUMINANCE)
    return product / float(np.sqrt(energies)) if energies > 1e-6 else 0.0


def _by_channel(moments: _Moments) -> float:
    spread = np.sqrt(np.maximum(np.diag(moments.covariance), 0))
    scale = spread[:3] * spread[3:]
    products = np.diag(moments.covariance[:3, 3:])
    return float(np.where(scale > 1e-3, products / np.maximum(scale, 1e-3), 0.0).mean())


def _tint(moments: _Moments, gain: float) -> float:
    own, others = moments.mean[:3], moments.mean[3:]
    move = others - others @ _LUMINANCE - gain * (own - own @ _LUMINANCE)
    return float(np.abs(move).max())
