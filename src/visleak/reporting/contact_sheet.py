"""Images in named rows as one image, and a pair as one."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from visleak.errors import UsageError, VisleakError
from visleak.records import Bytes8
from visleak.reporting.drawing import printable
from visleak.reporting.gallery import Matrix, difference, enlarge, look_identical, shrink
from visleak.storage import write_bytes

#: Side of a tile, spaces and heights in pixels.
TILE: Final = 112
GAP: Final = 8
MARGIN: Final = 28
TITLE: Final = 30
NAME: Final = 170
LABEL: Final = 20

#: Fewest tiles that the sheet is wide.
NARROWEST: Final = 5

#: Kinds of images that are written, by the ending of their names, and the quality of JPEG.
DRAWN: Final = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
QUALITY: Final = 92

#: Side of the images of a pair.
PAIR: Final = 320

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
    return _sheet(title, [below], rows) if any(tiles for _, tiles in rows) else b""


def drawable(path: Path) -> str:
    """Return what an image of this name is, as Pillow calls it."""
    if path.suffix.lower() not in DRAWN:
        raise UsageError(f"{path} is to be an image; choose a name that ends in .png or .jpg")
    return DRAWN[path.suffix.lower()]


def pair_card(
    query: Bytes8,
    reference: Bytes8,
    matrix: Matrix = None,
    *,
    title: str = "",
    lines: Sequence[str] = (),
    kind: str = "PNG",
) -> bytes:
    """Return a pair as one image: query, reference, aligned and plain difference, under a title.

    Images that look identical have no differences, which would be black.
    """
    images = {"query": query, "reference": reference}
    if look_identical(query, reference, PAIR):
        lines = [*lines, "the images look identical"]
    else:
        images["difference, aligned"] = difference(query, reference, matrix, side=PAIR)
        images["difference, plain"] = difference(query, reference, None, fit=False, side=PAIR)
    tiles = [Tile(name, partial(shrink, pixels, PAIR)) for name, pixels in images.items()]
    return _sheet(title, lines, [("", tiles)], PAIR, kind, above=True)


def write_card(
    path: Path,
    query: Bytes8,
    reference: Bytes8,
    matrix: Matrix = None,
    *,
    title: str = "",
    lines: Sequence[str] = (),
) -> Path:
    """Write a pair as one image; see :func:`pair_card`."""
    data = pair_card(query, reference, matrix, title=title, lines=lines, kind=drawable(path))
    try:
        write_bytes(path, data)
    except OSError as error:
        raise VisleakError(
            f"{path} cannot be written ({error.strerror}); choose another file"
        ) from error
    return path


def _sheet(
    title: str,
    lines: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Tile]]],
    side: int = TILE,
    kind: str = "PNG",
    *,
    above: bool = False,
) -> bytes:
    """Return the sheet; names stand below the tiles, or above where there are only a few."""
    across = max(len(tiles) for _, tiles in rows)
    named = any(name for name, _ in rows)
    indent = MARGIN + (NAME if named else 0)
    wide = indent + max(across, NARROWEST if named else 0) * (side + GAP) - GAP + MARGIN
    head = MARGIN + TITLE + LABEL * len(lines)
    step = side + LABEL + GAP
    made = Image.new("RGB", (wide, head + len(rows) * step + MARGIN // 2), _PAPER)
    draw = ImageDraw.Draw(made)
    large, medium, small = (ImageFont.load_default(size) for size in (19, 16, 14))
    room = wide - 2 * MARGIN
    draw.text((MARGIN, MARGIN - 6), _fitted(printable(title), large, room), _INK, large)
    for at, line in enumerate(lines):
        top = MARGIN + TITLE - 6 + LABEL * at
        draw.text((MARGIN, top), _fitted(printable(line), small, room), _QUIET, small)
    for row, (name, tiles) in enumerate(rows):
        top = head + GAP + row * step
        for at, line in enumerate(_lines(name, medium, NAME - 2 * GAP)[:3]):
            draw.text((MARGIN, top + side // 2 - 20 + 20 * at), line, _INK, medium)
        for number, tile in enumerate(tiles):
            left = indent + number * (side + GAP)
            _place(made, tile.image(), (left, top + LABEL * above), side)
            font, ink = (medium, _INK) if above else (small, _QUIET)
            label = _fitted(printable(tile.label), font, side)
            draw.text((left + 1, top - 2 if above else top + side + 3), label, ink, font)
    out = io.BytesIO()
    made.save(out, kind, quality=QUALITY)
    return out.getvalue()


def _place(made: Image.Image, pixels: Bytes8, at: tuple[int, int], side: int) -> None:
    fitted = enlarge(shrink(pixels, side), side)
    high, wide = fitted.shape[:2]
    ImageDraw.Draw(made).rectangle((*at, at[0] + side - 1, at[1] + side - 1), _MAT)
    made.paste(Image.fromarray(fitted), (at[0] + (side - wide) // 2, at[1] + (side - high) // 2))


def _lines(text: str, font: _Font, width: float) -> list[str]:
    lines = [""]
    for word in printable(text).split():
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
