"""Where a search stands, on disk: one file, and one transaction for each unit of work.

A search that is killed loses at most the unit in progress. Everything random in a search is a
function of its seed and of the number of a unit, so that a run that goes on ends with the same
prompts as one that was never stopped.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from visleak.errors import UsageError, VisleakError

#: The file in the folder of a search.
FILE: Final = "search-state.sqlite"

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bank (
    source TEXT NOT NULL, prompt TEXT NOT NULL, total REAL NOT NULL, times INTEGER NOT NULL,
    best REAL NOT NULL, chain INTEGER NOT NULL, step INTEGER NOT NULL, changed INTEGER NOT NULL,
    PRIMARY KEY (source, prompt)
) WITHOUT ROWID;
"""

_ADD: Final = """
INSERT INTO bank (source, prompt, total, times, best, chain, step, changed)
VALUES (?, ?, ?, 1, ?, ?, ?, ?)
ON CONFLICT (source, prompt) DO UPDATE SET
    total = total + excluded.total,
    times = times + 1,
    changed = min(changed, excluded.changed),
    chain = CASE WHEN excluded.best > best THEN excluded.chain ELSE chain END,
    step = CASE WHEN excluded.best > best THEN excluded.step ELSE step END,
    best = max(best, excluded.best)
"""


@dataclass(frozen=True, slots=True)
class Banked:
    """A prompt that was scored.

    Attributes:
        prompt: its text.
        mean: D over the times it was scored, each with noises of its own.
        best: the highest of these.
        times: it was scored.
        chain, step: where it was highest.
        changed: word pieces in which it differs from its source, where it has one.
        source: the prompt that it was made from, or ``""``.
    """

    prompt: str
    mean: float
    best: float
    times: int
    chain: int
    step: int
    changed: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """One prompt scored once; as :class:`Banked`."""

    prompt: str
    score: float
    chain: int
    step: int
    changed: int = 0
    source: str = ""


