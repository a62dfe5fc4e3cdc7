"""Prompts of text files, CSV, TSV and lines of JSON, read line by line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from visleak.delimited import opened_table
from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.cells import shown
from visleak.memorization.prompt_files.rows import Row, prompt_column, row_of
from visleak.store import csv_text

#: Characters of a line; a longer one is no line of a list of prompts.
LONGEST_LINE: Final = 1_000_000


def text_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield one prompt a line, as the lists of Ren et al. have them."""
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
    """Yield the rows of a file with one JSON value a line: an object or a text.

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
                f"{path}, line {number:,}: more than {LONGEST_LINE:,} characters; one prompt a line"
            )
        yield line
