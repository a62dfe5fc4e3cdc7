"""Storage of verdicts: one SQLite file in the audit folder, and a CSV copy of it.

A verdict is a row that never changes, except for the time of its withdrawal, so undo restores the
verdict before it.
"""

from __future__ import annotations

import contextlib
import csv
import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Final

from visleak.delimited import opened_table
from visleak.errors import VisleakError
from visleak.storage import LEDGER, VERDICTS, MirroredDatabase, csv_text, write_csv
from visleak.storage.database import EVERY, check_rows, connect_read_only
from visleak.verdicts.record import Verdict, now

FILE: Final = LEDGER
PLAIN: Final = VERDICTS
COLUMNS: Final = tuple(each.name for each in fields(Verdict))

#: Errors of a file that cannot be opened, as in a read-only folder.
_CLOSED: Final = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS verdicts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, batch INTEGER NOT NULL,
    first TEXT NOT NULL, second TEXT NOT NULL, judgment TEXT NOT NULL, reviewer TEXT NOT NULL,
    time TEXT NOT NULL, query_set TEXT, query TEXT, reference_set TEXT, reference TEXT,
    similarity REAL, withdrawn TEXT
)
"""
_INSERT: Final = (
    f"INSERT INTO verdicts (batch, {', '.join(COLUMNS)}) VALUES (?{', ?' * len(COLUMNS)})"
)
_STANDING: Final = f"""
SELECT {", ".join(COLUMNS)} FROM verdicts WHERE number IN (
    SELECT max(number) FROM verdicts WHERE withdrawn IS NULL GROUP BY reviewer, first, second
) ORDER BY number
"""


class Ledger(MirroredDatabase):
    """The verdicts of an audit folder. Safe for several threads and processes.

    A folder that contains ``verdicts.csv`` only starts with these.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE, PLAIN)

    def _begin(self) -> None:
        with self.writing() as db:
            known = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            db.execute(_TABLE)
            if not known and self.plain.is_file():
                self._insert(read_plain(self.plain))

    def add(self, *verdicts: Verdict) -> None:
        """Store verdicts, on disk when this returns; those of one call are undone together."""
        if verdicts:
            with self.writing():
                self._insert(verdicts)
            self.changed(len(verdicts))

    def undo(self, reviewer: str) -> tuple[Verdict, ...]:
        """Withdraw the last verdicts of a reviewer and return them; empty without any.

        Earlier verdicts on the same pairs are valid again.
        """
        with self.writing() as db:
            last = db.execute(
                "SELECT max(batch) FROM verdicts WHERE reviewer = ? AND withdrawn IS NULL",
                (reviewer,),
            ).fetchone()[0]
            mine = "batch = ? AND reviewer = ? AND withdrawn IS NULL"
            rows = db.execute(
                f"SELECT {', '.join(COLUMNS)} FROM verdicts WHERE {mine} ORDER BY number",
                (last, reviewer),
            ).fetchall()
            db.execute(f"UPDATE verdicts SET withdrawn = ? WHERE {mine}", (now(), last, reviewer))
        self.changed(len(rows))
        return tuple(Verdict(*row) for row in rows)

    def standing(self) -> tuple[Verdict, ...]:
        """Return the last verdict of every reviewer on every pair, in order of time."""
        with self.reading():
            return tuple(Verdict(*row) for row in self._db.execute(_STANDING))

    def _insert(self, verdicts: Iterable[Verdict]) -> None:
        last = self._db.execute("SELECT coalesce(max(batch), 0) FROM verdicts").fetchone()[0]
        self._db.executemany(_INSERT, ((last + 1, *astuple(verdict)) for verdict in verdicts))

    def _copy(self) -> None:
        write_plain(self.plain, self.standing())


def read_verdicts(folder: Path) -> tuple[Verdict, ...]:
    """Return the valid verdicts of an audit folder, if there are any.

    They are read from ``verdicts.sqlite``, or, if it is missing or cannot be opened (in a read-only
    folder), from the plain copy. That may lack the last ones, so it does not stand for a damaged
    file.

    Raises:
        VisleakError: a file is damaged.
    """
    plain, kept = folder / PLAIN, folder / FILE
    if kept.is_file():
        try:
            with contextlib.closing(connect_read_only(kept)) as db:
                check_rows(db)
                # a killed run may have left an empty file
                begun = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if begun:
                    return tuple(Verdict(*row) for row in db.execute(_STANDING))
        except (sqlite3.Error, UnicodeError) as error:
            opened = getattr(error, "sqlite_errorcode", 0) & 0xFF not in _CLOSED
            if opened or not plain.is_file():
                raise VisleakError(
                    f"{kept} cannot be read ({error}); restore it, or move it away, so that"
                    f" {PLAIN} is read, which may lack the last {EVERY - 1} verdicts"
                ) from error
    return read_plain(plain) if plain.is_file() else ()


def write_plain(path: Path, verdicts: Iterable[Verdict]) -> None:
    """Write verdicts in one step, in the order given."""
    rows = (tuple("" if v is None else str(v) for v in astuple(verdict)) for verdict in verdicts)
    write_csv(path, COLUMNS, rows)


def read_plain(path: Path) -> tuple[Verdict, ...]:
    """Read ``verdicts.csv`` back; columns may have any order, others are ignored."""
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
