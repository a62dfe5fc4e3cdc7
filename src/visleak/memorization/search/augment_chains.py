"""The chains of Algorithm 2: where each stands, which move comes next, and when it is over.

The printed loop runs k = 0 ... n, which is n + 1 chains for n words, and resets neither the state
nor the counter between chains. Here ``as-printed`` is taken at its word: the last chain, whose
position does not exist, begins at a random one. The authors' code (``per-position``) runs n chains,
each from the trigger itself, with a counter of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from visleak.memorization.scores import Norm
from visleak.memorization.search import moving
from visleak.memorization.search.checking import (
    refuse_below_one,
    refuse_others,
    refuse_temperature,
)
from visleak.memorization.search.moving import Asked, Moved

Chains = Literal["as-printed", "per-position"]
Stop = Literal["above", "at"]
Forced = Literal["nothing", "words"]


@dataclass(frozen=True, slots=True)
class AugmentSettings:
    """What Algorithm 2 is run with; K, kappa and ``floor`` are on the scale of ``norm``.

    Attributes:
        iterations: N, moves of a chain.
        candidates: Q, the most probable words of the language model for a position.
        temperature: K, in units of D.
        kappa: a move that ends below it counts towards breaking off.
        patience: s, how many such moves in a row are borne.
        stop: break off when the count is ``above`` s (the paper) or ``at`` s (the code).
        chains: ``as-printed``: n + 1, which share state and counter; ``per-position``: n, each from
            the trigger (the code).
        repeats: runs of all this for every trigger, with other random numbers.
        top: T, prompts kept of every trigger, by mean D; ``None`` keeps all (the code).
        floor: prompts with a mean D below are dropped (the code: 5); ``None`` drops none.
        forced: ``words``: the trigger's word and the present one are always among the candidates
            (the code); ``nothing``: the top Q alone (the paper).
        norm: by which D counts.
    """

    iterations: int = 20
    candidates: int = 200
    temperature: float = 1.5
    kappa: float = 3.0
    patience: int = 3
    stop: Stop = "above"
    chains: Chains = "as-printed"
    repeats: int = 1
    top: int | None = 100
    floor: float | None = None
    forced: Forced = "nothing"
    norm: Norm = "squared"

    def __post_init__(self) -> None:
        refuse_below_one(self, "iterations", "candidates", "repeats", "top", "patience")
        refuse_temperature(self.temperature)
        choices = {
            "stop": ("above", "at"),
            "chains": ("as-printed", "per-position"),
            "forced": ("nothing", "words"),
            "norm": ("l2", "squared"),
        }
        refuse_others(self, choices)

    def about(self) -> dict[str, object]:
        """Return the settings as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Run:
    """Where the chains of one trigger stand.

    Attributes:
        trigger: its number.
        repeat: number of the run.
        start: ids of the trigger.
        state: ids of the prompt.
        place: k, number of the chain.
        move: of the chain, from 0.
        below: c, moves in a row that ended below kappa.
        steps: of the run in all.
        ended: whether all chains are through.
    """

    trigger: int
    repeat: int
    start: tuple[int, ...]
    state: tuple[int, ...]
    place: int = 0
    move: int = 0
    below: int = 0
    steps: int = 0
    ended: bool = False

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Run:
        """Return what ``asdict`` made plain."""
        return cls(**{**plain, "start": tuple(plain["start"]), "state": tuple(plain["state"])})


def after_move(run: Run, moved: Moved, settings: AugmentSettings) -> Run:
    """Return where a run stands after a move: in the same chain, in the next, or at the end."""
    below = run.below + 1 if moved.score < settings.kappa else 0
    most = settings.patience + (settings.stop == "above")
    run = replace(run, state=moved.state, move=run.move + 1, below=below, steps=run.steps + 1)
    if below < most and run.move < settings.iterations:
        return run
    printed = settings.chains == "as-printed"
    run = replace(
        run,
        place=run.place + 1,
        move=0,
        state=run.state if printed else run.start,
        below=run.below if printed else 0,
    )
    return replace(run, ended=run.place == len(run.start) + printed)


def asked_of(run: Run, name: str, seed: int, settings: AugmentSettings) -> Asked:
    """Return which move a run makes next; its random numbers depend on seed, name and step alone.

    Args:
        run: where it stands.
        name: that no other run has: the trigger and the number of the repeat.
        seed: of the search.
        settings: of Algorithm 2.
    """
    rng = moving.generator(seed, name, run.steps)
    position = int(rng.integers(len(run.state)))
    if run.move == 0 and run.place < len(run.state):
        position = run.place
    chance = float(rng.random())
    forced = (run.start[position], run.state[position]) if settings.forced == "words" else ()
    return Asked(run.state, position, chance, forced)
