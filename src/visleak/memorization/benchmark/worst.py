"""The worst images of each method by aesthetic score, as one picture."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from visleak.gallery import enlarge, shrink
from visleak.memorization.benchmark.numbers import Measured
from visleak.records import Bytes8

#: Images a row, rows at most, side of a tile, spaces and heights in pixels.
ACROSS: Final = 8
ROWS: Final = 40
TILE: Final = 112
GAP: Final = 8
MARGIN: Final = 28
TITLE: Final = 30
NAME: Final = 170
LABEL: Final = 20

_PAPER: Final = (255, 255, 255)
_MAT: Final = (240, 242, 245)
_INK: Final = (29, 33, 39)
_QUIET: Final = (92, 99, 108)

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, slots=True)
class Worst:
    """An image with a low aesthetic score.

    Attributes:
        digest: of the image.
        score: its aesthetic score.
        prompt: number of its prompt, from 0.
    """

    digest: str
    score: float
    prompt: int


def worst_of(measured: Measured, count: int = ACROSS) -> list[Worst]:
    """Return the images with the lowest aesthetic scores, one a prompt and picture."""
    found: list[Worst] = []
    seen: set[str] = set()
    places = np.argsort(measured.aesthetic, axis=1, kind="stable")
    scores = np.take_along_axis(measured.aesthetic, places, axis=1)[:, 0]
    for prompt in np.argsort(scores, kind="stable").tolist():
        digest = measured.digests[prompt][int(places[prompt, 0])]
        if digest not in seen and np.isfinite(scores[prompt]):
            seen.add(digest)
            found.append(Worst(digest, float(scores[prompt]), prompt))
        if len(found) == count:
            break
    return found


def worst_sheet(
    rows: Sequence[tuple[str, Sequence[Worst]]], picture: Callable[[str], Bytes8]
) -> bytes:
    """Return the sheet as PNG; nothing where nothing was scored.

    Args:
        rows: name of a method and its setting, and its worst images, the worst first.
        picture: returns the pixels of an image by its digest.
    """
    shown = [(name, images) for name, images in rows if images][:ROWS]
    if not shown:
        return b""
    across = max(5, *(min(len(images), ACROSS) for _, images in shown))
    wide = 2 * MARGIN + NAME + across * (TILE + GAP) - GAP
    high = MARGIN + TITLE + LABEL + len(shown) * (TILE + LABEL + GAP) + MARGIN // 2
    made = Image.new("RGB", (wide, high), _PAPER)
    draw = ImageDraw.Draw(made)
    title, name_font, small = (ImageFont.load_default(size) for size in (20, 16, 14))
    draw.text((MARGIN, MARGIN - 6), "The worst images by aesthetic score", _INK, title)
    told = "trigger prompts, at most one image each, the worst first"
    draw.text((MARGIN, MARGIN + TITLE - 6), told, _QUIET, small)
    for row, (name, images) in enumerate(shown):
        top = MARGIN + TITLE + LABEL + GAP + row * (TILE + LABEL + GAP)
        middle = top + TILE // 2 - 20
        for at, line in enumerate(_lines(name, name_font, NAME - 2 * GAP)[:3]):
            draw.text((MARGIN, middle + 20 * at), line, _INK, name_font)
        for number, each in enumerate(images[:ACROSS]):
            left = MARGIN + NAME + number * (TILE + GAP)
            _place(made, picture(each.digest), (left, top))
            draw.text((left + 1, top + TILE + 3), f"{each.score:.2f}", _QUIET, small)
    out = io.BytesIO()
    made.save(out, "PNG")
    return out.getvalue()


def _place(made: Image.Image, pixels: Bytes8, at: tuple[int, int]) -> None:
    """Paste a picture into the middle of a tile."""
    fitted = enlarge(shrink(pixels, TILE), TILE)
    high, wide = fitted.shape[:2]
    ImageDraw.Draw(made).rectangle((*at, at[0] + TILE - 1, at[1] + TILE - 1), _MAT)
    made.paste(Image.fromarray(fitted), (at[0] + (TILE - wide) // 2, at[1] + (TILE - high) // 2))


def _lines(text: str, font: _Font, width: float) -> list[str]:
    """Return a name in lines that fit: anybody's text."""
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    lines = [""]
    for word in safe.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [_fitted(line, font, width) for line in lines]


def _fitted(line: str, font: _Font, width: float) -> str:
    if font.getlength(line) <= width:
        return line
    while line and font.getlength(f"{line}…") > width:
        line = line[:-1]
    return f"{line}…"
