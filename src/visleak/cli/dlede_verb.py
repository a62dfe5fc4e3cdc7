"""``visleak dlede``: retrain with test images leaked on purpose, and judge the split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visleak.cli import edges
from visleak.cli.command import Call, Reply, free
from visleak.dlede.settings import (
    FULL,
    WITH_SCORES,
    ControlSettings,
    DecisionSettings,
    DLeDeOptions,
    Execution,
    Forecast,
    Plan,
    Sources,
    TrainerSettings,
    parse_chance,
)
from visleak.errors import UsageError, VisleakError
from visleak.options import Backend, Columns
from visleak.options import Execution as Workers

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.dlede import DLeDeResult, Split
    from visleak.dlede.results import AuditSummary


def dlede(
    sources: Sources,
    columns: Columns,
    trained_by: TrainerSettings,
    plan: Plan,
    decision: DecisionSettings,
    controls: ControlSettings,
    execution: Execution,
    workers: Workers,
    backend: Backend,
    options: DLeDeOptions,
    call: Call,
) -> Reply:
    """Test a split for leakage by retraining with leaked test images (D-LeDe, Babu et al. 2025).

    Test images are leaked into training on purpose, 10 % per step; a split that leaks already
    gains hardly anything by that. Training runs are kept: an interrupted command resumes.
    """
    decision = replace(decision, chance=dict(map(parse_chance, options.chance)))
    if options.scores is not None:
        call.only_with("--scores", WITH_SCORES)
        return _judge_scores(options.scores, decision, options)
    sources.check()
    if options.full_curve and "steps" in call.given:
        raise UsageError("--full-curve and --steps exclude each other; give one of them")
    if "alpha" in call.given and not controls.calibrate:
        raise UsageError("--alpha needs --calibrate K")
    if not trained_by.trainer:
        raise UsageError(
            "no trainer: give --trainer command:'CMD {train} {test} {out} {seed}',"
            " ultralytics:MODEL, torch:detector, torch:classifier or lookup; without retraining,"
            " visleak audit finds the pairs"
        )
    from visleak.auditing import audit
    from visleak.dlede import forecast, load_trainer, run
    from visleak.dlede.document.text import forecast_line
    from visleak.dlede.protocol import audit_summary, claimed_split, given_audit, open_split
    from visleak.documents import as_plain
    from visleak.pipeline.ray_engine import engine_of

    device, threads = trained_by.device, trained_by.threads
    trainer = load_trainer(
        trained_by.trainer, device=device, threads=threads, time_limit=execution.limit
    )
    cost: list[Forecast] = []

    def tell_cost(found: Forecast) -> None:
        cost.append(found)
        if found.done < found.training_runs:
            edges.note(forecast_line(found))

    plan = replace(plan, steps=FULL) if options.full_curve else plan
    execution = replace(
        execution,
        engine=engine_of(backend.engine, backend.ray_address),
        progress=call.progress,
        notify=edges.note,
        on_forecast=tell_cost,
    )
    settings: dict[str, Any] = {"plan": plan, "decision": decision, "controls": controls}
    settings["execution"] = execution
    split, sets = open_split(sources, columns, call.progress, edges.note)
    if options.dry_run:
        found = forecast(split, trainer, options.out, **settings)
        return Reply([forecast_line(found)], as_plain(found) | {"seconds": found.seconds})
    call.kept = f"finished training runs are kept in {options.out}; the same command resumes"
    listed = sources.recipe is not None
    split = claimed_split(options.out, split, sets, listed=listed, force=options.force)
    given = given_audit(options, split, edges.note)
    audits: list[Audit] = []
    pinned: list[Split] = []

    def summary(trained_on: Split) -> AuditSummary | None:
        pinned.append(trained_on)
        if options.audit == "off":
            return None
        audits.append(
            given
            or audit(
                split.test,
                split.train,
                out=options.out / "audit",
                **workers.chosen(),
                progress=call.progress,
                force=options.force,
            )
        )
        return audit_summary(audits[0], trained_on, options.out)

    result = run(split, trainer, options.out, **settings, audit=summary, force=options.force)
    reply = _written(result, options, _sheet(options, pinned[0], result), audits)
    if cost and cost[0].done == cost[0].training_runs:
        edges.note(f"reused: all {cost[0].done:,} training runs were in {options.out}")
    return reply


def _judge_scores(file: Path, decision: DecisionSettings, options: DLeDeOptions) -> Reply:
    from visleak.dlede import judge_scores
    from visleak.dlede.document import folder_of
    from visleak.dlede.judge.scores import read_scores
    from visleak.dlede.protocol import REQUEST

    if (options.out / REQUEST).exists():
        raise UsageError(
            f"{options.out} holds training runs, which scores do not replace; choose another folder"
            " with -o DIR"
        )
    free(options.out, folder_of(options.out).result.name, force=options.force)
    scores = read_scores(file, lower=decision.lower)
    return _written(judge_scores(scores, decision=decision, source=str(file)), options)


def _sheet(options: DLeDeOptions, split: Split, result: DLeDeResult) -> bytes | None:
    from visleak.dlede.hashes import pair_sheet

    if options.no_images or result.hashes is None or not result.hashes.most_similar:
        return None
    try:
        return pair_sheet(split, result.hashes)
    except VisleakError as error:
        edges.note(f"no sheet of similar pairs: {error}")
        return None


def _written(
    result: DLeDeResult,
    options: DLeDeOptions,
    sheet: bytes | None = None,
    audits: Sequence[Audit] = (),
) -> Reply:
    from visleak.dlede.document import folder_of, write
    from visleak.report import show_in_report
    from visleak.reporting import section, terminal
    from visleak.storage import REPORT

    made = write(result, options.out, sheet=sheet)
    for audit in audits:
        show_in_report(audit, "dlede.json", section(made), private=options.no_images)
    pages = [audit.folder / REPORT for audit in audits]
    shown = terminal(made, tables=0 if result.proof else 2)
    return Reply(shown, folder_of(options.out).result, files=[options.out, *pages])
