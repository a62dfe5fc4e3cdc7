"""One curve: the trainings of a plan on a split, in a folder, whatever the curve is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from visleak.dlede.deciding import deciding_metrics, lacking
from visleak.dlede.draws import Drawing
from visleak.dlede.keys import draw_digest, split_digest
from visleak.dlede.lesson import Draw, Ready, Split, Trainer
from visleak.dlede.plan import Plan
from visleak.dlede.results import Failure
from visleak.dlede.running import Common, Job, train_all
from visleak.dlede.runs import Place, Run, scores_of
from visleak.dlede.scores import Scores
from visleak.documents import digest_of
from visleak.errors import VisleakError
from visleak.pipeline.workplace import Engine, Progress

#: So many failures before any success end the run: what is wrong is wrong with all.
HOPELESS: Final = 3


class TrainingsFailed(VisleakError):
    """Too many trainings of a course came to no result."""


@dataclass(frozen=True)
class Course:
    """The trainings of a plan on a split.

    Attributes:
        split, plan: see there.
        trainer: that is asked.
        folder: where the trainings lie.
        drawing: makes the draws.
        about: digests of the split and what changes the trainer's results: part of every key.
    """

    split: Split
    plan: Plan
    trainer: Trainer
    folder: Path
    drawing: Drawing
    about: Mapping[str, Any]

    @classmethod
    def of(cls, split: Split, plan: Plan, trainer: Trainer, folder: Path) -> Course:
        """Return the course whose trainings lie in a folder.

        Raises:
            UsageError: the split is too small for the plan.
        """
        about = {
            "split": split_digest(split),
            "trainer": {"name": trainer.name, **trainer.about()},
        }
        return cls(split, plan, trainer, folder, Drawing(split, plan), about)

    def draws(self) -> dict[int, list[Draw]]:
        """Return the draws of each step, one a repetition."""
        found: dict[int, list[Draw]] = {step: [] for step in self.plan.steps}
        for job in self.jobs:
            found[job.place.step].append(job.draw)
        return found

    def job(self, step: int, repetition: int) -> Job:
        """Return one training. Its trainer's seed is the number of the repetition.

        So all trainings of a chain begin with the same weights and the same random numbers.
        """
        draw = self.drawing.at(step, repetition)
        key = digest_of(
            {
                **self.about,
                "draw": draw_digest(draw),
                "seed": repetition,
                "epochs": self.plan.epochs,
            }
        )
        place = Place(self.folder, step, repetition)
        return Job(place, draw, repetition, self.plan.epochs, key)

    @cached_property
    def jobs(self) -> list[Job]:
        """Return all trainings, chain by chain."""
        return [self.job(step, repetition) for repetition, step in self.plan.runs()]


@dataclass(frozen=True)
class Trained:
    """What the trainings of a course came to.

    Attributes:
        course: the course.
        runs: those that came to a result.
        failed: those that failed twice.
        scores: the metrics of the runs.
    """

    course: Course
    runs: tuple[Run, ...]
    failed: tuple[Failure, ...]
    scores: Scores

    @property
    def seconds(self) -> float:
        """All trainings together, one after the other."""
        return sum(run.seconds for run in self.runs)


def carried_out(
    course: Course,
    ready: Ready,
    *,
    jobs: int,
    engine: Engine | None,
    limit: float | None,
    lower: Sequence[str] = (),
    metrics: Sequence[str] = (),
    progress: Progress,
    say: Callable[[str], None] = lambda text: None,
) -> Trained:
    """Do the trainings of a course that are missing.

    Args:
        course: the course.
        ready: the trainer, which has seen the split.
        jobs, engine, limit, progress: as :func:`visleak.dlede.running.train_all`.
        lower: metrics of which less is better.
        metrics: that must be there; the first training tells.
        say: is told if one of the paper's is not.

    Raises:
        UsageError: a metric is not there.
        VisleakError: no training came to a result, or the disk refuses.
    """
    course.folder.mkdir(parents=True, exist_ok=True)
    numbers = range(1, course.plan.repetitions + 1)
    less = (*course.trainer.lower, *lower)
    runs, failed = [], []
    for finished in train_all(
        course.jobs,
        Common(ready, course.split),
        at_once=jobs,
        engine=engine,
        limit=limit,
        progress=progress,
    ):
        if finished.run is not None:
            runs.append(finished.run)
            if len(runs) == 1:
                first = scores_of(runs, course.plan.steps, numbers, less)
                deciding_metrics(first, metrics)
                if line := lacking(first, metrics):
                    say(line)
        if finished.failure is not None:
            failed.append(finished.failure)
            _refuse_hopeless(runs, failed, len(course.jobs))
    runs, torn = _alike(runs, course.folder)
    failed += torn
    ordered = sorted(runs, key=lambda run: (run.repetition, run.step))
    failed.sort(key=lambda failure: (failure.repetition, failure.step))
    scores = scores_of(ordered, course.plan.steps, numbers, less)
    return Trained(course, tuple(ordered), tuple(failed), scores)


def _alike(runs: list[Run], folder: Path) -> tuple[list[Run], list[Failure]]:
    """Take out trainings that lack a metric which most have; they are made again next time.

    Else one of them would take the metric from all, and the verdict would rest on the others.
    """
    counts = Counter(name for run in runs for name in run.outcome.metrics)
    usual = [name for name, count in counts.items() if 2 * count > len(runs)]
    kept, failed = [], []
    for run in runs:
        missing = [name for name in usual if name not in run.outcome.metrics]
        if not missing:
            kept.append(run)
            continue
        place = Place(folder, run.step, run.repetition)
        place.result.unlink(missing_ok=True)
        reason = f"it has no {', '.join(missing)}, which the others have"
        failed.append(Failure(run.step, run.repetition, reason, str(place.log)))
    return kept, failed


def _refuse_hopeless(runs: Sequence[Run], failed: Sequence[Failure], asked: int) -> None:
    """Stop where every training fails.

    Raises:
        TrainingsFailed: none came to a result, and enough were tried.
    """
    if runs or len(failed) < min(HOPELESS, asked):
        return
    first = failed[0]
    raise TrainingsFailed(
        f"the first {len(failed)} trainings failed, each twice; that of step {first.step} %,"
        f" repetition {first.repetition}: {first.reason}; its log: {first.log}"
    )
