"""The cache: fingerprints by content and encoder, evidence by pair and verifier.

One SQLite file. Entries are keyed by digests of everything they depend on, so they never go
stale, and deleting the file changes no result. Safe under several processes at once (write-ahead
log, short transactions, first writer wins) and under a kill at any moment.

Nothing in it is unique, so no defect of it ends a run: a value whose digest differs is dropped and
computed again, a damaged file is set aside and a new one begun, and a file that can no longer be
used (a full disk) is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from visleak.storage.database import CHUNK, connect, marks, transaction

STEM: Final = "cache-2"  # of the file's name; the number of set-aside files and the ending follow
DAMAGED: Final = ".damaged"  # ending of a file that was set aside, instead of ``.sqlite``
CHECKED: Final = 8  # bytes of the digest that is stored before each value
#: Message if :func:`default_folder` finds none.
NO_FOLDER: Final = (
    "no home folder is known, so nothing is kept for the next run; choose a folder with --cache DIR"
    " or VISLEAK_CACHE"
)
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS entries (
    maker BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (maker, key)
) WITHOUT ROWID
"""


def default_folder() -> Path | None:
    """Return ``$VISLEAK_CACHE``, else visleak's folder in the user's cache folder, if any."""
    named = os.environ.get("VISLEAK_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") if sys.platform != "darwin" else None
    if base:
        return Path(base) / "visleak"
    with contextlib.suppress(RuntimeError):  # the home folder is not known
        own = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
        return Path.home().joinpath(*own, "visleak")
    return None


def file_in(folder: Path) -> Path:
    """Return the file of the cache in a folder: the first that was not set aside."""
    names = (folder / f"{STEM}.{number}.sqlite" for number in itertools.count())
    return next(file for file in names if not file.with_suffix(DAMAGED).exists())


class Cache:
    """A store of small byte strings in a folder.

    >>> import tempfile
    >>> with Cache(Path(tempfile.mkdtemp())) as cache:
    ...     cache.put(b"maker", [(b"key", b"value")])
    ...     cache.get(b"maker", [b"key", b"other"])
    {b'key': b'value'}
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self.folder = folder
        self._say = say
        self._db: sqlite3.Connection | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = file_in(folder)
        except OSError as error:
            why = error.strerror or error
            self._say(f"the cache folder {folder} cannot be used ({why}); continuing without")
            return
        self._open()

    @property
    def usable(self) -> bool:
        """Whether anything is kept."""
        return self._db is not None

    def _open(self) -> None:
        """Connect to the file; one that is not a database is set aside."""
        while self._db is None:
            self.path = file_in(self.folder)
            try:
                db = connect(self.path)
                try:
                    db.execute(_TABLES)
                except sqlite3.DatabaseError:
                    db.close()
                    raise
                self._db = db
            except sqlite3.OperationalError as error:
                self._say(f"the cache {self.path} cannot be used ({error}); continuing without")
                return
            except sqlite3.DatabaseError as error:
                self._set_aside(error)

    def get(self, maker: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the entries that exist and are intact, by key."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            query = f"SELECT key, value FROM entries WHERE maker = ? AND key IN ({marks(part)})"
            for key, value in self._run(query, (maker, *part)):
                if value[:CHECKED] == _digest(maker, key, value[CHECKED:]):
                    found[key] = value[CHECKED:]
                else:
                    self._run("DELETE FROM entries WHERE maker = ? AND key = ?", (maker, key))
        return found

    def put(self, maker: bytes, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep entries; the first writer of a key wins (all write the same)."""
        rows = [(maker, key, _digest(maker, key, value) + value) for key, value in entries]
        if rows:
            self._run("INSERT OR IGNORE INTO entries VALUES (?, ?, ?)", many=rows)

    def _run(
        self, statement: str, values: Sequence[bytes] = (), many: Sequence[Sequence[bytes]] = ()
    ) -> list[tuple[bytes, bytes]]:
        """Return the result of a statement, or run it for ``many`` rows; nothing without a file."""
        if self._db is None:
            return []
        try:
            if not many:
                return self._db.execute(statement, values).fetchall()
            with transaction(self._db):
                self._db.executemany(statement, many)
        except sqlite3.OperationalError as error:
            self.close()
            self._say(f"the cache {self.path} cannot be used ({error}); continuing without")
        except sqlite3.DatabaseError as error:
            self.close()
            self._set_aside(error)
            self._open()
        return []

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Begin a new file under another name: other processes may use the damaged one."""
        aside = self.path.with_suffix(DAMAGED)
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            self.path.replace(aside)
            self._say(f"the cache {self.path} is damaged ({error}); it is now {aside.name}")

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _digest(maker: bytes, key: bytes, value: bytes) -> bytes:
    """Return the digest of an entry; lengths delimit its parts."""
    lengths = f"{len(maker)} {len(key)} ".encode()
    return hashlib.blake2b(lengths + maker + key + value, digest_size=CHECKED).digest()
