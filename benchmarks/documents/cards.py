"""Identity cards with a drawn portrait."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from PIL import ImageDraw

from documents.page import Colour, Font, Page, accent, ink, mixed
from documents.texts import signature
from documents.words import (
    CITIES,
    COMPANY,
    FIRST,
    LAST,
    code,
    dotted_date,
    iso_date,
)

WHITE = (255, 255, 255)


def card(page: Page) -> None:
    """Draw an identity card: portrait, name, dates, number, pattern, machine-readable lines."""
    style = page.style
    brand = accent(style)
    ground = mixed(brand, WHITE, style.uniform(0.72, 0.9))
    page.start(style.uniform(0.61, 0.68), ground)
    width, height = page.width, page.height
    colour, label_colour = ink(style), mixed(brand, (0, 0, 0), 0.25)
    waves = mixed(ground, brand, style.uniform(0.12, 0.3))
    period, lean, reach = style.uniform(2, 9), style.uniform(0.2, 2), style.uniform(0.02, 0.08)
    steps = range(0, width + 16, 16)
    for i in range(style.randint(10, 26)):
        base = height * (i / 18 - 0.1)
        points = [
            (x, base + reach * height * math.sin(period * x / width + lean * i)) for x in steps
        ]
        page.line(points, waves)
    size = max(10, round(height / style.uniform(20, 25)))
    heading = Font(
        style.choice(("sans", "sans", "stix", "plain", "serif")), round(size * 1.4), "bold"
    )
    title = style.choice(
        ("IDENTITY CARD", "DRIVING LICENCE", "STUDENT CARD", "RESIDENCE PERMIT", "MEMBER CARD")
    )
    issuer = (
        f"{style.choice(COMPANY)} {style.choice(('Republic', 'University', 'County', 'Kingdom'))}"
    )
    if style.random() < 0.5:
        page.rectangle((0, 0, width, height * 0.15), brand)
        head = WHITE
    else:
        head = label_colour
    page.write(width * 0.05, height * 0.1, title, heading, head, "ls", width * 0.5)
    page.write(width * 0.95, height * 0.1, issuer, heading.scaled(0.7), head, "rs", width * 0.35)
    on_left = style.random() < 0.7
    wide, high = width * style.uniform(0.24, 0.29), height * style.uniform(0.5, 0.58)
    x = width * 0.05 if on_left else width * 0.95 - wide
    portrait(page, (x, height * 0.2, x + wide, height * 0.2 + high))
    x = width * 0.08 + wide if on_left else width * 0.06
    pattern = style.choice(("?########", "##-######", "?? #######"))
    dates = style.choice((dotted_date, iso_date))
    facts: list[tuple[str, str, Callable[[Random], str]]] = [
        ("Name", "name", lambda rng: rng.choice(LAST).upper()),
        ("Given names", "name", lambda rng: rng.choice(FIRST)),
        ("Date of birth", "date", dates),
        ("Place of birth", "name", lambda rng: rng.choice(CITIES)),
        ("Nationality", "name", lambda rng: code(rng, "???")),
        ("Expires", "date", dates),
        ("Number", "number", lambda rng: code(rng, pattern)),
        ("Height", "number", lambda rng: f"{rng.randint(152, 199)} cm"),
    ]
    columns = style.choice((1, 2))
    facts = facts[: style.randint(5, 6) if columns == 1 else style.randint(6, 8)]
    step = min(height * 0.62 / -(-len(facts) // columns), 3.6 * size)
    size = min(size, round(step / 2.1))
    font = Font(heading.family, size)
    small = font.scaled(0.65)
    span = (width * 0.92 - wide) / columns
    for number, (label, what, make) in enumerate(facts):
        at = x + (number % columns) * span
        y = height * 0.2 + (number // columns) * step + small.size
        page.write(at, y, label, small, label_colour)
        page.write(
            at, y + 1.15 * size, page.fill(label, what, make), font.bold(), colour, "ls", span - 6
        )
    zone = Font("mono", max(8, round(width / 46)))
    if style.random() < 0.6:
        page.rectangle((0, height * 0.83, width, height), mixed(ground, WHITE, 0.6))
        for row, letters in enumerate(("ID???<<", "######?")):
            text = page.fill(
                f"line {row}",
                "number",
                lambda rng, letters=letters: code(rng, letters + "#########<??<<######?###<<<"),
            )
            page.write(
                width * 0.05, height * (0.9 + 0.065 * row), text, zone, colour, "ls", width * 0.9
            )
    else:
        signature(page, width * 0.68, height * 0.88, width * 0.18, (20, 20, 60))


def portrait(page: Page, box: tuple[float, float, float, float]) -> None:
    """Draw a head and shoulders; the whole portrait is one field."""
    left, top, right, bottom = box
    wide, high = right - left, bottom - top
    ground = mixed(
        page.paper, page.style.choice(((255, 255, 255), (150, 160, 175), (190, 200, 210))), 0.7
    )
    face = page.fill("portrait", "portrait", _face)
    page.mark("portrait", box)
    skin, hair, cloth = face["skin"], face["hair"], face["cloth"]
    scratch = page.image.crop((round(left), round(top), round(right), round(bottom)))
    draw = ImageDraw.Draw(scratch)
    draw.rectangle((0, 0, wide, high), fill=ground)

    def oval(x: float, y: float, across: float, down: float, colour: Colour) -> None:
        cx, cy = wide * x, high * y
        draw.ellipse(
            (cx - wide * across, cy - high * down, cx + wide * across, cy + high * down),
            fill=colour,
        )

    slim = face["slim"]
    if face["long"]:
        oval(0.5, 0.55, 0.27 * slim, 0.36, hair)
    oval(0.5, 1.05, 0.46, 0.24, cloth)
    draw.rectangle(
        (wide * 0.42, high * 0.6, wide * 0.58, high * 0.86), fill=mixed(skin, (0, 0, 0), 0.12)
    )
    oval(0.5, 0.4, 0.235 * slim, 0.26, hair)
    oval(0.5, 0.46, 0.21 * slim, 0.25, skin)
    if face["fringe"]:
        draw.pieslice(
            (wide * (0.5 - 0.22 * slim), high * 0.17, wide * (0.5 + 0.22 * slim), high * 0.55),
            180,
            360,
            fill=hair,
        )
    for side in (-1, 1):
        x = 0.5 + side * 0.085 * slim
        oval(x, face["eyes"], 0.035, 0.016, WHITE)
        oval(x, face["eyes"], 0.016, 0.016, face["iris"])
        draw.line(
            (
                wide * (x - 0.045),
                high * (face["eyes"] - 0.045),
                wide * (x + 0.045),
                high * (face["eyes"] - 0.045 - side * face["brow"]),
            ),
            fill=hair,
            width=max(1, int(wide / 50)),
        )
        if face["glasses"]:
            r = 0.06
            draw.ellipse(
                (
                    wide * (x - r),
                    high * (face["eyes"] - r * 0.7),
                    wide * (x + r),
                    high * (face["eyes"] + r * 0.7),
                ),
                outline=(20, 20, 20),
                width=max(1, int(wide / 70)),
            )
    dim = mixed(skin, (90, 30, 20), 0.35)
    draw.line(
        (
            wide * 0.5,
            high * 0.45,
            wide * (0.5 - face["nose"]),
            high * 0.54,
            wide * 0.51,
            high * 0.545,
        ),
        fill=dim,
        width=max(1, int(wide / 60)),
    )
    if face["beard"]:
        draw.chord(
            (wide * (0.5 - 0.18 * slim), high * 0.42, wide * (0.5 + 0.18 * slim), high * 0.73),
            25,
            155,
            fill=mixed(hair, skin, 0.2),
        )
    mouth = face["mouth"]
    draw.line(
        (
            wide * (0.5 - mouth),
            high * 0.605,
            wide * 0.5,
            high * (0.605 + face["smile"]),
            wide * (0.5 + mouth),
            high * 0.605,
        ),
        fill=(150, 60, 60),
        width=max(1, int(wide / 45)),
    )
    page.image.paste(scratch, (round(left), round(top)))


def _face(rng: Random) -> dict[str, object]:
    return {
        "skin": rng.choice(
            ((236, 200, 172), (222, 178, 146), (190, 140, 105), (141, 96, 66), (96, 64, 46))
        ),
        "hair": rng.choice(
            ((30, 24, 20), (80, 52, 30), (170, 130, 70), (120, 120, 122), (140, 60, 30))
        ),
        "cloth": accent(rng),
        "iris": rng.choice(((60, 40, 20), (50, 90, 140), (60, 100, 60))),
        "slim": rng.uniform(0.85, 1.15),
        "eyes": rng.uniform(0.42, 0.46),
        "nose": rng.uniform(0.01, 0.04),
        "mouth": rng.uniform(0.05, 0.09),
        "smile": rng.uniform(-0.005, 0.03),
        "brow": rng.uniform(-0.01, 0.02),
        "long": rng.random() < 0.4,
        "fringe": rng.random() < 0.5,
        "glasses": rng.random() < 0.3,
        "beard": rng.random() < 0.25,
    }
