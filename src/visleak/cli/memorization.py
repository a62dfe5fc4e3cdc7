"""``visleak memorization``: its commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from visleak.cli import edges
from visleak.cli.command import Call, Reply
from visleak.errors import UsageError, VisleakError
from visleak.memorization.settings import (
    BUDGET,
    CLUSTERS,
    IMAGES,
    JUDGES,
    PROMPTS,
    SEARCH,
    WORDS,
    Analysis,
    AugmentSettings,
    BenchmarkSettings,
    Budget,
    Device,
    DiversifySettings,
    ExtractSettings,
    GibbsSettings,
    Guidance,
    LanguageModel,
    Model,
    OptionalModel,
    Sampling,
    ScoreSettings,
    SearchScore,
    TraceSettings,
    by_preset,
)
from visleak.options import (
    METHOD,
    OUTPUT,
    SPEED,
    Execution,
    Options,
    Printed,
    Replaced,
    argument,
    option,
    share,
)

if TYPE_CHECKING:
    from visleak.memorization.benchmark import Benchmark, Judges
    from visleak.memorization.mitigate import Mitigation
    from visleak.memorization.model import DiffusionModel, TokenModel
    from visleak.memorization.prompts import Prompts
    from visleak.memorization.search.driver import Progress, SearchTask
    from visleak.memorization.tracing import Trace
    from visleak.pipeline.context import Progress as Bar
    from visleak.reporting import Document

#: Files of prompts, as `read_prompts` takes them; named here, for help must not load pyarrow.
FORMATS: Final = ".csv, .tsv, .txt, .jsonl, .json, .parquet or .pickle"

#: Commands whose results are folders; their tables share names, so that each needs its own.
COMMANDS: Final = (
    *("detect", "search", "augment", "diversify", "extract", "trace", "compare", "dataset"),
    "benchmark",
)

NOTICE: Final = (
    "visleak memorization is for models that you are authorised to audit, and for evaluating"
    " mitigations. Outputs may be copyrighted or personal images: keep them private, do not publish"
    " or train on them, and respect the licences of models and lists of prompts"
    " (docs/memorization.md, Responsible use). (Shown once.)"
)

#: The only gate of ``trace``.
GATE: Final = "memorized"

memorization = typer.Typer(
    help="Memorized training images of text-to-image models.",
    rich_markup_mode="rich",
)


def say_once() -> None:
    """Print the notice once per user; a file in the cache folder records it."""
    from visleak.cache import default_folder

    folder = default_folder()
    shown = folder / "memorization-notice-1" if folder else None
    if shown is not None and shown.exists():
        return
    edges.note(NOTICE)
    if shown is not None:
        # a folder that cannot be written: the notice is shown again
        with suppress(OSError):
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.touch()


@memorization.callback(invoke_without_command=True)
def _memorization(context: typer.Context) -> None:
    # see evaluate_verb: waiting threads of torch spin on the cores that others need
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        edges.say(context.get_help() + "\n")
        return
    # a request for help is not a run
    if not {"--help", "-h"} & set(context.obj or ()):
        say_once()


# -- what several commands have -------------------------------------------------------------------


@dataclass(frozen=True)
class Result(Printed, Replaced):
    """The folder of a result."""

    out: Path | None = option(
        None,
        "Folder of the result. Default: visleak- and the name of the command.",
        "--output -o",
        metavar="DIR",
        panel=OUTPUT,
    )

    def folder(self, command: str) -> Path:
        """Return the folder.

        Raises:
            UsageError: it holds the result of another command, some of whose files would be
                replaced.
        """
        out = self.out or Path(f"visleak-{command}")
        for other in COMMANDS:
            if other != command and (out / f"{other}.json").is_file():
                raise UsageError(
                    f"{out} holds a result of visleak memorization {other}, whose tables would be"
                    " replaced; choose another folder with -o DIR"
                )
        return out


def column_option(file: str = "FILE") -> Any:
    """Return an option for the column of the prompts in a file."""
    return option(
        None,
        f"Column of the prompts in {file}. Default: prompt, caption or text.",
        metavar="COLUMN",
        panel=PROMPTS,
    )


def similarity_option(help: str, panel: str) -> Any:
    """Return an option for the similarity of generated images."""
    choices = "sscd:FILE (MemBench), pixels (correlation at 32 x 32), or another encoder."
    text = f"{help}: builtin (fingerprint, confirmed by verification), {choices}"
    return option("builtin", text, metavar="SIMILARITY", panel=panel)


def workers_option() -> Any:
    """Return an option for the worker processes of a command without a cache."""
    return option(None, "Worker processes.", metavar="N", panel=SPEED, least=1)


@dataclass(frozen=True)
class Listed(Options):
    """A list of prompts."""

    prompts: Path = option(
        ...,
        f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of detect; a"
        " column label names those that are memorized.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option()

    def read(self) -> Prompts:
        """Return the prompts."""
        from visleak.memorization.prompt_files import read_prompts

        return read_prompts(self.prompts, column=self.column)


@dataclass(frozen=True)
class General(Options):
    """A list of ordinary prompts."""

    general: Path | None = option(
        None,
        "Ordinary prompts, such as COCO's captions, in any of these formats: they set the"
        " threshold of detect, and are the cost of a mitigation.",
        metavar="FILE",
        panel=PROMPTS,
    )
    general_column: str | None = column_option("the file of --general")

    def read(self) -> Prompts | None:
        """Return the prompts.

        Raises:
            UsageError: a column was given without its file.
        """
        from visleak.memorization.prompt_files import read_prompts

        if self.general is None:
            if self.general_column is not None:
                raise UsageError("--general-column goes with --general FILE")
            return None
        try:
            return read_prompts(self.general, column=self.general_column)
        except VisleakError as error:
            # the column of this file has an option of its own
            raise type(error)(str(error).replace("--column", "--general-column")) from error


def reply(
    document: Document,
    file: Path,
    *,
    notes: tuple[str, ...] = (),
    more: tuple[Any, ...] = (),
    **table: Any,
) -> Reply:
    """Return the reply of a command: the summary of its result and the folder, or its JSON.

    Args:
        document: of the result.
        file: its JSON.
        notes: lines for stderr.
        more: lines after the folder.
        table: as of :func:`visleak.reporting.terminal`.
    """
    from visleak.reporting import terminal

    shown = (*terminal(document, **table), str(file.parent), *more)
    return Reply(shown, content=file, notes=notes)


def load(device: Device, name: str, call: Call) -> TokenModel:
    """Return the model of a name."""
    from visleak.memorization import models

    call.progress("loading the model", 0, 0)
    loaded = models.load_model(name, device=device.device, precision=device.precision)
    call.progress("loading the model", 1, 1)
    return loaded


def score_for(
    model: TokenModel, settings: ScoreSettings, call: Call, **usual: Any
) -> ScoreSettings:
    """Return the settings of D for a model.

    Args:
        model: whose D it is.
        settings: that were given.
        call: of the command.
        usual: values of settings that were not given.

    Raises:
        UsageError: the model was not trained on the timestep.
    """
    usual = {"batch": 128 if model.device.startswith("cuda") else 16, **usual}
    given = {name: value for name, value in usual.items() if name not in call.given}
    settings = replace(settings, **given)
    trained = model.about().get("train_timesteps")
    if settings.timestep != "first" and isinstance(trained, int):
        # the times of a flow run to the number itself, steps are counted from 0
        most = trained if model.prediction == "flow" else trained - 1
        if settings.timestep > most:
            raise UsageError(
                f"--timestep must be at most {most:,} for this model; got {settings.timestep}"
            )
    return settings


def _missing(model: str | None, file: str) -> UsageError:
    name = "model" if model is None else file
    return UsageError(f"--{name} is missing: give --model MODEL and --{file} FILE")


# -- detect ---------------------------------------------------------------------------------------


def detect(
    model: Model,
    prompts: Listed,
    analysis: Analysis,
    general: General,
    score: ScoreSettings,
    result: Result,
    call: Call,
) -> Reply:
    """Score prompts by D, and report which reach a threshold with a stated rate of false alarms.

    Writes tables sorted by D, figures and detect.json. An interrupted run resumes.
    """
    from visleak.memorization.detection import detect as detected
    from visleak.memorization.detection.document import document
    from visleak.memorization.scores import TriggerScore

    out = result.folder("detect")
    listed, ordinary = prompts.read(), general.read()
    loaded = load(model, model.model, call)
    found = detected(
        TriggerScore(loaded, score_for(loaded, score, call)),
        listed,
        out,
        general=ordinary,
        analysis=analysis,
        force=result.force,
        progress=call.progress,
        say=edges.note,
    )
    return reply(document(found), out / "detect.json")


# -- searches -------------------------------------------------------------------------------------


def _say(bar: Bar, step: str, calls: int | None) -> Callable[[Progress], None]:
    """Return what shows a search's progress, with the highest D so far."""
    last = [""]

    def say(progress: Progress) -> None:
        best = progress.best
        # a bar keeps its name: the best so far is reported in lines of its own
        if best is not None and best.prompt and best.prompt != last[0]:
            last[0] = best.prompt
            bar(f"highest D so far {best.score:.4g}: {best.prompt[:60]}", 0, 0)
        if calls is not None:
            bar(step, min(progress.calls, calls), calls)
        else:
            bar(step, progress.done, progress.total or 0)

    return say


