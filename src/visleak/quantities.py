"""Counts, sizes and durations as people read them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "pair"), counted(2_000, "pair"), counted(2, "match")
    ('1 pair', '2,000 pairs', '2 matches')
    """
    plural = f"{noun}es" if noun.endswith(("s", "x", "tch", "sh")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def size(count: int) -> str:
    """Return a number of bytes.

    >>> size(999), size(1_500), size(23_400_000)
    ('999 bytes', '1.5 kB', '23 MB')
    """
    value, unit = float(count), 0
    while value >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:,.1f} {_UNITS[unit]}" if unit and value < 10 else f"{value:,.0f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Return a duration.

    >>> duration(7.6), duration(75), duration(3_700)
    ('8 s', '1:15', '1:01:40')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
