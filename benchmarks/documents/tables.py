"""Tables of publications, and spreadsheets."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from documents.page import PROPORTIONAL, Font, Page, accent, ink, mixed, paper
from documents.words import (
    CITIES,
    COMPANY,
    LAST,
    MEASURES,
    REGIONS,
    SERVICES,
    amount,
    iso_date,
    phrase,
)

WHITE = (255, 255, 255)


def table(page: Page) -> None:
    """Draw a table of a publication: caption, header, names and numbers."""
    style = page.style
    page.start(style.uniform(0.4, 1.1), paper(style), squeeze=0.15)
    page.grain = style.choice((0, 0, 3.0))
    width, height = page.width, page.height
    rows = min(style.randint(4, 18), int(height * 0.75 / 18))
    columns = style.randint(3, 7)
    step = height * 0.78 / (rows + 1)
    size = max(10, min(round(step * 0.62), round(width / (8 * columns + 10))))
    font, colour, brand = (
        Font(style.choice((*PROPORTIONAL, "roman", "mono")), size),
        ink(style),
        accent(style),
    )
    left, right, top = width * 0.04, width * 0.96, height * 0.16
    caption = page.fill(
        "caption", "title", lambda rng: f"Table {rng.randint(1, 9)}: {phrase(rng, 3, 6)}"
    )
    page.write(left, height * 0.09, caption, font, colour, "ls", right - left)
    edges = [
        left,
        *(left + (right - left) * (0.26 + 0.74 * i / columns) for i in range(columns + 1)),
    ]
    look = style.randrange(4)
    if look == 0:
        page.rectangle((left, top, right, top + step), brand)
    if look == 1:
        for y in (top, top + step, top + (rows + 1) * step):
            page.line([(left, y), (right, y)], colour, 2)
    for column in range(columns + 1):
        head = (
            style.choice((*MEASURES, *REGIONS))
            if column
            else style.choice(("Region", "Method", "Name"))
        )
        x, anchor = (left + 6, "lm") if column == 0 else (edges[column + 1] - 6, "rm")
        page.write(x, top + step / 2, head, font.bold(), WHITE if look == 0 else colour, anchor,
                   edges[column + 1] - edges[column] - 10)  # fmt: skip
    makers = [_numbers(style) for _ in range(columns)]
    names = style.choice((CITIES, LAST, COMPANY, REGIONS))
    for row in range(rows):
        y = top + (row + 1) * step
        if look in {0, 2} and row % 2:
            page.rectangle((left, y, right, y + step), mixed(page.paper, brand, 0.1))
        name = page.fill(f"name {row}", "name", lambda rng: rng.choice(names))
        page.write(left + 6, y + step / 2, name, font, colour, "lm", edges[1] - left - 8)
        for column in range(columns):
            value = page.fill(f"cell {row} {column}", "cell", makers[column])
            page.write(
                edges[column + 2] - 6,
                y + step / 2,
                value,
                font,
                colour,
                "rm",
                edges[2] - edges[1] - 8,
            )
    if look == 3:
        for i in range(rows + 2):
            page.line(
                [(left, top + i * step), (right, top + i * step)], mixed(page.paper, colour, 0.5)
            )
        for edge in edges:
            page.line(
                [(edge, top), (edge, top + (rows + 1) * step)], mixed(page.paper, colour, 0.5)
            )


def spreadsheet(page: Page) -> None:
    """Draw the window of a spreadsheet: toolbar, letters, numbers, cells."""
    style = page.style
    dark = style.random() < 0.25
    ground = (32, 33, 36) if dark else WHITE
    page.start(style.uniform(0.5, 0.85), ground, squeeze=0.1)
    width, height = page.width, page.height
    colour = (232, 232, 232) if dark else (20, 20, 20)
    brand = accent(style)
    size = max(11, round(width / style.uniform(64, 90)))
    font = Font(style.choice(("sans", "sans", "plain", "stix")), size)
    panel = (
        (48, 49, 54) if dark else style.choice(((243, 243, 243), (230, 236, 230), (226, 232, 242)))
    )
    bar = 2.4 * size
    page.rectangle((0, 0, width, bar), brand)
    file = page.fill(
        "file", "name", lambda rng: f"{rng.choice(MEASURES).lower()}-{rng.randint(2001, 2029)}.xlsx"
    )
    page.write(width / 2, bar / 2, file, font, WHITE, "mm")
    page.rectangle((0, bar, width, bar * 2.2), panel)
    x = size
    for _ in range(style.randint(8, 22)):
        tint = style.choice((accent(style), mixed(colour, panel, 0.3), mixed(colour, panel, 0.3)))
        page.rectangle(
            (x, bar * 1.35, x + size * 1.1, bar * 1.85), tint, radius=style.choice((0, 3))
        )
        x += style.choice((1.7, 1.7, 3)) * size
    y = bar * 2.2
    page.write(
        size,
        y + size,
        page.fill("cell name", "label", lambda rng: f"{rng.choice('ABCDEFG')}{rng.randint(1, 40)}"),
        font,
        colour,
        "lm",
    )
    page.write(
        7 * size,
        y + size,
        page.fill(
            "formula",
            "label",
            lambda rng: (
                f"=SUM({rng.choice('BCDE')}{rng.randint(2, 9)}:"
                f"{rng.choice('BCDE')}{rng.randint(10, 40)})"
            ),
        ),
        font,
        colour,
        "lm",
    )
    y += 2 * size
    line = mixed(ground, colour, 0.2)
    step, wide = size * style.uniform(1.55, 2), size * style.uniform(6, 9)
    margin = 2.6 * size
    page.rectangle((0, y, width, y + step), panel)
    page.rectangle((0, y, margin, height), panel)
    columns, rows = int((width - margin) / wide) + 1, int((height - y) / step) - 1
    used = (min(columns - 1, style.randint(3, 9)), style.randint(rows // 2, rows))
    for column in range(columns):
        page.write(
            margin + (column + 0.5) * wide,
            y + step / 2,
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[column % 26],
            font.scaled(0.9),
            colour,
            "mm",
        )
        page.line([(margin + column * wide, y), (margin + column * wide, height - step)], line)
    makers = [_numbers(style) if style.random() < 0.75 else iso_date for _ in range(used[0] + 1)]
    heads = [style.choice((*MEASURES, *REGIONS)) for _ in range(used[0] + 1)]
    for row in range(rows):
        top = y + (row + 1) * step
        page.line([(0, top), (width, top)], line)
        page.write(margin / 2, top + step / 2, str(row + 1), font.scaled(0.9), colour, "mm")
        if row > used[1]:
            continue
        for column in range(used[0] + 1):
            at = margin + column * wide
            if row == 0:
                if style.random() < 0.5:
                    page.rectangle(
                        (at + 1, top + 1, at + wide - 1, top + step - 1), mixed(ground, brand, 0.3)
                    )
                page.write(
                    at + 4, top + step / 2, heads[column], font.bold(), colour, "lm", wide - 6
                )
            elif column == 0:
                text = page.fill(f"name {row}", "name", lambda rng: rng.choice((*SERVICES, *LAST)))
                page.write(at + 4, top + step / 2, text, font, colour, "lm", wide - 6)
            else:
                text = page.fill(f"cell {row} {column}", "cell", makers[column])
                page.write(at + wide - 4, top + step / 2, text, font, colour, "rm", wide - 6)
    column, row = style.randrange(columns - 1), style.randrange(1, rows)
    page.rectangle(
        (
            margin + column * wide,
            y + (row + 1) * step,
            margin + (column + 1) * wide,
            y + (row + 2) * step,
        ),
        None,
        brand,
        2,
    )
    page.rectangle((0, height - step, width, height), panel)
    page.write(
        size, height - step / 2, f"Sheet {style.randint(1, 4)}", font.scaled(0.9), colour, "lm"
    )
    total = page.fill("sum", "amount", lambda rng: f"Sum: {amount(rng)}")
    page.write(width - size, height - step / 2, total, font.scaled(0.9), colour, "rm")


def _numbers(style: Random) -> Callable[[Random], str]:
    """Return a maker of the numbers of one column."""
    digits, scale = style.choice((0, 1, 2, 3)), 10 ** style.uniform(0.5, 3.5)
    percent = "%" if scale < 100 and style.random() < 0.4 else ""
    return lambda rng: f"{rng.uniform(0.1, 1) * scale:,.{digits}f}{percent}"
