"""What a benchmark measures: a model, prompts, methods, and by what images are judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from visleak.diffusion.model import DiffusionModel, about_model
from visleak.documents import digest_of
from visleak.encoders.features import Alignment, ImageFeatures, clip_scores, precision_note
from visleak.errors import UsageError, VisleakError
from visleak.images import content_digest, decode
from visleak.memorization.benchmark.references import References, read_reference
from visleak.memorization.benchmark.results import (
    GENERAL,
    NONE,
    SCORES,
    TRIGGER,
    Distance,
    ListSummary,
    Measurements,
    ReferencePoint,
)
from visleak.memorization.extraction.images import ImageStore, Job, StoredImage, seeds_of
from visleak.memorization.extraction.similarity import CopySimilarity
from visleak.memorization.metrics import (
    Aesthetic,
    FolderByPrompt,
    against_references,
    reference_performance,
)
from visleak.memorization.prompt_files.selection import kept
from visleak.memorization.prompts import Prompts
from visleak.memorization.settings import BenchmarkSettings
from visleak.progress import Progress, silent
from visleak.records import Bytes8, Float64, ImageSet, Int64, Unreadable
from visleak.stats.group_intervals import bounded, effective_groups, group_interval
from visleak.stats.set_distances import frechet_distance, kernel_distance
from visleak.storage import KeyValueStore, replacing

if TYPE_CHECKING:
    from visleak.memorization.mitigate import Mitigation


#: File of the measured numbers in the folder of a benchmark.
MEASURES: Final = "measures.sqlite"
#: Real images read at a time, which only bounds memory; images measured at a time, which a kill
#: costs.
READ: Final = 64
CHUNK: Final = 32
#: The numbers of a distance, as they are kept.
_NAMES: Final = ("frechet", "kernel", "kernel_low", "kernel_high")
#: Measures one batch: images, and their places in the list.
Measure = Callable[[Sequence[Bytes8], Sequence[int]], Float64]


class RealImages:
    """Real images, and the network by whose features sets are compared."""

    def __init__(
        self, images: ImageSet, features: ImageFeatures, progress: Progress = silent
    ) -> None:
        self._images, self.features, self._progress = images, features, progress
        self.name = images.source or images.name
        hasher, self.count = blake2b(digest_size=16), 0
        for data, _ in self._readable():
            hasher.update(content_digest(data))
            self.count += 1
        self.unreadable = len(images.ids) - self.count
        if self.count < 2:
            raise VisleakError(
                f"a distance needs at least 2 real images; {self.name} has {self.count} that can be"
                " read"
            )
        self.digest = digest_of(["real", hasher.hexdigest(), features.digest])

    def about(self) -> dict[str, object]:
        """Return what a result has to name, as plain data."""
        return {
            **{"name": self.name, "images": self.count, "unreadable": self.unreadable},
            **{"features": self.features.name, "number": self.features.number},
            "digest": self.digest,
        }

    def distance(
        self,
        digests: Sequence[str],
        groups: Int64,
        pixels_of: Callable[[str], Bytes8],
        values: KeyValueStore,
        folder: Path,
    ) -> Distance:
        """Return how far generated images are from these as a set; those of a group are similar."""
        key = digest_of(["distance", 1, self.digest, list(digests), groups.tolist()])
        keys = {name: f"{key} {name}" for name in _NAMES}
        known = values.known(list(keys.values()))
        # an end of an interval that is not known is not kept
        if keys["kernel"] not in known:
            blocks = (digests[at : at + READ] for at in range(0, len(digests), READ))
            parts = [self.features.images(list(map(pixels_of, block))) for block in blocks]
            made, real = np.concatenate(parts), self._vectors(folder)
            kernel, frechet = kernel_distance(made, real, groups), frechet_distance(made, real)
            found = zip(_NAMES, (frechet, kernel.value, kernel.low, kernel.high), strict=True)
            values.add({keys[name]: value for name, value in found if np.isfinite(value)})
            known = values.known(list(keys.values()))
        numbers = {name: known.get(keys[name], float("nan")) for name in _NAMES}
        return Distance(**numbers, images=len(digests), against=self.count)

    def _vectors(self, folder: Path) -> Float64:
        path = folder / f"real-{self.digest}.npy"
        # a file that is not there, or half of one, is made again
        with suppress(OSError, ValueError, EOFError):
            held: Float64 = np.load(path, allow_pickle=False)
            if held.shape == (self.count, self.features.width):
                return held
        parts, block = [], list[Bytes8]()
        for number, (_, pixels) in enumerate(self._readable(), 1):
            block.append(pixels)
            if len(block) == READ or number == self.count:
                parts.append(self.features.images(block))
                block = []
            self._progress("reading real images", number, self.count)
        made = np.concatenate(parts)
        with replacing(path) as beside, beside.open("wb") as file:
            np.save(file, made)
        return made

    def _readable(self) -> Iterator[tuple[bytes | Bytes8, Bytes8]]:
        """Yield each image that can be read, as it is stored and as pixels."""
        for data in self._images.opener.read(range(len(self._images.ids))):
            if not isinstance(data, Unreadable):
                seen = decode(data)
                if not isinstance(seen, Unreadable):
                    yield data, seen.pixels


class MemorizedImages:
    """The memorized images of prompts, read when needed, one set held at a time."""

    def __init__(self, files: Sequence[Sequence[Path]]) -> None:
        self._files = files
        read = {path: read_reference(path)[0] for own in files for path in own}
        self.digests = tuple(tuple(read[path] for path in own) for own in files)
        self._held: tuple[tuple[str, ...], list[Bytes8]] = ((), [])

    def pixels(self, prompt: int) -> list[Bytes8]:
        """Return the pixels of a prompt's memorized images."""
        wanted = self.digests[prompt]
        if self._held[0] != wanted:
            read = [read_reference(path) for path in self._files[prompt]]
            if tuple(digest for digest, _ in read) != wanted:
                raise VisleakError(
                    f"the reference images of prompt {prompt + 1} changed while the benchmark ran;"
                    " run it again"
                )
            self._held = (wanted, [pixels for _, pixels in read])
        return self._held[1]


