"""Levels that a change of brightness or contrast clipped in one of two images.

The solid colours of graphics are near the ends of the range. A brighter copy is white where its
source has a pale colour, and has other hues where a channel is clipped: no linear fit explains
this. The same change of the other image does, clipping included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.records import Bytes8, Float32
from visleak.verification import exact
from visleak.verification.align import Matrix
from visleak.verification.frame import Photo, common_frame

#: Values this close to an end of the range count as clipped, levels.
AT_END: Final = 8.0
#: Bounds of the gain, and of the level that mid-grey becomes.
GAIN: Final = (0.8, 2.0)
MIDDLE: Final = (60.0, 196.0)
#: Smallest share of the values that are clipped, and smallest share of those that the change clips
#: that are clipped in the other image.
CLIPPED: Final = 0.02
AGREED: Final = 0.95
#: Fits, each without the values of large residuals (levels, plus robust standard deviations); and
#: smallest number and variance (levels squared) of the values of a fit.
FITS: Final = 4
OFF_LEVELS: Final = 2.0
OFF_SPREADS: Final = 2.5
FEWEST: Final = 100
LEAST_VARIANCE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Relit:
    """Two images, one of them with the brightness and contrast of the other one."""

    photos: tuple[Photo, Photo]
    # brightness of the reference is gain times the query's, plus offset levels, but for clipping
    gain: float
    offset: float


def equally_clipped(photos: tuple[Photo, Photo], matrix: Matrix) -> Relit | None:
    """Return two images, both with the change of brightness that clipped levels of one of them.

    ``None`` if no gain and offset, the same for all channels, explains the clipped levels.
    """
    frame = common_frame(*photos, matrix)
    if frame is None:
        return None
    ours, theirs = (plane[frame.mask].ravel() for plane in (frame.query, frame.reference))
    query, reference = photos
    if (change := _change(ours, theirs)) is not None:
        gain, offset = change
        return Relit((_changed(query, gain, offset), reference), gain, offset)
    if (change := _change(theirs, ours)) is not None:
        gain, offset = change
        return Relit((query, _changed(reference, gain, offset)), 1 / gain, -offset / gain)
    return None


def _change(values: Float32, clipped: Float32) -> tuple[float, float] | None:
    """Return the gain and offset that explain clipped values by those of the other image."""
    inner = np.asarray((clipped > AT_END) & (clipped < 255 - AT_END))
    if np.count_nonzero(~inner) < CLIPPED * len(values):
        return None
    kept, gain, offset = inner, 1.0, 0.0
    for _ in range(FITS):
        x, y = values[kept], clipped[kept]
        if len(x) < FEWEST or float(x.var()) < LEAST_VARIANCE:
            return None
        gain = float(np.cov(x, y, bias=True)[0, 1] / x.var())
        offset = float(y.mean()) - gain * float(x.mean())
        off = np.abs(gain * values + offset - clipped)
        spread = exact.DEVIATION * float(np.median(off[inner]))
        kept = inner & (off <= OFF_LEVELS + OFF_SPREADS * spread)
    if not (GAIN[0] <= gain <= GAIN[1] and MIDDLE[0] <= 128 * gain + offset <= MIDDLE[1]):
        return None
    changed = gain * values + offset
    beyond = (changed < -AT_END) | (changed > 255 + AT_END)
    agreed = np.abs(np.clip(changed, 0, 255) - clipped) <= AT_END
    if beyond.mean() < CLIPPED or agreed[beyond].mean() < AGREED:
        return None
    return gain, offset


def _changed(photo: Photo, gain: float, offset: float) -> Photo:
    levels = np.clip(np.rint(gain * np.arange(256) + offset), 0, 255).astype(np.uint8)
    pixels: Bytes8 = levels[photo.pixels]
    return Photo(pixels, photo.content)
