"""A benchmark of mitigations: make the images, measure them, write what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from visleak.documents import digest_of
from visleak.memorization.benchmark.document import SHEET, files, headline, verdicts, worst_sheet
from visleak.memorization.benchmark.plan import (
    MEASURES,
    Measurer,
    MemorizedImages,
    Plan,
    Scene,
    Steps,
    referred,
    scenes_of,
    summary_of,
)
from visleak.memorization.benchmark.results import (
    SCORES,
    TRIGGER,
    Benchmark,
    Entry,
    Floor,
    Measurements,
    curves_of,
    rows_of,
)
from visleak.memorization.extraction.images import (
    ImageStore,
    Maker,
    StoredImage,
    calls_of,
    images_of,
)
from visleak.memorization.metrics import copying
from visleak.progress import Progress, silent
from visleak.records import Int64
from visleak.stats.group_intervals import bounded, group_interval
from visleak.storage import KeyValueStore, RunFolder

#: Prompts whose images are compared, at most: more tell little more.
MOST: Final = 200


def shuffled(groups: Int64, known: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of prompts of different groups, at most ``MOST``, each first prompt once."""
    draw = np.random.default_rng([len(groups), 1])
    rows = np.asarray(known, np.int64)
    for row in draw.permutation(rows)[:MOST].tolist():
        # a group is drawn first, so that large groups do not dominate
        others = np.unique(groups[rows][groups[rows] != groups[row]])
        if len(others):
            yield row, int(draw.choice(rows[groups[rows] == draw.choice(others)]))


def floor_of(
    scenes: Sequence[Scene],
    memorized: MemorizedImages,
    base: Mapping[str, Measurements],
    measuring: Measurer,
) -> Floor | None:
    """Return how similar unmitigated images are to memorized ones that they do not reproduce."""
    scene = scenes[0]
    known = [row for row, own in enumerate(memorized.digests) if own]
    pairs = list(shuffled(scene.groups, known))
    if not pairs and known and len(scenes) > 1:
        scene = scenes[1]
        draw = np.random.default_rng([len(scene.prompts), 2])
        rows = draw.permutation(len(scene.prompts))[:MOST].tolist()
        pairs = [(row, int(draw.choice(known))) for row in rows]
    if not pairs:
        return None
    digests = [digest for row, _ in pairs for digest in base[scene.name].digests[row]]
    similarity = measuring.similarity(digests, len(scene.seeds), memorized, [at for _, at in pairs])
    found = copying(similarity.reshape(len(pairs), -1))
    groups = scene.groups[[row for row, _ in pairs]]
    least, most = measuring.judges.similarity.least, SCORES["top1"].most
    return Floor(
        source=scene.name,
        images=len(digests),
        top1=bounded(group_interval(found.top1, groups), least, most),
        top3=bounded(group_interval(found.top3, groups), least, most),
        share=bounded(group_interval(found.share, groups), 0.0, 1.0),
    )


KIND: Final = "visleak memorization benchmark"


