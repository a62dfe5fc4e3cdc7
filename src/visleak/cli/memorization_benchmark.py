"""``visleak memorization benchmark``: does a mitigation work, and what does it cost?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from visleak.cli import edges, options
from visleak.cli import memorization_benchmark_options as own
from visleak.cli import memorization_options as shared
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.benchmark import Benchmark, Choices, Judges
    from visleak.memorization.metrics import Aesthetic, ClipAlignment, FolderByPrompt
    from visleak.memorization.mitigate import Mitigation
    from visleak.memorization.model import DiffusionModel, Sampling
    from visleak.memorization.prompts import Prompts
    from visleak.pipeline.workplace import Progress


def benchmark(
    model: own.ModelOrNone = None,
    triggers: own.Triggers = None,
    column: own.Column = None,
    references: own.ReferenceFolder = None,
    reference_map: own.ReferenceMap = None,
    general: own.General = None,
    general_column: own.GeneralColumn = None,
    trigger_sample: own.TriggerSample = None,
    general_sample: own.GeneralSample = None,
    method: own.Methods = None,
    images: own.Images = 10,
    general_images: own.GeneralImages = 1,
    steps: own.Steps = 50,
    guidance: own.Guidance = 7.5,
    seed: own.Seed = 0,
    similarity: own.Similarity = "builtin",
    clip: own.Clip = None,
    clip_text: own.ClipText = "original",
    aesthetic: own.AestheticHead = None,
    aesthetic_clip: own.AestheticClip = None,
    std: own.Deviation = "images",
    fid_reference: own.FidReference = None,
    fid_features: own.FidFeatures = None,
    reference_source: own.ReferenceSource = None,
    reference_count: own.ReferenceCount = 100,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    batch: own.Batch = 8,
    workers: options.Workers = None,
    out: shared.Out = Path("visleak-benchmark"),
    no_pictures: own.NoPictures = False,
    leaderboard: own.Leaderboard = None,
    audit: own.AuditFolder = None,
    force: shared.Force = False,
    json: shared.Json = False,
) -> None:
    """Measure what mitigations do against replaying, and what they cost in fit and quality.

    Every method makes images of the same noises: of trigger prompts, which replay training images,
    and of ordinary ones. Images and measurements are kept: a run that was stopped goes on, and
    another method or judge makes only what is missing.
    """
    from visleak.cli.memorization_benchmark_view import refuse_nothing_to_show
    from visleak.memorization.benchmark import Choices, read_benchmark
    from visleak.memorization.benchmark.leaderboard import table_beside
    from visleak.memorization.model import Sampling

    shared.refuse_other_kind(out, "benchmark")
    if leaderboard is not None:
        table_beside(leaderboard)  # refused now rather than after hours
    if model is None and triggers is None:
        asked = (method, references, reference_map, general, clip, aesthetic, reference_source)
        refuse_nothing_to_show(out, asked=any(asked))
        result = read_benchmark(out)
    else:
        if model is None or triggers is None:
            missing = "--model" if model is None else "--triggers"
            raise UsageError(f"{missing} is missing: give --model M and --triggers FILE")
        lists = _Lists(triggers, column, general, general_column, references, reference_map)
        judging = _Judging(
            *(similarity, clip, aesthetic, aesthetic_clip, fid_reference, fid_features),
            *(reference_source, device, workers),
        )
        order = _Order(
            model=model,
            lists=lists,
            samples=(trigger_sample, general_sample),
            methods=tuple(method or ()),
            judging=judging,
            images=(images, general_images),
            sampling=Sampling(steps, guidance, batch),
            seed=seed,
            choices=Choices(clip_text, std, reference_count, not no_pictures),
            running=(device, precision),
        )
        result = order.carried_out(out, force=force)
    _publish(result, leaderboard, audit)
    _say(result, json=json)


@dataclass(frozen=True)
class _Lists:
    """Where prompts and memorized images are."""

    triggers: Path
    column: str | None
    general: Path | None
    general_column: str | None
    folder: Path | None
    table: Path | None

    def read(self) -> tuple[Prompts, Prompts | None]:
        """Return the trigger prompts and the ordinary ones.

        Raises:
            UsageError: a column was given without its file.
        """
        from visleak.memorization.prompt_files import read_prompts

        found = read_prompts(self.triggers, column=self.column)
        if self.general is None:
            if self.general_column is not None:
                raise UsageError("--general-column goes with --general FILE")
            return found, None
        return found, read_prompts(self.general, column=self.general_column)


@dataclass(frozen=True)
class _Judging:
    """What images are to be judged by."""

    similarity: str
    clip: str | None
    aesthetic: Path | None
    aesthetic_clip: str | None
    fid_reference: str | None
    fid_features: str | None
    source: str | None
    device: str
    workers: int | None

    def check(self) -> None:
        """Refuse what lacks its other half, before anything is loaded.

        Raises:
            UsageError: something does.
        """
        if (self.fid_reference is None) != (self.fid_features is None):
            raise UsageError(
                "distances need both --fid-reference SOURCE, the real images, and --fid-features F,"
                " such as inception:FILE or dinov2"
            )
        if self.source is not None and self.clip is None:
            raise UsageError("--reference-source keeps pictures by CLIP score: give --clip as well")
        if self.aesthetic_clip is not None and self.aesthetic is None:
            raise UsageError("--aesthetic-clip goes with --aesthetic FILE")

    def warn_of_seconds_alone(self) -> None:
        """Say that general prompts are about to be made for little."""
        if self.clip is None and self.aesthetic is None:
            edges.note(
                "without --clip or --aesthetic nothing is measured of general prompts but seconds"
            )

    def loaded(self, progress: Progress) -> Judges:
        """Return the judges, their networks loaded."""
        from visleak.images import open_pictures
        from visleak.memorization.benchmark import Judges, RealImages
        from visleak.memorization.extraction import load_similarity
        from visleak.memorization.metrics import load_alignment, load_features

        alike = load_similarity(self.similarity)
        clip = None if self.clip is None else load_alignment(self.clip, self.device)
        real = None
        if self.fid_reference is not None and self.fid_features is not None:
            features = load_features(self.fid_features, device=self.device)
            real = RealImages(open_pictures(self.fid_reference), features, progress)
        return Judges(alike, clip, self._aesthetic(), real, self._source(clip, progress))

    def _aesthetic(self) -> Aesthetic | None:
        from visleak.memorization.metrics import load_aesthetic

        if self.aesthetic is None:
            return None
        own = {} if self.aesthetic_clip is None else {"clip": self.aesthetic_clip}
        return load_aesthetic(self.aesthetic, device=self.device, **own)

    def _source(self, clip: ClipAlignment | None, progress: Progress) -> FolderByPrompt | None:
        from visleak.memorization.metrics import FolderByPrompt

        if self.source is None or clip is None:
            return None
        return FolderByPrompt(self.source, clip, workers=self.workers, progress=progress)


@dataclass(frozen=True)
class _Order:
    """A benchmark that is asked for."""

    model: str
    lists: _Lists
    samples: tuple[int | None, int | None]
    methods: tuple[str, ...]
    judging: _Judging
    images: tuple[int, int]
    sampling: Sampling
    seed: int
    choices: Choices
    running: tuple[str, str]

    def carried_out(self, out: Path, *, force: bool) -> Benchmark:
        """Load, make images, measure, write."""
        from visleak.cli.progress import bars
        from visleak.memorization.benchmark import Plan, references_of, sampled
        from visleak.memorization.benchmark import benchmark as measured
        from visleak.memorization.extraction.generating import refuse_sampling, seeds_of
        from visleak.memorization.mitigate import mitigation

        # what is quick to refuse comes before anything is loaded
        self.judging.check()
        refuse_sampling(self.sampling)
        for text in self.methods:
            if text != "paper":
                mitigation(text)
        listed, general = self.lists.read()
        triggers = sampled(listed, self.samples[0], self.seed)
        if general is not None:
            general = sampled(general, self.samples[1], self.seed)
            self.judging.warn_of_seconds_alone()
        found = references_of(
            triggers, self.lists.folder, self.lists.table, beside=self.lists.triggers.parent
        )
        with bars() as progress:
            progress("loading the models", 0, 0)
            # the model is the largest: a judge that is not there is told before it is read
            judges = self.judging.loaded(progress)
            model = shared.model_of(self.model, *self.running)
            methods, skipped = _methods(self.methods, model, seeds_of(self.seed, self.images[0]))
            progress("loading the models", 1, 1)
            plan = Plan(
                model=model,
                triggers=triggers,
                references=found,
                mitigations=methods,
                judges=judges,
                general=general,
                images=self.images[0],
                general_images=self.images[1],
                sampling=self.sampling,
                seed=self.seed,
                choices=self.choices,
                skipped=skipped,
            )
            return measured(plan, out, force=force, progress=progress, say=edges.note)


def _methods(
    texts: tuple[str, ...], model: DiffusionModel, seeds: Sequence[int]
) -> tuple[tuple[Mitigation, ...], tuple[str, ...]]:
    """Return the methods, none in front, and which usual ones the model cannot have.

    One that is asked for twice counts once.
    """
    from visleak.memorization.benchmark import with_none
    from visleak.memorization.mitigate import (
        Unmitigated,
        mitigation,
        paper_settings,
        usual_methods,
    )

    if not texts:
        usual, skipped = usual_methods(model, seeds)
        return with_none(usual, Unmitigated()), skipped
    asked: list[Mitigation] = []
    for text in texts:
        own = paper_settings(model) if text == "paper" else (text,)
        asked += (made for made in map(mitigation, own) if made not in asked)
    return with_none(asked, Unmitigated()), ()


def _publish(result: Benchmark, leaderboard: Path | None, audit: Path | None) -> None:
    """Put a result on a leaderboard, and into the report of an audit."""
    from visleak.memorization.benchmark import add_to
    from visleak.memorization.benchmark.leaderboard import leaderboard_markdown, table_beside
    from visleak.memorization.benchmark.section import NAME, section
    from visleak.store import write_text

    if leaderboard is not None:
        table = table_beside(leaderboard)
        entries = add_to(leaderboard, result)
        write_text(table, leaderboard_markdown(entries))
        edges.note(f"{leaderboard}: {len(entries):,} entries; {table}")
    if audit is not None:
        from visleak.auditing import Audit
        from visleak.cli.pictures import show_in_report

        show_in_report(Audit(audit), NAME, section(result), private=False)


def _say(result: Benchmark, *, json: bool) -> None:
    from visleak.cli.memorization_benchmark_view import shown
    from visleak.cli.terminal import rendered
    from visleak.memorization.benchmark.stored import RESULT

    if json:
        edges.say_bytes((result.folder / RESULT).read_bytes())
        return
    edges.say(rendered(shown(result)))
    edges.say(f"{edges.plain(str(result.folder))}\n")
