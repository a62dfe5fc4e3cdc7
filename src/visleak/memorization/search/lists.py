"""Searches that score prompts as they come: random words, and every prompt of a list.

Random words are what any search has to beat at the same cost. Greedy is the first baseline of table
2 (Hong et al. 2024): there, D of the 13 million prompts of DiffusionDB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from visleak.errors import UsageError
from visleak.memorization.prompts import Prompts
from visleak.memorization.search.driver import (
    BANK,
    Candidate,
    Run,
    Search,
    SearchTask,
    Unit,
    draw_of,
    generator,
    refuse_below_one,
)
from visleak.memorization.search.gibbs import draw_of as draw_of_step
from visleak.memorization.search.proposals import Proposer

#: Random prompts of a chain that are scored together, under the same noises, and prompts of a list
#: between two checks of the budget, unless a batch is larger.
BLOCK: Final = 32
LISTED: Final = 256


@dataclass(frozen=True, slots=True)
class RandomSettings:
    """How random strings are drawn."""

    length: int = 8  #: words of a prompt
    prompts: int | None = None  #: of each chain, at most; ``None``: as many as the budget pays for
    keep: int = 1000  #: prompts in the bank, at most

    def __post_init__(self) -> None:
        refuse_below_one(self, "length", "prompts", "keep")


class RandomWords(Search):
    """Prompts of random words of the proposer's vocabulary, the best of each chain kept.

    Every chain has the same share of the budget. Words are drawn uniformly and independently, with
    repetition, among whole words that are not banned; every block has its own noises.

    Attributes:
        name: ``random``.
        proposer: whose vocabulary is drawn from; its probabilities are not used.
        settings: how.
    """

    name = "random"

    def __init__(self, proposer: Proposer, settings: RandomSettings | None = None) -> None:
        self.proposer = proposer
        self.settings = settings or RandomSettings()

    def about(self) -> dict[str, object]:
        """Return its settings as plain data: a part of the key of its state."""
        return {**asdict(self.settings), "language_model": self.proposer.about()}

    def bank(self, task: SearchTask) -> int:
        """Return how many prompts are kept."""
        return self.settings.keep

    def units(self, run: Run) -> Iterator[Unit]:
        """Draw and score prompts until the budget, or ``prompts``, is used up."""
        task, wanted = run.task, self.settings.prompts
        words = self.proposer.words().tolist()
        run.ends_by(wanted)
        unit, done = run.state or (0, 0)
        while size := self._block(run, done):
            texts = []
            for chain in range(task.chains):
                rng = generator(task.seed, chain, unit)
                # a block is always drawn whole, so that a smaller one is the beginning of it
                picks = rng.integers(len(words), size=(BLOCK, self.settings.length))[:size]
                texts.append(self.proposer.texts([[words[at] for at in row] for row in picks]))
            scores = run.scores(
                (text for row in texts for text in row), draw_of_step(task.seed, unit)
            )
            for chain, row in enumerate(texts):
                for step, text in enumerate(row, done + 1):
                    each = Candidate(text, scores[text], chain, step)
                    run.add([each])
                    run.visit(each)
            unit, done = unit + 1, done + size
            total = None if wanted is None else wanted * task.chains
            yield Unit([unit, done], done * task.chains, total)
        run.complete = wanted is None or done >= wanted

    def _block(self, run: Run, done: int) -> int:
        """Return how many prompts each chain scores next; 0 at the end."""
        task, noises = run.task, run.task.score.settings.noises
        size, left = BLOCK, run.left()
        if self.settings.prompts is not None:
            size = min(size, self.settings.prompts - done)
        if left is not None:
            size = min(size, max(0, left // noises - 1) // task.chains)
        if not size:
            run.affords((task.chains + 1) * noises)
        return size


class Greedy(Search):
    """Score a list in a seeded random order, under one draw, until the budget ends."""

    name = "greedy"

    def __init__(self, prompts: Prompts) -> None:
        if not len(prompts):
            raise UsageError("greedy needs prompts to score; the list holds none")
        self.prompts = prompts

    def about(self) -> dict[str, object]:
        """Return the list, by size and digest."""
        hasher = hashlib.blake2b(digest_size=16)
        for text in self.prompts.texts:
            data = text.encode("utf-8", "backslashreplace")
            hasher.update(len(data).to_bytes(8, "little") + data)
        digest = hasher.hexdigest()
        return {"prompts": len(self.prompts), "digest": digest, "order": "random"}

    def bank(self, task: SearchTask) -> int:
        """Return how many prompts are kept."""
        return max(BANK, task.chains)

    def best(self, run: Run, bank: Sequence[Candidate]) -> Iterable[Candidate]:
        """Return the best prompts of the list; ``step`` is the place of a prompt in it."""
        ranked = enumerate(bank[: run.task.chains])
        return (Candidate(each.prompt, each.score, at, each.step) for at, each in ranked)

    def units(self, run: Run) -> Iterator[Unit]:
        """Score the list."""
        task = run.task
        noises, calls = task.score.settings.noises, task.budget.calls
        total = len(self.prompts)
        if calls is not None:
            total = min(total, calls // noises - 1)
        if total < 1:
            raise UsageError(
                f"a budget of {calls} calls scores no prompt: give at least {2 * noises}, one pass"
                " per noise for a prompt and one for the empty prompt"
            )
        done = run.state or 0
        order = generator(task.seed, 0).permutation(len(self.prompts))
        block = max(LISTED, task.score.settings.batch)
        while done < total and run.left() != 0:
            rows = {self.prompts.texts[int(at)]: int(at) for at in order[done:total][:block]}
            scores = run.scores(rows, draw_of(task.seed), again=done > 0)
            run.add(Candidate(text, scores[text], step=at) for text, at in rows.items())
            done += len(rows)
            yield Unit(done, done, total, now=done == total)
        run.complete = done == len(self.prompts)