class Ledger:
    """State of a search, the prompts it scored, and what it spent. A context manager.

    Args:
        folder: where it is kept; ``None`` keeps it in memory.
        key: everything that the search's prompts depend on, as plain data.

    Attributes:
        state: as it was saved last, or ``None`` at the beginning.
        calls: passes of the network so far, over all runs.
        seconds: of wall time so far, over all runs.
        added: prompts that this run has put in since the last :meth:`keep_best`.

    Raises:
        UsageError: the folder holds the state of another search.
        VisleakError: the file is damaged or cannot be written.
    """

    def __init__(self, folder: Path | None, key: Mapping[str, object]) -> None:
        self.path = None if folder is None else folder / FILE
        self.added = 0
        with self._spoken():
            self._db = sqlite3.connect(
                ":memory:" if self.path is None else self.path, isolation_level=None
            )
        try:
            with self._spoken():
                self._begin()
            self._check(key)
            with self._spoken():
                state = self._get("state")
                self.state: Any = None if state is None else json.loads(state)
                self.calls = int(self._get("calls") or 0)
                self.seconds = float(self._get("seconds") or 0.0)
        except BaseException:
            self._db.close()
            raise

    def _begin(self) -> None:
        # a kill of the process loses nothing with either; WAL is refused on some network disks
        with contextlib.suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA journal_mode=WAL").fetchone()
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_TABLES)

    def _check(self, key: Mapping[str, object]) -> None:
        wanted = dict(key)
        with self._spoken():
            held = self._get("key")
            if held is None or self._get("state") is None:
                # nothing was done for the other search
                self._put("key", json.dumps(wanted, sort_keys=True))
                return
        other = json.loads(held)
        if other != wanted:
            raise UsageError(
                f"{self.path} is of another search (other {', '.join(_differing(other, wanted))});"
                " choose another folder, or remove that file"
            )

    def save(self, state: object, scored: Iterable[Scored], *, calls: int, seconds: float) -> None:
        """Keep what a unit of work came to: all of it, or nothing.

        Args:
            state: of all chains after the unit, as plain data.
            scored: prompts that the unit scored.
            calls: passes of the network that the unit cost.
            seconds: it took.
        """
        rows = [
            (each.source, each.prompt, each.score, each.score, each.chain, each.step, each.changed)
            for each in scored
            if each.prompt
        ]
        text = json.dumps(state)
        with self._spoken():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany(_ADD, rows)
                self._put("state", text)
                self._put("calls", str(self.calls + calls))
                self._put("seconds", repr(self.seconds + seconds))
            except BaseException:
                # a full disk has rolled it back already
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        self.state = state
        self.added += len(rows)
        self.calls += calls
        self.seconds += seconds

    def keep_best(self, count: int) -> None:
        """Forget all but the ``count`` prompts whose best D is highest; ties by text.

        What is forgotten never comes back into them unless it is scored higher, so doing this now
        and then ends with the same prompts as doing it once.
        """
        with self._spoken():
            (held,) = self._db.execute("SELECT count(*) FROM bank").fetchone()
            if held > count:
                self._db.execute(
                    "DELETE FROM bank WHERE (source, prompt) NOT IN (SELECT source, prompt FROM"
                    " bank ORDER BY best DESC, prompt LIMIT ?)",
                    (count,),
                )
        self.added = 0

    def count(self, source: str | None = None, least: float | None = None) -> int:
        """Return how many prompts are held: of one source, with a mean D of at least ``least``."""
        where, values = _where(source, least)
        with self._spoken():
            (found,) = self._db.execute(f"SELECT count(*) FROM bank{where}", values).fetchone()
        return int(found)

    def best(self, count: int | None = None) -> list[Banked]:
        """Return prompts by their highest D, highest first; ties by text."""
        return list(self._read("ORDER BY best DESC, prompt", None, None, count))

    def by_mean(
        self, source: str | None = None, *, least: float | None = None, count: int | None = None
    ) -> Iterator[Banked]:
        """Yield prompts by their mean D, highest first; ties by text.

        Args:
            source: only those made from this prompt.
            least: only those with a mean D of at least this.
            count: at most so many.
        """
        yield from self._read("ORDER BY total / times DESC, prompt", source, least, count)

    def _read(
        self, order: str, source: str | None, least: float | None, count: int | None
    ) -> Iterator[Banked]:
        where, values = _where(source, least)
        # only texts of this module are put together; values are bound
        query = (
            "SELECT prompt, total / times, best, times, chain, step, changed, source FROM bank"
            f"{where} {order} LIMIT ?"
        )
        with self._spoken():
            for row in self._db.execute(query, (*values, -1 if count is None else count)):
                yield Banked(*row)

    def _get(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _put(self, name: str, value: str) -> None:
        self._db.execute(
            "INSERT INTO about (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    @contextmanager
    def _spoken(self) -> Iterator[None]:
        """Say in one line what to do about a full disk or a damaged file."""
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            raise VisleakError(
                f"the state of the search, {self.path or 'in memory'}, cannot be used ({error});"
                " see that the disk has room, or remove the file to search anew"
            ) from error

    def close(self) -> None:
        """Let go of the file; the log beside it is taken in."""
        with contextlib.suppress(sqlite3.Error):
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


def _where(source: str | None, least: float | None) -> tuple[str, tuple[object, ...]]:
    parts: list[str] = []
    values: list[object] = []
    if source is not None:
        parts.append("source = ?")
        values.append(source)
    if least is not None:
        parts.append("total / times >= ?")
        values.append(least)
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), tuple(values)


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names under which two keys differ, those of settings by themselves.

    >>> _differing({"seed": 1, "settings": {"a": 1}}, {"seed": 2, "settings": {"a": 2}})
    ['seed', 'a']
    """
    found = []
    for name in dict.fromkeys((*one, *other)):
        mine, theirs = one.get(name), other.get(name)
        if mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict):
            found += _differing(mine, theirs)
        else:
            found.append(name)
    return found