def _task(
    loaded: TokenModel,
    score: ScoreSettings,
    step: str,
    budget: Budget,
    call: Call,
    chains: int = 1,
) -> SearchTask:
    """Return a search."""
    from visleak.memorization.scores import TriggerScore
    from visleak.memorization.search.driver import SearchTask

    say = _say(call.progress, step, budget.calls)
    return SearchTask(TriggerScore(loaded, score), chains, score.seed, budget, say=say)


def _keeps(out: Path) -> str:
    return f"finished steps are kept in {out}; the same command resumes"


def _norm(score: ScoreSettings, call: Call) -> Any:
    """Return the norm of D that was given; ``None`` leaves it to the preset."""
    return score.norm if "norm" in call.given else None


@dataclass(frozen=True)
class Searching(Options):
    """Further options of ``search``."""

    method: str = option(
        "gibbs",
        "gibbs (Algorithm 1), or random: strings of random words at the same cost; compare has"
        " more.",
        panel=SEARCH,
        choices=("gibbs", "random"),
    )
    chains: int = option(
        5,
        "Independent chains, which share passes of the network (the paper: 200).",
        metavar="N",
        panel=SEARCH,
        least=1,
    )


def search(
    model: Model,
    options: Searching,
    given: GibbsSettings,
    words: LanguageModel,
    budget: Budget,
    score: SearchScore,
    result: Result,
    call: Call,
) -> Reply:
    """Search for prompts of high D, word by word, from nothing but masks (Algorithm 1).

    Writes search.json, the best prompt of each chain, and a bank. An interrupted search resumes; so
    does one that its budget ended, with a larger one.
    """
    from visleak.memorization.model import version_of
    from visleak.memorization.search import presets, proposals
    from visleak.memorization.search.gibbs import GibbsSearch
    from visleak.memorization.search.lists import RandomSettings, RandomWords
    from visleak.memorization.search.run import document, search_into
    from visleak.memorization.settings import preset_of

    out, random = result.folder("search"), options.method == "random"
    preset, norm = preset_of(given), _norm(score, call)
    # random words have no temperature, and are only counted by kappa
    settings = by_preset(given, call.given, None if random else norm)
    if random:
        settings = replace(settings, norm=norm or settings.norm)
    rules = presets.rules_of(given.preset).banning(words.banned)
    call.kept = _keeps(out)
    loaded = load(model, model.model, call)
    if not random:
        presets.refuse_other_scale(loaded, preset, call.given)
    counted = settings.kappa
    fits = version_of(loaded) == presets.version_of_preset(given.preset)
    if random and "kappa" not in call.given and not (fits and settings.norm == preset.norm):
        edges.note("the preset's kappa is on another scale of D: chains are not counted by it")
        counted = None
    presets.refuse_longer(loaded, settings.length)
    timestep = presets.timestep_of(given.preset)
    d = score_for(loaded, score, call, norm=settings.norm, timestep=timestep)
    proposer = proposals.load_language_model(words.lm, rules=rules, device=loaded.device)
    found = search_into(
        RandomWords(proposer, RandomSettings(settings.length, keep=settings.keep))
        if random
        else GibbsSearch(proposer, settings),
        _task(loaded, d, "searching", budget, call, options.chains),
        out,
        kappa=counted,
        about=presets.about_preset(preset, settings, rules, d.timestep),
        force=result.force,
        say=edges.note,
    )
    return reply(document("search", found), out / "search.json", rows=20)


