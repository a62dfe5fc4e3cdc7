"""Documents with marks that move: questionnaires, lists of messages, directories of persons."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from documents.page import PROPORTIONAL, Colour, Font, Page, accent, ink, mixed, paper
from documents.pictures import WHITE, painted
from documents.words import (
    BUTTONS,
    COMPANY,
    MEASURES,
    OPTIONS,
    SECTIONS,
    SERVICES,
    code,
    iso_date,
    long_date,
    person,
    phrase,
    price,
    prose,
    time,
)

#: Grounds of dark pages, the colour of their text, and colours of pens.
DARK = ((24, 26, 30), (34, 30, 42), (10, 20, 30), (40, 44, 42))
LIGHT_INK = (232, 232, 236)
PENS = ((214, 30, 40), (30, 60, 190), (20, 130, 70), (20, 20, 20))

#: The painter of persons.
PERSON = 2

Area = tuple[float, float, float, float]


def started(page: Page, ratios: tuple[float, float], dark: float) -> tuple[Colour, Colour, Colour]:
    """Start a page; return its ground, its ink and its strong colour.

    Args:
        page: the page.
        ratios: least and greatest height / width.
        dark: share of dark pages.
    """
    style = page.style
    is_dark = style.random() < dark
    ground = style.choice(DARK) if is_dark else paper(style)
    page.start(style.uniform(*ratios), ground, squeeze=0.08)
    return ground, LIGHT_INK if is_dark else ink(style), accent(style)


def mark(page: Page, look: int, box: Area, colour: Colour, width: float) -> None:
    """Draw a mark around or under something: a ring, two rings, a frame, a line or brackets."""
    left, top, right, bottom = box
    thick = max(2, round(width))
    if look in (0, 1):
        page.draw.ellipse(tuple(map(round, box)), outline=colour, width=thick)
    if look == 1:
        inner = left + 2 * thick, top + 2 * thick, right - 2 * thick, bottom - 2 * thick
        if inner[2] > inner[0] and inner[3] > inner[1]:
            page.draw.ellipse(tuple(map(round, inner)), outline=colour, width=thick)
    elif look == 2:
        page.rectangle(box, None, colour, thick, (bottom - top) / 4)
    elif look == 3:
        page.line([(left, bottom - thick), (right, bottom - thick)], colour, thick)
    elif look == 4:
        for x, inward in ((left, 3 * thick), (right, -3 * thick)):
            page.line(
                [(x + inward, top), (x, top), (x, bottom), (x + inward, bottom)], colour, thick
            )


def questionnaire(page: Page) -> None:
    """Draw questions with answers of which one each is ringed, framed, underlined or ticked."""
    style = page.style
    ground, colour, brand = started(page, (0.6, 1.4), 0.3)
    width, height = page.width, page.height
    size = max(10, round(width / style.uniform(38, 62)))
    font = Font(style.choice(PROPORTIONAL), size)
    page.write(
        width * 0.06, 2.4 * size, phrase(style), font.scaled(1.5).bold(), brand, "ls", width / 2
    )
    when = page.fill("when", "date", style.choice((iso_date, long_date)))
    page.write(width * 0.94, 2.4 * size, when, font, colour, "rs", width * 0.3)
    name = page.fill("name", "name", person)
    page.write(width * 0.06, 4.4 * size, "Name", font, mixed(ground, colour, 0.6))
    page.write(width * 0.06 + 6 * size, 4.4 * size, name, font, colour, "ls", width * 0.4)
    pen = style.choice((brand, *(PENS[:3] if colour == LIGHT_INK else PENS)))
    look, ticked, thick = style.randrange(5), style.random() < 0.3, size / style.uniform(5, 9)
    step = size * style.uniform(4.2, 6)
    for number in range(max(2, int((height - 6 * size) / step))):
        y = 6.6 * size + number * step
        question = f"{number + 1}. {' '.join(prose(style, style.randint(4, 9)))}"
        page.write(width * 0.06, y, question, font, colour, "ls", width * 0.88)
        count = style.randint(3, 8)
        wide = width * 0.88 / count
        asked = f"answer {number}"
        chosen = page.fill(asked, "marker", lambda rng, count=count: rng.randrange(count))
        for answer in range(count):
            x = width * 0.06 + (answer + 0.5) * wide
            middle = y + 1.6 * size
            label = str(answer + 1) if count > 5 else style.choice(SERVICES)
            page.write(x, middle, label, font, colour, "mm", wide - 2.6 * size)
            across = min(wide / 2 - 2, max(1.1 * size, font.width(label) / 2 + 0.7 * size))
            box = (x - across, middle - 0.95 * size, x + across, middle + 0.95 * size)
            if ticked:
                page.rectangle((box[0], middle - size / 2, box[0] + size, middle + size / 2), None,
                               mixed(ground, colour, 0.6))  # fmt: skip
                box = (box[0] + 2, middle - size / 2 + 2, box[0] + size - 2, middle + size / 2 - 2)
            if answer == chosen:
                page.mark(asked, box)
                if ticked:
                    page.line([box[:2], box[2:]], pen, size / 7)
                    page.line([(box[0], box[3]), (box[2], box[1])], pen, size / 7)
                else:
                    mark(page, look, box, pen, thick)


def inbox(page: Page) -> None:
    """Draw a window with folders and messages: one of each is selected."""
    style = page.style
    ground, colour, brand = started(page, (0.5, 1.1), 0.5)
    width, height = page.width, page.height
    size = max(9, round(width / style.uniform(44, 74)))
    font, faint = Font(style.choice(PROPORTIONAL), size), mixed(ground, colour, 0.25)
    bar = style.uniform(2.2, 3.4) * size
    page.rectangle(
        (0, 0, width, bar), brand if style.random() < 0.5 else mixed(ground, colour, 0.1)
    )
    on_bar = WHITE if page.image.getpixel((2, 2)) == brand else colour
    page.write(size, bar / 2, style.choice(COMPANY), font.bold(), on_bar, "lm")
    now = page.fill("now", "time", time)
    page.write(width - size, bar / 2, now, font, on_bar, "rm")
    edge = width * style.uniform(0.16, 0.26)
    tint = mixed(ground, brand, style.choice((0.15, 0.3, 0.55, 1.0)))
    on_tint = WHITE if sum(tint) < 380 else (12, 12, 12)
    step = size * style.uniform(1.7, 2.4)
    folders = style.sample(SECTIONS, min(len(SECTIONS), max(3, int((height - bar) / step) - 1)))
    opened = page.fill("folder", "marker", lambda rng: rng.randrange(len(folders)))
    for number, folder in enumerate(folders):
        y = bar + size / 2 + number * step
        own = colour
        if number == opened:
            page.mark("folder", (0, y, edge, y + step))
            page.rectangle((0, y, edge - 2, y + step - 1), tint)
            own = on_tint
        page.write(1.2 * size, y + step / 2, folder.capitalize(), font, own, "lm", edge - 3 * size)
    page.line([(edge, bar), (edge, height)], faint)
    lines = style.choice((1, 2))
    step = size * (style.uniform(1.9, 2.6) if lines == 1 else style.uniform(3.2, 4))
    rows = max(3, int((height - bar - size) / step))
    look, pen = style.randrange(4), style.choice(PENS[:3])
    selected = page.fill("row", "marker", lambda rng: rng.randrange(rows))
    for row in range(rows):
        y = bar + size / 2 + row * step
        box = (edge + size / 2, y + 1, width - size / 2, y + step - 2)
        own = colour
        if row == selected:
            page.mark("row", box)
            if look == 0:
                page.rectangle(box, tint, radius=size / 2)
            elif look == 1:
                page.rectangle(box, tint)
            elif look == 2:
                page.rectangle(box, mixed(ground, brand, 0.08), brand, max(2, size // 7))
            else:
                page.rectangle((box[0], y, box[0] + size / 2, box[3]), brand)
            own = on_tint if look < 2 else colour
        centre = y + min(step / 2, 1.1 * size)
        if style.random() < 0.3:
            dot = (edge + 1.4 * size, centre - size / 3, edge + 2 * size, centre + size / 3)
            page.draw.ellipse(dot, pen)
        texts: tuple[tuple[str, Callable[[Random], str], Font, float, float, str, float], ...] = (
            ("name", person, font.bold(), edge + 2.8 * size, centre, "lm", 0.2),
            ("time", time, font, width - size, centre, "rm", 0.1),
        )
        subject = (
            (edge + 0.25 * width, centre) if lines == 1 else (edge + 2.8 * size, y + 2.4 * size)
        )
        for what, make, face, x, at, anchor, room in texts:
            text = page.fill(f"{what} {row}", what, make)
            page.write(x, at, text, face, own, anchor, width * room)
        text = page.fill(
            f"subject {row}", "title", lambda rng: f"{phrase(rng)} {rng.randint(2, 99)}"
        )
        page.write(*subject, text, font.scaled(0.9), own, "lm", width * 0.4)


def directory(page: Page) -> None:
    """Draw a directory of persons, or badges: portraits with names, numbers and a mark of one."""
    style = page.style
    ground, colour, brand = started(page, (0.6, 1.3), 0.25)
    width, height = page.width, page.height
    size = max(9, round(width / style.uniform(42, 64)))
    font = Font(style.choice(PROPORTIONAL), size)
    head = f"{style.choice(COMPANY)}: {style.choice(BUTTONS)} {style.choice(OPTIONS)}"
    page.write(width * 0.04, 2 * size, head, font.scaled(1.4).bold(), brand, "ls", width * 0.6)
    issued = page.fill("issued", "date", iso_date)
    page.write(width * 0.96, 2 * size, issued, font, colour, "rs", width * 0.25)
    columns = style.randint(1, 4)
    rows = style.randint(1, 4) if columns > 1 else style.randint(2, 4)
    wide, high = width * 0.94 / columns, (height - 3.5 * size) / rows
    marked = page.fill("marked", "marker", lambda rng: rng.randrange(columns * rows))
    look, pen = style.choice((0, 2, 4)), style.choice((brand, *PENS[:3]))
    panel, framed = mixed(ground, brand, style.uniform(0, 0.15)), style.random() < 0.6
    beside = wide > 1.4 * high
    for number in range(columns * rows):
        x = width * 0.03 + number % columns * wide
        y = 3 * size + number // columns * high
        box = (x + 4, y + 4, x + wide - 4, y + high - 4)
        page.rectangle(box, panel, mixed(ground, colour, 0.25) if framed else None, radius=size / 2)
        side = min(wide * (0.45 if beside else 0.8), high - 6 * size * (not beside) - 14)
        if side >= 3 * size:
            name, square = f"portrait {number}", (x + 10, y + 8, x + 10 + side * 0.8, y + 8 + side)
            seed = page.fill(name, "portrait", lambda rng: rng.randrange(10**6))
            page.mark(name, square)
            extent = round(side * 0.8), round(side)
            page.image.paste(painted(PERSON, seed, extent), (round(x + 10), round(y + 8)))
        else:
            side = 0
        at = (x + 20 + side * 0.8, y + 2 * size) if beside else (x + 10, y + side + 1.6 * size + 8)
        room = x + wide - 10 - at[0]
        facts: tuple[tuple[str, Callable[[Random], str]], ...] = (
            ("name", person),
            ("number", lambda rng: code(rng, "+## ### ####")),
            ("label", lambda rng: rng.choice(MEASURES)),
            ("amount", price),
        )
        for line, (what, make) in enumerate(facts[: 4 if beside else 3]):
            text = page.fill(f"{what} {number}", what, make)
            own = font.bold() if line == 0 else font
            page.write(at[0], at[1] + 1.5 * line * size, text, own, colour, "ls", room)
        if number == marked:
            page.mark("marked", box)
            mark(page, look, box, pen, size / 5)
