"""Commands about prompts: ``detect``, ``search``, ``augment``, ``diversify``, ``compare``,
``dataset``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from visleak.cli import edges
from visleak.cli.command import Call, Reply
from visleak.cli.memorization import (
    FORMATS,
    IMAGES,
    PROMPTS,
    SCORE,
    General,
    Model,
    Result,
    Score,
    column_option,
    reply,
)
from visleak.errors import UsageError
from visleak.options import SPEED, Options, argument, option, share

if TYPE_CHECKING:
    from visleak.memorization import Prompts
    from visleak.memorization.model import TokenModel
    from visleak.memorization.search.driver import Progress
    from visleak.memorization.search.proposals import Proposer, Rules
    from visleak.pipeline.context import Progress as Bar

SEARCH: Final = "Search"
WORDS: Final = "Words"
BUDGET: Final = "Budget"


def kappa_or_none(text: str) -> float | str:
    """Return a number, or ``none``."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if text != "none" and not abs(value) < float("inf"):
        raise UsageError(f"--kappa is a number, or none; got {text!r}")
    return text if text == "none" else value


def rounds_or_none(text: str) -> int | str:
    """Return a whole number, or ``none``."""
    if text != "none" and not (text.isascii() and text.isdecimal()):
        raise UsageError(f"--rounds is a whole number, or none; got {text!r}")
    return text if text == "none" else int(text)


def number_or_paper(text: str) -> int | str:
    """Return a whole number, or ``paper``."""
    if text != "paper" and not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise UsageError(f"--iterations is a whole number from 1, or paper; got {text!r}")
    return text if text == "paper" else int(text)