@dataclass(frozen=True)
class Triggers(Options):
    """The prompts of ``augment``."""

    triggers: Path = option(
        ...,
        f"The prompts to begin with: {FORMATS}, such as prompts.parquet of a search.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option()


def augment(
    model: Model,
    lists: Triggers,
    given: AugmentSettings,
    words: LanguageModel,
    budget: Budget,
    score: SearchScore,
    result: Result,
    call: Call,
) -> Reply:
    """Change known triggers word by word into many others of high D (Algorithm 2).

    Writes augment.json, the best prompts of each trigger, and the bank of all that were scored.
    """
    from visleak.memorization.prompt_files import read_prompts
    from visleak.memorization.search import presets, proposals
    from visleak.memorization.search.run import augment_into, document
    from visleak.memorization.settings import preset_of

    out, preset = result.folder("augment"), preset_of(given)
    settings = by_preset(given, call.given, _norm(score, call))
    rules = presets.rules_of(given.preset).banning(words.banned)
    listed = read_prompts(lists.triggers, column=lists.column)
    call.kept = _keeps(out)
    loaded = load(model, model.model, call)
    presets.refuse_other_scale(loaded, preset, call.given)
    timestep = presets.timestep_of(given.preset)
    d = score_for(loaded, score, call, norm=settings.norm, timestep=timestep)
    about = presets.about_preset(preset, settings, rules, d.timestep)
    made = augment_into(
        _task(loaded, d, "augmenting", budget, call),
        proposals.load_language_model(words.lm, rules=rules, device=loaded.device),
        listed,
        settings,
        out,
        about={**about, "origin": listed.origin},
        force=result.force,
        say=edges.note,
    )
    return reply(document("augment", made), out / "augment.json", rows=20)


def diversify(
    model: Model, prompts: Listed, settings: DiversifySettings, result: Result, call: Call
) -> Reply:
    """Pick prompts that are far from one another in the model's text encoder (Algorithm 3).

    Writes diversify.json and prompts.parquet, prompts.csv.
    """
    from visleak.memorization.prompt_files import read_values
    from visleak.memorization.search.run import TRIGGER, diversify_into, document

    out, listed = result.folder("diversify"), prompts.read()
    # a prompt that was made from several triggers has a row for each
    triggers: tuple[tuple[str, str], ...] = ()
    if settings.per_source:
        triggers = read_values(prompts.prompts, TRIGGER, column=prompts.column)
    made = diversify_into(
        load(model, model.model, call),
        listed,
        out,
        **vars(settings),
        triggers=triggers,
        force=result.force,
        say=edges.note,
    )
    return reply(document("diversify", made), out / "diversify.json", rows=20)


# -- compare --------------------------------------------------------------------------------------


def _number_or_paper(text: str) -> int | str:
    if text != "paper" and not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise UsageError(f"--iterations must be a whole number from 1, or paper; got {text!r}")
    return text if text == "paper" else int(text)


@dataclass(frozen=True)
class Compare(Options):
    """Options of ``compare``."""

    source: tuple[str, ...] = option(
        ...,
        "Training images, any SOURCE: only what is verified there counts. May be repeated.",
        metavar="[NAME=]SOURCE",
        panel=IMAGES,
    )
    methods: str = option(
        "gibbs,random",
        "Of gibbs (Algorithm 1), random, greedy, conzic, zerocap, pez.",
        metavar="METHOD,...",
        panel=SEARCH,
    )
    causal_lm: str | None = option(
        None,
        "Causal language model of zerocap, such as hub:openai-community/gpt2-medium: a folder, or"
        " hub:OWNER/NAME.",
        metavar="LM",
        panel=WORDS,
    )
    prompts: Path | None = option(
        None, f"The list that greedy scores: {FORMATS}.", metavar="FILE", panel=PROMPTS
    )
    column: str | None = column_option()
    length: int = option(8, "Words or tokens of a prompt.", metavar="N", panel=SEARCH, least=1)
    candidates: int | None = option(
        None,
        "Words that are tried at a position. Default: 200, zerocap 512.",
        metavar="Q",
        panel=SEARCH,
        least=1,
    )
    temperature: float | None = option(
        None,
        "Of gibbs, softmax(D / K). Default: 0.1 of the squared norm, for Stable Diffusion 1 alone.",
        metavar="K",
        panel=SEARCH,
    )
    iterations: int | str | None = option(
        None,
        "Moves of a chain, or paper: the number each method has there. Default: as many as the"
        " budget holds.",
        metavar="N|paper",
        panel=SEARCH,
        parse=_number_or_paper,
    )
    beams: int = option(5, "Of zerocap.", metavar="N", panel=SEARCH)
    chains: int = option(
        5, "Candidates of a method, at most (the paper: 200).", metavar="N", panel=BUDGET, least=1
    )
    seeds: int = option(
        1,
        "Runs of every method, with seeds from --seed on; two or more give intervals.",
        metavar="N",
        panel=BUDGET,
        least=1,
    )
    images: int = option(100, "Images per candidate.", metavar="N", panel=IMAGES, least=1)
    similarity: str = similarity_option("Similarity by which clusters are made", IMAGES)
    eps: float | None = option(
        None,
        "DBSCAN: distance of neighbours. Default: the similarity's own.",
        metavar="E",
        panel=IMAGES,
    )
    min_cluster: int = option(20, "Least images of a cluster.", metavar="N", panel=IMAGES, least=1)
    workers: int | None = workers_option()

    def listed(self, methods: Sequence[str]) -> Prompts | None:
        """Return the list of the method greedy, if one is given.

        Raises:
            UsageError: options exclude or need each other.
        """
        from visleak.memorization.prompt_files import read_prompts

        if self.prompts is None:
            if self.column is not None:
                raise UsageError("--column goes with --prompts FILE")
            return None
        if "greedy" not in methods:
            raise UsageError("--prompts is for greedy; add greedy to --methods, or leave it out")
        return read_prompts(self.prompts, column=self.column)


def compare(
    model: Model,
    options: Compare,
    guidance: Guidance,
    words: LanguageModel,
    budget: Budget,
    score: SearchScore,
    result: Result,
    call: Call,
) -> Reply:
    """Let searches for trigger prompts spend the same budget, and count what they find.

    A candidate counts when its images replay a training image: images are made, clustered and
    searched for in the sources. High D alone is not memorization.
    """
    from visleak.memorization import baselines
    from visleak.memorization.baselines.document import document
    from visleak.memorization.extraction import load_similarity
    from visleak.memorization.search.presets import refuse_longer
    from visleak.memorization.search.proposals import Rules, load_language_model
    from visleak.memorization.tracing.sources import training_sets

    out = result.folder("compare")
    names = [name.strip() for name in options.methods.split(",")]
    rules = Rules().banning(words.banned)
    listed = options.listed(names)
    settings = ExtractSettings(
        images=options.images,
        min_cluster=options.min_cluster,
        eps=options.eps,
        seed=score.seed,
    )
    settings.refuse_small()
    similarity = load_similarity(options.similarity)
    call.kept = _keeps(out)
    loaded = load(model, model.model, call)
    refuse_longer(loaded, options.length)
    d, device, causal = score_for(loaded, score, call), loaded.device, options.causal_lm
    moves: Any = "budget" if options.iterations is None else options.iterations
    means = baselines.Means(
        model=loaded,
        norm=d.norm,
        proposer=cache(partial(load_language_model, words.lm, rules=rules, device=device)),
        causal=None if causal is None else partial(baselines.load_causal, causal, device=device),
        prompts=listed,
        length=options.length,
        candidates=options.candidates,
        iterations=None if moves == "paper" else moves,
        temperature=options.temperature,
        beams=options.beams,
    )
    searchers = baselines.load_searchers(names, means)
    batch = score.batch if "batch" in call.given else 32 if device.startswith("cuda") else 8
    # a trace is by the same network where clusters are, and else by the project's own fingerprint
    by = options.similarity if options.similarity.startswith("sscd:") else ""
    verifier = baselines.TracedImages(
        loaded,
        training_sets(options.source),
        settings,
        Sampling(guidance.steps, guidance.guidance, batch),
        similarity,
        {"similarity": by},
        options.workers,
    )
    seeds = tuple(range(score.seed, score.seed + options.seeds))
    found = baselines.compare(
        baselines.Contest(loaded, d, budget, options.chains, seeds),
        searchers,
        verifier,
        out,
        force=result.force,
        progress=call.progress,
        say=edges.note,
    )
    columns = (
        *("method", "memorized images", "candidates with a cluster", "passes of the search"),
        *("passes of the images", "passes per image", "best D"),
    )
    return reply(document(found), out / "compare.json", columns=columns)


# -- dataset --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dataset(Options):
    """Options of ``dataset``."""

    prompts: tuple[Path, ...] = argument(
        (),
        f"Lists of prompts: {FORMATS}. Equal prompts are joined, with all they name. None with"
        " --trace: the traced prompts.",
        metavar="FILE",
    )
    column: str | None = column_option("the files")
    trace: tuple[Path, ...] = option(
        (),
        "A result of visleak memorization trace: its verified images make their prompts verified,"
        " and name their sources. May be repeated.",
        metavar="DIR",
    )
    verified_by: str | None = option(
        None,
        "Who verified a list of others, and how: its prompts that name an image enter.",
        metavar="TEXT",
    )
    unverified: bool = option(
        False, "Include unverified candidates; the file name and the datasheet state it."
    )


def dataset(options: Dataset, result: Result) -> Reply:
    """Write verified trigger prompts as a data set, with a datasheet and groups of shared images.

    Only prompts with a record of verification enter: a high D is none. No image is fetched or
    copied.
    """
    from visleak.memorization import prompt_files
    from visleak.memorization.prompt_files.dataset import headline
    from visleak.memorization.tracing import read_trace

    if not options.prompts and not options.trace:
        raise UsageError("dataset needs prompts: name a list of them, or --trace DIR")
    # what is quick to refuse comes first
    out = result.folder("dataset")
    found = [read_trace(folder) for folder in options.trace]
    lists = [prompt_files.read_prompts(path, column=options.column) for path in options.prompts]
    merged = prompt_files.joined([*lists, *map(prompt_files.prompts_of, found)])
    merged = prompt_files.traced(merged, *found)
    if options.verified_by is not None:
        merged = prompt_files.vouched(merged, options.verified_by)
    files = [*options.prompts, *(folder / "trace.json" for folder in options.trace)]
    made = prompt_files.write_prompts(
        merged,
        out,
        origins=[prompt_files.provenance_of(file) for file in files],
        unverified=options.unverified,
        force=result.force,
        say=edges.note,
    )
    lines = (
        headline(made),
        *(f"  verified by {name}: {count:,}" for name, count in made.verified_by.items()),
        *(f"  left out, {reason}: {count:,}" for reason, count in made.left_out.items()),
        *(f"  {note}" for note in made.notes),
        str(out),
    )
    return Reply(lines, content=out / "dataset.json")


# -- extract --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extract(Options):
    """Further options of ``extract``."""

    prompts: Path | None = option(
        None,
        f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of detect.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option()
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
    similarity: str = similarity_option("Similarity of images", CLUSTERS)
    recluster: bool = option(
        False, "Only cluster the images in DIR again, without a model.", panel=CLUSTERS
    )
    sheets: bool = option(True, "Draw no contact sheets of clusters.", "--no-sheets", panel=OUTPUT)


def extract(
    model: OptionalModel,
    options: Extract,
    given: ExtractSettings,
    sampling: Sampling,
    result: Result,
    call: Call,
) -> Reply:
    """Generate many images of each prompt, and cluster those that are nearly the same.

    A prompt whose images keep coming out the same may reproduce a training image: the medoid of
    each cluster is a candidate, which [bold]visleak memorization trace[/] searches for. Images are
    kept: interrupted runs resume, and other clusters need no new images.
    """
    from visleak.memorization import extraction
    from visleak.memorization.extraction.document import document
    from visleak.memorization.prompt_files import Choice, chosen, read_prompts, scores_of

    out, settings = result.folder("extract"), given.by_rule(call.given)
    notes: tuple[str, ...] = ()
    shared: dict[str, Any] = {"sheets": options.sheets, "progress": call.progress}
    if options.recluster:
        allowed = ("similarity", "eps", "min_samples", "min_cluster", "rule", "sheets")
        call.only_with("--recluster", ("recluster", "out", "json", "force", *allowed))
        found = extraction.reclustered(out, settings, similarity=options.similarity, **shared)
    else:
        # what is quick to refuse comes before the model is loaded
        settings.refuse_small()
        if model.model is None or options.prompts is None:
            raise _missing(model.model, "prompts")
        file = options.prompts
        choice = Choice(options.top, options.above_threshold_only)
        listed = chosen(read_prompts(file, column=options.column), file, choice)
        scores, notes = scores_of(listed, file), listed.notes
        measure = extraction.load_similarity(options.similarity)
        found = extraction.extract(
            load(model, model.model, call),
            listed.texts,
            settings,
            out,
            similarity=measure,
            sampling=sampling,
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
        raise UsageError(f"--fail-on must be memorized or memorized=RATE; got {text!r}")
    return share(rate) if equals else 0.0


@dataclass(frozen=True)
class Tracing(Options):
    """Further options of ``trace``."""

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
        panel="Training images",
    )
    unverified: bool = option(
        False,
        "There is no training set: list the images as unverified candidates.",
        panel="Training images",
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


def trace(
    options: Tracing, settings: TraceSettings, execution: Execution, result: Result, call: Call
) -> Reply:
    """Match generated images to training images.

    Writes the matches, and an audit folder whose pairs visleak review opens; run the command again
    to count the verdicts.
    """
    from visleak.auditing import Audit
    from visleak.memorization import tracing
    from visleak.memorization.tracing.document import SECTION, document
    from visleak.memorization.tracing.sources import AUDIT_FOLDER, training_sets
    from visleak.reporting import section
    from visleak.storage import AUDIT, REPORT

    gates = [_gate(text) for text in options.fail_on]
    out = result.folder("trace")
    if not options.source and not options.unverified:
        raise UsageError(
            "--source is missing: give the training images, or --unverified if they are not known"
        )
    found = tracing.trace(
        options.target,
        training_sets(options.source),
        out,
        settings,
        **execution.chosen(),
        device=options.device,
        progress=call.progress,
        force=result.force,
        command=call.line,
    )
    audit = out / AUDIT_FOLDER
    more: tuple[str, ...] = ()
    if (audit / AUDIT).is_file():
        _show(Audit(audit), SECTION, section(document(found)), private=options.no_images)
        more = (str(audit / REPORT), f"judge the pairs: visleak review {audit}")
    shown = reply(document(found), out / "trace.json", more=more)
    failed = tuple(_failures(gates, found))
    return Reply(shown.shown, shown.content, complaints=failed, code=3 if failed else 0)


def _show(audit: Any, name: str, content: Any, *, private: bool) -> None:
    from visleak.cli.page import show_in_report

    show_in_report(audit, name, content, private=private)


def _failures(gates: Sequence[float], result: Trace) -> list[str]:
    from visleak.stats import Rate, percent

    rate = Rate.of(len(result.verified), len(result.matches))
    return [
        f"gate {GATE}: {rate.count:,} of {rate.total:,} traced images ({percent(rate.share)} %)"
        f" count as memorized; allowed {percent(allowed)} %"
        for allowed in gates
        if rate.total and rate.share > allowed
    ]


# -- benchmark ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BenchmarkLists(General):
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

    similarity: str = similarity_option("Similarity to the memorized images", JUDGES)
    clip: str | None = option(
        None,
        "CLIP score: a folder, OWNER/NAME on the hub, or open_clip:MODEL/WEIGHTS (MemBench:"
        " open_clip:ViT-g-14/laion2b_s12b_b42k).",
        metavar="CLIP",
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

    def load(self, device: str, workers: int | None, progress: Bar) -> Judges:
        """Return the judges, their networks loaded."""
        from visleak.images import open_pictures
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
            real = RealImages(open_pictures(self.fid_reference), features, progress)
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
    workers: int | None = workers_option()
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
    lists: BenchmarkLists,
    options: Mitigating,
    settings: BenchmarkSettings,
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
        if set(call.given) - {"out", "leaderboard", "audit", "json", "force"}:
            raise _missing(None, "triggers")
        if not (out / "benchmark.json").is_file():
            raise UsageError(
                f"{out} holds no finished benchmark to show; give --model MODEL and --triggers"
                " FILE to make one, or to resume one"
            )
        found = read_benchmark(out)
    else:
        found = _measured(model, lists, options, settings, measures, out, call, force=result.force)
    notes = _publish(found, options.leaderboard, options.audit)
    file = out / "benchmark.json"
    return reply(document(found), file, notes=notes, rows=100, intervals=False)


def _measured(
    model: OptionalModel,
    lists: BenchmarkLists,
    options: Mitigating,
    settings: BenchmarkSettings,
    measures: Measures,
    out: Path,
    call: Call,
    *,
    force: bool,
) -> Benchmark:
    """Load, make images, measure, write."""
    from visleak.memorization import benchmark
    from visleak.memorization.extraction import seeds_of
    from visleak.memorization.mitigate import mitigation
    from visleak.memorization.prompt_files import read_prompts

    if model.model is None or lists.triggers is None:
        raise _missing(model.model, "triggers")
    # what is quick to refuse comes before anything is loaded
    measures.refuse_halves()
    for text in options.method:
        if text != "paper":
            mitigation(text)
    listed = read_prompts(lists.triggers, column=lists.column)
    triggers = benchmark.sampled(listed, lists.trigger_sample, settings.seed)
    general = lists.read()
    if general is not None:
        general = benchmark.sampled(general, lists.general_sample, settings.seed)
        if measures.clip is None and measures.aesthetic is None:
            edges.note(
                "without --clip or --aesthetic nothing is measured of general prompts but seconds"
            )
    found = benchmark.references_of(
        triggers, lists.references, lists.reference_map, beside=lists.triggers.parent
    )
    # the model is the largest: a judge that is missing is reported before it is read
    judges = measures.load(model.device, options.workers, call.progress)
    loaded = load(model, model.model, call)
    seeds = seeds_of(settings.seed, settings.images)
    methods, skipped = _methods(options.method, loaded, seeds)
    plan = benchmark.Plan(
        model=loaded,
        triggers=triggers,
        references=found,
        mitigations=methods,
        judges=judges,
        general=general,
        settings=settings,
        skipped=skipped,
    )
    return benchmark.benchmark(plan, out, force=force, progress=call.progress, say=edges.note)


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

        _show(Audit(audit), SECTION, section(document(result, columns=1)), private=False)
    if leaderboard is None:
        return ()
    table = table_beside(leaderboard)
    entries = add_to(leaderboard, result)
    write_text(table, leaderboard_markdown(entries))
    return (f"{leaderboard}: {len(entries):,} entries; {table}",)
