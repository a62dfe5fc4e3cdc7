"""Strings of random words: what any search has to beat at the same cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from visleak.errors import UsageError
from visleak.memorization.search import moving
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.running import Run, begun
from visleak.memorization.search.task import (
    Candidate,
    Found,
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
        words = self.proposer.words().tolist()
        with begun(self.name, self.about(), task, bank=self.settings.keep) as run:
            state: dict[str, Any] = run.state or {
                "units": 0,
                "each": 0,
                "best": [asdict(Candidate("", 0.0, chain)) for chain in range(task.chains)],
            }
            while size := self._block(run, state["each"]):
                state = self._unit(run, state, size, words)
                run.save(state, now=True)
            best = [Candidate(**each) for each in state["best"]]
            return run.found(best, state, complete=wanted is None or state["each"] >= wanted)

    def _block(self, run: Run, done: int) -> int:
        """Return how many prompts each chain scores next; 0 at the end."""
        wanted, task = self.settings.prompts, run.task
        size = BLOCK if wanted is None else min(BLOCK, wanted - done)
        left, noises = run.left(), task.score.settings.noises
        if left is not None:
            size = min(size, max(0, left // noises - 1) // task.chains)
        if not size:
            run.must_have_begun(done, moving.cost(task.chains, noises))
        return size

    def _unit(
        self, run: Run, state: dict[str, Any], size: int, words: Sequence[int]
    ) -> dict[str, Any]:
        """Score one block of every chain; return the state after it."""
        task, unit = run.task, state["units"]
        texts = []
        for chain in range(task.chains):
            rng = moving.generator(task.seed, chain, unit)
            # a block is always drawn whole, so that a smaller one is the beginning of it
            picks = rng.integers(len(words), size=(BLOCK, self.settings.length))[:size]
            texts.append(self.proposer.texts([[words[pick] for pick in row] for row in picks]))
        prompts = list(dict.fromkeys(text for row in texts for text in row))
        norm = task.score.settings.norm
        values = task.score(prompts, draw=moving.draw_of(task.seed, unit)).by(norm).tolist()
        run.calls += moving.cost(len(prompts), task.score.settings.noises)
        scores = dict(zip(prompts, values, strict=True))
        best = [Candidate(**each) for each in state["best"]]
        for chain, row in enumerate(texts):
            found = [
                Candidate(text, scores[text], chain, number)
                for number, text in enumerate(row, state["each"] + 1)
            ]
            run.add(found)
            for each in found:
                if each.score > best[chain].score:
                    best[chain] = each
        after = {
            "units": unit + 1,
            "each": state["each"] + size,
            "best": [asdict(each) for each in best],
        }
        wanted = self.settings.prompts
        total = None if wanted is None else wanted * task.chains
        run.say(after["each"] * task.chains, total, max(best, key=lambda each: each.score))
        return after
