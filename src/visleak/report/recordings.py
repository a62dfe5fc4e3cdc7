"""Recordings on both sides, as the page shows them: records, and the chart of distances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from visleak import plots
from visleak.pipeline.recordings import doubt, words
from visleak.stats import Rate


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording on both sides: how near in time its test frames lie to training frames."""

    name: str
    queries: int
    references: int
    close: int
    near_or_exact: int | None
    least: int
    median: int
    near_up_to: int | None


@dataclass(frozen=True, slots=True)
class Recordings:
    """The recordings that two sets share, and the distances in time of their frames.

    ``distances`` are bars: the last distance of each (``None`` for all beyond) and images.
    """

    query_set: str
    reference_set: str
    unit: str
    within: int
    shared: int
    leaking: int
    queries: int
    nearest: int | None
    near_or_exact: int | None
    rate: Rate
    distances: tuple[tuple[int | None, int], ...]
    listed: tuple[Recording, ...]

    @property
    def bound(self) -> str:
        """The largest distance that counts as a leak, in words."""
        return words(self.within, self.unit)

    @property
    def doubt(self) -> str:
        """Why the numbers may be no frames, in words."""
        return doubt(self.unit, self.within, self.nearest)


def read(comparisons: Sequence[Mapping[str, Any]]) -> tuple[Recordings, ...]:
    """Take what ``audit.json`` says of comparisons with recordings on both sides."""
    return tuple(_read(comparisons))


def _read(comparisons: Sequence[Mapping[str, Any]]) -> Iterator[Recordings]:
    for item in comparisons:
        about, rate = _mapped(item.get("recordings")), _mapped(item.get("rates")).get("recording")
        if about.get("shared") and isinstance(rate, Mapping):
            yield Recordings(
                query_set=str(item.get("query_set") or ""),
                reference_set=str(item.get("reference_set") or ""),
                unit=str(about.get("unit") or ""),
                within=_whole(about.get("within")) or 0,
                shared=_whole(about.get("shared")) or 0,
                leaking=_whole(about.get("leaking")) or 0,
                queries=_whole(about.get("queries")) or 0,
                nearest=_whole(about.get("nearest")),
                near_or_exact=_whole(about.get("near_or_exact")),
                rate=Rate.from_dict(rate),
                distances=tuple(
                    (_whole(bar.get("up_to")), _whole(bar.get("queries")) or 0)
                    for bar in _mappings(about.get("distances"))
                ),
                listed=tuple(_recording(each) for each in _mappings(about.get("listed"))),
            )


def _recording(item: Mapping[str, Any]) -> Recording:
    return Recording(
        name=str(item.get("recording") or ""),
        queries=_whole(item.get("queries")) or 0,
        references=_whole(item.get("references")) or 0,
        close=_whole(item.get("close")) or 0,
        near_or_exact=_whole(item.get("near_or_exact")),
        least=_whole(item.get("least")) or 0,
        median=_whole(item.get("median")) or 0,
        near_up_to=_whole(item.get("near_up_to")),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _mapped(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value or () if isinstance(item, Mapping)]


def drawn(found: Recordings) -> str:
    """Draw how far in time the test frames of shared recordings lie from training frames."""
    close = sum(last is not None and last <= found.within for last, _ in found.distances)
    seconds = found.unit == "ms"
    bars, before = [], -1
    for last, count in found.distances:
        bars.append((_span(before, last, seconds), count))
        before = before if last is None else last
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
