"""What the trainings of a plan will cost, before they are begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from visleak.dlede.courses import Course
from visleak.dlede.lesson import Ready
from visleak.dlede.running import known
from visleak.dlede.runs import Place, Run


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many trainings there are, and how long they will take.

    Attributes:
        trainings: that the plan asks for, those of a calibration and of a check of convergence
            included.
        done: of them on disk already.
        images: that one training learns from.
        tested: that one training is evaluated on.
        measured: the seconds of a training come from those on disk; else the trainer tells.
        seconds_a_training: mean; ``None`` where nobody knows before the first one has ended.
        jobs: trainings at a time.
    """

    trainings: int
    done: int
    images: int
    tested: int
    measured: bool
    seconds_a_training: float | None
    jobs: int = 1

    @property
    def seconds(self) -> float | None:
        """Wall time of what is left, ``None`` if nobody knows."""
        if self.seconds_a_training is None:
            return None
        left = self.trainings - self.done
        # the last round may be a part of one
        rounds = -(-left // self.jobs)
        return rounds * self.seconds_a_training

    def as_dict(self) -> dict[str, Any]:
        """Return the forecast for JSON."""
        return {
            "trainings": self.trainings,
            "done": self.done,
            "training_images": self.images,
            "test_images": self.tested,
            "measured": self.measured,
            "seconds_a_training": self.seconds_a_training,
            "jobs": self.jobs,
            "seconds": self.seconds,
        }


def forecast_of(courses: Sequence[Course], ready: Ready, *, jobs: int = 1) -> Forecast:
    """Return what the trainings of all courses will cost.

    Args:
        courses: the trainings; the first course is that of the curve.
        ready: the trainer, which has seen its split; asked where no training is on disk yet, if
            it has a method ``seconds(images, epochs)``.
        jobs: trainings at a time.
    """
    first = courses[0]
    found = [run for course in courses for run in _done(course)]
    images = len(first.split.train)
    each: float | None = None
    if found:
        each = sum(run.seconds for run in found) / len(found)
    elif (told := getattr(ready, "seconds", None)) is not None:
        each = float(told(images, first.plan.epochs))
    return Forecast(
        sum(len(course.plan.steps) * course.plan.repetitions for course in courses),
        len(found),
        images,
        len(first.split.test),
        bool(found),
        each,
        jobs,
    )


def _done(course: Course) -> Iterator[Run]:
    """Yield the trainings of a course that are on disk; the files are listed once."""
    there = set(course.folder.glob("*/*.json"))
    for repetition, step in course.plan.runs() if there else ():
        if Place(course.folder, step, repetition).result in there:
            run = known(course.job(step, repetition))
            if run is not None:
                yield run
