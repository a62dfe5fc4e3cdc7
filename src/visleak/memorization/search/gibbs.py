"""Algorithms 1 and 2: Gibbs sampling of prompts, from masks and from known triggers.

The target is pi(p) proportional to exp(D(p) / K) over prompts of n word pieces. A move changes one
position i of a chain (equations 7 to 9 of Hong et al. 2024):

    T_i(p -> p') = exp(D(p') / K) / sum over candidates w of exp(D(p with p_i = w) / K)

Chains of one step share one pass of the language model, one call of D and its noises.

Algorithm 1 as printed restarts every outer round from n masks, makes N moves, and ends if the best
of the visited states p^0 ... p^N has D >= kappa. (The printed loop draws p^(N+1), which is never
used.) Algorithm 2 starts a chain of N moves for each position k of a trigger, the first move at k,
the others anywhere; every scored candidate goes to a bank. A chain that has been below kappa for
too many moves in a row is stopped. The printed loop runs k = 0 ... n, one chain more than words,
which begins at a random position, and resets neither the state nor the counter between chains. The
authors' code runs n chains, each from the trigger itself, with a counter of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, Literal

import numpy as np

from visleak.diffusion.model import VERSIONS, DiffusionModel, TokenModel, version_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.driver import (
    BankEntry,
    Candidate,
    Run,
    ScoredCandidate,
    Search,
    SearchResult,
    SearchTask,
    Unit,
    begun,
    check_norm,
    generator,
)
from visleak.memorization.search.proposals import Proposer, Rules, own_banned_words
from visleak.memorization.settings import (
    CODE,
    AugmentSettings,
    GibbsSettings,
    MoveSettings,
    preset_of,
)
from visleak.records import Float64

#: Augmentation runs that move together. It changes no prompt, only how much of a batch is used,
#: and how much a kill may lose.
TOGETHER: Final = 16


@dataclass(frozen=True, slots=True)
class Move:
    """The next move of a chain."""

    state: tuple[int, ...]  #: ids of its prompt
    position: int  #: that changes, from 0
    chance: float  #: uniform in [0, 1), which decides the draw
    forced: tuple[int, ...] = ()  #: ids that have to be among the candidates
    repeat: int = 0  #: number of the run; repeated runs have other noises


@dataclass(frozen=True, slots=True)
class MoveResult:
    """A chain that has moved; candidates are in the order of their ids."""

    states: tuple[tuple[int, ...], ...]  #: the prompts that it could become, as ids
    texts: tuple[str, ...]  #: the same as text
    scores: Float64  #: D of each
    taken: int  #: index of the one that it became

    @property
    def state(self) -> tuple[int, ...]:
        """The ids of the new prompt."""
        return self.states[self.taken]

    @property
    def score(self) -> float:
        """D of the new prompt."""
        return float(self.scores[self.taken])


def boltzmann(scores: Float64, temperature: float) -> Float64:
    """Return probabilities proportional to exp(D / K), stable for any D.

    >>> boltzmann(np.array([0.0, np.log(3.0)]), 1.0).round(12).tolist()
    [0.25, 0.75]
    >>> boltzmann(np.array([0.0, 1e6]), 0.1).tolist()
    [0.0, 1.0]
    """
    scaled = scores / temperature
    weights = np.exp(scaled - scaled.max())
    return np.asarray(weights / weights.sum())


def drawn(probabilities: Float64, chance: float) -> int:
    """Return the index at which the cumulated probability passes a uniform number in [0, 1)."""
    cumulated = np.cumsum(probabilities)
    # rounding may leave the sum below 1: a candidate of probability 0 is never drawn
    index = int(np.searchsorted(cumulated, chance * cumulated[-1], side="right"))
    return min(index, int(np.flatnonzero(probabilities)[-1]))


def draw_of_step(seed: int, step: int, repeat: int = 0) -> int:
    """Return the number of the noises of a step, which all chains of a run share."""
    return (repeat << 128) + (seed << 32) + step


def advance(
    run: Run, proposer: Proposer, moves: Sequence[Move], count: int, temperature: float, step: int
) -> list[MoveResult] | None:
    """Let chains move, each prompt scored once per repeat; ``None`` if the budget does not pay."""
    rows, places = [each.state for each in moves], [each.position for each in moves]
    proposed = proposer.candidates(rows, places, count, [each.forced for each in moves])
    states = [
        # by id, so that a draw does not depend on which of two nearly equally probable words the
        # language model ranks first
        tuple((*row[:at], word, *row[at + 1 :]) for word in sorted(found.ids.tolist()))
        for row, at, found in zip(rows, places, proposed, strict=True)
    ]
    texts = [tuple(proposer.texts(each)) for each in states]
    distinct: dict[int, dict[str, float]] = {}
    for each, own in zip(moves, texts, strict=True):
        distinct.setdefault(each.repeat, {}).update(dict.fromkeys(own, 0.0))
    # the empty prompt is passed once per repeat
    noises = run.task.score.settings.noises
    if not run.affords(noises * sum(len(prompts) + 1 for prompts in distinct.values())):
        return None
    for repeat, prompts in distinct.items():
        distinct[repeat] = run.scores(prompts, draw_of_step(run.task.seed, step, repeat))
    made = []
    for each, options, own in zip(moves, states, texts, strict=True):
        scores = np.array([distinct[each.repeat][text] for text in own])
        taken = drawn(boltzmann(scores, temperature), each.chance)
        made.append(MoveResult(options, own, scores, taken))
    return made


# -- Algorithm 1 ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Walk:
    """The state of a chain of Algorithm 1."""

    state: tuple[int, ...]  #: ids of its prompt
    steps: int = 0  #: taken so far, over all rounds
    ended: bool = False  #: whether it has reached kappa, or has no round left


class GibbsSearch(Search):
    """Algorithm 1, its chains in lockstep.

    Chain k draws its positions and words from (seed, k) alone, and all chains share the
    noises of a step, so that a chain is the same alone and among others (up to rounding).
    """

    name = "gibbs"

    def __init__(self, proposer: Proposer, settings: GibbsSettings | None = None) -> None:
        self.proposer, self.settings = proposer, settings or GibbsSettings()

    def about(self) -> dict[str, object]:
        """Return its settings as plain data: a part of the key of its state."""
        return {**asdict(self.settings), "language_model": self.proposer.about()}

    def bank(self, task: SearchTask) -> int:
        """Return how many prompts are kept."""
        return self.settings.keep

    def search(self, task: SearchTask) -> SearchResult:
        """Search; settings on another scale than D are refused before anything is written."""
        check_norm(self.settings.norm, task.score)
        return super().search(task)

    def units(self, run: Run) -> Iterator[Unit]:
        """Let all chains walk from masks."""
        settings = self.settings
        start = tuple(self.proposer.start(settings.length))
        run.ends_by(1 if settings.kappa is None else settings.rounds)
        walks = [Walk(start)] * run.task.chains
        if run.state is not None:
            walks = [Walk(tuple(state), *rest) for state, *rest in run.state]
        total = len(walks) * settings.iterations if settings.kappa is None else None
        while active := [number for number, walk in enumerate(walks) if not walk.ended]:
            # all active chains have taken equally many steps: chains end, and none begins later
            step = walks[active[0]].steps
            moves = [self._next_move(run.task.seed, chain, walks[chain]) for chain in active]
            how = (settings.candidates, settings.temperature, step)
            made = advance(run, self.proposer, moves, *how)
            if made is None:
                break
            for chain, moved in zip(active, made, strict=True):
                pairs = zip(moved.texts, moved.scores.tolist(), strict=True)
                scored = [Candidate(text, score, chain, step + 1) for text, score in pairs]
                run.add(scored)
                # the paper takes the best of the visited states, the code of all scored candidates
                run.visit(scored[int(moved.scores.argmax()) if settings.code else moved.taken])
                walks[chain] = self._walked(moved.state, step + 1, run.best_of(chain).score, start)
            state = [[list(walk.state), walk.steps, walk.ended] for walk in walks]
            yield Unit(state, sum(walk.steps for walk in walks), total)
        run.complete = all(walk.ended for walk in walks)

    def _next_move(self, seed: int, chain: int, walk: Walk) -> Move:
        rng = generator(seed, chain, walk.steps)
        position = int(rng.integers(len(walk.state)))
        forced = (self.proposer.start(1)[0], walk.state[position]) if self.settings.code else ()
        return Move(walk.state, position, float(rng.random()), forced)

    def _walked(
        self, state: tuple[int, ...], steps: int, best: float, start: tuple[int, ...]
    ) -> Walk:
        """Return the state of a chain after a move, and at the end of a round."""
        settings = self.settings
        if steps % settings.iterations:
            return Walk(state, steps)
        reached = settings.kappa is None or best >= settings.kappa
        if reached or steps // settings.iterations == settings.rounds:
            return Walk(state, steps, ended=True)
        return Walk(start, steps)


# -- Algorithm 2 ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TriggerRun:
    """The state of the chains of one trigger."""

    trigger: int  #: its number
    repeat: int  #: number of the run
    start: tuple[int, ...]  #: ids of the trigger
    state: tuple[int, ...]  #: ids of the prompt
    place: int = 0  #: k, number of the chain
    move: int = 0  #: of the chain, from 0
    below: int = 0  #: c, moves in a row that ended below kappa
    steps: int = 0  #: of the run in all
    ended: bool = False  #: whether all chains have ended


def after_move(
    run: TriggerRun, state: tuple[int, ...], score: float, settings: AugmentSettings
) -> TriggerRun:
    """Return a run after a move: in the same chain, in the next, or at the end."""
    below = run.below + 1 if score < settings.kappa else 0
    run = replace(run, state=state, move=run.move + 1, below=below, steps=run.steps + 1)
    # the paper stops above s moves, the code at s
    if below < settings.patience + (not settings.code) and run.move < settings.iterations:
        return run
    run = replace(run, place=run.place + 1, move=0)
    if settings.code:
        run = replace(run, state=run.start, below=0)
    return replace(run, ended=run.place == len(run.start) + (not settings.code))


def next_move(run: TriggerRun, trigger: str, seed: int, settings: AugmentSettings) -> Move:
    """Return the next move of a run; its random numbers depend on seed, run and step alone."""
    rng = generator(seed, f"{trigger}\0{run.repeat}", run.steps)
    position = int(rng.integers(len(run.state)))
    if run.move == 0 and run.place < len(run.state):
        position = run.place
    chance = float(rng.random())
    forced = (run.start[position], run.state[position]) if settings.code else ()
    return Move(run.state, position, chance, forced, run.repeat)


@dataclass(frozen=True, slots=True)
class Augmentation:
    """What was made of one trigger."""

    trigger: str  #: as it was given
    start: str  #: as the language model reads and writes it: what the chains began with
    unknown: int  #: word pieces that the language model does not know, and that are left out
    scored: int  #: distinct prompts that were scored
    above: int  #: those among them with a mean D of at least kappa
    prompts: tuple[BankEntry, ...]  #: those kept, by mean D, highest first


@dataclass(frozen=True, slots=True)
class AugmentResult:
    """What Algorithm 2 found."""

    about: dict[str, object]  #: its settings, as plain data
    triggers: tuple[Augmentation, ...]  #: one each, in the order they were given
    calls: int  #: passes of the network
    seconds: float  #: of wall time, over all runs
    complete: bool  #: whether all chains ran to their end within the budget


def about_augment(proposer: Proposer, settings: AugmentSettings) -> dict[str, object]:
    """Return settings of Algorithm 2 and of its language model as plain data."""
    return {**asdict(settings), "language_model": proposer.about()}


def augment(
    task: SearchTask,
    proposer: Proposer,
    triggers: Sequence[str],
    settings: AugmentSettings | None = None,
    *,
    bank: Callable[[Iterator[BankEntry]], object] = lambda banked: None,
) -> AugmentResult:
    """Make many prompts of known triggers (Algorithm 2); an interrupted run resumes.

    A run's prompts depend on the seed, its trigger and its number alone, not on other triggers.
    Settings are the paper's for Stable Diffusion 1 by default; the ``chains`` of the task are not
    used. ``bank`` is called with all prompts from the floor on, by mean D, before the state is
    closed.

    Raises:
        UsageError: no trigger, one twice, settings and D on two scales, or a budget that does not
            pay for one step.
        VisleakError: no trigger has a word of the language model's vocabulary.
    """
    settings = settings or AugmentSettings()
    check_norm(settings.norm, task.score)
    if not triggers or len(set(triggers)) != len(triggers):
        raise UsageError("triggers must be one prompt or more, each given once")
    read = [proposer.ids(trigger) for trigger in triggers]
    if not any(ids for ids, _ in read):
        raise VisleakError(
            f"no word of the {len(triggers):,} triggers is in the vocabulary of the language model"
            f" {proposer.name}; give another --lm, or prompts in its language"
        )
    about = about_augment(proposer, settings)
    runs = [
        TriggerRun(number, repeat, tuple(ids), tuple(ids))
        for number, (ids, _) in enumerate(read)
        for repeat in range(settings.repeats)
        if ids
    ]
    with begun("augment", {**about, "triggers": list(triggers)}, task, bank=None) as search:
        complete = _all(search, proposer, triggers, settings, runs)
        ledger = search.ledger
        bank(ledger.by_mean(least=settings.floor))
        made = tuple(
            Augmentation(
                trigger=trigger,
                start=proposer.texts([ids])[0] if ids else "",
                unknown=unknown,
                scored=ledger.count(trigger),
                above=ledger.count(trigger, least=settings.kappa),
                prompts=tuple(ledger.by_mean(trigger, least=settings.floor, count=settings.top)),
            )
            for trigger, (ids, unknown) in zip(triggers, read, strict=True)
        )
        return AugmentResult(about, made, ledger.calls, ledger.seconds, complete)


def _all(
    search: Run,
    proposer: Proposer,
    triggers: Sequence[str],
    settings: AugmentSettings,
    runs: Sequence[TriggerRun],
) -> bool:
    """Take runs through their chains, some together; return whether the budget paid for all."""
    through, kept = search.state or (0, [])
    for start in range(through, len(runs), TOGETHER):
        wave = list(runs[start : start + TOGETHER])
        if start == through and kept:
            wave = [TriggerRun(t, r, tuple(s), tuple(now), *rest) for t, r, s, now, *rest in kept]
        while active := [run for run in wave if not run.ended]:
            # all active runs have moved equally often: runs end, and none of the wave begins later
            step, seed = active[0].steps, search.task.seed
            moves = [next_move(run, triggers[run.trigger], seed, settings) for run in active]
            made = advance(search, proposer, moves, settings.candidates, settings.temperature, step)
            if made is None:
                return False
            for run, moved in zip(active, made, strict=True):
                search.add(_scored(run, moved, triggers[run.trigger]))
                wave[wave.index(run)] = after_move(run, moved.state, moved.score, settings)
            over = all(run.ended for run in wave)
            left = [] if over else [list(asdict(run).values()) for run in wave]
            search.save([start + len(wave) if over else start, left])
            search.report(start + sum(run.ended for run in wave), len(runs))
    return True


def _scored(run: TriggerRun, moved: MoveResult, trigger: str) -> Iterator[ScoredCandidate]:
    """Yield the candidates of a move, with the number of words that differ from the trigger."""
    for state, text, score in zip(moved.states, moved.texts, moved.scores.tolist(), strict=True):
        changed = sum(mine != theirs for mine, theirs in zip(state, run.start, strict=True))
        yield ScoredCandidate(text, score, run.repeat, run.steps + 1, changed, trigger)


#: Where the values of a preset are from.
SOURCES: Final = {
    "paper": "Hong et al. 2024, table 6, SD1",
    "paper-sd2": "Hong et al. 2024, table 6, SD2",
    CODE: "the authors' code",
}


def rules_of(preset: str) -> Rules:
    """Return which proposals a preset takes; our list stands in for the authors' banned words."""
    if preset != CODE:
        return Rules()
    return Rules("Image of a", stop=True, banned=own_banned_words(), banned_name="own")


