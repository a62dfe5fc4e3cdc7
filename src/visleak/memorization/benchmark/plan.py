"""What a benchmark is asked for: a model, prompts, methods, and by what images are judged.

The scenarios of a benchmark, its progress over all methods, and the reference performance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError, VisleakError
from visleak.memorization.benchmark.measuring import Judges, MemorizedImages
from visleak.memorization.benchmark.records import (
    DEVIATIONS,
    GENERAL,
    NONE,
    SCORES,
    TRIGGER,
    Listed,
    ReferencePoint,
)
from visleak.memorization.benchmark.references import References
from visleak.memorization.benchmark.statistics import bounded
from visleak.memorization.extraction.images import Job, key_of, refuse_sampling, seeds_of
from visleak.memorization.intervals import group_interval
from visleak.memorization.metrics.copying import reference_performance
from visleak.memorization.model import DiffusionModel, Sampling
from visleak.memorization.prompt_files.selection import kept
from visleak.memorization.prompts import Prompts
from visleak.pipeline.context import Progress
from visleak.records import Bytes8

if TYPE_CHECKING:
    from visleak.memorization.mitigate import Mitigation


#: What the text is that an image's CLIP score is against: the prompt as it was given, or as the
#: network was given it, with what RNA and RTA put in (the authors' code).
TEXTS: Final = ("original", "augmented")

#: Images that a search for a prompt is asked for (Hong et al. 2024, appendix D).
ASKED: Final = 100


@dataclass(frozen=True)
class Choices:
    """What is made of the images, where several ways are open.

    Attributes:
        clip_text: one of :data:`TEXTS`.
        deviation: which deviation of the aesthetic score the tables show, of
            :data:`visleak.memorization.benchmark.records.DEVIATIONS`; all are in ``benchmark.csv``.
        asked: images a search for a prompt is asked for.
        pictures: draw the sheet of the worst images.
    """

    clip_text: str = "original"
    deviation: str = "images"
    asked: int = ASKED
    pictures: bool = True

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("clip text", self.clip_text, TEXTS),
            ("deviation", self.deviation, DEVIATIONS),
        ):
            if value not in allowed:
                raise UsageError(f"{name} is one of {', '.join(allowed)}; got {value!r}")
        if self.asked < 1:
            raise UsageError(f"a search returns at least 1 image (paper: 100); got {self.asked}")


@dataclass(frozen=True)
class Plan:
    """A benchmark of mitigations.

    Attributes:
        model: whose images are made.
        triggers: prompts that replay training images.
        references: the memorized images of each.
        mitigations: the methods with their settings; none is put first where it is missing.
        judges: by what images are judged.
        general: ordinary prompts; ``None`` leaves that scenario out.
        images: a trigger prompt.
        general_images: an ordinary prompt.
        sampling: steps, guidance, images per batch.
        seed: of the noises, which all prompts and methods share.
        choices: where several ways are open.
        skipped: methods that the model cannot have, with the reason, a line each.
    """

    model: DiffusionModel
    triggers: Prompts
    references: References
    mitigations: tuple[Mitigation, ...]
    judges: Judges
    general: Prompts | None = None
    images: int = 10
    general_images: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    choices: Choices = field(default_factory=Choices)
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_sampling(self.sampling)
        for name in ("images", "general_images"):
            if not 1 <= getattr(self, name) <= 100_000:
                raise UsageError(
                    f"{name.replace('_', ' ')} is 1 to 100,000 a prompt; got {getattr(self, name)}"
                )
        if self.seed < 0:
            raise UsageError(f"seed is 0 or more; got {self.seed}")
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
        return seeds_of(self.seed, scenario_images)

    @property
    def sheet(self) -> bool:
        """Whether the worst images by aesthetic score are to be drawn."""
        return self.choices.pictures and self.judges.aesthetic is not None

    def groups(self, references: Sequence[Sequence[str]] = ()) -> npt.NDArray[np.int64]:
        """Return the group of each trigger prompt: those that share a memorized image.

        Args:
            references: digests of the memorized images, by trigger prompt. Those of prompts that
                name no source, and one image under several addresses, are known by them alone.
        """
        if not references:
            return self.triggers.groups()
        named = self.triggers.sources or ((),) * len(self.triggers)
        both = tuple((*own, *held) for own, held in zip(named, references, strict=True))
        return replace(self.triggers, sources=both).groups()

    def about(self) -> dict[str, Any]:
        """Return all but prompts and methods, as plain data."""
        judges = self.judges
        known = {
            "name": self.model.name,
            "digest": self.model.digest,
            "precision": self.model.precision,
        }
        return {
            "model": {**self.model.about(), **known},
            "sampling": {
                "steps": self.sampling.steps,
                "guidance": float(self.sampling.guidance),
            },
            "seed": self.seed,
            "similarity": {
                "name": judges.similarity.name,
                "number": judges.similarity.number,
                "digest": judges.similarity_digest,
            },
            "alignment": _about(judges.alignment),
            "aesthetic": _about(judges.aesthetic),
            "real": None if judges.real is None else judges.real.about(),
            "clip_text": self.choices.clip_text,
            "deviation": self.choices.deviation,
        }

    def key(self, references: Sequence[Sequence[str]]) -> str:
        """Return the digest of everything the result depends on; the device is not part of it.

        Args:
            references: digests of the memorized images, by trigger prompt.
        """
        about = self.about()
        about["model"] = [self.model.digest, self.model.precision]
        # by digests alone: a judge whose files were moved is the same
        for judge in ("similarity", "alignment", "aesthetic", "real"):
            about[judge] = about[judge] and about[judge]["digest"]
        asked = None
        if self.judges.source is not None:
            told = dict(self.judges.source.about())
            asked = [told.get("digest", [self.judges.source.name, told]), self.choices.asked]
        methods = [[each.name, each.setting, each.about()] for each in self.mitigations]
        lists = [
            [list(self.triggers.texts), self.groups(references).tolist(), self.images],
            None if self.general is None else [list(self.general.texts), self.general_images],
        ]
        files = [list(own) for own in references]
        return key_of("benchmark", 1, about, methods, lists, files, asked)


def _about(judge: Any) -> dict[str, str] | None:
    return None if judge is None else {"name": judge.name, "digest": judge.digest}


def with_none(mitigations: Sequence[Mitigation], none: Mitigation) -> tuple[Mitigation, ...]:
    """Return methods with none in front, once."""
    return (none, *(each for each in mitigations if each.name != NONE))


def jobs_of(prompts: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Yield the images of prompts, prompt by prompt."""
    for prompt in prompts:
        for seed in seeds:
            yield Job(prompt, seed)


def listed(prompts: Prompts, groups: npt.NDArray[np.int64], images: int, referenced: int) -> Listed:
    """Return what is told of a list of prompts."""
    sizes = np.bincount(groups).astype(np.float64)
    return Listed(
        origin=prompts.origin,
        prompts=len(prompts),
        groups=len(sizes),
        effective=float(sizes.sum() ** 2 / (sizes**2).sum()),
        images=images,
        referenced=referenced,
        digest=key_of("prompts", list(prompts.texts)),
    )


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
    """Progress of a step that is taken once per method and scenario, told as one step.

    Attributes:
        name: of the step.
        total: images of all methods.
        progress: called for all of them.
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
        """Take note of this many images more."""
        self.part(self.name, self.here + count, self.total)

    def done(self, count: int) -> None:
        """End a part of this many images."""
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
