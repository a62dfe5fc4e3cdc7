"""A baseline search under way: what it has spent, what it found, and its state on disk."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.task import Candidate, Found, Progress, SearchTask
from visleak.store import replacing

Arrays = Mapping[str, npt.NDArray[Any]]

#: Prompts that a search keeps beside its best ones.
BANK: Final = 1000

#: State is written again once this many times the time of the last writing has passed.
SPARING: Final = 20.0

_META: Final = "state"


def generator(*numbers: int) -> np.random.Generator:
    """Return a source of random numbers that depends on these numbers alone."""
    return np.random.default_rng(np.random.SeedSequence(numbers))


def draw_of(*numbers: int) -> int:
    """Return the number of a draw of noises, as ``TriggerScore`` takes it.

    Other searches, seeds, chains and steps meet other noises.

    >>> draw_of(0, 1) != draw_of(1, 0)
    True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class Bank:
    """The best prompts that were scored, each once with its highest D.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = BANK) -> None:
        self.most = most
        self._kept: dict[str, Candidate] = {}

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Take in prompts; those without a word are none."""
        for each in candidates:
            kept = self._kept.get(each.prompt)
            if each.prompt.strip() and (kept is None or each.score > kept.score):
                self._kept[each.prompt] = each
        if len(self._kept) > 2 * self.most:
            self._kept = {each.prompt: each for each in self.ranked()}

    def ranked(self) -> tuple[Candidate, ...]:
        """Return the prompts, best first, ties by text."""
        ordered = sorted(self._kept.values(), key=lambda each: (-each.score, each.prompt))
        return tuple(ordered[: self.most])


@dataclass(frozen=True, slots=True)
class Kept:
    """What was read back of a search that was stopped.

    Attributes:
        meta: plain data.
        arrays: by name.
    """

    meta: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


class Run:
    """One search: its ledger, its bank, its file.

    Passes are counted by what a method asks for, not by what a machine has done, so that a search
    that was stopped ends with the same count and spends the same budget.

    Args:
        method: name of the search.
        about: its settings, as plain data.
        task: what is searched.
        bank: how many prompts are kept.

    Attributes:
        calls: passes so far, gradients counted by ``GRADIENT_CALLS``.
        bank: the best prompts so far.
    """

    def __init__(
        self, method: str, about: dict[str, object], task: SearchTask, *, bank: int = BANK
    ) -> None:
        if task.chains < 1:
            raise UsageError(f"chains is at least 1; got {task.chains}")
        self.method, self.about, self.task = method, about, task
        self.calls = 0
        self.bank = Bank(bank)
        self._before = 0.0
        self._began = time.perf_counter()
        self._saved, self._cost = self._began, 0.0
        model = task.score.model
        key = {
            **{"method": method, "about": about, "score": task.score.settings.about()},
            **{"timestep": task.score.timestep, "model": model.digest, "chains": task.chains},
            **{"precision": model.precision, "seed": task.seed, "bank": bank},
        }
        self.path: Path | None = None
        if task.folder is not None:
            self.path = task.folder / f"{method}-{digest_of(key)[:16]}.npz"

    @property
    def seconds(self) -> float:
        """Of wall time, over all runs."""
        return self._before + time.perf_counter() - self._began

    def left(self) -> int | None:
        """Return the passes that the budget still holds; ``None`` where it has no limit.

        It is 0 when the time is up.
        """
        budget = self.task.budget
        if budget.seconds is not None and self.seconds >= budget.seconds:
            return 0
        return None if budget.calls is None else max(budget.calls - self.calls, 0)

    def affords(self, calls: int) -> bool:
        """Return whether the budget holds so many passes more."""
        left = self.left()
        return left is None or calls <= left

    def ends_by(self, iterations: int | None) -> None:
        """Refuse a search that nothing ends.

        Raises:
            UsageError: it has neither a number of iterations nor a budget.
        """
        budget = self.task.budget
        if iterations is None and budget.calls is None and budget.seconds is None:
            raise UsageError(
                f"{self.method} without a number of iterations needs a budget of calls or seconds"
            )

    def must_have_begun(self, done: int, cost: int) -> None:
        """Refuse a budget of calls that holds nothing at all.

        Raises:
            UsageError: nothing is done, and the first step costs more than the budget.
        """
        calls = self.task.budget.calls
        if not done and calls is not None and cost > calls:
            raise UsageError(
                f"a budget of {calls} calls holds no step of {self.method}, which costs {cost} with"
                f" {self.task.chains} chains: give more calls or fewer chains"
            )

    def open(self) -> Kept | None:
        """Read what an earlier run of the same search left; its ledger and bank are taken over.

        Raises:
            VisleakError: the file is damaged.
        """
        if self.path is None or not self.path.is_file():
            return None
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            meta = json.loads(str(arrays.pop(_META)))
            self.calls, self._before = int(meta["calls"]), float(meta["seconds"])
            self.bank.add(Candidate(**each) for each in meta["bank"])
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise VisleakError(
                f"{self.path}, the state of a search, is damaged ({type(error).__name__}); delete"
                " it to search anew"
            ) from error
        return Kept(meta, arrays)

    def save(self, meta: Mapping[str, Any], arrays: Arrays | None = None, *, now: bool) -> None:
        """Write the state, unless the last writing was only just.

        Args:
            meta: plain data that the search goes on from.
            arrays: larger data, by name.
            now: write in any case.
        """
        began = time.perf_counter()
        if self.path is None or (not now and began - self._saved < SPARING * self._cost):
            return
        bank = [asdict(each) for each in self.bank.ranked()]
        text = json.dumps(
            {**meta, "calls": self.calls, "seconds": self.seconds, "bank": bank},
            ensure_ascii=True,
            allow_nan=False,
        )
        with replacing(self.path) as beside, beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_META: np.asarray(text), **(arrays or {})})
        self._saved = time.perf_counter()
        self._cost = self._saved - began

    def say(self, done: int, total: int | None) -> None:
        """Tell of progress."""
        if self.task.say is not None:
            ranked = self.bank.ranked()
            self.task.say(Progress(done, total, self.calls, ranked[0] if ranked else None))

    def found(self, best: Iterable[Candidate], *, complete: bool) -> Found:
        """Return the result."""
        return Found(
            method=self.method,
            about=self.about,
            best=tuple(best),
            bank=self.bank.ranked(),
            calls=self.calls,
            seconds=self.seconds,
            complete=complete,
        )


def better(one: Candidate | None, other: Candidate) -> Candidate:
    """Return the candidate with the higher D; of equal ones, and of prompts of no word, the first.

    >>> better(Candidate("a", 1.0), Candidate("b", 1.0)).prompt
    'a'
    """
    if one is None or not one.prompt.strip():
        return other
    return other if other.score > one.score and other.prompt.strip() else one
