"""The cache: fingerprints by content and encoder, evidence by pair and verifier.

One SQLite file. Entries are keyed by digests of everything they depend on, so they never go
stale, and deleting the file changes no answer. Safe under several processes at once (write-ahead
log, short transactions, first writer wins) and under a kill at any moment.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from visleak.errors import VisleakError

FILE: Final = "cache-1.sqlite"

#: Keys asked for in one statement; below SQLite's limit on variables of old versions.
CHUNK: Final = 500

#: Seconds to wait for another process that is writing.
PATIENCE: Final = 60.0

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS entries (
    maker BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (maker, key)
) WITHOUT ROWID
"""


def default_folder() -> Path:
    """Return ``$VISLEAK_CACHE``, else visleak's folder in the user's cache folder."""
    named = os.environ.get("VISLEAK_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "visleak"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "visleak"


class Cache:
    """A store of small byte strings in a folder.

    Args:
        folder: where the file lives; made if need be.

    Raises:
        VisleakError: the folder cannot be made or written.

    >>> import tempfile
    >>> with Cache(Path(tempfile.mkdtemp())) as cache:
    ...     cache.put(b"maker", [(b"key", b"value")])
    ...     cache.get(b"maker", [b"key", b"other"])
    {b'key': b'value'}
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = self._open()
        except (OSError, sqlite3.OperationalError) as error:
            raise VisleakError(
                f"the cache folder {folder} cannot be used ({error}); choose another with"
                " --cache DIR or VISLEAK_CACHE, or go without: --cache off"
            ) from error

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            # not a database any more (a full disk, a copy gone wrong): nothing in it is unique
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                self.path.replace(self.path.with_suffix(".damaged"))
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=PATIENCE, check_same_thread=False)
        try:
            # WAL is refused on some network file systems, and while another process switches to
            # it; the plain journal is safe too
            with contextlib.suppress(sqlite3.OperationalError):
                db.execute("PRAGMA journal_mode=WAL").fetchone()
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute(_TABLES)
            db.commit()
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the entries that are there, by key."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            marks = ",".join("?" * len(part))
            with self._explained():
                rows = self._db.execute(
                    f"SELECT key, value FROM entries WHERE maker = ? AND key IN ({marks})",
                    (maker, *part),
                )
                found.update(rows.fetchall())
        return found

    def put(self, maker: bytes, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep entries; the first writer of a key wins (all write the same)."""
        with self._explained(), self._db:
            self._db.executemany(
                "INSERT OR IGNORE INTO entries VALUES (?, ?, ?)",
                ((maker, key, value) for key, value in entries),
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in one line what to do about a damaged file, a full disk, a lock nobody gives up."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise VisleakError(
                f"the cache {self.path} cannot be used ({error}); delete it (no answer changes),"
                " or go without: --cache off"
            ) from error

    def close(self) -> None:
        """Let go of the file."""
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
