"""What people decide: a SQLite file that knows it at once, and a plain copy for other tools."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from visleak.errors import VisleakError

#: The plain copy is written again after this many changes, and at the end.
EVERY: Final = 20

#: Seconds to wait for another process that is writing.
PATIENCE: Final = 60.0


class Journal(ABC):
    """A SQLite file that several threads and processes may write at once. A context manager.

    What a block of :meth:`writing` did is on disk when it ends, or nothing of it is.

    Args:
        path: the file; made if need be.
        plain: name of its plain copy, beside it.

    Raises:
        VisleakError: the file cannot be made, read or written.
    """

    def __init__(self, path: Path, plain: str) -> None:
        self.path = path
        self.plain = path.with_name(plain)
        self._lock = threading.RLock()
        self._since = 0
        with self.reading():
            self._db = _connect(path)
        try:
            self._begin()
        except BaseException:
            self._db.close()
            raise

    @abstractmethod
    def _begin(self) -> None:
        """Make the tables; take over a plain copy that came without the file."""

    @abstractmethod
    def _copy(self) -> None:
        """Write the plain copy in one step."""

    def write_plain(self) -> None:
        """Write the plain copy anew, in one step."""
        # under the lock of the writers: an older copy never takes the place of a newer one
        with self.writing():
            self._copy()
            self._since = 0

    def changed(self, count: int = 1) -> None:
        """Take note of changes that the plain copy lacks."""
        with self._lock:
            self._since += count
            if self._since >= EVERY:
                self.write_plain()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the file from the first look to the last word."""
        with self.reading():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keep other threads out; say in one line what to do about a full disk or a damaged file.

        Raises:
            VisleakError: SQLite gave up. What breaks a rule of the tables passes as it is.
        """
        with self._lock:
            try:
                yield
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise VisleakError(
                    f"{self.path} cannot be used ({error}); see that the folder can be written and"
                    f" the disk has room, or put the file away and go on from {self.plain.name}"
                ) from error

    def close(self) -> None:
        """Write what the plain copy lacks, and let go of the file."""
        with self._lock:
            try:
                if self._since:
                    self.write_plain()
            finally:
                # a log that nobody writes any more would only leave files beside this one; while
                # another process is at it, it stays
                with contextlib.suppress(sqlite3.Error):
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


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False, isolation_level=None)
    try:
        # WAL is refused on some network file systems; the plain journal is safe too
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode=WAL").fetchone()
        # what a person decided must outlive a power cut
        db.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error:
        db.close()
        raise
    return db
