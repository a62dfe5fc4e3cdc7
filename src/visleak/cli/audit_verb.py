"""``visleak audit``: compare, write the folder and the report, say what came out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from visleak.cli import config_verb, edges, frame_notes, gates, options
from visleak.cli.engines import engine_of
from visleak.storage import AuditSummary

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.cli.sets import Compared
    from visleak.gating import Baseline
    from visleak.pipeline.cost import Cost
    from visleak.pipeline.thresholds import Thresholds
    from visleak.pipeline.workplace import Engine, Progress
    from visleak.records import Encoder
    from visleak.settings import Settings

#: Images from which a run is timed beforehand, and seconds from which its cost is told.
WORTH_TELLING: Final = 200
TELL_ABOVE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Order:
    """What to compare, and how to go about it."""

    folder: str | None
    test: Sequence[str]
    train: Sequence[str]
    sets: Sequence[str]
    columns: tuple[str | None, str | None, str | None, str | None]
    settings: Settings
    thresholds: Path | None
    out: Path
    cache: Path | None
    workers: int | None
    engine: Engine
    force: bool
    private: bool
    command: str
    gates: Sequence[gates.Gate] = ()
    given: frozenset[str] = frozenset()
    encoder_options: Mapping[str, object] = field(default_factory=dict)


def audit(
    context: typer.Context,
    folder: options.Directory = None,
    test: options.Test = None,
    train: options.Train = None,
    sets: options.Sets = None,
    config: options.Config = None,
    plan: options.Plan = False,
    out: options.OutFolder = Path("visleak-audit"),
    encoder: options.EncoderName = None,
    precision: options.Precision = None,
    search: options.SearchName = "exact",
    hard: options.Hard = None,
    soft: options.Soft = None,
    thresholds: options.ThresholdsFile = None,
    views: options.Views = "all",
    candidates: options.Candidates = "auto",
    id_: options.Id = None,
    label: options.Label = None,
    group: options.Group = None,
    frame: options.Frame = None,
    within_frames: options.WithinFrames = 10,
    within_seconds: options.WithinSeconds = 1.0,
    no_within: options.NoWithin = False,
    no_verify: options.NoVerify = False,
    near_at: options.NearAt = 0.5,
    annotations: options.Annotations = "auto",
    sample: options.Sample = 0,
    fail_on: options.FailOn = None,
    baseline: options.BaselineOf = None,
    no_pictures: options.NoPictures = False,
    json: options.Json = False,
    cost: options.CostOnly = False,
    force: options.Force = False,
    workers: options.Workers = None,
    device: options.Device = None,
    batch: options.Batch = None,
    engine: options.EngineName = "local",
    ray_address: options.RayAddress = None,
    cache: options.CacheFolder = None,
) -> None:
    """Find the test images that also occur in the training images.

    Says how many there are, and writes a folder with every pair, report.html included.
    """
    from visleak.settings import Settings

    asked = gates.parse_all(fail_on or ())
    if config is not None or plan:
        _refuse_baseline(baseline)
        config_verb.refuse_other_options(context, config)
        config_verb.study(
            config_verb.StudyOrder(
                config=config or Path(),
                out=config_verb.folder_of(context, out),
                plan=plan,
                gates=asked,
                json=json,
                force=force,
                private=no_pictures,
                workers=workers,
                engine=engine_of(engine, ray_address),
                cache=cache_folder(cache),
                command=_command(context),
            )
        )
        return
    gates.check(asked, verify=not no_verify)
    known = _known(baseline, out) if baseline else None
    settings = Settings(
        encoder=encoder or "",
        search=search,
        hard=hard,
        soft=soft,
        views=views,
        candidates=candidates,
        within=not no_within,
        verify=not no_verify,
        near_at=near_at,
        annotations=annotations,
        sample=sample,
        within_frames=within_frames,
        within_seconds=within_seconds,
    )
    order = Order(
        folder=folder,
        test=test or (),
        train=train or (),
        sets=sets or (),
        columns=(id_, label, group, frame),
        settings=settings,
        thresholds=thresholds,
        out=out,
        cache=cache_folder(cache),
        workers=workers,
        engine=engine_of(engine, ray_address),
        force=force,
        private=no_pictures,
        command=_command(context),
        gates=asked,
        given=frame_notes.given(context),
        encoder_options=_given(device=device, batch=batch, precision=precision),
    )
    if cost:
        say_cost(order, json=json)
        return
    result = _kept_if_interrupted(order)
    if result.unfinished:
        _render(result, json=json)
        _end_unfinished(order, result)
    elif known is None:
        _render(result, json=json)
        _pass_gates(order, result)
    else:
        _pass_by_baseline(order, result, known, json=json)


def _end_unfinished(order: Order, result: Audit) -> None:
    """Say that images were lost on the way, and end with 1: what is claimed is not all."""
    from visleak.pipeline.material import lost

    problems = lost(result.unreadable())
    first = problems[0]
    why = f"{first.reason}{f', {first.detail}' if first.detail else ''}"
    edges.complain(
        f"the audit is unfinished: images could be read at first, and not again"
        f" ({len(problems):,}, such as {first.set} {first.id} ({why})). They are in no rate, and no"
        " gate passes; when the source is whole, the same command does what is missing"
    )
    raise typer.Exit(1)


def _known(baseline: Sequence[Path], out: Path) -> Baseline:
    """Read what is known, before anything is computed."""
    from visleak.gating import read_baseline

    return read_baseline(baseline, out)


def _refuse_baseline(baseline: Sequence[Path] | None) -> None:
    """Refuse a baseline of a study, whose audits have one each."""
    from visleak.errors import UsageError

    if baseline:
        raise UsageError(
            "--baseline is for one audit, not for --config; the gates of a study count all leaks"
        )


def _refuse_doubtful(order: Order, summary: AuditSummary) -> None:
    """Refuse a gate by frames that may be none, unless somebody said how near they leak."""
    if not order.given & frame_notes.BOUNDS:
        gates.refuse_doubtful(order.gates, summary)


def _pass_gates(order: Order, result: Audit) -> None:
    """Say which gates a result tripped, verdicts of people counted; end with 3 if any."""
    from visleak.verdicts import judged_summary

    summary = judged_summary(result.folder)
    _refuse_doubtful(order, summary)
    lines = gates.tripped(order.gates, summary)
    for line in lines:
        edges.complain(line)
    if lines:
        raise typer.Exit(3)


def _pass_by_baseline(order: Order, result: Audit, known: Baseline, *, json: bool) -> None:
    """Say what came out and what of it is new; end with 3 if a gate tripped."""
    from visleak.gating import named
    from visleak.verdicts import judged_summary

    summary = judged_summary(result.folder)
    found = list(gates.checked(order.gates, result.folder, summary, known))
    if json:
        _say_json(result, known, found)
    else:
        _render(result, json=False)
    for note in known.notes(summary, {each.found.level: None for each in found}):
        edges.note(note)
    _refuse_doubtful(order, summary)
    rest = [gate for gate in order.gates if gate.name in gates.WITHOUT_PAIRS]
    lines = gates.tripped(rest, summary)
    for line in lines:
        edges.complain(line)
    for each in found:
        if each.tripped:
            edges.complain(each.line)
        elif not json:
            edges.say(f"{edges.plain(each.line)}\n")
        for line in named(each.found, gates.NAMED):
            edges.note(f"  {line}")
    if lines or any(each.tripped for each in found):
        raise typer.Exit(3)


def _say_json(result: Audit, known: Baseline, found: Sequence[gates.Checked]) -> None:
    """Print the result, and what is new in it."""
    from json import dumps

    from visleak.storage import read_summary

    content = read_summary(result.folder).as_dict() | {
        "baseline": list(known.sources),
        "gates": [each.as_dict() for each in found],
    }
    edges.say(dumps(content, indent=1, ensure_ascii=False) + "\n")


def _given(**asked: object) -> dict[str, object]:
    """Return what was asked for."""
    return {name: value for name, value in asked.items() if value is not None}


def cache_folder(text: str | None) -> Path | None:
    """Return the folder of the cache, ``None`` for none."""
    from visleak.cache import NO_FOLDER, default_folder

    if text == "off":
        return None
    folder = Path(text) if text else default_folder()
    if folder is None:
        edges.complain(NO_FOLDER)
    return folder


def _command(context: typer.Context) -> str:
    """Return the command line as one may paste it into a shell."""
    text = shlex.join(["visleak", *(context.find_root().obj or ())])
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _kept_if_interrupted(order: Order) -> Audit:
    """Carry an order out; if somebody stops it, say what is not lost."""
    try:
        return carry_out(order)
    except KeyboardInterrupt as error:
        word, code = edges.verdict(error)
        kept = (
            f"what was read and verified is kept in the cache {order.cache}, and the same command"
            " goes on from there"
            if order.cache
            else "nothing is kept, for there is no cache (--cache off)"
        )
        raise edges.Stopped(f"{word}; {kept}", code) from error


def carry_out(order: Order) -> Audit:
    """Open the sets, audit them and write the report."""
    from visleak.cli.pictures import write_page
    from visleak.cli.progress import bars

    with bars() as progress:
        compared, encoder = _opened(order, progress)
    for note in frame_notes.notes(compared.queries, compared.references, order.given):
        edges.note(note)
    _warn_of_cost(order, compared, encoder)
    with bars() as progress:
        result = _audited(order, compared, encoder, progress)
        write_page(result, private=order.private, progress=progress)
    if result.reused:
        edges.note(f"reused: {order.out} holds this very audit, finished; --force does it again")
    return result


def _opened(order: Order, progress: Progress) -> tuple[Compared, Encoder]:
    """Open the sets and load the encoder; refuse gates that cannot be answered."""
    from visleak.cli import sets
    from visleak.images.request import check_frames, check_groups
    from visleak.pipeline.stored_encoder import encoder_for

    sets.refuse_mixtures(order.folder, order.test, order.train, order.sets)
    progress("listing images", 0, 0)
    columns = sets.Columns(*order.columns)
    compared = (
        sets.from_folder(order.folder, columns)
        if order.folder
        else sets.from_options(order.test, order.train, order.sets, columns)
    )
    everything = (*compared.queries, *compared.references)
    check_groups(everything, columns.group)
    check_frames(everything, columns.frame)
    gates.refuse_ungrouped(order.gates, compared.queries, compared.references)
    progress("listing images", 1, 1)
    progress("loading the encoder", 0, 0)
    encoder = encoder_for(everything, order.settings.encoder, order.encoder_options)
    gates.refuse_unmeasured(order.gates, encoder.name, _limits(order, encoder))
    progress("loading the encoder", 1, 1)
    return compared, encoder


def _limits(order: Order, encoder: Encoder) -> Thresholds:
    """Return where degrees begin."""
    from visleak.pipeline.thresholds import read_thresholds, thresholds_of

    calibrated = read_thresholds(order.thresholds, encoder) if order.thresholds else None
    return thresholds_of(encoder, order.settings, calibrated)


def say_cost(order: Order, *, json: bool) -> None:
    """Print what an audit would cost."""
    import json as js

    from visleak.cli import cost_view
    from visleak.cli.progress import bars

    with bars() as progress:
        compared, encoder = _opened(order, progress)
        progress("timing a sample of images and pairs", 0, 0)
        found = _cost(order, compared, encoder)
    said = js.dumps(found.as_dict(), indent=1) if json else cost_view.line(found)
    edges.say(f"{said}\n")


def _warn_of_cost(order: Order, compared: Compared, encoder: Encoder) -> None:
    """Tell a person at a terminal what a run of more than a few seconds will cost."""
    import sys

    from visleak.cli import cost_view
    from visleak.storage import AUDIT

    count = sum(len(images) for images in (*compared.queries, *compared.references))
    finished = (order.out / AUDIT).is_file() and not order.force
    if not sys.stderr.isatty() or finished or count < WORTH_TELLING:
        return
    found = _cost(order, compared, encoder)
    if found.seconds is None or found.seconds > TELL_ABOVE:
        edges.note(cost_view.line(found))


def _cost(order: Order, compared: Compared, encoder: Encoder) -> Cost:
    from visleak.auditing import open_cache, workers_for
    from visleak.pipeline.cost import cost_of

    count = sum(len(images) for images in (*compared.queries, *compared.references))
    with open_cache(order.cache) as cache:
        return cost_of(
            compared.queries,
            compared.references,
            encoder,
            order.settings,
            workers_for(count, order.workers),
            cache,
            _limits(order, encoder),
        )


def _audited(order: Order, compared: Compared, encoder: Encoder, progress: Progress) -> Audit:
    from visleak.auditing import audit as audited

    return audited(
        compared.queries,
        compared.references or None,
        settings=order.settings,
        encoder=encoder,
        thresholds=order.thresholds,
        out=order.out,
        workers=order.workers,
        engine=order.engine,
        device=_comparing(order.encoder_options.get("device")),
        cache=order.cache,
        progress=progress,
        force=order.force,
        command=order.command,
    )


def _comparing(device: object) -> str:
    """Return where embeddings are compared: on a GPU only where somebody asked for one."""
    asked = str(device or "cpu")
    return asked if asked == "auto" or asked.startswith("cuda") else "cpu"


def _render(result: Audit, *, json: bool) -> None:
    from visleak.storage import AUDIT

    if json:
        edges.say_bytes((result.folder / AUDIT).read_bytes())
        return
    from visleak.cli.summary_view import summary
    from visleak.cli.terminal import rendered

    edges.say(rendered(summary(result)))