@dataclass(frozen=True)
class Judges:
    """By what images are judged; what is ``None`` is not measured."""

    similarity: CopySimilarity  #: to the memorized images
    alignment: Alignment | None = None  #: CLIP score
    aesthetic: Aesthetic | None = None  #: score of how an image looks
    real: RealImages | None = None  #: set of images that the distances are to
    #: images that are searched for prompts by the same CLIP, for the reference performance
    source: FolderByPrompt | None = None

    def __post_init__(self) -> None:
        if self.source is not None and self.alignment is None:
            raise UsageError(
                "the reference performance keeps the image with the best CLIP score: give an"
                " alignment model with --clip"
            )

    @property
    def similarity_digest(self) -> str:
        """Digest of the similarity: an encoder's does not tell half precision from full."""
        own = self.similarity
        return own.digest + precision_note(getattr(own, "encoder", None))


@dataclass(frozen=True)
class Measurer:
    """What measures images."""

    images: ImageStore  #: where they are
    values: KeyValueStore  #: what is known of them already
    judges: Judges  #: by what they are judged
    report: Callable[[int], None]  #: gets counts of measured images, by each judge

    def measured(self, scene: Scene, made: Sequence[StoredImage]) -> Measurements:
        """Return the measurements of the images of one method in one scenario."""
        texts, digests = [job.prompt for job in scene.jobs], [each.digest for each in made]
        shape = len(scene.prompts), len(scene.seeds)
        unknown: Float64 = np.full(len(made), math.nan)
        clip = aesthetic = similarity = unknown
        model, judge = self.judges.alignment, self.judges.aesthetic
        if model is not None:
            pairs = zip(digests, texts, strict=True)
            keys = [digest_of(["clip", 1, model.digest, *pair]) for pair in pairs]
            clip = self._measured(
                keys,
                digests,
                lambda pixels, at: clip_scores(model, [texts[place] for place in at], pixels),
            )
        if judge is not None:
            keys = [digest_of(["aesthetic", 1, judge.digest, digest]) for digest in digests]
            aesthetic = self._measured(keys, digests, lambda pixels, _: judge(pixels))
        if scene.memorized is not None:
            similarity = self.similarity(digests, shape[1], scene.memorized, range(shape[0]))
        columns = (similarity, clip, aesthetic, np.array([each.seconds for each in made]))
        similarity, clip, aesthetic, seconds = (column.reshape(shape) for column in columns)
        rows = tuple(map(tuple, np.reshape(digests, shape).tolist()))
        return Measurements(similarity, clip, aesthetic, seconds, rows)

    def similarity(
        self,
        digests: Sequence[str],
        images: int,
        memorized: MemorizedImages,
        against_rows: Sequence[int],
    ) -> Float64:
        """Return similarities to memorized images; prompts of one set of them go together."""
        similarity, judged_by = self.judges.similarity, self.judges.similarity_digest
        found = np.full(len(digests), math.nan)
        prompts: dict[tuple[str, ...], list[int]] = {}
        for prompt, row in enumerate(against_rows):
            prompts.setdefault(memorized.digests[row], []).append(prompt)
        self.report(images * len(prompts.pop((), ())))
        for own, rows in prompts.items():
            places = [row * images + number for row in rows for number in range(images)]
            wanted = [digests[place] for place in places]
            # the largest counts, so that their order does not matter
            keys = [digest_of(["similarity", 1, judged_by, each, sorted(own)]) for each in wanted]

            def against(
                pixels: Sequence[Bytes8], _: Sequence[int], row: int = against_rows[rows[0]]
            ) -> Float64:
                return against_references(similarity, pixels, memorized.pixels(row))

            found[places] = self._measured(keys, wanted, against)
        return found

    def _measured(self, keys: Sequence[str], digests: Sequence[str], measure: Measure) -> Float64:
        """Return numbers by key, and measure those that are not known."""
        known = self.values.known(keys)
        for start in range(0, len(keys), CHUNK):
            batch = range(start, min(start + CHUNK, len(keys)))
            missing = [place for place in batch if keys[place] not in known]
            if missing:
                values = measure([self.images.pixels(digests[place]) for place in batch], batch)
                if np.shape(values) != (len(batch),) or not np.isfinite(values).all():
                    raise VisleakError(
                        f"a measure returned {np.shape(values)} values for {len(batch)} images, or"
                        " one that is not finite; take another model or precision"
                    )
                self.values.add({keys[place]: float(values[place - start]) for place in missing})
                known |= self.values.known([keys[place] for place in missing])
            self.report(len(batch))
        return np.array([known[key] for key in keys])


