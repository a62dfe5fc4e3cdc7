"""``visleak memorization benchmark``: does a mitigation work, and what does it cost?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from visleak.cli import edges, options
from visleak.cli import memorization_options as shared
from visleak.cli.memorization_options import FORMATS, MODEL, OUT, option
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.benchmark import Benchmark, Choices, Judges
    from visleak.memorization.metrics import Aesthetic, ClipAlignment, FolderByPrompt
    from visleak.memorization.mitigate import Mitigation
    from visleak.memorization.model import DiffusionModel, Sampling
    from visleak.memorization.prompts import Prompts
    from visleak.pipeline.workplace import Progress

LISTS: Final = "The prompts"
METHODS: Final = "The methods"
IMAGES: Final = "How images are made"
JUDGES: Final = "What images are judged by"

ModelOrNone = Annotated[
    str | None,
    option(
        "--model M",
        "A pipeline of diffusers: a folder, or hub:OWNER/NAME, which is fetched once. Without"
        " it, the finished benchmark in DIR is shown.",
        MODEL,
    ),
]
Triggers = Annotated[
    Path | None,
    option(
        "--triggers FILE",
        f"Prompts that reproduce training images, with their sources: {FORMATS}, such as"
        " MemBench's SD1_final.csv.",
        LISTS,
    ),
]
Column = Annotated[
    str | None,
    option(
        "--column C", "Column of the prompts in FILE.", LISTS, default="prompt, caption or text"
    ),
]
ReferenceFolder = Annotated[
    Path | None,
    option(
        "--references DIR",
        "The memorized images: files named like a prompt's sources (name, name without ending,"
        " or the last part of an address). Nothing is fetched. Without it, sources that are paths"
        " beside the list of triggers are taken.",
        LISTS,
    ),
]
ReferenceMap = Annotated[
    Path | None,
    option(
        "--reference-map CSV",
        "The same by a table with the columns file and source (or prompt).",
        LISTS,
    ),
]
General = Annotated[
    Path | None,
    option(
        "--general FILE",
        "Ordinary prompts, such as COCO's captions_val2017.json: the cost of a method on"
        " prompts that are not memorized.",
        LISTS,
    ),
]
GeneralColumn = Annotated[
    str | None, option("--general-column C", "The same in the file of --general.", LISTS)
]
TriggerSample = Annotated[
    int | None,
    option(
        "--trigger-sample N", "Number of trigger prompts, drawn by --seed.", LISTS, default="all"
    ),
]
GeneralSample = Annotated[
    int | None, option("--general-sample N", "Number of general prompts.", LISTS, default="all")
]
Methods = Annotated[
    list[str] | None,
    option(
        "--method M",
        "rna:N, rta:N, wen:L or ren:C, options after a comma (wen:3,scope=batch). May be"
        " repeated; paper stands for all of table 3 (Stable Diffusion 1) or 5 (2). None is always"
        " there.  \\[default: paper; for other models none and rna, rta, ren of table 3, as far as"
        " the model can have them]",
        METHODS,
    ),
]
Images = Annotated[int, option("--images N", "Images a trigger prompt.", IMAGES)]
GeneralImages = Annotated[int, option("--general-images N", "Images a general prompt.", IMAGES)]
Steps = Annotated[int, option("--steps N", "Of the sampler.", IMAGES)]
Guidance = Annotated[float, option("--guidance G", "1 is none.", IMAGES)]
Batch = Annotated[int, option("--batch N", "Images made at a time.", IMAGES)]
Seed = Annotated[
    int, option("--seed N", "Of the noises, which all prompts and methods share.", IMAGES, min=0)
]
Similarity = Annotated[
    str,
    option(
        "--similarity S",
        "To the memorized images: sscd:FILE (MemBench), builtin (fingerprint, confirmed by"
        " verification), pixels, or another encoder.",
        JUDGES,
    ),
]
Clip = Annotated[
    str | None,
    option(
        "--clip CLIP",
        "CLIP score: a folder, OWNER/NAME on the hub, or open_clip:MODEL/WEIGHTS (MemBench:"
        " open_clip:ViT-g-14/laion2b_s12b_b42k).",
        JUDGES,
    ),
]
ClipText = Annotated[
    str,
    option(
        "--clip-text T",
        "CLIP score against original, the prompt as given; or augmented, with what RNA and RTA"
        " put in (MemBench's code).",
        JUDGES,
    ),
]
AestheticHead = Annotated[
    Path | None,
    option(
        "--aesthetic FILE",
        "Aesthetic score: weights of the linear head (sac+logos+ava1-l14-linearMSE.pth).",
        JUDGES,
    ),
]
AestheticClip = Annotated[
    str | None,
    option(
        "--aesthetic-clip CLIP",
        "The CLIP that the head reads.",
        JUDGES,
        default="openai/clip-vit-large-patch14",
    ),
]
Deviation = Annotated[
    str,
    option(
        "--std D",
        "Deviation of the aesthetic score in the tables: of images, of the means of prompts,"
        " or within a prompt; files have all.",
        JUDGES,
    ),
]
FidReference = Annotated[
    str | None,
    option(
        "--fid-reference SOURCE",
        "Real images, which those of the trigger prompts are compared with as a set (FID and"
        " kernel distance).",
        JUDGES,
    ),
]
FidFeatures = Annotated[
    str | None,
    option(
        "--fid-features F",
        "By whose features: inception:FILE (TorchScript), or an encoder such as dinov2.",
        JUDGES,
    ),
]
ReferenceSource = Annotated[
    str | None,
    option(
        "--reference-source SOURCE",
        "Pictures to search for the trigger prompts: the reference performance, which a method"
        " should come down to. Needs --clip.",
        JUDGES,
    ),
]
ReferenceCount = Annotated[
    int,
    option(
        "--reference-count N",
        "Pictures of SOURCE a prompt, of which the one with the best CLIP score counts.",
        JUDGES,
    ),
]
NoPictures = Annotated[bool, option("--no-pictures", "No sheet of the worst images.", OUT)]
Leaderboard = Annotated[
    Path | None,
    option(
        "--leaderboard FILE",
        "Put the rows on a leaderboard, a JSON file that is made if need be.",
        OUT,
    ),
]
AuditFolder = Annotated[
    Path | None,
    option("--audit A", "An audit, such as traced/audit, whose report is to show the result.", OUT),
]


def refuse_nothing_to_show(out: Path, *, asked: bool) -> None:
    """Refuse to show a finished benchmark where there is none, or where a run was meant.

    Raises:
        UsageError: there is none, or options were given that only a run has.
    """
    if asked:
        raise UsageError("--model is missing: give --model M and --triggers FILE")
    if not (out / "benchmark.json").is_file():
        raise UsageError(
            f"{out} holds no finished benchmark to show; give --model M and --triggers FILE to make"
            " one, or to resume one"
        )


def benchmark(
    model: ModelOrNone = None,
    triggers: Triggers = None,
    column: Column = None,
    references: ReferenceFolder = None,
    reference_map: ReferenceMap = None,
    general: General = None,
    general_column: GeneralColumn = None,
    trigger_sample: TriggerSample = None,
    general_sample: GeneralSample = None,
    method: Methods = None,
    images: Images = 10,
    general_images: GeneralImages = 1,
    steps: Steps = 50,
    guidance: Guidance = 7.5,
    seed: Seed = 0,
    similarity: Similarity = "builtin",
    clip: Clip = None,
    clip_text: ClipText = "original",
    aesthetic: AestheticHead = None,
    aesthetic_clip: AestheticClip = None,
    std: Deviation = "images",
    fid_reference: FidReference = None,
    fid_features: FidFeatures = None,
    reference_source: ReferenceSource = None,
    reference_count: ReferenceCount = 100,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    batch: Batch = 8,
    workers: options.Workers = None,
    out: shared.Out = Path("visleak-benchmark"),
    no_pictures: NoPictures = False,
    leaderboard: Leaderboard = None,
    audit: AuditFolder = None,
    force: shared.Force = False,
    json: shared.Json = False,
) -> None:
    """Measure what mitigations do against replaying, and what they cost in fit and quality.

    Every method makes images of the same noises: of trigger prompts, which replay training images,
    and of ordinary ones. Images and measurements are kept: a run that was stopped goes on, and
    another method or judge makes only what is missing.
    """
    from visleak.memorization.benchmark import Choices, read_benchmark
    from visleak.memorization.benchmark.document import document
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
    shared.say_result(
        document(result), result.folder / "benchmark.json", json=json, rows=100, intervals=False
    )


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
    from visleak.memorization.benchmark.document import SECTION, document
    from visleak.memorization.benchmark.leaderboard import leaderboard_markdown, table_beside
    from visleak.reporting import section
    from visleak.storage import write_text

    if leaderboard is not None:
        table = table_beside(leaderboard)
        entries = add_to(leaderboard, result)
        write_text(table, leaderboard_markdown(entries))
        edges.note(f"{leaderboard}: {len(entries):,} entries; {table}")
    if audit is not None:
        from visleak.auditing import Audit
        from visleak.cli.pictures import show_in_report

        content = section(document(result, columns=1))
        show_in_report(Audit(audit), SECTION, content, private=False)