def benchmark(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress = silent,
    note: Callable[[str], object] = lambda line: None,
) -> Benchmark:
    """Measure what mitigations do to the images of a model, and what they cost.

    Every image and every measurement is kept in the folder under all that it depends on: an
    interrupted run resumes and ends with the same table, another judge makes no image again, and
    another method only its own. A finished result of the same request is returned as it is.

    Args:
        plan: model, prompts, methods, and the images by which results are judged.
        out: folder of the result; see :class:`Benchmark` for its files.
        force: replace another result in the folder; its images and measurements stay.
        progress: called for images made and measured, over all methods.
        note: called with the expected cost, and with findings on the way.

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
    # files are written again where the sheet of images is to be added or left out
    if found is not None and (path / SHEET).is_file() == plan.sheet:
        note(f"{path} holds this benchmark, finished")
        return found
    with (
        folder.claimed(),
        ImageStore(path) as images,
        KeyValueStore(path / MEASURES, "numbers") as values,
    ):
        run = _Run(plan, memorized, scenes_of(plan, memorized), path, images, values, progress)
        makers = run.makers()
        calls = calls_of(run.count, plan.settings.sampling)
        note(
            f"{len(plan.mitigations):,} methods and settings: {run.count:,} images, {calls:,}"
            " passes of the network and those of the methods themselves; what is in"
            f" {path} already is not made again"
        )
        entries = run.measured(run.made(makers))
        progress("intervals and tests", 0, 0)
        result = run.result(entries, key)
        sheet = worst_sheet(result.rows, entries, images) if plan.sheet else b""
        content = folder.document(headline(result), result, verdicts=verdicts(result))
        folder.finish(content, files(result, entries, run.scenes, sheet))
        progress("intervals and tests", 1, 1)
    return result


def read_benchmark(folder: str | os.PathLike[str]) -> Benchmark:
    """Return the benchmark that a folder holds."""
    return RunFolder(folder, KIND).read(Benchmark, folder=Path(folder))


@dataclass(frozen=True)
class _Run:
    """A benchmark under way; images and measurements are by method and scenario."""

    plan: Plan
    memorized: MemorizedImages
    scenes: list[Scene]
    path: Path
    images: ImageStore
    values: KeyValueStore
    progress: Progress

    @property
    def count(self) -> int:
        return sum(scene.count for scene in self.scenes) * len(self.plan.mitigations)

    def makers(self) -> list[list[Maker]]:
        """Return what makes the images; what cannot be is refused before any is made."""
        return [
            [mitigation.prepared(self.plan.model, scene.seeds) for scene in self.scenes]
            for mitigation in self.plan.mitigations
        ]

    def made(self, makers: Sequence[Sequence[Maker]]) -> list[list[list[StoredImage]]]:
        steps = Steps("making images", self.count, self.progress)

        def images(maker: Maker, scene: Scene) -> list[StoredImage]:
            wanted = (self.plan.model, scene.jobs, self.plan.settings.sampling)
            made = images_of(self.images, *wanted, maker=maker, progress=steps.part)
            steps.done(scene.count)
            return made

        return [[images(*each) for each in zip(own, self.scenes, strict=True)] for own in makers]

    def measured(self, made: Sequence[Sequence[Sequence[StoredImage]]]) -> list[Entry]:
        plan, judges = self.plan, self.plan.judges
        many = sum(each is not None for each in (judges.alignment, judges.aesthetic))
        counts = [each.count * (many + (each.memorized is not None)) for each in self.scenes]
        steps = Steps("measuring images", sum(counts) * len(plan.mitigations), self.progress)
        measuring = Measurer(self.images, self.values, judges, steps.more)
        entries = []
        for mitigation, own in zip(plan.mitigations, made, strict=True):
            measured: dict[str, Measurements] = {}
            for scene, stored, count in zip(self.scenes, own, counts, strict=True):
                measured[scene.name] = measuring.measured(scene, stored)
                steps.done(count)
            distance = None
            if judges.real is not None:
                groups = np.repeat(self.scenes[0].groups, len(self.scenes[0].seeds))
                digests = [each.digest for each in own[0]]
                kept = (self.images.pixels, self.values, self.path)
                distance = judges.real.distance(digests, groups, *kept)
            named = (mitigation.name, mitigation.setting, mitigation.strength)
            entries.append(Entry(*named, dict(mitigation.about()), measured, distance))
        return entries

    def result(self, entries: Sequence[Entry], key: str) -> Benchmark:
        plan, scenes, memorized = self.plan, self.scenes, self.memorized
        most = min(MOST, max(len(scene.prompts) for scene in scenes)) * len(scenes[0].seeds)
        steps = Steps("measuring the floor of the similarity", most, self.progress)
        measuring = Measurer(self.images, self.values, plan.judges, steps.more)
        groups = {scene.name: scene.groups for scene in scenes}
        return Benchmark(
            folder=self.path,
            about={**plan.about(), "references": digest_of([*map(sorted, memorized.digests)])},
            triggers=summary_of(scenes[0], plan.references.known),
            general=summary_of(scenes[1]) if scenes[1:] else None,
            rows=rows_of(entries, groups, plan.judges.similarity.least),
            curves=curves_of(entries, groups[TRIGGER]),
            reference=referred(plan, memorized, self.progress),
            notes=(
                *(*plan.skipped, *plan.triggers.notes),
                *(() if plan.general is None else plan.general.notes),
                *plan.references.notes,
            ),
            key=key,
            floor=floor_of(scenes, memorized, entries[0].measured, measuring),
        )
