"""Algorithm 1: random-scan Gibbs sampling of prompts from nothing but masks.

The target is pi(p) proportional to exp(D(p) / K) over prompts of n word pieces (Hong et al. 2024,
section 3.2 and Algorithm 1). As printed, every outer round starts again from n masks, takes N
moves, and ends the search if the best of the visited states p^0 ... p^N has D >= kappa. (The state
p^(N+1) that the printed loop draws last is never looked at; it is not drawn here.)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from visleak.errors import UsageError
from visleak.memorization.scores import Norm
from visleak.memorization.search import moving
from visleak.memorization.search.ledger import Banked, Ledger, Scored, Spending, check_norm, opened
from visleak.memorization.search.moving import Asked, Moved
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.task import (
    Candidate,
    Found,
    Progress,
    SearchTask,
    refuse_below_one,
    refuse_others,
    refuse_temperature,
)

Restart = Literal["masks", "continue"]
Best = Literal["visited", "scored"]
Forced = Literal["nothing", "mask-and-word"]

#: The bank is cut down when it has grown to so many times its size.
_SLACK: Final = 2


@dataclass(frozen=True, slots=True)
class GibbsSettings:
    """What Algorithm 1 is run with; K and kappa are on the scale of ``norm``.

    Attributes:
        length: n, word pieces of a prompt.
        iterations: N, moves of an outer round.
        candidates: Q, the most probable words of the language model for a position.
        temperature: K, in units of D.
        kappa: D at which a chain is content; ``None``: one round, whatever it finds (the code).
        rounds: outer rounds at most, our guard against a chain that never gets there; ``None`` is
            no limit, as printed: then the budget ends the search.
        restart: where the next outer round begins: ``masks`` (as printed) or ``continue``, at the
            last state.
        best: p* is the best of the ``visited`` states (the paper), or of all ``scored`` candidates
            (the code).
        forced: ``mask-and-word``: mask and present word are always among the candidates (the
            code), so that prompts may be shorter than n; ``nothing``: the top Q alone (the paper).
        norm: by which D, K and kappa count.
        keep: prompts in the bank, at most.
    """

    length: int = 8
    iterations: int = 150
    candidates: int = 200
    temperature: float = 0.1
    kappa: float | None = 5.0
    rounds: int | None = 10
    restart: Restart = "masks"
    best: Best = "visited"
    forced: Forced = "nothing"
    norm: Norm = "squared"
    keep: int = 1000

    def __post_init__(self) -> None:
        refuse_below_one(self, "length", "iterations", "candidates", "keep")
        if self.rounds is not None and self.rounds < 1:
            raise UsageError(f"rounds is at least 1, or none for no limit; got {self.rounds}")
        refuse_temperature(self.temperature)
        choices = {
            "restart": ("masks", "continue"),
            "best": ("visited", "scored"),
            "forced": ("nothing", "mask-and-word"),
            "norm": ("l2", "squared"),
        }
        refuse_others(self, choices)

    def about(self) -> dict[str, object]:
        """Return the settings as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Walk:
    """Where a chain stands.

    Attributes:
        state: ids of its prompt.
        steps: taken so far, over all rounds.
        best: p* so far.
        ended: whether it is content, or has no round left.
    """

    state: tuple[int, ...]
    steps: int
    best: Candidate
    ended: bool = False

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        best = self.best
        return {
            "state": list(self.state),
            "steps": self.steps,
            "best": [best.prompt, best.score, best.chain, best.step],
            "ended": self.ended,
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Walk:
        """Return what :meth:`plain` made plain."""
        best = Candidate(*plain["best"])
        return cls(tuple(plain["state"]), plain["steps"], best, plain["ended"])


class GibbsSearch:
    """Algorithm 1, its chains in lockstep.

    Chain k draws its positions and words from (seed, k) alone, and all chains meet the same noises
    at the same step, so that a chain walks the same way alone or among others (up to rounding).

    Attributes:
        name: ``gibbs``.
        proposer: the language model.
        settings: of the search.
    """

    name = "gibbs"

    def __init__(self, proposer: Proposer, settings: GibbsSettings | None = None) -> None:
        self.proposer = proposer
        self.settings = settings or GibbsSettings()

    def about(self) -> dict[str, object]:
        """Return its settings as plain data: a part of the key of its state."""
        return {**self.settings.about(), "language_model": self.proposer.about()}

    def search(self, task: SearchTask) -> Found:
        """Search from masks; a search that was stopped goes on where its folder says it was.

        Returns:
            ``best``: p* of each chain. ``bank``: the prompts of highest D among all that were
            scored. ``complete`` is false where the budget ended it.

        Raises:
            UsageError: settings and D are on two scales, there is nothing to end the search, or
                the budget does not pay for one step.
        """
        check_norm(self.settings.norm, task.score)
        if self._endless(task):
            raise UsageError(
                "a search with a kappa and no limit of rounds ends only when every chain gets"
                " there; give rounds, or a budget of calls or seconds"
            )
        start = tuple(self.proposer.start(self.settings.length))
        with opened(task, self.name, self.about()) as ledger:
            walks = self._begun(task, start, ledger)
            spending = Spending(task, ledger)
            while active := [number for number, walk in enumerate(walks) if not walk.ended]:
                if not self._step(task, walks, active, ledger, spending):
                    break
            ledger.keep_best(self.settings.keep)
            return Found(
                method=self.name,
                about=self.about(),
                best=tuple(walk.best for walk in walks),
                bank=tuple(map(candidate_of, ledger.best(self.settings.keep))),
                calls=ledger.calls,
                seconds=ledger.seconds,
                complete=all(walk.ended for walk in walks),
            )

    def _endless(self, task: SearchTask) -> bool:
        settings, budget = self.settings, task.budget
        open_end = settings.kappa is not None and settings.rounds is None
        return open_end and budget.calls is None and budget.seconds is None

    def _begun(self, task: SearchTask, start: tuple[int, ...], ledger: Ledger) -> list[Walk]:
        if ledger.state is not None:
            return [Walk.of(plain) for plain in ledger.state]
        # p^0 is the empty prompt: its D is 0 by definition
        return [Walk(start, 0, Candidate("", 0.0, chain)) for chain in range(task.chains)]

    def _step(
        self,
        task: SearchTask,
        walks: list[Walk],
        active: Sequence[int],
        ledger: Ledger,
        spending: Spending,
    ) -> bool:
        """Let every chain that walks take one step; return whether the budget paid for it."""
        began = time.perf_counter()
        # all that walk have taken equally many: chains end, and none begins later
        step = walks[active[0]].steps
        asked = [self._asked(task.seed, chain, walks[chain]) for chain in active]
        found = moving.options(asked, self.proposer, self.settings.candidates)
        prompts = moving.distinct(found)
        if not spending.pays(len(prompts)):
            return False
        before = task.score.calls
        made = moving.moves(
            asked,
            found,
            task.score,
            self.settings.temperature,
            norm=self.settings.norm,
            draw=moving.draw_of(task.seed, step),
        )
        for chain, moved in zip(active, made, strict=True):
            walks[chain] = self._walked(walks[chain], moved)
        scored = [
            Scored(text, float(score), chain, step + 1)
            for chain, moved in zip(active, made, strict=True)
            for text, score in zip(moved.option.texts, moved.scores, strict=True)
        ]
        ledger.save(
            [walk.plain() for walk in walks],
            scored,
            calls=task.score.calls - before,
            seconds=time.perf_counter() - began,
        )
        if ledger.added > _SLACK * self.settings.keep:
            ledger.keep_best(self.settings.keep)
        self._say(task, walks, ledger)
        return True

    def _asked(self, seed: int, chain: int, walk: Walk) -> Asked:
        rng = moving.generator(seed, chain, walk.steps)
        position = int(rng.integers(len(walk.state)))
        forced: tuple[int, ...] = ()
        if self.settings.forced == "mask-and-word":
            forced = (self.proposer.start(1)[0], walk.state[position])
        return Asked(walk.state, position, float(rng.random()), forced)

    def _walked(self, walk: Walk, moved: Moved) -> Walk:
        """Return where a chain stands after a move, and at the end of a round."""
        settings = self.settings
        steps = walk.steps + 1
        index = moved.taken if settings.best == "visited" else int(moved.scores.argmax())
        best = walk.best
        if moved.scores[index] > best.score:
            found = moved.option.texts[index], float(moved.scores[index])
            best = Candidate(*found, best.chain, steps)
        after = Walk(moved.state, steps, best)
        if steps % settings.iterations:
            return after
        content = settings.kappa is None or best.score >= settings.kappa
        if content or steps // settings.iterations == settings.rounds:
            return replace(after, ended=True)
        if settings.restart == "masks":
            return replace(after, state=tuple(self.proposer.start(settings.length)))
        return after

    def _say(self, task: SearchTask, walks: Sequence[Walk], ledger: Ledger) -> None:
        if task.say is None:
            return
        known = self.settings.kappa is None
        task.say(
            Progress(
                done=sum(walk.steps for walk in walks),
                total=len(walks) * self.settings.iterations if known else None,
                calls=ledger.calls,
                best=max((walk.best for walk in walks), key=lambda each: each.score),
            )
        )


def candidate_of(banked: Banked) -> Candidate:
    """Return a prompt of the bank, with D as it was highest."""
    return Candidate(banked.prompt, banked.best, banked.chain, banked.step)
