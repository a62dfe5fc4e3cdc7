"""Charts as small SVG texts, written by hand.

Every shape carries both a class and a plain colour: inside the report the style sheet colours
the classes for a light or a dark page, and on its own the file still looks right. There is no
``style`` attribute, so a strict content security policy lets the charts through. The same
numbers give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError

#: Class of a mark to its colour on a white page.
COLOURS: Final = {
    "hard": "#b3261e",
    "soft": "#2c6cb0",
    "total": "#4a5058",
    "exact": "#8c1d18",
    "near": "#d0492f",
    "similar": "#2c6cb0",
    "different": "#8a919a",
    "below": "#a8afb8",
    "ink": "#1d2127",
    "quiet": "#5b636d",
    "line": "#c9ced5",
    "track": "#eceff2",
}
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH: Final = 400


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of :func:`rate_bars`.

    Attributes:
        name: what stands over it at the left.
        note: what stands over it at the right, such as "3 of 100 · 3.00 %".
        colour: key of :data:`COLOURS`.
        share: its length, in [0, 1]; NaN where nothing is known.
        low, high: ends of the interval, drawn as a whisker.
    """

    name: str
    note: str
    colour: str
    share: float
    low: float
    high: float


def heat_map(
    values: npt.ArrayLike, rows: Sequence[str], columns: Sequence[str], colour: str, title: str
) -> str:
    """Draw shares as a matrix of coloured, numbered cells.

    Args:
        values: shares in [0, 1], (references, queries); NaN where there was no comparison.
        rows: names of the reference sets.
        columns: names of the query sets.
        colour: key of :data:`COLOURS`; the deeper the higher, scaled to the largest share.
        title: what the shares are.

    Source of the layout: Ramos et al. 2025, figure 3.
    """
    shares = np.asarray(values, dtype=np.float64)
    if shares.shape != (len(rows), len(columns)):
        raise UsageError(
            f"heat map: values must be {len(rows)} rows x {len(columns)} columns, got"
            f" {' x '.join(map(str, shares.shape))}"
        )
    side = 16 + 7 * min(16, max((len(name) for name in rows), default=0))
    cell_width, cell_height = 84, 40
    slanted = any(len(name) > 10 for name in columns)
    top = 30 + (64 if slanted else 22)
    width = max(side + cell_width * len(columns) + (30 if slanted else 4), 220)
    peak = float(np.nanmax(shares)) if np.isfinite(shares).any() else 0.0
    parts = [_text(0, 14, title, weight=600)]
    for index, name in enumerate(columns):
        x = side + cell_width * (index + 0.5)
        turn = f' transform="rotate(-32 {_n(x - 14)} {top - 8})"' if slanted else ""
        anchor = "start" if slanted else "middle"
        shift = -14 if slanted else 0
        parts.append(
            _text(x + shift, top - 8, name, 12, anchor, colour="quiet", room=14, extra=turn)
        )
    for row, name in enumerate(rows):
        y = top + cell_height * row
        parts.append(_text(side - 8, y + 25, name, 12, "end", colour="quiet", room=16))
        for column, other in enumerate(columns):
            share = float(shares[row, column])
            where = f"{name}, {other}: {percent(share)} %"
            box = (side + cell_width * column, y, cell_width - 3, cell_height - 3)
            parts.append(_cell(box, share, peak, colour, where))
    height = top + cell_height * len(rows) + 2
    told = f"{title}: shares of the images of each query set (columns) by reference set (rows)"
    return _svg(width, height, told, parts)


def _cell(
    box: tuple[float, float, float, float], share: float, peak: float, colour: str, where: str
) -> str:
    x, y, width, height = box
    if math.isnan(share):
        label = _text(x + width / 2, y + height / 2 + 4, "-", 13, "middle", colour="quiet")
        return _titled(_rect(x, y, width, height, colour="track") + label, where)
    depth = 0.06 + 0.94 * (share / peak) if peak > 0 else 0.06
    # White on the deep cells, ink on the pale ones: both keep a contrast over 4.5 to 1.
    ink = "on" if depth > 0.72 else "ink"
    label = _text(x + width / 2, y + height / 2 + 4.5, percent(share), 13, "middle", colour=ink)
    shape = _rect(x, y, width, height, colour=colour, extra=f' fill-opacity="{_n(depth)}" rx="3"')
    # Another class than the bars': a cell keeps its deep colour on a dark page, under pale text.
    shape = shape.replace('class="f-', 'class="c-')
    return _titled(shape + label, where)


