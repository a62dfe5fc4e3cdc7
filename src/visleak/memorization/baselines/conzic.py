"""ConZIC with D in place of CLIP: the proposals of Algorithm 1, and always the best of them.

Zeng et al. 2023, "ConZIC": word by word, a masked language model proposes words for a position,
and the one with the highest weighted sum of its probability and of its match with the image takes
the place. In table 2 of Hong et al. 2024 D stands for the match. Where Algorithm 1 draws, ConZIC
takes the argmax, and ends in local optima: 6 memorized images in 24 hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.memorization.search.moving import boltzmann
from visleak.memorization.search.proposals import Candidates, Proposer
from visleak.memorization.search.running import Run, begun, better, draw_of, generator
from visleak.memorization.search.task import Candidate, Found, SearchTask

Float64 = npt.NDArray[np.float64]
Order = Literal["sequential", "shuffle", "random"]
Match = Literal["raw", "softmax"]

ORDERS: Final = ("sequential", "shuffle", "random")
MATCHES: Final = ("raw", "softmax")


@dataclass(frozen=True, slots=True)
class ConzicSettings:
    """How ConZIC runs; weights and language model's temperature as in its code.

    Attributes:
        length: words of a prompt (MemBench's search: 8; ConZIC: 10).
        iterations: words that are chosen anew (Hong et al.: 200, read as single words: by the
            hours they state, whole prompts would be eight times too many); ``None`` goes on while
            the budget lasts.
        candidates: words proposed at a time (both: 200).
        order: which position comes next: ``shuffle``, one random order for all rounds of a chain;
            ``sequential``, from left to right; ``random``, any at any time. ConZIC has all three;
            the first two are its paper's, and of these only ``shuffle`` tells chains apart.
        alpha: weight of the language model's probability (ConZIC: 0.02).
        beta: weight of D (ConZIC: 2, of the match).
        lm_temperature: divides the log-probabilities, which are then normalised over the
            candidates (ConZIC: 0.1, over all words, which at this temperature is the same).
        match: what ``beta`` weighs: ``raw``, D itself (Hong et al.: "D + BERT probability"), or
            ``softmax``, its softmax over the candidates (ConZIC's code has that of CLIP's logits).
    """

    length: int = 8
    iterations: int | None = 200
    candidates: int = 200
    order: Order = "shuffle"
    alpha: float = 0.02
    beta: float = 2.0
    lm_temperature: float = 0.1
    match: Match = "raw"

    def __post_init__(self) -> None:
        for name in ("length", "iterations", "candidates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} of conzic is at least 1; got {value}")
        if self.order not in ORDERS or self.match not in MATCHES:
            raise UsageError(
                f"order of conzic is one of {', '.join(ORDERS)} and match one of"
                f" {', '.join(MATCHES)}; got {self.order!r} and {self.match!r}"
            )
        if not (self.alpha >= 0.0 and self.beta >= 0.0 and self.lm_temperature > 0.0):
            raise UsageError(
                "alpha and beta of conzic are at least 0 and its lm_temperature is above 0; got"
                f" {self.alpha:g}, {self.beta:g} and {self.lm_temperature:g}"
            )


@dataclass(frozen=True, slots=True)
class _Place:
    """What may stand at the position of one chain.

    Attributes:
        proposed: the candidates.
        states: the prompts they make, as ids.
        texts: the same as text.
    """

    proposed: Candidates
    states: list[list[int]]
    texts: list[str]

    def known(self) -> list[str]:
        """Return the prompts to score: those with a word, each once."""
        return sorted({text for text in self.texts if text.strip()})


class Conzic:
    """Coordinate ascent from masks; each chain meets its own noises, new ones at every step.

    A step costs a pass per noise for every prompt that the candidates make, and one for the empty
    prompt. Nothing but the order and the noises tells chains apart.

    Args:
        proposer: the language model.
        settings: how it runs.
    """

    name = "conzic"

    def __init__(self, proposer: Proposer, settings: ConzicSettings | None = None) -> None:
        self.proposer, self.settings = proposer, settings or ConzicSettings()

    def about(self) -> dict[str, object]:
        """Return settings and language model."""
        return {
            **asdict(self.settings),
            "proposals": self.proposer.about(),
            "noises": "one draw a chain and step",
        }

    def search(self, task: SearchTask) -> Found:
        """Return the prompt with the highest D that each chain has been at.

        Raises:
            UsageError: the budget does not hold a single step, or nothing ends the search.
        """
        with begun(self.name, self.about(), task) as run:
            run.ends_by(self.settings.iterations)
            states, best, step = self._begun(run)
            while step != self.settings.iterations:
                places = self._places(task, states, step)
                cost = task.score.settings.noises * sum(len(each.known()) + 1 for each in places)
                if not run.affords(cost):
                    run.must_have_begun(step, cost)
                    break
                for chain, place in enumerate(places):
                    state, here = self._step(run, place, chain, step)
                    states[chain], best[chain] = state, better(best[chain], here)
                run.calls += cost
                step += 1
                run.save(_state(step, states, best), now=step == self.settings.iterations)
                run.say(step, self.settings.iterations)
            found = [each for each in best if each is not None and each.prompt.strip()]
            complete = step == self.settings.iterations
            return run.found(found, _state(step, states, best), complete=complete)

    def _begun(self, run: Run) -> tuple[list[list[int]], list[Candidate | None], int]:
        """Return the states, the best prompts and the step to resume from."""
        kept = run.state
        if kept is None:
            states = [self.proposer.start(self.settings.length) for _ in range(run.task.chains)]
            return states, [None] * run.task.chains, 0
        best = [None if each is None else Candidate(**each) for each in kept["best"]]
        return kept["states"], best, int(kept["step"])

    def _places(self, task: SearchTask, states: list[list[int]], step: int) -> list[_Place]:
        """Ask the language model for the candidates of all chains."""
        positions = [self._position(task.seed, chain, step) for chain in range(task.chains)]
        proposed = self.proposer.candidates(states, positions, self.settings.candidates)
        found = []
        for state, at, one in zip(states, positions, proposed, strict=True):
            rows = [[*state[:at], int(word), *state[at + 1 :]] for word in one.ids]
            found.append(_Place(one, rows, self.proposer.texts(rows)))
        return found

    def _step(self, run: Run, place: _Place, chain: int, step: int) -> tuple[list[int], Candidate]:
        """Score the candidates of a chain; return the best by the weighted sum."""
        score, known = run.task.score, place.known()
        scored = score(known, draw=draw_of(run.task.seed, chain, step)).by(score.settings.norm)
        by_text = dict(zip(known, map(float, scored), strict=True))
        run.add(Candidate(text, value, chain, step) for text, value in by_text.items())
        # a prompt of no word is the empty prompt, whose D is 0
        values = np.array([by_text.get(text, 0.0) for text in place.texts])
        chosen = int(np.argmax(weighed(place.proposed, values, self.settings)))
        here = Candidate(place.texts[chosen], float(values[chosen]), chain, step)
        return place.states[chosen], here

    def _position(self, seed: int, chain: int, step: int) -> int:
        """Return the position that a chain looks at in a step."""
        length = self.settings.length
        if self.settings.order == "random":
            return int(generator(seed, chain, step).integers(length))
        if self.settings.order == "shuffle":
            return int(generator(seed, chain).permutation(length)[step % length])
        return step % length


def _state(
    step: int, states: Sequence[list[int]], best: Sequence[Candidate | None]
) -> dict[str, Any]:
    return {"step": step, "states": list(states), "best": [each and asdict(each) for each in best]}


def weighed(proposed: Candidates, scores: Float64, settings: ConzicSettings) -> Float64:
    """Return alpha times the language model's probability plus beta times D, for each candidate.

    Args:
        proposed: the candidates of one position.
        scores: D of the prompts they make, (candidates,).
        settings: the weights.

    >>> one = Candidates(np.array([4, 2]), np.log([0.5, 0.25]))
    >>> settings = ConzicSettings(alpha=0.3, beta=1.0, lm_temperature=1.0)
    >>> weighed(one, np.array([1.0, 1.05]), settings).round(6).tolist()
    [1.2, 1.15]
    """
    fluent = boltzmann(proposed.log_probabilities, settings.lm_temperature)
    match = scores if settings.match == "raw" else boltzmann(scores, 1.0)
    return settings.alpha * fluent + settings.beta * match
