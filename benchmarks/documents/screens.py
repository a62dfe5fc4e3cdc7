"""Screens: dialogs, and windows of applications."""

from __future__ import annotations

from random import Random

from documents.page import Colour, Font, Page, accent, mixed
from documents.words import (
    BUTTONS,
    CITIES,
    COMPANY,
    LAST,
    MEASURES,
    MESSAGES,
    OPTIONS,
    PROSE,
    SECTIONS,
    iso_date,
    person,
    phrase,
    time,
)

WHITE = (255, 255, 255)

#: Background, panel, text and border of the windows.
LIGHT = (
    ((255, 255, 255), (240, 240, 240), (20, 20, 20), (200, 200, 200)),
    ((236, 233, 216), (245, 244, 234), (0, 0, 0), (172, 168, 153)),
    ((246, 246, 248), (232, 232, 236), (40, 40, 48), (210, 210, 216)),
)
DARK = (
    ((32, 33, 36), (48, 49, 53), (232, 232, 236), (74, 76, 82)),
    ((15, 18, 28), (26, 32, 48), (214, 222, 240), (52, 62, 88)),
    ((40, 42, 54), (52, 55, 72), (248, 248, 242), (98, 104, 134)),
)
Theme = tuple[Colour, Colour, Colour, Colour]


def _theme(style: Random) -> Theme:
    return style.choice(DARK if style.random() < 0.4 else LIGHT)


def _button(
    page: Page,
    name: str,
    box: tuple[float, float, float, float],
    font: Font,
    colours: tuple[Colour, Colour, Colour],
    radius: float,
    text: str | None = None,
) -> None:
    """Draw a button whose label is a field."""
    ground, label, border = colours
    page.rectangle(box, ground, border, radius=radius)
    # no label twice
    own = BUTTONS[int(name[-1]) :: 3]
    key = page.fill(name, "label", lambda rng: rng.choice(own))
    page.mark(name, box)
    page.write(
        (box[0] + box[2]) / 2,
        (box[1] + box[3]) / 2,
        text or page.phrase(str(key)),
        font,
        label,
        "mm",
        box[2] - box[0] - 8,
    )


def _toggle(
    page: Page, name: str, x: float, y: float, size: float, theme: Theme, brand: Colour, look: int
) -> None:
    """Draw a check box, a switch or a radio button; its state is a field."""
    ground, _, text, border = theme
    on = page.fill(name, "checkbox", lambda rng: rng.random() < 0.5)
    page.mark(name, (x, y - size, x + 2.2 * size, y + 0.4 * size))
    line = mixed(border, text, 0.4)
    if look == 0:
        page.rectangle(
            (x, y - 0.9 * size, x + 1.1 * size, y + 0.2 * size),
            brand if on else ground,
            line,
            radius=size / 6,
        )
        if on:
            page.line(
                [
                    (x + 0.25 * size, y - 0.35 * size),
                    (x + 0.5 * size, y - 0.1 * size),
                    (x + 0.9 * size, y - 0.65 * size),
                ],
                WHITE,
                max(2, size / 7),
            )
    elif look == 1:
        page.rectangle(
            (x, y - 0.8 * size, x + 2 * size, y + 0.2 * size),
            brand if on else mixed(ground, text, 0.35),
            radius=size / 2,
        )
        at = x + (1.1 if on else 0.1) * size
        page.draw.ellipse((at, y - 0.7 * size, at + 0.8 * size, y + 0.1 * size), fill=WHITE)
    else:
        page.draw.ellipse(
            (x, y - 0.9 * size, x + 1.1 * size, y + 0.2 * size), outline=line, width=2
        )
        if on:
            page.draw.ellipse(
                (x + 0.25 * size, y - 0.65 * size, x + 0.85 * size, y - 0.05 * size), fill=brand
            )