def heat_maps(
    hard: npt.ArrayLike, soft: npt.ArrayLike, rows: Sequence[str], columns: Sequence[str]
) -> tuple[str, str, str]:
    """Draw the three panels: hard in reds, soft in blues, their total in greys."""
    total = np.asarray(hard, dtype=np.float64) + np.asarray(soft, dtype=np.float64)
    return (
        heat_map(hard, rows, columns, "hard", "Hard leaks, %"),
        heat_map(soft, rows, columns, "soft", "Soft leaks, %"),
        heat_map(total, rows, columns, "total", "Hard or soft, %"),
    )


def stacked_bars(names: Sequence[str], hard: Sequence[float], soft: Sequence[float]) -> str:
    """Draw one bar a query set, its shares of hard and of soft leaks stacked."""
    if not len(names) == len(hard) == len(soft):
        raise UsageError("stacked bars: names, hard and soft must be of one length")
    top, row = 34, 54
    limit = _ceiling(
        max((_known(h) + _known(s) for h, s in zip(hard, soft, strict=True)), default=0)
    )
    parts = [_swatch(0, "hard", "hard"), _swatch(76, "soft", "soft")]
    for index, (name, one, two) in enumerate(zip(names, hard, soft, strict=True)):
        y = top + row * index
        numbers = f"{percent(one)} + {percent(two)} = {percent(one + two)} %"
        first, second = (WIDTH * min(1.0, _known(share) / limit) for share in (one, two))
        parts += [
            _text(0, y + 14, name, room=24),
            _text(WIDTH, y + 14, numbers, 13, "end", colour="quiet"),
            _rect(0, y + 22, WIDTH, 16, colour="track"),
            _titled(_rect(0, y + 22, first, 16, colour="hard"), f"{name}, hard: {percent(one)} %"),
            _titled(
                _rect(first, y + 22, second, 16, colour="soft"), f"{name}, soft: {percent(two)} %"
            ),
        ]
    bottom = top + row * len(names)
    parts += _scale(bottom, limit)
    return _svg(WIDTH, bottom + 20, "Share of hard and soft leaks in each query set", parts)


def stacked_counts(
    rows: Sequence[tuple[str, Mapping[str, int]]], colours: Sequence[str], told: str
) -> str:
    """Draw one horizontal bar a row, its counts stacked, all on one scale.

    Args:
        rows: from top to bottom: what stands over the bar, and counts by key of
            :data:`COLOURS`, from left to right.
        colours: those that the legend explains; with none there is no legend.
        told: what the chart shows, for those who cannot see it.
    """
    row, top = 42, 32 if colours else 0
    most = max((sum(counts.values()) for _, counts in rows), default=0)
    parts = [_swatch(84 * place, colour, colour) for place, colour in enumerate(colours)]
    for index, (name, counts) in enumerate(rows):
        y, x, total = top + row * index, 0.0, sum(counts.values())
        note = " + ".join(f"{count:,}" for count in counts.values())
        note = f"{note} = {total:,}" if len(counts) > 1 else note
        parts += [
            _text(0, y + 14, name, room=30),
            _text(WIDTH, y + 14, note, 13, "end", colour="quiet"),
            _rect(0, y + 20, WIDTH, 12, colour="track"),
        ]
        for colour, count in counts.items():
            length = WIDTH * count / most if most else 0.0
            if count:
                shape = _rect(x, y + 20, length, 12, colour=colour)
                said = f"{name}, {colour}: {count:,}" if colours else f"{name}: {count:,}"
                parts.append(_titled(shape, said))
            x += length
    return _svg(WIDTH, top + row * len(rows), told, parts)


def rate_bars(bars: Sequence[Bar], told: str) -> str:
    """Draw one horizontal bar a rate, with its 95 % interval as a whisker.

    Args:
        bars: from top to bottom.
        told: what the chart shows, for those who cannot see it.
    """
    row = 52
    limit = _ceiling(max((_known(bar.high) for bar in bars), default=0.0))
    parts: list[str] = []
    for index, bar in enumerate(bars):
        y = row * index
        length, low, high = (
            WIDTH * min(1.0, _known(share) / limit) for share in (bar.share, bar.low, bar.high)
        )
        interval = f"{percent(bar.low)} to {percent(bar.high)} %"
        shape = _rect(0, y + 21, length, 10, colour=bar.colour)
        parts += [
            _text(0, y + 14, bar.name, room=26),
            _text(WIDTH, y + 14, bar.note, 13, "end", colour="quiet"),
            _rect(0, y + 21, WIDTH, 10, colour="track"),
            _titled(shape, f"{bar.name}: {bar.note}; interval {interval}"),
            _line(low, y + 37, high, y + 37, colour="ink"),
            _line(low, y + 34, low, y + 40, colour="ink"),
            _line(high, y + 34, high, y + 40, colour="ink"),
        ]
    bottom = row * len(bars)
    parts += _scale(bottom, limit)
    return _svg(WIDTH, bottom + 20, told, parts)


