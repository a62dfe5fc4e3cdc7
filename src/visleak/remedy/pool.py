"""The pool of replacements, the test images that need one, and decisions about them."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Set
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.pipeline.comparison import normalised, normalised_name
from visleak.records import GRADES, Fingerprints, ImageSet, Int64
from visleak.remedy.settings import GRADE
from visleak.storage import DECISIONS, REPLACEMENTS, MirroredDatabase, read_csv, write_csv
from visleak.storage.database import connect
from visleak.verdicts import disputed
from visleak.verdicts.ledger import now, reviewer_name
from visleak.verdicts.overlay import Level


@dataclass(frozen=True)
class Pool:
    """The images that may replace test images."""

    images: ImageSet
    fingerprints: Fingerprints
    # rows of ``fingerprints`` by normalised class, in the order in which they are tried; by
    # ``None`` all of them
    queues: Mapping[str | None, Int64]
    # numbers of images that cannot be used
    known: int
    repeated: int
    blank: int
    unreadable: int
    seed: int  # of the order

    @property
    def usable(self) -> int:
        """Number of usable images."""
        return len(self.queues[None])


def make_pool(images: ImageSet, prints: Fingerprints, existing: Set[bytes], seed: int) -> Pool:
    """Return a pool without images that are in the audit, repeated or blank.

    Candidates are tried in random order and not by similarity, so that the test set remains
    representative. The order is that of BLAKE2b of the content with the seed as key.
    """
    digests = [bytes(digest) for digest in prints.digests]
    key = str(seed).encode()

    def rank(row: int) -> tuple[bytes, int]:
        return hashlib.blake2b(digests[row], digest_size=16, key=key).digest(), row

    order = sorted(range(len(digests)), key=rank)
    known = {row for row in order if digests[row] in existing}
    blank = {row for row in order if prints.flat[row]} - known
    # of equal contents only the first in the set
    first = {digests[row]: row for row in reversed(order)}
    out = known | blank
    usable = [row for row in order if row not in out and first[digests[row]] == row]
    queues: dict[str | None, list[int]] = {None: usable}
    if images.labels is not None:
        labels = normalised(images.labels.take(pa.array(prints.rows[usable], pa.int64())))
        for row, label in zip(usable, labels.to_pylist(), strict=True):
            if label is not None:
                queues.setdefault(label, []).append(row)
    return Pool(
        images=images,
        fingerprints=prints,
        queues={label: np.array(rows, np.int64) for label, rows in queues.items()},
        known=len(known),
        repeated=len(order) - len(out) - len(usable),
        blank=len(blank),
        unreadable=len(images.problems) + len(prints.problems),
        seed=seed,
    )


def class_of(label: str | None) -> str | None:
    """Return a normalised label, ``None`` for none."""
    return None if label is None else normalised_name(label)


# -- test images that need a replacement (Barz & Denzler 2020, section 4) -------------------------


#: Columns of ``judged_pairs`` that are read.
COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference"),
    *("similarity", "grade", "coverage", "judged"),
)


@dataclass(frozen=True, slots=True)
class Leak:
    """An image that a test image is a duplicate of."""

    set: str
    id: str
    grade: str
    similarity: float | None  # of the pair; ``None`` if a person added it without a measurement
    within: bool


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A test image that needs a replacement."""

    position: int
    id: str
    digest: str
    copy: int  # index among the test images of this content, in the order of the set
    label: str | None  # as stored
    # those in training, strong grades and large similarities first
    leaks: tuple[Leak, ...]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The test images that need a replacement, and the numbers of excluded ones."""

    grade: str
    images: tuple[Duplicate, ...]  # in the order of the set
    blank: int
    disputed: int


def find_duplicates(
    pairs: pa.Table,
    images: ImageSet,
    prints: Fingerprints,
    grade: str = GRADE,
    *,
    include_disputed: bool = False,
) -> Duplicates:
    """Return the images of a test set that are duplicates of a training image or of a test image.

    Of a pair within the test set only the image in the column ``query`` needs a replacement.
    """
    strong = pc.is_in(pairs["grade"], pa.array(Level(grade).names))
    own = pairs.filter(pc.and_(strong, pc.equal(pairs["query_set"], images.name)))
    taken = own if include_disputed else own.filter(pc.invert(disputed(own)))
    leaks: dict[str, list[Leak]] = {}
    for row in taken.to_pylist():
        inside = row["coverage"] == "within"
        leak = Leak(row["reference_set"], row["reference"], row["grade"], row["similarity"], inside)
        leaks.setdefault(row["query"], []).append(leak)
    blank = set(prints.ids.filter(pa.array(prints.flat)).to_pylist())
    doubtful = set(own["query"].to_pylist()) - leaks.keys() - blank
    seen: Counter[bytes] = Counter()
    found = []
    for position, id_, content in zip(
        prints.rows.tolist(), prints.ids.to_pylist(), map(bytes, prints.digests), strict=True
    ):
        copy = seen[content]
        seen[content] += 1
        if id_ in leaks and id_ not in blank:
            label = images.labels[position].as_py() if images.labels is not None else None
            ranked = tuple(sorted(leaks[id_], key=_rank))
            found.append(Duplicate(position, id_, content.hex(), copy, label, ranked))
    return Duplicates(grade, tuple(found), len(leaks.keys() & blank), len(doubtful))


def _rank(leak: Leak) -> tuple[object, ...]:
    similarity = -1.0 if leak.similarity is None else leak.similarity
    return leak.within, GRADES.index(leak.grade), -similarity, leak.set, leak.id


# -- decisions -------------------------------------------------------------------------------------


FILE: Final = DECISIONS
PLAIN: Final = REPLACEMENTS

#: Version of the database.
LAYOUT: Final = 1

APPROVED: Final = "approved"
REJECTED: Final = "rejected"
WITHDRAWN: Final = "withdrawn"

#: Values of the column ``how``: a decision of a person, or the automatic choice.
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
    """There is an earlier decision: the test image has a replacement, or the image is used."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about an image of the pool for a test image."""

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
DECISION_COLUMNS: Final = tuple("class" if f.name == "label" else f.name for f in fields(Decision))
_NAMES: Final = ", ".join(DECISION_COLUMNS)
_MARKS: Final = ", ".join("?" * len(DECISION_COLUMNS))


