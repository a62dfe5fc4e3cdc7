"""Documents of flowing text: letters, pages of books, articles and slides."""

from __future__ import annotations

import math
from random import Random

from documents.page import PROPORTIONAL, Colour, Font, Page, accent, ink, mixed, paper
from documents.words import (
    COMPANY,
    amount,
    city,
    code,
    dotted_date,
    iso_date,
    long_date,
    person,
    phrase,
    street,
)


def logo(page: Page, box: tuple[float, float, float, float], colour: Colour) -> None:
    """Draw a mark of a company: a few simple shapes, equal in all variants."""
    style = page.style
    left, top, right, bottom = box
    wide, high = right - left, bottom - top
    shape = style.randrange(5)
    other = mixed(colour, (255, 255, 255), style.uniform(0.3, 0.7))
    if shape == 0:
        page.draw.ellipse(box, fill=colour)
        page.draw.ellipse(
            (left + wide / 3, top + high / 4, right - 2, bottom - high / 5), fill=other
        )
    elif shape == 1:
        page.draw.polygon([(left, bottom), (left + wide / 2, top), (right, bottom)], fill=colour)
        page.draw.polygon(
            [(left, bottom), (left + wide / 2, top + high / 2), (right, bottom)], other
        )
    elif shape == 2:
        for i in range(3):
            x = left + i * wide / 3
            page.rectangle((x, top + (2 - i) * high / 4, x + wide / 4, bottom), colour)
    elif shape == 3:
        page.rectangle(box, colour, radius=wide / 5)
        font = Font("sans", max(9, round(high * 0.6)), "bold")
        page.write(
            left + wide / 2, top + high / 2, style.choice("ABDEGHKMNRSVWZ"), font, other, "mm"
        )
    else:
        page.draw.pieslice(box, 30, 210, fill=colour)
        page.draw.pieslice(box, 210, 390, fill=other)


def signature(page: Page, x: float, y: float, width: float, colour: Colour) -> None:
    """Draw a written signature; it is a field."""

    def make(rng: Random) -> list[float]:
        return [rng.uniform(-1, 1) for _ in range(12)]

    value = page.fill("signature", "signature", make)
    points = []
    for i in range(80):
        t = i / 79
        loop = sum(value[k] * math.sin((k + 2) * 2.2 * math.pi * t + k) for k in range(6))
        side = sum(value[6 + k] * math.sin((k + 2) * 2.6 * math.pi * t) for k in range(6))
        points.append((x + width * (t + 0.04 * side), y + width * 0.09 * loop * (1 - 0.6 * t)))
    page.mark("signature", (x - width / 3, y - width * 0.6, x + width * 1.3, y + width * 0.6))
    page.smooth(points, colour, max(1.5, width / 70))