def histogram(similarities: npt.ArrayLike, hard: float | None, soft: float | None) -> str:
    """Draw how alike each query is to its nearest reference, and where the thresholds lie.

    The counts are on a logarithmic scale, because leaks are few beside the images that do not
    leak and would vanish on a linear one.
    """
    values = np.asarray(similarities, dtype=np.float64)
    values = np.clip(values[np.isfinite(values)], -1.0, 1.0)
    marks = [mark for mark in (hard, soft) if mark is not None]
    lowest = float(min([0.9, *marks, *values[values < 0.9]]))
    start = max(-1.0, math.floor(lowest * 20.0 - 0.5) / 20.0)
    counts, edges = np.histogram(values, bins=40, range=(start, 1.0))
    left, top, height = 44, 44, 170
    right = WIDTH - 6
    peak = math.log10(1 + max(1, int(counts.max())))

    def across(similarity: float) -> float:
        return left + (right - left) * (similarity - start) / (1.0 - start)

    def up(count: int) -> float:
        return top + height * (1.0 - math.log10(1 + count) / peak)

    parts = [_text(left - 6, top + height + 4, "0", 11, "end", colour="quiet")]
    for power in range(int(peak) + 1):
        if 10**power > counts.max():
            break
        y = up(10**power)
        parts.append(_line(left, y, right, y, colour="line"))
        parts.append(_text(left - 6, y + 4, f"{10**power:,}", 11, "end", colour="quiet"))
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        if count:
            colour = _band((low + high) / 2, hard, soft)
            x, y = across(low) + 0.5, up(int(count))
            shape = _rect(x, y, across(high) - x - 0.5, top + height - y, colour=colour)
            parts.append(_titled(shape, f"{low:.3f} to {high:.3f}: {int(count):,} queries"))
    parts.append(_line(left, top + height, right, top + height, colour="quiet"))
    for tick in _ticks(start):
        anchor = "end" if tick == 1.0 else "middle"
        x = min(across(tick), right)
        parts.append(_text(x, top + height + 17, f"{tick:.2f}", 11, anchor, colour="quiet"))
    parts += [_mark(across(t), y, top + height, n, t) for t, y, n in _marks(hard, soft)]
    told = "similarity to the nearest reference image"
    parts.append(_text((left + right) / 2, top + height + 36, told, 12, "middle", colour="quiet"))
    title = "How many query images (logarithmic scale) have which " + told
    return _svg(WIDTH, top + height + 44, title, parts)


def distances(bars: Sequence[tuple[str, int]], close: int, told: str) -> str:
    """Draw how many images lie how far away: one column a distance, equally wide.

    Args:
        bars: name of the distance and count, the nearest first; the last is all that lies beyond.
        close: how many of the bars, from the first, count as a leak.
        told: what the distances are.
    """
    left, top, height = 6, 30, 130
    step = (WIDTH - left - 6) / max(len(bars), 1)
    peak = max((count for _, count in bars), default=0)
    bottom = top + height
    parts = []
    if 0 < close < len(bars):
        x = left + step * close
        parts.append(_line(x, top - 22, x, bottom, colour="near", extra=' stroke-dasharray="4 3"'))
        parts.append(_text(x - 5, top - 14, "leaks", 12, "end", colour="near", weight=600))
    for place, (name, count) in enumerate(bars):
        x = left + step * place
        tall = max(2.0, height * count / peak) if count else 0.0
        if count:
            colour = "near" if place < close else "below"
            shape = _rect(x + 1, bottom - tall, step - 2, tall, colour=colour)
            parts.append(_titled(shape, f"{name}: {count:,} images"))
            middle = x + step / 2
            parts.append(_text(middle, bottom - tall - 4, f"{count:,}", 10, "middle"))
        parts.append(_text(x + step / 2, bottom + 15, name, 10, "middle", colour="quiet"))
    parts.append(_line(left, bottom, WIDTH - 6, bottom, colour="quiet"))
    parts.append(_text((left + WIDTH - 6) / 2, bottom + 34, told, 12, "middle", colour="quiet"))
    return _svg(WIDTH, bottom + 42, f"How many images lie how far away: {told}", parts)


