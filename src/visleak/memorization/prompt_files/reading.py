"""Read lists of prompts: each format yields rows, of which prompts are made; nothing is fetched."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import pickle
import pickletools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.delimited import opened_table
from visleak.errors import UsageError, VisleakError, one_line
from visleak.formats.request import writable
from visleak.memorization.prompts import Prompts
from visleak.storage import csv_text

#: Columns of prompts (MemBench; Webster and Wen; LAION), of the memorized images of a prompt (a
#: bare `source` may be anything), and of whether a prompt is known to be memorized.
PROMPT_COLUMNS: Final = ("prompt", "caption", "text")
SOURCE_COLUMNS: Final = ("sources", "urls", "url")
LABEL_COLUMNS: Final = ("label", "memorized")
#: Columns of the record of verification, and the prefix of a trace in it.
VERIFIED: Final = "verified"
VERIFIED_BY: Final = "verified_by"
RECORD: Final = (VERIFIED, VERIFIED_BY)
TRACE: Final = "trace in "
#: Limits far above any real list: characters of a prompt or of a name, of a line, columns of a
#: file, images that a file may name, and bytes of a JSON file (COCO's captions have 91 MB) and of a
#: pickle (MemBench's has 233 kB).
MOST_CHARACTERS: Final = 100_000
LONGEST_LINE: Final = 1_000_000
MOST_COLUMNS: Final = 100
MOST_SOURCES: Final = 20_000_000
MOST_JSON_BYTES: Final = 1 << 29
MOST_BYTES: Final = 64 << 20
#: Rows of a Parquet table that are held at a time.
BATCH: Final = 4096
_LABELS: Final = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "memorized"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "not memorized"), False),
    **dict.fromkeys(("", "unknown"), None),
}
_STRING: Final = r"""(?:'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")"""
#: A flat list of texts and nothing else: no nesting, so no bomb, gets as far as a parser.
_FLAT_LIST: Final = re.compile(rf"\s*+\[\s*+(?:{_STRING}\s*+(?:,\s*+{_STRING}\s*+)*+,?\s*+)?\]\s*+")


class Row(NamedTuple):
    """One row of a file."""

    place: str  #: of the row, such as ``line 3``, for errors
    text: str
    label: bool | None = None  #: whether it is known to be memorized
    sources: tuple[str, ...] = ()  #: images it is a trigger of
    columns: Mapping[str, str] = {}  #: further values by column, as text


# -- values ---------------------------------------------------------------------------------------


def checked_text(text: str, where: str) -> str:
    """Return a prompt without the spaces around it, as one that can be written."""
    if len(text) > MOST_CHARACTERS:
        raise VisleakError(
            f"{where}: a prompt of {len(text):,} characters; at most {MOST_CHARACTERS:,} are read"
        )
    if "\0" in text:
        raise VisleakError(f"{where}: a prompt with a null byte; save the file as UTF-8 text")
    return writable(text.strip())


def label_of(value: object, where: str) -> bool | None:
    """Return the meaning of a label: memorized, not, or unknown.

    >>> label_of("TRUE", "a"), label_of(0, "a"), label_of("", "a")
    (True, False, None)
    """
    word = "" if value is None else str(value).strip().lower()
    if word not in _LABELS:
        raise VisleakError(
            f"{where}: a label is 1, 0, true, false, yes, no or empty; got {word[:40]!r} (another"
            " meaning needs another column name)"
        )
    return _LABELS[word]


def sources_of(value: object, where: str) -> list[str]:
    """Return the images that a cell names: a list, its text in Python or JSON, or one name."""
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


def _parsed(cell: str, where: str) -> object:
    """Return the list that a cell spells, in JSON or as a literal of Python."""
    if _FLAT_LIST.fullmatch(cell):
        # a text in double quotes is JSON more often, whose escapes are others
        quoted = cell.lstrip().removeprefix("[").lstrip()[:1] == '"'
        for parse in (json.loads, ast.literal_eval) if quoted else (ast.literal_eval,):
            try:
                return parse(cell.strip())
            except (ValueError, SyntaxError):
                continue
    raise VisleakError(
        f"{where}: images of a prompt are a flat list of texts, such as ['a', 'b']; got"
        f" {cell[:60]!r}"
    )


def shown(value: object) -> str:
    """Return a value for an error: one with parts by its type, for its parts may have no end."""
    if value is None or isinstance(value, str | int | float):
        return repr(value)[:60]
    return f"a {type(value).__name__}"


def as_cell(value: object) -> str:
    """Return a value of a further column as text; what has parts as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def is_human(by: str) -> bool:
    """Return whether a record names a person who verified a prompt, not a trace."""
    return bool(by) and not by.startswith(TRACE)


def stronger(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return the one of two records that counts: verified, by a person, by a trace, whole."""

    def strength(record: Mapping[str, str]) -> tuple[object, ...]:
        value, by = record.get(VERIFIED, ""), record.get(VERIFIED_BY, "")
        # an unknown value is kept, and refused where the record is used
        places = {None: 0, False: 1, True: 2}
        place = places[_LABELS[key]] if (key := value.strip().lower()) in _LABELS else 3
        return place, is_human(by), bool(by), by, value

    best = max(one, other, key=strength)
    return {name: best.get(name, "") for name in RECORD}


# -- prompts of rows ------------------------------------------------------------------------------


@dataclass
class _Entry:
    place: str
    label: bool | None
    sources: dict[str, None] = field(default_factory=dict)
    cells: dict[str, str] = field(default_factory=dict)

    def join(self, row: Row, where: str) -> None:
        own = {name: writable(row.columns[name]) for name in RECORD if name in row.columns}
        for name, value in row.columns.items():
            if name not in RECORD:
                self.cells[name] = self.cells.get(name) or writable(value)
        if own:
            self.cells |= stronger(self.cells, own)
        self.sources |= dict.fromkeys(row.sources)
        if self.label is None:
            self.label = row.label
        elif row.label not in (None, self.label):
            raise VisleakError(
                f"{where}: this prompt is also at {self.place}, with another label; make them agree"
            )


def gathered(rows: Iterable[Row], origin: str, name: str) -> Prompts:
    """Return the prompts of rows; equal ones become one, empty ones are left out, both counted.

    Spaces around a prompt are not part of it, as for tokenizers.

    >>> rows = [Row("line 1", "a cat ", True, ("u",)), Row("line 2", "a cat", None, ("v",))]
    >>> prompts = gathered(rows, "a.csv", "a.csv (CSV)")
    >>> prompts.texts, prompts.labels, prompts.sources
    (('a cat',), (True,), (('u', 'v'),))
    """
    found: dict[str, _Entry] = {}
    columns: dict[str, None] = {}
    empty = again = named = 0
    for row in rows:
        where = f"{origin}, {row.place}"
        text = checked_text(row.text, where)
        named += len(row.sources)
        if named > MOST_SOURCES:
            raise VisleakError(
                f"{where}: more than {MOST_SOURCES:,} images are named; split the file"
            )
        if not text:
            empty += 1
            continue
        columns |= dict.fromkeys(row.columns)
        if len(columns) > MOST_COLUMNS:
            raise VisleakError(f"{where}: more than {MOST_COLUMNS} columns; keep those needed")
        again += text in found
        found.setdefault(text, _Entry(row.place, row.label)).join(row, where)
    if not found:
        why = f" ({empty:,} empty ones)" if empty else ""
        raise VisleakError(f"{origin} holds no prompts{why}")
    joined = (
        f"prompts that came again: {again:,}; images they name were joined to the first, whose"
        " empty columns were filled"
    )
    counts = {joined: again, f"empty prompts that were left out: {empty:,}": empty}
    entries = list(found.values())
    labels = tuple(each.label for each in entries)
    sources = tuple(tuple(each.sources) for each in entries)
    return Prompts(
        tuple(found),
        labels if any(label is not None for label in labels) else (),
        sources if any(sources) else (),
        {key: tuple(each.cells.get(key, "") for each in entries) for key in columns},
        name,
        tuple(note for note, count in counts.items() if count),
    )


def row_of(place: str, origin: str, values: Mapping[str, object], column: str | None) -> Row:
    """Return the row that named values make."""
    where = f"{origin}, {place}"
    text = values.get(column or "")
    if text is not None and not isinstance(text, str):
        raise VisleakError(f"{where}: {column!r} must be text; got {type(text).__name__}")
    label, sources, columns = None, list[str](), dict[str, str]()
    for name, value in values.items():
        key = name.strip().lower()
        if name == column:
            continue
        if key in LABEL_COLUMNS:
            found = label_of(value, where)
            label = label if found is None else found
        elif key in SOURCE_COLUMNS:
            sources += sources_of(value, where)
        elif name:
            columns[name] = as_cell(value)
    return Row(place, text or "", label, tuple(sources), columns)


def prompt_column(names: list[str], column: str | None, origin: str) -> str:
    """Return the column with the prompts."""
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise VisleakError(f"{origin} has more than one column {twice!r}; keep one")
    listed = ", ".join(repr(name)[:60] for name in names[:12]) or "none"
    if column is not None:
        if column not in names:
            raise UsageError(f"--column {column!r}: {origin} has no such column; it has {listed}")
        return column
    usual = {name.strip().lower(): name for name in reversed(names)}
    found = next((usual[name] for name in PROMPT_COLUMNS if name in usual), None)
    if found is None:
        raise VisleakError(
            f"{origin} has no column {', '.join(PROMPT_COLUMNS)}; name the one with the prompts"
            f" (--column C); it has {listed}"
        )
    return found


# -- formats --------------------------------------------------------------------------------------


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    """Yield lines; none is read further than it may be long."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise VisleakError(
                f"{path}, line {number:,}: more than {LONGEST_LINE:,} characters; one prompt per"
                " line"
            )
        yield line


def _refuse_column(path: Path, column: str | None, what: str) -> None:
    if column is not None:
        raise UsageError(f"--column {column!r}: {path} {what}")


def _text_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield one prompt per line, as the lists of Ren et al. have them."""
    _refuse_column(path, column, "is a text file, which has no columns")
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(_lines(file, path), 1):
            yield Row(f"line {number:,}", line)


def _csv_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file, such as MemBench's; cells of ours lose their guard."""
    with opened_table(path) as (file, delimiter):
        # strict: a quote that is never closed would take all that follows for one cell
        reader = csv.reader(_lines(file, path), delimiter=delimiter, strict=True)
        begun = 1
        try:
            header = [csv_text(name) for name in next(reader, [])]
            prompt = prompt_column(header, column, str(path))
            begun = reader.line_num + 1
            for cells in reader:
                place, begun = f"line {begun:,}", reader.line_num + 1
                if cells and len(cells) != len(header):
                    raise VisleakError(
                        f"{path}, {place}: {len(cells)} cells for {len(header)} columns; put a"
                        " prompt with commas in quotes"
                    )
                if cells:
                    values = dict(zip(header, map(csv_text, cells), strict=True))
                    yield row_of(place, str(path), values, prompt)
        except csv.Error as error:
            raise VisleakError(
                f"{path}, line {begun:,}: no CSV ({error}); a cell has at most"
                f" {csv.field_size_limit():,} characters, and its quotes are closed"
            ) from error


def _jsonl_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the rows of a file with one JSON value per line, as Webster's and Wen's lists."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(_lines(file, path), 1):
            place = f"line {number:,}"
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise VisleakError(f"{path}, {place}: no JSON ({one_line(error)})") from error
            yield _json_row(value, place, path, column)


def _json_row(value: object, place: str, path: Path, column: str | None) -> Row:
    if isinstance(value, str) and column is None:
        return Row(place, value)
    if isinstance(value, dict):
        prompt = prompt_column(list(value), column, f"{path}, {place}")
        return row_of(place, str(path), value, prompt)
    raise VisleakError(
        f"{path}, {place}: a prompt is a text, or an object with prompt, caption or text; got"
        f" {shown(value)}"
    )


def _parquet_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the rows of a Parquet table: our own, or any with a column of prompts."""
    with pq.ParquetFile(path) as file:
        prompt = prompt_column(list(file.schema_arrow.names), column, str(path))
        batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=BATCH))
        for number, values in enumerate(chain.from_iterable(batches), 1):
            yield row_of(f"row {number:,}", str(path), values, prompt)


def _json_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a JSON file.

    It is a list of texts or objects, an object that gives each prompt its images, or captions as
    COCO has them, of which the first of each image is taken (Hong et al. 2024, their general
    prompts).
    """
    size = path.stat().st_size
    if size > MOST_JSON_BYTES:
        raise VisleakError(
            f"{path} has {size:,} bytes; at most {MOST_JSON_BYTES:,} are read: make it .jsonl"
        )
    match json.loads(path.read_text(encoding="utf-8-sig")):
        case list() as values:
            for number, value in enumerate(values, 1):
                yield _json_row(value, f"entry {number:,}", path, column)
        case {"annotations": [*annotations]}:
            yield from _coco_rows(annotations, path, column or "caption")
        case dict() as named:
            yield from _named_rows(named, path, column)
        case other:
            raise VisleakError(f"{path} is not a list of prompts: its JSON is {shown(other)}")


def _named_rows(content: Mapping[object, object], path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a table from prompt to the images it is a trigger of."""
    _refuse_column(path, column, "goes from prompt to images, without columns")
    for number, (prompt, images) in enumerate(content.items(), 1):
        place = f"entry {number:,}"
        if not isinstance(prompt, str):
            raise VisleakError(f"{path}, {place}: a prompt is a text; got {shown(prompt)}")
        # a set has no order of its own
        listed = sorted(images, key=str) if isinstance(images, set) else images
        yield Row(place, prompt, None, tuple(sources_of(listed, f"{path}, {place}")))


def _coco_rows(annotations: Sequence[object], path: Path, wanted: str) -> Iterator[Row]:
    seen = set[int | str]()
    for number, each in enumerate(annotations, 1):
        about = each if isinstance(each, dict) else {}
        image, text = about.get("image_id"), about.get(wanted)
        if not isinstance(image, int | str) or not isinstance(text, str):
            raise VisleakError(
                f"{path}, annotation {number:,}: captions of COCO have image_id and {wanted}; this"
                " one lacks them"
            )
        if image not in seen:
            seen.add(image)
            yield Row(f"annotation {number:,}", text, columns={"image_id": str(image)})


def _pickle_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a pickle: a dict from prompt to a set or list of images, or a list."""
    content = load_plain(path)
    if isinstance(content, dict):
        yield from _named_rows(content, path, column)
        return
    if not isinstance(content, list) or not all(isinstance(each, str) for each in content):
        raise VisleakError(
            f"{path} is not a list of prompts: it holds neither texts nor a dict from prompt to"
            " images"
        )
    _refuse_column(path, column, "is a list of prompts, without columns")
    for number, text in enumerate(content, 1):
        yield Row(f"entry {number:,}", text)


#: Instructions of a pickle that build texts, lists, sets and dicts.
_NUMBERED: Final = ("PUT", "BINPUT", "LONG_BINPUT")
_ALLOWED: Final = frozenset(
    (
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
        *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS"),
        *("MEMOIZE", *_NUMBERED, "GET", "BINGET", "LONG_BINGET"),
        *("PROTO", "FRAME", "MARK", "STOP"),
    )
)


class _Unpickler(pickle.Unpickler):
    """Imports nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it imports {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to an object outside the file")


def load_plain(path: Path) -> object:
    """Return the texts, lists, sets and dicts of a pickle; any other instruction is refused."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise VisleakError(f"{path} has {size:,} bytes; pickles are read up to {MOST_BYTES:,}")
    data = path.read_bytes()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in _ALLOWED:
                raise pickle.UnpicklingError(f"it holds the instruction {opcode.name}")
            # memory is set aside for all numbers below the one that is named
            if opcode.name in _NUMBERED and int(argument or 0) > len(data):
                raise pickle.UnpicklingError(f"it numbers an object {argument}")
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle can raise anything
        raise VisleakError(
            f"{path} cannot be read as a pickle of texts, lists, sets and dicts alone:"
            f" {one_line(error)}; write the prompts as CSV or JSON where you trust it"
        ) from error


#: Ending of a file to its format and reader.
FORMATS: Final[Mapping[str, tuple[str, Callable[[Path, str | None], Iterator[Row]]]]] = {
    **dict.fromkeys((".csv", ".tsv"), ("CSV", _csv_rows)),
    ".txt": ("text", _text_rows),
    **dict.fromkeys((".jsonl", ".ndjson"), ("JSON lines", _jsonl_rows)),
    ".json": ("JSON", _json_rows),
    ".parquet": ("Parquet", _parquet_rows),
    **dict.fromkeys((".pickle", ".pkl"), ("pickle", _pickle_rows)),
}


def read_prompts(path: str | os.PathLike[str], *, column: str | None = None) -> Prompts:
    """Read a list of prompts; what it names is not fetched.

    The ending decides the format: ``.csv`` and ``.tsv`` with a header (MemBench's
    ``SD1_final.csv``), ``.parquet`` (our own tables), ``.jsonl`` (Webster's and Wen's lists),
    ``.json`` (a list, prompts with their images, or COCO's captions, the first of each image),
    ``.txt`` (one per line), ``.pickle`` (legacy; data only). Prompts are in the column ``prompt``,
    else ``caption``, else ``text``; memorized images in ``sources``, ``urls``, ``url``; whether a
    prompt is known to be memorized in ``label`` or ``memorized``. Text is UTF-8.

    Prompts are in the order of the file, each once: equal ones join their images, empty ones are
    left out; ``notes`` counts both.

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
    with _rows(file, column) as (kind, rows):
        return gathered(rows, str(file), f"{file.name} ({kind})")


def read_values(
    path: str | os.PathLike[str], name: str, *, column: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Read every value that prompts have in a further column of their file.

    :func:`read_prompts` keeps one value of a prompt, which is too few where the rows of a file are
    pairs, such as prompts that ``augment`` made of several triggers. Pairs of prompt and value are
    in the order of the file, each once; an empty value is left out where its prompt has another.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "list.csv"
    >>> _ = file.write_text("prompt,trigger\\na bag,red\\na bag,old\\na bag,\\n")
    >>> read_values(file, "trigger")
    (('a bag', 'red'), ('a bag', 'old'))
    """
    file = Path(path)
    with _rows(file, column) as (_, rows):
        pairs = dict.fromkeys(
            (checked_text(row.text, f"{file}, {row.place}"), writable(row.columns.get(name, "")))
            for row in rows
        )
    named = {text for text, value in pairs if value}
    return tuple(pair for pair in pairs if pair[0] and (pair[1] or pair[0] not in named))


@contextmanager
def _rows(file: Path, column: str | None) -> Iterator[tuple[str, Iterator[Row]]]:
    """Give the name of a file's format and its rows; errors while they are read name the file."""
    if file.is_dir():
        raise UsageError(f"prompts {file} is a folder; name a file in it")
    if not file.is_file():
        raise UsageError(f"prompts {file}: there is no such file")
    if file.suffix.lower() not in FORMATS:
        raise UsageError(
            f"prompts {file}: its ending must be one of {', '.join(FORMATS)}; got {file.suffix!r}"
        )
    kind, rows = FORMATS[file.suffix.lower()]
    try:
        yield kind, rows(file, column)
    except UnicodeDecodeError as error:
        raise VisleakError(
            f"{file} is not UTF-8 text ({error.reason}); save it as UTF-8"
        ) from error
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        raise VisleakError(
            f"{file} cannot be read as {kind}: {one_line(error, str(file))}"
        ) from error