def title_bar(
    page: Page, box: tuple[float, float, float, float], font: Font, theme: Theme, brand: Colour
) -> None:
    """Draw the title bar of a window with its title, a field, and its buttons."""
    style = page.style
    left, top, right, bottom = box
    high = bottom - top
    coloured = style.random() < 0.5
    page.rectangle(box, brand if coloured else theme[1], theme[3])
    text = WHITE if coloured else theme[2]
    app = style.choice(("Editor", "Viewer", "Studio", "Manager", "Mail"))
    title = page.fill(
        "window title", "title", lambda rng: f"{rng.choice(PROSE)}-{rng.randint(2, 99)}.txt - {app}"
    )
    buttons = style.randrange(3)
    if buttons == 0:
        for i, colour in enumerate(((255, 95, 86), (255, 189, 46), (39, 201, 63))):
            x = left + (0.5 + i * 0.6) * high
            page.draw.ellipse(
                (x - 0.18 * high, top + 0.32 * high, x + 0.18 * high, top + 0.68 * high),
                fill=colour,
            )
        page.write(
            (left + right) / 2, (top + bottom) / 2, title, font, text, "mm", (right - left) * 0.6
        )
    else:
        for i in range(3 if buttons == 1 else 1):
            x, r, y = right - (0.6 + i * 1.1) * high, 0.17 * high, (top + bottom) / 2
            if i == 0:
                page.line([(x - r, y - r), (x + r, y + r)], text, 1.5)
                page.line([(x - r, y + r), (x + r, y - r)], text, 1.5)
            elif i == 1:
                page.rectangle((x - r, y - r, x + r, y + r), None, text)
            else:
                page.line([(x - r, y), (x + r, y)], text, 1.5)
        page.write(
            left + 0.6 * high, (top + bottom) / 2, title, font, text, "lm", (right - left) * 0.6
        )


def dialog(page: Page) -> None:
    """Draw a dialog: title, icon, message, options, entries, progress, buttons."""
    style = page.style
    theme, brand = _theme(style), accent(style)
    ground, panel, text, border = theme
    page.start(style.uniform(0.4, 0.85), ground)
    width, height = page.width, page.height
    size = max(12, round(width / style.uniform(34, 48)))
    font = Font(style.choice(("sans", "sans", "sans", "stix", "serif")), size)
    bar = 2.1 * size
    title_bar(page, (0, 0, width, bar), font, theme, brand)
    left, right = width * 0.06, width * 0.94
    y = bar + 2.4 * size
    icon = style.randrange(4)
    if icon:
        colour = ((220, 60, 50), (240, 180, 30), (50, 120, 220))[icon - 1]
        box = (left, y - size, left + 3.4 * size, y + 2.4 * size)
        if icon == 2:
            page.draw.polygon(
                [(box[0], box[3]), ((box[0] + box[2]) / 2, box[1]), (box[2], box[3])], fill=colour
            )
        else:
            page.draw.ellipse(box, fill=colour)
        page.write(
            (box[0] + box[2]) / 2,
            (box[1] + box[3]) / 2 + 2,
            "x!i"[icon - 1],
            Font("sans", 2 * size, "bold"),
            WHITE,
            "mm",
        )
        left += 4.6 * size
    message = page.fill("message", "label", lambda rng: rng.choice(MESSAGES[:4]))
    shown = page.phrase(str(message))
    page.mark("message", (left, y - 1.2 * size, right, y + 0.5 * size))
    page.write(
        left, y, shown, font.bold() if style.random() < 0.5 else font, text, "ls", right - left
    )
    y += 1.6 * size
    page.write(left, y, page.phrase("ask"), font, text, "ls", right - left)
    y += 1.5 * size
    detail = page.fill(
        "detail",
        "number",
        lambda rng: (
            f"0x{rng.randrange(16**8):08X}  {rng.choice(PROSE)}_{rng.randint(1, 99)}"
            f".{rng.choice(('dat', 'txt', 'log'))}"
        ),
    )
    page.write(
        left,
        y,
        detail,
        Font("mono", round(size * 0.9)),
        mixed(text, ground, 0.25),
        "ls",
        right - left,
    )
    look = style.randrange(3)
    bottom = height - 3.8 * size
    blocks = ["options", "entry", "progress", "fact"]
    style.shuffle(blocks)
    for block in blocks:
        y += 2.1 * size
        if y > bottom - size:
            break
        if block == "options":
            for key in style.sample(OPTIONS, style.randint(1, 4)):
                if y > bottom - size:
                    break
                _toggle(page, f"toggle {key}", left, y, size, theme, brand, look)
                page.write(
                    left + 2.6 * size,
                    y,
                    page.phrase(key),
                    font,
                    text,
                    "ls",
                    right - left - 3 * size,
                )
                y += 1.8 * size
            y -= size
        elif block == "entry":
            page.write(
                left,
                y,
                page.phrase(style.choice(("name", "folder", "search"))),
                font,
                text,
                "ls",
                6 * size,
            )
            page.rectangle(
                (left + 6.5 * size, y - 1.2 * size, right, y + 0.5 * size),
                mixed(ground, WHITE, 0.5) if ground[0] > 128 else panel,
                border,
            )
            page.write(
                left + 7 * size,
                y,
                page.fill("entry", "name", person),
                font,
                text,
                "ls",
                right - left - 8 * size,
            )
        elif block == "progress":
            page.rectangle((left, y - 0.8 * size, right - 4 * size, y), panel, border)
            done = page.fill("progress", "bar", lambda rng: rng.uniform(0.05, 1))
            page.mark("progress", (left, y - size, right - 4 * size, y))
            page.rectangle(
                (left, y - 0.8 * size, left + done * (right - 4 * size - left), y), brand
            )
            page.write(
                right,
                y,
                page.fill("percent", "number", lambda rng: f"{rng.randint(2, 99)}%"),
                font,
                text,
                "rs",
            )
        else:
            page.write(left, y, page.phrase("size"), font, text)
            page.write(
                left + 6.5 * size,
                y,
                page.fill("size", "amount", lambda rng: f"{rng.uniform(1, 900):.1f} MB"),
                font,
                text,
            )
            y += 1.5 * size
            page.write(left, y, page.phrase("date"), font, text)
            page.write(
                left + 6.5 * size,
                y,
                page.fill("date", "date", lambda rng: f"{iso_date(rng)} {time(rng)}"),
                font,
                text,
            )
    if style.random() < 0.5:
        page.rectangle((0, height - 3.4 * size, width, height), panel)
    number = style.choice((1, 2, 2, 3))
    wide, radius = min(8 * size, width * 0.28), style.choice((0, 3, size * 0.8))
    x = width * 0.96 if style.random() < 0.7 else width / 2 + number * (wide + size) / 2
    for i in range(number):
        main = i == 0
        colours = (brand, WHITE, brand) if main else (mixed(ground, text, 0.08), text, border)
        _button(
            page,
            f"button {i}",
            (x - wide, height - 2.7 * size, x, height - 0.7 * size),
            font,
            colours,
            radius,
        )
        x -= wide + size


