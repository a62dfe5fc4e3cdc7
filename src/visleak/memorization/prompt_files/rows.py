"""Rows of files of prompts, whatever the format, and how they become a list of prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from visleak.errors import UsageError, VisleakError
from visleak.images.request import writable
from visleak.memorization.prompt_files.cells import as_cell, checked_text, label_of, sources_of
from visleak.memorization.prompt_files.vouching import RECORD, stronger
from visleak.memorization.prompts import Prompts

#: Where prompts stand, if nobody says: MemBench, Webster and Wen, LAION.
PROMPT_COLUMNS: Final = ("prompt", "caption", "text")

#: What names the memorized images of a prompt; a bare `source` may be anything.
SOURCE_COLUMNS: Final = ("sources", "urls", "url")

#: What says whether a prompt is known to be memorized.
LABEL_COLUMNS: Final = ("label", "memorized")

#: Columns of a file, images a file may name: far above any real list.
MOST_COLUMNS: Final = 100
MOST_SOURCES: Final = 20_000_000


class Row(NamedTuple):
    """One row of a file.

    Attributes:
        place: where it stands, such as ``line 3``, for errors.
        text: the prompt, as it stands there.
        label: whether it is known to be memorized.
        sources: images it is a trigger of.
        columns: further values by column, as text.
    """

    place: str
    text: str
    label: bool | None = None
    sources: tuple[str, ...] = ()
    columns: Mapping[str, str] = {}


@dataclass
class _List:
    """Prompts while they are gathered; a prompt that comes again joins its first row."""

    texts: dict[str, int] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    labels: list[bool | None] = field(default_factory=list)
    sources: list[tuple[str, ...]] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=dict)
    empty: int = 0
    again: int = 0
    named: int = 0

    def add(self, row: Row, origin: str) -> None:
        text = checked_text(row.text, f"{origin}, {row.place}")
        self.named += len(row.sources)
        if self.named > MOST_SOURCES:
            raise VisleakError(
                f"{origin}, {row.place}: more than {MOST_SOURCES:,} images are named; split the"
                " file"
            )
        if not text:
            self.empty += 1
        elif text in self.texts:
            self._join(self.texts[text], row, origin)
        else:
            self._append(text, row, origin)

    def _append(self, text: str, row: Row, origin: str) -> None:
        number = self.texts[text] = len(self.texts)
        self.places.append(row.place)
        self.labels.append(row.label)
        self.sources.append(tuple(dict.fromkeys(row.sources)))
        for name, value in row.columns.items():
            self._put(name, number, value, f"{origin}, {row.place}")

    def _column(self, name: str, number: int, where: str) -> list[str]:
        """Return a column that is long enough for a prompt, a new one if need be."""
        if name not in self.columns and len(self.columns) == MOST_COLUMNS:
            raise VisleakError(f"{where}: more than {MOST_COLUMNS} columns; keep those needed")
        column = self.columns.setdefault(name, [])
        column.extend([""] * (number + 1 - len(column)))
        return column

    def _put(self, name: str, number: int, value: str, where: str) -> None:
        """Set a cell that is still empty."""
        column = self._column(name, number, where)
        column[number] = column[number] or writable(value)

    def _verify(self, number: int, row: Row, where: str) -> None:
        """Let the stronger record of verification stand: who verified goes with what they said."""
        names = [name for name in RECORD if name in self.columns or name in row.columns]
        columns = {name: self._column(name, number, where) for name in names}
        known = {name: column[number] for name, column in columns.items()}
        own = {name: writable(row.columns.get(name, "")) for name in names}
        best = stronger(known, own)
        for name, column in columns.items():
            column[number] = best[name]

    def _join(self, number: int, row: Row, origin: str) -> None:
        self.again += 1
        for name, value in row.columns.items():
            if name not in RECORD:
                self._put(name, number, value, f"{origin}, {row.place}")
        self._verify(number, row, f"{origin}, {row.place}")
        self.sources[number] = tuple(dict.fromkeys(self.sources[number] + row.sources))
        known = self.labels[number]
        if known is None:
            self.labels[number] = row.label
        elif row.label is not None and row.label != known:
            raise VisleakError(
                f"{origin}, {row.place}: this prompt stands at {self.places[number]} too, with"
                " another label; make them agree"
            )

    def notes(self) -> tuple[str, ...]:
        said = []
        if self.again:
            said.append(
                f"prompts that came again: {self.again:,}; images they name were joined to the"
                " first, whose empty columns were filled"
            )
        if self.empty:
            said.append(f"empty prompts that were left out: {self.empty:,}")
        return tuple(said)


def gathered(rows: Iterable[Row], origin: str, name: str) -> Prompts:
    """Return the prompts of rows; equal ones become one, empty ones are left out, both counted.

    Spaces around a prompt are no part of it, as for tokenizers.

    Args:
        rows: in the order of the file.
        origin: the file, for errors.
        name: of file and format, kept with the prompts.

    Raises:
        VisleakError: no prompt is left, one is no text, or labels contradict each other.

    >>> rows = [Row("line 1", "a cat ", True, ("u",)), Row("line 2", "a cat", None, ("v",))]
    >>> prompts = gathered(rows, "a.csv", "a.csv (CSV)")
    >>> prompts.texts, prompts.labels, prompts.sources
    (('a cat',), (True,), (('u', 'v'),))
    """
    found = _List()
    for row in rows:
        found.add(row, origin)
    if not found.texts:
        emptied = f" ({found.empty:,} empty ones)" if found.empty else ""
        raise VisleakError(f"{origin} holds no prompts{emptied}")
    count = len(found.texts)
    for column in found.columns.values():
        column.extend([""] * (count - len(column)))
    return Prompts(
        tuple(found.texts),
        tuple(found.labels) if any(label is not None for label in found.labels) else (),
        tuple(found.sources) if any(found.sources) else (),
        {key: tuple(column) for key, column in found.columns.items()},
        name,
        found.notes(),
    )


def row_of(place: str, origin: str, values: Mapping[str, Any], prompt: str) -> Row:
    """Return the row that named values make.

    Args:
        place: where they stand.
        origin: the file, for errors.
        values: by column: texts, numbers, lists of texts, ``None``.
        prompt: the column with the prompt.

    Raises:
        VisleakError: the prompt is no text, the label is none, or sources are no list of texts.
    """
    where = f"{origin}, {place}"
    text = values.get(prompt)
    if text is not None and not isinstance(text, str):
        raise VisleakError(f"{where}: {prompt!r} is no text but {type(text).__name__}")
    label, sources, columns = None, list[str](), dict[str, str]()
    for name, value in values.items():
        key = name.strip().lower()
        if name == prompt:
            continue
        if key in LABEL_COLUMNS:
            said = label_of(value, where)
            label = label if said is None else said
        elif key in SOURCE_COLUMNS:
            sources += sources_of(value, where)
        elif name:
            columns[name] = as_cell(value)
    return Row(place, text or "", label, tuple(sources), columns)


def prompt_column(names: list[str], column: str | None, origin: str) -> str:
    """Return the column with the prompts.

    Raises:
        UsageError: the one that was asked for is not there.
        VisleakError: nobody said which, and none has a usual name.
    """
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise VisleakError(f"{origin} has more than one column {twice!r}; keep one")
    shown = ", ".join(repr(name)[:60] for name in names[:12]) or "none"
    if column is not None:
        if column not in names:
            raise UsageError(f"--column {column!r}: {origin} has no such column; it has {shown}")
        return column
    for wanted in PROMPT_COLUMNS:
        for name in names:
            if name.strip().lower() == wanted:
                return name
    raise VisleakError(
        f"{origin} has no column {', '.join(PROMPT_COLUMNS)}; name the one with the prompts"
        f" (--column C); it has {shown}"
    )
