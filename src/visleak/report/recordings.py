"""The chart of distances in time between the frames of recordings on both sides."""

from __future__ import annotations

from visleak import plots
from visleak.storage.summary import RecordingSummary


def drawn(found: RecordingSummary) -> str:
    """Draw how far in time the test frames of shared recordings lie from training frames."""
    close = sum(bar.up_to is not None and bar.up_to <= found.within for bar in found.distances)
    seconds = found.unit == "ms"
    bars, before = [], -1
    for bar in found.distances:
        bars.append((_span(before, bar.up_to, seconds), bar.queries))
        before = before if bar.up_to is None else bar.up_to
    told = f"{'seconds' if seconds else 'frames'} to the nearest training frame"
    return plots.distances(bars, close, told)


def _span(before: int, last: int | None, seconds: bool) -> str:
    """Name a bar: a distance, or all up to it, or all beyond the one before.

    >>> _span(2, 5, False), _span(0, 1, False), _span(10_000, None, True), _span(0, 100, True)
    ('3-5', '1', '>10', '≤0.1')
    >>> _span(100, 1_500_000, False), _span(-1, 0, True)
    ('≤1.5M', '0')
    """
    if last is None:
        return f">{_short(before, seconds)}"
    if last == 0 or (last - before == 1 and not seconds):
        return _short(last, seconds)
    whole = f"{before + 1}-{last}"
    return whole if len(whole) < 7 and not seconds else f"≤{_short(last, seconds)}"


def _short(value: float, seconds: bool) -> str:
    """Write a number in few signs, milliseconds as seconds.

    >>> _short(12_345, False), _short(2_000_000_000, False), _short(500, True)
    ('12.3k', '2G', '0.5')
    """
    value = value / 1000 if seconds else value
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:g}"
