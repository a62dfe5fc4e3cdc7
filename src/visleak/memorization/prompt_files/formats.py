"""The formats of prompt lists: text, CSV, JSON lines, JSON, Parquet and pickles of plain data."""

from __future__ import annotations

import csv
import io
import json
import pickle
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import pyarrow.parquet as pq

from visleak.delimited import opened_table
from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.reading import Row, prompt_column, row_of, shown, sources_of
from visleak.storage import csv_text

#: Characters of a line; a longer one is no line of a list of prompts.
LONGEST_LINE: Final = 1_000_000


def text_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield one prompt per line, as the lists of Ren et al. have them."""
    if column is not None:
        raise UsageError(f"--column {column!r}: {path} is a text file, which has no columns")
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(_lines(file, path), 1):
            yield Row(f"line {number:,}", line)


def csv_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file, MemBench's among them; cells of ours lose their guard.

    Raises:
        VisleakError: no column of prompts, a row with more cells than the header, or no CSV.
    """
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
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise VisleakError(
                        f"{path}, {place}: {len(cells)} cells for {len(header)} columns; put a"
                        " prompt with commas in quotes"
                    )
                values = dict(zip(header, map(csv_text, cells), strict=True))
                yield row_of(place, str(path), values, prompt)
        except csv.Error as error:
            raise VisleakError(
                f"{path}, line {begun:,}: no CSV ({error}); a cell has at most"
                f" {csv.field_size_limit():,} characters, and its quotes are closed"
            ) from error


def jsonl_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the rows of a file with one JSON value per line: an object or a text.

    Webster's and Wen's lists are such files: ``caption``, ``index``, ``url``.

    Raises:
        VisleakError: a line is neither, or has no prompt.
    """
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(_lines(file, path), 1):
            place = f"line {number:,}"
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                said = " ".join(str(error).split())[:100]
                raise VisleakError(f"{path}, {place}: no JSON ({said})") from error
            yield json_row(value, place, path, column)


def json_row(value: object, place: str, path: Path, column: str | None) -> Row:
    """Return the row that one value of JSON is: an object, or the prompt itself."""
    if isinstance(value, str) and column is None:
        return Row(place, value)
    if isinstance(value, dict):
        return row_of(
            place, str(path), value, prompt_column(list(value), column, f"{path}, {place}")
        )
    raise VisleakError(
        f"{path}, {place}: a prompt is a text, or an object with prompt, caption or text; got"
        f" {shown(value)}"
    )


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


#: Rows held at a time.
BATCH: Final = 4096

#: A larger JSON file is refused, for it is held whole; COCO's captions have 91 MB.
MOST_JSON_BYTES: Final = 1 << 29


def parquet_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the rows of a Parquet table: our own, or any with a column of prompts.

    Raises:
        VisleakError: no column of prompts.
    """
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        prompt = prompt_column(list(schema.names), column, str(path))
        number = 0
        for batch in file.iter_batches(batch_size=BATCH):
            for values in batch.to_pylist():
                number += 1
                yield row_of(f"row {number:,}", str(path), values, prompt)


def json_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a JSON file.

    It is a list of texts or objects, an object that gives each prompt its images, or captions as
    COCO has them, of which the first of each image is taken (Hong et al. 2024, their general
    prompts).

    Raises:
        VisleakError: it is none of these.
    """
    size = path.stat().st_size
    if size > MOST_JSON_BYTES:
        raise VisleakError(
            f"{path} has {size:,} bytes; at most {MOST_JSON_BYTES:,} are read: make it .jsonl"
        )
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    if isinstance(content, list):
        for number, value in enumerate(content, 1):
            yield json_row(value, f"entry {number:,}", path, column)
    elif isinstance(content, dict) and isinstance(content.get("annotations"), list):
        yield from _coco_rows(content["annotations"], path, column)
    elif isinstance(content, dict):
        yield from named_rows(content, path, column)
    else:
        raise VisleakError(f"{path} is not a list of prompts: its JSON is {shown(content)}")


def named_rows(content: dict[Any, Any], path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a table from prompt to the images it is a trigger of.

    Raises:
        UsageError: a column was asked for.
        VisleakError: a prompt is no text, or images are no texts.
    """
    if column is not None:
        raise UsageError(f"--column {column!r}: {path} goes from prompt to images, without columns")
    for number, (prompt, images) in enumerate(content.items(), 1):
        place = f"entry {number:,}"
        if not isinstance(prompt, str):
            raise VisleakError(f"{path}, {place}: a prompt is a text; got {shown(prompt)}")
        yield Row(place, prompt, None, tuple(sources_of(images, f"{path}, {place}")))


