"""Read a list of prompts: rows of any format become prompts, each once."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.images.request import writable
from visleak.memorization.prompts import Prompts

#: Characters of a prompt or of the name of an image: far above any real one.
MOST_CHARACTERS: Final = 100_000

_LABELS: Final = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "memorized"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "not memorized"), False),
    **dict.fromkeys(("", "unknown"), None),
}

_STRING: Final = r"""(?:'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")"""

#: A flat list of texts and nothing else: no nesting, so no bomb, gets as far as a parser.
_FLAT_LIST: Final = re.compile(rf"\s*+\[\s*+(?:{_STRING}\s*+(?:,\s*+{_STRING}\s*+)*+,?\s*+)?\]\s*+")


def checked_text(text: str, where: str) -> str:
    """Return a prompt without the spaces around it, as one that can be written.

    Raises:
        VisleakError: it is too long, or holds a null byte.
    """
    if len(text) > MOST_CHARACTERS:
        raise VisleakError(
            f"{where}: a prompt of {len(text):,} characters; at most {MOST_CHARACTERS:,} are read"
        )
    if "\0" in text:
        raise VisleakError(f"{where}: a prompt with a null byte; save the file as UTF-8 text")
    return writable(text.strip())


def label_of(value: Any, where: str) -> bool | None:
    """Return what a label says: memorized, not, or unknown.

    >>> label_of("TRUE", "a"), label_of(0, "a"), label_of("", "a")
    (True, False, None)
    """
    said = "" if value is None else str(value).strip().lower()
    if said not in _LABELS:
        raise VisleakError(
            f"{where}: a label is 1, 0, true, false, yes, no or empty; got {said[:40]!r} (another"
            " meaning needs another column name)"
        )
    return _LABELS[said]


def sources_of(value: Any, where: str) -> list[str]:
    """Return the images that a cell names: a list, its text in Python or JSON, or one name.

    >>> sources_of("['a.png', 'b.png']", "line 1"), sources_of("a.png", "line 1")
    (['a.png', 'b.png'], ['a.png'])
    """
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        value = _parsed(value, where)
    elif isinstance(value, str) or value is None:
        value = [value or ""]
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise VisleakError(f"{where}: images of a prompt are a list of texts; got {shown(value)}")
    names = [writable(each.strip()) for each in value]
    if any("\0" in name or len(name) > MOST_CHARACTERS for name in names):
        raise VisleakError(
            f"{where}: the name of an image has a null byte or more than {MOST_CHARACTERS:,}"
            " characters"
        )
    return [name for name in names if name]


def _parsed(cell: str, where: str) -> Any:
    """Return the list that a cell spells, in JSON or as a literal of Python."""
    if _FLAT_LIST.fullmatch(cell):
        if cell.lstrip().removeprefix("[").lstrip()[:1] == '"':
            # a text in double quotes is JSON more often, whose escapes are others
            try:
                return json.loads(cell)
            except ValueError:
                pass
        try:
            return ast.literal_eval(cell.strip())
        except (ValueError, SyntaxError):
            pass
    raise VisleakError(
        f"{where}: images of a prompt are a flat list of texts, such as ['a', 'b']; got"
        f" {cell[:60]!r}"
    )


def shown(value: Any) -> str:
    """Return a value for an error: one with parts by its type, for its parts may go on for ever.

    >>> shown(3), shown(["a"]), shown([3])
    ('3', 'a list', 'a list')
    """
    if value is None or isinstance(value, str | int | float):
        return repr(value)[:60]
    return f"a {type(value).__name__}"


def as_cell(value: Any) -> str:
    """Return a value of a further column as text; what has parts as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(value, ensure_ascii=False, default=str)


#: Columns of the record of verification.
VERIFIED: Final = "verified"
VERIFIED_BY: Final = "verified_by"
RECORD: Final = (VERIFIED, VERIFIED_BY)

#: How the name of a trace begins, where one verified a prompt.
TRACE: Final = "trace in "


def of_a_person(by: str) -> bool:
    """Return whether a record names somebody who verified a prompt, and no trace.

    >>> of_a_person("Ann"), of_a_person("trace in train: near"), of_a_person("")
    (True, False, False)
    """
    return bool(by) and not by.startswith(TRACE)


def stronger(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return that of two records of one prompt that counts, whole, in whatever order they come.

    Verified counts before not verified, and that before nothing said; of two that verify, the one
    that names a person, then the one that names a trace.

    >>> stronger({"verified": "false"}, {"verified": "1", "verified_by": "Ann"})
    {'verified': '1', 'verified_by': 'Ann'}
    """
    best = max(one, other, key=_strength)
    return {name: best.get(name, "") for name in RECORD}


def _strength(record: Mapping[str, str]) -> tuple[int, bool, bool, str, str]:
    said, by = record.get(VERIFIED, ""), record.get(VERIFIED_BY, "")
    try:
        place = {None: 0, False: 1, True: 2}[label_of(said, VERIFIED)]
    except VisleakError:
        # no answer at all: it stays, and who needs the record tells of it
        place = 3
    return place, of_a_person(by), bool(by), by, said


#: Where prompts stand, if nobody says: MemBench, Webster and Wen, LAION.
PROMPT_COLUMNS: Final = ("prompt", "caption", "text")

#: What names the memorized images of a prompt; a bare `source` may be anything.
SOURCE_COLUMNS: Final = ("sources", "urls", "url")

#: What says whether a prompt is known to be memorized.
LABEL_COLUMNS: Final = ("label", "memorized")

#: Columns of a file, images that a file may name: far above any real list.
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


#: What is made of a file.
Made = TypeVar("Made")

_ROOM: Final = "visleak.memorization.prompt_files"

#: Ending of a file to its format and reader.
FORMATS: Final[dict[str, tuple[str, str]]] = {
    ".csv": ("CSV", f"{_ROOM}.formats:csv_rows"),
    ".tsv": ("TSV", f"{_ROOM}.formats:csv_rows"),
    ".txt": ("text", f"{_ROOM}.formats:text_rows"),
    ".jsonl": ("JSON lines", f"{_ROOM}.formats:jsonl_rows"),
    ".ndjson": ("JSON lines", f"{_ROOM}.formats:jsonl_rows"),
    ".json": ("JSON", f"{_ROOM}.formats:json_rows"),
    ".parquet": ("Parquet", f"{_ROOM}.formats:parquet_rows"),
    ".pickle": ("pickle", f"{_ROOM}.formats:pickle_rows"),
    ".pkl": ("pickle", f"{_ROOM}.formats:pickle_rows"),
}


def read_prompts(path: str | os.PathLike[str], *, column: str | None = None) -> Prompts:
    """Read a list of prompts; what it names is not fetched.

    The ending says what the file is: ``.csv`` and ``.tsv`` with a header (MemBench's
    ``SD1_final.csv``), ``.parquet`` (our own tables), ``.jsonl`` (Webster's and Wen's lists),
    ``.json`` (a list, prompts with their images, or COCO's captions, the first of each image),
    ``.txt`` (one per line), ``.pickle`` (legacy; data only). Prompts stand in ``prompt``, else
    ``caption``, else ``text``; memorized images in ``sources``, ``urls``, ``url``; whether a
    prompt is known to be memorized in ``label`` or ``memorized``.

    Args:
        path: the file, UTF-8 where it is text.
        column: with the prompts, where it has another name.

    Returns:
        The prompts in the order of the file, each once: equal ones join their images, empty ones
        are left out; ``notes`` counts both.

    Raises:
        UsageError: no such file, column or format.
        VisleakError: the file is damaged, contradicts itself, or holds no prompts.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "list.csv"
    >>> _ = file.write_text("prompt,urls\\na red bag,\\"['https://a.example/1.jpg']\\"\\n")
    >>> prompts = read_prompts(file)
    >>> prompts.texts, prompts.sources
    (('a red bag',), (('https://a.example/1.jpg',),))
    """
    file = Path(path)

    def listed(rows: Iterator[Row], kind: str) -> Prompts:
        return gathered(rows, str(file), f"{file.name} ({kind})")

    return _read(file, column, listed)


def read_values(
    path: str | os.PathLike[str], name: str, *, column: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Read every value that prompts have in a further column of their file.

    :func:`read_prompts` keeps one value of a prompt that comes again, which is too few where the
    rows of a file are pairs, such as prompts that ``augment`` made of several triggers.

    Args:
        path, column: as of :func:`read_prompts`.
        name: of the further column.

    Returns:
        Prompts and values in the order of the file, each pair once. An empty value is left out
        where its prompt has another.

    Raises:
        UsageError, VisleakError: as of :func:`read_prompts`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "list.csv"
    >>> _ = file.write_text("prompt,trigger\\na bag,red\\na bag,old\\na bag,\\n")
    >>> read_values(file, "trigger")
    (('a bag', 'red'), ('a bag', 'old'))
    """
    file = Path(path)

    def paired(rows: Iterator[Row], _kind: str) -> tuple[tuple[str, str], ...]:
        pairs = dict.fromkeys(
            (checked_text(row.text, f"{file}, {row.place}"), writable(row.columns.get(name, "")))
            for row in rows
        )
        named = {text for text, value in pairs if value}
        told = (pair for pair in pairs if pair[1] or pair[0] not in named)
        return tuple((text, value) for text, value in told if text)

    return _read(file, column, paired)


def _read(file: Path, column: str | None, made: Callable[[Iterator[Row], str], Made]) -> Made:
    """Return what is made of the rows of a file and the name of its format.

    Raises:
        UsageError: no such file, column or format.
        VisleakError: the file is damaged.
    """
    if file.is_dir():
        raise UsageError(f"prompts {file} is a folder; name a file in it")
    if not file.is_file():
        raise UsageError(f"prompts {file}: there is no such file")
    if file.suffix.lower() not in FORMATS:
        raise UsageError(
            f"prompts {file}: the ending says what a file is, one of {', '.join(FORMATS)}; got"
            f" {file.suffix!r}"
        )
    kind, place = FORMATS[file.suffix.lower()]
    try:
        return made(_rows(place, file, column), kind)
    except UnicodeDecodeError as error:
        raise VisleakError(
            f"{file} is not UTF-8 text ({error.reason}); save it as UTF-8"
        ) from error
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        said = " ".join(str(error).split())[:200]
        raise VisleakError(f"{file} cannot be read as {kind}: {said}") from error


def _rows(place: str, file: Path, column: str | None) -> Iterator[Row]:
    module, name = place.split(":")
    rows: Iterator[Row] = getattr(importlib.import_module(module), name)(file, column)
    return rows