def letter(page: Page) -> None:
    """Draw a letter: letterhead, recipient, date, reference, subject, prose, signature."""
    style = page.style
    page.start(style.uniform(1.25, 1.45), paper(style), squeeze=0.1)
    page.grain = style.choice((0, 0, 2.0, 4.0))
    width, height = page.width, page.height
    font = Font(style.choice(PROPORTIONAL), max(10, round(width / style.uniform(42, 66))))
    colour, brand = ink(style), accent(style)
    left, right = width * style.uniform(0.07, 0.14), width * style.uniform(0.86, 0.93)
    size = font.size
    y = height * style.uniform(0.03, 0.06)
    name = f"{style.choice(COMPANY)} {style.choice(('Ltd', 'GmbH', 'Bank', 'Clinic', 'Insurance'))}"
    side = style.choice(("left", "right", "middle"))
    head = Font(style.choice(PROPORTIONAL), round(size * style.uniform(1.4, 2.2)), "bold")
    if side == "left":
        logo(page, (left, y, left + 3 * size, y + 3 * size), brand)
        page.write(left + 3.6 * size, y + 2 * size, name, head, brand)
    elif side == "right":
        logo(page, (right - 3 * size, y, right, y + 3 * size), brand)
        page.write(right - 3.6 * size, y + 2 * size, name, head, brand, "rs")
    else:
        page.write(width / 2, y + 2 * size, name, head, brand, "ms")
    y += 4 * size
    if style.random() < 0.5:
        page.line([(left, y), (right, y)], brand, style.randint(1, 3))
    y += style.uniform(2, 5) * size
    for field, what, make in (
        ("recipient", "name", person),
        ("street", "address", street),
        ("town", "address", city),
    ):
        page.write(left, y, page.fill(field, what, make), font, colour)
        y += 1.4 * size
    dates = style.choice((dotted_date, long_date, iso_date))
    pattern = style.choice(("##/####", "??-###-##", "########", "####-??"))
    date = page.fill("date", "date", dates)
    reference = page.fill("reference", "number", lambda rng: code(rng, pattern))
    arrangement = style.randrange(3)
    if arrangement == 0:
        page.write(right, y - 4.2 * size, date, font, colour, "rs")
        page.write(right - 9 * size, y - 1.4 * size, "Our reference", font, colour, "rs")
        page.write(right, y - 1.4 * size, reference, font, colour, "rs")
    elif arrangement == 1:
        y += 2 * size
        page.write(left, y, "Date:", font.bold(), colour)
        page.write(left + 4 * size, y, date, font, colour)
        page.write(width * 0.55, y, "Ref.", font.bold(), colour)
        page.write(width * 0.55 + 4 * size, y, reference, font, colour)
    else:
        y += 1.5 * size
        page.write(right, y, date, font, colour, "rs")
        page.write(left, height * 0.94, "Ref.", font.scaled(0.8), colour)
        page.write(left + 3 * size, height * 0.94, reference, font.scaled(0.8), colour)
    y += 2 * size
    page.write(
        left, y, page.fill("subject", "title", lambda rng: phrase(rng, 3, 6)), font.bold(), colour
    )
    y += size
    justify, leading = style.random() < 0.4, style.uniform(1.2, 1.6)
    for number in range(style.randint(2, 5)):
        room = int((height * 0.8 - y) / (leading * size))
        if room < 3:
            break
        y += size * 0.8
        y = page.paragraph(
            f"paragraph {number}", (left, y, right), font, colour,
            words=style.randint(25, 90), leading=leading, justify=justify, lines=room,
        )  # fmt: skip
    page.write(left, y + 2.2 * size, "Yours sincerely,", font, colour)
    written = style.choice(((20, 30, 110), (10, 10, 10), (40, 60, 160)))
    signature(page, left, y + 4.6 * size, width * style.uniform(0.16, 0.24), written)
    page.write(left, y + 7.5 * size, page.fill("sender", "name", person), font, colour)
    if y + 10 * size < height * 0.96:
        foot = font.scaled(0.8)
        bank = f"IBAN {code(style, 'XX## #### #### ####')}    {street(style)}, {city(style)}"
        page.write(width / 2, height * 0.965, bank, foot, mixed(colour, page.paper, 0.4), "ms",
                   right - left)  # fmt: skip


def book(page: Page) -> None:
    """Draw a page of a book: running head, justified prose, page number."""
    style = page.style
    page.start(style.uniform(1.3, 1.65), paper(style), squeeze=0.12)
    page.grain = style.choice((0, 2.0, 5.0))
    width, height = page.width, page.height
    font = Font(style.choice(("serif", "stix", "stix", "roman", "roman", "sans")),
                max(11, round(width / style.uniform(24, 42))))  # fmt: skip
    colour, size = ink(style), font.size
    left, right = width * style.uniform(0.08, 0.15), width * style.uniform(0.85, 0.92)
    head = font.scaled(0.85)
    title = phrase(style, 2, 4)
    number = page.fill("page", "number", lambda rng: str(rng.randint(11, 489)))
    y = height * 0.06
    at_foot = style.random() < 0.5
    page.write(width / 2, y, title.upper() if style.random() < 0.5 else title,
               head if style.random() < 0.5 else head.italic(), colour, "ms")  # fmt: skip
    page.write(
        width / 2 if at_foot else right,
        height * 0.965 if at_foot else y,
        number,
        head,
        colour,
        "ms" if at_foot else "rs",
    )
    if style.random() < 0.3:
        page.line([(left, y + size * 0.6), (right, y + size * 0.6)], colour)
    y += 1.4 * size
    if style.random() < 0.35:
        y += 4 * size
        chapter = page.fill("chapter", "title", lambda rng: phrase(rng, 2, 4))
        page.write(width / 2, y, chapter, font.scaled(1.6), colour, "ms", right - left)
        y += 2.4 * size
    leading, indent = style.uniform(1.2, 1.6), style.choice((0, 1.5, 2.5)) * size
    for count in range(20):
        room = int((height * 0.92 - y) / (leading * size))
        if room < 2:
            break
        y = page.paragraph(
            f"paragraph {count}", (left, y, right), font, colour, words=style.randint(30, 140),
            leading=leading, justify=True, indent=indent, lines=room,
        ) + (0 if indent else 0.6 * size)  # fmt: skip
        y += (leading - 1.2) * size


