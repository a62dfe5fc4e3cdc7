"""Road signs in front of scenes: sky, hills, leaves, a road, all made of noise and gradients."""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from documents.page import Colour, Font, Image, Page, mixed
from documents.words import CITIES

WHITE = (255, 255, 255)


@lru_cache(maxsize=4)
def scene(width: int, height: int, seed: int) -> Image:
    """Return a scene in the open: sky and clouds, hills, leaves or walls, a road."""
    rng = np.random.default_rng(seed)

    def noise(coarse: int, fine: int, fall: float = 0.6) -> npt.NDArray[np.float32]:
        total = np.zeros((height, width), np.float32)
        weight, cells = 1.0, coarse
        while cells <= fine:
            grid = rng.normal(size=(cells, max(2, cells * width // height))).astype(np.float32)
            total += weight * cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC)
            weight, cells = weight * fall, cells * 2
        return total / total.std()

    down = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    blue = (rng.uniform(90, 170) + rng.uniform((0, 30, 75), (15, 50, 95))).astype(np.float32)
    pale = rng.uniform((200, 205, 205), (250, 245, 240)).astype(np.float32)
    sky = blue + (pale - blue) * np.clip(down * 1.6, 0, 1)[..., None]
    clouds = np.clip(noise(3, 48) * 0.5 + rng.uniform(-0.6, 0.5), 0, 1)[..., None]
    out = sky + (240 - sky) * clouds * rng.uniform(0.3, 0.9)
    horizon = rng.uniform(0.4, 0.75)
    leaves = noise(4, 256, 0.8)
    for _ in range(rng.integers(1, 4)):
        line = (
            horizon
            - 0.25 * rng.random()
            + 0.06
            * cv2.resize(
                rng.normal(size=(1, rng.integers(3, 30))).astype(np.float32),
                (width, 1),
                interpolation=cv2.INTER_CUBIC,
            )
        )
        green = (rng.uniform(30, 110) * rng.uniform((0.6, 0.9, 0.4), (1.2, 1.25, 0.7))).astype(
            np.float32
        )
        mask = np.clip((down - line) * height / 3, 0, 1)[..., None]
        out = out * (1 - mask) + (green + leaves[..., None] * rng.uniform(8, 26)) * mask
    if rng.random() < 0.6:
        grey = rng.uniform(70, 130)
        edge = (down - horizon) / (1 - horizon)
        across = np.linspace(-1, 1, width, dtype=np.float32)[None, :] + rng.uniform(-0.3, 0.3)
        mask = ((edge > 0) & (np.abs(across) < 0.06 + edge * rng.uniform(0.5, 0.9)))[..., None]
        road = grey + noise(64, 512, 0.9)[..., None] * 6
        dashes = (
            (edge > 0) & (np.abs(across) < 0.008 + 0.03 * edge) & (np.sin(9 / (edge + 0.15)) > 0)
        )[..., None]
        out = np.where(mask, np.where(dashes, 225, road), out)
    return np.clip(out * rng.uniform(0.75, 1.05), 0, 255).astype(np.uint8)


def _outdoors(page: Page, ratio: tuple[float, float]) -> None:
    """Start a page with a scene behind."""
    style = page.style
    page.start(style.uniform(*ratio), (128, 140, 150))
    page.background(scene(page.width, page.height, style.getrandbits(32)).copy())
    page.grain = style.choice((1.5, 3.0, 5.0))


def _pole(page: Page, x: float, top: float, thick: float) -> None:
    grey = page.style.randint(90, 170)
    for i in range(max(2, round(thick))):
        shade = round(grey * (0.6 + 0.5 * math.sin(math.pi * i / max(1, round(thick) - 1))))
        page.line(
            [(x - thick / 2 + i, top), (x - thick / 2 + i, page.height)], (shade, shade, shade)
        )


def _disc(page: Page, x: float, y: float, radius: float, colour: Colour) -> None:
    pixels = np.asarray(page.image).copy()
    cv2.circle(
        pixels, (round(x * 16), round(y * 16)), round(radius * 16), colour, -1, cv2.LINE_AA, 4
    )
    page.background(pixels)


def _polygon(page: Page, points: list[tuple[float, float]], colour: Colour) -> None:
    pixels = np.asarray(page.image).copy()
    cv2.fillPoly(
        pixels, [np.round(np.asarray(points) * 16).astype(np.int32)], colour, cv2.LINE_AA, 4
    )
    page.background(pixels)


def speed_sign(page: Page) -> None:
    """Draw a round, triangular or rectangular sign with a number, and a plate below it."""
    style = page.style
    _outdoors(page, (0.7, 1.5))
    width, height = page.width, page.height
    radius = min(width, height) * style.uniform(0.17, 0.3)
    x, y = width * style.uniform(0.35, 0.65), height * style.uniform(0.32, 0.45)
    fade = style.uniform(0, 0.25)
    red, black, white = (
        mixed(c, (150, 150, 150), fade) for c in ((200, 20, 30), (15, 15, 15), (250, 250, 250))
    )
    _pole(page, x, y, radius * 0.16)
    family = style.choice(("sans", "plain", "sans"))
    shape = style.randrange(5)
    speeds = tuple(range(10, 140, 10))
    if shape <= 1:
        ground = white if style.random() < 0.8 else mixed((250, 210, 40), (150, 150, 150), fade)
        _disc(page, x, y, radius, red)
        _disc(page, x, y, radius * 0.78, ground)
        make, size = lambda rng: str(rng.choice(speeds)), 0.85
    elif shape == 2:
        blue = mixed((20, 80, 170), (150, 150, 150), fade)
        _disc(page, x, y, radius, white)
        _disc(page, x, y, radius * 0.94, blue)
        black, make, size = white, lambda rng: str(rng.choice(speeds)), 0.85
    elif shape == 3:
        _polygon(
            page,
            [
                (x - 1.1 * radius, y + 0.8 * radius),
                (x, y - radius),
                (x + 1.1 * radius, y + 0.8 * radius),
            ],
            red,
        )
        _polygon(
            page,
            [
                (x - 0.78 * radius, y + 0.62 * radius),
                (x, y - 0.64 * radius),
                (x + 0.78 * radius, y + 0.62 * radius),
            ],
            white,
        )
        make, size = lambda rng: f"{rng.randint(4, 18)}%", 0.5
        y += 0.3 * radius
    else:
        page.rectangle(
            (x - 0.8 * radius, y - radius, x + 0.8 * radius, y + radius),
            white,
            black,
            max(2, round(radius / 25)),
            radius / 9,
        )
        page.write(
            x,
            y - 0.7 * radius,
            style.choice(("SPEED", "ROUTE", "EXIT", "ZONE")),
            Font(family, max(10, round(radius * 0.3)), "bold"),
            black,
            "mm",
        )
        make, size = (
            lambda rng: str(rng.choice((15, 20, 25, 30, 35, 40, 45, 50, 55, 65, 70, 75))),
            0.85,
        )
        y += 0.2 * radius
    room = radius * (0.8 if shape == 3 else 1.35)
    number = page.fill("number", "sign", make)
    page.write(x, y, number, Font(family, round(radius * size), "bold"), black, "mm", room)
    if style.random() < 0.6:
        top = y + radius * (0.95 if shape == 4 else 1.12 if shape != 3 else 0.62)
        page.rectangle(
            (x - 0.85 * radius, top, x + 0.85 * radius, top + 0.5 * radius),
            white,
            black,
            max(2, round(radius / 30)),
        )
        plate = style.randrange(3)
        text = page.fill(
            "plate",
            "number",
            (
                lambda rng: f"{rng.randint(5, 11)} - {rng.randint(12, 22)} h",
                lambda rng: f"{rng.randint(2, 9) * 100} m",
                lambda rng: f"{rng.choice((3, 7, 12, 16, 28)) / 2:.1f} t",
            )[plate],
        )
        black = mixed((15, 15, 15), (150, 150, 150), fade)
        page.write(
            x,
            top + 0.26 * radius,
            text,
            Font(family, max(11, round(radius * 0.3)), "bold"),
            black,
            "mm",
            1.6 * radius,
        )


def direction_sign(page: Page) -> None:
    """Draw boards with towns, distances, arrows and road numbers."""
    style = page.style
    _outdoors(page, (0.55, 0.95))
    width, height = page.width, page.height
    fade = style.uniform(0, 0.2)
    ground, text = style.choice(
        (
            ((0, 90, 170), WHITE),
            ((0, 110, 70), WHITE),
            (WHITE, (10, 10, 10)),
            ((250, 205, 30), (10, 10, 10)),
            ((120, 70, 40), WHITE),
        )
    )
    ground, text = mixed(ground, (140, 140, 140), fade), mixed(text, (140, 140, 140), fade * 0.5)
    family = style.choice(("sans", "sans", "plain"))
    left, right = width * style.uniform(0.08, 0.2), width * style.uniform(0.8, 0.92)
    rows = style.randint(2, 4)
    top = height * style.uniform(0.08, 0.2)
    step = height * style.uniform(0.13, 0.17)
    boards = style.random() < 0.4
    for x in (left + 0.2 * (right - left), right - 0.2 * (right - left)):
        _pole(page, x, top, width * 0.018)
    edge = max(2, round(width / 250))
    if not boards:
        page.rectangle(
            (left, top, right, top + rows * step + 0.3 * step), ground, text, edge, step * 0.15
        )
    size = max(12, min(round(step * 0.5), round((right - left) / 16)))
    font = Font(family, size, "bold")
    for row in range(rows):
        y = top + (row + 0.5) * step + (0 if boards else 0.15 * step)
        to_left = style.random() < 0.5
        if boards:
            tip = step * 0.4
            points = [
                (left, y - 0.44 * step),
                (right, y - 0.44 * step),
                (right, y + 0.44 * step),
                (left, y + 0.44 * step),
            ]
            if to_left:
                points.append((left - tip, y))
            else:
                points.insert(2, (right + tip, y))
            _polygon(page, points, ground)
        x = left + 0.4 * size
        if not boards:
            _arrow(page, f"arrow {row}", x, y, size, text)
            x += 1.7 * size
        if style.random() < 0.4:
            tag = style.choice(((0, 60, 160), (190, 20, 30), (10, 110, 60)))
            page.rectangle((x, y - 0.55 * size, x + 2.4 * size, y + 0.55 * size), tag, WHITE, 2, 4)
            road = page.fill(
                f"road {row}", "number", lambda rng: f"{rng.choice('ABEM')}{rng.randint(1, 99)}"
            )
            page.write(x + 1.2 * size, y, road, font.scaled(0.75), WHITE, "mm", 2.2 * size)
            x += 2.9 * size
        room = right - x - 3 * size
        page.write(
            x,
            y,
            page.fill(f"town {row}", "name", lambda rng: rng.choice(CITIES)),
            font,
            text,
            "lm",
            room,
        )
        distance = page.fill(f"distance {row}", "number", lambda rng: str(rng.randint(2, 480)))
        page.write(right - 0.5 * size, y, distance, font, text, "rm", 2.5 * size)


def _arrow(page: Page, name: str, x: float, y: float, size: float, colour: Colour) -> None:
    """Draw an arrow; its direction is a field."""
    turn = page.fill(name, "sign", lambda rng: rng.choice((0, 90, 180, 45, 135)))
    x += 0.6 * size
    page.mark(name, (x - 0.7 * size, y - 0.7 * size, x + 0.7 * size, y + 0.7 * size))
    shape = (
        (-0.5, -0.1),
        (0.1, -0.1),
        (0.1, -0.35),
        (0.55, 0),
        (0.1, 0.35),
        (0.1, 0.1),
        (-0.5, 0.1),
    )
    c, s = math.cos(math.radians(turn)), -math.sin(math.radians(turn))
    _polygon(
        page, [(x + size * (a * c - b * s), y + size * (a * s + b * c)) for a, b in shape], colour
    )
