"""Rendered documents with known truth: true copies, and the same template with one field changed.

A grader must call a processed copy of a document near, and the same template with another amount,
date or name similar. Every document is rendered several times from one seed: unchanged, with
exactly one field changed (down to one digit), and with all fields changed. All pixels outside the
reported box of a change are equal.

The kinds are split: fit on ``FITTING``, report on ``REPORTED``. Both have text, charts and screens.

    from documents import KINDS, document, pairs

    made = document("receipt", 7)
    for pair in pairs(made):
        ...  # pair.query, pair.reference, pair.grade, pair.change, pair.copy
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import cv2
import numpy as np
import numpy.typing as npt

from documents.cards import card
from documents.charts import bars, lines, pie, scatter
from documents.copies import COPIES, Copy, copies, copy
from documents.editor import source
from documents.maps import map_
from documents.music import music
from documents.page import Box, Change, Image, Page
from documents.pictures import catalogue, dashboard, menu, plan
from documents.records import form, invoice, receipt
from documents.schedules import calendar, timetable
from documents.screens import application, dialog
from documents.selections import directory, inbox, questionnaire
from documents.signs import direction_sign, speed_sign
from documents.tables import spreadsheet, table
from documents.texts import article, book, letter, slide

__all__ = [
    "CHANGES",
    "COPIES",
    "FITTING",
    "KINDS",
    "REPORTED",
    "WHOLE",
    "Copy",
    "Document",
    "Pair",
    "Variant",
    "copies",
    "copy",
    "document",
    "pairs",
]

_DRAWERS: dict[str, Callable[[Page], None]] = {
    "letter": letter,
    "article": article,
    "receipt": receipt,
    "form": form,
    "timetable": timetable,
    "bars": bars,
    "scatter": scatter,
    "table": table,
    "map": map_,
    "dialog": dialog,
    "slide": slide,
    "speed_sign": speed_sign,
    "book": book,
    "invoice": invoice,
    "card": card,
    "calendar": calendar,
    "lines": lines,
    "pie": pie,
    "spreadsheet": spreadsheet,
    "music": music,
    "application": application,
    "source": source,
    "direction_sign": direction_sign,
    "catalogue": catalogue,
    "menu": menu,
    "plan": plan,
    "dashboard": dashboard,
    "questionnaire": questionnaire,
    "inbox": inbox,
    "directory": directory,
}

#: Kinds to fit a grader on, and kinds to report it on. The last three were added after the networks
#: and the trees that ship had been fitted.
FITTING = ("letter", "article", "receipt", "form", "timetable", "bars", "scatter", "table", "map",
           "dialog", "slide", "speed_sign", "catalogue", "menu", "plan", "dashboard",
           "questionnaire", "inbox", "directory")  # fmt: skip
REPORTED = ("book", "invoice", "card", "calendar", "lines", "pie", "spreadsheet", "music",
            "application", "source", "direction_sign")  # fmt: skip
#: In a fixed order: the position of a kind is part of the seed of its copies.
KINDS = tuple(_DRAWERS)

#: A change is visible if at least this number of pixels differ by at least this number of levels.
VISIBLE_PIXELS, VISIBLE_LEVELS = 20, 48

#: Types of changes of one field, and of all fields.
CHANGES = ("digit", "number", "amount", "date", "time", "name", "address", "label", "title", "word",
           "line", "cell", "bar", "point", "marker", "checkbox", "signature", "portrait",
           "picture", "sign")  # fmt: skip
WHOLE = ("template", "language")


@dataclass(frozen=True)
class Variant:
    """A changed rendering of a document.

    Attributes:
        pixels: RGB ``uint8``, of the original's size.
        change: one of ``CHANGES``, the type of the field; or one of ``WHOLE``.
        field: name of the field, empty if all are changed.
        box: left, top, right, bottom of the difference; right and bottom are exclusive.
        contrast: number of pixels that differ by ``VISIBLE_LEVELS`` or more.
        marked: of a mark that moved: mask of the mark of the variant, (h, w); the other different
            pixels are the mark of the original. ``None`` for other changes.
    """

    pixels: Image
    change: str
    field: str
    box: Box
    contrast: int
    marked: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Document:
    """A document and its variants.

    Attributes:
        kind: one of ``KINDS``.
        number: determines the document with kind and seed.
        original: RGB ``uint8``, with a long side of 500 to 1400 pixels.
        variants: those of one field, then those of ``WHOLE``.
    """

    kind: str
    number: int
    seed: int
    original: Image
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Pair:
    """Two images with the ground truth.

    Attributes:
        query, reference: RGB ``uint8``; the reference is the original.
        grade: ``near`` for a true copy, ``similar`` for a variant.
        kind: of the document.
        change: of the variant, empty for a true copy.
        copy: one of ``COPIES``, empty if the query was not processed.
    """

    query: Image
    reference: Image
    grade: str
    kind: str
    change: str
    copy: str


def document(
    kind: str, number: int, *, seed: int = 0, changes: int = 4, templates: int = 1
) -> Document:
    """Return a document with variants.

    Args:
        kind: one of ``KINDS``.
        number: position in the sequence of documents of this kind.
        seed: of the sequence.
        changes: most variants with one field changed, each of another type; the first one changes
            one digit, if the document has a number.
        templates: number of variants with all fields changed. If positive, a screen also has one
            in another language.

    Raises:
        ValueError: unknown kind.
        RuntimeError: a change is visible outside the area of its field, by an error of the drawing.
    """
    if kind not in _DRAWERS:
        msg = f"kind must be one of {', '.join(KINDS)}, got {kind!r}"
        raise ValueError(msg)
    key = f"{seed} {kind} {number}"
    page, original = _drawn(kind, key)
    rng = Random(f"{key} changes")
    variants = []
    for change in _changes(page, rng):
        if len(variants) >= changes:
            break
        if any(variant.change == change.what for variant in variants):
            continue
        if (variant := _variant(kind, key, change, page, original)) is not None:
            variants.append(variant)
    whole = [("template", _drawn(kind, key, template=own)[1]) for own in range(1, templates + 1)]
    if templates and page.translatable:
        whole.append(("language", _drawn(kind, key, Change("", "language"))[1]))
    # a few fields may have equal values by chance
    variants += [
        _whole(pixels, original, what) for what, pixels in whole if (pixels != original).any()
    ]
    return Document(kind, number, seed, original, tuple(variants))


def pairs(
    made: Document, *, seed: int = 0, operations: Sequence[str] = COPIES, processed: int = 2
) -> list[Pair]:
    """Return the original against its true copies, its variants, and copies of its variants.

    Args:
        made: a document.
        seed: of the strengths of the copies, and of the copies of variants.
        operations: classes of copies.
        processed: number of copies per variant; their classes are drawn without repetition.
    """
    rng = np.random.default_rng([seed, made.seed, made.number, KINDS.index(made.kind)])
    original = made.original
    found = [
        Pair(copy(original, name, rng), original, "near", made.kind, "", name)
        for name in operations
    ]
    for variant in made.variants:
        found.append(Pair(variant.pixels, original, "similar", made.kind, variant.change, ""))
        for name in rng.permutation(list(operations))[:processed].tolist():
            query = copy(variant.pixels, name, rng, keep=variant.box)
            found.append(Pair(query, original, "similar", made.kind, variant.change, name))
    return found


def _drawn(
    kind: str, key: str, change: Change | None = None, template: int = 0
) -> tuple[Page, Image]:
    page = Page(key, change, template)
    _DRAWERS[kind](page)
    return page, page.finished()


def _changes(page: Page, rng: Random) -> list[Change]:
    """Return changes in random order, alternating between types, one digit first."""
    by_sort: dict[str, list[str]] = {}
    for name, sorts in page.fields.items():
        for what in sorts:
            by_sort.setdefault(what, []).append(name)
    order = sorted(by_sort, key=lambda what: (what != "digit", rng.random()))
    tries = [rng.sample(by_sort[what], min(4, len(by_sort[what]))) for what in order]
    return [
        Change(names[turn], what, attempt)
        for attempt in range(3)
        for turn in range(4)
        for what, names in zip(order, tries, strict=True)
        if turn < len(names)
    ]


def _variant(kind: str, key: str, change: Change, page: Page, original: Image) -> Variant | None:
    """Return the document with one field changed, None if the change is hardly visible."""
    changed, pixels = _drawn(kind, key, change)
    different = _difference(pixels, original)
    contrast = int((different >= VISIBLE_LEVELS).sum())
    outside = different[~(page.area(change.field) | changed.area(change.field))]
    if outside.any():
        msg = f"{key}: {change} must only show where it is drawn, got {(outside > 0).sum()} pixels"
        raise RuntimeError(msg)
    if contrast < VISIBLE_PIXELS:
        return None
    marked = _mark(kind, key, change, pixels, original) if change.what == "marker" else None
    return Variant(pixels, change.what, change.field, _bounds(different > 0), contrast, marked)


def _mark(
    kind: str, key: str, change: Change, pixels: Image, original: Image
) -> npt.NDArray[np.bool_] | None:
    """Return the mask of the variant's mark: where a third rendering is equal to the original."""
    for attempt in range(change.attempt + 3, change.attempt + 9):
        third = _drawn(kind, key, replace(change, attempt=attempt))[1]
        if (third != pixels).any() and (third != original).any():
            return np.asarray((pixels != original).any(axis=2) & (third == original).all(axis=2))
    return None


def _whole(pixels: Image, original: Image, change: str) -> Variant:
    different = _difference(pixels, original)
    contrast = int((different >= VISIBLE_LEVELS).sum())
    return Variant(pixels, change, "", _bounds(different > 0), contrast)


def _difference(one: Image, other: Image) -> npt.NDArray[np.uint8]:
    """Return the largest difference of a channel, per pixel."""
    red, green, blue = cv2.split(cv2.absdiff(one, other))
    return np.asarray(cv2.max(cv2.max(red, green), blue), np.uint8)


def _bounds(mask: npt.NDArray[np.bool_]) -> Box:
    """Return left, top, right, bottom of a mask."""
    across, down = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    return int(across[0]), int(down[0]), int(across[-1]) + 1, int(down[-1]) + 1
