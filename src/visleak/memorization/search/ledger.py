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
from typing import Any, Final

from visleak.errors import UsageError, VisleakError
from visleak.memorization.scores import Norm, TriggerScore
from visleak.memorization.search.task import Candidate, SearchTask
from visleak.storage import Database, claimed

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

    @property
    def candidate(self) -> Candidate:
        """The prompt with its highest D."""
        return Candidate(self.prompt, self.best, self.chain, self.step)


@dataclass(frozen=True, slots=True)
class Scored:
    """One prompt scored once; as :class:`Banked`."""

    prompt: str
    score: float
    chain: int
    step: int
    changed: int = 0
    source: str = ""


class Ledger(Database):
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
        path = None if folder is None else folder / FILE
        super().__init__(path, _TABLES, "remove the file to start the search again")
        self.added = 0
        try:
            self._check(key)
            state = self._get("state")
            self.state: Any = None if state is None else json.loads(state)
            self.calls = int(self._get("calls") or 0)
            self.seconds = float(self._get("seconds") or 0.0)
        except BaseException:
            self.close()
            raise

    def _check(self, key: Mapping[str, object]) -> None:
        wanted = dict(key)
        held = self._get("key")
        if held is None or self._get("state") is None:
            # nothing was done for the other search
            with self.writing() as db:
                _put(db, "key", json.dumps(wanted, sort_keys=True))
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
        with self.writing() as db:
            db.executemany(_ADD, rows)
            _put(db, "state", text)
            _put(db, "calls", str(self.calls + calls))
            _put(db, "seconds", repr(self.seconds + seconds))
        self.state = state
        self.added += len(rows)
        self.calls += calls
        self.seconds += seconds

    def keep_best(self, count: int) -> None:
        """Forget all but the ``count`` prompts whose best D is highest; ties by text.

        What is forgotten never comes back into them unless it is scored higher, so doing this now
        and then ends with the same prompts as doing it once.
        """
        if self.count() > count:
            with self.writing() as db:
                db.execute(
                    "DELETE FROM bank WHERE (source, prompt) NOT IN (SELECT source, prompt FROM"
                    " bank ORDER BY best DESC, prompt LIMIT ?)",
                    (count,),
                )
        self.added = 0

    def count(self, source: str | None = None, least: float | None = None) -> int:
        """Return how many prompts are held: of one source, with a mean D of at least ``least``."""
        where, values = _where(source, least)
        ((found,),) = self.select(f"SELECT count(*) FROM bank{where}", values)
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
        for row in self.select(query, (*values, -1 if count is None else count)):
            yield Banked(*row)

    def _get(self, name: str) -> str | None:
        found = list(self.select("SELECT value FROM about WHERE name = ?", (name,)))
        return str(found[0][0]) if found else None


def _put(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)", (name, value))


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


def key_of(task: SearchTask, method: str, about: Mapping[str, object]) -> dict[str, object]:
    """Return everything that a search's prompts depend on but its budget, as plain data."""
    key = {
        "method": method,
        "settings": dict(about),
        "score": task.score.settings.about(),
        "model": task.score.model.digest,
        "precision": task.score.model.precision,
        "chains": task.chains,
        "seed": task.seed,
    }
    plain: dict[str, object] = json.loads(json.dumps(key, sort_keys=True))
    return plain


def forget_other(folder: Path, key: Mapping[str, object]) -> None:
    """Remove the state of another search from a folder; that of this one stays.

    Raises:
        VisleakError: a run is at it.
    """
    path = folder / FILE
    if not path.exists():
        return
    with claimed(folder):
        try:
            Ledger(folder, key).close()
        except VisleakError:
            # of another search, or damaged
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)


@contextmanager
def opened(task: SearchTask, method: str, about: Mapping[str, object]) -> Iterator[Ledger]:
    """Hold the ledger of a search: that of an earlier run where there is one.

    Args:
        task: names model, score, chains, seed and folder; its budget is not part of the key, so
            that a search may go on with a larger one.
        method: its name.
        about: its settings.

    Raises:
        UsageError: the folder holds the state of another search.
        VisleakError: another run is at it, or the disk refuses.
    """
    key = key_of(task, method, about)
    with contextlib.ExitStack() as stack:
        if task.folder is not None:
            stack.enter_context(claimed(task.folder))
        yield stack.enter_context(Ledger(task.folder, key))


def calls_so_far(folder: Path, key: Mapping[str, object]) -> int | None:
    """Return the passes that a search in a folder has cost so far; ``None`` if it has not begun.

    Raises:
        UsageError: the folder holds the state of another search.
        VisleakError: a run is at it, or the file is damaged.
    """
    if not (folder / FILE).exists():
        return None
    with claimed(folder), Ledger(folder, key) as ledger:
        return None if ledger.state is None else ledger.calls


def check_norm(norm: Norm, score: TriggerScore) -> None:
    """Refuse settings whose K and kappa are on another scale than D.

    Raises:
        UsageError: it is so.
    """
    if norm != score.settings.norm:
        raise UsageError(
            f"temperature and kappa of these settings are on the {norm} scale, and D is on the"
            f" {score.settings.norm} one; no K of the one is a K of the other: give both the same"
            " norm"
        )
