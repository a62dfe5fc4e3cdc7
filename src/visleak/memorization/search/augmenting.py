"""Algorithm 2: many prompts out of a known trigger, by Gibbs sampling that starts from it.

For each position k of the trigger a chain of N moves begins, the first at k, the others anywhere;
every candidate that is scored goes to a bank. A chain that has been below kappa for too many moves
in a row is broken off (Hong et al. 2024, section 3.3 and Algorithm 2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from visleak.errors import UsageError, VisleakError
from visleak.memorization.search import moving
from visleak.memorization.search.augment_chains import (
    AugmentSettings,
    Run,
    after_move,
    asked_of,
)
from visleak.memorization.search.ledger import Banked, Ledger, Scored
from visleak.memorization.search.moving import Asked, Moved
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.resuming import opened
from visleak.memorization.search.spending import Spending, check_norm
from visleak.memorization.search.task import Candidate, Progress, SearchTask

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
        Run(number, repeat, tuple(ids), tuple(ids))
        for number, (ids, _) in enumerate(read)
        for repeat in range(settings.repeats)
        if ids
    ]
    with opened(task, "augment", key) as ledger:
        complete = _all(_Work(task, proposer, triggers, settings, ledger), runs)
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
        raise UsageError("a trigger stands twice among those given; give each once")
    for trigger in triggers:
        try:
            trigger.encode()
        except UnicodeEncodeError as error:
            raise VisleakError(f"trigger {trigger!r} is no Unicode text ({error.reason})") from None


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

    task: SearchTask
    proposer: Proposer
    triggers: Sequence[str]
    settings: AugmentSettings
    ledger: Ledger


def _all(work: _Work, runs: Sequence[Run]) -> bool:
    """Take runs through their chains, some together; return whether the budget paid for all."""
    state = work.ledger.state or {"through": 0, "runs": [], "best": None}
    spending = Spending(work.task, work.ledger)
    for start in range(state["through"], len(runs), TOGETHER):
        wave = list(runs[start : start + TOGETHER])
        if state["through"] == start and state["runs"]:
            wave = [Run.of(plain) for plain in state["runs"]]
        while active := [number for number, run in enumerate(wave) if not run.ended]:
            if not _step(work, wave, active, start, spending, len(runs)):
                return False
    return True


def _step(
    work: _Work,
    wave: list[Run],
    active: Sequence[int],
    through: int,
    spending: Spending,
    count: int,
) -> bool:
    """Let every run of a wave that is not through make a move; return whether it was paid for."""
    began = time.perf_counter()
    task, settings = work.task, work.settings
    # all that move have moved equally often: runs end, and none of the wave begins later
    step = wave[active[0]].steps
    asked = [_ask(work, wave[number]) for number in active]
    found = moving.options(asked, work.proposer, settings.candidates)
    rows: dict[int, list[int]] = {}
    for row, number in enumerate(active):
        rows.setdefault(wave[number].repeat, []).append(row)
    prompts = sum(len(moving.distinct([found[row] for row in own])) for own in rows.values())
    # the empty prompt is passed once more for every further repeat
    if not spending.pays(prompts + len(rows) - 1):
        return False
    before = task.score.calls
    made = _moves(work, asked, found, rows, step)
    scored: list[Scored] = []
    for number, each, moved in zip(active, asked, made, strict=True):
        scored += _scored(wave[number], each, moved, work.triggers)
        wave[number] = after_move(wave[number], moved, settings)
    best = _best(work.ledger.state, scored)
    over = all(run.ended for run in wave)
    state = {
        "through": through + len(wave) if over else through,
        "runs": [] if over else [asdict(run) for run in wave],
        "best": asdict(best) if best else None,
    }
    spent = task.score.calls - before
    work.ledger.save(state, scored, calls=spent, seconds=time.perf_counter() - began)
    if task.say is not None:
        done = through + sum(run.ended for run in wave)
        task.say(Progress(done=done, total=count, calls=work.ledger.calls, best=best))
    return True


def _moves(
    work: _Work,
    asked: Sequence[Asked],
    found: Sequence[moving.Option],
    rows: Mapping[int, Sequence[int]],
    step: int,
) -> list[Moved]:
    """Return the moves of runs; those of one repeat share noises, other repeats have others."""
    made: dict[int, Moved] = {}
    for repeat, own in rows.items():
        moves = moving.moves(
            *([asked[row] for row in own], [found[row] for row in own]),
            *(work.task.score, work.settings.temperature),
            norm=work.settings.norm,
            draw=moving.draw_of(work.task.seed, step, repeat),
        )
        made |= dict(zip(own, moves, strict=True))
    return [made[row] for row in range(len(asked))]


def _ask(work: _Work, run: Run) -> Asked:
    name = f"{work.triggers[run.trigger]}\0{run.repeat}"
    return asked_of(run, name, work.task.seed, work.settings)


def _scored(run: Run, asked: Asked, moved: Moved, triggers: Sequence[str]) -> list[Scored]:
    """Return the candidates of a move, with the number of words that differ from the trigger."""
    place = asked.position
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


def _best(state: Any, scored: Sequence[Scored]) -> Candidate | None:
    """Return the highest D so far."""
    held = Candidate(**state["best"]) if state and state["best"] else None
    top = max(scored, key=lambda each: each.score, default=None)
    if top is None or (held is not None and held.score >= top.score):
        return held
    return Candidate(top.prompt, top.score, top.chain, top.step)