# -- detect ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detect(Options):
    """Options of ``detect``."""

    prompts: Path = option(
        ...,
        f"The prompts: {FORMATS}; a column label names those that are memorized.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option("FILE")
    fpr: float = option(
        0.01,
        "Share of ordinary prompts that may reach the threshold.",
        metavar="RATE",
        panel=SCORE,
        parse=share,
    )
    bounded: bool = option(
        False,
        "Not the share seen but its 95 % upper bound is at most RATE (1% needs 299 ordinary"
        " prompts).",
        panel=SCORE,
    )
    threshold: float | None = option(
        None,
        "A threshold that was set before, by the same model and settings.",
        metavar="D",
        panel=SCORE,
    )
    tokens: int = option(
        0,
        "Attribute D to the tokens of the K prompts of the largest D.",
        metavar="K",
        panel=SCORE,
        least=0,
    )
    tokens_by: str = option(
        "gradient",
        "gradient (Wen et al. 2024), or leave-one-out (D without each word; any model).",
        panel=SCORE,
        choices=("gradient", "leave-one-out"),
    )


def detect(
    model: Model, options: Detect, general: General, score: Score, result: Result, call: Call
) -> Reply:
    """Score prompts by D, and report which reach a threshold with a stated rate of false alarms.

    Writes tables sorted by D, figures and detect.json. An interrupted run resumes.
    """
    from visleak.memorization.detection import Analysis
    from visleak.memorization.detection import detect as detected
    from visleak.memorization.detection.document import document
    from visleak.memorization.prompt_files import read_prompts
    from visleak.memorization.scores import TriggerScore

    out = result.folder("detect")
    if options.threshold is not None and options.bounded:
        raise UsageError("--bounded sets a threshold by --fpr, --threshold gives one; choose one")
    analysis = Analysis(
        options.fpr, options.bounded, options.threshold, options.tokens, options.tokens_by
    )
    listed, ordinary = read_prompts(options.prompts, column=options.column), general.read()
    loaded = model.loaded(call)
    found = detected(
        TriggerScore(loaded, score.settings(loaded, "l2")),
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


@dataclass(frozen=True)
class Words(Options):
    """The language model that proposes words."""

    lm: str | None = option(
        None,
        "Masked language model that proposes words: a folder, or hub:OWNER/NAME. Default:"
        " hub:google-bert/bert-base-uncased, fetched once.",
        metavar="LM",
        panel=WORDS,
    )
    banned: str | None = option(
        None,
        "Words that are never proposed: none, own (colours, landscapes: they raise D without"
        " memorization) or a file, one per line. Default: none; own with --preset official-code.",
        metavar="none|own|FILE",
        panel=WORDS,
    )

    def load(self, rules: Rules, model: TokenModel) -> Proposer:
        """Return the language model, on the device of the diffusion model."""
        from visleak.memorization.search import proposals

        return proposals.load_language_model(
            self.lm or proposals.DEFAULT, rules=rules, device=model.device
        )


@dataclass(frozen=True)
class Limits(Options):
    """The budget of a search."""

    max_calls: int | None = option(
        None,
        "Passes of the diffusion network at most, all chains together; compare: per run of a"
        " method, images of its candidates not included.",
        metavar="N",
        panel=BUDGET,
        least=1,
    )
    max_seconds: float | None = option(
        None, "Seconds at most, over all runs of a resumed search.", metavar="S", panel=BUDGET
    )


def _say(bar: Bar, step: str, calls: int | None) -> Callable[[Progress], None]:
    """Return what shows a search's progress, with the highest D so far."""
    last = [""]

    def say(progress: Progress) -> None:
        best = progress.best
        # a bar has one name for its life: the best so far is reported in lines of its own
        if best is not None and best.prompt and best.prompt != last[0]:
            last[0] = best.prompt
            bar(f"highest D so far {best.score:.4g}: {best.prompt[:60]}", 0, 0)
        if calls is not None:
            bar(step, min(progress.calls, calls), calls)
        else:
            bar(step, progress.done, progress.total or 0)

    return say


def _keeps(out: Path) -> str:
    return f"finished steps are kept in {out}; the same command resumes"


def _changed(preset: Any, **given: Any) -> tuple[Any, set[str]]:
    """Return a preset's settings with what was given, and the names of that.

    Raises:
        UsageError: a norm was given that is not the preset's, without constants on its scale.
    """
    known = {name: value for name, value in given.items() if value is not None}
    values = {name: None if value == "none" else value for name, value in known.items()}
    norm = known.get("norm", preset.norm)
    missing = [f"--{name}" for name in ("temperature", "kappa") if name not in known]
    if norm != preset.norm and missing:
        raise UsageError(
            f"--norm {norm} needs {' and '.join(missing)}: the preset's are on the {preset.norm}"
            " scale, and cannot be converted"
        )
    return replace(preset, **values), set(known)


@dataclass(frozen=True)
class Moves(Options):
    """Options of ``search`` and ``augment``."""

    iterations: int | None = option(
        None,
        "Moves of a chain. Default: by preset; paper 150 for search, 20 for augment.",
        metavar="N",
        panel=SEARCH,
        least=1,
    )
    candidates: int | None = option(
        None,
        "Words that are tried at a position, the most probable. Default: 200.",
        metavar="Q",
        panel=SEARCH,
        least=1,
    )
    temperature: float | None = option(
        None,
        "Of the draw among them, softmax(D / K): lower is greedier. On the scale of D of the"
        " model: the default is of Stable Diffusion 1. Default: by preset; paper 0.1 for search,"
        " 1.5 for augment.",
        metavar="K",
        panel=SEARCH,
    )


@dataclass(frozen=True)
class Search(Options):
    """Options of ``search``."""

    preset: str = option(
        "paper",
        "paper or official-code; their differences are in docs/memorization.md.",
        metavar="PRESET",
        panel=SEARCH,
    )
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
    length: int | None = option(
        None, "Word pieces of a prompt. Default: 8.", metavar="N", panel=SEARCH, least=1
    )
    kappa: float | str | None = option(
        None,
        "A chain ends after a round whose best has it; none: after one round. On the scale of D"
        " of the model, as --temperature. Default: by preset; paper 5.",
        metavar="D|none",
        panel=SEARCH,
        parse=kappa_or_none,
    )
    rounds: int | str | None = option(
        None,
        "Rounds of a chain at most; none: until kappa or the budget. Default: by preset; paper 10.",
        metavar="N|none",
        panel=SEARCH,
        parse=rounds_or_none,
    )
    keep: int | None = option(
        None, "Prompts in bank.parquet, those of the highest D. Default: 1000.", metavar="N",
        panel=SEARCH, least=1,
    )  # fmt: skip


def search(
    model: Model,
    options: Search,
    moves: Moves,
    words: Words,
    limits: Limits,
    score: Score,
    result: Result,
    call: Call,
) -> Reply:
    """Search for prompts of high D, word by word, from nothing but masks (Algorithm 1).

    Writes search.json, the best prompt of each chain, and a bank. An interrupted search resumes; so
    does one that its budget ended, with a larger one.
    """
    from visleak.memorization.model import version_of
    from visleak.memorization.scores import TriggerScore
    from visleak.memorization.search import settings as presets
    from visleak.memorization.search.driver import Budget, Searcher, SearchTask
    from visleak.memorization.search.gibbs import GibbsSearch
    from visleak.memorization.search.lists import RandomSettings, RandomWords
    from visleak.memorization.search.run import document, search_into

    out, random = result.folder("search"), options.method == "random"
    preset = presets.search_preset(options.preset)
    given = {
        **vars(moves),
        **{name: getattr(options, name) for name in ("length", "kappa", "rounds", "keep")},
    }
    if random:
        # random words have no temperature, and are only counted by kappa
        norm = score.norm or preset.norm
        settings, known = replace(_changed(preset, **given)[0], norm=norm), {"temperature"}
    else:
        settings, known = _changed(preset, **given, norm=score.norm)
    rules = presets.rules_of(options.preset).banning(words.banned)
    budget = Budget(limits.max_calls, limits.max_seconds)
    call.kept = _keeps(out)
    loaded = model.loaded(call)
    if not random:
        presets.refuse_other_scale(loaded, preset, known)
    fits = version_of(loaded) == presets.version_of_preset(options.preset)
    counted = settings.kappa
    if random and options.kappa is None and not (fits and settings.norm == preset.norm):
        edges.note("the preset's kappa is on another scale of D: chains are not counted by it")
        counted = None
    presets.refuse_longer(loaded, settings.length)
    d = score.settings(loaded, settings.norm, presets.timestep_of(options.preset))
    proposer = words.load(rules, loaded)
    searcher: Searcher = GibbsSearch(proposer, settings)
    if random:
        searcher = RandomWords(proposer, RandomSettings(settings.length, keep=settings.keep))
    say = _say(call.progress, "searching", limits.max_calls)
    found = search_into(
        searcher,
        SearchTask(TriggerScore(loaded, d), options.chains, score.seed, budget, say=say),
        out,
        kappa=counted,
        about=presets.about_preset(preset, settings, rules, d.timestep),
        force=result.force,
        say=edges.note,
    )
    return reply(document("search", found), out / "search.json", rows=20)


@dataclass(frozen=True)
class Augment(Options):
    """Options of ``augment``."""

    triggers: Path = option(
        ...,
        f"The prompts to begin with: {FORMATS}, such as prompts.parquet of a search.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option("FILE")
    preset: str = option(
        "paper",
        "paper (SD1), paper-sd2 or official-code: see docs/memorization.md.",
        metavar="PRESET",
        panel=SEARCH,
    )
    kappa: float | None = option(
        None,
        "A chain that stays below it is stopped. Default: by preset; paper 3.",
        metavar="D",
        panel=SEARCH,
    )
    patience: int | None = option(
        None, "Moves in a row that may end below kappa. Default: 3.", metavar="S", panel=SEARCH
    )
    repeats: int | None = option(
        None,
        "Runs of all chains for each trigger. Default: by preset; paper 1.",
        metavar="N",
        panel=SEARCH,
    )
    top: int | None = option(
        None,
        "Prompts kept of each trigger. Default: by preset; paper 100.",
        metavar="T",
        panel=SEARCH,
    )
    floor: float | None = option(
        None,
        "Drop prompts with a mean D below. Default: by preset; paper none.",
        metavar="D",
        panel=SEARCH,
    )


def augment(
    model: Model,
    options: Augment,
    moves: Moves,
    words: Words,
    limits: Limits,
    score: Score,
    result: Result,
    call: Call,
) -> Reply:
    """Change known triggers word by word into many others of high D (Algorithm 2).

    Writes augment.json, the best prompts of each trigger, and the bank of all that were scored.
    """
    from visleak.memorization.prompt_files import read_prompts
    from visleak.memorization.scores import TriggerScore
    from visleak.memorization.search import settings as presets
    from visleak.memorization.search.driver import Budget, SearchTask
    from visleak.memorization.search.run import augment_into, document

    out, preset = result.folder("augment"), presets.augment_preset(options.preset)
    names = ("kappa", "patience", "repeats", "top", "floor")
    own = {name: getattr(options, name) for name in names}
    settings, known = _changed(preset, **vars(moves), **own, norm=score.norm)
    rules = presets.rules_of(options.preset).banning(words.banned)
    budget = Budget(limits.max_calls, limits.max_seconds)
    listed = read_prompts(options.triggers, column=options.column)
    call.kept = _keeps(out)
    loaded = model.loaded(call)
    presets.refuse_other_scale(loaded, preset, known)
    d = score.settings(loaded, settings.norm, presets.timestep_of(options.preset))
    say = _say(call.progress, "augmenting", limits.max_calls)
    about = presets.about_preset(preset, settings, rules, d.timestep)
    made = augment_into(
        SearchTask(TriggerScore(loaded, d), seed=score.seed, budget=budget, say=say),
        words.load(rules, loaded),
        listed,
        settings,
        out,
        about={**about, "origin": listed.origin},
        force=result.force,
        say=edges.note,
    )
    return reply(document("augment", made), out / "augment.json", rows=20)


@dataclass(frozen=True)
class Diversify(Options):
    """Options of ``diversify``."""

    prompts: Path = option(
        ...,
        f"The bank: {FORMATS}, such as prompts.parquet of augment.",
        metavar="FILE",
        panel=PROMPTS,
    )
    column: str | None = column_option("FILE")
    count: int = option(20, "Prompts to pick.", metavar="N", least=1)
    per_source: bool = option(
        False, "Pick N for each prompt of the column trigger, which augment writes (the paper)."
    )
    seed: int = option(0, "Of the first pick.", metavar="N", least=0)


def diversify(model: Model, options: Diversify, result: Result, call: Call) -> Reply:
    """Pick prompts that are far from one another in the model's text encoder (Algorithm 3).

    Writes diversify.json and prompts.parquet, prompts.csv.
    """
    from visleak.memorization.prompt_files import read_prompts, read_values
    from visleak.memorization.search.run import TRIGGER, diversify_into, document

    out = result.folder("diversify")
    listed = read_prompts(options.prompts, column=options.column)
    # a prompt that was made from several triggers has a row for each
    triggers: tuple[tuple[str, str], ...] = ()
    if options.per_source:
        triggers = read_values(options.prompts, TRIGGER, column=options.column)
    made = diversify_into(
        model.loaded(call),
        listed,
        out,
        count=options.count,
        per_source=options.per_source,
        triggers=triggers,
        seed=options.seed,
        force=result.force,
        say=edges.note,
    )
    return reply(document("diversify", made), out / "diversify.json", rows=20)


# -- compare --------------------------------------------------------------------------------------


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
    column: str | None = column_option("FILE")
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
        parse=number_or_paper,
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
    images: int | None = option(
        None, "Images per candidate. Default: 100.", metavar="N", panel=IMAGES
    )
    steps: int = option(50, "Steps of the sampler.", metavar="N", panel=IMAGES)
    guidance: float = option(7.5, "1 is none.", metavar="G", panel=IMAGES)
    similarity: str = option(
        "builtin",
        "Clusters are made by builtin, sscd:FILE (MemBench), pixels or another encoder.",
        metavar="SIMILARITY",
        panel=IMAGES,
    )
    eps: float | None = option(
        None,
        "DBSCAN: distance of neighbours. Default: the similarity's own.",
        metavar="E",
        panel=IMAGES,
    )
    min_cluster: int | None = option(
        None, "Least images of a cluster. Default: 20.", metavar="N", panel=IMAGES
    )
    workers: int | None = option(None, "Worker processes.", metavar="N", panel=SPEED, least=1)


def compare(
    model: Model,
    options: Compare,
    words: Words,
    limits: Limits,
    score: Score,
    result: Result,
    call: Call,
) -> Reply:
    """Let searches for trigger prompts spend the same budget, and count what they find.

    A candidate counts when its images replay a training image: images are made, clustered and
    looked up in the sources. High D alone is not memorization.
    """
    from visleak.cli.memorization_images import training_sets
    from visleak.memorization.baselines import (
        Contest,
        Means,
        TracedImages,
        load_causal,
        load_searchers,
    )
    from visleak.memorization.baselines import compare as compared
    from visleak.memorization.baselines.document import document
    from visleak.memorization.extraction import ExtractSettings, load_similarity
    from visleak.memorization.model import Sampling
    from visleak.memorization.search.driver import Budget
    from visleak.memorization.search.proposals import Rules
    from visleak.memorization.search.settings import refuse_longer

    out = result.folder("compare")
    names = [name.strip() for name in options.methods.split(",")]
    rules = Rules().banning(words.banned)
    budget = Budget(limits.max_calls, limits.max_seconds)
    listed = _greedy_prompts(options, names)
    settings = ExtractSettings.by(
        "paper",
        images=options.images,
        min_cluster=options.min_cluster,
        eps=options.eps,
        seed=score.seed,
    )
    similarity = load_similarity(options.similarity)
    call.kept = _keeps(out)
    loaded = model.loaded(call)
    refuse_longer(loaded, options.length)
    d = score.settings(loaded, "squared")
    causal = options.causal_lm
    moves: Any = "budget" if options.iterations is None else options.iterations
    means = Means(
        model=loaded,
        norm=d.norm,
        proposer=cache(lambda: words.load(rules, loaded)),
        causal=None if causal is None else lambda: load_causal(causal, device=loaded.device),
        prompts=listed,
        length=options.length,
        candidates=options.candidates,
        iterations=None if moves == "paper" else moves,
        temperature=options.temperature,
        beams=options.beams,
    )
    searchers = load_searchers(names, means)
    batch = score.batch or (32 if loaded.device.startswith("cuda") else 8)
    # a trace is by the same network where clusters are, and else by the project's own fingerprint
    by = options.similarity if options.similarity.startswith("sscd:") else ""
    verifier = TracedImages(
        loaded,
        training_sets(options.source),
        settings,
        Sampling(options.steps, options.guidance, batch),
        similarity,
        {"similarity": by, "workers": options.workers},
    )
    seeds = tuple(range(score.seed, score.seed + options.seeds))
    found = compared(
        Contest(loaded, d, budget, options.chains, seeds),
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


def _greedy_prompts(options: Compare, methods: Sequence[str]) -> Prompts | None:
    """Return the list of the method greedy, if one is given.

    Raises:
        UsageError: options exclude or need each other.
    """
    from visleak.memorization.prompt_files import read_prompts

    if options.prompts is None:
        if options.column is not None:
            raise UsageError("--column goes with --prompts FILE")
        return None
    if "greedy" not in methods:
        raise UsageError("--prompts is for greedy; add greedy to --methods, or leave it out")
    return read_prompts(options.prompts, column=options.column)


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
    from visleak.memorization.prompt_files import (
        joined,
        prompts_of,
        provenance_of,
        read_prompts,
        traced,
        vouched,
        write_prompts,
    )
    from visleak.memorization.prompt_files.dataset import headline
    from visleak.memorization.tracing import read_trace

    if not options.prompts and not options.trace:
        raise UsageError("dataset needs prompts: name a list of them, or --trace DIR")
    # what is quick to refuse comes first
    out = result.folder("dataset")
    found = [read_trace(folder) for folder in options.trace]
    lists = [read_prompts(path, column=options.column) for path in options.prompts]
    merged = traced(joined([*lists, *map(prompts_of, found)]), *found)
    if options.verified_by is not None:
        merged = vouched(merged, options.verified_by)
    files = [*options.prompts, *(folder / "trace.json" for folder in options.trace)]
    made = write_prompts(
        merged,
        out,
        origins=[provenance_of(file) for file in files],
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
