"""The most alike test-train pairs as pictures on one sheet (Babu et al. 2025, figures 7 and 8)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image, ImageDraw, ImageFont

from visleak.dlede.lesson import Split
from visleak.dlede.results import AlikePair, HashEvidence
from visleak.errors import UsageError
from visleak.gallery import enlarge, shrink
from visleak.images import decode
from visleak.records import Bytes8, ImageSet, Unreadable

#: Long side of a picture, space around pairs, space within a pair, and heights of text, pixels.
SIDE: Final = 260
MARGIN: Final = 28
GAP: Final = 6
TITLE: Final = 30
LABEL: Final = 24

#: Pairs beside each other, and at most on a sheet.
COLUMNS: Final = 2
PAIRS: Final = 8

_PAPER: Final = (255, 255, 255)
_MAT: Final = (240, 242, 245)
_INK: Final = (29, 33, 39)
_QUIET: Final = (92, 99, 108)


def alike_pictures(split: Split, evidence: HashEvidence, count: int = PAIRS) -> bytes:
    """Return the sheet as PNG: test image left, training image right, their distance above.

    The pictures are read again. Each test image is shown once, with the training image most like
    it: else one test image with many alike training images would fill the sheet.

    Args:
        split: the sets.
        evidence: of them; its list of alike pairs is drawn from.
        count: most pairs, 1 to 8.

    Raises:
        UsageError: another ``count``.
    """
    if not 1 <= count <= PAIRS:
        raise UsageError(f"count must be 1 to {PAIRS} pairs; got {count}")
    pairs = distinct(evidence.alike, count)
    tests = _pictures(split.test, [pair.test for pair in pairs])
    trains = _pictures(split.train, [pair.train for pair in pairs])
    cards = [_card(pair, tests[pair.test], trains[pair.train]) for pair in pairs]
    return _png(_sheet(cards))


def distinct(pairs: Sequence[AlikePair], count: int) -> list[AlikePair]:
    """Return the first pair of each test image, up to ``count``."""
    first: dict[str, AlikePair] = {}
    for pair in pairs:
        first.setdefault(pair.test, pair)
    return list(first.values())[:count]


def _pictures(images: ImageSet, ids: Sequence[str]) -> dict[str, Bytes8 | None]:
    """Return the thumbnails of some images; ``None`` for one that can no longer be read."""
    wanted = pa.array(sorted(set(ids)), images.ids.type)
    rows = np.flatnonzero(pc.is_in(images.ids, wanted).to_numpy(zero_copy_only=False))
    found: dict[str, Bytes8 | None] = dict.fromkeys(ids)
    for row, data in zip(rows, images.opener.read(rows.tolist()), strict=True):
        seen = data if isinstance(data, Unreadable) else decode(data)
        if not isinstance(seen, Unreadable):
            found[images.ids[int(row)].as_py()] = enlarge(shrink(seen.pixels, SIDE), SIDE)
    return found


def _card(pair: AlikePair, test: Bytes8 | None, train: Bytes8 | None) -> Image.Image:
    """Return one pair with its distance and names."""
    shown = [each for each in (test, train) if each is not None]
    tall = max((each.shape[0] for each in shown), default=SIDE // 2)
    card = Image.new("RGB", (2 * SIDE + GAP, TITLE + tall + LABEL), _PAPER)
    draw = ImageDraw.Draw(card)
    alike = "equal hashes" if not pair.distance else f"{pair.distance} of 64 bits apart"
    draw.text((0, 0), alike, _INK, ImageFont.load_default(19))
    font = ImageFont.load_default(15)
    for number, (side, name, pixels) in enumerate(
        (("test", pair.test, test), ("train", pair.train, train))
    ):
        left = number * (SIDE + GAP)
        draw.rectangle((left, TITLE, left + SIDE - 1, TITLE + tall - 1), _MAT)
        if pixels is None:
            centre = (left + SIDE / 2, TITLE + tall / 2)
            draw.text(centre, "can no longer be read", _QUIET, font, "mm")
        else:
            high, wide = pixels.shape[:2]
            at = (left + (SIDE - wide) // 2, TITLE + (tall - high) // 2)
            card.paste(Image.fromarray(pixels), at)
        below = (left, TITLE + tall + 6)
        draw.text(below, f"{side}  ", _QUIET, font)
        indent = font.getlength(f"{side}  ")
        draw.text((left + indent, below[1]), _fitted(name, font, SIDE - indent), _INK, font)
    return card


def _fitted(name: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> str:
    """Return an id as it fits: anybody's text, and its end tells more than its beginning."""
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    if font.getlength(safe) <= width:
        return safe
    safe = safe[-int(width) :]  # no sign is drawn narrower than a pixel
    while safe and font.getlength(f"…{safe}") > width:
        safe = safe[1:]
    return f"…{safe}"


def _sheet(cards: Sequence[Image.Image]) -> Image.Image:
    """Return the cards side by side, rows as high as their highest card."""
    if not cards:
        return _words("no pair of readable images")
    columns = min(COLUMNS, len(cards))
    rows = [cards[start : start + columns] for start in range(0, len(cards), columns)]
    heights = [max(card.height for card in row) for row in rows]
    width = MARGIN + columns * (cards[0].width + MARGIN)
    sheet = Image.new("RGB", (width, MARGIN + sum(heights) + MARGIN * len(rows)), _PAPER)
    y = MARGIN
    for row, height in zip(rows, heights, strict=True):
        for column, card in enumerate(row):
            sheet.paste(card, (MARGIN + column * (card.width + MARGIN), y))
        y += height + MARGIN
    return sheet


def _words(text: str) -> Image.Image:
    sheet = Image.new("RGB", (2 * SIDE, SIDE // 2), _PAPER)
    font = ImageFont.load_default(19)
    ImageDraw.Draw(sheet).text((SIDE, SIDE // 4), text, _QUIET, font, "mm")
    return sheet


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
