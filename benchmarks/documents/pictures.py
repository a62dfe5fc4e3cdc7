"""Documents with images, and with marks of what is selected: catalogues, menus, plans, gauges."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import cv2
import numpy as np
from PIL import Image as PillowImage
from PIL import ImageDraw

from documents.page import PROPORTIONAL, Colour, Font, Page, accent, ink, mixed, paper
from documents.words import CITIES, FIRST, GOODS, MEASURES, SECTIONS, code, price, time

WHITE = (255, 255, 255)

#: Images are drawn at this many times their size: their edges are smooth.
FINER = 2


def picture(page: Page, name: str, box: tuple[float, float, float, float], look: int) -> None:
    """Draw an image of one of the ``PAINTERS``; all of it is one field."""
    seed = page.fill(name, "picture", lambda rng: rng.randrange(10**6))
    page.mark(name, box)
    left, top, right, bottom = map(round, box)
    size = (max(8, right - left), max(8, bottom - top))
    page.image.paste(painted(look, seed, size), (left, top))


def painted(look: int, seed: int, size: tuple[int, int]) -> PillowImage.Image:
    """Return an image of one of the ``PAINTERS``."""
    width, height = size
    image = PAINTERS[look](Random(seed), FINER * width, FINER * height)
    return image.resize(size, PillowImage.Resampling.BOX)


def _ground(rng: Random, width: int, height: int) -> PillowImage.Image:
    """Return a vertical gradient of two colours."""
    pale = [mixed(accent(rng), WHITE, rng.uniform(0.2, 0.9)) for _ in range(2)]
    ramp = np.linspace(0, 1, height)[:, None, None]
    pixels = (1 - ramp) * np.array(pale[0]) + ramp * np.array(pale[1])
    return PillowImage.fromarray(np.repeat(pixels, width, 1).astype(np.uint8))


def _landscape(rng: Random, width: int, height: int) -> PillowImage.Image:
    image = _ground(rng, width, height)
    draw = ImageDraw.Draw(image)
    x, y, r = rng.uniform(0, width), rng.uniform(0, height / 2), rng.uniform(0.05, 0.12) * height
    draw.ellipse((x - r, y - r, x + r, y + r), fill=mixed(accent(rng), WHITE, 0.7))
    for layer in range(rng.randint(2, 4)):
        waves = [(rng.uniform(0, 6), rng.uniform(1, 9), rng.uniform(0, 0.1)) for _ in range(3)]
        colour, base = accent(rng), 0.45 + 0.15 * layer
        ridge = [
            (x, height * (base + sum(a * math.sin(p + f * x / width) for p, f, a in waves)))
            for x in range(0, width + 4, 4)
        ]
        draw.polygon([*ridge, (width, height), (0, height)], fill=colour)
        for x, y in rng.sample(ridge, min(len(ridge), rng.randint(0, 5))):
            r = rng.uniform(0.03, 0.08) * height
            draw.polygon(
                [(x - r, y), (x, y - 3 * r), (x + r, y)], fill=mixed(colour, (0, 0, 0), 0.5)
            )
    return image


def _vessel(rng: Random, width: int, height: int) -> PillowImage.Image:
    image = _ground(rng, width, height)
    draw = ImageDraw.Draw(image)
    colour, middle = accent(rng), width * rng.uniform(0.4, 0.6)
    radii = [rng.uniform(0.06, 0.34) * width for _ in range(rng.randint(3, 6))]
    top, bottom = rng.uniform(0.08, 0.25), rng.uniform(0.75, 0.92)
    rows = np.arange(int(top * height), int(bottom * height))
    wide = np.interp(np.linspace(0, len(radii) - 1, len(rows)), np.arange(len(radii)), radii)
    wide = cv2.blur(wide[:, None], (1, max(3, len(rows) // 8)))[:, 0]
    draw.ellipse((middle - radii[-1] * 1.3, bottom * height - 0.05 * height,
                  middle + radii[-1] * 1.3, bottom * height + 0.05 * height),
                 fill=mixed(colour, (0, 0, 0), 0.6))  # fmt: skip
    for y, r in zip(rows.tolist(), wide.tolist(), strict=True):
        for share, light in ((1.0, 0.0), (0.75, 0.12), (0.4, 0.25)):
            draw.line(
                (middle - r * share, y, middle + r * share * 0.8, y), mixed(colour, WHITE, light)
            )
    for _ in range(rng.randint(0, 3)):
        y = rng.choice(rows.tolist())
        draw.line((middle - 0.2 * width, y, middle + 0.2 * width, y), accent(rng), 3)
    return image


def _person(rng: Random, width: int, height: int) -> PillowImage.Image:
    image = _ground(rng, width, height)
    draw = ImageDraw.Draw(image)
    skin = mixed((244, 214, 190), (84, 54, 40), rng.random())
    hair, cloth = (
        mixed(rng.choice(((20, 16, 14), (200, 160, 90), (120, 60, 30))), skin, 0.1),
        accent(rng),
    )
    x, y = width * rng.uniform(0.42, 0.58), height * rng.uniform(0.36, 0.46)
    r, long = height * rng.uniform(0.17, 0.24), rng.uniform(1.15, 1.45)

    def oval(dx: float, dy: float, across: float, down: float, colour: Colour) -> None:
        cx, cy = x + dx * r, y + dy * r
        draw.ellipse((cx - across * r, cy - down * r, cx + across * r, cy + down * r), fill=colour)

    oval(0, -0.2, 1.15 + 0.3 * rng.random(), long * rng.uniform(1.0, 1.5), hair)
    oval(0, long + 1.4, rng.uniform(1.8, 2.4), 1.5, cloth)
    draw.rectangle(
        (x - 0.35 * r, y + 0.6 * r, x + 0.35 * r, y + 1.5 * r), mixed(skin, (0, 0, 0), 0.2)
    )
    oval(0, 0.1, 0.95, long, skin)
    apart = rng.uniform(0.3, 0.45)
    for side in (-1, 1):
        oval(side * apart, -0.05, 0.16, 0.08, WHITE)
        oval(side * apart, -0.05, 0.08, 0.08, (40, 40, 50))
        oval(side * apart, -0.32, 0.22, 0.05, hair)
    oval(0, 0.35, 0.12, 0.2, mixed(skin, (120, 40, 30), 0.25))
    oval(0, 0.75, rng.uniform(0.2, 0.4), rng.uniform(0.05, 0.12), (160, 70, 70))
    if rng.random() < 0.5:
        oval(0, -1.0, rng.uniform(0.8, 1.1), rng.uniform(0.3, 0.6), hair)
    return image


def _surface(rng: Random, width: int, height: int) -> PillowImage.Image:
    noise = np.random.default_rng(rng.randrange(2**32))
    field = np.zeros((height, width), np.float32)
    for cells, weight in ((3, 1.0), (7, 0.6), (17, 0.35), (41, 0.2)):
        octave = noise.normal(size=(cells, cells)).astype(np.float32)
        field += weight * cv2.resize(octave, (width, height), interpolation=cv2.INTER_CUBIC)
    share = 1 / (1 + np.exp(-3 * field))[..., None]
    one, other = np.array(accent(rng)), np.array(mixed(accent(rng), WHITE, 0.5))
    return PillowImage.fromarray((share * one + (1 - share) * other).astype(np.uint8))


PAINTERS: tuple[Callable[[Random, int, int], PillowImage.Image], ...] = (
    _landscape, _vessel, _person, _surface,
)  # fmt: skip


def catalogue(page: Page) -> None:
    """Draw a page of a catalogue or of a staff directory: images with names and numbers."""
    style = page.style
    page.start(style.uniform(0.6, 1.4), paper(style), squeeze=0.08)
    width, height = page.width, page.height
    colour, brand, look = ink(style), accent(style), style.randrange(len(PAINTERS))
    size = max(10, round(width / style.uniform(45, 60)))
    font = Font(style.choice(PROPORTIONAL), size)
    page.rectangle((0, 0, width, 3.4 * size), brand if style.random() < 0.5 else None)
    head = WHITE if page.image.getpixel((2, 2)) == brand else brand
    title = style.choice(SECTIONS).capitalize()
    page.write(width * 0.04, 2.4 * size, title, font.scaled(1.6).bold(), head)
    columns, rows = style.randint(1, 4), style.randint(1, 3)
    wide, high = width * 0.92 / columns, (height - 5 * size) / rows
    names = FIRST if look == 2 else GOODS
    beside = columns == 1
    for number in range(columns * rows):
        x = width * 0.04 + number % columns * wide
        y = 4.2 * size + number // columns * high
        side = min(wide - size, high - (size if beside else 5 * size))
        if side < 3 * size:
            continue
        across = side * style.uniform(0.7, 1.0) if look == 2 else min(wide - size, 1.4 * side)
        picture(page, f"picture {number}", (x, y, x + across, y + side), look)
        at = (x + across + size, y + 2 * size) if beside else (x, y + side + 1.4 * size)
        room = width * 0.96 - at[0] if beside else wide - size
        facts: tuple[tuple[str, Callable[[Random], str]], ...] = (
            ("name", lambda rng: rng.choice(names)),
            ("number", lambda rng: code(rng, "??-####")),
            ("amount", price),
        )
        for row, (what, make) in enumerate(facts):
            text = page.fill(f"{what} {number}", what, make)
            own = font.bold() if row == 0 else font
            page.write(at[0], at[1] + 1.4 * row * size, text, own, colour, "ls", room)


def menu(page: Page) -> None:
    """Draw a list of which one row is selected, with tabs of which one is open."""
    style = page.style
    dark = style.random() < 0.4
    ground = style.choice(((28, 30, 36), (44, 40, 52), (12, 24, 34))) if dark else paper(style)
    page.start(style.uniform(0.5, 1.3), ground)
    width, height = page.width, page.height
    colour, brand = (230, 230, 235) if dark else ink(style), accent(style)
    size = max(10, round(width / style.uniform(34, 60)))
    font = Font(style.choice(PROPORTIONAL), size)
    top = style.uniform(2.5, 4) * size
    tabs = style.randint(2, 5)
    opened = page.fill("tab", "marker", lambda rng: rng.randrange(tabs))
    for number in range(tabs):
        box = (width * number / tabs, 0, width * (number + 1) / tabs, top)
        if number == opened:
            page.mark("tab", box)
            page.rectangle((box[0], top - max(3, size / 4), box[2], top), brand)
        page.write(
            (box[0] + box[2]) / 2, top / 2, SECTIONS[number].capitalize(), font, colour, "mm"
        )
    step = size * style.uniform(1.7, 3.2)
    rows = max(2, int((height - top - size) / step))
    look, tint = style.randrange(4), mixed(ground, brand, style.choice((0.2, 0.4, 1.0)))
    selected = page.fill("row", "marker", lambda rng: rng.randrange(rows))
    names = [style.choice(GOODS if dark else CITIES) for _ in range(rows)]
    for row in range(rows):
        y = top + size / 2 + row * step
        box = (width * 0.02, y, width * 0.98, y + step - 2)
        own = colour
        if row == selected:
            page.mark("row", box)
            if look == 0:
                page.rectangle(box, tint, radius=size / 3)
            elif look == 1:
                page.rectangle(box, tint)
                own = WHITE if sum(tint) < 380 else (10, 10, 10)
            elif look == 2:
                page.rectangle(box, None, brand, max(2, size // 6))
            else:
                page.rectangle((box[0], y, box[0] + size / 2, box[3]), brand)
        middle = y + step / 2
        page.draw.ellipse((width * 0.05, middle - size / 2, width * 0.05 + size, middle + size / 2),
                          outline=mixed(ground, colour, 0.5))  # fmt: skip
        page.write(width * 0.05 + 2 * size, middle, names[row], font, own, "lm", width * 0.4)
        if look != 1:
            text = page.fill(f"time {row}", "time", time)
            page.write(width * 0.95, middle, text, font, own, "rm", width * 0.3)


def plan(page: Page) -> None:
    """Draw a plan of seats, or a board with pieces: some are taken, one is marked."""
    style = page.style
    page.start(style.uniform(0.6, 1.2), paper(style))
    width, height = page.width, page.height
    colour, brand = ink(style), accent(style)
    columns, rows = style.randint(5, 14), style.randint(4, 10)
    size = max(10, round(width / 46))
    step = min(width * 0.92 / columns, (height - 5 * size) / rows)
    left, top = (width - step * columns) / 2, 4 * size
    font = Font(style.choice(PROPORTIONAL), size)
    title = page.fill("hall", "title", lambda rng: f"{rng.choice(CITIES)} {rng.randint(1, 40)}")
    page.write(left, 2.6 * size, title, font.scaled(1.4).bold(), colour)
    board, round_ = style.random() < 0.5, style.random() < 0.5
    faint = mixed(page.paper, brand, 0.35)
    share = style.uniform(0.2, 0.6)

    def cell(number: int, margin: float) -> tuple[float, float, float, float]:
        x, y = left + number % columns * step, top + number // columns * step
        return x + margin, y + margin, x + step - margin, y + step - margin

    marked = page.fill("ring", "marker", lambda rng: rng.randrange(columns * rows))
    for number in range(columns * rows):
        if board and (number % columns + number // columns) % 2:
            page.rectangle(cell(number, 0), faint)
        name, inner = f"seat {number}", cell(number, step * 0.2)
        taken = page.fill(name, "cell", lambda rng: rng.random() < share)
        page.mark(name, inner)
        if round_:
            page.draw.ellipse(inner, brand if taken else None, None if board else faint)
        else:
            page.rectangle(inner, brand if taken else None, None if board and not taken else faint)
    page.mark("ring", cell(marked, 0))
    page.rectangle(cell(marked, step * 0.06), None, (215, 40, 40), max(2, round(step / 14)))


def dashboard(page: Page) -> None:
    """Draw gauges with needles, pictograms of the weather, and curves."""
    style = page.style
    dark = style.random() < 0.5
    ground = (20, 24, 34) if dark else paper(style)
    page.start(style.uniform(0.45, 1.0), ground)
    width, height = page.width, page.height
    colour, brand = (232, 236, 240) if dark else ink(style), accent(style)
    columns, rows = style.randint(2, 4), style.randint(1, 3)
    wide, high = width / columns, height / rows
    size = max(10, round(min(wide, high) / 11))
    font = Font(style.choice(PROPORTIONAL), size)
    for number in range(columns * rows):
        x, y = number % columns * wide, number // columns * high
        page.rectangle((x + 5, y + 5, x + wide - 6, y + high - 6), mixed(ground, brand, 0.08),
                       mixed(ground, colour, 0.2), radius=size / 2)  # fmt: skip
        page.write(
            x + size, y + 1.8 * size, style.choice(MEASURES), font, colour, "ls", wide - 2 * size
        )
        box = (x + size, y + 2.5 * size, x + wide - size, y + high - 3 * size)
        (_gauge, _weather, _curve)[style.randrange(3)](page, number, box, colour, brand)
        value = page.fill(f"value {number}", "number", lambda rng: f"{rng.uniform(1, 400):.1f}")
        page.write(x + wide / 2, y + high - 1.3 * size, value, font.bold(), colour, "ms", wide - 12)


def _gauge(
    page: Page, number: int, box: tuple[float, float, float, float], colour: Colour, brand: Colour
) -> None:
    left, top, right, bottom = box
    x, y, r = (left + right) / 2, (top + bottom) / 2, min(right - left, bottom - top) / 2
    page.draw.arc((x - r, y - r, x + r, y + r), 135, 405, brand, max(2, round(r / 8)))
    turn = page.fill(f"needle {number}", "point", lambda rng: rng.uniform(2.4, 7.0))
    page.mark(f"needle {number}", (x - r, y - r, x + r, y + r))
    tip = (x + 0.8 * r * math.cos(turn), y + 0.8 * r * math.sin(turn))
    page.line([(x, y), tip], colour, max(2, r / 20))


def _weather(
    page: Page, number: int, box: tuple[float, float, float, float], colour: Colour, brand: Colour
) -> None:
    left, top, right, bottom = box
    sky = page.fill(f"sky {number}", "sign", lambda rng: rng.randrange(4))
    page.mark(f"sky {number}", box)
    x, y, r = (left + right) / 2, (top + bottom) / 2, min(right - left, bottom - top) / 4
    if sky in (0, 1):
        page.draw.ellipse((x - r, y - 1.5 * r, x + r, y + r / 2), (250, 190, 40))
    if sky > 0:
        for dx, size in ((-0.8, 0.7), (0, 1.0), (0.9, 0.6)):
            page.draw.ellipse((x + (dx - size) * r, y - size * r, x + (dx + size) * r, y + 0.8 * r),
                              mixed(colour, (150, 160, 175), 0.8))  # fmt: skip
    for drop in range(4 * (sky == 3)):
        at = x + (drop - 1.5) * r / 2
        page.line([(at, y + r), (at - r / 4, y + 1.6 * r)], brand, max(2, r / 10))


def _curve(
    page: Page, number: int, box: tuple[float, float, float, float], colour: Colour, brand: Colour
) -> None:
    left, top, right, bottom = box
    count = page.style.randint(4, 12)
    heights = page.value(f"curve {number}", lambda rng: [rng.random() for _ in range(count)])
    place = page.style.randrange(count)
    name = f"point {number}"
    moved = page.fill(name, "point", lambda rng: rng.random(), heights[place])
    heights = [*heights[:place], moved, *heights[place + 1 :]]
    points = [
        (left + (right - left) * i / (count - 1), bottom - (bottom - top) * share)
        for i, share in enumerate(heights)
    ]
    near, thick = points[max(0, place - 1) : place + 2], max(2, (bottom - top) / 50)
    page.mark(name, (near[0][0] - thick, top - thick, near[-1][0] + thick, bottom + thick))
    page.smooth(points, brand, thick)
    page.line([(left, bottom), (right, bottom)], mixed(colour, brand, 0.5))
