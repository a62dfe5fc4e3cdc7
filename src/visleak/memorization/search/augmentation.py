"""Algorithm 2: many prompts from a known trigger, by Gibbs sampling that starts from it.

For each position k of the trigger a chain of N moves begins, the first at k, the others anywhere;
every scored candidate goes to a bank. A chain that has been below kappa for too many moves in a row
is stopped (Hong et al. 2024, section 3.3 and Algorithm 2).

The printed loop runs k = 0 ... n, which is n + 1 chains for n words, and resets neither the state
nor the counter between chains. ``as-printed`` follows it: the last chain, whose position does not
exist, begins at a random one. The authors' code (``per-position``) runs n chains, each from the
trigger itself, with a counter of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from visleak.errors import UsageError, VisleakError
from visleak.memorization.scores import Norm
from visleak.memorization.search import moving
from visleak.memorization.search.ledger import Banked, Ledger, Scored, check_norm
from visleak.memorization.search.moving import Move, Moved
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.running import Run, begun
from visleak.memorization.search.task import (
    SearchTask,
    refuse_below_one,
    refuse_others,
    refuse_temperature,
)

Chains = Literal["as-printed", "per-position"]
Stop = Literal["above", "at"]
ForcedWords = Literal["nothing", "words"]


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
    forced: ForcedWords = "nothing"
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
class TriggerRun:
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
    def of(cls, plain: dict[str, Any]) -> TriggerRun:
        """Return what ``asdict`` made plain."""
        return cls(**{**plain, "start": tuple(plain["start"]), "state": tuple(plain["state"])})


def after_move(run: TriggerRun, moved: Moved, settings: AugmentSettings) -> TriggerRun:
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


def next_move(run: TriggerRun, name: str, seed: int, settings: AugmentSettings) -> Move:
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
    return Move(run.state, position, chance, forced)


#: Runs that move together. It changes no prompt, only how much of a batch is used, and how much a
#: kill may lose.
TOGETHER: Final = 16


@dataclass(frozen=True, slots=True)
class Augmentation:
    """What became of one trigger.

    Attributes:
        trigger: as it was given.
        start: as the language model reads and writes it: what the chains began with.
        unknown: word pieces that the language model does not know, and that are left out.
        scored: distinct prompts that were scored.
        above: those among them with a mean D of at least kappa.
        prompts: those kept, by mean D, highest first.
    """

    trigger: str
    start: str
    unknown: int
    scored: int
    above: int
    prompts: tuple[Banked, ...]


@dataclass(frozen=True, slots=True)
class Augmented:
    """What Algorithm 2 found.

    Attributes:
        about: its settings, as plain data.
        triggers: one each, in the order they were given.
        calls: passes of the network.
        seconds: of wall time, over all runs.
        complete: whether all chains ran to their end within the budget.
    """

    about: dict[str, object]
    triggers: tuple[Augmentation, ...]
    calls: int
    seconds: float
    complete: bool


def augment(
    task: SearchTask,
    proposer: Proposer,
    triggers: Sequence[str],
    settings: AugmentSettings | None = None,
    *,
    bank: Callable[[Iterator[Banked]], object] | None = None,
) -> Augmented:
    """Multiply known triggers (Algorithm 2); what was stopped goes on where its folder says.

    A run's prompts depend on the seed, its trigger and its number alone, not on other triggers.

    Args:
        task: D, seed, budget and folder; its ``chains`` are not used.
        proposer: the language model.
        triggers: the prompts to begin with, each once.
        settings: of the algorithm; the paper's for Stable Diffusion 1 by default.
        bank: given all prompts that were scored (without those below the floor), by mean D, before
            the state is closed.

    Raises:
        UsageError: no trigger, one twice, settings and D on two scales, or a budget that does not
            pay for one step.
        VisleakError: no trigger has a word that the language model knows.
    """
    settings = settings or AugmentSettings()
    check_norm(settings.norm, task.score)
    _refuse(triggers)
    read = [proposer.ids(trigger) for trigger in triggers]
    if not any(ids for ids, _ in read):
        raise VisleakError(
            f"the language model {proposer.name} knows no word of the {len(triggers):,} triggers;"
            " give another --lm, or prompts in its language"
        )
    about = about_augment(proposer, settings)
    key = {**about, "triggers": list(triggers)}
    runs = [
        TriggerRun(number, repeat, tuple(ids), tuple(ids))
        for number, (ids, _) in enumerate(read)
        for repeat in range(settings.repeats)
        if ids
    ]
    with begun("augment", key, task, bank=None) as search:
        complete = _all(_Work(search, proposer, triggers, settings), runs)
        ledger = search.ledger
        if bank is not None:
            bank(ledger.by_mean(least=settings.floor))
        return Augmented(
            about=about,
            triggers=tuple(
                _told(trigger, ids, unknown, proposer, settings, ledger)
                for trigger, (ids, unknown) in zip(triggers, read, strict=True)
            ),
            calls=ledger.calls,
            seconds=ledger.seconds,
            complete=complete,
        )


def about_augment(proposer: Proposer, settings: AugmentSettings) -> dict[str, object]:
    """Return settings of Algorithm 2 and of its language model as plain data."""
    return {**settings.about(), "language_model": proposer.about()}


def _refuse(triggers: Sequence[str]) -> None:
    if not triggers:
        raise UsageError("no trigger to begin with: give at least one prompt")
    if len(set(triggers)) != len(triggers):
        raise UsageError("a trigger is given twice; give each once")
    for trigger in triggers:
        try:
            trigger.encode()
        except UnicodeEncodeError as error:
            raise VisleakError(
                f"trigger {trigger!r} is not Unicode text ({error.reason})"
            ) from None


def _told(
    trigger: str,
    ids: list[int],
    unknown: int,
    proposer: Proposer,
    settings: AugmentSettings,
    ledger: Ledger,
) -> Augmentation:
    kept = ledger.by_mean(trigger, least=settings.floor, count=settings.top)
    return Augmentation(
        trigger=trigger,
        start=proposer.texts([ids])[0] if ids else "",
        unknown=unknown,
        scored=ledger.count(trigger),
        above=ledger.count(trigger, least=settings.kappa),
        prompts=tuple(kept),
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """What all steps of an augmentation need."""

    search: Run
    proposer: Proposer
    triggers: Sequence[str]
    settings: AugmentSettings


def _all(work: _Work, runs: Sequence[TriggerRun]) -> bool:
    """Take runs through their chains, some together; return whether the budget paid for all."""
    state = work.search.state or {"through": 0, "runs": []}
    for start in range(state["through"], len(runs), TOGETHER):
        wave = list(runs[start : start + TOGETHER])
        if state["through"] == start and state["runs"]:
            wave = [TriggerRun.of(plain) for plain in state["runs"]]
        while active := [number for number, run in enumerate(wave) if not run.ended]:
            if not _step(work, wave, active, start, len(runs)):
                return False
    return True


def _step(
    work: _Work,
    wave: list[TriggerRun],
    active: Sequence[int],
    through: int,
    count: int,
) -> bool:
    """Let every active run of a wave make a move; return whether the budget paid for it."""
    search, settings = work.search, work.settings
    # all active runs have moved equally often: runs end, and none of the wave begins later
    step = wave[active[0]].steps
    requested = [_next_move(work, wave[number]) for number in active]
    found = moving.options(requested, work.proposer, settings.candidates)
    rows: dict[int, list[int]] = {}
    for row, number in enumerate(active):
        rows.setdefault(wave[number].repeat, []).append(row)
    prompts = sum(len(moving.distinct([found[row] for row in own])) for own in rows.values())
    # the empty prompt is passed once more for every further repeat
    cost = moving.cost(prompts + len(rows) - 1, search.task.score.settings.noises)
    if not search.affords(cost):
        search.must_have_begun(search.calls, cost)
        return False
    made = _moves(work, requested, found, rows, step)
    search.calls += cost
    for number, each, moved in zip(active, requested, made, strict=True):
        search.add(_scored(wave[number], each, moved, work.triggers))
        wave[number] = after_move(wave[number], moved, settings)
    over = all(run.ended for run in wave)
    state = {
        "through": through + len(wave) if over else through,
        "runs": [] if over else [asdict(run) for run in wave],
    }
    search.save(state, now=True)
    search.say(through + sum(run.ended for run in wave), count)
    return True


def _moves(
    work: _Work,
    requested: Sequence[Move],
    found: Sequence[moving.Option],
    rows: Mapping[int, Sequence[int]],
    step: int,
) -> list[Moved]:
    """Return the moves of runs; those of one repeat share noises, other repeats have others."""
    made: dict[int, Moved] = {}
    for repeat, own in rows.items():
        moves = moving.moves(
            *([requested[row] for row in own], [found[row] for row in own]),
            *(work.search.task.score, work.settings.temperature),
            norm=work.settings.norm,
            draw=moving.draw_of(work.search.task.seed, step, repeat),
        )
        made |= dict(zip(own, moves, strict=True))
    return [made[row] for row in range(len(requested))]


def _next_move(work: _Work, run: TriggerRun) -> Move:
    name = f"{work.triggers[run.trigger]}\0{run.repeat}"
    return next_move(run, name, work.search.task.seed, work.settings)


def _scored(run: TriggerRun, move: Move, moved: Moved, triggers: Sequence[str]) -> list[Scored]:
    """Return the candidates of a move, with the number of words that differ from the trigger."""
    place = move.position
    others = sum(
        mine != theirs
        for number, (mine, theirs) in enumerate(zip(run.state, run.start, strict=True))
        if number != place
    )
    trigger = triggers[run.trigger]
    return [
        Scored(
            *(text, float(score), run.repeat, run.steps + 1),
            changed=others + (state[place] != run.start[place]),
            source=trigger,
        )
        for state, text, score in zip(
            moved.option.states, moved.option.texts, moved.scores, strict=True
        )
    ]
