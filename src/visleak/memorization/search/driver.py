"""What every search for trigger prompts shares: task, budget, result, and its state on disk.

Algorithm 1 and the baselines of table 2 (Hong et al. 2024) have one interface and one budget, so
that what they find can be compared at equal cost.

A search that is killed loses at most the unit of work in progress. Everything random is a function
of the seed and of the number of a unit, so that a resumed search ends with the same prompts.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from visleak import progress
from visleak.errors import UsageError, VisleakError
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import Budget, Norm
from visleak.storage import Database, claimed

#: A pass with its gradient costs about two: one forward and one backward. Where weights are trained
#: it costs three; here they are frozen (measured on a small UNet2DConditionModel on a CPU: 2.03).
GRADIENT_CALLS: Final = 2
#: Prompts that a search keeps in addition to its best ones.
BANK: Final = 1000
#: State is written again once this many times the time of the last writing has passed.
SPARING: Final = 20.0
#: The file with the state, in the folder of a search.
FILE: Final = "search-state.sqlite"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prompt that a search returns."""

    prompt: str
    score: float  #: D when it was scored, by the norm of the settings
    chain: int = 0  #: number of the chain that found it
    step: int = 0  #: of the chain


@dataclass(frozen=True, slots=True)
class ScoredCandidate(Candidate):
    """A prompt that was made from another one, scored once."""

    changed: int = 0  #: word pieces in which it differs from its source
    source: str = ""  #: the prompt that it was made from


@dataclass(frozen=True, slots=True)
class BankEntry:
    """A prompt of the bank."""

    prompt: str
    mean: float  #: D over the times it was scored, each with its own noises
    best: float  #: the highest of these
    times: int  #: it was scored
    chain: int  #: (chain, step) where it was highest
    step: int
    changed: int = 0  #: word pieces in which it differs from its source, where it has one
    source: str = ""  #: the prompt that it was made from, or ``""``

    @property
    def candidate(self) -> Candidate:
        """The prompt with its highest D."""
        return Candidate(self.prompt, self.best, self.chain, self.step)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is."""

    done: int  #: units done (steps of all chains, prompts scored)
    total: int | None  #: units there are; ``None`` if unknown
    calls: int  #: passes of the network so far
    best: Candidate | None  #: the prompt of the highest D so far

    def within(self, calls: int | None) -> tuple[int, int]:
        """Return how much of a budget of passes is spent, without one how much is done."""
        return (self.done, self.total or 0) if calls is None else (min(self.calls, calls), calls)


@dataclass(frozen=True)
class SearchTask:
    """One search."""

    score: TriggerScore  #: D, with the model and its settings
    chains: int = 1  #: independent runs, which are batched together where the method can
    seed: int = 0  #: of everything random; chain k draws from (seed, k) alone
    budget: Budget = field(default_factory=Budget)  #: of the whole search, all chains together
    #: where the state is kept, so that a killed search resumes; ``None`` keeps nothing
    folder: Path | None = None
    progress: Callable[[Progress], None] | None = None  #: called with how far it is


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found."""

    method: str
    about: dict[str, object]  #: its settings, as plain data
    best: tuple[Candidate, ...]  #: one candidate per chain, in the order of chains
    bank: tuple[Candidate, ...]  #: prompts that were scored, best first, each once
    calls: int  #: passes of the network, gradients counted by ``GRADIENT_CALLS``
    seconds: float  #: of wall time, over all runs of a resumed search
    complete: bool = True  #: whether every chain ran to its end within the budget


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of a search's work that is done, such as a step of all chains."""

    state: object  #: plain data, of which the search resumes
    done: int  #: how far it is
    total: int | None  #: how far it is at the end; ``None`` if unknown
    now: bool = True  #: it is written at once, not only when writing is cheap


