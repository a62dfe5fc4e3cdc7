"""What a benchmark is asked for: a model, prompts, methods, and by what images are judged.

The scenarios of a benchmark, its progress over all methods, and the reference performance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError, VisleakError
from visleak.memorization.benchmark.measuring import Judges, MemorizedImages
from visleak.memorization.benchmark.records import (
    GENERAL,
    NONE,
    SCORES,
    TRIGGER,
    Listed,
    ReferencePoint,
)
from visleak.memorization.benchmark.references import References
from visleak.memorization.benchmark.statistics import bounded
from visleak.memorization.extraction.images import Job, key_of, seeds_of
from visleak.memorization.intervals import effective_groups, group_interval
from visleak.memorization.metrics.copying import reference_performance
from visleak.memorization.model import DiffusionModel, about_model
from visleak.memorization.prompt_files.selection import kept
from visleak.memorization.prompts import Prompts
from visleak.memorization.settings import BenchmarkSettings
from visleak.pipeline.context import Progress

if TYPE_CHECKING:
    from visleak.memorization.mitigate import Mitigation


@dataclass(frozen=True)
class Plan:
    """A benchmark of mitigations."""

    model: DiffusionModel  #: whose images are made
    triggers: Prompts  #: prompts that replay training images
    references: References  #: the memorized images of each
    #: the methods with their settings; none is put first where it is missing
    mitigations: tuple[Mitigation, ...]
    judges: Judges  #: by what images are judged
    general: Prompts | None = None  #: ordinary prompts; ``None`` leaves that scenario out
    #: images, and what is made of them
    settings: BenchmarkSettings = field(default_factory=BenchmarkSettings)
    #: methods that the model cannot have, with the reason, a line each
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.references.files) != len(self.triggers):
            raise UsageError("references are of other prompts than the trigger prompts")
        names = [(each.name, each.setting) for each in self.mitigations]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"method {' '.join(twice).strip()} is given twice; give it once")
        if not self.mitigations or self.mitigations[0].name != NONE:
            raise UsageError("the first method is none, which all others are compared with")

    def seeds(self, scenario_images: int) -> list[int]:
        """Return the seeds of a prompt's images: the same for all prompts and methods."""
        return seeds_of(self.settings.seed, scenario_images)

    @property
    def sheet(self) -> bool:
        """Whether the worst images by aesthetic score are to be drawn."""
        return self.settings.sheets and self.judges.aesthetic is not None

    def groups(self, references: Sequence[Sequence[str]] = ()) -> npt.NDArray[np.int64]:
        """Return the group of each trigger prompt: those that share a memorized image."""
        if not references:
            return self.triggers.groups()
        named = self.triggers.sources or ((),) * len(self.triggers)
        both = tuple((*own, *held) for own, held in zip(named, references, strict=True))
        return replace(self.triggers, sources=both).groups()

    def about(self) -> dict[str, Any]:
        """Return all but prompts and methods, as plain data."""
        judges, settings = self.judges, self.settings
        return {
            "model": about_model(self.model),
            "sampling": {
                "steps": settings.sampling.steps,
                "guidance": float(settings.sampling.guidance),
            },
            "seed": settings.seed,
            "similarity": {
                "name": judges.similarity.name,
                "number": judges.similarity.number,
                "digest": judges.similarity_digest,
            },
            "alignment": _about(judges.alignment),
            "aesthetic": _about(judges.aesthetic),
            "real": None if judges.real is None else judges.real.about(),
            "clip_text": settings.clip_text,
            "deviation": settings.deviation,
        }

    def key(self, references: Sequence[Sequence[str]]) -> str:
        """Return the digest of everything the result depends on; the device is not part of it."""
        about = self.about()
        about["model"] = [self.model.digest, self.model.precision]
        # by digests alone: a judge whose files were moved is the same
        for judge in ("similarity", "alignment", "aesthetic", "real"):
            about[judge] = about[judge] and about[judge]["digest"]
        asked = None
        if self.judges.source is not None:
            told = dict(self.judges.source.about())
            asked = [told.get("digest", [self.judges.source.name, told]), self.settings.count]
        methods = [[each.name, each.setting, each.about()] for each in self.mitigations]
        lists = [
            [list(self.triggers.texts), self.groups(references).tolist(), self.settings.images],
            None
            if self.general is None
            else [list(self.general.texts), self.settings.general_images],
        ]
        files = [list(own) for own in references]
        return key_of("benchmark", 1, about, methods, lists, files, asked)


