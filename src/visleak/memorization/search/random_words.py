"""Strings of random words: what any search has to beat at the same cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from visleak.errors import UsageError
from visleak.memorization.search import moving
from visleak.memorization.search.gibbs import candidate_of
from visleak.memorization.search.ledger import Ledger, Scored, Spending, opened
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.task import (
    Candidate,
    Found,
    Progress,
    SearchTask,
    refuse_below_one,
)

#: Prompts of a chain that are scored together, under the same noises.
BLOCK: Final = 32


@dataclass(frozen=True, slots=True)
class RandomSettings:
    """How random strings are drawn.

    Attributes:
        length: words of a prompt.
        prompts: of each chain, at most; ``None``: as many as the budget pays for.
        keep: prompts in the bank, at most.
    """

    length: int = 8
    prompts: int | None = None
    keep: int = 1000

    def __post_init__(self) -> None:
        refuse_below_one(self, "length", "prompts", "keep")


class RandomWords:
    """Prompts of random words of the proposer's vocabulary, the best of each chain kept.

    Every chain has the same share of the budget. Words are drawn uniformly and independently, with
    repetition, among whole words that are not banned; noises are drawn anew for every block, as
    Algorithm 1 draws them for every step.

    Attributes:
        name: ``random``.
        proposer: whose vocabulary is drawn from; its probabilities play no part.
        settings: how.
    """

    name = "random"

    def __init__(self, proposer: Proposer, settings: RandomSettings | None = None) -> None:
        self.proposer = proposer
        self.settings = settings or RandomSettings()

    def about(self) -> dict[str, object]:
        """Return its settings as plain data: a part of the key of its state."""
        return {**asdict(self.settings), "language_model": self.proposer.about()}

    def search(self, task: SearchTask) -> Found:
        """Draw and score prompts until the budget, or ``prompts``, is used up.

        Raises:
            UsageError: nothing ends the search, or the budget pays for no prompt.
        """
        budget, wanted = task.budget, self.settings.prompts
        if wanted is None and budget.calls is None and budget.seconds is None:
            raise UsageError(
                "random words never end by themselves: give prompts, or a budget of calls or"
                " seconds"
            )
        words = self.proposer.words()
        with opened(task, self.name, self.about()) as ledger:
            state: dict[str, Any] = ledger.state or {
                "units": 0,
                "each": 0,
                "best": [asdict(Candidate("", 0.0, chain)) for chain in range(task.chains)],
            }
            spending = Spending(task, ledger)
            while size := self._block(task, state["each"], spending):
                state = self._unit(task, state, size, words.tolist(), ledger)
                if ledger.added > 2 * self.settings.keep:
                    ledger.keep_best(self.settings.keep)
            ledger.keep_best(self.settings.keep)
            return Found(
                method=self.name,
                about=self.about(),
                best=tuple(Candidate(**each) for each in state["best"]),
                bank=tuple(map(candidate_of, ledger.best(self.settings.keep))),
                calls=ledger.calls,
                seconds=ledger.seconds,
                complete=wanted is None or state["each"] >= wanted,
            )

    def _block(self, task: SearchTask, done: int, spending: Spending) -> int:
        """Return how many prompts each chain scores next; 0 where it is over."""
        wanted = self.settings.prompts
        size = BLOCK if wanted is None else min(BLOCK, wanted - done)
        left = spending.left()
        if left is not None:
            size = min(size, left // task.chains)
        if not size and not done:
            spending.pays(task.chains)
        return size

    def _unit(
        self,
        task: SearchTask,
        state: dict[str, Any],
        size: int,
        words: Sequence[int],
        ledger: Ledger,
    ) -> dict[str, Any]:
        """Score one block of every chain; return the state after it."""
        began, before = time.perf_counter(), task.score.calls
        unit = state["units"]
        texts = []
        for chain in range(task.chains):
            rng = moving.generator(task.seed, chain, unit)
            # a block is always drawn whole, so that a smaller one is the beginning of it
            picks = rng.integers(len(words), size=(BLOCK, self.settings.length))[:size]
            texts.append(self.proposer.texts([[words[pick] for pick in row] for row in picks]))
        prompts = list(dict.fromkeys(text for row in texts for text in row))
        draw = moving.draw_of(task.seed, unit)
        norm = task.score.settings.norm
        values = task.score(prompts, draw=draw).by(norm).tolist()
        scores = dict(zip(prompts, values, strict=True))
        best = list(state["best"])
        scored = []
        for chain, row in enumerate(texts):
            for number, text in enumerate(row, state["each"] + 1):
                scored.append(Scored(text, scores[text], chain, number))
                if scores[text] > best[chain]["score"]:
                    best[chain] = asdict(Candidate(text, scores[text], chain, number))
        after = {"units": unit + 1, "each": state["each"] + size, "best": best}
        ledger.save(
            after,
            scored,
            calls=task.score.calls - before,
            seconds=time.perf_counter() - began,
        )
        if task.say is not None:
            wanted = self.settings.prompts
            task.say(
                Progress(
                    done=after["each"] * task.chains,
                    total=None if wanted is None else wanted * task.chains,
                    calls=ledger.calls,
                    best=Candidate(**max(best, key=lambda each: each["score"])),
                )
            )
        return after
