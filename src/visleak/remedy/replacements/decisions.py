"""Decisions about the images of a pool: approved for a test image, or rejected.

One SQLite file in the audit folder and a plain copy of it. Decisions are keyed by content, so they
remain valid after renames and another audit of the same images. Constraints of the database ensure
that an image of the pool replaces one test image only, and that a test image has one replacement,
even if several pages and processes decide concurrently.
"""

from __future__ import annotations

import contextlib
import csv
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Self

from visleak.errors import VisleakError
from visleak.storage import DECISIONS, REPLACEMENTS, MirroredDatabase, read_csv, write_csv
from visleak.storage.database import connect
from visleak.verdicts.record import now, reviewer_name

FILE: Final = DECISIONS
PLAIN: Final = REPLACEMENTS

#: Version of the database.
LAYOUT: Final = 1

APPROVED: Final = "approved"
REJECTED: Final = "rejected"
WITHDRAWN: Final = "withdrawn"

#: How a decision was made: by a person, or automatically (the first eligible candidate).
CHOOSERS: Final = ("person", "machine")

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS decisions (
    number INTEGER PRIMARY KEY, decision TEXT NOT NULL,
    test_digest TEXT NOT NULL, copy INTEGER NOT NULL, pool_digest TEXT NOT NULL,
    test_set TEXT NOT NULL, test TEXT NOT NULL, pool TEXT NOT NULL, class TEXT NOT NULL,
    reviewer TEXT NOT NULL, how TEXT NOT NULL, time TEXT NOT NULL, withdrawn TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_decision_an_image
    ON decisions (pool_digest) WHERE withdrawn = '';
CREATE UNIQUE INDEX IF NOT EXISTS one_replacement_a_test_image
    ON decisions (test_digest, copy) WHERE withdrawn = '' AND decision = 'approved';
"""


class AlreadyDecided(VisleakError):
    """There is an earlier decision: the test image has a replacement, or the image is in use."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about an image of the pool, shown for a test image."""

    decision: str  # ``approved`` or ``rejected``
    test_digest: str
    copy: int  # index among the test images of this content, in the order of the set
    pool_digest: str
    test_set: str
    test: str
    pool: str
    label: str  # class of the test image; empty without one
    reviewer: str
    how: str
    time: str = field(default_factory=now)  # ISO 8601 in UTC
    withdrawn: str = ""  # time of its withdrawal; empty if it is valid

    def __post_init__(self) -> None:
        if self.decision not in (APPROVED, REJECTED):
            raise ValueError(f"a decision is {APPROVED} or {REJECTED}; got {self.decision!r}")
        if self.how not in CHOOSERS:
            raise ValueError(f"how must be one of {', '.join(CHOOSERS)}; got {self.how!r}")
        object.__setattr__(self, "reviewer", reviewer_name(self.reviewer))


#: Columns of ``replacements.csv``.
COLUMNS: Final = tuple("class" if f.name == "label" else f.name for f in fields(Decision))
_NAMES: Final = ", ".join(COLUMNS)


class Decisions(MirroredDatabase):
    """The decisions of an audit folder. Use as a context manager.

    A folder that contains ``replacements.csv`` only starts with its valid decisions.

    Safe for several threads and processes; a call returns once its change is on disk.
    """

    def __init__(self, folder: Path) -> None:
        self._known: tuple[tuple[int, int], tuple[Decision, ...]] | None = None
        super().__init__(folder / FILE, PLAIN)

    @classmethod
    def copied(cls, folder: Path, into: Path) -> Self:
        """Return a copy of the decisions of a folder in another folder, for a trial."""
        source = folder / FILE
        if source.is_file():
            try:
                with (
                    contextlib.closing(connect(source, log=False)) as old,
                    contextlib.closing(connect(into / FILE, log=False)) as new,
                ):
                    old.backup(new)
            except sqlite3.Error as error:
                raise VisleakError(f"{source} cannot be used ({error})") from error
        return cls(into)

    def _begin(self) -> None:
        with self.writing():
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if version > LAYOUT:
                raise VisleakError(
                    f"{self.path} has layout {version}, this visleak reads up to {LAYOUT}:"
                    " upgrade visleak"
                )
            if version < LAYOUT:
                for statement in _TABLES.split(";\n"):
                    self._db.execute(statement)
                for decision in _read_plain(self.plain):
                    self._insert(decision)
                self._db.execute(f"PRAGMA user_version = {LAYOUT}")
        if self.all():
            # after a kill the plain copy may be outdated
            self.write_plain()

    # -- deciding --------------------------------------------------------------------------------

    def approve(self, decision: Decision, known: Collection[str]) -> frozenset[str]:
        """Store an approval, unless others than those ``known`` to its check were stored since.

        Returns the digests of these; if there are any, nothing was stored: compare with them too.
        """
        with self.writing():
            rows = self._db.execute(
                "SELECT pool_digest FROM decisions WHERE withdrawn = '' AND decision = 'approved'"
                " AND NOT (test_digest = ? AND copy = ?)",
                (decision.test_digest, decision.copy),
            )
            unseen = frozenset(digest for (digest,) in rows) - frozenset(known)
            if not unseen:
                self._insert(decision)
        if not unseen:
            self.changed()
        return unseen

    def reject(self, decision: Decision) -> None:
        """Store a rejection: the image is not offered again, for any test image."""
        with self.writing():
            self._insert(decision)
        self.changed()

    def undo(self, reviewer: str, since: str = "") -> Decision | None:
        """Withdraw the last valid decision of a reviewer, not before ``since``, and return it."""
        return self._withdraw("reviewer = ? AND time >= ?", (reviewer, since))

    def withdraw(self, test_digest: str, copy: int) -> Decision | None:
        """Withdraw the replacement of a test image and return it; ``None`` without one."""
        return self._withdraw(
            "test_digest = ? AND copy = ? AND decision = 'approved'", (test_digest, copy)
        )

    def _withdraw(self, where: str, values: tuple[object, ...]) -> Decision | None:
        with self.writing():
            row = self._db.execute(
                f"SELECT number, {_NAMES} FROM decisions WHERE withdrawn = '' AND {where}"
                " ORDER BY number DESC LIMIT 1",
                values,
            ).fetchone()
            if row is None:
                return None
            time = now()
            self._db.execute("UPDATE decisions SET withdrawn = ? WHERE number = ?", (time, row[0]))
        self.changed()
        return replace(Decision(*row[1:]), withdrawn=time)

    def _insert(self, decision: Decision) -> None:
        try:
            self._db.execute(
                f"INSERT INTO decisions ({_NAMES}) VALUES ({', '.join('?' * len(COLUMNS))})",
                _values(decision),
            )
        except sqlite3.IntegrityError as error:
            of_pool = "pool_digest" in str(error)
            raise AlreadyDecided(
                f"{decision.pool} of the pool has a decision already; choose another"
                if of_pool
                else f"{decision.test_set}/{decision.test} has a replacement; withdraw it first"
            ) from error

    # -- reading ---------------------------------------------------------------------------------

    def standing(self) -> tuple[Decision, ...]:
        """Return the decisions that were not withdrawn, in order of time."""
        return tuple(each for each in self.all() if not each.withdrawn)

    def all(self) -> tuple[Decision, ...]:
        """Return all decisions, including withdrawn ones, in order of time."""
        with self.reading():
            # changes by other connections, and by this one
            state = self._db.execute("PRAGMA data_version").fetchone()[0], self._db.total_changes
            if self._known is None or self._known[0] != state:
                rows = self._db.execute(f"SELECT {_NAMES} FROM decisions ORDER BY number")
                self._known = state, tuple(Decision(*row) for row in rows)
            return self._known[1]

    def _copy(self) -> None:
        write_csv(self.plain, COLUMNS, map(_cells, self.all()))


def _cells(decision: Decision) -> tuple[str, ...]:
    state = WITHDRAWN if decision.withdrawn else decision.decision
    return (state, *map(str, _values(decision)[1:]))


def _read_plain(path: Path) -> tuple[Decision, ...]:
    """Return the valid decisions of a plain copy; none if it does not exist."""
    if not path.is_file():
        return ()
    try:
        found = []
        for state, test, copy, *rest in read_csv(path, COLUMNS):
            if state != WITHDRAWN:
                found.append(Decision(state, test, int(copy), *rest))
    except (OSError, ValueError, TypeError, csv.Error, VisleakError) as error:
        raise VisleakError(
            f"{path} cannot be read ({error}); restore {FILE}, or delete the copy"
        ) from error
    return tuple(found)


def _values(decision: Decision) -> tuple[str | int, ...]:
    return tuple(getattr(decision, each.name) for each in fields(decision))
