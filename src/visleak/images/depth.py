"""Which range of an image's values is shown, where they have more than eight bits.

The range follows from the values alone, so that equal values are equal pixels in any file. A stated
number of bits does not count: it is lost when a file is saved again, and in PNG (``sBIT``) it
describes values that were stretched to all 16 bits.

1. Eight bits that were stretched to sixteen (all values are multiples of 257, or of 256; of floats,
   of 1/255) become these eight bits.
2. Else the range begins at 0 and ends at ``2**n - 1`` with the fewest bits, at least eight, that
   hold the values. So an image of 12 bits, its rendering ``v >> 4`` and its copy of all 16 bits
   become equal pixels. A dark image of all 16 bits is shown brighter than its rendering ``v >> 8``.
3. Negative values have no such range, nor have floats that are neither whole numbers nor within
   0..1 nor above 16: theirs goes from the least to the greatest. So does that of images of more
   than 256 levels that take less than an eighth of range 2, such as thermal images.

Values beyond the range are black or white. One value in 10,000 at either end does not count (hot
and dead pixels), nor does a single value that lies further from all others than these span (no
data: 65535, -9999). Floats within 0..1 are shares of 65535. The range of colours is that of all
three together. An image of one value keeps its share of the type.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.records import Bytes8, Int64

OUTSIDE: Final = 1e-4  # share of the values at either end that does not count


LEVELS: Final = 256  # levels above which an image has more to show than eight bits hold


#: A range that is used by less than one part in so many is made narrower, where there are levels.
NARROW: Final = 8


#: Levels up to which an image may be a drawing of a few tones, one of them far from the others.
TONES: Final = 64


OVERSHOOT: Final = 0.1  # how far floats within 0..1 may lie outside, as filters leave them


OWN_UNIT: Final = 16  # floats up to here that are not whole numbers are in a unit of their own


_CHUNK: Final = 1 << 20  # values worked on at a time; only bounds memory


_Levels = tuple[npt.NDArray[Any], Int64]


def to_eight(values: npt.NDArray[Any]) -> Bytes8:
    """Return an array of any real type as ``uint8``, shape kept.

    ``uint8`` stays as it is, booleans become 0 and 255, all else is shown in :func:`shown_range`.
    Not-a-number becomes 0.

    >>> to_eight(np.array([0.0, 0.5, 1.0])).tolist()
    [0, 128, 255]
    >>> to_eight(np.array([0, 2048, 4095], dtype=np.uint16)).tolist()
    [0, 128, 255]
    """
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    return _scaled(values, *shown_range(values))


def alpha_to_eight(values: npt.NDArray[Any]) -> Bytes8:
    """Return opacities as ``uint8``.

    Opaque is 1 for floats within 0..1, else the greatest value of the fewest bits, at least eight.
    """
    if values.dtype in (np.uint8, np.bool_):
        return to_eight(values)
    most = float(np.nan_to_num(values).max(initial=0))
    if values.dtype.kind == "f" and most <= 1:
        return _scaled(values, 0, 1)
    return _scaled(values, 0, _bits_range(most))


def shown_range(values: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the values that are shown as 0 and as 255, see the module's description.

    >>> shown_range(np.array([7, 1000], dtype=np.uint16))
    (0.0, 1023.0)
    >>> shown_range(np.array([-1.5, 0, 3]))
    (-1.5, 3.0)
    """
    levels, counts = _levels(values)
    if len(levels) < 2:
        return _range_of_one(levels, values.dtype.kind == "f")
    own = levels, counts
    low, high = _bulk(*_with_data(*own))
    shares = values.dtype.kind == "f" and -OVERSHOOT * high <= low and high <= 1 + OVERSHOOT
    unit = 65535 if shares else 1
    if (stretched := _of_eight_bits(levels, shares)) is not None:
        return stretched
    low, high = low * unit, (min(high, 1.0) if shares else high) * unit
    top = _bits_range(high)
    in_own_unit = not shares and high <= OWN_UNIT and not bool((levels % 1 == 0).all())
    narrow = len(levels) > LEVELS and NARROW * (high - low) < top
    if (low < 0 and not shares) or in_own_unit or narrow:
        return low / unit, high / unit
    return 0.0, top / unit


def _levels(values: npt.NDArray[Any]) -> _Levels:
    """Return the finite values, ascending, and how often each occurs."""
    flat = values.ravel()
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        counts = np.zeros(65536, np.int64)
        for start in range(0, len(flat), _CHUNK):
            counts += np.bincount(flat[start : start + _CHUNK], minlength=65536)
        levels = np.flatnonzero(counts)
        return levels, counts[levels]
    if values.dtype.kind == "f":
        flat = flat[np.isfinite(flat)]
    levels, counts = np.unique(flat, return_counts=True)
    return levels.astype(np.float64), counts.astype(np.int64)


def _range_of_one(levels: npt.NDArray[Any], floats: bool) -> tuple[float, float]:
    """Return the range of an image of one colour, which shows no number of bits."""
    level = float(levels[0]) if len(levels) else 0.0
    if level < 0:
        return level, 0.0
    tops = (1.0, 255.0, 65535.0) if floats else (255.0, 65535.0)
    return 0.0, next((top for top in tops if level <= top), level)


def _with_data(levels: npt.NDArray[Any], counts: Int64) -> _Levels:
    """Take out the greatest value, or the least negative one, where it lies far from all others."""
    if len(levels) <= TONES:
        return levels, counts
    if levels[-1] - levels[-2] > levels[-2] - min(levels[0], 0):
        levels, counts = levels[:-1], counts[:-1]
    if levels[0] < 0 and levels[1] - levels[0] > levels[-1] - levels[1]:
        levels, counts = levels[1:], counts[1:]
    return levels, counts


def _bulk(levels: npt.NDArray[Any], counts: Int64) -> tuple[float, float]:
    """Return the least and the greatest value, but for some at either end."""
    until = np.cumsum(counts)
    beside = int(OUTSIDE * until[-1])
    ends = np.searchsorted(until, [beside, until[-1] - beside - 1], side="right")
    return float(levels[ends[0]]), float(levels[ends[1]])


def _of_eight_bits(levels: npt.NDArray[Any], shares: bool) -> tuple[float, float] | None:
    """Return the range of eight bits that were stretched, ``None`` for what is none."""
    if shares:
        eights = levels * 255
        # a float of half precision is off by up to 1/16 of a level
        return (0.0, 1.0) if bool((abs(eights - np.rint(eights)) < 1 / 16).all()) else None
    if not (levels[0] >= 0 and 255 < levels[-1] <= 65535):
        return None
    for step in (257, 256):
        if bool((levels % step == 0).all()):
            return 0.0, 255.0 * step
    return None


def _bits_range(most: float) -> float:
    """Return the greatest value of the fewest bits, at least eight, that hold a value."""
    return float(2 ** max(8, round(most).bit_length()) - 1)


def _scaled(values: npt.NDArray[Any], low: float, high: float) -> Bytes8:
    """Return values as shares of a range, times 255."""
    flat = values.ravel()
    made = np.empty(len(flat), np.uint8)
    table = None
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        table = _shares(np.arange(65536, dtype=np.float64), low, high)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        shares = _shares(part.astype(np.float64), low, high) if table is None else table[part]
        made[start : start + _CHUNK] = shares
    return made.reshape(values.shape)


def _shares(values: npt.NDArray[np.float64], low: float, high: float) -> Bytes8:
    values = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    shares = (np.clip(values, low, high) - low) / ((high - low) or 1.0)
    return np.asarray(np.rint(shares * 255), np.uint8)
