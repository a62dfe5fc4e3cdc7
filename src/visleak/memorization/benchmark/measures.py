"""Numbers that were measured of images, kept by all that they depend on."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from visleak.errors import VisleakError

FILE: Final = "measures.sqlite"

#: Seconds to wait for another process that is writing, and keys asked for in one statement.
PATIENCE: Final = 60.0
CHUNK: Final = 500

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS measures (key TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID"
)


class MeasureStore:
    """Measured numbers in a file of a folder. A context manager.

    A batch is there as a whole or not at all, so that a kill costs one batch.

    Args:
        folder: which is there.

    Raises:
        VisleakError: the file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        with self._explained():
            self._db = sqlite3.connect(self._path, timeout=PATIENCE)
            try:
                self._db.execute(_TABLE)
            except BaseException:
                self._db.close()
                raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise VisleakError(
                f"{self._path} cannot be used ({error}); see that the folder can be written and the"
                " disk has room; a damaged file may be deleted, images are measured again"
            ) from error

    def known(self, keys: Sequence[str]) -> dict[str, float]:
        """Return the numbers that are there, by key."""
        found: dict[str, float] = {}
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            marks = ",".join("?" * len(part))
            with self._explained():
                rows = self._db.execute(
                    f"SELECT key, value FROM measures WHERE key IN ({marks})", part
                ).fetchall()
            found.update(rows)
        return found

    def add(self, values: Mapping[str, float]) -> None:
        """Keep numbers; what is there already stays, so that results never drift."""
        with self._explained(), self._db:
            self._db.executemany("INSERT OR IGNORE INTO measures VALUES (?, ?)", values.items())

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
