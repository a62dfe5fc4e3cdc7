"""Tables as CSV files for other tools, with all their digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.storage import csv_cell, replacing_text, write_csv_rows

#: Rows turned into text at a time.
CHUNK: Final = 50_000


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table, its column names first."""
    write_rows(path, tuple(table.column_names), _rows(table))


def write_rows(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Write rows of escaped cells below a header."""
    with replacing_text(path) as lines:
        write_csv_rows(lines, [header])
        write_csv_rows(lines, rows)


def _rows(table: pa.Table) -> Iterator[tuple[str, ...]]:
    for start in range(0, table.num_rows, CHUNK):
        part = table.slice(start, CHUNK)
        yield from zip(*(_cells(part[name]) for name in part.column_names), strict=True)


def _cells(column: pa.ChunkedArray) -> list[str]:
    """Return a column as the texts of CSV cells; numbers keep all their digits."""
    if pa.types.is_string(column.type):
        return [csv_cell(value or "") for value in column.to_pylist()]
    return [_number(value) for value in column.to_pylist()]


def _number(value: float | list[float] | None) -> str:
    """Return a number, or a list of them in brackets, in the fewest digits that keep a float32.

    >>> _number([-1.0, 0.1]), _number(0.10000000149011612), _number(None)
    ('[-1.0 0.1]', '0.1', '')
    """
    if value is None:
        return ""
    if isinstance(value, list):
        # brackets, because a cell that begins with a minus reads as a formula
        return f"[{' '.join(_number(each) for each in value)}]"
    return str(np.float32(value))
