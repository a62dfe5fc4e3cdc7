"""Algorithm 1: random-scan Gibbs sampling of prompts from nothing but masks.

The target is pi(p) proportional to exp(D(p) / K) over prompts of n word pieces (Hong et al. 2024,
section 3.2 and Algorithm 1). As printed, every outer round starts again from n masks, takes N
moves, and ends the search if the best of the visited states p^0 ... p^N has D >= kappa. (The state
p^(N+1) that the printed loop draws last is never looked at; it is not drawn here.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from visleak.errors import UsageError
from visleak.memorization.scores import Norm
from visleak.memorization.search import moving
from visleak.memorization.search.ledger import check_norm
from visleak.memorization.search.moving import Move, Moved
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.running import Run, begun
from visleak.memorization.search.task import (
    Candidate,
    Found,
    SearchTask,
    refuse_below_one,
    refuse_others,
    refuse_temperature,
)

Restart = Literal["masks", "continue"]
Best = Literal["visited", "scored"]
Forced = Literal["nothing", "mask-and-word"]


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
        with begun(self.name, self.about(), task, bank=self.settings.keep) as run:
            walks = self._walks(task, start, run.state)
            while active := [number for number, walk in enumerate(walks) if not walk.ended]:
                if not self._step(run, walks, active):
                    break
            best = [walk.best for walk in walks]
            return run.found(best, _plain(walks), complete=all(walk.ended for walk in walks))

    def _endless(self, task: SearchTask) -> bool:
        settings, budget = self.settings, task.budget
        open_end = settings.kappa is not None and settings.rounds is None
        return open_end and budget.calls is None and budget.seconds is None

    def _walks(self, task: SearchTask, start: tuple[int, ...], state: Any) -> list[Walk]:
        if state is not None:
            return [Walk.of(plain) for plain in state]
        # p^0 is the empty prompt: its D is 0 by definition
        return [Walk(start, 0, Candidate("", 0.0, chain)) for chain in range(task.chains)]

    def _step(self, run: Run, walks: list[Walk], active: Sequence[int]) -> bool:
        """Let every active chain take one step; return whether the budget paid for it."""
        task = run.task
        # all active chains have taken equally many steps: chains end, and none begins later
        step = walks[active[0]].steps
        requested = [self._next_move(task.seed, chain, walks[chain]) for chain in active]
        found = moving.options(requested, self.proposer, self.settings.candidates)
        cost = moving.cost(len(moving.distinct(found)), task.score.settings.noises)
        if not run.affords(cost):
            run.must_have_begun(step, cost)
            return False
        made = moving.moves(
            requested,
            found,
            task.score,
            self.settings.temperature,
            norm=self.settings.norm,
            draw=moving.draw_of(task.seed, step),
        )
        run.calls += cost
        for chain, moved in zip(active, made, strict=True):
            walks[chain] = self._walked(walks[chain], moved)
            run.add(
                Candidate(text, float(score), chain, step + 1)
                for text, score in zip(moved.option.texts, moved.scores, strict=True)
            )
        run.save(_plain(walks), now=True)
        known = self.settings.kappa is None
        total = len(walks) * self.settings.iterations if known else None
        best = max((walk.best for walk in walks), key=lambda each: each.score)
        run.say(sum(walk.steps for walk in walks), total, best)
        return True

    def _next_move(self, seed: int, chain: int, walk: Walk) -> Move:
        rng = moving.generator(seed, chain, walk.steps)
        position = int(rng.integers(len(walk.state)))
        forced: tuple[int, ...] = ()
        if self.settings.forced == "mask-and-word":
            forced = (self.proposer.start(1)[0], walk.state[position])
        return Move(walk.state, position, float(rng.random()), forced)

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


def _plain(walks: Sequence[Walk]) -> list[dict[str, Any]]:
    return [walk.plain() for walk in walks]