def article(page: Page) -> None:
    """Draw a page of a journal or a newspaper in two or three columns."""
    style = page.style
    page.start(style.uniform(1.25, 1.45), paper(style), squeeze=0.1)
    page.grain = style.choice((0, 0, 4.0))
    width, height = page.width, page.height
    columns = style.choice((2, 2, 3))
    font = Font(style.choice(("stix", "stix", "serif", "roman", "sans", "plain")),
                max(10, round(width / style.uniform(54, 76))))  # fmt: skip
    colour, brand, size = ink(style), accent(style), font.size
    left, right = width * 0.07, width * 0.93
    y = height * 0.05
    if style.random() < 0.4:
        page.write(
            width / 2,
            y + 2.2 * size,
            f"The {style.choice(COMPANY)} Journal",
            Font(style.choice(("serif", "stix")), 3 * size, "bold"),
            brand,
            "ms",
            right - left,
        )
        y += 3.4 * size
        page.line([(left, y), (right, y)], colour, 2)
    volume = page.fill(
        "volume", "number", lambda rng: f"Vol. {rng.randint(2, 98)}, No. {rng.randint(1, 12)}"
    )
    page.write(left, y + 1.3 * size, volume, font.scaled(0.9), colour)
    page.write(
        right, y + 1.3 * size, page.fill("date", "date", long_date), font.scaled(0.9), colour, "rs"
    )
    y += 4.6 * size
    centred = style.random() < 0.6
    x, anchor = (width / 2, "ms") if centred else (left, "ls")
    title = page.fill("title", "title", lambda rng: phrase(rng, 4, 8))
    page.write(
        x, y, title, Font(font.family, round(size * 1.9), "bold"), colour, anchor, right - left
    )
    y += 1.9 * size
    page.write(x, y, page.fill("author", "name", person), font, colour, anchor)
    y += size
    gap = width * 0.035
    wide = (right - left - gap * (columns - 1)) / columns
    head = font.bold() if style.random() < 0.6 else font.italic()
    figure_at = style.randrange(columns * 2)
    top, leading = y, style.uniform(1.15, 1.4)
    for column in range(columns):
        x, y = left + column * (wide + gap), top
        if figure_at == column:
            y += size
            high = wide * style.uniform(0.5, 0.9)
            _figure(page, (x, y, x + wide, y + high), brand)
            y += high + 1.4 * size
            caption = page.fill(
                "caption", "title", lambda rng: f"Fig. {rng.randint(1, 9)}: {phrase(rng, 2, 3)}"
            )
            page.write(x, y, caption, font.scaled(0.85), colour, "ls", wide)
            y += size * 0.4
        for count in range(12):
            if style.random() < 0.4 and y < height * 0.82:
                heading = page.fill(
                    f"heading {column} {count}", "title", lambda rng: phrase(rng, 1, 3)
                )
                page.write(x, y + 1.9 * size, heading, head, colour, "ls", wide)
                y += 2.4 * size
            room = int((height * 0.95 - y) / (leading * size))
            words = style.randint(25, 110)
            if room < 2:
                break
            y = page.paragraph(
                f"paragraph {column} {count}", (x, y, x + wide), font, colour, words=words,
                leading=leading, justify=True, indent=size, lines=room,
            )  # fmt: skip
            y += (leading - 1.1) * size
        if column and style.random() < 0.2:
            page.line([(x - gap / 2, top + size), (x - gap / 2, height * 0.95)], colour)


def _figure(page: Page, box: tuple[float, float, float, float], colour: Colour) -> None:
    """Draw a small plot, equal in all variants."""
    left, top, right, bottom = box
    page.rectangle(box, mixed(page.paper, (128, 128, 128), 0.08), (90, 90, 90))
    number = page.style.randint(8, 24)
    values = [page.style.uniform(0.1, 0.9) for _ in range(number)]
    step = (right - left) / (number + 1)
    points = [(left + (i + 1) * step, bottom - v * (bottom - top)) for i, v in enumerate(values)]
    if page.style.random() < 0.5:
        page.line(points, colour, 2)
    else:
        for x, y in points:
            page.rectangle((x - step * 0.3, y, x + step * 0.3, bottom), colour)


