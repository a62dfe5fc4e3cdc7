"""One move of Gibbs sampling, for many chains at once (equations 7 to 9 of Hong et al. 2024).

    T_i(p -> p') = exp(D(p') / K) / sum over candidates w of exp(D(p with p_i = w) / K)

where p' differs from p in position i at most. Chains of one step share one pass of the language
model, one call of D, and so its noises; a chain alone meets the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.memorization.scores import Norm, TriggerScore
from visleak.memorization.search.proposals import Proposer

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Move:
    """The next move of a chain.

    Attributes:
        state: ids of its prompt.
        position: that changes, from 0.
        chance: uniform in [0, 1), what decides the draw.
        forced: ids that have to be among the candidates.
    """

    state: tuple[int, ...]
    position: int
    chance: float
    forced: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """What a position may become, for one chain; candidates in the order of their ids.

    Attributes:
        states: the prompts, as ids.
        texts: the same as text.
    """

    states: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A chain that has moved.

    Attributes:
        option: what it could become.
        scores: D of each candidate.
        taken: index of the one it became.
    """

    option: Option
    scores: Float64
    taken: int

    @property
    def state(self) -> tuple[int, ...]:
        """The ids of the new prompt."""
        return self.option.states[self.taken]

    @property
    def text(self) -> str:
        """The new prompt."""
        return self.option.texts[self.taken]

    @property
    def score(self) -> float:
        """D of the new prompt."""
        return float(self.scores[self.taken])


def boltzmann(scores: Float64, temperature: float) -> Float64:
    """Return probabilities proportional to exp(D / K), stable for any D.

    Args:
        scores: D of the candidates.
        temperature: K, above 0, in units of D.

    >>> boltzmann(np.array([0.0, np.log(3.0)]), 1.0).round(12).tolist()
    [0.25, 0.75]
    >>> boltzmann(np.array([0.0, 1e6]), 0.1).tolist()
    [0.0, 1.0]
    """
    scaled = scores / temperature
    weights = np.exp(scaled - scaled.max())
    return np.asarray(weights / weights.sum())


def drawn(probabilities: Float64, chance: float) -> int:
    """Return the index at which the cumulated probability passes a uniform number in [0, 1).

    >>> [drawn(np.array([0.25, 0.0, 0.75]), chance) for chance in (0.0, 0.2, 0.25, 0.9)]
    [0, 0, 2, 2]
    """
    cumulated = np.cumsum(probabilities)
    # rounding may leave the sum below 1: a candidate of probability 0 is never drawn
    index = int(np.searchsorted(cumulated, chance * cumulated[-1], side="right"))
    return min(index, int(np.flatnonzero(probabilities)[-1]))


def options(requested: Sequence[Move], proposer: Proposer, count: int) -> list[Option]:
    """Return what the position of each chain may become: the top ``count`` words and those forced.

    Candidates are put in the order of their ids, so that a draw does not depend on which of two
    nearly equally probable words the language model ranks first.
    """
    found = proposer.candidates(
        [each.state for each in requested],
        [each.position for each in requested],
        count,
        [each.forced for each in requested],
    )
    made = []
    for each, candidates in zip(requested, found, strict=True):
        states = tuple(
            (*each.state[: each.position], word, *each.state[each.position + 1 :])
            for word in sorted(candidates.ids.tolist())
        )
        made.append(Option(states, tuple(proposer.texts(states))))
    return made


def distinct(found: Sequence[Option]) -> list[str]:
    """Return the prompts of all options, each once, in order of first sight."""
    return list(dict.fromkeys(text for option in found for text in option.texts))


def moves(
    requested: Sequence[Move],
    found: Sequence[Option],
    score: TriggerScore,
    temperature: float,
    *,
    norm: Norm,
    draw: int,
) -> list[Moved]:
    """Score what chains may become, each prompt once, and let each chain move.

    Args:
        requested: the chains.
        found: their :func:`options`.
        score: D.
        temperature: K.
        norm: by which D counts.
        draw: number of the noises, which all chains share.
    """
    texts = distinct(found)
    values = score(texts, draw=draw).by(norm)
    places = {text: place for place, text in enumerate(texts)}
    made = []
    for each, option in zip(requested, found, strict=True):
        scores = values[[places[text] for text in option.texts]]
        made.append(Moved(option, scores, drawn(boltzmann(scores, temperature), each.chance)))
    return made


def cost(prompts: int, noises: int) -> int:
    """Return the passes of the network that scoring prompts costs, the empty prompt included.

    >>> cost(32, 1)
    33
    """
    return (prompts + 1) * noises


def generator(seed: int, chain: int | str, step: int) -> np.random.Generator:
    """Return the random numbers of one step of one chain: of nothing else do they depend.

    Args:
        seed: of the search.
        chain: its number, or a text that names it.
        step: its number.
    """
    if isinstance(chain, str):
        digest = hashlib.blake2b(chain.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        chain = int.from_bytes(digest, "big")
    return np.random.default_rng([seed, chain, step])


def draw_of(seed: int, step: int, repeat: int = 0) -> int:
    """Return the number of the noises of a step: all chains of a search share them.

    Runs that repeat a search meet others, so that a mean over them is one over noises.

    >>> draw_of(0, 3), draw_of(1, 3) == draw_of(0, 3), draw_of(0, 3, 1) == draw_of(0, 3)
    (3, False, False)
    """
    return (repeat << 128) + (seed << 32) + step
