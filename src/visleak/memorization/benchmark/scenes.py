"""The two scenarios of a benchmark, and its progress over all methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.memorization.benchmark.measuring import Shelf
from visleak.memorization.benchmark.plan import Plan, jobs_of
from visleak.memorization.benchmark.records import GENERAL, TRIGGER
from visleak.memorization.extraction.generating import Job
from visleak.memorization.prompts import Prompts
from visleak.pipeline.workplace import Progress


@dataclass(frozen=True)
class Scene:
    """A scenario: prompts, how many images each, and where the memorized ones are.

    Attributes:
        name: ``trigger`` or ``general``.
        prompts: of it.
        groups: of the prompts, (prompts,): those that share a memorized image.
        seeds: of the images of a prompt.
        shelf: memorized images; ``None`` of ordinary prompts.
    """

    name: str
    prompts: Prompts
    groups: npt.NDArray[np.int64]
    seeds: list[int]
    shelf: Shelf | None

    @property
    def jobs(self) -> list[Job]:
        """Its images, prompt by prompt."""
        return list(jobs_of(self.prompts.texts, self.seeds))

    @property
    def count(self) -> int:
        """How many images it has."""
        return len(self.prompts) * len(self.seeds)


def scenes_of(plan: Plan, shelf: Shelf) -> list[Scene]:
    """Return the scenarios, that of trigger prompts first."""
    own, seeds = plan.groups(shelf.digests), plan.seeds(plan.images)
    scenes = [Scene(TRIGGER, plan.triggers, own, seeds, shelf)]
    if plan.general is not None:
        groups, seeds = plan.general.groups(), plan.seeds(plan.general_images)
        scenes.append(Scene(GENERAL, plan.general, groups, seeds, None))
    return scenes


@dataclass
class Steps:
    """Progress of a step that is taken once a method and scenario, told as one step.

    Attributes:
        name: of the step.
        total: images of all methods.
        progress: told of all of them.
        before: images of the parts that are done.
        here: images of the one under way.
    """

    name: str
    total: int
    progress: Progress
    before: int = 0
    here: int = 0

    def part(self, step: str, done: int, total: int) -> None:
        """Take note of a part's own progress."""
        self.here = done
        self.progress(self.name, self.before + done, self.total)

    def more(self, count: int) -> None:
        """Take note of so many images more."""
        self.part(self.name, self.here + count, self.total)

    def done(self, count: int) -> None:
        """End a part of so many images."""
        self.before, self.here = self.before + count, 0
        self.progress(self.name, self.before, self.total)
