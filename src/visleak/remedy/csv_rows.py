"""Rows of CSV files in which any text is safe."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TextIO


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