def timestep_of(settings: MoveSettings) -> Literal["first"] | int:
    """Return the timestep at which a preset measures D; the paper states only "T"."""
    return 999 if settings.code else "first"


def version_of_preset(preset: str) -> str:
    """Return the model whose scale of D a preset's constants are on, see ``version_of``."""
    return "sd2" if preset == "paper-sd2" else "sd1"


#: Settings that are on the scale of D of one model.
CONSTANTS: Final = ("temperature", "kappa", "floor")


def refuse_other_scale(
    model: DiffusionModel, preset: MoveSettings, given: Collection[str] = ()
) -> None:
    """Refuse constants that were chosen for D of another model."""
    version, own = version_of_preset(preset.preset), version_of(model)
    values = {name: getattr(preset, name, None) for name in CONSTANTS if name not in given}
    taken = {name: value for name, value in values.items() if value is not None}
    if own == version or not taken:
        return
    sd2 = " or --preset paper-sd2" * (isinstance(preset, AugmentSettings) and own == "sd2")
    raise UsageError(
        f"--preset {preset.preset} has constants of D of {VERSIONS[version]}"
        f" ({', '.join(f'{name} {value:g}' for name, value in taken.items())}), and D of"
        f" {model.name} is on another scale. Give {' and '.join(f'--{name}' for name in taken)} on"
        f" that of this model{sd2}; visleak memorization detect shows D of ordinary prompts"
    )


def refuse_longer(model: TokenModel, length: int) -> None:
    """Refuse prompts that the model would cut."""
    most = model.most_tokens()
    if length > most:
        raise UsageError(
            f"--length must be at most {most}, the tokens that {model.name} reads of a prompt, got"
            f" {length}. Longer prompts would be cut, and D would be that of their beginning"
        )


def about_preset(
    settings: MoveSettings, rules: Rules, timestep: Literal["first"] | int
) -> dict[str, object]:
    """Return for a result which preset was used, and what of it was changed."""
    preset = settings.preset
    changed = [
        field.name
        for mine, theirs in ((settings, preset_of(settings)), (rules, rules_of(preset)))
        for field in fields(mine)
        if getattr(mine, field.name) != getattr(theirs, field.name)
    ]
    changed += ["timestep"] if timestep != timestep_of(settings) else []
    return {"preset": preset, "preset_source": SOURCES[preset], "changed": changed}
