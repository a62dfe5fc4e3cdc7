"""``visleak audit``: the main job, and studies of many sets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from visleak.cli import edges
from visleak.cli.command import Call, Reply, replaces, whole
from visleak.errors import HeldError, UsageError
from visleak.options import (
    METHOD,
    OUTPUT,
    SETS,
    Backend,
    Execution,
    Options,
    keywords,
    option,
    output,
)
from visleak.settings import Network, Settings, Sides

if TYPE_CHECKING:
    from visleak.auditing import Audit, Prepared
    from visleak.gating import Baseline
    from visleak.gating.gates import Gate

#: Images from which a run is timed beforehand, and seconds from which its cost is shown.
WORTH_TELLING: Final = 200
TELL_ABOVE: Final = 5.0

#: Options that the file of a study leaves to the command line.
OF_STUDIES: Final = (
    *("config", "dry_run", "out", "json", "force", "fail_on", "no_images", "open"),
    *("workers", "cache", "engine", "ray_address"),
)


@dataclass(frozen=True)
class AuditOptions(Options, panel=OUTPUT):
    """Further inputs of an audit, and its output."""

    config: Path | None = option(
        None,
        "A TOML file of named sets: every pair of them that makes sense is compared, and the"
        " result is a study with matrices (docs/study.md).",
        metavar="FILE",
        panel=SETS,
    )
    thresholds: Path | None = option(
        None,
        "Thresholds that visleak calibrate wrote for this encoder; --hard and --soft override"
        " them.",
        metavar="FILE",
        panel=METHOD,
    )
    out: Path = output(Path("visleak-audit"), "Folder of the audit.")
    fail_on: tuple[str, ...] = option(
        (),
        "Exit with 3 if more than RATE (0.01 or 1%, default 0) of a test set is exact, near,"
        " similar, hard or soft, or stronger, or of a group that is on both sides, or a"
        " recording's frame next to a training frame, or seen to the share of --overlap; or of any"
        " set unreadable (default 5% where another gate is given). May be repeated.",
        metavar="GATE[=RATE]",
    )
    baseline: tuple[Path, ...] = option(
        (),
        "An audit folder, or a file of accepted pairs (visleak export --format accepted): leaks"
        " known there do not count for --fail-on. May be repeated.",
        metavar="AUDIT_DIR|FILE",
    )
    no_images: bool = option(False, "Put no images into the report.")
    format: str = option(
        "table",
        "What is printed: the summary, audit.json (as --json), or the results of --fail-on as"
        " JUnit, SARIF or annotations of GitHub Actions.",
        choices=("table", "json", "junit", "sarif", "github"),
    )
    json: bool = option(False, "Print audit.json instead of the summary.")
    open: bool = option(False, "Open the report in a browser.")
    dry_run: bool = option(
        False, "Print the plan and the estimated cost (images, bytes, time, disk), and exit."
    )
    force: bool = option(False, "Run again, and keep no earlier result.")

    @property
    def for_gates(self) -> bool:
        """Whether results of gates are printed in place of the summary."""
        return self.format not in ("table", "json")


def audit(
    sides: Sides,
    settings: Settings,
    options: AuditOptions,
    network: Network,
    execution: Execution,
    backend: Backend,
    call: Call,
) -> Reply:
    """Find the test images that also occur in the training images.

    Reports how many there are, and writes a folder with every pair, including report.html.
    """
    from visleak.gating import gates, read_baseline
    from visleak.pipeline.cost import describe
    from visleak.pipeline.ray_engine import engine_of
    from visleak.report import renew_report
    from visleak.storage import AUDIT
    from visleak.storage.cache import default_folder

    wanted = gates.parse_all(options.fail_on)
    if options.config is not None:
        return _study(wanted, options, execution, backend, call)
    gates.check(wanted, verify=settings.verify, overlap=settings.overlap is not None)
    if options.for_gates and not wanted:
        raise UsageError(f"--format {options.format} reports gates: give --fail-on")
    known = read_baseline(options.baseline, options.out) if options.baseline else None
    prepared = _prepared(wanted, sides, settings, options, network, call)
    if options.dry_run:
        call.progress("timing a sample of images and pairs", 0, 0)
        cost = prepared.cost(**execution.chosen())
        return Reply([describe(cost)], cost.as_dict())
    finished = (options.out / AUDIT).is_file() and not options.force
    if sys.stderr.isatty() and not finished and prepared.images >= WORTH_TELLING:
        # a person at a terminal sees what a run of more than a few seconds will cost
        cost = prepared.cost(**execution.chosen())
        if cost.seconds is None or cost.seconds > TELL_ABOVE:
            edges.note(describe(cost))
    kept = execution.chosen()["cache"]
    if folder := default_folder() if kept == "default" else kept:
        resumes = "the same command resumes from there"
        call.kept = f"what was read and verified is kept in the cache {folder}; {resumes}"
    else:
        call.kept = "nothing is kept, because there is no cache (--cache off)"
    call.progress.expect([*prepared.stages, ("writing the report",)])
    force = options.force or (
        prepared.replaces(options.out) and replaces(options.out, AUDIT, force=False)
    )
    device = str(network.device or "cpu")
    result = prepared.run(
        **execution.chosen(),
        out=options.out,
        engine=engine_of(backend.engine, backend.ray_address),
        device=device if device == "auto" or device.startswith("cuda") else "cpu",
        progress=call.progress,
        force=force,
        command=call.line,
    )
    renew_report(result, private=options.no_images, progress=call.progress)
    return _reply(result, wanted, known, options, call)


def _prepared(
    wanted: Sequence[Gate],
    sides: Sides,
    settings: Settings,
    options: AuditOptions,
    network: Network,
    call: Call,
) -> Prepared:
    """Open the sets and load the encoder; refuse gates that cannot be decided before any work."""
    from visleak.auditing import prepare
    from visleak.formats.opening import frame_notes, group_notes, open_sides, shared_files
    from visleak.gating import gates

    call.progress("listing images", 0, 0)
    opened = open_sides(sides)
    gates.refuse_ungrouped(wanted, opened.queries, opened.references)
    call.progress("listing images", 1, 1)
    call.progress("loading the encoder", 0, 0)
    prepared = prepare(
        opened.queries,
        opened.references or None,
        settings=settings,
        encoder_options=keywords(network),
        thresholds=options.thresholds,
    )
    gates.refuse_unmeasured(wanted, prepared.encoder.name, prepared.limits)
    call.progress("loading the encoder", 1, 1)
    if not options.dry_run:
        for note in (*group_notes(opened), *frame_notes(opened, call.given)):
            edges.note(note)
    for line in shared_files(opened):
        edges.warn(line)
    return prepared


def _reply(
    result: Audit, wanted: Sequence[Gate], known: Baseline | None, options: AuditOptions, call: Call
) -> Reply:
    from visleak.formats.opening import FRAME_BOUNDS
    from visleak.gating import gates
    from visleak.report.document import document, unfinished_line
    from visleak.storage import AUDIT, REPORT, read_summary

    reused = f"reused: {options.out} holds this audit, finished; --force runs it again"
    notes = [reused] if result.reused else []
    shown: Iterable[object] = () if options.for_gates else whole(document(result))
    content = result.folder / AUDIT
    if result.unfinished:
        return Reply(shown, content, notes, [unfinished_line(result)], code=1)
    bounded = bool(FRAME_BOUNDS & call.given.keys())
    try:
        passed = gates.outcome(wanted, result.folder, known, bounded=bounded)
    except UsageError as error:
        return Reply(shown, content, notes, [str(error)], code=2)
    raw = gates.render(options.format, wanted, result.folder, known) if options.for_gates else ""
    return Reply(
        [*shown, *passed.passed],
        content
        if known is None
        else read_summary(result.folder).as_dict()
        | {"baseline": list(known.sources), "gates": list(passed.gates)},
        [*notes, *passed.notes],
        passed.tripped,
        code=3 if passed.tripped else 0,
        raw=raw,
        page=result.folder / REPORT,
    )


def _study(
    wanted: Sequence[Gate],
    options: AuditOptions,
    execution: Execution,
    backend: Backend,
    call: Call,
) -> Reply:
    from visleak.formats.sources import announce
    from visleak.gating import gates
    from visleak.pipeline.ray_engine import engine_of
    from visleak.quantities import counted
    from visleak.report import renew_report
    from visleak.reporting import terminal
    from visleak.study import Options as StudyOptions
    from visleak.study import document as documents
    from visleak.study import read_study, study
    from visleak.study.document import PAGE, RESULT, TERMINAL

    call.only_with("--config, whose file says what is compared and how", OF_STUDIES)
    config = read_study(options.config or "")
    for each in config.sets:
        announce(each.source, config.path.parent)
    measured = config.settings.overlap is not None
    gates.check(wanted, verify=config.settings.verify, overlap=measured, groups=False)
    if options.dry_run:
        shown, content = documents.plan_of(config)
        return Reply(whole(shown), content)
    out = options.out if "out" in call.given else Path("visleak-study")
    call.kept = f"finished audits are kept in {out}; the same command resumes from there"

    def finished(made: Audit) -> None:
        with call.steps(made.folder.name) as progress:
            renew_report(made, private=options.no_images, progress=progress)

    chosen = StudyOptions(
        **execution.chosen(),
        engine=engine_of(backend.engine, backend.ray_address),
        force=options.force,
        command=call.line,
        watch=call.steps,
        finished=finished,
    )
    try:
        result = study(config, out, chosen)
    except HeldError:
        # another study is kept aside, as its audits come from the cache
        if not replaces(out, RESULT, force=False):
            raise
        result = study(config, out, replace(chosen, force=True))
    lines = gates.tripped(wanted, documents.summary(result))
    lines += documents.not_compared(result) if wanted else []
    found = [*terminal(documents.document(result), columns=TERMINAL, rows=len(result.cells))]
    if reused := result.run.reused:
        found.append(f"{counted(reused, 'audit')} finished before; --force runs all again")
    return Reply(
        found,
        out / RESULT,
        warnings=[*documents.failures(result), *lines],
        files=[out / PAGE],
        page=out / PAGE,
        code=1 if result.failed else 3 if lines else 0,
    )