class Search(ABC):
    """A method of search, and the loop of all: each unit of work is kept on disk."""

    name: str  #: of the method, such as ``gibbs``

    @abstractmethod
    def about(self) -> dict[str, object]:
        """Return its settings as plain data: a part of the key of its state."""

    @abstractmethod
    def units(self, run: Run) -> Iterator[Unit]:
        """Do what is left of a search, and yield each unit; set ``run.complete`` at the end."""

    def bank(self, task: SearchTask) -> int:
        """Return how many prompts are kept."""
        return BANK

    def best(self, run: Run, bank: Sequence[Candidate]) -> Iterable[Candidate]:
        """Return the best prompt of each chain, the empty one where it has visited none."""
        return map(run.best_of, range(run.task.chains))

    def search(self, task: SearchTask) -> SearchResult:
        """Search. The same task and settings give the same prompts, killed in between or not."""
        with begun(self.name, self.about(), task, bank=self.bank(task)) as run:
            state = run.state
            for unit in self.units(run):
                state = unit.state
                run.save(state, now=unit.now)
                run.report(unit.done, unit.total)
            bank = run.ranked(state)
            best, cost = tuple(self.best(run, bank)), (run.calls, run.ledger.seconds)
            return SearchResult(self.name, self.about(), best, bank, *cost, run.complete)


# -- random numbers -------------------------------------------------------------------------------


def generator(*numbers: int | str) -> np.random.Generator:
    """Return random numbers that depend on these numbers and texts alone."""

    def number(value: int | str) -> int:
        if isinstance(value, int):
            return value
        digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest)

    return np.random.default_rng(list(map(number, numbers)))


def draw_of(*numbers: int) -> int:
    """Return the number of a draw of noises, of these numbers alone."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


# -- the state of a search on disk ----------------------------------------------------------------

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bank (
    source TEXT NOT NULL, prompt TEXT NOT NULL, total REAL NOT NULL, times INTEGER NOT NULL,
    best REAL NOT NULL, chain INTEGER NOT NULL, step INTEGER NOT NULL, changed INTEGER NOT NULL,
    PRIMARY KEY (source, prompt)
) WITHOUT ROWID;
"""

_ABOUT: Final = "INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)"

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

_SELECT: Final = "SELECT prompt, total / times, best, times, chain, step, changed, source FROM bank"


class Ledger(Database):
    """State of a search, the prompts it scored, and what it spent. A context manager."""

    def __init__(self, folder: Path | None, key: Mapping[str, object]) -> None:
        path = None if folder is None else folder / FILE
        super().__init__(path, _TABLES, "remove the file to start the search again")
        self.added = 0
        try:
            self.check()
            about = dict(self.select("SELECT name, value FROM about"))
            held = json.loads(about.get("key", "null"))
            if held is None or "state" not in about:
                # nothing was done for another search
                with self.writing() as db:
                    text = json.dumps(dict(key), sort_keys=True)
                    db.execute(_ABOUT, ("key", text))
            elif held != dict(key):
                raise UsageError(
                    f"{path} is of another search (other {', '.join(_differing(held, key))});"
                    " choose another folder, or remove that file"
                )
            self.state: Any = json.loads(about.get("state", "null"))
            self.calls = int(about.get("calls", 0))
            self.seconds = float(about.get("seconds", 0.0))
        except BaseException:
            self.close()
            raise

    def save(
        self, state: object, scored: Iterable[Candidate], *, calls: int, seconds: float
    ) -> None:
        """Keep the result of a unit of work: all of it, or nothing."""
        rows = [
            (
                *(getattr(each, "source", ""), each.prompt, each.score, each.score),
                *(each.chain, each.step, getattr(each, "changed", 0)),
            )
            for each in scored
        ]
        about = {"state": json.dumps(state), "calls": str(calls), "seconds": repr(seconds)}
        with self.writing() as db:
            db.executemany(_ADD, rows)
            db.executemany(_ABOUT, about.items())
        self.state, self.calls, self.seconds = state, calls, seconds
        self.added += len(rows)

    def keep_best(self, count: int) -> None:
        """Remove all but the prompts of the highest D."""
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

    def best(self, count: int | None = None) -> list[BankEntry]:
        """Return prompts by their highest D, highest first; ties by text."""
        query = f"{_SELECT} ORDER BY best DESC, prompt LIMIT ?"
        return [BankEntry(*row) for row in self.select(query, (-1 if count is None else count,))]

    def by_mean(
        self, source: str | None = None, *, least: float | None = None, count: int | None = None
    ) -> Iterator[BankEntry]:
        """Yield prompts by their mean D, highest first; ties by text."""
        # only texts of this module are put together; values are bound
        where, values = _where(source, least)
        query = f"{_SELECT}{where} ORDER BY total / times DESC, prompt LIMIT ?"
        for row in self.select(query, (*values, -1 if count is None else count)):
            yield BankEntry(*row)


