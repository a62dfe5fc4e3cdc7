"""``verdicts.csv``: the verdicts that stand, as a table that any tool reads."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Final

from visleak.delimited import opened_table
from visleak.errors import VisleakError
from visleak.storage import VERDICTS, csv_text, write_csv
from visleak.verdicts.record import Verdict

PLAIN: Final = VERDICTS
COLUMNS: Final = tuple(each.name for each in fields(Verdict))


def write_plain(path: Path, verdicts: Iterable[Verdict]) -> None:
    """Write verdicts in one step, in the order given."""
    rows = (tuple("" if v is None else str(v) for v in astuple(verdict)) for verdict in verdicts)
    write_csv(path, COLUMNS, rows)


def read_plain(path: Path) -> tuple[Verdict, ...]:
    """Read ``verdicts.csv`` back; columns may stand in any order, others are left alone.

    Raises:
        VisleakError: the file is damaged; the message names the line.
    """
    line = 1
    try:
        with opened_table(path) as (text, delimiter):
            reader = csv.DictReader(text, delimiter=delimiter)
            missing = [name for name in COLUMNS[:4] if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(f"it has no column {missing[0]!r}")
            found = []
            for row in reader:
                line = reader.line_num
                found.append(_verdict({name: row.get(name) or "" for name in COLUMNS}))
            return tuple(found)
    except (OSError, ValueError, csv.Error, VisleakError) as error:
        raise VisleakError(f"{path}, line {line}, cannot be read: {error}") from error


def _verdict(row: dict[str, str]) -> Verdict:
    cells = {name: csv_text(cell) for name, cell in row.items()}
    similarity = cells.pop("similarity")
    if not cells["time"]:
        del cells["time"]
    return Verdict(**cells, similarity=float(similarity) if similarity else None)