def application(page: Page) -> None:
    """Draw the window of an application: menu, side bar, a list or settings, a status bar."""
    style = page.style
    theme, brand = _theme(style), accent(style)
    ground, panel, text, border = theme
    mobile = style.random() < 0.25
    page.start(style.uniform(1.5, 2.0) if mobile else style.uniform(0.55, 0.8), ground)
    width, height = page.width, page.height
    size = (
        max(11, round(width / style.uniform(20, 26)))
        if mobile
        else max(11, round(width / style.uniform(58, 80)))
    )
    font = Font(style.choice(("sans", "sans", "sans", "stix", "serif")), size)
    bar = 2.2 * size
    title_bar(page, (0, 0, width, bar), font, theme, brand)
    y = bar
    if not mobile:
        page.rectangle((0, y, width, y + 1.9 * size), panel)
        x = size
        for key in ("file", "edit", "view", "search", "help")[: style.randint(3, 5)]:
            page.write(x, y + size, page.phrase(key), font, text, "lm")
            x += 7 * size
        y += 1.9 * size
    side = 0.0 if mobile else width * style.uniform(0.18, 0.26)
    foot = height - 1.9 * size
    if side:
        page.rectangle((0, y, side, foot), mixed(panel, ground, 0.3))
        chosen = page.fill("section", "marker", lambda rng: rng.randrange(6))
        keys = style.sample(SECTIONS, 8)
        for i, key in enumerate(keys):
            at = y + (i + 1) * 2.2 * size
            row = (0, at - 1.4 * size, side - 1, at + 0.7 * size)
            if i < 6:
                page.mark("section", row)
            if i == chosen:
                page.rectangle(row, brand)
            page.draw.ellipse(
                (0.8 * size, at - size, 2 * size, at + 0.2 * size),
                fill=mixed(accent(style), text, 0.2),
            )
            page.write(
                2.8 * size,
                at,
                page.phrase(key),
                font,
                WHITE if i == chosen else text,
                "ls",
                side - 3 * size,
            )
        page.line([(side, y), (side, foot)], border)
    left, right = side + 1.5 * size, width - 1.5 * size
    if style.random() < 0.5:
        _settings(page, (left, y, right, foot), font, theme, brand)
    else:
        _list(page, (left, y, right, foot), font, theme, brand, narrow=mobile)
    page.rectangle((0, foot, width, height), panel, border)
    status = page.fill(
        "status", "number", lambda rng: f"{rng.randint(2, 999)} / {rng.randint(1000, 9999)}"
    )
    page.write(size, (foot + height) / 2, status, font.scaled(0.9), text, "lm")
    page.write(
        width - size,
        (foot + height) / 2,
        page.fill("clock", "time", time),
        font.scaled(0.9),
        text,
        "rm",
    )


