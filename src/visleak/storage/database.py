"""SQLite files in the folder of a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from visleak.errors import VisleakError

#: Seconds to wait for another process that is writing, and keys in one statement.
PATIENCE: Final = 60.0
CHUNK: Final = 500


class Database:
    """A SQLite file whose errors say what to do. A context manager.

    What a block of :meth:`writing` did is on disk when it ends, or none of it is.

    Args:
        path: the file; ``None`` keeps the data in memory.
        tables: statements that create the tables where they are missing.
        hint: what to do about a damaged file.
        durable: a finished block outlives a power cut, not only a kill.

    Raises:
        VisleakError: the file cannot be created, read or written.
    """

    def __init__(self, path: Path | None, tables: str, hint: str, *, durable: bool = False) -> None:
        self.path = path
        self._hint = hint
        with self.reading():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path or ":memory:", timeout=PATIENCE, isolation_level=None)
            try:
                if durable:
                    self._db.execute("PRAGMA synchronous=FULL")
                else:
                    # WAL is refused on some network file systems; the plain journal is safe too
                    with suppress(sqlite3.OperationalError):
                        self._db.execute("PRAGMA journal_mode=WAL").fetchone()
                    self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.executescript(tables)
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn errors of SQLite and of the disk into one line.

        Raises:
            VisleakError: there was one.
        """
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise VisleakError(
                f"{self.path or 'the database in memory'} cannot be used ({error}); check that the"
                f" folder can be written and the disk has room; {self._hint}"
            ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write in one transaction.

        Raises:
            VisleakError: as :meth:`reading`.
        """
        with self.reading():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                # a full disk has rolled it back already
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def select(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query.

        Raises:
            VisleakError: as :meth:`reading`.
        """
        with self.reading():
            yield from self._db.execute(query, values)

    def close(self) -> None:
        """Close the file; the log beside it is merged into it."""
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA busy_timeout=0")
            self._db.execute("PRAGMA journal_mode=DELETE").fetchone()
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class KeyValueStore(Database):
    """Values by key: numbers, texts or bytes. A value that is present never changes.

    Args:
        path: the file.
        what: what the values are, for errors.

    Raises:
        VisleakError: the file cannot be used.
    """

    def __init__(self, path: Path, what: str) -> None:
        table = "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value) WITHOUT ROWID"
        hint = f"a damaged file may be deleted, {what} are then computed again"
        # the next batch may rely on entries of this one
        super().__init__(path, table, hint, durable=True)

    def known(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values that are present, by key."""
        found: dict[str, Any] = {}
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            marks = ",".join("?" * len(part))
            found.update(
                self.select(f"SELECT key, value FROM entries WHERE key IN ({marks})", part)
            )
        return found

    def add(self, values: Mapping[str, Any], *, replace: bool = False) -> None:
        """Add values, all or none of them.

        Args:
            values: by key.
            replace: values that are present are replaced.
        """
        verb = "REPLACE" if replace else "IGNORE"
        with self.writing() as db:
            db.executemany(f"INSERT OR {verb} INTO entries VALUES (?, ?)", values.items())
