"""Predictions from CSV and TSV files."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from visleak.delimited import Dialect, arrow_encoding, dialect_of, opened_table
from visleak.errors import VisleakError
from visleak.impact.answer_columns import Bool, ClassScores, Found, joined, quoted
from visleak.storage import csv_text

#: Before the name of a class, in the header of a column of class scores.
SCORE: Final = "score:"

#: Bytes parsed at a time; no line may be longer.
_BYTES: Final = 8 << 20


def read_csv(path: Path) -> Found:
    """Return the columns of a CSV file as text, empty cells as null, and its class scores.

    Raises:
        VisleakError: it has no header, or a column twice.
        ValueError, OSError: it is no CSV, or its encoding is not known for sure.
    """
    header = _header(path)
    plain = [name for name in header if not name.startswith(SCORE)]
    scored = [name for name in header if name.startswith(SCORE)]
    convert = pa.csv.ConvertOptions(
        include_columns=plain,
        column_types={name: pa.string() for name in plain},
        null_values=[""],
        strings_can_be_null=True,
    )
    columns: dict[str, pa.Array] = {}
    if plain:
        table = pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(encoding=arrow_encoding(_dialect(path))),
            parse_options=_parsing(path),
            convert_options=convert,
        )
        columns = {csv_text(name): _unguarded(table[name]) for name in plain}
    if not scored:
        return columns, None, None, ()
    classes = pa.array([name.removeprefix(SCORE) for name in scored], pa.string())
    return columns, ClassScores(classes, partial(_blocks, path, scored)), None, ()


def _parsing(path: Path) -> pa.csv.ParseOptions:
    return pa.csv.ParseOptions(delimiter=_dialect(path).delimiter, newlines_in_values=True)


def _dialect(path: Path) -> Dialect:
    with path.open("rb") as file:
        return dialect_of(file, path.name)


def _header(path: Path) -> list[str]:
    with opened_table(path) as (lines, delimiter):
        header = next(csv.reader(lines, delimiter=delimiter), [])
    if not header:
        raise VisleakError(f"{path} is empty: a file of predictions begins with a header")
    name, count = Counter(map(csv_text, header)).most_common(1)[0]
    if count > 1:
        raise VisleakError(f"{path} has more than one column {quoted(name)}; keep one")
    return header


def _unguarded(column: pa.ChunkedArray) -> pa.StringArray:
    """Return text without the quotes that keep spreadsheets from running it."""
    text = joined(column)
    guarded = pc.fill_null(pc.starts_with(text, "'"), False)
    if not pc.any(guarded).as_py():
        return text
    plain = [csv_text(cell) for cell in text.filter(guarded).to_pylist()]
    return pc.replace_with_mask(text, guarded, pa.array(plain, pa.string()))


def _blocks(path: Path, scored: list[str]) -> Iterator[tuple[npt.NDArray[Any], Bool]]:
    convert = pa.csv.ConvertOptions(
        include_columns=scored,
        column_types={name: pa.float64() for name in scored},
        null_values=[""],
    )
    with pa.csv.open_csv(
        path,
        read_options=pa.csv.ReadOptions(block_size=_BYTES, encoding=arrow_encoding(_dialect(path))),
        parse_options=_parsing(path),
        convert_options=convert,
    ) as reader:
        for batch in reader:
            values = np.empty((batch.num_rows, len(scored)))
            missing = np.zeros(batch.num_rows, dtype=np.int64)
            for place, column in enumerate(batch.columns):
                values[:, place] = column.to_numpy(zero_copy_only=False)
                if column.null_count:
                    missing += column.is_null().to_numpy(zero_copy_only=False)
            yield values, missing < len(scored)
