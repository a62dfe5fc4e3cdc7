"""The trainings besides those of the curve: on clean splits, and longer ones.

What goes wrong with them is said in the result, and takes nothing from the curve.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from visleak.dlede.asking import Extras, Verdict, Works
from visleak.dlede.calibrating import calibration_of, clean_splits
from visleak.dlede.converging import convergence_of, longer
from visleak.dlede.courses import Course, Trained, TrainingsFailed, carried_out
from visleak.dlede.lesson import Ready
from visleak.dlede.results import Calibration, Convergence, Failure
from visleak.dlede.scores import Scores
from visleak.errors import UsageError

#: Folder of the trainings on clean splits.
CALIBRATION: Final = "calibration"

#: How far apart the seeds of the clean splits' draws are.
APART: Final = 1_000_003

#: Folder of what the trainings of a split share; gone when they are done.
PREPARED: Final = ".prepared"


@dataclass(frozen=True)
class Besides:
    """The trainings besides those of the curve.

    Attributes:
        clean: of clean splits, with the sizes of each.
        longer: of the check of convergence, or ``None``.
    """

    clean: tuple[tuple[Course, dict[str, int]], ...]
    longer: Course | None

    @property
    def courses(self) -> tuple[Course, ...]:
        """All of them."""
        clean = tuple(course for course, _ in self.clean)
        return clean if self.longer is None else (*clean, self.longer)


def besides_of(course: Course, verdict: Verdict, extras: Extras) -> Besides:
    """Lay out what is trained besides; refuse what would only come out after all trainings.

    Raises:
        UsageError: see its message.
    """
    if course.plan.epochs is not None and not getattr(course.trainer, "takes_epochs", True):
        raise UsageError(
            "--epochs: the command is not told how many; put {epochs} where it takes them"
        )
    deciding = course.plan.steps[:3]
    verdict.refuse_few(deciding)
    factor = extras.convergence
    more = longer(course, factor, deciding) if factor else None
    clean = []
    if extras.calibrate:
        drawn = clean_splits(course.split, extras.calibrate, course.plan.seed)
        for number, (split, about) in enumerate(drawn, 1):
            # draws of their own: else all splits would leak the images at the same places
            plan = replace(course.plan, steps=deciding, seed=course.plan.seed + number * APART)
            place = course.folder.parent / CALIBRATION / f"split-{number:02d}"
            clean.append((Course.of(split, plan, course.trainer, place), about))
    return Besides(tuple(clean), more)


def prepared(folder: Path, name: str) -> Path:
    """Return an empty folder for what the trainings of a split share."""
    path = folder / PREPARED / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def trained_by(course: Course, ready: Ready, verdict: Verdict, works: Works) -> Trained:
    """Do the trainings of a course; say which failed.

    Raises:
        UsageError, VisleakError: as :func:`visleak.dlede.courses.carried_out`; or no chain has all
            the steps that decide.
    """
    trained = carried_out(
        course,
        ready,
        jobs=works.jobs,
        engine=works.engine,
        limit=works.limit,
        lower=verdict.lower,
        metrics=verdict.metrics,
        progress=works.progress,
        say=works.say,
    )
    for failure in trained.failed:
        works.say(said(failure))
    return trained


def said(failure: Failure) -> str:
    """Return a line on a training that failed."""
    return (
        f"step {failure.step} %, repetition {failure.repetition} failed twice ({failure.reason});"
        f" its log: {failure.log}"
    )


def refuse_incomplete(trained: Trained) -> None:
    """Refuse a curve of which no chain has all the steps that decide.

    Raises:
        TrainingsFailed: it is such.
    """
    steps = trained.course.plan.steps[:3]
    if trained.scores.complete(steps).any():
        return
    raise TrainingsFailed(
        f"no repetition has all the steps {', '.join(map(str, steps))} %:"
        f" {len(trained.failed)} of {len(trained.course.jobs)} trainings failed, the first for"
        f" {trained.failed[0].reason}; its log: {trained.failed[0].log}"
    )


def calibrated(
    besides: Besides, verdict: Verdict, extras: Extras, works: Works
) -> tuple[Calibration | None, list[Scores], list[str]]:
    """Train on clean splits of the same images, and read the threshold from them.

    Returns:
        The calibration, ``None`` where too few splits came to a result; the scores of each clean
        split; and lines on what failed.
    """
    judgements, sizes, scores = [], [], []
    notes: list[str] = []
    for number, (course, about) in enumerate(besides.clean, 1):
        works.say(
            f"clean split {number} of {extras.calibrate}: {about['test_images']:,} test images of"
            f" {about['test_groups']:,} of the groups, {about['training_images']:,} training images"
            f" of {about['training_groups']:,} others"
        )
        try:
            ready = course.trainer.ready(
                course.split, prepared(course.folder.parents[1], "clean"), works.progress
            )
            trained = trained_by(course, ready, verdict, works)
            refuse_incomplete(trained)
        except TrainingsFailed as error:
            notes.append(f"clean split {number} is left out: {error}")
            continue
        notes += [f"clean split {number}: {said(failure)}" for failure in trained.failed]
        judgements.append(verdict.of(trained.scores))
        sizes.append(about)
        scores.append(trained.scores)
    if not judgements:
        return None, scores, notes
    groups = sizes[0]["test_groups"] + sizes[0]["training_groups"]
    found = calibration_of(judgements, sizes, groups=groups, alpha=extras.alpha)
    return found, scores, notes


def converged(
    besides: Besides, usual: Trained, ready: Ready, verdict: Verdict, works: Works
) -> tuple[Convergence | None, list[str]]:
    """Train longer, and compare; ``None`` where that was not asked for or came to nothing.

    Returns:
        The comparison, and lines on what failed.
    """
    if besides.longer is None:
        return None, []
    try:
        trained = trained_by(besides.longer, ready, verdict, works)
    except TrainingsFailed as error:
        return None, [f"the check of convergence came to no result: {error}"]
    notes = [f"longer training: {said(failure)}" for failure in trained.failed]
    return convergence_of(usual, trained), notes
