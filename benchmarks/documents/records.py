"""Documents of fields and rows: invoices, receipts and forms."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from documents.page import PROPORTIONAL, Colour, Font, Page, accent, ink, mixed, paper
from documents.texts import logo, signature
from documents.words import (
    CITIES,
    COMPANY,
    FIRST,
    GOODS,
    LAST,
    SERVICES,
    amount,
    city,
    code,
    dotted_date,
    iso_date,
    long_date,
    person,
    phrase,
    price,
    street,
    time,
)

WHITE = (255, 255, 255)


def invoice(page: Page) -> None:
    """Draw an invoice: parties, number, dates, a table of items, totals."""
    style = page.style
    page.start(style.uniform(1.2, 1.45), paper(style), squeeze=0.12)
    page.grain = style.choice((0, 0, 3.0))
    width, height = page.width, page.height
    font = Font(
        style.choice((*PROPORTIONAL, "typewriter")), max(10, round(width / style.uniform(48, 68)))
    )
    colour, brand, size = ink(style), accent(style), font.size
    left, right = width * 0.07, width * 0.93
    y = height * 0.04
    if style.random() < 0.3:
        page.rectangle((0, 0, width, y + 4.4 * size), brand)
        head = WHITE
    else:
        head = brand
    title = Font(style.choice(PROPORTIONAL), round(size * 1.9), "bold")
    name = f"{style.choice(COMPANY)} {style.choice(('Ltd', 'GmbH', 'Services', 'Systems'))}"
    word = style.choice(("INVOICE", "Invoice", "Tax invoice", "Bill"))
    if style.random() < 0.5:
        logo(page, (left, y, left + 3 * size, y + 3 * size), mixed(head, (0, 0, 0), 0.2))
        page.write(left + 3.7 * size, y + 2.2 * size, name, title.scaled(0.75), head)
        page.write(right, y + 2.2 * size, word, title, head, "rs")
    else:
        page.write(left, y + 2.4 * size, word, title, head)
        page.write(right, y + 2.2 * size, name, title.scaled(0.7), head, "rs")
    y += 7 * size
    dates = style.choice((dotted_date, long_date, iso_date))
    pattern = style.choice(("INV-#####", "20##-####", "######", "?##/###"))
    facts = [
        ("Invoice no.", "number", lambda rng: code(rng, pattern)),
        ("Date", "date", dates),
        ("Due date", "date", dates),
        ("Customer", "number", lambda rng: code(rng, "K-####")),
    ]
    style.shuffle(facts)
    mirrored = style.random() < 0.3
    for row, (label, what, make) in enumerate(facts[: style.randint(2, 4)]):
        at = y + row * 1.5 * size
        text, grey = page.fill(label, what, make), mixed(colour, page.paper, 0.3)
        if mirrored:
            page.write(left, at, label, font, grey)
            page.write(left + 8 * size, at, text, font, colour)
        else:
            page.write(right - 11 * size, at, label, font, grey, "rs")
            page.write(right, at, text, font, colour, "rs", 10.5 * size)
    x = width * 0.62 if mirrored else left
    page.write(x, y, style.choice(("Bill to", "Customer", "To")), font.bold(), colour)
    for row, (label, make) in enumerate((("name", person), ("street", street), ("town", city))):
        text = page.fill(label, "name" if row == 0 else "address", make)
        page.write(x, y + (row + 1) * 1.5 * size, text, font, colour)
    y += 8.5 * size
    y = _items(page, y, left, right, font, colour, brand)
    for row, label in enumerate(("Subtotal", f"VAT {style.choice((7, 19, 20, 21))}%", "Total")):
        strong = font.bold() if label == "Total" else font
        y += 1.6 * size
        if row == 2:
            page.line([(right - 15 * size, y - 1.3 * size), (right, y - 1.3 * size)], colour)
        page.write(right - 9 * size, y, label, strong, colour, "rs")
        page.write(right, y, page.fill(label, "amount", amount), strong, colour, "rs")
    if y < height * 0.86:
        terms = font.scaled(0.85)
        page.write(
            left, height * 0.92, f"Payable within {style.randint(7, 60)} days.", terms, colour
        )
        iban = page.fill("iban", "number", lambda rng: code(rng, "DE## #### #### #### ##"))
        page.write(left, height * 0.92 + 1.5 * size, iban, terms, colour)


def _items(
    page: Page, y: float, left: float, right: float, font: Font, colour: Colour, brand: Colour
) -> float:
    """Draw the table of an invoice and return where it ends."""
    style, size = page.style, font.size
    look = style.randrange(4)
    row_height = size * style.uniform(1.6, 2.3)
    edges = [
        left,
        left + 0.52 * (right - left),
        left + 0.64 * (right - left),
        left + 0.82 * (right - left),
        right,
    ]
    labels = ("Description", "Qty", "Price", "Amount")
    if look in {0, 1}:
        page.rectangle((left, y - row_height * 0.7, right, y + row_height * 0.3), brand)
    for i, label in enumerate(labels):
        at = (left + 4, "ls") if i == 0 else (edges[i + 1] - 4, "rs")
        page.write(at[0], y, label, font.bold(), WHITE if look in {0, 1} else colour, at[1])
    if look == 2:
        page.line([(left, y + row_height * 0.3), (right, y + row_height * 0.3)], colour, 2)
    rows = style.randint(2, max(2, min(12, int((page.height * 0.78 - y) / row_height))))
    first = y
    for row in range(rows):
        y += row_height
        if look == 1 and row % 2:
            page.rectangle((left, y - row_height * 0.7, right, y + row_height * 0.3),
                           mixed(page.paper, brand, 0.12))  # fmt: skip
        text = page.fill(
            f"item {row}",
            "label",
            lambda rng: f"{rng.choice(SERVICES)} {rng.choice(SERVICES).lower()}",
        )
        page.write(left + 4, y, text, font, colour, "ls", edges[1] - left - 8)
        for i, (what, make) in enumerate(
            (("number", _quantity), ("amount", price), ("amount", amount))
        ):
            page.write(
                edges[i + 2] - 4,
                y,
                page.fill(f"{labels[i + 1]} {row}", what, make),
                font,
                colour,
                "rs",
            )
        if look in {2, 3}:
            page.line([(left, y + row_height * 0.3), (right, y + row_height * 0.3)],
                      mixed(page.paper, colour, 0.3))  # fmt: skip
    if look == 3:
        for edge in edges:
            page.line([(edge, first - row_height * 0.7), (edge, y + row_height * 0.3)],
                      mixed(page.paper, colour, 0.5))  # fmt: skip
    return y + 0.6 * size


def _quantity(rng: Random) -> str:
    return str(rng.choice((1, 2, 3, 5, 8, 10, 12, 20, 24, 48, 75, 100)))


def receipt(page: Page) -> None:
    """Draw a thermal receipt: shop, date, items, total, card, bars of a code."""
    style = page.style
    tint = style.choice(
        ((255, 255, 255), (244, 244, 242), (236, 236, 238), (250, 246, 236), (228, 230, 232))
    )
    rows = style.randint(4, 16)
    page.start(1.15 + rows * 0.075 + style.uniform(0, 0.3), tint, squeeze=0.12)
    page.grain = style.choice((0, 3.0, 6.0))
    width, height = page.width, page.height
    family = style.choice(("mono", "typewriter", "typewriter", "sans", "plain"))
    colour = style.choice(((10, 10, 10), (40, 40, 45), (50, 45, 80), (70, 70, 70)))
    size = max(9, min(round(width / style.uniform(24, 32)), round(height / (rows + 22) / 1.45)))
    font = Font(family, size)
    step = min((height * 0.95) / (rows + 20), 1.75 * size)
    left, right = width * 0.07, width * 0.93
    y = 2.4 * step
    shop = (
        f"{style.choice(COMPANY)} {style.choice(('Market', 'Cafe', 'Store', 'Pharmacy', 'Bakery'))}"
    )
    x, anchor = (width / 2, "ms") if style.random() < 0.7 else (left, "ls")
    if style.random() < 0.3:
        logo(
            page,
            (x - 2 * size if anchor == "ms" else x, y - step, x + 2 * size, y + 1.2 * step),
            colour,
        )
        y += 2.8 * step
    shown = shop.upper() if style.random() < 0.5 else shop
    large = Font(family, round(size * style.uniform(1.2, 1.8)), "bold")
    page.write(x, y, shown, large, colour, anchor, right - x if anchor == "ls" else right - left)
    y += 1.4 * step
    for line in (street(style), city(style), f"Tel. {code(style, '### ######')}")[
        : style.randint(1, 3)
    ]:
        page.write(x, y, line, font, colour, anchor)
        y += step

    def rule() -> None:
        if style.random() < 0.5:
            page.write(
                width / 2, y, "-" * int((right - left) / font.width("-")), font, colour, "ms"
            )
        else:
            page.line([(left, y - 0.3 * size), (right, y - 0.3 * size)], colour)

    dates = style.choice((dotted_date, iso_date))
    page.write(left, y, page.fill("date", "date", dates), font, colour)
    page.write(right, y, page.fill("time", "time", time), font, colour, "rs")
    y += step
    page.write(left, y, "Receipt", font, colour)
    page.write(
        right, y, page.fill("number", "number", lambda rng: code(rng, "######")), font, colour, "rs"
    )
    y += step
    rule()
    y += step
    look, suffix = style.randrange(3), style.choice(("", "", " A", " B", " EUR"))
    if look == 2:
        for at, label, side in (
            (left, "Item", "ls"),
            (width * 0.68, "Qty", "rs"),
            (right, "Price", "rs"),
        ):
            page.write(at, y, label, font.bold(), colour, side)
        y += step
    for row in range(rows if look != 1 else -(-rows * 2 // 3)):
        count = page.fill(
            f"count {row}", "number", lambda rng: f"{rng.choice((1, 1, 1, 2, 3, 4, 6))}x"
        )
        goods = page.fill(f"item {row}", "label", lambda rng: rng.choice(GOODS))
        cost = page.fill(f"price {row}", "amount", lambda rng: price(rng) + suffix)
        if look == 0:
            page.write(left, y, count, font, colour)
        elif look == 2:
            page.write(width * 0.68, y, count, font, colour, "rs")
        page.write(left + (3 * font.width("0") if look == 0 else 0), y, goods, font, colour)
        if look == 1:
            y += 0.9 * step
            page.write(left + 2 * size, y, count, font.scaled(0.9), colour)
            each = page.fill(f"each {row}", "amount", price)
            page.write(width * 0.5, y, each, font.scaled(0.9), colour, "rs")
        page.write(right, y, cost, font, colour, "rs")
        y += step
    rule()
    y += 1.4 * step
    total = Font(family, round(size * style.uniform(1.1, 1.6)), "bold")
    frame, dark = (left - 6, y - 1.2 * total.size, right + 6, y + 0.5 * total.size), colour
    boxed = style.randrange(4)
    if boxed == 0:
        page.rectangle(frame, None, colour, 2)
    elif boxed == 1:
        page.rectangle(frame, colour)
        dark = tint
    page.write(left, y, style.choice(("TOTAL", "Total EUR", "SUM", "To pay")), total, dark)
    page.write(right, y, page.fill("total", "amount", amount), total, dark, "rs")
    y += 1.3 * step
    for label, what, make in (
        ("VAT", "amount", price),
        ("Card", "number", lambda rng: f"**** {code(rng, '####')}"),
    ):
        page.write(left, y, label, font, colour)
        page.write(right, y, page.fill(label, what, make), font, colour, "rs")
        y += step
    page.write(left, y, "Served by", font, colour)
    page.write(
        right, y, page.fill("cashier", "name", lambda rng: rng.choice(FIRST)), font, colour, "rs"
    )
    y += 1.6 * step
    if y + 2 * step < height * 0.95 and style.random() < 0.7:
        x = width * 0.2
        while x < width * 0.8:
            bar = style.choice((1, 2, 3, 4)) * max(1, width / 320)
            page.rectangle((x, y - step * 0.6, x + bar - 1, y + 1.6 * step), colour)
            x += bar + style.choice((1, 2, 3)) * max(1, width / 320)
        y += 3 * step
    if y < height * 0.97:
        page.write(width / 2, y, "Thank you for your visit", font, colour, "ms", right - left)


def form(page: Page) -> None:
    """Draw a form that was filled in: boxes, lines, cells for digits, ticks, a signature."""
    style = page.style
    page.start(style.uniform(1.1, 1.45), paper(style), squeeze=0.1)
    page.grain = style.choice((0, 0, 3.0))
    width, height = page.width, page.height
    font = Font(style.choice(PROPORTIONAL), max(10, round(width / style.uniform(46, 60))))
    written = Font(
        style.choice(("roman", "stix", "serif", "mono", "typewriter")),
        round(font.size * 1.2),
        "italic",
    )
    colour, brand, size = ink(style), accent(style), font.size
    pen = style.choice(((20, 30, 140), (15, 15, 15), (30, 50, 100)))
    left, right = width * 0.07, width * 0.93
    y = height * 0.06
    subject = style.choice(
        ("Application", "Registration", "Claim", "Membership", "Change of address")
    )
    title = f"{subject} form"
    page.write(left, y, title, Font(font.family, round(size * 1.8), "bold"), brand)
    page.write(right, y, f"Form {code(style, '?-##')}", font, colour, "rs")
    serial = page.fill("serial", "number", lambda rng: code(rng, "No. #######"))
    page.write(right, y + 1.6 * size, serial, font, colour, "rs")
    y += 3 * size
    look = style.randrange(3)
    fields: list[tuple[str, str, Callable[[Random], str]]] = [
        ("First name", "name", lambda rng: rng.choice(FIRST)),
        ("Last name", "name", lambda rng: rng.choice(LAST)),
        ("Street", "address", street),
        ("Town", "address", city),
        ("Date of birth", "date", dotted_date),
        ("Telephone", "number", lambda rng: code(rng, "0### ######")),
        ("Policy number", "number", lambda rng: code(rng, "??######")),
        ("Employer", "name", lambda rng: f"{rng.choice(COMPANY)} Ltd"),
        ("Income", "amount", amount),
        ("Start date", "date", iso_date),
        ("Place of birth", "name", lambda rng: rng.choice(CITIES)),
        ("Amount", "amount", amount),
    ]
    style.shuffle(fields)
    columns = style.choice((1, 2, 2))
    wide = (right - left) / columns
    fields = fields[: style.randint(5, 9) if columns == 1 else style.randint(8, 12)]
    step = min(max(height * 0.5 / -(-len(fields) // columns), 3.7 * size), 5.5 * size)
    for number, (label, what, make) in enumerate(fields):
        if number % columns == 0:
            y += step
        if y > height * 0.66:
            break
        x, edge = (
            left + (number % columns) * wide,
            left + (number % columns + 1) * wide - 1.5 * size,
        )
        text = page.fill(label, what, make)
        if look == 0:
            page.rectangle(
                (x, y - 1.7 * size, edge, y + 0.5 * size),
                mixed(page.paper, WHITE, 0.7),
                mixed(colour, page.paper, 0.4),
            )
            page.write(x, y - 2 * size, label, font.scaled(0.8), colour)
            page.write(x + 0.5 * size, y, text, written, pen, "ls", edge - x - size)
        elif look == 1:
            page.write(x, y, label, font, colour)
            start = x + 8.5 * size
            page.line(
                [(start, y + 0.3 * size), (edge, y + 0.3 * size)], mixed(colour, page.paper, 0.3)
            )
            page.write(start + 4, y, text, written, pen, "ls", edge - start - 4)
        else:
            page.write(x, y - 1.9 * size, label, font.scaled(0.8), colour)
            cells = max(len(text), 12) if what in {"number", "date"} else 0
            cell = min(1.5 * size, (edge - x) / max(cells, 1))
            for i in range(12 if cells else 0):
                page.rectangle(
                    (x + i * cell, y - 1.5 * size, x + (i + 1) * cell, y + 0.4 * size),
                    None,
                    mixed(colour, page.paper, 0.4),
                )
            if cells:
                page.mark(text.field, (x, y - 2 * size, edge, y + size))  # type: ignore[attr-defined]
                for i, character in enumerate(text):
                    page.write(x + (i + 0.5) * cell, y, str(character), written, pen, "ms", cell)
            else:
                page.rectangle(
                    (x, y - 1.5 * size, edge, y + 0.4 * size), None, mixed(colour, page.paper, 0.4)
                )
                page.write(x + 4, y, text, written, pen, "ls", edge - x - 8)
    y += 2 * size
    gap = min(max((height * 0.8 - y) / 5, 1.8 * size), 3.5 * size)
    for number in range(style.randint(2, 4)):
        y += gap
        x = left
        page.write(x, y, phrase(style, 2, 3), font, colour)
        for option in ("Yes", "No", "Other"):
            x += (right - left) * (0.4 if option == "Yes" else 0.18)
            _tick(page, f"tick {number} {option}", x, y, size, colour, pen)
            page.write(x + 1.8 * size, y, option, font, colour)
    y += size
    page.paragraph(
        "notice", (left, y, right), font.scaled(0.85), colour, words=style.randint(20, 50), lines=4
    )
    y = min(max(y + 8 * size, height * style.uniform(0.8, 0.92)), height * 0.95)
    page.line([(left, y), (left + width * 0.3, y)], colour)
    page.write(left, y + 1.2 * size, "Signature", font.scaled(0.8), colour)
    signature(page, left + size, y - size, width * 0.18, pen)
    page.line([(width * 0.6, y), (right, y)], colour)
    page.write(width * 0.6, y + 1.2 * size, "Date", font.scaled(0.8), colour)
    page.write(
        width * 0.6 + size, y - 0.3 * size, page.fill("signed", "date", dotted_date), written, pen
    )


def _tick(
    page: Page, name: str, x: float, y: float, size: float, colour: Colour, pen: Colour
) -> None:
    """Draw a box that may be ticked."""
    box = (x, y - size, x + 1.1 * size, y + 0.1 * size)
    page.rectangle(box, None, colour)
    page.mark(name, (x - 0.4 * size, y - 1.5 * size, x + 1.6 * size, y + 0.6 * size))
    if page.fill(name, "checkbox", lambda rng: rng.random() < 0.4):
        page.smooth(
            [
                (x - 0.1 * size, y - 0.6 * size),
                (x + 0.45 * size, y),
                (x + 1.3 * size, y - 1.2 * size),
            ],
            pen,
            max(2, size / 6),
        )
