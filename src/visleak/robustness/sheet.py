"""One picture under every condition, labelled, on one sheet (Ramos et al. 2025, figure 6)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from visleak.gallery import enlarge, shrink
from visleak.records import Bytes8

#: Side of a cell's picture, gap and label height, pixels.
SIDE: Final = 200
GAP: Final = 14
LABEL: Final = 26
COLUMNS: Final = 7

_PAPER: Final = (255, 255, 255)
_MAT: Final = (240, 242, 245)
_INK: Final = (29, 33, 39)
_QUIET: Final = (120, 127, 136)

#: A condition's name and what it made of the picture; ``None`` where it does not apply.
Cell = tuple[str, Bytes8 | None]


def contact_sheet(cells: Sequence[Cell]) -> Bytes8:
    """Return the sheet, RGB ``uint8``; seven cells a row.

    Pictures keep their relative shape, not their size: each fills its cell.
    """
    columns = min(COLUMNS, len(cells))
    rows = math.ceil(len(cells) / columns)
    width = GAP + columns * (SIDE + GAP)
    sheet = Image.new("RGB", (width, GAP + rows * (SIDE + LABEL + GAP)), _PAPER)
    draw = ImageDraw.Draw(sheet)
    font, small = ImageFont.load_default(17), ImageFont.load_default(14)
    for number, (name, pixels) in enumerate(cells):
        x = GAP + (number % columns) * (SIDE + GAP)
        y = GAP + (number // columns) * (SIDE + LABEL + GAP)
        draw.text((x, y), name, _INK, font)
        box = (x, y + LABEL, x + SIDE - 1, y + LABEL + SIDE - 1)
        draw.rectangle(box, _MAT)
        if pixels is None:
            centre = (x + SIDE / 2, y + LABEL + SIDE / 2)
            draw.text(centre, "does not apply", _QUIET, small, "mm")
            continue
        shown = enlarge(shrink(pixels, SIDE), SIDE)
        tall, wide = shown.shape[:2]
        at = (x + (SIDE - wide) // 2, y + LABEL + (SIDE - tall) // 2)
        sheet.paste(Image.fromarray(shown), at)
    return np.asarray(sheet, np.uint8)


def encoded(pixels: Bytes8, kind: str) -> bytes:
    """Return a picture as ``png``, or as ``webp`` where size matters more than every pixel."""
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    if kind == "png":
        image.save(file, "PNG", optimize=True)
    else:
        image.save(file, "WEBP", quality=80, method=6)
    return file.getvalue()
