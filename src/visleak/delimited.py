"""CSV and TSV files as people have them: encoding by byte order mark, delimiter by header.

Anything else than UTF-8 with commas, semicolons, tabs or bars, or UTF-16 and UTF-32 with a mark,
is an error that names the encoding, never a guess.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TextIO

#: What a file in another encoding than UTF-8 begins with; the longer mark first.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

#: Characters of a header that are examined.
_HEADER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a table of text is read."""

    encoding: str
    delimiter: str


def dialect_of(file: IO[bytes], name: str) -> Dialect:
    """Return how a table is read; reads its header.

    >>> dialect_of(io.BytesIO("path;label\\n".encode("utf-16")), "a.csv")
    Dialect(encoding='utf-16', delimiter=';')
    """
    encoding = encoding_of(file.read(64))
    file.seek(0)
    header = io.TextIOWrapper(file, encoding, newline="")
    try:
        first = header.readline(_HEADER)
    except UnicodeError as error:
        raise ValueError(not_readable(error, encoding)) from error
    finally:
        header.detach()
    if name.lower().endswith(".tsv"):
        return Dialect(encoding, "\t")
    return Dialect(encoding, next((mark for mark in ",;\t|" if _separates(mark, first)), ","))


def encoding_of(head: bytes) -> str:
    """Return the encoding of a text that begins with some bytes."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if b"\0" in head:
        raise ValueError("it is UTF-16 without a byte order mark, or no text; save it as UTF-8")
    return "utf-8-sig"


def arrow_encoding(dialect: Dialect) -> str:
    """Return the encoding in Arrow's words, which leaves out a mark before UTF-8 by itself."""
    return "utf8" if dialect.encoding == "utf-8-sig" else dialect.encoding


def not_readable(error: UnicodeError, encoding: str = "utf-8-sig") -> str:
    """Return what is wrong with bytes that are not in an encoding, and what to do."""
    known = encoding.removesuffix("-sig").upper()
    return f"it is not in {known} ({error}); save it as UTF-8"


@contextmanager
def opened_table(path: Path) -> Iterator[tuple[TextIO, str]]:
    """Open a table to be read by :mod:`csv`; give its lines, and what separates cells."""
    with path.open("rb") as file:
        dialect = dialect_of(file, path.name)
        file.seek(0)
        with io.TextIOWrapper(file, dialect.encoding, newline="") as lines:
            try:
                yield lines, dialect.delimiter
            except UnicodeDecodeError as error:
                raise ValueError(not_readable(error, dialect.encoding)) from error


def _separates(mark: str, header: str) -> bool:
    return len(next(csv.reader([header], delimiter=mark), [])) > 1


def write_csv_rows(file: TextIO, rows: Iterable[Sequence[object]], delimiter: str = ",") -> None:
    r"""Write rows, each ended by a line feed.

    Python's writer quotes a carriage return only where it is part of what ends its lines, and a
    reader would take it for the end of one.

    >>> import io
    >>> file = io.StringIO()
    >>> write_csv_rows(file, [("a\r", 1)])
    >>> file.getvalue()
    '"a\r",1\n'
    """
    held = io.StringIO(newline="")
    writer = csv.writer(held, delimiter=delimiter, lineterminator="\r\n")
    for row in rows:
        held.seek(0)
        held.truncate()
        writer.writerow(row)
        file.write(held.getvalue().removesuffix("\r\n") + "\n")
