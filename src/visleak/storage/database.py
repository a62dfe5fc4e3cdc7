"""SQLite files in the folder of a run.

Each row has a digest of its values: SQLite finds damage of its own structure, but not a changed bit
within a value.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from visleak.errors import VisleakError

#: Seconds to wait for another process that is writing, and keys in one statement.
PATIENCE: Final = 60.0
CHUNK: Final = 500
#: The copy of a mirrored database is written after this many changes, and at the end.
EVERY: Final = 20
#: Name of the column with the digest of a row, and of the SQL function that computes it.
DIGEST: Final = "digest"
ROW_DIGEST: Final = "row_digest"
#: Columns that are not the content of a row of decisions.
_NO_CONTENT: Final = ("number", "batch", "withdrawn")
#: Bytes of a digest.
DIGEST_BYTES: Final = 8


def connect(path: Path | None, *, log: bool = True, durable: bool = False) -> sqlite3.Connection:
    """Open a SQLite file; several threads and processes may use it."""
    db = sqlite3.connect(
        path or ":memory:", timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    db.create_function(ROW_DIGEST, -1, row_digest, deterministic=True)
    try:
        if log:
            # WAL is refused on some network file systems; the plain journal is safe too
            with suppress(sqlite3.OperationalError):
                db.execute("PRAGMA journal_mode=WAL").fetchone()
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a SQLite file that may lie in a folder that cannot be written."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE)
    db.create_function(ROW_DIGEST, -1, row_digest, deterministic=True)
    return db


def row_digest(*values: object) -> bytes:
    """Return the digest of the values of a row."""
    text = json.dumps(values, default=lambda data: {"bytes": data.hex()}).encode()
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


def check_rows(db: sqlite3.Connection) -> None:
    """Compare all rows with their digests, and the file's structure with its content.

    Tables without digests, as earlier versions wrote them, are taken as they are.

    Raises:
        sqlite3.DatabaseError: they differ.
    """
    ((found, *_), *_) = db.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    for table, (columns, digest) in _tables(db).items():
        if digest:
            wrong = f"{DIGEST} IS NOT {ROW_DIGEST}({columns})"
            ((count,),) = db.execute(f"SELECT count(*) FROM {table} WHERE {wrong}")
            if count:
                raise sqlite3.DatabaseError(f"{count} of the rows of {table} changed on the disk")


def rows_lacking(path: Path, other: Path) -> int:
    """Count the decisions of people in another database that this one never had.

    The time of a withdrawal does not count, and numbers of rows depend on the database.
    """
    return len(_decisions(other) - _decisions(path))


def _decisions(path: Path) -> set[tuple[object, ...]]:
    rows: set[tuple[object, ...]] = set()
    if path.is_file():
        try:
            with closing(connect_read_only(path)) as db:
                for table, (columns, _) in _tables(db).items():
                    own = [name for name in columns.split(", ") if name not in _NO_CONTENT]
                    rows.update(db.execute(f"SELECT {', '.join(own)} FROM {table}"))
        except (sqlite3.Error, UnicodeError) as error:
            raise VisleakError(
                f"{path} cannot be read ({error}); restore it, or move it away"
            ) from error
    return rows


def _tables(db: sqlite3.Connection) -> dict[str, tuple[str, bool]]:
    """Return the columns of each table as SQL, and whether it has digests."""
    names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    found = {}
    for (table,) in names:
        if not table.startswith("sqlite_"):
            columns = [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]
            own = ", ".join(name for name in columns if name != DIGEST)
            found[table] = own, DIGEST in columns
    return found


def _keep_digests(db: sqlite3.Connection) -> None:
    """Give all rows digests, those of earlier versions included; rows to come get theirs."""
    if not all(digest for _, digest in _tables(db).values()):
        with transaction(db):
            # another process may have been faster
            for table, (columns, digest) in _tables(db).items():
                if not digest:
                    db.execute(f"ALTER TABLE {table} ADD COLUMN {DIGEST} BLOB")
                    db.execute(f"UPDATE {table} SET {DIGEST} = {ROW_DIGEST}({columns})")
    for table, (columns, _) in _tables(db).items():
        key = [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})") if row[5]]
        same = " AND ".join(f"{name} IS NEW.{name}" for name in key or ["rowid"])
        for event in ("INSERT", f"UPDATE OF {columns}"):
            db.execute(
                f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{event[:6].lower()} AFTER {event} ON"
                f" main.{table} BEGIN UPDATE {table} SET {DIGEST} = {ROW_DIGEST}({columns})"
                f" WHERE {same}; END"
            )


def marks(values: Sequence[object]) -> str:
    """Return the question marks of some values in a statement."""
    return ",".join("?" * len(values))


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write all of a block, or none of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # a full disk has rolled it back already
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


class Database:
    """A SQLite file whose errors say what to do. A context manager; safe under several threads.

    A block of :meth:`writing` is one transaction. Each table has a column with the digest of the
    row.
    """

    def __init__(
        self,
        path: Path | None,
        tables: str,
        hint: str,
        *,
        durable: bool = False,
        log: bool | None = None,
    ) -> None:
        self.path = path
        self._hint = hint
        self._lock = threading.RLock()
        with self.reading():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = connect(path, log=not durable if log is None else log, durable=durable)
            try:
                self._db.executescript(tables)
                _keep_digests(self._db)
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep other threads out, and turn errors of SQLite and of the disk into one line."""
        with self._lock:
            try:
                yield
            except sqlite3.IntegrityError:
                raise
            except (sqlite3.Error, OSError, UnicodeError) as error:
                raise VisleakError(
                    f"{self.path or 'the database in memory'} cannot be used ({error}); check that"
                    f" the folder can be written and the disk has room; {self._hint}"
                ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write in one transaction."""
        with self.reading(), transaction(self._db):
            yield self._db

    def select(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with self.reading():
            yield from self._db.execute(query, values)

    def check(self) -> None:
        """Compare all rows with their digests."""
        with self.reading():
            check_rows(self._db)

    def close(self) -> None:
        """Close the file; the log beside it is merged into it, unless another process uses it."""
        with self._lock:
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA busy_timeout=0")
                self._db.execute("PRAGMA journal_mode=DELETE").fetchone()
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KeyValueStore(Database):
    """Values by key: numbers, texts or bytes. A value that is present never changes."""

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
            query = f"SELECT key, value, {DIGEST} FROM entries WHERE key IN ({marks(part)})"
            with self.reading():
                for key, value, digest in self._db.execute(query, part):
                    if digest != row_digest(key, value):
                        raise sqlite3.DatabaseError(f"the value of {key!r} changed on the disk")
                    found[key] = value
        return found

    def add(self, values: Mapping[str, object], *, replace: bool = False) -> None:
        """Add values, all or none of them."""
        verb = "REPLACE" if replace else "IGNORE"
        with self.writing() as db:
            insert = f"INSERT OR {verb} INTO entries (key, value) VALUES (?, ?)"
            db.executemany(insert, values.items())


class MirroredDatabase(Database, ABC):
    """A database of decisions of people, with a CSV copy for other tools."""

    def __init__(self, path: Path, plain: str) -> None:
        self.file = path
        self.plain = path.with_name(plain)
        self._since = 0
        if not path.parent.is_dir():
            raise VisleakError(f"{path} cannot be used: there is no folder {path.parent}")
        super().__init__(
            path, "", f"or move the file away and resume from {plain}", durable=True, log=True
        )
        try:
            self.check()
            self._begin()
            with self.reading():
                _keep_digests(self._db)
        except BaseException:
            self._db.close()
            raise

    @abstractmethod
    def _begin(self) -> None:
        """Create the tables; take over a copy that came without the file."""

    @abstractmethod
    def _copy(self) -> None:
        """Write the copy in one step."""

    def write_plain(self) -> None:
        """Write the copy in one step."""
        # under the lock of the writers: an older copy never replaces a newer one
        with self.writing():
            self._copy()
            self._since = 0

    def changed(self, count: int = 1) -> None:
        """Record changes that the copy lacks; it is written every :data:`EVERY` changes."""
        with self._lock:
            self._since += count
            if self._since >= EVERY:
                self.write_plain()

    def close(self) -> None:
        """Bring the copy up to date, and close the file."""
        with self._lock:
            try:
                if self._since:
                    self.write_plain()
            finally:
                super().close()
