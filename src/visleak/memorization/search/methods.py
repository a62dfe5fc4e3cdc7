"""Searches to compare Algorithm 1 with (Hong et al. 2024, table 2): random words, Greedy, ConZIC.

Random words are what any search has to beat at the same cost. Greedy scores every prompt of a list,
in the paper the 13 million of DiffusionDB. ConZIC (Zeng et al. 2023) takes the word of the highest
weighted sum of its probability and its match, here D, where Algorithm 1 draws one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

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
)
from visleak.memorization.search.gibbs import boltzmann, draw_of_step
from visleak.memorization.search.proposals import Candidates, Proposer
from visleak.options import Options, option
from visleak.records import Float64

#: Random prompts of a chain that are scored together, under the same noises, and prompts of a list
#: between two checks of the budget, unless a batch is larger.
BLOCK: Final = 32
LISTED: Final = 256


@dataclass(frozen=True)
class RandomSettings(Options):
    """How random strings are drawn."""

    length: int = option(8, "Words of a prompt.", least=1)
    prompts: int | None = option(
        None, "Of each chain, at most. Default: as many as the budget pays for.", least=1
    )
    keep: int = option(1000, "Prompts in the bank, at most.", least=1)


class RandomWords(Search):
    """Prompts of random words of the proposer's vocabulary, the best of each chain kept.

    Every chain has the same share of the budget. Words are drawn uniformly and independently, with
    repetition, among whole words that are not banned; every block has its own noises.

    The probabilities of the proposer are not used.
    """

    name = "random"

    def __init__(self, proposer: Proposer, settings: RandomSettings | None = None) -> None:
        self.proposer, self.settings = proposer, settings or RandomSettings()

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
            for number in range(task.chains):
                rng = generator(task.seed, number, unit)
                # a block is always drawn whole, so that a smaller one is the beginning of it
                picks = rng.integers(len(words), size=(BLOCK, self.settings.length))[:size]
                texts.append(self.proposer.texts([[words[at] for at in row] for row in picks]))
            every = (text for row in texts for text in row)
            scores = run.scores(every, draw_of_step(task.seed, unit))
            for number, row in enumerate(texts):
                for step, text in enumerate(row, done + 1):
                    each = Candidate(text, scores[text], number, step)
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
        return {"prompts": len(self.prompts), "digest": hasher.hexdigest(), "order": "random"}

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


@dataclass(frozen=True)
class ConzicSettings(Options):
    """How ConZIC runs; weights and language model's temperature as in its code."""

    length: int = option(8, "Words of a prompt (MemBench's search: 8; ConZIC: 10).", least=1)
    # Hong et al.: 200, read as single words: by the hours they state, whole prompts would be eight
    # times too many
    iterations: int | None = option(
        200, "Words that are chosen; None: until the budget ends.", least=1
    )
    candidates: int = option(200, "Words proposed at a time (both: 200).", least=1)
    alpha: float = option(0.02, "Weight of the language model's probability.", least=0)
    beta: float = option(2.0, "Weight of D (ConZIC: of the match).", least=0)
    # ConZIC normalises over all words, which at this temperature is the same
    lm_temperature: float = option(
        0.1, "Divides log-probabilities, then normalised over the candidates.", above=0
    )


class Conzic(Search):
    """Coordinate ascent from masks; chains differ in the order of positions and in noises only."""

    name = "conzic"

    def __init__(self, proposer: Proposer, settings: ConzicSettings | None = None) -> None:
        self.proposer, self.settings = proposer, settings or ConzicSettings()

    def about(self) -> dict[str, object]:
        """Return settings and language model."""
        return {
            **asdict(self.settings),
            "proposals": self.proposer.about(),
            "noises": "one draw per chain and step",
        }

    def units(self, run: Run) -> Iterator[Unit]:
        """Let each chain take the best word of one position after the other."""
        task, length, end = run.task, self.settings.length, self.settings.iterations
        run.ends_by(end)
        step, states = run.state or (0, [self.proposer.start(length)] * task.chains)
        orders = [generator(task.seed, at).permutation(length) for at in range(task.chains)]
        while step != end:
            positions = [int(order[step % length]) for order in orders]
            proposed = self.proposer.candidates(states, positions, self.settings.candidates)
            rows = [
                [[*state[:at], int(word), *state[at + 1 :]] for word in one.ids]
                for state, at, one in zip(states, positions, proposed, strict=True)
            ]
            texts = [self.proposer.texts(each) for each in rows]
            known = [sorted({text for text in own if text.strip()}) for own in texts]
            if not run.affords(task.score.settings.noises * sum(len(own) + 1 for own in known)):
                break
            for chain, one in enumerate(proposed):
                scores = run.scores(known[chain], draw_of(task.seed, chain, step))
                run.add(Candidate(text, value, chain, step) for text, value in scores.items())
                # D of the empty prompt is 0
                values = np.array([scores.get(text, 0.0) for text in texts[chain]])
                chosen = int(np.argmax(weighed(one, values, self.settings)))
                states = [*states[:chain], rows[chain][chosen], *states[chain + 1 :]]
                run.visit(Candidate(texts[chain][chosen], float(values[chosen]), chain, step))
            step += 1
            yield Unit([step, states], step, end, now=step == end)
        run.complete = step == end


def weighed(proposed: Candidates, scores: Float64, settings: ConzicSettings) -> Float64:
    """Return alpha times the language model's probability plus beta times D, per candidate."""
    fluent = boltzmann(proposed.log_probabilities, settings.lm_temperature)
    return settings.alpha * fluent + settings.beta * scores