def _where(source: str | None, least: float | None) -> tuple[str, tuple[object, ...]]:
    conditions = {"source = ?": source, "total / times >= ?": least}
    known = {text: value for text, value in conditions.items() if value is not None}
    return (f" WHERE {' AND '.join(known)}" if known else ""), tuple(known.values())


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    """Yield the names under which two keys differ, those of settings by themselves."""
    for name in dict.fromkeys((*one, *other)):
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            yield from _differing(mine, theirs)
        elif mine != theirs:
            yield name


def key_of(task: SearchTask, method: str, about: Mapping[str, object]) -> dict[str, Any]:
    """Return all that prompts depend on; not the budget, so that a larger one may resume."""
    model = task.score.model
    key = {
        **{"method": method, "settings": dict(about), "score": task.score.settings.about()},
        **{"model": model.digest, "precision": model.precision},
        **{"chains": task.chains, "seed": task.seed},
    }
    # as it is read again, with lists for tuples
    return dict(json.loads(json.dumps(key, sort_keys=True)))


def calls_so_far(folder: Path, key: Mapping[str, object], *, force: bool = False) -> int | None:
    """Return the passes that a search in a folder has cost so far; ``None`` if it has not begun."""
    path = folder / FILE
    if not path.exists():
        return None
    with claimed(folder):
        try:
            with Ledger(folder, key) as ledger:
                return None if ledger.state is None else ledger.calls
        except VisleakError:
            if not force:
                raise
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
            return None


# -- a search under way ---------------------------------------------------------------------------


@contextmanager
def begun(
    method: str, about: dict[str, object], task: SearchTask, *, bank: int | None = BANK
) -> Iterator[Run]:
    """Give a search: a new one, or the one that an earlier run of it left."""
    if task.chains < 1:
        raise UsageError(f"chains must be at least 1; got {task.chains}")
    alone = nullcontext() if task.folder is None else claimed(task.folder)
    with alone, Ledger(task.folder, key_of(task, method, about)) as ledger:
        yield Run(method, task, ledger, bank)