def _settings(
    page: Page, box: tuple[float, float, float, float], font: Font, theme: Theme, brand: Colour
) -> None:
    """Draw options, values and buttons."""
    style, size = page.style, font.size
    left, top, right, bottom = box
    _, panel, text, border = theme
    look = style.randrange(3)
    y = top + 2.6 * size
    page.write(left, y, page.phrase("settings"), Font(font.family, round(size * 1.5), "bold"), text)
    keys = list(OPTIONS)
    style.shuffle(keys)
    for number, key in enumerate(keys):
        y += 2.6 * size
        if y > bottom - 5 * size:
            break
        if style.random() < 0.5:
            page.line([(left, y - 1.6 * size), (right, y - 1.6 * size)], border)
        if number % 4 == 3:
            page.write(
                left, y, page.phrase(style.choice(("account", "folder", "name"))), font, text
            )
            value = page.fill(
                f"value {number}",
                "name",
                lambda rng: f"{rng.choice(LAST).lower()}{rng.randint(10, 99)}",
            )
            page.rectangle(
                (left + (right - left) * 0.5, y - 1.3 * size, right, y + 0.6 * size), panel, border
            )
            page.write(
                left + (right - left) * 0.5 + 6, y, value, font, text, "ls", (right - left) * 0.45
            )
            continue
        page.write(left, y, page.phrase(key), font, text, "ls", (right - left) * 0.8)
        _toggle(page, f"toggle {key}", right - 2.4 * size, y, size, theme, brand, look)
    wide = min(9 * size, (right - left) * 0.4)
    for i in range(2):
        x = right - i * (wide + size)
        colours = (brand, WHITE, brand) if i == 0 else (panel, text, border)
        _button(
            page, f"button {i}", (x - wide, bottom - 3 * size, x, bottom - size), font, colours, 4
        )


def _list(
    page: Page,
    box: tuple[float, float, float, float],
    font: Font,
    theme: Theme,
    brand: Colour,
    *,
    narrow: bool,
) -> None:
    """Draw a list of messages or files."""
    style, size = page.style, font.size
    left, top, right, bottom = box
    ground, panel, text, border = theme
    faint = mixed(text, ground, 0.35)
    tall = narrow or style.random() < 0.5
    step = size * (3.8 if tall else style.uniform(1.9, 2.4))
    y = top + size
    if not tall:
        page.rectangle((left - size, top, right + size, top + 1.8 * size), panel)
        for share, key in ((0, "name"), (0.5, "date"), (0.86, "size")):
            page.write(
                left + share * (right - left),
                top + 1.25 * size,
                page.phrase(key),
                font.bold(),
                text,
            )
        y += 1.2 * size
    chosen = style.randrange(8)
    for row in range(40):
        if y + step > bottom:
            break
        if row == chosen:
            page.rectangle((left - size, y, right + size, y + step), mixed(ground, brand, 0.35))
        if tall:
            page.draw.ellipse(
                (left, y + 0.6 * size, left + 2.4 * size, y + 3 * size), fill=accent(style)
            )
            page.write(
                left + 3.2 * size,
                y + 1.6 * size,
                page.fill(f"sender {row}", "name", person),
                font.bold(),
                text,
            )
            page.write(
                right,
                y + 1.6 * size,
                page.fill(f"time {row}", "time", time),
                font.scaled(0.9),
                faint,
                "rs",
            )
            page.write(
                left + 3.2 * size,
                y + 3 * size,
                page.fill(f"subject {row}", "title", lambda rng: phrase(rng, 3, 7)),
                font,
                faint,
                "ls",
                right - left - 4 * size,
            )
            page.line([(left, y + step), (right, y + step)], border)
        else:
            at = y + step * 0.7
            page.rectangle((left, at - size, left + size, at), accent(style), radius=2)
            name = page.fill(
                f"file {row}",
                "name",
                lambda rng: (
                    f"{rng.choice((*MEASURES, *CITIES, *COMPANY)).lower()}-{rng.randint(1, 99)}"
                    f".{rng.choice(('png', 'txt', 'pdf'))}"
                ),
            )
            page.write(left + 1.6 * size, at, name, font, text, "ls", (right - left) * 0.45)
            page.write(
                left + 0.5 * (right - left),
                at,
                page.fill(f"date {row}", "date", iso_date),
                font,
                faint,
            )
            page.write(
                right,
                at,
                page.fill(f"size {row}", "amount", lambda rng: f"{rng.uniform(1, 900):.1f} KB"),
                font,
                faint,
                "rs",
            )
        y += step
