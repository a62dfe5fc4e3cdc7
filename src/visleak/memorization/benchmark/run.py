"""The floor of a judge: how similar images are to memorized ones that they do not reproduce.

A benchmark of mitigations: make the images, measure them, write what was found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from visleak.memorization.benchmark.document import SHEET, content, files, worst_sheet
from visleak.memorization.benchmark.measuring import MEASURES, Measuring, MemorizedImages
from visleak.memorization.benchmark.plan import Plan, Scene, Steps, listed, referred, scenes_of
from visleak.memorization.benchmark.records import (
    GENERAL,
    SCORES,
    TRIGGER,
    Benchmark,
    Distance,
    Floor,
)
from visleak.memorization.benchmark.statistics import Entry, Measured, bounded, curves_of, rows_of
from visleak.memorization.extraction.images import (
    ImageStore,
    Job,
    Maker,
    Stored,
    calls_of,
    images_of,
    key_of,
)
from visleak.memorization.intervals import group_interval
from visleak.memorization.metrics.copying import copying
from visleak.pipeline.context import Progress, silent
from visleak.storage import KeyValueStore, RunFolder

if TYPE_CHECKING:
    from visleak.memorization.mitigate import Mitigation


Int64 = npt.NDArray[np.int64]

#: Prompts whose images are compared, at most: more tell little more.
MOST: Final = 200


def shuffled(groups: Int64, known: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of prompts of different groups: one with images, one with memorized ones.

    Returns at most :data:`MOST` pairs, each first prompt once; empty where all are of one group.

    >>> sorted(shuffled(np.array([0, 1]), [0, 1]))
    [(0, 1), (1, 0)]
    """
    draw = np.random.default_rng([len(groups), 1])
    rows = np.asarray(known, np.int64)
    found = []
    for row in draw.permutation(rows)[:MOST].tolist():
        # a group is drawn first, so that no large one stands for all
        others = np.unique(groups[rows][groups[rows] != groups[row]])
        if len(others):
            inside = rows[groups[rows] == draw.choice(others)]
            found.append((row, int(draw.choice(inside))))
    return found


def floor_of(
    scenes: Sequence[Scene], base: Mapping[str, Measured], measuring: Measuring
) -> Floor | None:
    """Return the similarities of unmitigated images to memorized images of other prompts.

    Of the trigger prompts, each compared with the memorized images of a prompt of another group;
    where all are of one group, of the general prompts.
    """
    trigger = scenes[0]
    memorized = trigger.memorized
    if memorized is None:
        return None
    known = [row for row, own in enumerate(memorized.digests) if own]
    pairs, scene = shuffled(trigger.groups, known), trigger
    if not pairs and known and len(scenes) > 1:
        scene = scenes[1]
        draw = np.random.default_rng([len(scene.prompts), 2])
        rows = draw.permutation(len(scene.prompts))[:MOST].tolist()
        pairs = [(row, int(draw.choice(known))) for row in rows]
    if not pairs:
        return None
    made = base[scene.name].digests
    digests = [digest for row, _ in pairs for digest in made[row]]
    similarity = measuring.similarity(digests, len(scene.seeds), memorized, [at for _, at in pairs])
    found = copying(similarity.reshape(len(pairs), -1))
    groups = scene.groups[[row for row, _ in pairs]]
    least, most = measuring.judges.least, SCORES["top1"].most
    return Floor(
        source=GENERAL if scene.name == GENERAL else TRIGGER,
        images=len(digests),
        top1=bounded(group_interval(found.top1, groups), least, most),
        top3=bounded(group_interval(found.top3, groups), least, most),
        share=bounded(group_interval(found.share, groups), 0.0, 1.0),
    )


KIND: Final = "visleak memorization benchmark"

#: Names of the steps.
MAKING: Final = "making images"
MEASURING: Final = "measuring images"
FLOOR: Final = "measuring the floor of the similarity"
COUNTING: Final = "intervals and tests"


def benchmark(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress = silent,
    say: Callable[[str], object] = lambda line: None,
) -> Benchmark:
    """Measure what mitigations do to the images of a model, and what they cost.

    Every image and every measurement is kept in the folder under all that it depends on: a run
    that was stopped continues and ends with the same table, another judge makes no image again, and
    another method only its own. A finished result of the same request is returned as it is.

    Args:
        plan: model, prompts, methods, and by what images are judged.
        out: folder of the result; see :class:`Benchmark` for what is written.
        force: write over another result in the folder; its images and measurements stay.
        progress: called for images made and measured, over all methods.
        say: called with what the run will cost, and what is found on the way.

    Raises:
        UsageError: a method does not fit the model, or the folder holds another result.
        VisleakError: the model fails, an image cannot be read, or the disk refuses.

    Source: Hong et al. 2024, "MemBench", sections 5 to 7 and appendices D and F.
    """
    folder = RunFolder(out, KIND)
    path = folder.path
    memorized = MemorizedImages(plan.references.files)
    key = plan.key(memorized.digests)
    found = folder.reused(
        Benchmark, key, force=force, keeps="and keeps its images and measurements", folder=path
    )
    # with another wish for the sheet of images all files are written again
    if found is not None and (path / SHEET).is_file() == plan.sheet:
        say(f"{path} holds this benchmark, finished")
        return found
    with (
        folder.claimed(),
        ImageStore(path) as images,
        KeyValueStore(path / MEASURES, "numbers") as values,
    ):
        return _Run(plan, folder, memorized, progress, say).finished(images, values, key)


def read_benchmark(folder: str | os.PathLike[str]) -> Benchmark:
    """Return the benchmark that a folder holds."""
    return RunFolder(folder, KIND).read(Benchmark, folder=Path(folder))