class Run:
    """One search: its costs, its best prompts, its state.

    Passes are counted by what a method requests, not by what a machine has done, so that a resumed
    search ends with the same count and spends the same budget.
    """

    def __init__(self, method: str, task: SearchTask, ledger: Ledger, bank: int | None) -> None:
        self.method, self.task, self.ledger, self._bank = method, task, ledger, bank
        held = ledger.state or {"state": None, "best": []}
        self.state: Any = held["state"]
        # the best prompt that each chain has visited, by chain
        self.best = {each[2]: Candidate(*each) for each in held["best"]}
        self.calls = ledger.calls
        self._pending: list[Candidate] = []
        self._top = next((each.candidate for each in ledger.best(1)), None)
        self._began = time.perf_counter() - ledger.seconds
        self._saved, self._cost = time.perf_counter(), 0.0
        self.complete = False  # every chain ran to its end within the budget

    @property
    def seconds(self) -> float:
        """Of wall time, over all runs."""
        return time.perf_counter() - self._began

    def left(self) -> int | None:
        """Return the passes that the budget holds; ``None`` without limit, 0 when time is up."""
        budget = self.task.budget
        if budget.seconds is not None and self.seconds >= budget.seconds:
            return 0
        return None if budget.calls is None else max(budget.calls - self.calls, 0)

    def affords(self, calls: int) -> bool:
        """Return whether the budget holds this many passes more."""
        left, limit = self.left(), self.task.budget.calls
        if not self.calls and limit is not None and calls > limit:
            raise UsageError(
                f"a budget of {limit} calls holds no step of {self.method}, which costs {calls}"
                f" with {self.task.chains} chains: give more calls or fewer chains"
            )
        return left is None or calls <= left

    def ends_by(self, limit: int | None) -> None:
        """Refuse a search that nothing ends."""
        if limit is None and self.task.budget.unlimited:
            raise UsageError(
                f"nothing ends the search {self.method}: give a number of iterations, rounds or"
                " prompts, or a budget of calls or seconds"
            )

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Add prompts that were scored; those without a word are ignored."""
        for each in candidates:
            if each.prompt.strip():
                self._pending.append(each)
                if self._top is None or each.score > self._top.score:
                    self._top = Candidate(each.prompt, each.score, each.chain, each.step)

    def visit(self, each: Candidate) -> None:
        """Let a prompt be the best of its chain if it has words and the highest D so far."""
        if each.prompt.strip() and each.score > self.best_of(each.chain).score:
            self.best[each.chain] = each

    def best_of(self, chain: int) -> Candidate:
        """Return the best prompt that a chain has visited; the empty one at the beginning."""
        return self.best.get(chain, Candidate("", 0.0, chain))

    def save(self, state: object, *, now: bool = True) -> None:
        """Write the state and the prompts."""
        began = time.perf_counter()
        if not now and began - self._saved < SPARING * self._cost:
            return
        held = {"state": state, "best": [astuple(each) for each in self.best.values()]}
        self.ledger.save(held, self._pending, calls=self.calls, seconds=self.seconds)
        self._pending = []
        if self._bank is not None and self.ledger.added > self._bank:
            self.ledger.keep_best(self._bank)
        self._saved = time.perf_counter()
        self._cost = self._saved - began

    def report(self, done: int, total: int | None) -> None:
        """Report progress."""
        if self.task.progress is not None:
            self.task.progress(Progress(done, total, self.calls, self._top))

    def ranked(self, state: object) -> tuple[Candidate, ...]:
        """Write the last state, and return the prompts, best first, ties by text."""
        # a finished search that is opened again stays as it is
        if self._pending or self.calls != self.ledger.calls:
            self.save(state)
        if self._bank is not None:
            self.ledger.keep_best(self._bank)
        return tuple(each.candidate for each in self.ledger.best(self._bank))

    def scores(self, prompts: Iterable[str], draw: int, *, again: bool = False) -> dict[str, float]:
        """Return D of different prompts under the noises of a draw; their passes are counted.

        ``again``: the empty prompt has met these noises, and costs no further pass.
        """
        texts, score = list(dict.fromkeys(prompts)), self.task.score
        found = score(texts, draw=draw).by(score.settings.norm)
        self.calls += score.settings.noises * (len(texts) + (not again))
        return dict(zip(texts, found.tolist(), strict=True))


def shown_by(bar: progress.Progress, step: str, calls: int | None) -> Callable[[Progress], None]:
    """Return what shows a search's progress, with the highest D so far."""
    last = ""

    def report(now: Progress) -> None:
        nonlocal last
        # a bar keeps its name: the best so far is reported in lines of its own
        if now.best is not None and now.best.prompt not in ("", last):
            last = now.best.prompt
            bar(f"highest D so far {now.best.score:.4g}: {last[:60]}", 0, 0)
        bar(step, *now.within(calls))

    return report


# -- settings -------------------------------------------------------------------------------------


def check_norm(norm: Norm, score: TriggerScore) -> None:
    """Refuse settings whose K and kappa are on another scale than D."""
    if norm != score.settings.norm:
        raise UsageError(
            f"temperature and kappa of these settings are on the {norm} scale, and D is on the"
            f" {score.settings.norm} one; neither can be converted: give both the same norm"
        )
