"""Where verdicts are kept: one SQLite file in the audit folder, and its plain copy.

Every verdict is a row that is never changed again but for the moment it was withdrawn, so undo
brings back what stood before.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from visleak.errors import VisleakError
from visleak.verdicts.plain import COLUMNS, PLAIN, read_plain, write_plain
from visleak.verdicts.record import Verdict, now

FILE: Final = "verdicts.sqlite"

#: The plain copy is written again after this many verdicts, and at the end.
EVERY: Final = 20

#: Seconds to wait for another process that is writing.
PATIENCE: Final = 60.0

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


class Ledger:
    """The verdicts of an audit folder. Safe under several threads and processes at once.

    A folder that came with ``verdicts.csv`` alone begins with these.

    Args:
        folder: the audit folder.

    Raises:
        VisleakError: it cannot be written, or the file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE
        self._since = 0
        self._lock = threading.RLock()
        with self._explained():
            self._db = _connect(self.path)
            try:
                self._begin()
            except BaseException:
                self._db.close()
                raise

    def _begin(self) -> None:
        """Make the table; take over the plain copy that came without one."""
        with self._writing():
            known = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            self._db.execute(_TABLE)
            plain = self.folder / PLAIN
            if not known and plain.is_file():
                self._insert(read_plain(plain))

    def add(self, *verdicts: Verdict) -> None:
        """Keep verdicts, on disk when this returns; those of one call are undone together."""
        if not verdicts:
            return
        with self._lock:
            with self._explained(), self._writing():
                self._insert(verdicts)
            self._changed(len(verdicts))

    def undo(self, reviewer: str) -> tuple[Verdict, ...]:
        """Withdraw what a reviewer said last, and return it; empty where nothing stands.

        What they had said of the pair before stands again.
        """
        chosen = ", ".join(COLUMNS)
        with self._lock:
            with self._explained(), self._writing():
                last = self._db.execute(
                    "SELECT max(batch) FROM verdicts WHERE reviewer = ? AND withdrawn IS NULL",
                    (reviewer,),
                ).fetchone()[0]
                rows = self._db.execute(
                    f"SELECT {chosen} FROM verdicts WHERE batch = ? AND reviewer = ?"
                    " AND withdrawn IS NULL ORDER BY number",
                    (last, reviewer),
                ).fetchall()
                self._db.execute(
                    "UPDATE verdicts SET withdrawn = ? WHERE batch = ? AND reviewer = ?"
                    " AND withdrawn IS NULL",
                    (now(), last, reviewer),
                )
            self._changed(len(rows))
        return tuple(Verdict(*row) for row in rows)

    def standing(self) -> tuple[Verdict, ...]:
        """Return the last verdict of every reviewer on every pair, in order of time."""
        with self._lock, self._explained():
            return tuple(Verdict(*row) for row in self._db.execute(_STANDING))

    def write_plain(self) -> None:
        """Write ``verdicts.csv`` anew, in one step."""
        with self._lock:
            write_plain(self.folder / PLAIN, self.standing())
            self._since = 0

    def close(self) -> None:
        """Write what the plain copy lacks, and let go of the file."""
        with self._lock:
            try:
                if self._since:
                    self.write_plain()
            finally:
                # a log that nobody writes any more would only leave files beside the ledger;
                # while another process is at it, it stays
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("PRAGMA busy_timeout=0")
                    self._db.execute("PRAGMA journal_mode=DELETE").fetchone()
                self._db.close()

    def _insert(self, verdicts: Iterable[Verdict]) -> None:
        last = self._db.execute("SELECT coalesce(max(batch), 0) FROM verdicts").fetchone()[0]
        self._db.executemany(_INSERT, ((last + 1, *astuple(verdict)) for verdict in verdicts))

    def _changed(self, count: int) -> None:
        self._since += count
        if self._since >= EVERY:
            self.write_plain()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the file from the first look to the last word, so that batches never mix."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise VisleakError(
                f"verdicts cannot be kept in {self.path} ({error}); see that the folder can be"
                " written and the disk has room"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_verdicts(folder: Path) -> tuple[Verdict, ...]:
    """Return the verdicts that stand in an audit folder; none where nobody judged.

    ``verdicts.sqlite`` knows the last ones first; where there is none, or it cannot be opened
    (a folder that only reads), the plain copy tells.

    Raises:
        VisleakError: what is there is damaged.
    """
    plain, kept = folder / PLAIN, folder / FILE
    if kept.is_file():
        try:
            with contextlib.closing(
                sqlite3.connect(f"{kept.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE)
            ) as db:
                # killed before it had begun
                begun = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if begun:
                    return tuple(Verdict(*row) for row in db.execute(_STANDING))
        except sqlite3.Error as error:
            if not plain.is_file():
                raise VisleakError(
                    f"{kept} cannot be read ({error}); bring {PLAIN} back to go on"
                ) from error
    return read_plain(plain) if plain.is_file() else ()


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False, isolation_level=None)
    try:
        # WAL is refused on some network file systems; the plain journal is safe too
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode=WAL").fetchone()
        # a verdict is a person's work: it must outlive a power cut
        db.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error:
        db.close()
        raise
    return db