@dataclass(frozen=True)
class Plan:
    """A benchmark of mitigations."""

    model: DiffusionModel  #: whose images are made
    triggers: Prompts  #: prompts that reproduce training images
    references: References  #: the memorized images of each
    mitigations: tuple[Mitigation, ...]  #: with their settings; none comes first
    judges: Judges  #: by what images are judged
    general: Prompts | None = None  #: ordinary prompts; ``None`` leaves that scenario out
    settings: BenchmarkSettings = field(default_factory=BenchmarkSettings)  #: images and numbers
    skipped: tuple[str, ...] = ()  #: methods that the model cannot have, with the reason

    def __post_init__(self) -> None:
        if len(self.references.files) != len(self.triggers):
            raise UsageError("references are of other prompts than the trigger prompts")
        names = [(each.name, each.setting) for each in self.mitigations]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"method {' '.join(twice).strip()} is given twice; give it once")
        if not self.mitigations or self.mitigations[0].name != NONE:
            raise UsageError("the first method is none, which all others are compared with")

    @property
    def sheet(self) -> bool:
        """Whether the worst images by aesthetic score are to be drawn."""
        return self.settings.sheets and self.judges.aesthetic is not None

    def groups(self, references: Sequence[Sequence[str]] = ()) -> Int64:
        """Return the group of each trigger prompt: those that share a memorized image."""
        if not references:
            return self.triggers.groups()
        named = self.triggers.sources or ((),) * len(self.triggers)
        both = tuple((*own, *held) for own, held in zip(named, references, strict=True))
        return replace(self.triggers, sources=both).groups()

    def about(self) -> dict[str, Any]:
        """Return all but prompts and methods, as plain data."""
        judges, settings = self.judges, self.settings
        sampling, similarity = settings.sampling, judges.similarity
        return {
            "model": about_model(self.model),
            "sampling": {"steps": sampling.steps, "guidance": float(sampling.guidance)},
            "seed": settings.seed,
            "similarity": {
                **{"name": similarity.name, "number": similarity.number},
                "digest": judges.similarity_digest,
            },
            **{
                name: judge and {"name": judge.name, "digest": judge.digest}
                for name, judge in (
                    ("alignment", judges.alignment),
                    ("aesthetic", judges.aesthetic),
                )
            },
            "real": judges.real and judges.real.about(),
            "deviation": settings.deviation,
        }

    def key(self, references: Sequence[Sequence[str]]) -> str:
        """Return the digest of everything the result depends on; the device is not part of it."""
        about, settings, source = self.about(), self.settings, self.judges.source
        about["model"] = [self.model.digest, self.model.precision]
        # by digests alone: a judge whose files were moved is the same
        for judge in ("similarity", "alignment", "aesthetic", "real"):
            about[judge] = about[judge] and about[judge]["digest"]
        search = source and source.about()["digest"]
        methods = [[each.name, each.setting, each.about()] for each in self.mitigations]
        groups = self.groups(references).tolist()
        lists: list[object] = [[list(self.triggers.texts), groups, settings.images], None]
        if self.general is not None:
            lists[1] = [list(self.general.texts), settings.general_images]
        return digest_of(
            ["benchmark", 1, about, methods, lists, list(map(list, references)), search]
        )