def _ticks(start: float) -> list[float]:
    """Return at most seven round numbers from one down to ``start``.

    >>> _ticks(0.75)
    [1.0, 0.95, 0.9, 0.85, 0.8, 0.75]
    """
    span = 1.0 - start
    step = next(step for step in (0.02, 0.05, 0.1, 0.25, 0.5) if span / step < 6.5)
    return [round(1.0 - step * index, 6) for index in range(int(span / step + 1e-9) + 1)]


def _marks(hard: float | None, soft: float | None) -> list[tuple[float, int, str]]:
    found = []
    if hard is not None:
        found.append((hard, 12, "hard"))
    if soft is not None:
        found.append((soft, 30, "soft"))
    return found


def _mark(x: float, y: float, bottom: float, name: str, threshold: float) -> str:
    """Draw a threshold: a dashed line and its name, on the side where there is room."""
    anchor, shift = ("end", -5) if x > WIDTH / 3 else ("start", 5)
    line = _line(x, y - 8, x, bottom, colour=name, extra=' stroke-dasharray="4 3"')
    return line + _text(x + shift, y, f"{name} ≥ {threshold:.3f}", 12, anchor, colour=name)


def _band(similarity: float, hard: float | None, soft: float | None) -> str:
    if hard is not None and similarity >= hard:
        return "hard"
    return "soft" if soft is not None and similarity >= soft else "below"


def percent(share: float) -> str:
    """Write a share as a percentage with two decimals, without the sign.

    >>> percent(0.0289), percent(math.nan)
    ('2.89', '-')
    """
    return "-" if math.isnan(share) else f"{100.0 * share:.2f}"


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _ceiling(share: float) -> float:
    """Return the end of an axis: the next 1, 2 or 5 of a power of ten, never over one.

    >>> [_ceiling(share) for share in (0.0, 0.017, 0.033, 0.7)]
    [0.01, 0.02, 0.05, 1.0]
    """
    share = _known(share)
    steps: list[float] = [step * 10.0**power for power in range(-4, 0) for step in (1, 2, 5)]
    return next((round(step, 6) for step in steps if step >= max(share, 0.01) - 1e-12), 1.0)


def _scale(y: float, limit: float) -> list[str]:
    """Write the two ends of a horizontal axis."""
    return [
        _text(0, y + 12, "0 %", 11, "start", colour="quiet"),
        _text(WIDTH, y + 12, f"{100 * limit:g} %", 11, "end", colour="quiet"),
    ]


def _swatch(x: float, colour: str, name: str) -> str:
    return _rect(x, 4, 12, 12, colour=colour) + _text(x + 18, 15, name, 13, "start", colour="quiet")


def _n(value: float) -> str:
    """Write a coordinate: two decimals, no needless zeros, never ``-0``.

    >>> _n(2.0), _n(-0.001), _n(1.256)
    ('2', '0', '1.26')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _safe(text: str) -> str:
    """Escape a text and replace what XML cannot hold or what turns the writing around."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _text(
    x: float,
    y: float,
    text: str,
    size: int = 13,
    anchor: str = "start",
    *,
    colour: str = "ink",
    room: int = 0,
    weight: int = 400,
    extra: str = "",
) -> str:
    """Write a text; over ``room`` characters it is cut, and the whole is its tooltip."""
    cut = room and len(text) > room
    shown = f"{_safe(text[: room - 1])}…" if cut else _safe(text)
    title = f"<title>{_safe(text)}</title>" if cut else ""
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    fill = COLOURS.get(colour, "#ffffff")
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" font-size="{size}"{side}{bold}'
        f' class="t-{colour}" fill="{fill}"{extra}>{title}{shown}</text>'
    )


def _rect(x: float, y: float, width: float, height: float, *, colour: str, extra: str = "") -> str:
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(0.0, width))}" height="{_n(height)}"'
        f' class="f-{colour}" fill="{COLOURS[colour]}"{extra}/>'
    )


def _titled(shape: str, title: str) -> str:
    return f"<g><title>{_safe(title)}</title>{shape}</g>"


def _line(x1: float, y1: float, x2: float, y2: float, *, colour: str, extra: str = "") -> str:
    return (
        f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
        f' class="s-{colour}" stroke="{COLOURS[colour]}"{extra}/>'
    )


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """Wrap the parts: sized, named for those who cannot see it, and whole as a file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}"'
        f' width="{_n(width)}" height="{_n(height)}" role="img" aria-label="{_safe(title)}"'
        f' font-family="{escape(FONT)}">{"".join(parts)}</svg>'
    )
