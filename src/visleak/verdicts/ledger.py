"""Storage of verdicts: one SQLite file in the audit folder, and a CSV copy of it.

A verdict is a row that never changes, except for the time of its withdrawal, so undo restores the
verdict before it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES
from visleak.storage import LEDGER, VERDICTS, MirroredDatabase, open_rows, write_csv
from visleak.storage.database import EVERY, check_rows, connect_read_only

NEAR: Final = GRADES[:2]  # grades that make a pair a near-duplicate
LONGEST: Final = 100  # characters of a reviewer's name
DIGEST: Final = re.compile(r"[0-9a-f]{32}")  # a content digest in tables: BLAKE2b-128 in hex
Key = tuple[str, str]


def pair_key(left: str, right: str) -> Key:
    """Return the key of an unordered pair of content digests.

    >>> pair_key("b", "a") == pair_key("a", "b") == ("a", "b")
    True
    """
    return (left, right) if left <= right else (right, left)


def now() -> str:
    """Return this moment in UTC, as ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def reviewer_name(text: str) -> str:
    """Return a reviewer's name without blanks around it.

    >>> reviewer_name(" Ada ")
    'Ada'
    """
    name = text.strip()
    if not name or len(name) > LONGEST or not name.isprintable():
        raise UsageError(
            f"a reviewer is called by one line of 1 to {LONGEST} characters; got {text!r}"
        )
    return name


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a person on a pair."""

    # content digests of the two images (hex), ``first <= second``
    first: str
    second: str
    judgment: str  # one of `visleak.records.GRADES`
    reviewer: str  # name of the person
    time: str = field(default_factory=now)  # ISO 8601 in UTC
    # names of the images then; for people only
    query_set: str = ""
    query: str = ""
    reference_set: str = ""
    reference: str = ""
    similarity: float | None = None  # of the pair then; ``None`` if it was not measured

    def __post_init__(self) -> None:
        if self.judgment not in GRADES:
            raise UsageError(
                f"a judgment is one of {', '.join(GRADES)}; got {str(self.judgment)!r}"
            )
        for digest in (self.first, self.second):
            if not DIGEST.fullmatch(digest):
                raise UsageError(
                    f"a verdict needs the content digests of both images; got {digest!r}"
                )
        if self.first > self.second:
            raise ValueError("the digests of a verdict must ascend; see Verdict.of")
        if self.similarity is not None and not math.isfinite(self.similarity):
            raise ValueError("the similarity of a verdict must be a number")
        object.__setattr__(self, "judgment", str(self.judgment))
        object.__setattr__(self, "reviewer", reviewer_name(self.reviewer))

    @classmethod
    def of(cls, left: str, right: str, judgment: str, reviewer: str, **about: object) -> Verdict:
        """Return the verdict on two contents, in whatever order they come.

        Args:
            left, right: content digests.
            judgment, reviewer: as the attributes.
            about: any of the other attributes.
        """
        return cls(*pair_key(left, right), judgment, reviewer, **about)  # type: ignore[arg-type]

    @property
    def key(self) -> Key:
        """The unordered pair that it is about."""
        return self.first, self.second

    @property
    def is_near(self) -> bool:
        """Whether it calls the pair a near-duplicate or an exact one."""
        return self.judgment in NEAR


@dataclass(frozen=True, slots=True)
class Consensus:
    """The consensus of the reviewers of a pair."""

    grade: str | None  # one of `visleak.records.GRADES`; ``None`` if it is disputed
    verdicts: tuple[Verdict, ...]

    @property
    def disputed(self) -> bool:
        """Whether as many call it near as not."""
        return self.grade is None

    @property
    def outvoted(self) -> bool:
        """Whether a majority settled near-or-not against others."""
        return not self.disputed and len({verdict.is_near for verdict in self.verdicts}) > 1


def consensus_of(verdicts: Iterable[Verdict]) -> dict[Key, Consensus]:
    """Return the consensus of each pair.

    The last verdict of a reviewer counts. The majority decides near-or-not; without one, as of two
    reviewers who disagree, the pair is disputed. The grade is that of most of the majority; in a
    tie the weaker one is used, because it claims less.

    >>> a, b = "a" * 32, "b" * 32
    >>> said = [Verdict(a, b, "near", "Ada"), Verdict(a, b, "exact", "Ben")]
    >>> consensus_of(said)[a, b].grade
    'near'
    >>> said = [Verdict(a, b, "near", "Ada"), Verdict(a, b, "different", "Ben")]
    >>> consensus_of(said)[a, b].disputed
    True
    >>> consensus_of([*said, Verdict(a, b, "near", "Cleo")])[a, b].grade
    'near'
    """
    last: dict[Key, dict[str, Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        last[verdict.key][verdict.reviewer] = verdict
    return {key: Consensus(_settled(of.values()), tuple(of.values())) for key, of in last.items()}


def _settled(verdicts: Collection[Verdict]) -> str | None:
    near = sum(verdict.is_near for verdict in verdicts)
    if 2 * near == len(verdicts):
        return None
    majority = 2 * near > len(verdicts)
    votes = Counter(GRADES.index(v.judgment) for v in verdicts if v.is_near == majority)
    return GRADES[max(votes, key=lambda code: (votes[code], code))]


@dataclass(frozen=True, slots=True)
class Kappa:
    """How far two reviewers agree on near-or-not."""

    reviewers: tuple[str, str]
    pairs: int
    agreed: int
    kappa: float  # Cohen's; NaN if both always say the same one thing, or no pair is shared


@dataclass(frozen=True, slots=True)
class Agreement:
    """Number of verdicts per reviewer, and their agreement."""

    judged: int
    disputed: int
    outvoted: int  # pairs on which a majority decided near-or-not
    reviewers: Mapping[str, int]  # name to the number of pairs judged, most first
    kappas: tuple[Kappa, ...]


def agreement(verdicts: Iterable[Verdict]) -> Agreement:
    """Count verdicts and compare reviewers, two by two, over the pairs that both judged."""
    consensus = consensus_of(verdicts)
    judged: dict[str, dict[Key, bool]] = defaultdict(dict)
    for key, each in consensus.items():
        for verdict in each.verdicts:
            judged[verdict.reviewer][key] = verdict.is_near
    names = sorted(judged, key=lambda name: (-len(judged[name]), name))
    kappas = []
    for left, right in itertools.combinations(names, 2):
        shared = [key for key in judged[left] if key in judged[right]]
        if shared:
            mine, theirs = ([judged[name][key] for key in shared] for name in (left, right))
            agreed = sum(a == b for a, b in zip(mine, theirs, strict=True))
            kappas.append(Kappa((left, right), len(shared), agreed, cohen_kappa(mine, theirs)))
    return Agreement(
        judged=len(consensus),
        disputed=sum(each.disputed for each in consensus.values()),
        outvoted=sum(each.outvoted for each in consensus.values()),
        reviewers={name: len(judged[name]) for name in names},
        kappas=tuple(kappas),
    )


def cohen_kappa(left: Sequence[bool], right: Sequence[bool]) -> float:
    """Return how far two raters agree beyond chance: 1 fully, 0 as by chance, below 0 less.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales", equation 1. Not defined,
    so NaN, where chance alone makes them agree always.

    >>> cohen_kappa([True, True, False, False], [True, False, False, False])
    0.5
    """
    if not left:
        return math.nan
    count = len(left)
    observed = sum(a == b for a, b in zip(left, right, strict=True)) / count
    mine, theirs = sum(left) / count, sum(right) / count
    expected = mine * theirs + (1 - mine) * (1 - theirs)
    return math.nan if expected == 1.0 else (observed - expected) / (1 - expected)


# -- storage ---------------------------------------------------------------------------------------


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
    with open_rows(path, padded=True) as rows:
        rows.need(COLUMNS[:4])
        return tuple(map(_verdict, rows))


def _verdict(row: Mapping[str, str]) -> Verdict:
    cells = {name: row.get(name, "") for name in COLUMNS}
    similarity = cells.pop("similarity")
    if not cells["time"]:
        del cells["time"]
    try:
        return Verdict(**cells, similarity=float(similarity) if similarity else None)
    except VisleakError as error:
        raise ValueError(str(error)) from error
