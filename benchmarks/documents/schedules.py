"""Timetables and calendars."""

from __future__ import annotations

from calendar import monthrange, weekday
from collections.abc import Callable
from random import Random

from documents.page import PROPORTIONAL, Font, Page, accent, ink, mixed, paper
from documents.words import (
    CITIES,
    FIRST,
    MONTHS,
    SUBJECTS,
    dotted_date,
    iso_date,
    time,
)

WHITE = (255, 255, 255)


def timetable(page: Page) -> None:
    """Draw departures of trains, or the lessons of a week."""
    style = page.style
    lessons = style.random() < 0.4
    board = not lessons and style.random() < 0.35
    ground = style.choice(((12, 20, 60), (15, 15, 15), (0, 45, 60))) if board else paper(style)
    page.start(style.uniform(0.6, 1.2), ground, squeeze=0.12)
    page.grain = 0 if board else style.choice((0, 0, 3.0))
    width, height = page.width, page.height
    colour = style.choice(((255, 220, 60), (245, 245, 245))) if board else ink(style)
    brand = accent(style)
    family = style.choice(PROPORTIONAL)
    left, right = width * 0.05, width * 0.95
    top = height * 0.17
    title = Font(family, max(13, round(height / 18)), "bold")
    head = (
        f"{style.choice(CITIES)} Central: departures"
        if not lessons
        else f"Timetable class {style.randint(5, 12)}{style.choice('abc')}"
    )
    page.write(left, height * 0.1, head, title, colour if board else brand, "ls", width * 0.6)
    valid = page.fill("valid", "date", style.choice((dotted_date, iso_date)))
    page.write(right, height * 0.1, valid, title.scaled(0.6), colour, "rs")
    rows = style.randint(5, 8) if lessons else style.randint(7, 18)
    rows = min(rows, int(height * 0.78 / 17))
    step = height * 0.78 / (rows + 1)
    size = max(10, min(round(step * 0.55), round(width / (44 if lessons else 38))))
    font = Font(family, size)
    heads = (
        ("Time", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
        if lessons
        else ("Time", "Line", "Destination", "Via", "Track")
    )
    shares = (0, 0.13, 0.3, 0.48, 0.66, 0.83, 1) if lessons else (0, 0.14, 0.28, 0.56, 0.87, 1)
    edges = [left + share * (right - left) for share in shares]
    look = style.randrange(3)
    if look != 2:
        page.rectangle((left, top, right, top + step), brand)
    for x, label in zip(edges, heads, strict=False):
        page.write(x + 5, top + step / 2, label, font.bold(), WHITE if look != 2 else colour, "lm")
    faint, first = mixed(ground, colour, 0.25), style.randint(5, 12)
    for row in range(rows):
        y = top + (row + 1) * step
        if look == 0 and row % 2:
            page.rectangle((left, y, right, y + step), mixed(ground, colour, 0.08))
        page.line([(left, y + step), (right, y + step)], faint)
        cells: list[tuple[str, Callable[[Random], str]]]
        if lessons:
            cells = [("time", time)] + [("cell", lambda rng: rng.choice(SUBJECTS))] * 5
        else:
            cells = [
                ("time", time),
                (
                    "number",
                    lambda rng: f"{rng.choice(('IC', 'RE', 'S', 'EC'))} {rng.randint(1, 999)}",
                ),
                ("name", lambda rng: rng.choice(CITIES)),
                ("name", lambda rng: f"{rng.choice(CITIES)}, {rng.choice(CITIES)}"),
                ("number", lambda rng: str(rng.randint(1, 24))),
            ]
        for column, (what, make) in enumerate(cells):
            name, base = f"{heads[column]} {row}", None
            if what == "time":
                minute = page.value(name, lambda rng: rng.randrange(60))
                base = f"{(first + 13 * row // rows) % 24:02d}:{minute:02d}"
            text = page.fill(name, what, make, base)
            page.write(
                edges[column] + 5,
                y + step / 2,
                text,
                font,
                colour,
                "lm",
                edges[column + 1] - edges[column] - 8,
            )
    if look == 1:
        for edge in edges:
            page.line([(edge, top), (edge, top + (rows + 1) * step)], faint)


def calendar(page: Page) -> None:
    """Draw a page of a calendar: a month with appointments."""
    style = page.style
    dark = style.random() < 0.2
    ground = (28, 30, 34) if dark else paper(style)
    page.start(style.uniform(0.65, 1.35), ground, squeeze=0.1)
    width, height = page.width, page.height
    colour = (235, 235, 235) if dark else ink(style)
    brand = accent(style)
    family = style.choice(PROPORTIONAL)
    left, right, top, bottom = width * 0.04, width * 0.96, height * 0.2, height * 0.96
    if style.random() < 0.4:
        page.rectangle((0, 0, width, height * 0.12), brand)
    year, month = page.value("grid", lambda rng: (rng.randint(1998, 2029), rng.randint(1, 12)))
    head = page.fill("month", "date", lambda rng: f"{rng.choice(MONTHS)} {rng.randint(1998, 2029)}",
                     f"{MONTHS[month - 1]} {year}")  # fmt: skip
    page.write(
        width / 2 if style.random() < 0.5 else width * 0.35,
        height * 0.09,
        head,
        Font(family, max(14, round(height / 16)), "bold"),
        WHITE if page.image.getpixel((2, 2)) == brand else mixed(brand, colour, 0.3),
        "ms",
        width * 0.6,
    )
    start, days = weekday(year, month, 1), monthrange(year, month)[1]
    weeks = -(-(start + days) // 7)
    wide, high = (right - left) / 7, (bottom - top) / weeks
    font = Font(family, max(10, min(round(high / 5), round(wide / 8))))
    faint = mixed(ground, colour, 0.3)
    boxed = style.random() < 0.7
    for column, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")):
        page.write(
            left + (column + 0.5) * wide,
            top - font.size * 0.6,
            name,
            font.bold(),
            brand if not dark else colour,
            "ms",
        )
    for day in range(days):
        row, column = divmod(start + day, 7)
        x, y = left + column * wide, top + row * high
        if boxed:
            page.rectangle(
                (x, y, x + wide, y + high), mixed(ground, brand, 0.1) if column > 4 else None, faint
            )
        elif column == 0:
            page.line([(left, y), (right, y)], faint)
        page.write(x + 4, y + 1.2 * font.size, str(day + 1), font.bold(), colour)
        if high > 3 * font.size and style.random() < 0.35:
            tint = mixed(accent(style), WHITE, 0.6)
            page.rectangle(
                (x + 3, y + 1.6 * font.size, x + wide - 4, y + 2.9 * font.size), tint, radius=3
            )
            text = page.fill(
                f"appointment {day}", "label", lambda rng: rng.choice((*SUBJECTS, *FIRST))
            )
            page.write(
                x + 6, y + 2.6 * font.size, text, font.scaled(0.85), (20, 20, 20), "ls", wide - 12
            )
        if high > 4.4 * font.size and style.random() < 0.2:
            page.write(
                x + 5,
                y + 4 * font.size,
                page.fill(f"time {day}", "time", time),
                font.scaled(0.9),
                colour,
                "ls",
                wide - 8,
            )
    circled = page.fill("circle", "marker", lambda rng: rng.randrange(days))
    row, column = divmod(start + circled, 7)
    x, y = left + column * wide, top + row * high
    page.mark("circle", (x, y, x + wide, y + high))
    page.draw.ellipse(
        (x + 2, y + 2, x + 2 + 2 * font.size, y + 2 + 1.5 * font.size),
        outline=(220, 30, 30),
        width=max(2, font.size // 8),
    )
