"""Sheet music."""

from __future__ import annotations

import math

from documents.page import Colour, Font, Page, ink, mixed, paper
from documents.words import (
    LAST,
    phrase,
)

WHITE = (255, 255, 255)


PIECES = ("Sonata", "Minuet", "Waltz", "Song", "Prelude", "March")


def music(page: Page) -> None:
    """Draw a page of sheet music: staves, bars, notes, a title and a tempo."""
    style = page.style
    page.start(style.uniform(0.8, 1.45), paper(style))
    page.grain = style.choice((0, 2.0, 4.0))
    width, height = page.width, page.height
    colour, size = ink(style), max(11, round(width / 46))
    font = Font(style.choice(("serif", "stix", "roman")), size)
    left, right = width * 0.07, width * 0.94
    title = page.fill(
        "title",
        "title",
        lambda rng: f"{rng.choice(PIECES)} No. {rng.randint(1, 48)}",
    )
    page.write(width / 2, height * 0.07, title, Font(font.family, 2 * size), colour, "ms")
    page.write(
        right,
        height * 0.105,
        page.fill("composer", "name", lambda rng: f"{rng.choice('ABCDEFGHJ')}. {rng.choice(LAST)}"),
        font,
        colour,
        "rs",
    )
    page.write(
        left,
        height * 0.105,
        page.fill(
            "tempo",
            "number",
            lambda rng: f"{rng.choice(('Allegro', 'Andante', 'Presto'))} {rng.randint(56, 168)}",
        ),
        font.italic(),
        colour,
    )
    staves = style.randint(3, 9)
    step = height * 0.84 / staves
    gap = min(step / style.uniform(9, 11), width / 60)
    bars_, notes = style.choice(((2, 4), (2, 6), (3, 3), (3, 4), (4, 3), (4, 4), (5, 3), (2, 8)))
    meter, sung = style.choice(("3", "4", "2", "6")), style.random() < 0.3
    for stave in range(staves):
        top = height * 0.14 + stave * step
        for i in range(5):
            page.line(
                [(left, top + i * gap), (right, top + i * gap)], mixed(colour, page.paper, 0.2)
            )
        start = left + 3.6 * gap
        page.smooth(
            [
                (left + gap * (1.4 + 0.7 * math.sin(t * 0.5)), top + gap * (5.3 - t * 0.27))
                for t in range(25)
            ],
            colour,
            max(1.5, gap / 5),
        )
        if stave == 0:
            for i in (0, 2):
                page.write(
                    start,
                    top + (i + 1) * gap,
                    meter if i == 0 else "4",
                    Font("serif", max(10, round(2.2 * gap)), "bold"),
                    colour,
                    "mm",
                )
            start += 2.4 * gap
        span = (right - start) / bars_
        for bar in range(bars_):
            page.line(
                [(start + (bar + 1) * span, top), (start + (bar + 1) * span, top + 4 * gap)],
                colour,
                1.5,
            )
            for note in range(notes):
                name = f"note {stave} {bar} {note}"
                pitch = page.fill(name, "point", lambda rng: rng.randint(-2, 10))
                x = start + bar * span + (note + 0.8) * span / (notes + 0.6)
                page.mark(name, (x - gap * 1.2, top - 5 * gap, x + 1.2 * gap, top + 9 * gap))
                _note(page, x, top + 4 * gap - pitch * gap / 2, gap, pitch, colour)
                if sung:
                    syllable = page.fill(
                        f"text {stave} {bar} {note}",
                        "word",
                        lambda rng: phrase(rng, 1, 1).lower()[:5],
                    )
                    page.mark(name, (x - 3 * gap, top + 5 * gap, x + 3 * gap, top + 9 * gap))
                    page.write(
                        x,
                        top + 7.6 * gap,
                        syllable,
                        font.scaled(0.75),
                        colour,
                        "ms",
                        span / (notes + 0.6),
                    )


def _note(page: Page, x: float, y: float, gap: float, pitch: int, colour: Colour) -> None:
    """Draw a quarter note with its stem and its ledger lines."""
    page.draw.ellipse((x - 0.62 * gap, y - 0.45 * gap, x + 0.62 * gap, y + 0.45 * gap), fill=colour)
    if pitch < 4:
        page.line([(x + 0.55 * gap, y), (x + 0.55 * gap, y - 3.2 * gap)], colour, max(1, gap / 6))
    else:
        page.line([(x - 0.55 * gap, y), (x - 0.55 * gap, y + 3.2 * gap)], colour, max(1, gap / 6))
    if pitch in {-2, 10}:
        page.line([(x - gap, y), (x + gap, y)], colour)