def _coco_rows(annotations: list[Any], path: Path, column: str | None) -> Iterator[Row]:
    wanted, seen = column or "caption", set[int | str]()
    for number, each in enumerate(annotations, 1):
        image = each.get("image_id") if isinstance(each, dict) else None
        text = each.get(wanted) if isinstance(each, dict) else None
        if not isinstance(image, int | str) or not isinstance(text, str):
            raise VisleakError(
                f"{path}, annotation {number:,}: captions of COCO have image_id and {wanted}; this"
                " one lacks them"
            )
        if image not in seen:
            seen.add(image)
            yield Row(f"annotation {number:,}", text, columns={"image_id": str(image)})


#: A larger pickle is refused; MemBench's has 233 kB.
MOST_BYTES: Final = 64 << 20

_TEXTS: Final = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_LISTS: Final = ("EMPTY_LIST", "LIST", "APPEND", "APPENDS")
_TABLES: Final = ("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS")
_NUMBERED: Final = ("PUT", "BINPUT", "LONG_BINPUT")
_KEPT: Final = ("MEMOIZE", *_NUMBERED, "GET", "BINGET", "LONG_BINGET")
_FRAMES: Final = ("PROTO", "FRAME", "MARK", "STOP")
_ALLOWED: Final = frozenset((*_TEXTS, *_LISTS, *_TABLES, *_KEPT, *_FRAMES))


class _Unpickler(pickle.Unpickler):
    """Imports nothing, whatever it is told."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it asks for an object kept elsewhere")


def pickle_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a pickle: a dict from prompt to a set or list of images, or a list.

    Raises:
        UsageError: a column was asked for.
        VisleakError: it is too large, damaged, or holds anything but texts, lists, sets and dicts.
    """
    content = load_plain(path)
    if isinstance(content, dict):
        # a set has no order of its own
        plain = {
            prompt: sorted(images, key=str) if isinstance(images, set) else images
            for prompt, images in content.items()
        }
        yield from named_rows(plain, path, column)
        return
    if not isinstance(content, list) or not all(isinstance(each, str) for each in content):
        raise VisleakError(
            f"{path} is not a list of prompts: it holds neither texts nor a dict from prompt to"
            " images"
        )
    if column is not None:
        raise UsageError(f"--column {column!r}: {path} is a list of prompts, without columns")
    for number, text in enumerate(content, 1):
        yield Row(f"entry {number:,}", text)


def load_plain(path: Path) -> Any:
    """Return what a pickle builds of texts, lists, sets and dicts.

    Raises:
        VisleakError: it is too large, damaged, or would do anything else.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise VisleakError(f"{path} has {size:,} bytes; pickles are read up to {MOST_BYTES:,}")
    data = path.read_bytes()
    try:
        _look_through(data)
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle can raise anything
        said = " ".join(str(error).split())[:120]
        raise VisleakError(
            f"{path} cannot be read as a pickle of texts, lists, sets and dicts alone: {said};"
            " write the prompts as CSV or JSON where you trust it"
        ) from error


def _look_through(data: bytes) -> None:
    """Refuse a pickle with any other instruction, before one is carried out."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _ALLOWED:
            raise pickle.UnpicklingError(f"it holds the instruction {opcode.name}")
        # memory is set aside for all numbers below the one that is named
        if opcode.name in _NUMBERED and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"it numbers an object {argument}")