@dataclass(frozen=True)
class _Run:
    plan: Plan
    folder: RunFolder
    memorized: MemorizedImages
    progress: Progress
    say: Callable[[str], object]

    def finished(self, images: ImageStore, values: KeyValueStore, key: str) -> Benchmark:
        """Make, measure, count, write, and return the result."""
        plan, scenes = self.plan, scenes_of(self.plan, self.memorized)
        makers = self._makers(scenes)
        self._announce(scenes)
        made = self._made(images, scenes, makers)
        entries = self._measured(images, values, scenes, made)
        self.progress(COUNTING, 0, 0)
        floor = self._floor(images, values, scenes, entries[0])
        groups = {scene.name: scene.groups for scene in scenes}
        result = Benchmark(
            folder=self.folder.path,
            about={**plan.about(), "references": key_of(*map(sorted, self.memorized.digests))},
            triggers=listed(
                plan.triggers, groups[TRIGGER], plan.settings.images, plan.references.known
            ),
            general=None
            if plan.general is None
            else listed(plan.general, groups[GENERAL], plan.settings.general_images, 0),
            rows=rows_of(entries, groups, plan.judges.least),
            curves=curves_of(entries, groups[TRIGGER]),
            reference=referred(plan, self.memorized, self.progress),
            notes=self._notes(),
            key=key,
            floor=floor,
        )
        written = files(
            result,
            entries,
            {scene.name: scene.prompts.texts for scene in scenes},
            {scene.name: scene.seeds for scene in scenes},
            worst_sheet(result.rows, entries, images) if plan.sheet else b"",
        )
        self.folder.finish(content(self.folder, result), written)
        self.progress(COUNTING, 1, 1)
        return result

    def _makers(self, scenes: Sequence[Scene]) -> dict[tuple[int, str], Maker]:
        """Return what makes the images of every method; what cannot be is refused before any is."""
        return {
            (number, scene.name): mitigation.prepared(self.plan.model, scene.seeds)
            for number, mitigation in enumerate(self.plan.mitigations)
            for scene in scenes
        }

    def _announce(self, scenes: Sequence[Scene]) -> None:
        total = sum(scene.count for scene in scenes) * len(self.plan.mitigations)
        calls = calls_of(total, self.plan.settings.sampling)
        self.say(
            f"{len(self.plan.mitigations):,} methods and settings: {total:,} images,"
            f" {calls:,} passes of the network and those of the methods themselves; what is"
            f" in {self.folder.path} already is not made again"
        )

    def _made(
        self,
        images: ImageStore,
        scenes: Sequence[Scene],
        makers: Mapping[tuple[int, str], Maker],
    ) -> dict[tuple[int, str], list[Stored]]:
        plan = self.plan
        total = sum(scene.count for scene in scenes) * len(plan.mitigations)
        steps = Steps(MAKING, total, self.progress)
        made = {}
        for at, maker in makers.items():
            (scene,) = (each for each in scenes if each.name == at[1])
            made[at] = images_of(
                images,
                plan.model,
                scene.jobs,
                plan.settings.sampling,
                maker=maker,
                progress=steps.part,
            )
            steps.done(scene.count)
        return made

    def _measured(
        self,
        images: ImageStore,
        values: KeyValueStore,
        scenes: Sequence[Scene],
        made: Mapping[tuple[int, str], list[Stored]],
    ) -> list[Entry]:
        plan = self.plan
        judges = (plan.judges.alignment, plan.judges.aesthetic)
        many = sum(each is not None for each in judges)
        counts = {each.name: each.count * (many + (each.memorized is not None)) for each in scenes}
        steps = Steps(MEASURING, sum(counts.values()) * len(plan.mitigations), self.progress)
        measuring = Measuring(images, values, plan.judges, steps.more)
        entries = []
        for number, mitigation in enumerate(plan.mitigations):
            measured: dict[str, Measured] = {}
            for scene in scenes:
                own = made[(number, scene.name)]
                texts = [self._text(mitigation, job) for job in scene.jobs]
                measured[scene.name] = measuring.measured(
                    own, texts, len(scene.prompts), scene.memorized
                )
                steps.done(counts[scene.name])
            distance = self._distance(images, values, made[(number, TRIGGER)], scenes[0])
            entries.append(
                Entry(
                    method=mitigation.name,
                    setting=mitigation.setting,
                    strength=mitigation.strength,
                    about=dict(mitigation.about()),
                    measured=measured,
                    distance=distance,
                )
            )
        return entries

    def _floor(
        self, images: ImageStore, values: KeyValueStore, scenes: Sequence[Scene], base: Entry
    ) -> Floor | None:
        """Return what the judge says of images that are not memorized."""
        total = min(MOST, max(len(scene.prompts) for scene in scenes)) * len(scenes[0].seeds)
        steps = Steps(FLOOR, total, self.progress)
        measuring = Measuring(images, values, self.plan.judges, steps.more)
        return floor_of(scenes, base.measured, measuring)

    def _text(self, mitigation: Mitigation, job: Job) -> str:
        if self.plan.settings.clip_text == "original":
            return job.prompt
        return mitigation.prompt_of(job, self.plan.model)

    def _distance(
        self, images: ImageStore, values: KeyValueStore, made: Sequence[Stored], scene: Scene
    ) -> Distance | None:
        real = self.plan.judges.real
        if real is None:
            return None
        groups = np.repeat(scene.groups, len(scene.seeds))
        digests = [each.digest for each in made]
        return real.distance(digests, groups, images.pixels, values, self.folder.path)

    def _notes(self) -> tuple[str, ...]:
        plan = self.plan
        general = () if plan.general is None else plan.general.notes
        return (*plan.skipped, *plan.triggers.notes, *general, *plan.references.notes)
