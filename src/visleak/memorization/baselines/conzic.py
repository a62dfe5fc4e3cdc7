"""ConZIC with D in place of CLIP: the proposals of Algorithm 1, and always the best of them.

Zeng et al. 2023, "ConZIC": word by word, a masked language model proposes words for a position,
and the one with the highest weighted sum of its probability and of its match with the image takes
the place. In table 2 of Hong et al. 2024 D stands for the match. Where Algorithm 1 draws, ConZIC
takes the argmax, and ends in local optima: 6 memorized images in 24 hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from visleak.errors import UsageError
from visleak.memorization.search.driver import (
    Candidate,
    Run,
    Search,
    Unit,
    draw_of,
    generator,
    refuse_below_one,
)
from visleak.memorization.search.gibbs import boltzmann
from visleak.memorization.search.proposals import Candidates, Proposer
from visleak.records import Float64


@dataclass(frozen=True, slots=True)
class ConzicSettings:
    """How ConZIC runs; weights and language model's temperature as in its code."""

    length: int = 8  #: words of a prompt (MemBench's search: 8; ConZIC: 10)
    #: words that are chosen (Hong et al.: 200, read as single words: by the hours they state, whole
    #: prompts would be eight times too many); ``None``: until the budget ends
    iterations: int | None = 200
    candidates: int = 200  #: words proposed at a time (both: 200)
    alpha: float = 0.02  #: weight of the language model's probability (ConZIC: 0.02)
    beta: float = 2.0  #: weight of D (ConZIC: 2, of the match)
    #: divides the log-probabilities, which are then normalised over the candidates (ConZIC: 0.1,
    #: over all words, which at this temperature is the same)
    lm_temperature: float = 0.1

    def __post_init__(self) -> None:
        refuse_below_one(self, "length", "iterations", "candidates")
        if not (self.alpha >= 0.0 and self.beta >= 0.0 and self.lm_temperature > 0.0):
            raise UsageError(
                "alpha and beta of conzic must be at least 0 and its lm_temperature above 0; got"
                f" {self.alpha:g}, {self.beta:g} and {self.lm_temperature:g}"
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
