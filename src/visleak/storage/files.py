"""Files that are written whole or not at all: text, JSON, CSV and Parquet.

Every file is written under a temporary name, flushed to the disk and renamed, so that a kill at
any moment leaves no half-written file under a final name.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.delimited import opened_table, write_csv_rows
from visleak.errors import VisleakError, one_line


@contextmanager
def naming(path: Path, beside: Path | None = None) -> Iterator[None]:
    """Name a file in errors of the system that name none, as those of a full disk."""
    try:
        yield
    except OSError as error:
        ours = error.filename is None or (beside is not None and error.filename == str(beside))
        if not ours or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path: it becomes ``path`` in one step on success, and is removed on failure.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(target) as beside:
    ...     _ = beside.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with naming(path, beside):
            yield beside
            flush(beside)
            os.replace(beside, path)
            flush(path.parent)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


@contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    """Open a text file to write that appears whole or not at all."""
    try:
        with (
            replacing(path) as beside,
            beside.open("w", encoding="utf-8", newline="", errors="backslashreplace") as lines,
        ):
            yield lines
    except OSError as error:
        raise VisleakError(f"{path} cannot be written ({error.strerror})") from error


def write_cells(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file in one step, row by row; its cells are written as they are."""
    with replacing_text(path) as lines:
        write_csv_rows(lines, [header])
        write_csv_rows(lines, rows)


def flush(path: Path) -> None:
    """Push a file, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step.

    Lone surrogates, by which Python keeps file names that are not UTF-8, are written as
    ``\\udc..``: in JSON they come back as they were.
    """
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step."""
    with replacing(path) as beside:
        beside.write_bytes(data)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file in one step, keys in the order given."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # a path that is not UTF-8 has lone surrogates, which are escaped
    write_text(path, text.encode("utf-8", "backslashreplace").decode("utf-8"))


def file_digest(path: Path) -> str:
    """Return the BLAKE2b-128 digest of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables of one schema as the row groups of one Parquet file; return the row count.

    The bytes depend on the tables alone: no time stamp, no machine, no worker count.
    """
    rows = 0
    with (
        replacing(path) as beside,
        # Arrow opens no name that is not UTF-8
        beside.open("wb") as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", write_statistics=True, write_page_checksum=True
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(schema))
            rows += table.num_rows
    return rows


def csv_cell(value: str) -> str:
    """Return a text that a spreadsheet will not take for a formula; :func:`csv_text` undoes it.

    >>> csv_cell("=cmd()")
    "'=cmd()"
    >>> csv_cell("cat.png")
    'cat.png'
    """
    return f"'{value}" if _is_formula(value) else value


def csv_value(value: str | int | float) -> str:
    """Return a value as a cell: a number as it is, a text so that no spreadsheet runs it.

    >>> [csv_value(value) for value in (-0.03, math.nan, True, 271, "=cmd()")]
    ['-0.03', '', 'yes', '271', "'=cmd()"]
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return csv_cell(value)
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else f"{value:.10g}"


def csv_text(cell: str) -> str:
    """Return the text behind a cell.

    >>> csv_text("'=cmd()"), csv_text("'tis.png")
    ('=cmd()', "'tis.png")
    """
    return cell[1:] if cell[:1] == "'" and _is_formula(cell) else cell


def read_csv(path: Path, header: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the rows of a file that :func:`write_csv` wrote; ``ValueError`` if it is damaged."""
    with path.open(encoding="utf-8", newline="") as lines:
        found, *rows = csv.reader(lines)
    if tuple(found) != tuple(header):
        raise ValueError(f"its columns are not {', '.join(header)}")
    if any(len(row) != len(header) for row in rows):
        raise ValueError("a row has more or fewer cells than there are columns")
    return [tuple(map(csv_text, row)) for row in rows]


class Rows:
    """The rows of a table of text: cells by column, without guards against formulas."""

    def __init__(self, lines: TextIO, delimiter: str, padded: bool) -> None:
        self._reader, self._padded = csv.reader(lines, delimiter=delimiter, strict=True), padded
        self.names = [csv_text(name).strip() for name in next(self._reader, [])]

    @property
    def line(self) -> int:
        """The line of the row, from 1."""
        return max(1, self._reader.line_num)

    def __iter__(self) -> Iterator[dict[str, str]]:
        for cells in self._reader:
            left = len(self.names) - len(cells)
            if not any(cell.strip() for cell in cells):
                continue
            if left < 0 or (left and not self._padded):
                raise ValueError(f"{len(cells)} cells under {len(self.names)} columns")
            yield dict(zip(self.names, [*map(csv_text, cells), *[""] * left], strict=True))

    def need(self, names: Iterable[str], advice: str = "") -> None:
        """Refuse a table without some columns."""
        missing = next((name for name in names if name not in self.names), None)
        if missing is not None:
            there = ", ".join(self.names[:12]) or "none"
            raise ValueError(f"it has no column {missing!r}{advice or f'; it has {there}'}")


@contextmanager
def open_rows(path: Path, *, padded: bool = False) -> Iterator[Rows]:
    """Open a table of text that people may have written; errors name the line.

    ``padded``: cells at the end of a row may be left out.
    """
    rows = None
    try:
        with opened_table(path) as (lines, delimiter):
            rows = Rows(lines, delimiter, padded)
            yield rows
    except (OSError, ValueError, csv.Error) as error:
        where = f"{path} cannot be read" if rows is None else f"{path}, line {rows.line}"
        raise VisleakError(f"{where}: {one_line(error, where)}") from error


def _is_formula(value: str) -> bool:
    """Whether a spreadsheet may run a text; leading quotes are ignored, so that none is lost."""
    return value.lstrip("'")[:1] in ("=", "+", "-", "@", "\t", "\r")


def write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Write a CSV file in one step, formula-proof, with its header even when there are no rows."""
    write_text(path, csv_of(header, rows))


def csv_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a CSV, formula-proof.

    >>> csv_of(["id"], [["=a"]])
    "id\\n'=a\\n"
    """
    text = io.StringIO(newline="")
    write_csv_rows(text, [header])
    write_csv_rows(text, ([csv_cell(cell) for cell in row] for row in rows))
    return text.getvalue()


@contextmanager
def opened_for_arrow(path: Path) -> Iterator[Path | IO[bytes]]:
    """Give a file to read as Arrow takes it: by its name, or open, as Arrow's names are UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with path.open("rb") as file:
            yield file
        return
    yield path