def sampled(prompts: Prompts, most: int | None, seed: int) -> Prompts:
    """Return at most this many prompts, drawn by the seed, in the order of the list."""
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
    groups: Int64  #: of the prompts, (prompts,): those that share a memorized image
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


def summary_of(scene: Scene, referenced: int = 0) -> ListSummary:
    """Return the size of a list of prompts."""
    prompts, sizes = scene.prompts, np.bincount(scene.groups)
    return ListSummary(
        origin=prompts.origin,
        prompts=len(prompts),
        groups=len(sizes),
        effective=effective_groups(sizes),
        images=len(scene.seeds),
        referenced=referenced,
        digest=digest_of(["prompts", list(prompts.texts)]),
    )


def scenes_of(plan: Plan, memorized: MemorizedImages) -> list[Scene]:
    """Return the scenarios, that of trigger prompts first; all methods share their seeds."""
    settings = plan.settings
    own, seeds = plan.groups(memorized.digests), seeds_of(settings.seed, settings.images)
    scenes = [Scene(TRIGGER, plan.triggers, own, seeds, memorized)]
    if plan.general is not None:
        seeds = seeds_of(settings.seed, settings.general_images)
        scenes.append(Scene(GENERAL, plan.general, plan.general.groups(), seeds, None))
    return scenes


@dataclass
class Steps:
    """Progress of a step that is taken once per method and scenario, reported as one step."""

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
    """Return the reference performance over prompts with memorized images; ``None`` without it."""
    source, judged_by = plan.judges.source, plan.judges.similarity
    if source is None:
        return None
    similarities, clips = reference_performance(
        source, plan.triggers.texts, memorized.pixels, judged_by, progress=progress
    )
    known = np.isfinite(similarities)
    if not known.any():
        raise VisleakError(
            f"{source.name} has no image for any trigger prompt with its memorized images at"
            " hand; leave --reference-source out, or name another"
        )
    groups, clip = plan.groups(memorized.digests)[known], SCORES["clip"]
    similarity = group_interval(similarities[known], groups)
    return ReferencePoint(
        source=source.name,
        similarity=bounded(similarity, judged_by.least, SCORES["top1"].most),
        clip=bounded(group_interval(clips[known], groups), clip.least, clip.most),
        about=dict(source.about()),
    )
