"""Street maps."""

from __future__ import annotations

import math

import cv2
import numpy as np

from documents.page import Colour, Font, Page, mixed
from documents.words import (
    CITIES,
    STREETS,
)

WHITE = (255, 255, 255)


def map_(page: Page) -> None:
    """Draw a street map with markers, names, a route and a scale."""
    style = page.style
    themes = (
        (
            (242, 239, 233),
            (255, 255, 255),
            (205, 200, 190),
            (170, 211, 223),
            (200, 225, 180),
            (60, 60, 60),
        ),
        ((36, 40, 48), (72, 78, 92), (50, 55, 66), (22, 42, 66), (38, 58, 48), (220, 220, 220)),
        (
            (250, 246, 226),
            (250, 205, 90),
            (150, 140, 120),
            (120, 180, 220),
            (170, 205, 130),
            (30, 30, 30),
        ),
        (
            (255, 255, 255),
            (225, 225, 225),
            (150, 150, 150),
            (205, 215, 225),
            (232, 238, 230),
            (40, 40, 40),
        ),
    )
    land, road, edge, water, park, text = style.choice(themes)
    page.start(style.uniform(0.6, 1.3), land)
    width, height = page.width, page.height
    unit = max(width, height) / 100
    pixels = np.asarray(page.image).copy()

    def band(points: list[tuple[float, float]], colour: Colour, thick: float) -> None:
        fixed = np.round(np.asarray(points) * 16).astype(np.int32)
        cv2.polylines(pixels, [fixed], False, colour, max(1, round(thick)), cv2.LINE_AA, 4)

    def wander(x: float, y: float, angle: float, bend: float) -> list[tuple[float, float]]:
        points = [(x, y)]
        for _ in range(60):
            angle += style.gauss(0, bend)
            x, y = x + 3 * unit * math.cos(angle), y + 3 * unit * math.sin(angle)
            points.append((x, y))
        return points

    for _ in range(style.randint(1, 5)):
        x, y = style.uniform(0, width), style.uniform(0, height)
        corners = [
            (
                x + style.uniform(6, 18) * unit * math.cos(a),
                y + style.uniform(6, 18) * unit * math.sin(a),
            )
            for a in (0, 1, 2, 3, 4, 5)
        ]
        cv2.fillPoly(
            pixels,
            [np.round(corners).astype(np.int32)],
            style.choice((park, park, water)),
            cv2.LINE_AA,
        )
    if style.random() < 0.7:
        band(
            wander(0, style.uniform(0.2, 0.8) * height, 0, 0.18), water, style.uniform(3, 9) * unit
        )
    tilt, pitch = style.uniform(-0.6, 0.6), style.uniform(6, 13) * unit
    along, aside = (
        np.array((math.cos(tilt), math.sin(tilt))),
        np.array((-math.sin(tilt), math.cos(tilt))),
    )
    centre, reach = np.array((width / 2, height / 2)), width + height
    streets = []
    for direction, other in ((along, aside), (aside, along)):
        at = -reach / 2
        while at < reach / 2:
            at += pitch * style.uniform(0.6, 1.5)
            bowed = style.gauss(0, 2 * unit)
            points = [
                tuple(
                    centre + other * (at + bowed * math.sin(t * 3)) + direction * reach * (t - 0.5)
                )
                for t in np.linspace(0, 1, 12)
            ]
            streets.append((points, style.choice((0.7, 0.7, 1.0, 1.9)) * unit))
    streets.append((wander(0, style.uniform(0, height), style.uniform(-0.5, 0.5), 0.1), 2.6 * unit))
    for points, thick in streets:
        band(points, edge, thick + 2)
    for points, thick in streets:
        band(points, road, thick)
    if style.random() < 0.5:
        band(
            wander(0, style.uniform(0, height), style.uniform(-0.5, 0.5), 0.12),
            (60, 110, 230),
            unit,
        )
    page.background(pixels)
    size = max(10, round(unit * style.uniform(1.5, 2.1)))
    font = Font(style.choice(("sans", "sans", "stix", "plain")), size)
    slots = [(0.06 + 0.22 * i, 0.08 + 0.1 * j) for i in range(4) for j in range(9)]
    style.shuffle(slots)
    for number in range(style.randint(5, 14)):
        x, y = slots[number]
        name = page.fill(
            f"street {number}",
            "name",
            lambda rng: (
                f"{rng.choice((*STREETS, *CITIES))} {rng.choice(('St', 'Road', 'Park', 'Square'))}"
            ),
        )
        page.write(x * width, y * height, name, font, text, "lm", 0.22 * width)
    for number in range(style.randint(1, 6)):
        colour = style.choice(((214, 45, 45), (40, 90, 200), (30, 140, 60), (230, 130, 20)))
        name, letter = f"marker {number}", style.choice("ABCDEFGH123456789")
        x, y = page.fill(
            name,
            "marker",
            lambda rng: (rng.uniform(0.05, 0.95) * width, rng.uniform(0.12, 0.95) * height),
        )
        r = 1.7 * unit
        page.mark(name, (x - r - 2, y - 2.8 * r, x + r + 2, y + 2))
        page.draw.polygon(
            [(x - 0.85 * r, y - 1.3 * r), (x, y), (x + 0.85 * r, y - 1.3 * r)], fill=colour
        )
        page.draw.ellipse((x - r, y - 2.7 * r, x + r, y - 0.7 * r), fill=colour)
        page.write(
            x, y - 1.7 * r, letter, Font("sans", max(9, round(r * 1.1)), "bold"), WHITE, "mm"
        )
    page.rectangle(
        (width * 0.02, height - 3.4 * unit, width * 0.02 + 17 * unit, height - 0.8 * unit),
        land,
        edge,
    )
    scale = page.fill(
        "scale", "number", lambda rng: f"{rng.choice((50, 100, 200, 250, 500, 750))} m"
    )
    page.write(width * 0.02 + 9 * unit, height - 2.1 * unit, scale, font.scaled(0.9), text, "lm")
    page.line(
        [
            (width * 0.02 + unit, height - 1.6 * unit),
            (width * 0.02 + 8 * unit, height - 1.6 * unit),
        ],
        text,
        2,
    )
    if style.random() < 0.5:
        page.rectangle((width - 26 * unit, 0, width, 4.4 * unit), mixed(land, WHITE, 0.5), edge)
        distance = page.fill(
            "distance",
            "number",
            lambda rng: f"{rng.uniform(0.4, 30):.1f} km, {rng.randint(2, 59)} min",
        )
        page.write(width - 13 * unit, 2.2 * unit, distance, font, (20, 20, 20), "mm", 25 * unit)