def _about(judge: Any) -> dict[str, str] | None:
    return None if judge is None else {"name": judge.name, "digest": judge.digest}


def sampled(prompts: Prompts, most: int | None, seed: int) -> Prompts:
    """Return at most this many prompts, drawn by the seed, in the order of the list.

    >>> sampled(Prompts(("a", "b", "c", "d")), 2, 0).texts == sampled(Prompts(("a", "b", "c", "d")),
    ...     2, 0).texts
    True
    """
    if most is None or most >= len(prompts):
        return prompts
    if most < 1:
        raise UsageError(f"a sample has at least 1 prompt; got {most}")
    rows = sorted(np.random.default_rng([seed, most]).permutation(len(prompts))[:most].tolist())
    note = f"{most:,} of {len(prompts):,} prompts, drawn by seed {seed}"
    return replace(kept(prompts, rows), notes=(*prompts.notes, note))


@dataclass(frozen=True)
class Scene:
    """A scenario: prompts, how many images each, and where the memorized ones are."""

    name: str  #: ``trigger`` or ``general``
    prompts: Prompts
    groups: npt.NDArray[np.int64]  #: of the prompts, (prompts,): those that share a memorized image
    seeds: list[int]  #: of the images of a prompt
    memorized: MemorizedImages | None  #: memorized images; ``None`` of ordinary prompts

    @property
    def jobs(self) -> list[Job]:
        """Its images, prompt by prompt."""
        return [Job(prompt, seed) for prompt in self.prompts.texts for seed in self.seeds]

    @property
    def count(self) -> int:
        """How many images it has."""
        return len(self.prompts) * len(self.seeds)


def listed(scene: Scene, referenced: int) -> Listed:
    """Return what is told of a list of prompts."""
    prompts, sizes = scene.prompts, np.bincount(scene.groups)
    return Listed(
        origin=prompts.origin,
        prompts=len(prompts),
        groups=len(sizes),
        effective=effective_groups(sizes),
        images=len(scene.seeds),
        referenced=referenced,
        digest=key_of("prompts", list(prompts.texts)),
    )


def scenes_of(plan: Plan, memorized: MemorizedImages) -> list[Scene]:
    """Return the scenarios, that of trigger prompts first."""
    own, seeds = plan.groups(memorized.digests), plan.seeds(plan.settings.images)
    scenes = [Scene(TRIGGER, plan.triggers, own, seeds, memorized)]
    if plan.general is not None:
        groups, seeds = plan.general.groups(), plan.seeds(plan.settings.general_images)
        scenes.append(Scene(GENERAL, plan.general, groups, seeds, None))
    return scenes


@dataclass
class Steps:
    """Progress of a step that is taken once per method and scenario, told as one step."""

    name: str  #: of the step
    total: int  #: images of all methods
    progress: Progress  #: called for all of them
    before: int = 0  #: images of the parts that are done
    here: int = 0  #: images of the one under way

    def part(self, step: str, done: int, total: int) -> None:
        """Take note of a part's own progress."""
        self.here = done
        self.progress(self.name, self.before + done, self.total)

    def more(self, count: int) -> None:
        """Take note of this many images more."""
        self.part(self.name, self.here + count, self.total)

    def done(self, count: int) -> None:
        """End a part of this many images."""
        self.before, self.here = self.before + count, 0
        self.progress(self.name, self.before, self.total)


def referred(plan: Plan, memorized: MemorizedImages, progress: Progress) -> ReferencePoint | None:
    """Return the reference performance; ``None`` where no search was named.

    Prompts whose memorized images are not at hand, and prompts for which nothing was found, are
    left out of both numbers.
    """
    source, alignment = plan.judges.source, plan.judges.alignment
    if source is None or alignment is None:
        return None
    found = reference_performance(
        source,
        plan.triggers.texts,
        memorized.pixels,
        alignment,
        plan.judges.similarity,
        plan.settings.count,
        progress=progress,
    )
    known = np.isfinite(found.similarity) & np.isfinite(found.clip)
    if not known.any():
        raise VisleakError(
            f"{source.name} has no image for any trigger prompt with its memorized images at"
            " hand; leave --reference-source out, or name another"
        )
    groups, clip = plan.groups(memorized.digests)[known], SCORES["clip"]
    similarity = group_interval(found.similarity[known], groups)
    return ReferencePoint(
        source=source.name,
        count=plan.settings.count,
        similarity=bounded(similarity, plan.judges.least, SCORES["top1"].most),
        clip=bounded(group_interval(found.clip[known], groups), clip.least, clip.most),
        about=dict(source.about()),
    )
