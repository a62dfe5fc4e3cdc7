"""Charts: bars, lines, points and pies."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from documents.page import PROPORTIONAL, Colour, Font, Page, ink, mixed, paper
from documents.words import (
    CITIES,
    COMPANY,
    MEASURES,
    MONTHS,
    REGIONS,
    SERVICES,
    UNITS,
    iso_date,
)

WHITE = (255, 255, 255)

JOINTS = ("by", "per", "and")
OFFICES = ("Institute", "Data", "Bureau")

PALETTES = (
    ((31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189), (140, 86, 75)),
    ((0, 63, 92), (88, 80, 141), (188, 80, 144), (255, 99, 97), (255, 166, 0), (120, 120, 120)),
    ((38, 70, 83), (42, 157, 143), (233, 196, 106), (244, 162, 97), (231, 111, 81), (90, 90, 160)),
    ((30, 30, 30), (90, 90, 90), (140, 140, 140), (60, 60, 60), (170, 170, 170), (115, 115, 115)),
    ((66, 133, 244), (219, 68, 55), (244, 180, 0), (15, 157, 88), (171, 71, 188), (0, 172, 193)),
)


@dataclass(frozen=True)
class Plot:
    """The frame of a chart: its box in pixels, its font and colours, and its scale.

    Attributes:
        box: left, top, right, bottom of the data in pixels.
        font, colour: of labels.
        palette: colours of series.
        top: value at the upper edge; the lower one is 0.
    """

    box: tuple[float, float, float, float]
    font: Font
    colour: Colour
    palette: tuple[Colour, ...]
    top: float

    def height(self, value: float) -> float:
        """Return the position of a value, in pixels."""
        _, top, _, bottom = self.box
        return bottom - (bottom - top) * min(value / self.top, 1.0)


def _plot(page: Page, *, axis: bool = True, ratio: tuple[float, float] = (0.5, 0.9)) -> Plot:
    """Start a chart: background, title, axis, grid."""
    style = page.style
    dark = style.random() < 0.2
    ground = style.choice(((24, 26, 32), (10, 10, 14), (38, 44, 60))) if dark else paper(style)
    page.start(style.uniform(*ratio), ground)
    page.grain = 0 if dark else style.choice((0, 0, 0, 3.0))
    width, height = page.width, page.height
    colour = (230, 230, 230) if dark else ink(style)
    font = Font(style.choice(PROPORTIONAL), max(10, round(width / style.uniform(44, 64))))
    palette = list(style.choice(PALETTES[:3] + PALETTES[4:] if dark else PALETTES))
    palette = [mixed(hue, WHITE, 0.35 if dark else 0.0) for hue in palette]
    style.shuffle(palette)
    size = font.size
    box = (width * style.uniform(0.09, 0.13), height * style.uniform(0.15, 0.2),
           width * style.uniform(0.78, 0.96), height * style.uniform(0.82, 0.88))  # fmt: skip
    title = page.fill(
        "title",
        "title",
        lambda rng: (
            f"{rng.choice(MEASURES)} {rng.choice(JOINTS)} {rng.choice(REGIONS).lower()}, "
            f"{rng.randint(1990, 2029)}"
        ),
    )
    head = Font(
        font.family, round(size * style.uniform(1.2, 1.6)), style.choice(("regular", "bold"))
    )
    if style.random() < 0.6:
        page.write((box[0] + box[2]) / 2, height * 0.09, title, head, colour, "ms", width * 0.8)
    else:
        page.write(width * 0.03, height * 0.08, title, head, colour, "ls", width * 0.8)
    top = style.choice((1.0, 2.0, 5.0, 20.0, 40.0, 80.0, 100.0, 500.0, 2000.0))
    plot = Plot(box, font, colour, tuple(palette), top)
    if axis:
        _axis(page, plot, mixed(ground, colour, style.uniform(0.12, 0.3)))
    if style.random() < 0.6:
        source = page.fill(
            "source",
            "label",
            lambda rng: f"Source: {rng.choice(COMPANY)} {rng.choice(OFFICES)}, {iso_date(rng)}",
        )
        page.write(
            width * 0.03, height * 0.975, source, font.scaled(0.8), mixed(colour, ground, 0.3)
        )
    return plot


def _axis(page: Page, plot: Plot, faint: Colour) -> None:
    """Draw the vertical axis, its ticks, the grid and a frame."""
    style = page.style
    left, top, right, bottom = plot.box
    ticks = style.choice((4, 5, 5, 10))
    grid, frame = style.random() < 0.6, style.randrange(3)
    for i in range(ticks + 1):
        y = bottom - (bottom - top) * i / ticks
        if grid and i:
            page.line([(left, y), (right, y)], faint)
        else:
            page.line([(left - 4, y), (left, y)], plot.colour)
        page.write(
            left - 7, y, f"{plot.top * i / ticks:g}", plot.font.scaled(0.9), plot.colour, "rm"
        )
    if frame == 0:
        page.rectangle(plot.box, None, plot.colour)
    elif frame == 1:
        page.line([(left, top), (left, bottom), (right, bottom)], plot.colour)
    else:
        page.line([(left, bottom), (right, bottom)], plot.colour)
    page.write(
        left, top - 0.5 * plot.font.size, style.choice(UNITS), plot.font.scaled(0.9), plot.colour
    )


def _categories(style: Random, number: int) -> list[str]:
    """Return labels of categories: months, years, regions or letters."""
    kind = style.randrange(4)
    if kind == 0:
        return [MONTHS[i % 12][:3] for i in range(number)]
    if kind == 1:
        first = style.randint(1985, 2018)
        return [str(first + i) for i in range(number)]
    if kind == 2:
        return style.sample(sorted(set(REGIONS)), number)
    return [f"{'ABCDEFGHIJKLMNOP'[i]}" for i in range(number)]


def bars(page: Page) -> None:
    """Draw a bar chart: vertical, horizontal, grouped or stacked, with or without numbers."""
    if page.style.random() < 0.3:
        _lying_bars(page)
    else:
        _upright_bars(page)


def _lying_bars(page: Page) -> None:
    """Draw horizontal bars, with names on the left and numbers on the right."""
    plot, style = _plot(page, axis=False, ratio=(0.45, 1.1)), page.style
    left, top, right, bottom = plot.box
    left, right = page.width * style.uniform(0.2, 0.27), page.width * 0.87
    number = style.randint(3, max(4, min(14, int((bottom - top) / (1.7 * plot.font.size)))))
    step = (bottom - top) / number
    thick = step * style.uniform(0.5, 0.85)
    names, coloured = style.choice((CITIES, COMPANY, REGIONS, SERVICES)), style.random() < 0.3
    numbered, digits = style.random() < 0.7, 0 if plot.top >= 80 else 2
    ordered = style.random() < 0.5
    for i in range(number):
        y = top + (i + 0.5) * step
        row = (left, y - thick / 2, right, y + thick / 2)
        reach = (0.9 - 0.8 * i / number, 0.97 - 0.8 * i / number) if ordered else (0.06, 0.95)
        share = page.fill(f"bar {i}", "bar", lambda rng, reach=reach: rng.uniform(*reach))
        end = left + share * (right - left)
        page.mark(f"bar {i}", (left, row[1] - 6, page.width, row[3] + 6))
        page.rectangle((left, row[1], end, row[3]), plot.palette[i % 6 if coloured else 0])
        name = page.fill(f"name {i}", "name", lambda rng: rng.choice(names))
        page.write(left - 8, y, name, plot.font, plot.colour, "rm", left - 0.04 * page.width)
        if numbered:
            text = page.fill(
                f"number {i}",
                "amount",
                lambda rng: f"{rng.uniform(0.08, 0.95) * plot.top:.{digits}f}",
                f"{share * plot.top:.{digits}f}",
            )
            page.write(end + 6, y, text, plot.font.scaled(0.9), plot.colour, "lm")
    page.line([(left, top), (left, bottom)], plot.colour)


def _upright_bars(page: Page) -> None:
    """Draw vertical bars, grouped or stacked."""
    plot, style = _plot(page), page.style
    left, top, right, bottom = plot.box
    series = style.choice((1, 1, 1, 2, 3))
    number = style.randint(3, 14 // series + 1)
    stacked = series > 1 and style.random() < 0.5
    lettered = series == 1 and style.random() < 0.6
    step = (right - left) / number
    gap = step * style.uniform(0.08, 0.3)
    small = plot.font.scaled(0.9)
    edge = page.paper if style.random() < 0.3 else None
    for i, label in enumerate(_categories(style, number)):
        start = left + i * step + gap / 2
        page.write(
            start + (step - gap) / 2,
            bottom + 0.4 * small.size,
            label,
            small,
            plot.colour,
            "ma",
            step,
        )
        base = bottom
        for s in range(series):
            name = f"bar {i} {s}"
            most = 0.95 / series if stacked else 0.95
            share = page.fill(name, "bar", lambda rng, most=most: rng.uniform(0.06, most))
            wide = (step - gap) if stacked else (step - gap) / series
            x = start + (0 if stacked else s * wide)
            # the parts of a stack above a changed one move
            page.mark(name, (x, top - small.size, x + wide, bottom))
            high = share * (bottom - top)
            page.rectangle((x, base - high, x + wide - 1, base), plot.palette[s], edge)
            base -= high if stacked else 0
            if lettered:
                digits = 0 if plot.top >= 80 else 2
                value = page.fill(
                    f"number {i}",
                    "amount",
                    lambda rng, digits=digits: f"{rng.uniform(0.08, 0.95) * plot.top:.{digits}f}",
                    f"{share * plot.top:.{digits}f}",
                )
                page.write(x + wide / 2, base - high - 3, value, small, plot.colour, "ms", step)
                page.mark(name, (x - step, top - small.size, x + wide + step, bottom))
    if series > 1:
        _legend(page, plot, series)


def _legend(page: Page, plot: Plot, series: int) -> None:
    """Draw the legend in a corner or beside the chart."""
    _, top, right, _ = plot.box
    size = plot.font.size
    beside = right < 0.84 * page.width
    x = right + size if beside else right - 9 * size
    for s in range(series):
        y = top + (s + 1) * 1.5 * size
        page.rectangle((x, y - 0.7 * size, x + size, y), plot.palette[s])
        name = page.fill(f"series {s}", "label", lambda rng: rng.choice(REGIONS))
        page.write(x + 1.4 * size, y, name, plot.font.scaled(0.9), plot.colour, "ls",
                   page.width - x - 2 * size if beside else 7 * size)  # fmt: skip


def lines(page: Page) -> None:
    """Draw a line chart of one to four series; one point of one line is a field."""
    plot, style = _plot(page), page.style
    left, top, right, bottom = plot.box
    series, number = style.choice((1, 1, 2, 3, 4)), style.randint(5, 24)
    step = (right - left) / (number - 1 + 0.6)
    marked, thick = style.random() < 0.5, style.uniform(1.5, 4) * page.width / 900
    labels = _categories(style, number) if number < 9 else [str(2000 + i) for i in range(number)]
    small = plot.font.scaled(0.85)
    every = -(-number // 10)
    for i in range(0, number, every):
        x = left + (i + 0.3) * step
        page.write(x, bottom + 0.4 * small.size, labels[i], small, plot.colour, "ma", step * every)
    for s in range(series):
        middle, swing = style.uniform(0.2, 0.8), style.uniform(0.03, 0.25)
        slope = style.uniform(-0.3, 0.3)
        points = []
        for i in range(number):
            expected = middle + slope * (i / number - 0.5)
            value = page.fill(
                f"point {s} {i}",
                "point",
                lambda rng, e=expected, d=swing: min(max(rng.gauss(e, d), 0.02), 0.98),
            )
            x = left + (i + 0.3) * step
            points.append((x, bottom - value * (bottom - top)))
            page.mark(f"point {s} {i}", (x - step - 6, top, x + step + 6, bottom))
        page.smooth(points, plot.palette[s], max(1, thick))
        if marked:
            r = thick * 1.6 + 1
            for x, y in points:
                page.draw.ellipse((x - r, y - r, x + r, y + r), fill=plot.palette[s])
    if style.random() < 0.5:
        note = page.fill("note", "amount", lambda rng: f"max {rng.uniform(0.1, 1) * plot.top:.2f}")
        page.write(left + 12, top + 1.6 * plot.font.size, note, plot.font, plot.colour)
    if series > 1:
        _legend(page, plot, series)


def scatter(page: Page) -> None:
    """Draw a scatter chart; one point, one label or one number is a field."""
    plot, style = _plot(page, ratio=(0.6, 1.0)), page.style
    left, top, right, bottom = plot.box
    wide, high = right - left, bottom - top
    groups = style.randint(1, 3)
    number = style.choice((8, 12, 20, 40, 80))
    radius = max(3.0, page.width / style.uniform(90, 170))
    shape = style.randrange(3)
    labelled = number <= 12 and style.random() < 0.7
    slope, scale = style.uniform(-0.8, 0.8), style.choice((1, 2, 5, 10, 20, 100, 500))
    for i in range(6):
        page.write(
            left + wide * i / 5,
            bottom + 5,
            str(i * scale),
            plot.font.scaled(0.85),
            plot.colour,
            "ma",
        )
    for g in range(groups):
        x0, y0 = style.uniform(0.25, 0.75), style.uniform(0.3, 0.7)
        spread = style.uniform(0.08, 0.2)

        def place(
            rng: Random, x0: float = x0, y0: float = y0, spread: float = spread
        ) -> tuple[float, float]:
            x = rng.gauss(x0, spread)
            y = rng.gauss(y0 + slope * (x - x0), spread * 0.6)
            return min(max(x, 0.02), 0.98), min(max(y, 0.02), 0.98)

        for i in range(number // groups):
            name = f"point {g} {i}"
            value = page.fill(name, "point", place)
            x, y = left + value[0] * wide, bottom - value[1] * high
            box = (x - radius, y - radius, x + radius, y + radius)
            page.mark(name, box)
            colour = plot.palette[g]
            if shape == 0:
                page.draw.ellipse(box, fill=colour)
            elif shape == 1:
                page.draw.ellipse(box, fill=mixed(colour, page.paper, 0.5), outline=colour, width=2)
            else:
                page.line([(x - radius, y - radius), (x + radius, y + radius)], colour, radius / 2)
                page.line([(x - radius, y + radius), (x + radius, y - radius)], colour, radius / 2)
            if labelled:
                text = page.fill(f"label {g} {i}", "label", lambda rng: rng.choice(CITIES))
                font = plot.font.scaled(0.8)
                page.mark(
                    name,
                    (
                        x + radius,
                        y - font.size - 6,
                        x + radius + 8 * font.size + 24,
                        y + font.size + 6,
                    ),
                )
                page.write(x + radius + 3, y, text, font, plot.colour, "lm")
    result = page.fill(
        "result", "number", lambda rng: f"r = {rng.uniform(-1, 1):.3f}, n = {rng.randint(20, 999)}"
    )
    page.write(left + 10, bottom - 0.8 * plot.font.size, result, plot.font, plot.colour)
    if groups > 1:
        _legend(page, plot, groups)


def pie(page: Page) -> None:
    """Draw a pie or a ring with a legend; a boundary or a number is a field."""
    plot, style = _plot(page, axis=False, ratio=(0.55, 0.9)), page.style
    height, width = page.height, page.width
    radius = min(height * 0.34, width * 0.28)
    x, y = width * style.choice((0.32, 0.36)), height * 0.54
    box = (x - radius, y - radius, x + radius, y + radius)
    number = style.randint(3, 6)
    start = style.uniform(0, 360)
    cuts = []
    for i in range(number):
        cut = page.fill(f"boundary {i}", "bar", lambda rng: rng.uniform(-0.4, 0.4))
        page.mark(f"boundary {i}", box)
        page.mark(f"boundary {i}", (width * 0.85, y - radius - 30, width, y + radius + 30))
        cuts.append(start + 360 * (i + cut) / number)
    cuts.append(cuts[0] + 360)
    for i in range(number):
        page.draw.pieslice(
            box, cuts[i], cuts[i + 1], fill=plot.palette[i], outline=page.paper, width=2
        )
    if style.random() < 0.4:
        inner = radius * style.uniform(0.4, 0.65)
        page.draw.ellipse((x - inner, y - inner, x + inner, y + inner), fill=page.paper)
        middle = page.fill("middle", "number", lambda rng: str(rng.randint(102, 9999)))
        page.write(
            x,
            y,
            middle,
            Font(plot.font.family, max(12, round(inner / 2.6)), "bold"),
            plot.colour,
            "mm",
            1.7 * inner,
        )
    size = plot.font.size
    top = y - number * size
    for i in range(number):
        at = top + (i + 0.7) * 2 * size
        left = width * 0.69
        page.rectangle((left, at - 0.8 * size, left + size, at), plot.palette[i])
        name = page.fill(f"slice {i}", "label", lambda rng: rng.choice(REGIONS))
        page.write(left + 1.5 * size, at, name, plot.font, plot.colour, "ls", width * 0.16)
        share = page.fill(f"share {i}", "number", lambda rng: f"{rng.uniform(2, 60):.1f}%",
                          f"{(cuts[i + 1] - cuts[i]) / 3.6:.1f}%")  # fmt: skip
        page.write(width * 0.975, at, share, plot.font, plot.colour, "rs", width * 0.12)
