"""Frame numbers and times of the images of a recording, from a column or from ids."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MOST: Final = 2.0**53  # whole numbers below this are exact in a float
_MOST_SECONDS: Final = 6e10  # seconds from 1970 to the end of what datetime holds, about
#: By digits: unit of times since 1970 from September 2001 to 2286, and how many are a millisecond.
_STAMPS: Final = {13: ("milliseconds", 1), 16: ("microseconds", 1_000), 19: ("nanoseconds", 10**6)}
#: Date and time as file names hold them.
_IN_NAMES: Final = re.compile(
    r"^(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)[-_ T.]+(\d\d)[-_.:]?(\d\d)[-_.:]?(\d\d)$"
)
_ALLOWED: Final = "must hold whole numbers, seconds or ISO times"


@dataclass(frozen=True, slots=True)
class Frames:
    """The frame numbers or times of images."""

    values: pa.Int64Array  # frame numbers, or milliseconds; null where unknown
    timed: bool  # they are milliseconds
    stamps: str = ""  # unit since 1970 that whole numbers were taken for; empty where they were not


def read_frames(column: pa.Array | pa.ChunkedArray, where: str) -> Frames:
    """Return the frame numbers or times of a column.

    Whole numbers are frame numbers, unless all of them have the 13, 16 or 19 digits of milli-,
    micro- or nanoseconds since 1970: those are times. Where one is not a whole number, all are
    seconds; ISO dates with times, and Arrow's, are times too, taken for UTC where no zone stands
    with them. Times are kept as milliseconds. Empty texts and NaN are unknown.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return _of_texts(column, where)
        if pa.types.is_timestamp(kind):
            times = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
            if (pc.max(pc.abs(times)).as_py() or 0) >= 1000 * _MOST_SECONDS:
                raise VisleakError(f"{where}: a time is thousands of years away")
            return Frames(times, True)
        if pa.types.is_floating(kind):
            return _of_floats(column.cast(pa.float64()), where)
        if pa.types.is_integer(kind) or pa.types.is_null(kind):
            return _of_whole(column.cast(pa.int64()))
    except pa.ArrowInvalid as error:
        raise VisleakError(f"{where}: a frame number is too large ({error})") from error
    raise VisleakError(f"{where} {_ALLOWED}; they are of type {kind}")


def _of_texts(column: pa.Array, where: str) -> Frames:
    """Return texts as whole numbers, else as numbers, else as ISO times."""
    texts = pc.utf8_trim_whitespace(column)
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    with suppress(pa.ArrowInvalid):
        return _of_whole(texts.cast(pa.int64()))
    with suppress(pa.ArrowInvalid):
        return _of_floats(texts.cast(pa.float64()), where)
    values = texts.to_pylist()
    times = [None if text is None else _milliseconds(text) for text in values]
    pairs = zip(values, times, strict=True)
    others = [text for text, time in pairs if text is not None and time is None]
    if others:
        # among numbers and times, name the text that is neither
        odd = next((text for text in others if not _is_number(text)), others[0])
        raise VisleakError(f"{where} {_ALLOWED}; got {odd!r}")
    return Frames(pa.array(times, pa.int64()), True)


def _is_number(text: str) -> bool:
    with suppress(pa.ArrowInvalid):
        pa.array([text]).cast(pa.float64())
        return True
    return False


def _milliseconds(text: str) -> int | None:
    """Return the milliseconds from 1970 to an ISO date and time, ``None`` if it is none.

    Dates and times in file names, which cannot hold colons, are read as well.

    >>> _milliseconds("1970-01-01T00:00:01.5Z"), _milliseconds("1970-01-01 01:00+01:00")
    (1500, 0)
    >>> _milliseconds("1970_01_01_00-00-02"), _milliseconds("1970-01-01-00-00-02")
    (2000, 2000)
    """
    for written in (text, _IN_NAMES.sub(r"\1-\2-\3 \4:\5:\6", text)):
        with suppress(ValueError):
            return since_1970(datetime.fromisoformat(written))
    return None


def since_1970(time: datetime) -> int:
    """Return the milliseconds from 1970 to a time, which is of UTC where it names no zone."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def _of_floats(column: pa.DoubleArray, where: str) -> Frames:
    """Return floats as frame numbers where all are whole, else as seconds."""
    values = column.to_numpy(zero_copy_only=False)
    unknown = np.isnan(values)
    known = np.where(unknown, 0.0, values)
    timed = bool((known != np.floor(known)).any())
    beyond = np.abs(known) >= (_MOST_SECONDS if timed else _MOST)
    if beyond.any():
        raise VisleakError(f"{where}: {known[beyond][0]:g} is too large")
    found = pa.array(np.rint(known * 1000.0 if timed else known).astype(np.int64), mask=unknown)
    return Frames(found, True) if timed else _of_whole(found)


def _of_whole(values: pa.Int64Array) -> Frames:
    """Return whole numbers as times where all have as many digits as those since 1970 have.

    Numbers of 8, 12, 14 or 17 digits may be written dates, 10 digits a counter: they stay numbers.

    >>> _of_whole(pa.array([1_700_000_000_000_000_000, None])).values.to_pylist()
    [1700000000000, None]
    >>> _of_whole(pa.array([20_240_131_120_000])).timed
    False
    """
    least, most = pc.min(values).as_py(), pc.max(values).as_py()
    if least is None:
        return Frames(values, False)
    unit, parts = _STAMPS.get(len(str(least)) if least > 0 else 0, ("", 1))
    if not unit or len(str(most)) != len(str(least)):
        return Frames(values, False)
    return Frames(pc.divide(values, pa.scalar(parts, pa.int64())), True, unit)


def as_iso(milliseconds: int) -> str:
    """Return a time as a text that :func:`read_frames` reads as the same time.

    >>> as_iso(1500)
    '1970-01-01T00:00:01.500+00:00'
    """
    return (_EPOCH + milliseconds * _MILLISECOND).isoformat(timespec="milliseconds")
