"""Source code in an editor."""

from __future__ import annotations

from documents.page import Colour, Font, Page, accent, mixed
from documents.screens import DARK, LIGHT, title_bar
from documents.words import (
    PROSE,
    phrase,
)

WHITE = (255, 255, 255)


def source(page: Page) -> None:
    """Draw source code in an editor, with line numbers and colours."""
    style = page.style
    theme = style.choice(DARK) if style.random() < 0.6 else style.choice(LIGHT)
    ground, panel, text, _ = theme
    dark = ground[0] < 128
    page.start(style.uniform(0.5, 1.1), ground, squeeze=0.08)
    width, height = page.width, page.height
    size = max(11, round(width / style.uniform(52, 84)))
    font = Font(style.choice(("mono", "mono", "typewriter")), size)
    lift = 0.45 if dark else 0.0
    keyword, number_colour, string, comment = (mixed(accent(style), WHITE, lift) for _ in range(4))
    y = 0.0
    if style.random() < 0.7:
        title_bar(page, (0, 0, width, 2.2 * size), Font("sans", size), theme, accent(style))
        y = 2.2 * size
    margin = 4 * size
    step = size * style.uniform(1.35, 1.7)
    page.rectangle((0, y, margin - size, height), panel)
    first, cell = style.randint(1, 400), font.width("m")
    depth, current = 0, style.randrange(4, 20)
    line = 0
    while y + step < height - step * 0.5:
        y += step
        if line == current:
            page.rectangle((margin - size, y - 0.8 * step, width, y + 0.25 * step), panel)
        page.write(margin - 1.5 * size, y, str(first + line), font, mixed(text, ground, 0.5), "rs")
        x = margin + depth * 4 * cell
        kind = style.choices(
            ("call", "set", "if", "for", "comment", "blank", "return", "def"),
            (5, 5, 2, 2, 2, 2, 2, 2),
        )[0]
        depth_next = depth
        parts: list[tuple[str, Colour, str]] = []
        name = f"line {line} "
        if kind == "call":
            parts = [
                ("word", text, ""),
                ("", text, "."),
                ("word", text, ""),
                ("", text, "("),
                ("number", number_colour, ""),
                ("", text, ")"),
            ]
        elif kind == "set":
            parts = [
                ("word", text, ""),
                ("", text, " = "),
                style.choice((("number", number_colour, ""), ("string", string, ""))),
            ]
        elif kind in {"if", "for"}:
            parts = [
                ("", keyword, "if " if kind == "if" else "while "),
                ("word", text, ""),
                ("", text, " < "),
                ("number", number_colour, ""),
                ("", text, ":"),
            ]
            depth_next = min(depth + 1, 4)
        elif kind == "comment":
            parts = [("comment", comment, "")]
        elif kind == "return":
            parts = [("", keyword, "return "), ("word", text, "")]
            depth_next = max(depth - 1, 0)
        elif kind == "def":
            depth = depth_next = 0
            x = margin
            parts = [
                ("", keyword, "def "),
                ("word", string, ""),
                ("", text, "("),
                ("word", text, ""),
                ("", text, "):"),
            ]
            depth_next = 1
        for i, (what, colour, fixed) in enumerate(parts):
            # a field has a slot of its own width, so that the rest of the line stays in place
            slot = style.randint(4, 9)
            shown: str = fixed
            if what == "word":
                fitting = [w for w in PROSE if len(w) == slot]
                shown = page.fill(
                    name + str(i), "word", lambda rng, fitting=fitting: rng.choice(fitting)
                )
            elif what == "number":
                shown = page.fill(
                    name + str(i),
                    "number",
                    lambda rng, slot=slot: str(
                        rng.randrange(10 ** (slot // 2 - 1), 10 ** (slot // 2))
                    ),
                )
            elif what == "string":
                fitting = [w for w in PROSE if len(w) == slot]
                shown = page.fill(
                    name + str(i), "word", lambda rng, fitting=fitting: f'"{rng.choice(fitting)}"'
                )
            elif what == "comment":
                shown = page.fill(name + str(i), "title", lambda rng: f"# {phrase(rng, 3, 6)}")
            page.write(x, y, shown, font, colour)
            x += len(shown) * cell
        depth = depth_next
        line += 1
