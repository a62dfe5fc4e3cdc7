"""Images in named rows as one image."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from visleak.gallery import enlarge, shrink
from visleak.records import Bytes8

#: Side of a tile, spaces and heights in pixels.
TILE: Final = 112
GAP: Final = 8
MARGIN: Final = 28
TITLE: Final = 30
NAME: Final = 170
LABEL: Final = 20

#: Fewest tiles that the sheet is wide.
NARROWEST: Final = 5

_PAPER: Final = (255, 255, 255)
_MAT: Final = (240, 242, 245)
_INK: Final = (29, 33, 39)
_QUIET: Final = (92, 99, 108)

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, slots=True)
class Tile:
    """An image of a sheet."""

    label: str
    image: Callable[[], Bytes8]


def contact_sheet(title: str, below: str, rows: Sequence[tuple[str, Sequence[Tile]]]) -> bytes:
    """Return images as PNG; nothing where there is none."""
    if not any(tiles for _, tiles in rows):
        return b""
    across = max(NARROWEST, *(len(tiles) for _, tiles in rows))
    wide = 2 * MARGIN + NAME + across * (TILE + GAP) - GAP
    high = MARGIN + TITLE + LABEL + len(rows) * (TILE + LABEL + GAP) + MARGIN // 2
    made = Image.new("RGB", (wide, high), _PAPER)
    draw = ImageDraw.Draw(made)
    large, medium, small = (ImageFont.load_default(size) for size in (19, 16, 14))
    draw.text((MARGIN, MARGIN - 6), _fitted(_safe(title), large, wide - 2 * MARGIN), _INK, large)
    draw.text((MARGIN, MARGIN + TITLE - 6), _safe(below), _QUIET, small)
    for row, (name, tiles) in enumerate(rows):
        top = MARGIN + TITLE + LABEL + GAP + row * (TILE + LABEL + GAP)
        for at, line in enumerate(_lines(name, medium, NAME - 2 * GAP)[:3]):
            draw.text((MARGIN, top + TILE // 2 - 20 + 20 * at), line, _INK, medium)
        for number, tile in enumerate(tiles):
            left = MARGIN + NAME + number * (TILE + GAP)
            _place(made, tile.image(), (left, top))
            label = _fitted(_safe(tile.label), small, TILE)
            draw.text((left + 1, top + TILE + 3), label, _QUIET, small)
    out = io.BytesIO()
    made.save(out, "PNG")
    return out.getvalue()


def _place(made: Image.Image, pixels: Bytes8, at: tuple[int, int]) -> None:
    fitted = enlarge(shrink(pixels, TILE), TILE)
    high, wide = fitted.shape[:2]
    ImageDraw.Draw(made).rectangle((*at, at[0] + TILE - 1, at[1] + TILE - 1), _MAT)
    made.paste(Image.fromarray(fitted), (at[0] + (TILE - wide) // 2, at[1] + (TILE - high) // 2))


def _lines(text: str, font: _Font, width: float) -> list[str]:
    lines = [""]
    for word in _safe(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [_fitted(line, font, width) for line in lines]


def _fitted(line: str, font: _Font, width: float) -> str:
    if font.getlength(line) <= width:
        return line
    line = line[: int(width)]  # no character is narrower than a pixel
    while line and font.getlength(f"{line}…") > width:
        line = line[:-1]
    return f"{line}…"


def _safe(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
