"""``visleak memorization``: its commands."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from visleak.cli import edges
from visleak.cli.command import Call, Reply
from visleak.errors import UsageError
from visleak.memorization import Guidance, Sampling, inputs
from visleak.memorization.settings import (
    Analysis,
    AugmentSettings,
    BenchmarkSettings,
    Budget,
    DiversifySettings,
    ExtractSettings,
    GibbsSettings,
    LanguageModel,
    ScoreSettings,
    SearchScore,
    TraceSettings,
    by_preset,
)
from visleak.options import Execution, Printed, Replaced, output

if TYPE_CHECKING:
    from visleak.memorization import TokenModel
    from visleak.memorization.benchmark import Plan
    from visleak.memorization.search.driver import SearchTask
    from visleak.reporting import Document

#: Gate on the share of traced images that count as memorized.
MEMORIZED: Final = "memorized"
NOTICE: Final = (
    "visleak memorization is for models that you are authorised to audit, and for evaluating"
    " mitigations. Outputs may be copyrighted or personal images: keep them private, do not publish"
    " or train on them, and respect the licences of models and lists of prompts"
    " (docs/memorization.md, Responsible use). (Shown once.)"
)


def show_notice() -> None:
    """Print the notice once per user; a file in the cache folder records it."""
    from visleak.storage.cache import default_folder

    folder = default_folder()
    shown = folder and folder / "memorization-notice-1"
    if shown and shown.exists():
        return
    edges.note(NOTICE)
    # a folder that cannot be written: the notice is shown again
    with suppress(OSError):
        if shown:
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.touch()


@dataclass(frozen=True)
class Result(Printed, Replaced):
    """The folder of a result."""

    out: Path | None = output(
        None, "Folder of the result. Default: visleak- and the name of the command."
    )

    def folder(self, command: str, sources: Iterable[tuple[str, str]] = ()) -> Path:
        """Return the folder; refuse one among the sources (name, place)."""
        from visleak.storage import refuse_foreign, refuse_inputs

        out = self.out or Path(f"visleak-{command}")
        refuse_inputs(out, sources, Path())
        refuse_foreign(out, f"{command}.json")
        return out

    def shared(self, **more: object) -> dict[str, Any]:
        """Return what all runs take: whether an earlier result is replaced, and where notes go."""
        return {"force": self.force, "note": edges.note, **more}


def reply(
    document: Document,
    file: Path,
    *,
    notes: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
    **table: Any,
) -> Reply:
    """Return the reply of a command: the summary of its result and the folder, or its JSON."""
    from visleak.reporting import terminal

    shown = (*terminal(document, **table), str(file.parent), *more)
    return Reply(shown, content=file, notes=notes)


def _missing(model: str | None, file: str) -> UsageError:
    name = "model" if model is None else file
    return UsageError(f"--{name} is missing: give --model MODEL and --{file} FILE")


def detect(
    model: inputs.Model,
    prompts: inputs.PromptList,
    analysis: Analysis,
    general: inputs.General,
    score: ScoreSettings,
    result: Result,
    call: Call,
) -> Reply:
    """Score prompts by D, and report which reach a threshold with a stated rate of false alarms.

    Writes tables sorted by D, figures and detect.json. An interrupted run resumes.
    """
    from visleak.memorization.detection import detect as detected
    from visleak.memorization.detection.document import document
    from visleak.memorization.scores import TriggerScore, score_for

    out = result.folder("detect")
    listed, ordinary = prompts.read(), general.read()
    loaded = model.load(model.model, call.progress)
    d = TriggerScore(loaded, score_for(loaded, score, call.given))
    shared = result.shared(progress=call.progress)
    found = detected(d, listed, out, general=ordinary, analysis=analysis, **shared)
    return reply(document(found), out / "detect.json")


def _task(
    loaded: TokenModel, score: ScoreSettings, step: str, budget: Budget, call: Call, chains: int = 1
) -> SearchTask:
    from visleak.memorization.scores import TriggerScore
    from visleak.memorization.search.driver import SearchTask, shown_by

    progress = shown_by(call.progress, step, budget.calls)
    return SearchTask(TriggerScore(loaded, score), chains, score.seed, budget, progress=progress)


def _keeps(out: Path) -> str:
    return f"finished steps are kept in {out}; the same command resumes"


def search(
    model: inputs.Model,
    options: inputs.SearchOptions,
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
    from visleak.memorization import version_of
    from visleak.memorization.scores import score_for
    from visleak.memorization.search import gibbs
    from visleak.memorization.search.methods import RandomSettings, RandomWords
    from visleak.memorization.search.proposals import load_language_model
    from visleak.memorization.search.run import document, search_into
    from visleak.memorization.settings import preset_of

    out, random = result.folder("search"), options.method == "random"
    # a norm that is not given is left to the preset
    preset, norm = preset_of(given), score.norm if "norm" in call.given else None
    # random words have no temperature, and are only counted by kappa
    settings = by_preset(given, call.given, None if random else norm)
    if random:
        settings = replace(settings, norm=norm or settings.norm)
    rules = gibbs.rules_of(given.preset).banning(words.banned)
    call.kept = _keeps(out)
    loaded = model.load(model.model, call.progress)
    if not random:
        gibbs.refuse_other_scale(loaded, preset, call.given)
    counted = settings.kappa
    fits = version_of(loaded) == gibbs.version_of_preset(given.preset)
    if random and "kappa" not in call.given and not (fits and settings.norm == preset.norm):
        edges.note("the preset's kappa is on another scale of D: chains are not counted by it")
        counted = None
    gibbs.refuse_longer(loaded, settings.length)
    d = score_for(loaded, score, call.given, settings.norm, gibbs.timestep_of(settings))
    proposer = load_language_model(words.lm, rules=rules, device=loaded.device)
    found = search_into(
        RandomWords(proposer, RandomSettings(settings.length, keep=settings.keep))
        if random
        else gibbs.GibbsSearch(proposer, settings),
        _task(loaded, d, "searching", budget, call, options.chains),
        out,
        kappa=counted,
        about=gibbs.about_preset(settings, rules, d.timestep),
        **result.shared(),
    )
    return reply(document("search", found), out / "search.json", rows=20)


def augment(
    model: inputs.Model,
    lists: inputs.Triggers,
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
    from visleak.memorization.scores import score_for
    from visleak.memorization.search import gibbs
    from visleak.memorization.search.proposals import load_language_model
    from visleak.memorization.search.run import augment_into, document
    from visleak.memorization.settings import preset_of

    out = result.folder("augment")
    settings = by_preset(given, call.given, score.norm if "norm" in call.given else None)
    rules = gibbs.rules_of(given.preset).banning(words.banned)
    listed = read_prompts(lists.triggers, column=lists.column)
    call.kept = _keeps(out)
    loaded = model.load(model.model, call.progress)
    gibbs.refuse_other_scale(loaded, preset_of(given), call.given)
    d = score_for(loaded, score, call.given, settings.norm, gibbs.timestep_of(settings))
    proposer = load_language_model(words.lm, rules=rules, device=loaded.device)
    made = augment_into(
        _task(loaded, d, "augmenting", budget, call),
        proposer,
        listed,
        settings,
        out,
        about={**gibbs.about_preset(settings, rules, d.timestep), "origin": listed.origin},
        **result.shared(),
    )
    return reply(document("augment", made), out / "augment.json", rows=20)


def diversify(
    model: inputs.Model,
    prompts: inputs.PromptList,
    settings: DiversifySettings,
    result: Result,
    call: Call,
) -> Reply:
    """Pick prompts that are far from one another in the model's text encoder (Algorithm 3).

    Writes diversify.json and prompts.parquet, prompts.csv.
    """
    from visleak.memorization.prompt_files import read_values
    from visleak.memorization.search.run import TRIGGER, diversify_into, document

    out, listed = result.folder("diversify"), prompts.read()
    # a prompt that was made from several triggers has a row for each
    per_source = settings.per_source
    triggers = read_values(prompts.prompts, TRIGGER, column=prompts.column) if per_source else ()
    loaded = model.load(model.model, call.progress)
    made = diversify_into(loaded, listed, out, settings, triggers=triggers, **result.shared())
    return reply(document("diversify", made), out / "diversify.json", rows=20)


def compare(
    model: inputs.Model,
    options: inputs.Compare,
    guidance: Guidance,
    words: LanguageModel,
    budget: Budget,
    score: SearchScore,
    result: Result,
    call: Call,
) -> Reply:
    """Let searches for trigger prompts spend the same budget, and count what they find.

    A candidate counts when its images reproduce a training image: images are made, clustered and
    searched for in the sources. High D alone is not memorization.
    """
    from visleak.memorization import baselines
    from visleak.memorization.baselines.document import document
    from visleak.memorization.extraction import load_similarity
    from visleak.memorization.scores import score_for
    from visleak.memorization.search.gibbs import refuse_longer
    from visleak.memorization.search.proposals import Rules, load_language_model
    from visleak.memorization.tracing.sources import training_sets

    sources = training_sets(options.source)
    out = result.folder("compare", [(each.name, each.source) for each in sources])
    names = [name.strip() for name in options.methods.split(",")]
    rules = Rules().banning(words.banned)
    listed = options.listed(names)
    settings = ExtractSettings(
        images=options.images, min_cluster=options.min_cluster, eps=options.eps, seed=score.seed
    )
    settings.refuse_small()
    similarity = load_similarity(options.similarity)
    call.kept = _keeps(out)
    loaded = model.load(model.model, call.progress)
    refuse_longer(loaded, options.length)
    d, device, causal = score_for(loaded, score, call.given), loaded.device, options.causal_lm
    means = baselines.Means(
        model=loaded,
        norm=d.norm,
        proposer=cache(partial(load_language_model, words.lm, rules=rules, device=device)),
        causal=None if causal is None else partial(baselines.load_causal, causal, device=device),
        prompts=listed,
        length=options.length,
        candidates=options.candidates,
        iterations=options.moves,
        temperature=options.temperature,
        beams=options.beams,
    )
    searchers = baselines.load_searchers(names, means)
    batch = score.batch if "batch" in call.given else 32 if device.startswith("cuda") else 8
    verifier = baselines.TracedImages(
        loaded,
        sources,
        settings,
        Sampling(guidance.steps, guidance.guidance, batch),
        similarity,
        {"similarity": options.traced_by},
        options.workers,
    )
    seeds = tuple(range(score.seed, score.seed + options.seeds))
    found = baselines.compare(
        baselines.Contest(loaded, d, budget, options.chains, seeds),
        searchers,
        verifier,
        out,
        **result.shared(progress=call.progress),
    )
    columns = (
        *("method", "memorized images", "candidates with a cluster", "passes of the search"),
        *("passes of the images", "passes per image", "best D"),
    )
    return reply(document(found), out / "compare.json", columns=columns)


def dataset(options: inputs.Dataset, result: Result) -> Reply:
    """Write verified trigger prompts as a data set, with a datasheet and groups of shared images.

    Only prompts with a record of verification enter: a high D is none. No image is fetched or
    copied.
    """
    from visleak.memorization import prompt_files
    from visleak.memorization.prompt_files.dataset import headline
    from visleak.memorization.tracing import read_trace

    if not options.prompts and not options.trace:
        raise UsageError("dataset needs prompts: name a list of them, or --trace DIR")
    # refusals that take no time come first
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
        **result.shared(),
    )
    lines = (
        headline(made),
        *(f"  verified by {name}: {count:,}" for name, count in made.verified_by.items()),
        *(f"  left out, {reason}: {count:,}" for reason, count in made.left_out.items()),
        *(f"  {note}" for note in made.notes),
        str(out),
    )
    return Reply(lines, content=out / "dataset.json")


def extract(
    model: inputs.OptionalModel,
    options: inputs.Extract,
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
    from visleak.memorization.extraction.run import document
    from visleak.memorization.prompt_files import chosen, read_prompts, scores_of

    out = result.folder("extract")
    notes: tuple[str, ...] = ()
    shared: dict[str, Any] = {"sheets": options.sheets, "progress": call.progress}
    if options.recluster:
        allowed = ("similarity", "eps", "min_samples", "min_cluster", "sheets")
        call.only_with("--recluster", ("recluster", "out", "json", "force", *allowed))
        found = extraction.reclustered(out, given, similarity=options.similarity, **shared)
    else:
        # refusals come before the model is loaded
        given.refuse_small()
        if model.model is None or options.prompts is None:
            raise _missing(model.model, "prompts")
        file = options.prompts
        listed = read_prompts(file, column=options.column)
        listed = chosen(listed, file, options.top, reached=options.above_threshold_only)
        scores, notes = scores_of(listed, file), listed.notes
        measure = extraction.load_similarity(options.similarity)
        found = extraction.extract(
            model.load(model.model, call.progress),
            listed.texts,
            given,
            out,
            similarity=measure,
            sampling=sampling,
            scores=scores,
            force=result.force,
            **shared,
        )
    columns = ("prompt", "cluster", "size", "images", "cohesion")
    return reply(document(found), out / "extract.json", notes=notes, columns=columns)


def trace(
    options: inputs.TraceOptions,
    settings: TraceSettings,
    execution: Execution,
    result: Result,
    call: Call,
) -> Reply:
    """Match generated images to training images.

    Writes the matches, and an audit folder whose pairs visleak review opens; run the command again
    to count the verdicts.
    """
    from visleak.auditing import Audit
    from visleak.gating import gates
    from visleak.memorization import tracing
    from visleak.memorization.tracing.document import SECTION, document
    from visleak.memorization.tracing.sources import AUDIT_FOLDER, training_sets
    from visleak.rates import Rate, percent
    from visleak.records import ImageSet
    from visleak.report import show_in_report
    from visleak.reporting import section
    from visleak.storage import AUDIT, REPORT, read_summary

    wanted = gates.parse_all(options.fail_on, (MEMORIZED, gates.UNREADABLE))
    sources = training_sets(options.source)
    out = result.folder("trace", [(each.name, each.source) for each in sources])
    if not options.source and not options.unverified:
        raise UsageError(
            "--source is missing: give the training images, or --unverified if they are not known"
        )
    if options.source and options.unverified:
        raise UsageError("--unverified is for a trace without --source; leave one of them out")
    if wanted and not any(isinstance(each, ImageSet) for each in sources):
        raise UsageError(
            "--fail-on needs a --source with images: without one no image counts as memorized"
        )
    found = tracing.trace(
        options.target,
        sources,
        out,
        settings,
        **execution.chosen(),
        device=options.device,
        progress=call.progress,
        force=result.force,
        command=call.line,
    )
    audit, page = out / AUDIT_FOLDER, document(found)
    more: tuple[str, ...] = ()
    if (audit / AUDIT).is_file():
        show_in_report(Audit(audit), SECTION, section(page), private=options.no_images)
        more = (str(audit / REPORT), f"judge the pairs: visleak review {audit}")
    # as in an audit, a share is of the images that could be compared
    compared = [each for each in found.matches if each.verified or not isnan(each.nearest)]
    rate = Rate.of(len(found.verified), len(compared))
    shown = reply(page, out / "trace.json", more=more)
    if wanted and not rate.total:
        why = "no image was compared, so no gate passes"
        why += "" if found.matches else "; --all traces every image of the extraction"
        return replace(shown, warnings=[why], code=1)
    failed = [
        f"gate memorized: {rate.count:,} of {rate.total:,} traced images ({percent(rate.share)} %)"
        f" count as memorized; allowed {percent(gate.allowed)} %"
        for gate in wanted
        if gate.name == MEMORIZED and gate.trips(rate)
    ]
    bounds = [gate for gate in wanted if gate.name == gates.UNREADABLE]
    failed += gates.tripped(bounds, read_summary(audit)) if bounds else []
    return replace(shown, warnings=failed, code=3 if failed else 0)


def benchmark(
    model: inputs.OptionalModel,
    lists: inputs.BenchmarkLists,
    options: inputs.BenchmarkOptions,
    settings: BenchmarkSettings,
    measures: inputs.Measures,
    result: Result,
    call: Call,
) -> Reply:
    """Measure what mitigations do against memorization, and what they cost in fit and quality.

    Every method makes images of the same noises: of trigger prompts, which reproduce training
    images, and of ordinary ones. Images and measurements are kept: an interrupted run resumes, and
    another method or judge makes only what is missing. Without --model, the finished benchmark in
    DIR is shown.
    """
    from visleak.auditing import Audit
    from visleak.memorization.benchmark import add_to, read_benchmark
    from visleak.memorization.benchmark import benchmark as run
    from visleak.memorization.benchmark.document import SECTION, document
    from visleak.memorization.benchmark.leaderboard import leaderboard_markdown, table_path
    from visleak.report import show_in_report
    from visleak.reporting import section
    from visleak.storage import write_text

    out = result.folder("benchmark", [("references", str(lists.references or ""))])
    if options.leaderboard is not None:
        table = table_path(options.leaderboard)  # refused now rather than after hours
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
        plan = _plan(model, lists, options, settings, measures, call)
        found = run(plan, out, **result.shared(progress=call.progress))
    notes = []
    if options.audit is not None:
        content = section(document(found, columns=1))
        show_in_report(Audit(options.audit), SECTION, content, private=False)
    if options.leaderboard is not None:
        entries = add_to(options.leaderboard, found)
        write_text(table, leaderboard_markdown(entries))
        notes.append(f"{options.leaderboard}: {len(entries):,} entries; {table}")
    file, shown = out / "benchmark.json", document(found, drawn=False)
    return reply(shown, file, notes=tuple(notes), rows=100, intervals=False)


def _plan(
    model: inputs.OptionalModel,
    lists: inputs.BenchmarkLists,
    options: inputs.BenchmarkOptions,
    settings: BenchmarkSettings,
    measures: inputs.Measures,
    call: Call,
) -> Plan:
    from visleak.memorization import benchmark
    from visleak.memorization.extraction import seeds_of
    from visleak.memorization.mitigate import methods_of, mitigation
    from visleak.memorization.prompt_files import read_prompts

    if model.model is None or lists.triggers is None:
        raise _missing(model.model, "triggers")
    # refusals come before anything is loaded
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
    loaded = model.load(model.model, call.progress)
    seeds = seeds_of(settings.seed, settings.images)
    methods, skipped = methods_of(options.method, loaded, seeds)
    return benchmark.Plan(
        model=loaded,
        triggers=triggers,
        references=found,
        mitigations=methods,
        judges=judges,
        general=general,
        settings=settings,
        skipped=skipped,
    )
