"""A cluster as one picture: its medoid, and the images that are nearly the same."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from visleak.gallery import enlarge, shrink
from visleak.memorization.extraction.records import Cluster
from visleak.records import Bytes8

#: Long side of a tile and of the medoid, space around and between, heights of lines, pixels.
TILE: Final = 96
LARGE: Final = 3 * TILE + 2 * 6
GAP: Final = 6
MARGIN: Final = 28
TITLE: Final = 30
LABEL: Final = 26

#: Tiles beside each other, and at most on a sheet.
COLUMNS: Final = 10
MOST: Final = 60

_PAPER: Final = (255, 255, 255)
_MAT: Final = (240, 242, 245)
_INK: Final = (29, 33, 39)
_QUIET: Final = (92, 99, 108)

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def sheet(cluster: Cluster, digests: Sequence[str], picture: Callable[[str], Bytes8]) -> bytes:
    """Return the contact sheet of a cluster as PNG.

    Args:
        cluster: what is told of it.
        digests: its images, the medoid first, then by falling similarity to it.
        picture: returns the pixels of an image by its digest.
    """
    shown = digests[1 : MOST + 1]
    rows = max(3, -(-len(shown) // COLUMNS))
    wide = MARGIN + LARGE + 2 * GAP + COLUMNS * (TILE + GAP) - GAP + MARGIN
    high = MARGIN + TITLE + LABEL + rows * (TILE + GAP) + LABEL + MARGIN // 2
    made = Image.new("RGB", (wide, high), _PAPER)
    draw = ImageDraw.Draw(made)
    title, small = ImageFont.load_default(19), ImageFont.load_default(15)
    room = wide - 2 * MARGIN
    draw.text((MARGIN, MARGIN), _fitted(cluster.prompt, title, room), _INK, title)
    draw.text((MARGIN, MARGIN + TITLE), _told(cluster), _QUIET, small)
    top = MARGIN + TITLE + LABEL + GAP
    _place(made, picture(digests[0]), (MARGIN, top), LARGE)
    draw.text((MARGIN, top + LARGE + 4), f"medoid, seed {cluster.seed}", _QUIET, small)
    left = MARGIN + LARGE + 2 * GAP
    for number, digest in enumerate(shown):
        row, column = divmod(number, COLUMNS)
        at = (left + column * (TILE + GAP), top + row * (TILE + GAP))
        _place(made, picture(digest), at, TILE)
    if len(digests) - 1 > len(shown):
        rest = f"and {len(digests) - 1 - len(shown):,} more"
        draw.text((left, top + rows * (TILE + GAP) - 2), rest, _QUIET, small)
    out = io.BytesIO()
    made.save(out, "PNG")
    return out.getvalue()


def _told(cluster: Cluster) -> str:
    return (
        f"{cluster.size:,} of {cluster.images:,} images are nearly the same; median similarity to"
        f" the medoid {cluster.cohesion:.2f}; by falling similarity"
    )


def _place(made: Image.Image, pixels: Bytes8, at: tuple[int, int], side: int) -> None:
    """Paste a picture into the middle of a square."""
    fitted = enlarge(shrink(pixels, side), side)
    high, wide = fitted.shape[:2]
    ImageDraw.Draw(made).rectangle((*at, at[0] + side - 1, at[1] + side - 1), _MAT)
    inside = (at[0] + (side - wide) // 2, at[1] + (side - high) // 2)
    made.paste(Image.fromarray(fitted), inside)


def _fitted(text: str, font: _Font, width: float) -> str:
    """Return a prompt as it fits: anybody's text."""
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if font.getlength(safe) <= width:
        return safe
    safe = safe[: int(width)]  # no sign is drawn narrower than a pixel
    while safe and font.getlength(f"{safe}…") > width:
        safe = safe[:-1]
    return f"{safe}…"
