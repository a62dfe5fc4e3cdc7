"""An audit as a notebook shows it: headline, rates, and thumbnails of pairs, all escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from visleak.reporting.gallery import Card, Detail, Thumb
from visleak.templates import visible

#: Thumbnails of pairs in one output, at most: a notebook keeps all of them.
MOST: Final = 6

#: How finely these are stored: pixels and bytes.
DETAIL: Final = Detail(160, 6_000)

_CELL: Final = "padding:2px 8px;text-align:left"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table."""
    head = Markup().join(_cell("th", each) for each in header)
    body = Markup().join(
        Markup("<tr>{}</tr>").format(Markup().join(_cell("td", each) for each in row))
        for row in rows
    )
    return Markup("<table><tr>{}</tr>{}</table>").format(head, body)


def pairs(cards: Iterable[tuple[str, Card]]) -> Markup:
    """Return pairs of images, each above its caption."""
    shown = Markup().join(
        Markup(
            '<figure style="margin:4px 12px 4px 0">{}{}'
            '<figcaption style="font-size:small;max-width:330px;overflow-wrap:anywhere">{}'
            "</figcaption></figure>"
        ).format(_image(card.query), _image(card.reference), visible(caption))
        for caption, card in cards
    )
    return Markup('<div style="display:flex;flex-wrap:wrap">{}</div>').format(shown)


def headline(text: str) -> Markup:
    """Return the first line."""
    return Markup("<p><b>{}</b></p>").format(visible(text))


def _cell(tag: str, value: object) -> Markup:
    name = Markup(tag)
    return Markup('<{} style="{}">{}</{}>').format(name, _CELL, visible(str(value)), name)


def _image(thumb: Thumb) -> Markup:
    crisp = "image-rendering:pixelated;" if thumb.crisp else ""
    return Markup(
        '<img src="{}" width="{}" height="{}" alt="" style="display:inline;margin:1px;{}">'
    ).format(thumb.uri, thumb.width, thumb.height, crisp)
