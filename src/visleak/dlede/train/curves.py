"""One curve: the training runs of a plan on a split, in a folder, and their expected cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from visleak.dlede.draw.draws import Sampler
from visleak.dlede.draw.split import Draw, Split, draw_digest, split_digest
from visleak.dlede.judge.scores import Scores, deciding_metrics, missing_metrics
from visleak.dlede.results import Failure
from visleak.dlede.settings import DecisionSettings, Execution, Forecast, Plan
from visleak.dlede.train.execution import Job, SharedContext, known, train_all
from visleak.dlede.train.runs import Run, RunFiles, scores_of
from visleak.dlede.train.trainer import PreparedTrainer, Trainer
from visleak.documents import digest_of
from visleak.errors import VisleakError

#: With this many failures before any success, the cause is common to all runs.
HOPELESS: Final = 3


class CurveFailed(VisleakError):
    """Too many training runs of a curve have no result."""


@dataclass(frozen=True)
class Curve:
    """The training runs of a plan on a split.

    Attributes:
        split, plan, trainer: see there.
        folder: of the training runs.
        sampler: of the draws.
        about: digest of the split and what changes the trainer's results: part of every key.
    """

    split: Split
    plan: Plan
    trainer: Trainer
    folder: Path
    sampler: Sampler
    about: Mapping[str, Any]

    @classmethod
    def of(cls, split: Split, plan: Plan, trainer: Trainer, folder: Path) -> Curve:
        """Return the curve whose training runs are in a folder.

        Raises:
            UsageError: the split is too small for the plan.
        """
        about = {
            "split": split_digest(split),
            "trainer": {"name": trainer.name, **trainer.about()},
        }
        return cls(split, plan, trainer, folder, Sampler(split, plan), about)

    @property
    def epochs(self) -> int | None:
        """Epochs of a training run, ``None`` if neither plan nor trainer states them."""
        if self.plan.epochs is not None:
            return self.plan.epochs
        stated = self.about["trainer"].get("epochs")
        return stated if isinstance(stated, int) else None

    def draws(self) -> dict[int, list[Draw]]:
        """Return the draws of each step, one per repetition."""
        found: dict[int, list[Draw]] = {step: [] for step in self.plan.steps}
        for job in self.jobs:
            found[job.files.step].append(job.draw)
        return found

    def job(self, step: int, repetition: int) -> Job:
        """Return one training run. The trainer's seed is the number of the repetition.

        So all runs of a chain start from the same weights and random numbers.
        """
        draw = self.sampler.at(step, repetition)
        own = {"draw": draw_digest(draw), "seed": repetition, "epochs": self.plan.epochs}
        files = RunFiles(self.folder, step, repetition)
        key = digest_of({**self.about, **own})
        return Job(files, draw, repetition, self.plan.epochs, key)

    @cached_property
    def jobs(self) -> list[Job]:
        """All training runs, chain by chain."""
        return [self.job(step, repetition) for repetition, step in self.plan.runs()]

    def finished(self) -> Iterator[Run]:
        """Yield the training runs on disk; the files are listed once."""
        present = set(self.folder.glob("*/*.json"))
        for repetition, step in self.plan.runs() if present else ():
            if RunFiles(self.folder, step, repetition).result in present:
                run = known(self.job(step, repetition))
                if run is not None:
                    yield run


@dataclass(frozen=True)
class TrainedCurve:
    """The results of a curve: runs with a result, failures, and the metrics of the runs."""

    curve: Curve
    runs: tuple[Run, ...]
    failed: tuple[Failure, ...]
    scores: Scores

    @property
    def seconds(self) -> float:
        """Of all training runs, summed."""
        return sum(run.seconds for run in self.runs)


def train_curve(
    curve: Curve,
    prepared: PreparedTrainer,
    decision: DecisionSettings,
    execution: Execution,
    *,
    partial: bool = False,
) -> TrainedCurve:
    """Carry out the training runs of a curve that are missing.

    Args:
        curve, prepared, decision, execution: see there.
        partial: accept a curve in which no chain has all deciding steps.

    Raises:
        UsageError: a metric that is to decide is missing; the first run shows which there are.
        CurveFailed: no training run has a result, or no chain has all deciding steps.
        VisleakError: the disk refuses.
    """
    curve.folder.mkdir(parents=True, exist_ok=True)
    lower = (*curve.trainer.lower, *decision.lower)

    def scores(runs: Sequence[Run]) -> Scores:
        return scores_of(runs, curve.plan.steps, range(1, curve.plan.repetitions + 1), lower)

    runs: list[Run] = []
    failed: list[Failure] = []
    for run, failure in train_all(curve.jobs, SharedContext(prepared, curve.split), execution):
        if run is not None:
            runs.append(run)
            if len(runs) == 1:
                deciding_metrics(scores(runs), decision.metrics)
                if line := missing_metrics(scores(runs), decision.metrics):
                    execution.notify(line)
        if failure is not None:
            failed.append(failure)
            _refuse_hopeless(runs, failed, len(curve.jobs))
    runs, incomplete = _comparable(runs, curve.folder)
    failed = sorted([*failed, *incomplete], key=lambda each: (each.repetition, each.step))
    runs.sort(key=lambda each: (each.repetition, each.step))
    for failure in failed:
        execution.notify(failure_line(failure))
    trained = TrainedCurve(curve, tuple(runs), tuple(failed), scores(runs))
    if not partial:
        _refuse_incomplete(trained)
    return trained


def failure_line(failure: Failure) -> str:
    """Return a line on a training run that failed."""
    return (
        f"step {failure.step} %, repetition {failure.repetition} failed twice ({failure.reason});"
        f" its log: {failure.log}"
    )


def _comparable(runs: list[Run], folder: Path) -> tuple[list[Run], list[Failure]]:
    """Exclude runs that lack a metric which most have; they are repeated next time.

    Otherwise one of them would remove the metric from all, and the others would decide.
    """
    counts = Counter(name for run in runs for name in run.metrics)
    usual = [name for name, count in counts.items() if 2 * count > len(runs)]
    kept, failed = [], []
    for run in runs:
        missing = [name for name in usual if name not in run.metrics]
        if not missing:
            kept.append(run)
            continue
        files = RunFiles(folder, run.step, run.repetition)
        files.result.unlink(missing_ok=True)
        reason = f"it has no {', '.join(missing)}, which the others have"
        failed.append(Failure(run.step, run.repetition, reason, str(files.log)))
    return kept, failed


def _refuse_hopeless(runs: Sequence[Run], failed: Sequence[Failure], planned: int) -> None:
    """Stop if every training run fails."""
    if runs or len(failed) < min(HOPELESS, planned):
        return
    first = failed[0]
    raise CurveFailed(
        f"the first {len(failed)} training runs failed, each twice; that of step {first.step} %,"
        f" repetition {first.repetition}: {first.reason}; its log: {first.log}"
    )


def _refuse_incomplete(trained: TrainedCurve) -> None:
    """Refuse a curve in which no chain has all deciding steps."""
    steps = trained.curve.plan.steps[:3]
    if not trained.scores.complete(steps).any():
        first = trained.failed[0]
        raise CurveFailed(
            f"no repetition has all the steps {', '.join(map(str, steps))} %:"
            f" {len(trained.failed)} of {len(trained.curve.jobs)} training runs failed, the first"
            f" because {first.reason}; its log: {first.log}"
        )


def forecast_of(curves: Sequence[Curve], prepared: PreparedTrainer, *, jobs: int = 1) -> Forecast:
    """Return the expected cost of the training runs of all curves.

    Args:
        curves: the first is that under test.
        prepared: the trainer; its method ``seconds(images, epochs)``, if it has one, is used while
            no training run is on disk.
        jobs: concurrent training runs.
    """
    first = curves[0]
    found = [run for curve in curves for run in curve.finished()]
    images = len(first.split.train)
    each: float | None = None
    if found:
        each = sum(run.seconds for run in found) / len(found)
    elif (estimate := getattr(prepared, "seconds", None)) is not None:
        each = float(estimate(images, first.plan.epochs))
    planned = sum(len(curve.plan.steps) * curve.plan.repetitions for curve in curves)
    tested = len(first.split.test)
    return Forecast(planned, len(found), images, tested, bool(found), each, jobs)