def slide(page: Page) -> None:
    """Draw a slide of a talk: title, bullets, a box with a large number, a page number."""
    style = page.style
    dark = style.random() < 0.35
    brand = accent(style)
    ground = mixed(brand, (0, 0, 0), 0.7) if dark else paper(style)
    page.start(style.choice((9 / 16, 9 / 16, 3 / 4)), ground, squeeze=0.08)
    width, height = page.width, page.height
    colour = (240, 240, 240) if dark else ink(style)
    family = style.choice(("sans", "sans", "stix", "serif", "plain"))
    size = max(13, round(height / style.uniform(19, 26)))
    font = Font(family, size)
    left, right = width * 0.06, width * 0.94
    banner = style.randrange(3)
    title_colour = mixed(brand, (255, 255, 255), 0.5) if dark else brand
    if banner == 0:
        page.rectangle((0, 0, width, height * 0.16), brand)
        title_colour = (255, 255, 255)
    elif banner == 1:
        page.line([(left, height * 0.17), (right, height * 0.17)], title_colour, 3)
    else:
        page.rectangle((0, 0, width * 0.025, height), brand)
    title = page.fill("title", "title", lambda rng: phrase(rng, 2, 5))
    page.write(left, height * 0.12, title, Font(family, round(size * 1.6), "bold"), title_colour,
               "ls", right - left)  # fmt: skip
    aside = style.randrange(4)
    edge = right if aside == 0 else width * 0.58
    bullets = style.randint(3, 6)
    y = height * 0.27
    for number in range(bullets):
        mark = size * 0.28
        page.draw.ellipse(
            (left, y - mark * 2, left + mark * 2, y), fill=title_colour if banner else brand
        )
        if style.random() < 0.2:
            text = page.fill(
                f"bullet {number}",
                "amount",
                lambda rng: f"{rng.choice(('Cost', 'Total', 'Sales'))}: {amount(rng)} EUR",
            )
            page.write(left + size, y, text, font, colour, "ls", edge - left - size)
            y += 0.2 * size
        else:
            words = style.randint(4, 16)
            y = page.paragraph(f"bullet {number}", (left + size, y - size, edge), font, colour,
                               words=words, lines=2) - 0.25 * size  # fmt: skip
        y += (
            (height * 0.9 - height * 0.27) / bullets - 1.1 * size
            if y < height * 0.7
            else 1.4 * size
        )
        if y > height * 0.88:
            break
    box = (width * 0.63, height * 0.3, right, height * 0.8)
    if aside == 1:
        page.rectangle(
            box, brand if dark else mixed(brand, (255, 255, 255), 0.75), radius=size * 0.6
        )
        big = page.fill("headline", "number", lambda rng: f"{rng.uniform(1, 99):.1f}%")
        page.write(
            (box[0] + box[2]) / 2,
            height * 0.55,
            big,
            Font(family, size * 3, "bold"),
            (255, 255, 255) if dark else mixed(brand, (0, 0, 0), 0.3),
            "mm",
            width * 0.25,
        )
        below = page.fill("headline text", "label", lambda rng: phrase(rng, 2, 3))
        page.write((box[0] + box[2]) / 2, height * 0.7, below, font, colour, "mm", width * 0.26)
    elif aside == 2:
        _bars(page, box, mixed(brand, (255, 255, 255), 0.25) if dark else brand, colour)
    elif aside == 3:
        steps = style.randint(3, 4)
        high = (box[3] - box[1]) / steps
        for number in range(steps):
            top = box[1] + number * high
            page.rectangle((box[0], top, box[2], top + high * 0.7), brand, radius=5)
            text = page.fill(f"step {number}", "label", lambda rng: phrase(rng, 1, 2))
            page.write((box[0] + box[2]) / 2, top + high * 0.35, text, font, (255, 255, 255), "mm",
                       width * 0.27)  # fmt: skip
    foot = font.scaled(0.6)
    grey = mixed(colour, ground, 0.35)
    page.write(left, height * 0.96, f"{style.choice(COMPANY)} Group", foot, grey)
    page.write(width / 2, height * 0.96, page.fill("date", "date", long_date), foot, grey, "ms")
    page.write(
        right,
        height * 0.96,
        page.fill("page", "number", lambda rng: str(rng.randint(2, 64))),
        foot,
        grey,
        "rs",
    )


def _bars(page: Page, box: tuple[float, float, float, float], colour: Colour, line: Colour) -> None:
    """Draw a small bar chart; every bar is a field."""
    left, top, right, bottom = box
    number = page.style.randint(3, 7)
    step = (right - left) / number
    for i in range(number):
        value = page.fill(f"bar {i}", "bar", lambda rng: rng.uniform(0.15, 1))
        area = (left + i * step + step * 0.15, top, left + (i + 1) * step - step * 0.15, bottom)
        page.mark(f"bar {i}", area)
        page.rectangle((area[0], bottom - value * (bottom - top), area[2], bottom), colour)
    page.line([(left, bottom), (right, bottom)], line, 2)