class Decisions(MirroredDatabase):
    """The decisions of an audit folder: a context manager, safe for threads and processes.

    A call returns once its change is on disk. If the folder has ``replacements.csv`` only, its
    valid decisions are imported.
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
                for decision in self._read_plain():
                    self._insert(decision)
                self._db.execute(f"PRAGMA user_version = {LAYOUT}")
        if self.all():
            # after a kill the plain copy may be outdated
            self.write_plain()

    def approve(self, decision: Decision, known: Collection[str]) -> frozenset[str]:
        """Store an approval if no other images than ``known`` are approved.

        Returns the digests of the other ones; if there are any, nothing was stored, because the
        image was not compared with them.
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
        """Store a rejection: the image is not offered for any test image."""
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
            insert = f"INSERT INTO decisions ({_NAMES}) VALUES ({_MARKS})"
            self._db.execute(insert, astuple(decision))
        except sqlite3.IntegrityError as error:
            why = f"{decision.test_set}/{decision.test} has a replacement; withdraw it first"
            if "pool_digest" in str(error):
                why = f"{decision.pool} of the pool has a decision already; choose another"
            raise AlreadyDecided(why) from error

    def standing(self) -> tuple[Decision, ...]:
        """Return the decisions that were not withdrawn, in order of time."""
        return tuple(each for each in self.all() if not each.withdrawn)

    def all(self) -> tuple[Decision, ...]:
        """Return all decisions, including withdrawn ones, in order of time."""
        with self.reading():
            # data_version counts changes by other connections, total_changes by this one
            state = self._db.execute("PRAGMA data_version").fetchone()[0], self._db.total_changes
            if self._known is None or self._known[0] != state:
                rows = self._db.execute(f"SELECT {_NAMES} FROM decisions ORDER BY number")
                self._known = state, tuple(Decision(*row) for row in rows)
            return self._known[1]

    def _copy(self) -> None:
        rows = []
        for each in self.all():
            state = WITHDRAWN if each.withdrawn else each.decision
            rows.append((state, *map(str, astuple(each)[1:])))
        write_csv(self.plain, DECISION_COLUMNS, rows)

    def _read_plain(self) -> tuple[Decision, ...]:
        """Return the valid decisions of the plain copy; none if it does not exist."""
        if not self.plain.is_file():
            return ()
        try:
            rows = read_csv(self.plain, DECISION_COLUMNS)
            return tuple(
                Decision(state, test, int(copy), *rest)
                for state, test, copy, *rest in rows
                if state != WITHDRAWN
            )
        except (OSError, ValueError, TypeError, csv.Error, VisleakError) as error:
            raise VisleakError(
                f"{self.plain} cannot be read ({error}); restore {FILE}, or delete the copy"
            ) from error
