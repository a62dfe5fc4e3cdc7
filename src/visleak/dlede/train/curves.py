"""One curve: the training runs of a plan on a split, in a folder, and their expected cost."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Final

import numpy as np
from scipy.special import stdtrit

from visleak.dlede.draw import Draw, Split, draw_digest, split_digest
from visleak.dlede.draw.draws import Sampler
from visleak.dlede.draw.recipes import clean_splits
from visleak.dlede.judge import check_steps
from visleak.dlede.judge.judge import judge
from visleak.dlede.judge.scores import Scores, deciding_metrics, missing_metrics
from visleak.dlede.results import Calibration, Convergence, Failure, LongerScore
from visleak.dlede.settings import ControlSettings, DecisionSettings, Execution, Forecast, Plan
from visleak.dlede.train import PreparedTrainer, Run, RunFiles, Trainer, scores_of
from visleak.dlede.train.execution import Job, SharedContext, known, train_all
from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError
from visleak.records import Float64

HOPELESS: Final = 3  # with this many failures before any success, the cause is common to all runs


class CurveFailed(VisleakError):
    """Too many training runs of a curve have no result."""


@dataclass(frozen=True)
class Curve:
    """The training runs of a plan on a split."""

    split: Split  # split, plan, trainer: see there
    plan: Plan
    trainer: Trainer
    folder: Path  # of the training runs
    sampler: Sampler  # of the draws
    split_digest: str
    trainer_about: Mapping[str, object]  # its name, and what changes its results

    @classmethod
    def of(cls, split: Split, plan: Plan, trainer: Trainer, folder: Path) -> Curve:
        """Return the curve whose training runs are in a folder."""
        about = {"name": trainer.name, **trainer.about()}
        sampler = Sampler(split, plan)
        return cls(split, plan, trainer, folder, sampler, split_digest(split), about)

    @property
    def epochs(self) -> int | None:
        """Epochs of a training run, ``None`` if neither plan nor trainer states them."""
        stated = self.trainer_about.get("epochs")
        return self.plan.epochs or (stated if isinstance(stated, int) else None)

    def draws(self) -> dict[int, list[Draw]]:
        """Return the draws of each step, one per repetition."""
        jobs = self.jobs
        return {step: [j.draw for j in jobs if j.files.step == step] for step in self.plan.steps}

    def job(self, step: int, repetition: int) -> Job:
        """Return one training run. The trainer's seed is the number of the repetition.

        So all runs of a chain start from the same weights and random numbers.
        """
        draw = self.sampler.at(step, repetition)
        key = {
            "split": self.split_digest,
            "trainer": self.trainer_about,
            "draw": draw_digest(draw),
            "seed": repetition,
            "epochs": self.plan.epochs,
        }
        files = RunFiles(self.folder, step, repetition)
        return Job(files, draw, repetition, self.plan.epochs, digest_of(key))

    @cached_property
    def jobs(self) -> list[Job]:
        """All training runs, chain by chain."""
        return [self.job(step, repetition) for repetition, step in self.plan.runs()]

    def finished(self) -> Iterator[Run]:
        """Yield the training runs on disk; the files are listed once."""
        present = set(self.folder.glob("*/*.json"))
        for repetition, step in self.plan.runs() if present else ():
            there = RunFiles(self.folder, step, repetition).result in present
            if there and (run := known(self.job(step, repetition))):
                yield run


@dataclass(frozen=True)
class TrainedCurve:
    """The results of a curve: runs with a result, failures, and the metrics of the runs."""

    curve: Curve
    runs: tuple[Run, ...]
    failed: tuple[Failure, ...]
    scores: Scores


def train_curve(
    curve: Curve,
    prepared: PreparedTrainer,
    decision: DecisionSettings,
    execution: Execution,
    *,
    partial: bool = False,
) -> TrainedCurve:
    """Carry out the training runs of a curve that are missing."""
    curve.folder.mkdir(parents=True, exist_ok=True)
    lower, jobs = (*curve.trainer.lower, *decision.lower), curve.jobs

    def scores(runs: Sequence[Run]) -> Scores:
        return scores_of(runs, curve.plan.steps, range(1, curve.plan.repetitions + 1), lower)

    runs: list[Run] = []
    failed: list[Failure] = []
    for run, failure in train_all(jobs, SharedContext(prepared, curve.split), execution):
        if run is not None:
            runs.append(run)
            if len(runs) == 1:
                deciding_metrics(scores(runs), decision.metrics)
                if line := missing_metrics(scores(runs), decision.metrics):
                    execution.notify(line)
        if failure is not None:
            failed.append(failure)
            if not runs and len(failed) >= min(HOPELESS, len(jobs)):
                first = failed[0]
                raise CurveFailed(
                    f"the first {len(failed)} training runs failed, each twice; that of step"
                    f" {first.step} %, repetition {first.repetition}: {first.reason}; its log:"
                    f" {first.log}"
                )
    runs, incomplete = _comparable(runs, curve.folder)
    failed = sorted([*failed, *incomplete], key=attrgetter("repetition", "step"))
    runs.sort(key=attrgetter("repetition", "step"))
    for failure in failed:
        execution.notify(failure_line(failure))
    trained, steps = scores(runs), curve.plan.steps[:3]
    if not partial and not trained.complete(steps).any():
        raise CurveFailed(
            f"no repetition has all the steps {', '.join(map(str, steps))} %: {len(failed)} of"
            f" {len(jobs)} training runs failed, the first because {failed[0].reason}; its log:"
            f" {failed[0].log}"
        )
    return TrainedCurve(curve, tuple(runs), tuple(failed), trained)


def failure_line(failure: Failure) -> str:
    """Return a line on a training run that failed."""
    return (
        f"step {failure.step} %, repetition {failure.repetition} failed twice ({failure.reason});"
        f" its log: {failure.log}"
    )


def _comparable(runs: list[Run], folder: Path) -> tuple[list[Run], list[Failure]]:
    """Exclude runs, for repetition, that lack a metric which most have: it would be lost to all."""
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


def forecast_of(curves: Sequence[Curve], prepared: PreparedTrainer, *, jobs: int = 1) -> Forecast:
    """Return the expected cost of the training runs of all curves."""
    first = curves[0]
    found = [run for curve in curves for run in curve.finished()]
    images, tested = len(first.split.train), len(first.split.test)
    each: float | None = None
    if found:
        each = sum(run.seconds for run in found) / len(found)
    elif (estimate := getattr(prepared, "seconds", None)) is not None:
        each = float(estimate(images, first.plan.epochs))
    planned = sum(len(curve.plan.steps) * curve.plan.repetitions for curve in curves)
    return Forecast(planned, len(found), images, tested, bool(found), each, jobs)


# -- control curves --------------------------------------------------------------------------------
#
# The 5 % of the paper were read off one data set. Images of one group (a recording, a patient) leak
# into each other; those of different groups do not, as far as the groups show. So a split by whole
# groups shows the increase of a clean split of the same images, and several show its variation. The
# paper trained 100 epochs at every step, and 500 at most of them once, which moved scores by less
# than .01 (section 8). A failed control is reported, and does not affect the curve.

#: Folders of the training runs on clean splits, of the longer ones, and of files that the runs of
#: a split share, which are removed at the end.
CALIBRATION: Final = "calibration"
LONGER: Final = "longer"
PREPARED: Final = ".prepared"
SEED_DISTANCE: Final = 1_000_003  # distance between the seeds of the clean splits' draws


@dataclass(frozen=True)
class ControlCurves:
    """The control curves."""

    clean: tuple[tuple[Curve, dict[str, int]], ...]  # on clean splits, with the sizes of each
    longer: Curve | None  # of the convergence check, or None

    @property
    def curves(self) -> tuple[Curve, ...]:
        """All of them."""
        longer = () if self.longer is None else (self.longer,)
        return (*(curve for curve, _ in self.clean), *longer)


def control_curves(
    curve: Curve, decision: DecisionSettings, controls: ControlSettings
) -> ControlCurves:
    """Plan the control curves, and refuse settings that would only fail after all training runs."""
    if curve.plan.epochs is not None and not getattr(curve.trainer, "takes_epochs", True):
        raise UsageError(
            "--epochs: the command has no placeholder for it; put {epochs} where it takes them"
        )
    deciding, folder = curve.plan.steps[:3], curve.folder.parent
    check_steps(decision.rule, deciding)
    longer = None
    if controls.convergence:
        # the first chain at its first and last deciding step
        if curve.epochs is None:
            raise UsageError(
                "--check-convergence needs the usual number of epochs, which is not known: give"
                " --epochs N, and {epochs} in the command"
            )
        epochs, steps = curve.epochs * controls.convergence, (deciding[0], deciding[-1])
        plan = replace(curve.plan, steps=steps, repetitions=1, epochs=epochs)
        longer = replace(curve, plan=plan, folder=folder / LONGER)
    clean = []
    if controls.calibrate:
        drawn = clean_splits(curve.split, controls.calibrate, curve.plan.seed)
        for number, (split, sizes) in enumerate(drawn, 1):
            # with one seed all splits would leak the images at the same positions
            seed = curve.plan.seed + number * SEED_DISTANCE
            plan = replace(curve.plan, steps=deciding, seed=seed)
            place = folder / CALIBRATION / f"split-{number:02d}"
            clean.append((Curve.of(split, plan, curve.trainer, place), sizes))
    return ControlCurves(tuple(clean), longer)


def prepared_folder(folder: Path, name: str) -> Path:
    """Return an empty folder for the files that the training runs of a split share."""
    path = folder / PREPARED / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def calibrate(
    curves: ControlCurves,
    decision: DecisionSettings,
    controls: ControlSettings,
    execution: Execution,
) -> tuple[Calibration | None, list[Scores], list[str]]:
    """Train on clean splits of the same images, and derive the threshold.

    It is the lower prediction limit (Student's t; Hahn & Meeker 1991, "Statistical intervals",
    section 4.7) of the largest statistic of each: a split leaks if all are at or below it.
    """
    judgements, sizes, scores = [], [], []
    notes: list[str] = []
    for number, (curve, size) in enumerate(curves.clean, 1):
        execution.notify(
            f"clean split {number} of {controls.calibrate}: {size['test_images']:,} test images of"
            f" {size['test_groups']:,} groups, {size['training_images']:,} training images of"
            f" {size['training_groups']:,} others"
        )
        try:
            folder = prepared_folder(curve.folder.parents[1], "clean")
            prepared = curve.trainer.prepare(curve.split, folder, execution.progress)
            trained = train_curve(curve, prepared, decision, execution)
        except CurveFailed as error:
            notes.append(f"clean split {number} is excluded: {error}")
            continue
        notes += [f"clean split {number}: {failure_line(each)}" for each in trained.failed]
        judgements.append(judge(trained.scores, decision))
        sizes.append(size)
        scores.append(trained.scores)
    if not judgements:
        return None, scores, notes
    groups, alpha = sizes[0]["test_groups"] + sizes[0]["training_groups"], controls.alpha
    found = np.array([[each.statistic.value for each in one.metrics] for one in judgements])
    names = [metric.metric for metric in judgements[0].metrics]
    each = {name: prediction_limit(row, alpha) for name, row in zip(names, found.T, strict=True)}
    threshold = prediction_limit(found.max(axis=1), alpha)
    made = Calibration(groups, tuple(sizes), tuple(judgements), alpha, threshold, each)
    return made, scores, notes


def prediction_limit(values: Float64, alpha: float) -> float:
    """Return what one further value is below with probability alpha; NaN of fewer than two.

    >>> round(prediction_limit(np.array([0.1, 0.12, 0.14]), 0.05), 4)
    0.0526
    """
    count = len(values)
    if count < 2:
        return math.nan
    reach = float(stdtrit(count - 1, 1.0 - alpha)) * math.sqrt(1.0 + 1.0 / count)
    return float(values.mean() - reach * values.std(ddof=1))


def check_convergence(
    curves: ControlCurves,
    usual: TrainedCurve,
    prepared: PreparedTrainer,
    decision: DecisionSettings,
    execution: Execution,
) -> tuple[Convergence | None, list[str]]:
    """Train longer, and compare; ``None`` if it was not requested or has no result."""
    if curves.longer is None:
        return None, []
    try:
        longer = train_curve(curves.longer, prepared, decision, execution, partial=True)
    except CurveFailed as error:
        return None, [f"the convergence check has no result: {error}"]
    rows = []
    shared = [name for name in longer.scores.metrics if name in usual.scores.metrics]
    for column, step in enumerate(longer.scores.steps):
        own = usual.scores.steps.index(step)
        for metric in shared:
            before = float(usual.scores.of(metric)[0, own])
            after = float(longer.scores.of(metric)[0, column])
            if math.isfinite(before + after):
                rows.append(LongerScore(step, metric, before, after, 1))
    epochs = (usual.curve.epochs or 0, curves.longer.plan.epochs or 0)
    notes = [f"longer training: {failure_line(failure)}" for failure in longer.failed]
    return Convergence(epochs, tuple(rows)), notes
