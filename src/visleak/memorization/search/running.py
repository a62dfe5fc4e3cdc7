"""A search under way: what it has spent, what it found, and its state on disk."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any, Final

import numpy as np

from visleak.errors import UsageError
from visleak.memorization.search.ledger import Ledger, Scored, opened
from visleak.memorization.search.task import Candidate, Found, Progress, SearchTask

#: Prompts that a search keeps besides its best ones.
BANK: Final = 1000

#: State is written again once this many times the time of the last writing has passed.
SPARING: Final = 20.0


def generator(*numbers: int) -> np.random.Generator:
    """Return a source of random numbers that depends on these numbers alone."""
    return np.random.default_rng(np.random.SeedSequence(numbers))


def draw_of(*numbers: int) -> int:
    """Return the number of a draw of noises, as ``TriggerScore`` takes it.

    Other searches, seeds, chains and steps have other noises.

    >>> draw_of(0, 1) != draw_of(1, 0)
    True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


@contextmanager
def begun(
    method: str, about: dict[str, object], task: SearchTask, *, bank: int | None = BANK
) -> Iterator[Run]:
    """Give a search: a new one, or the one that an earlier run of it left.

    Args:
        method: name of the search.
        about: its settings, as plain data.
        task: what is searched.
        bank: prompts that are kept; ``None`` keeps all.

    Raises:
        UsageError: there is no chain, or the folder holds the state of another search.
        VisleakError: the state is damaged, or another run is at it.
    """
    if task.chains < 1:
        raise UsageError(f"chains is at least 1; got {task.chains}")
    with opened(task, method, about) as ledger:
        yield Run(method, about, task, ledger, bank)


class Run:
    """One search: its costs, its best prompts, its state.

    Passes are counted by what a method requests, not by what a machine has done, so that a resumed
    search ends with the same count and spends the same budget.

    Attributes:
        task: what is searched.
        state: plain data that an earlier run left; ``None`` at the beginning.
        calls: passes so far, gradients counted by ``GRADIENT_CALLS``.
        best: the prompt of the highest D so far.
        ledger: every prompt that was scored, as far as it is written.
    """

    def __init__(
        self,
        method: str,
        about: dict[str, object],
        task: SearchTask,
        ledger: Ledger,
        bank: int | None,
    ) -> None:
        self.method, self.about, self.task = method, about, task
        self.state: Any = ledger.state
        self.calls = ledger.calls
        self.ledger, self._bank = ledger, bank
        self._pending: list[Scored] = []
        self.best = next((each.candidate for each in ledger.best(1)), None)
        self._began = time.perf_counter() - ledger.seconds
        self._saved, self._cost = time.perf_counter(), 0.0

    @property
    def seconds(self) -> float:
        """Of wall time, over all runs."""
        return time.perf_counter() - self._began

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

    def add(self, candidates: Iterable[Candidate | Scored]) -> None:
        """Add prompts that were scored; those without a word are ignored."""
        for each in candidates:
            if each.prompt.strip():
                found = Candidate(each.prompt, each.score, each.chain, each.step)
                self.best = better(self.best, found)
                scored = each if isinstance(each, Scored) else Scored(*astuple(found))
                self._pending.append(scored)

    def save(self, state: Any, *, now: bool) -> None:
        """Write the state and the prompts, unless the last writing was only just.

        Args:
            state: plain data that the search resumes from.
            now: write in any case.
        """
        began = time.perf_counter()
        if not now and began - self._saved < SPARING * self._cost:
            return
        spent = self.calls - self.ledger.calls, self.seconds - self.ledger.seconds
        self.ledger.save(state, self._pending, calls=spent[0], seconds=spent[1])
        self._pending = []
        if self._bank is not None and self.ledger.added > self._bank:
            self.ledger.keep_best(self._bank)
        self._saved = time.perf_counter()
        self._cost = self._saved - began

    def say(self, done: int, total: int | None, best: Candidate | None = None) -> None:
        """Report progress; ``best`` is the prompt of the highest D by default."""
        if self.task.say is not None:
            self.task.say(Progress(done, total, self.calls, best or self.best))

    def ranked(self, state: Any) -> tuple[Candidate, ...]:
        """Write the last state, and return the best prompts, best first, ties by text."""
        # a finished search that is opened again stays as it is
        if self._pending or self.calls != self.ledger.calls:
            self.save(state, now=True)
        if self._bank is not None:
            self.ledger.keep_best(self._bank)
        return tuple(each.candidate for each in self.ledger.best(self._bank))

    def found(self, best: Iterable[Candidate], state: Any, *, complete: bool) -> Found:
        """Return the result.

        Args:
            best: of each chain.
            state: the last one.
            complete: whether the search ran to its own end.
        """
        return Found(
            method=self.method,
            about=self.about,
            best=tuple(best),
            bank=self.ranked(state),
            calls=self.calls,
            seconds=self.ledger.seconds,
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
