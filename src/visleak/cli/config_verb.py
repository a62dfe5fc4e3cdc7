"""``visleak audit --config``: a study of many sets, as a file says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from visleak.cli import edges, gates

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.pipeline.workplace import Engine, Progress
    from visleak.storage import AuditSummary
    from visleak.study import Result, Study

#: Parameters of the verb that a file of sets leaves to the command line.
LEFT: Final = (
    *("config", "plan", "out", "json", "force", "fail_on", "no_pictures"),
    *("workers", "cache", "engine", "ray_address"),
)

#: Where a study goes if nobody says.
FOLDER: Final = Path("visleak-study")


@dataclass(frozen=True, slots=True)
class StudyOrder:
    """Which study, and how to go about it."""

    config: Path
    out: Path
    plan: bool
    gates: Sequence[gates.Gate]
    json: bool
    force: bool
    private: bool
    workers: int | None
    engine: Engine
    cache: Path | None
    command: str


def refuse_other_options(context: typer.Context, config: Path | None) -> None:
    """Refuse options that the file answers, so that none is ignored.

    Raises:
        UsageError: one was given, or there is no file.
    """
    from visleak.errors import UsageError

    if config is None:
        raise UsageError("--plan says what --config FILE would compare; give --config FILE")
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name not in LEFT and source is not None and source.name == "COMMANDLINE":
            shown = parameter.opts[0] if name != "folder" else "DIR"
            raise UsageError(
                f"{shown} and --config: with --config the file says what is compared and how;"
                f" write it there ([audit] or [sets.NAME]), and leave {shown} out"
            )


def folder_of(context: typer.Context, out: Path) -> Path:
    """Return the folder of a study: the one given, else one that is not an audit's."""
    source = context.get_parameter_source("out")
    given = source is not None and source.name == "COMMANDLINE"
    return out if given else FOLDER


def study(order: StudyOrder) -> None:
    """Carry a study out, say what came out, and exit as its gates say."""
    from visleak.study import read_study

    asked = read_study(order.config)
    gates.check(order.gates, verify=asked.settings.verify)
    gates.refuse_group(order.gates)
    if order.plan:
        _show_plan(asked, json=order.json)
        return
    result = _kept_if_interrupted(order, asked)
    _show(result, order)
    for line in _failures(result):
        edges.complain(line)
    lines = gates.tripped(order.gates, _summary(result))
    if order.gates:
        lines += _not_compared(result)
    for line in lines:
        edges.complain(line)
    if result.failed:
        raise typer.Exit(1)
    if lines:
        raise typer.Exit(3)


def _not_compared(result: Result) -> list[str]:
    """Return a line for each set whose source is given and does not exist: a gate fails by it."""
    return [
        f"gates: set {name!r} was compared with nothing ({why}); correct its source, or empty it"
        for name, why in result.run.missing.items()
        if result.run.study.named(name).source.strip()
    ]


def _failures(result: Result) -> list[str]:
    """Return a line for each thing that went wrong: the first comparison it cost, and how many."""
    lines = []
    for why in dict.fromkeys(left.why for left in result.failed):
        first, *others = [left.comparison for left in result.failed if left.why == why]
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{first.query} against {first.reference}{more}: {why}")
    return lines


def _show_plan(asked: Study, *, json: bool) -> None:
    """Print what would be compared; nothing is opened."""
    from visleak.cli.terminal import rendered
    from visleak.reporting.rendering import table
    from visleak.study.document import absent, extent, planned
    from visleak.study.plan import plan
    from visleak.study.results import plan_dict
    from visleak.study.running import locate, missing_sets

    missing = missing_sets(locate(asked))
    made = plan(asked, missing)
    if json:
        from json import dumps

        edges.say(dumps(plan_dict(asked, made), indent=1, ensure_ascii=False) + "\n")
        return
    grid = planned(made)
    edges.say(rendered(table(grid, len(grid.rows))))
    left = [f"not there: {name}: {why}" for name, why in absent(made, missing).items()]
    left += [f"in no comparison: {name}" for name in made.idle]
    edges.say("\n".join([*map(edges.plain, left), extent(made)]) + "\n")


def _kept_if_interrupted(order: StudyOrder, asked: Study) -> Result:
    from visleak.study import Options
    from visleak.study import study as studied

    options = Options(
        workers=order.workers,
        cache=order.cache,
        engine=order.engine,
        force=order.force,
        command=order.command,
        watch=_watch,
        finished=lambda audit: _report(audit, order.private),
    )
    try:
        return studied(asked, order.out, options)
    except KeyboardInterrupt as error:
        word, code = edges.verdict(error)
        raise edges.Stopped(
            f"{word}; finished audits are kept in {order.out}, and the same command goes on from"
            " there",
            code,
        ) from error


@contextmanager
def _watch(name: str) -> Iterator[Progress]:
    """Show how far an audit is; its bars go when it is done."""
    from visleak.cli.progress import bars

    with bars() as progress:

        def named(step: str, done: int, total: int) -> None:
            progress(f"{name}: {step}", done, total)

        yield named


def _report(audit: Audit, private: bool) -> None:
    from visleak.cli.pictures import write_page

    with _watch(audit.folder.name) as progress:
        write_page(audit, private=private, progress=progress)


def _summary(result: Result) -> AuditSummary:
    """Return sets and totals of a study, as the gates read them."""
    from visleak.storage import AuditSummary, TotalSummary

    audited = {s.name: s for audit in result.run.audits.values() for s in audit.summary.sets}
    totals = zip(result.totals, result.headlines, strict=True)
    return AuditSummary(
        sets=tuple(audited[s.name] for s in result.run.study.sets if s.name in audited),
        totals=tuple(TotalSummary(union.query, line, union.rates) for union, line in totals),
    )


def _show(result: Result, order: StudyOrder) -> None:
    from visleak.cli.terminal import rendered
    from visleak.reporting import terminal
    from visleak.study.document import PAGE, RESULT, TERMINAL, absent, counted, document

    if order.json:
        edges.say_bytes((order.out / RESULT).read_bytes())
        return
    rows = len(result.cells)
    edges.say(rendered(terminal(document(result), columns=TERMINAL, rows=rows)))
    run = result.run
    lines = [f"not there: {name}: {why}" for name, why in absent(run.plan, run.missing).items()]
    lines += [
        f"repeats within {each.query}: {each.images:,} images, near or exact; no leaks"
        for each in result.repeats
        if each.images
    ]
    if run.reused:
        lines.append(f"{counted(run.reused, 'audit')} finished before; --force runs all again")
    edges.say("\n".join([*map(edges.plain, lines), edges.plain(str(order.out / PAGE))]) + "\n")
