"""Commands about images: ``extract``, ``trace``, ``benchmark``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from visleak.cli import edges
from visleak.cli.command import Call, Reply
from visleak.cli.memorization import (
    FORMATS,
    IMAGES,
    PROMPTS,
    General,
    OptionalModel,
    Result,
    column_option,
    reply,
)
from visleak.errors import UsageError
from visleak.options import METHOD, OUTPUT, SPEED, Execution, Options, argument, option, share

if TYPE_CHECKING:
    from visleak.memorization.benchmark import Benchmark, Judges
    from visleak.memorization.mitigate import Mitigation
    from visleak.memorization.model import DiffusionModel
    from visleak.memorization.tracing import Trace
    from visleak.pipeline.context import Progress
    from visleak.records import AnySet

CLUSTERS: Final = "Clusters"
JUDGES: Final = "Measurements"
SOURCES: Final = "Training images"

#: The only gate of ``trace``.
GATE: Final = "memorized"


def _missing(model: str | None, file: str) -> UsageError:
    name = "model" if model is None else file
    return UsageError(f"--{name} is missing: give --model MODEL and --{file} FILE")


# -- extract --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extract(Options):
    """Options of ``extract``."""

    prompts: Path | None = option(
        None,
        f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of detect.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option("FILE")
    top: int | None = option(
        None,
        "Only the N prompts of the highest D, of a list that has it: what search, augment or"
        " detect wrote. Default: all.",
        metavar="N",
        panel=PROMPTS,
        least=1,
    )
    above_threshold_only: bool = option(
        False,
        "Only prompts that reached kappa (search, augment) or the threshold (detect).",
        panel=PROMPTS,
    )
    images: int | None = option(None, "Images per prompt. Default: 100.", metavar="N", panel=IMAGES)
    steps: int = option(50, "Steps of the sampler.", metavar="N", panel=IMAGES)
    guidance: float = option(
        7.5,
        "Scale of classifier-free guidance; 1 is none and costs half.",
        metavar="G",
        panel=IMAGES,
    )
    batch: int = option(8, "Images made at a time.", metavar="N", panel=IMAGES)
    seed: int = option(0, "Of the noises images start from.", metavar="N", panel=IMAGES, least=0)
    own_noises: bool = option(
        False, "Other noises for each prompt; by default all start from the same.", panel=IMAGES
    )
    similarity: str = option(
        "builtin",
        "builtin (fingerprint, confirmed by verification), sscd:FILE (MemBench; squeezed as by its"
        " code: sscd:FILE?resize=288x288), pixels (correlation at 32 x 32), or another encoder.",
        metavar="SIMILARITY",
        panel=CLUSTERS,
    )
    eps: float | None = option(
        None,
        "DBSCAN: distance (1 - similarity) of neighbours. Default: 0.5; pixels: 0.1; other"
        " encoders but SSCD: that of their soft threshold.",
        metavar="E",
        panel=CLUSTERS,
    )
    min_samples: int = option(
        3, "DBSCAN: neighbours, itself counted, that make an image a core.", metavar="N",
        panel=CLUSTERS,
    )  # fmt: skip
    min_cluster: int | None = option(
        None, "Least images of a cluster. Default: 20.", metavar="N", panel=CLUSTERS
    )
    extract_rule: str = option(
        "paper",
        "Defaults of --images and --min-cluster: paper (100, 20) or code (50, and every cluster is"
        " kept, as MemBench's code does).",
        panel=CLUSTERS,
        choices=("paper", "code"),
    )
    recluster: bool = option(
        False, "Only cluster the images in DIR again, without a model.", panel=CLUSTERS
    )
    sheets: bool = option(True, "Draw no contact sheets of clusters.", "--no-sheets", panel=OUTPUT)


def extract(model: OptionalModel, options: Extract, result: Result, call: Call) -> Reply:
    """Generate many images of each prompt, and cluster those that are nearly the same.

    A prompt whose images keep coming out the same may reproduce a training image: the medoid of
    each cluster is a candidate, which [bold]visleak memorization trace[/] looks up. Images are
    kept: interrupted runs resume, and other clusters need no new images.
    """
    from visleak.memorization.extraction import (
        ExtractSettings,
        load_similarity,
        read_extraction,
        reclustered,
    )
    from visleak.memorization.extraction import extract as extracted
    from visleak.memorization.extraction.document import document
    from visleak.memorization.model import Sampling
    from visleak.memorization.prompt_files import Choice, chosen, read_prompts, scores_of

    out, images = result.folder("extract"), options.images
    notes: tuple[str, ...] = ()
    if options.recluster:
        allowed = ("similarity", "eps", "min_samples", "min_cluster", "extract_rule", "sheets")
        call.only_with("--recluster", ("recluster", "out", "json", "force", *allowed))
        # the least size of a cluster must fit
        images = int(read_extraction(out).about["settings"]["images"])
    settings = ExtractSettings.by(
        "code" if options.extract_rule == "code" else "paper",
        images=images,
        min_cluster=options.min_cluster,
        eps=options.eps,
        min_samples=options.min_samples,
        seed=options.seed,
        paired=not options.own_noises,
    )
    shared: dict[str, Any] = {"pictures": options.sheets, "progress": call.progress}
    if options.recluster:
        found = reclustered(out, settings, similarity=options.similarity, **shared)
    else:
        # what is quick to refuse comes before the model is loaded
        if model.model is None or options.prompts is None:
            raise _missing(model.model, "prompts")
        file = options.prompts
        choice = Choice(options.top, options.above_threshold_only)
        listed = chosen(read_prompts(file, column=options.column), file, choice)
        scores, notes = scores_of(listed, file), listed.notes
        measure = load_similarity(options.similarity)
        found = extracted(
            model.load(model.model, call),
            listed.texts,
            settings,
            out,
            similarity=measure,
            sampling=Sampling(options.steps, options.guidance, options.batch),
            scores=scores,
            force=result.force,
            **shared,
        )
    columns = ("prompt", "cluster", "size", "images", "cohesion")
    return reply(document(found), out / "extract.json", notes=notes, columns=columns)


# -- trace ----------------------------------------------------------------------------------------


def _gate(text: str) -> float:
    """Return the largest share that passes ``memorized[=RATE]``.

    Raises:
        UsageError: it is another gate, or RATE is not a share.
    """
    name, equals, rate = text.partition("=")
    if name != GATE:
        raise UsageError(f"--fail-on is memorized or memorized=RATE; got {text!r}")
    return share(rate) if equals else 0.0


@dataclass(frozen=True)
class Tracing(Options):
    """Options of ``trace``."""

    target: str = argument(
        ...,
        "Folder of visleak memorization extract, or any SOURCE of generated images.",
        metavar="EXTRACT_DIR|SOURCE",
    )
    source: tuple[str, ...] = option(
        (),
        "Training images: any SOURCE, or published fingerprints (emb:DIR), which verify nothing."
        " May be repeated.",
        metavar="[NAME=]SOURCE",
        panel=SOURCES,
    )
    unverified: bool = option(
        False,
        "There is no training set: list the images as unverified candidates.",
        panel=SOURCES,
    )
    every: bool = option(
        False,
        "Trace all images of the extraction, not one per cluster, and report which prompts"
        " replicate (D_mem).",
        "--all",
        panel=SOURCES,
    )
    tau: float = option(
        0.7,
        "M_tau = 1 where the similarity to some training image is above X (definition 1).",
        metavar="X",
        panel=METHOD,
    )
    kappa_share: float = option(
        0.5,
        "A prompt is in D_mem if more than RATE (0.5 or 50%) of its images have M_tau = 1; with"
        " --all.",
        metavar="RATE",
        panel=METHOD,
        parse=share,
    )
    similarity: str | None = option(
        None,
        "Encoder whose cosine tau belongs to: sscd:FILE (MemBench), or any other of --encoder."
        " Default: that of published fingerprints, else builtin.",
        metavar="ENCODER",
        panel=METHOD,
    )
    views: str = option(
        "none",
        "Views of the generated images that are compared: none (definition 1), mirror (for models"
        " trained with random flips) or all.",
        panel=METHOD,
        choices=("none", "mirror", "all"),
    )
    layouts: bool = option(
        True,
        "Do not look for copies in other colours, which takes one more pass over the sources.",
        "--no-layouts",
        panel=METHOD,
    )
    categories: Path | None = option(
        None,
        "What memorized images show: columns category (commercial product, human, artwork, other)"
        " and reference, image or prompt.",
        metavar="FILE.csv",
        panel=METHOD,
    )
    fail_on: tuple[str, ...] = option(
        (),
        "Exit with 3 if more than RATE (0.01 or 1%, default 0) of the traced images count as"
        " memorized.",
        metavar="memorized[=RATE]",
        panel=OUTPUT,
    )
    no_images: bool = option(False, "Put no images into the report.", panel=OUTPUT)
    device: str = option("cpu", "auto, cpu, cuda, cuda:N or mps.", metavar="DEVICE", panel=SPEED)


def trace(options: Tracing, execution: Execution, result: Result, call: Call) -> Reply:
    """Match generated images to training images.

    Writes the matches, and an audit folder whose pairs visleak review opens; run the command again
    to count the verdicts.
    """
    from visleak.auditing import Audit
    from visleak.cli.pictures import show_in_report
    from visleak.memorization.tracing import trace as traced
    from visleak.memorization.tracing.document import SECTION, document
    from visleak.memorization.tracing.sources import AUDIT_FOLDER
    from visleak.reporting import section
    from visleak.storage import AUDIT, REPORT

    gates = [_gate(text) for text in options.fail_on]
    out = result.folder("trace")
    if not options.source and not options.unverified:
        raise UsageError(
            "--source is missing: give the training images, or --unverified if they are not known"
        )
    found = traced(
        options.target,
        training_sets(options.source),
        out,
        tau=options.tau,
        kappa_share=options.kappa_share,
        similarity=options.similarity or "",
        views=options.views,
        layouts=options.layouts,
        every=options.every,
        categories=options.categories,
        **execution.chosen(),
        device=options.device,
        progress=call.progress,
        force=result.force,
        command=call.line,
    )
    audit = out / AUDIT_FOLDER
    more: tuple[str, ...] = ()
    if (audit / AUDIT).is_file():
        content = section(document(found))
        show_in_report(Audit(audit), SECTION, content, private=options.no_images)
        more = (str(audit / REPORT), f"judge the pairs: visleak review {audit}")
    shown = reply(document(found), out / "trace.json", more=more)
    failed = tuple(_failures(gates, found))
    return Reply(shown.shown, shown.content, complaints=failed, code=3 if failed else 0)


def _failures(gates: Sequence[float], result: Trace) -> list[str]:
    from visleak.stats import Rate, percent

    rate = Rate.of(len(result.verified), len(result.matches))
    return [
        f"gate {GATE}: {rate.count:,} of {rate.total:,} traced images ({percent(rate.share)} %)"
        f" count as memorized; allowed {percent(allowed)} %"
        for allowed in gates
        if rate.total and rate.share > allowed
    ]


def training_sets(texts: Sequence[str]) -> list[AnySet]:
    """Open the sources; one alone is called train unless it is named."""
    from visleak.formats import open_images, parse_set
    from visleak.formats.addresses import redacted
    from visleak.formats.request import writable
    from visleak.formats.sides import Named, distinct_names
    from visleak.formats.sources import derived_name

    asked = []
    for text in texts:
        dataset, name, source = parse_set(text)
        names: tuple[str, ...] = (name,)
        if source == text:
            parent = Path(redacted(source).partition("#")[0]).resolve().parent.name
            names = (derived_name(source), f"{parent}/{derived_name(source)}")
            names = ("train", *names) if len(texts) == 1 else names
        names = tuple(writable(each) for each in names)
        asked.append(Named("--source", "training", writable(dataset), source, names))
    return [
        open_images(each.source, name=name, dataset=each.dataset, roles=(each.role,))
        for each, name in zip(asked, distinct_names(asked), strict=True)
    ]


# -- benchmark ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Triggers(General):
    """The prompts of ``benchmark``."""

    triggers: Path | None = option(
        None,
        f"Prompts that reproduce training images, with their sources: {FORMATS}, such as"
        " MemBench's SD1_final.csv.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option("the file of --triggers")
    references: Path | None = option(
        None,
        "The memorized images: files named like a prompt's sources (name, name without ending, or"
        " the last part of an address). Nothing is fetched. Default: sources that are paths beside"
        " the list of triggers.",
        metavar="DIR",
        panel=PROMPTS,
    )
    reference_map: Path | None = option(
        None,
        "The same by a table with the columns file and source (or prompt).",
        metavar="FILE.csv",
        panel=PROMPTS,
    )
    trigger_sample: int | None = option(
        None,
        "Number of trigger prompts, drawn by --seed. Default: all.",
        metavar="N",
        panel=PROMPTS,
    )
    general_sample: int | None = option(
        None, "Number of general prompts. Default: all.", metavar="N", panel=PROMPTS
    )


@dataclass(frozen=True)
class Measures(Options):
    """What images are measured by."""

    similarity: str = option(
        "builtin",
        "To the memorized images: sscd:FILE (MemBench), builtin (fingerprint, confirmed by"
        " verification), pixels, or another encoder.",
        metavar="SIMILARITY",
        panel=JUDGES,
    )
    clip: str | None = option(
        None,
        "CLIP score: a folder, OWNER/NAME on the hub, or open_clip:MODEL/WEIGHTS (MemBench:"
        " open_clip:ViT-g-14/laion2b_s12b_b42k).",
        metavar="CLIP",
        panel=JUDGES,
    )
    clip_text: str = option(
        "original",
        "CLIP score against original, the prompt as given; or augmented, with what RNA and RTA put"
        " in (MemBench's code).",
        metavar="original|augmented",
        panel=JUDGES,
    )
    aesthetic: Path | None = option(
        None,
        "Aesthetic score: weights of the linear head (sac+logos+ava1-l14-linearMSE.pth).",
        metavar="FILE",
        panel=JUDGES,
    )
    aesthetic_clip: str | None = option(
        None,
        "The CLIP that the head reads. Default: openai/clip-vit-large-patch14.",
        metavar="CLIP",
        panel=JUDGES,
    )
    std: str = option(
        "images",
        "Deviation of the aesthetic score in the tables: of images, of the means of prompts, or"
        " within a prompt; files have all.",
        metavar="images|prompts|within",
        panel=JUDGES,
    )
    fid_reference: str | None = option(
        None,
        "Real images, which those of the trigger prompts are compared with as a set (FID and"
        " kernel distance).",
        metavar="SOURCE",
        panel=JUDGES,
    )
    fid_features: str | None = option(
        None,
        "By whose features: inception:FILE (TorchScript), or an encoder such as dinov2.",
        metavar="FEATURES",
        panel=JUDGES,
    )
    reference_source: str | None = option(
        None,
        "Images to search for the trigger prompts: the reference performance, which a method"
        " should come down to. Needs --clip.",
        metavar="SOURCE",
        panel=JUDGES,
    )
    reference_count: int = option(
        100,
        "Images of SOURCE per prompt, of which the one with the best CLIP score counts.",
        metavar="N",
        panel=JUDGES,
    )

    def refuse_halves(self) -> None:
        """Refuse what lacks its other half, before anything is loaded.

        Raises:
            UsageError: something does.
        """
        if (self.fid_reference is None) != (self.fid_features is None):
            raise UsageError(
                "distances need both --fid-reference SOURCE, the real images, and --fid-features F,"
                " such as inception:FILE or dinov2"
            )
        if self.reference_source is not None and self.clip is None:
            raise UsageError("--reference-source keeps images by CLIP score: give --clip as well")
        if self.aesthetic_clip is not None and self.aesthetic is None:
            raise UsageError("--aesthetic-clip goes with --aesthetic FILE")

    def load(self, device: str, workers: int | None, progress: Progress) -> Judges:
        """Return the judges, their networks loaded."""
        from visleak.formats import open_image_set
        from visleak.memorization import metrics
        from visleak.memorization.benchmark import Judges, RealImages
        from visleak.memorization.extraction import load_similarity

        similarity = load_similarity(self.similarity)
        clip = None if self.clip is None else metrics.load_alignment(self.clip, device)
        aesthetic = real = source = None
        if self.aesthetic is not None:
            own = {} if self.aesthetic_clip is None else {"clip": self.aesthetic_clip}
            aesthetic = metrics.load_aesthetic(self.aesthetic, device=device, **own)
        if self.fid_reference is not None and self.fid_features is not None:
            features = metrics.load_features(self.fid_features, device=device)
            real = RealImages(open_image_set(self.fid_reference), features, progress)
        if self.reference_source is not None and clip is not None:
            source = metrics.FolderByPrompt(
                self.reference_source, clip, workers=workers, progress=progress
            )
        return Judges(similarity, clip, aesthetic, real, source)


@dataclass(frozen=True)
class Mitigating(Options):
    """Further options of ``benchmark``."""

    method: tuple[str, ...] = option(
        (),
        "rna:N, rta:N, wen:L or ren:C, options after a comma (wen:3,scope=batch). May be repeated;"
        " paper stands for all of table 3 (Stable Diffusion 1) or 5 (2). None is always included."
        " Default: paper; for other models none and rna, rta, ren of table 3, as far as the model"
        " can have them.",
        metavar="METHOD",
        panel=METHOD,
    )
    images: int = option(10, "Images per trigger prompt.", metavar="N", panel=IMAGES)
    general_images: int = option(1, "Images per general prompt.", metavar="N", panel=IMAGES)
    steps: int = option(50, "Steps of the sampler.", metavar="N", panel=IMAGES)
    guidance: float = option(7.5, "1 is none.", metavar="G", panel=IMAGES)
    batch: int = option(8, "Images made at a time.", metavar="N", panel=IMAGES)
    seed: int = option(
        0, "Of the noises, which all prompts and methods share.", metavar="N", panel=IMAGES, least=0
    )
    workers: int | None = option(None, "Worker processes.", metavar="N", panel=SPEED, least=1)
    sheets: bool = option(True, "Draw no sheet of the worst images.", "--no-sheets", panel=OUTPUT)
    leaderboard: Path | None = option(
        None,
        "Add the rows to a leaderboard, a JSON file that is created if need be.",
        metavar="FILE",
        panel=OUTPUT,
    )
    audit: Path | None = option(
        None,
        "An audit, such as traced/audit, whose report is to show the result.",
        metavar="AUDIT_DIR",
        panel=OUTPUT,
    )


def benchmark(
    model: OptionalModel,
    lists: Triggers,
    options: Mitigating,
    measures: Measures,
    result: Result,
    call: Call,
) -> Reply:
    """Measure what mitigations do against replaying, and what they cost in fit and quality.

    Every method makes images of the same noises: of trigger prompts, which replay training images,
    and of ordinary ones. Images and measurements are kept: an interrupted run resumes, and another
    method or judge makes only what is missing. Without --model, the finished benchmark in DIR is
    shown.
    """
    from visleak.memorization.benchmark import read_benchmark
    from visleak.memorization.benchmark.document import document
    from visleak.memorization.benchmark.leaderboard import table_beside

    out = result.folder("benchmark")
    if options.leaderboard is not None:
        table_beside(options.leaderboard)  # refused now rather than after hours
    if model.model is None and lists.triggers is None:
        allowed = {"out", "leaderboard", "audit", "json", "force"}
        if set(call.given) - allowed:
            raise _missing(None, "triggers")
        if not (out / "benchmark.json").is_file():
            raise UsageError(
                f"{out} holds no finished benchmark to show; give --model MODEL and --triggers"
                " FILE to make one, or to resume one"
            )
        found = read_benchmark(out)
    else:
        if model.model is None or lists.triggers is None:
            raise _missing(model.model, "triggers")
        found = _measured(model, model.model, lists, lists.triggers, options, measures, out,
                          call, force=result.force)  # fmt: skip
    notes = _publish(found, options.leaderboard, options.audit)
    file = out / "benchmark.json"
    return reply(document(found), file, notes=notes, rows=100, intervals=False)


def _measured(
    model: OptionalModel,
    name: str,
    lists: Triggers,
    file: Path,
    options: Mitigating,
    measures: Measures,
    out: Path,
    call: Call,
    *,
    force: bool,
) -> Benchmark:
    """Load, make images, measure, write."""
    from visleak.memorization.benchmark import Choices, Plan, references_of, sampled
    from visleak.memorization.benchmark import benchmark as measured
    from visleak.memorization.extraction.images import refuse_sampling, seeds_of
    from visleak.memorization.mitigate import mitigation
    from visleak.memorization.model import Sampling
    from visleak.memorization.prompt_files import read_prompts

    # what is quick to refuse comes before anything is loaded
    choices = Choices(measures.clip_text, measures.std, measures.reference_count, options.sheets)
    measures.refuse_halves()
    sampling = Sampling(options.steps, options.guidance, options.batch)
    refuse_sampling(sampling)
    for text in options.method:
        if text != "paper":
            mitigation(text)
    listed = read_prompts(file, column=lists.column)
    triggers, general = sampled(listed, lists.trigger_sample, options.seed), lists.read()
    if general is not None:
        general = sampled(general, lists.general_sample, options.seed)
        if measures.clip is None and measures.aesthetic is None:
            edges.note(
                "without --clip or --aesthetic nothing is measured of general prompts but seconds"
            )
    found = references_of(triggers, lists.references, lists.reference_map, beside=file.parent)
    # the model is the largest: a judge that is missing is reported before it is read
    judges = measures.load(model.device, options.workers, call.progress)
    loaded = model.load(name, call)
    methods, skipped = _methods(options.method, loaded, seeds_of(options.seed, options.images))
    plan = Plan(
        model=loaded,
        triggers=triggers,
        references=found,
        mitigations=methods,
        judges=judges,
        general=general,
        images=options.images,
        general_images=options.general_images,
        sampling=sampling,
        seed=options.seed,
        choices=choices,
        skipped=skipped,
    )
    return measured(plan, out, force=force, progress=call.progress, say=edges.note)


def _methods(
    texts: Sequence[str], model: DiffusionModel, seeds: Sequence[int]
) -> tuple[tuple[Mitigation, ...], tuple[str, ...]]:
    """Return the methods, none in front, and which usual ones the model cannot have."""
    from visleak.memorization.benchmark import with_none
    from visleak.memorization.mitigate import Unmitigated, mitigation, paper_settings, usual_methods

    if not texts:
        usual, skipped = usual_methods(model, seeds)
        return with_none(usual, Unmitigated()), skipped
    named = (each for t in texts for each in (paper_settings(model) if t == "paper" else (t,)))
    return with_none(list(dict.fromkeys(map(mitigation, named))), Unmitigated()), ()


def _publish(result: Benchmark, leaderboard: Path | None, audit: Path | None) -> tuple[str, ...]:
    """Add a result to a leaderboard, and to the report of an audit; return notes."""
    from visleak.memorization.benchmark import add_to
    from visleak.memorization.benchmark.document import SECTION, document
    from visleak.memorization.benchmark.leaderboard import leaderboard_markdown, table_beside
    from visleak.reporting import section
    from visleak.storage import write_text

    if audit is not None:
        from visleak.auditing import Audit
        from visleak.cli.pictures import show_in_report

        content = section(document(result, columns=1))
        show_in_report(Audit(audit), SECTION, content, private=False)
    if leaderboard is None:
        return ()
    table = table_beside(leaderboard)
    entries = add_to(leaderboard, result)
    write_text(table, leaderboard_markdown(entries))
    return (f"{leaderboard}: {len(entries):,} entries; {table}",)
