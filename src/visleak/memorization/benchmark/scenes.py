"""The scenarios of a benchmark, its progress over all methods, and the reference performance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.memorization.benchmark.columns import SCORES
from visleak.memorization.benchmark.measuring import MemorizedImages
from visleak.memorization.benchmark.paired import bounded
from visleak.memorization.benchmark.plan import Plan, jobs_of
from visleak.memorization.benchmark.records import GENERAL, TRIGGER, ReferencePoint
from visleak.memorization.extraction.generating import Job
from visleak.memorization.intervals import group_interval
from visleak.memorization.metrics.retrieval import reference_performance
from visleak.memorization.prompts import Prompts
from visleak.pipeline.workplace import Progress
from visleak.records import Bytes8


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
    shelf: MemorizedImages | None

    @property
    def jobs(self) -> list[Job]:
        """Its images, prompt by prompt."""
        return list(jobs_of(self.prompts.texts, self.seeds))

    @property
    def count(self) -> int:
        """How many images it has."""
        return len(self.prompts) * len(self.seeds)


def scenes_of(plan: Plan, shelf: MemorizedImages) -> list[Scene]:
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


def referred(plan: Plan, shelf: MemorizedImages, progress: Progress) -> ReferencePoint | None:
    """Return the reference performance; ``None`` where no search was named.

    Prompts whose memorized images are not at hand, and prompts for which nothing was found, are
    left out of both numbers.

    Raises:
        VisleakError: nothing was found for any prompt.
    """
    source, alignment = plan.judges.source, plan.judges.alignment
    if source is None or alignment is None:
        return None
    found = reference_performance(
        source,
        plan.triggers.texts,
        _Pictures(shelf),
        alignment,
        plan.judges.similarity,
        plan.choices.asked,
        progress=progress,
    )
    known = np.isfinite(found.similarity) & np.isfinite(found.clip)
    if not known.any():
        raise VisleakError(
            f"{source.name} has no picture for any trigger prompt with its memorized images at"
            " hand; leave --reference-source out, or name another"
        )
    groups, clip = plan.groups(shelf.digests)[known], SCORES["clip"]
    similarity = group_interval(found.similarity[known], groups)
    return ReferencePoint(
        source=source.name,
        count=plan.choices.asked,
        similarity=bounded(similarity, plan.judges.least, SCORES["top1"].most),
        clip=bounded(group_interval(found.clip[known], groups), clip.least, clip.most),
        about=dict(source.about()),
    )


class _Pictures(Sequence[Sequence[Bytes8]]):
    """The memorized images of prompts, each read when it is asked for."""

    def __init__(self, shelf: MemorizedImages) -> None:
        self._shelf = shelf

    def __len__(self) -> int:
        return len(self._shelf.digests)

    @overload
    def __getitem__(self, at: int) -> Sequence[Bytes8]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Sequence[Bytes8]]: ...

    def __getitem__(self, at: int | slice) -> Sequence[Bytes8] | Sequence[Sequence[Bytes8]]:
        if isinstance(at, slice):
            return [self._shelf.pictures(row) for row in range(*at.indices(len(self)))]
        return self._shelf.pictures(range(len(self))[at])
