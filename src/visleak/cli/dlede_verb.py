"""``visleak dlede``: retrain with test images leaked on purpose, and judge the split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from visleak.cli.command import Call, Reply
from visleak.dlede.settings import (
    ANALYSES,
    FULL,
    TRAINING,
    ControlSettings,
    DecisionSettings,
    Execution,
    Forecast,
    Plan,
    TrainerSettings,
)
from visleak.errors import UsageError, VisleakError
from visleak.options import (
    OUTPUT,
    SETS,
    Backend,
    Columns,
    Options,
    Printed,
    Replaced,
    argument,
    option,
    share,
)
from visleak.options import Execution as Workers

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.dlede import DLeDeResult, Split, Trainer
    from visleak.dlede.results import AuditSummary
    from visleak.records import AnySet

#: Options that ``--scores`` takes; the others concern training runs.
WITH_SCORES = (
    "scores",
    "out",
    "chance",
    "json",
    "force",
    *(f.name for f in fields(DecisionSettings)),
)


@dataclass(frozen=True)
class Sources(Options):
    """The split under test."""

    folder: str | None = argument(
        None,
        "A data set with train and test (or val) in it: folders, Parquet files, a table with a"
        " split column, or a YOLO data.yaml.",
        metavar="DIR",
    )
    test: str | None = option(
        None,
        "Test images, as for audit; with annotations as coco:FILE, yolo:FILE#val or kitti:FOLDER.",
        metavar="[NAME=]SOURCE",
        panel=SETS,
    )
    train: str | None = option(None, "Training images.", metavar="[NAME=]SOURCE", panel=SETS)
    whole: str | None = option(
        None, "One set, divided by --split.", "--set", metavar="[NAME=]SOURCE", panel=SETS
    )
    recipe: str | None = option(
        None,
        "How to divide it: kitti, cirrus, first:N, first-groups:N, random:SHARE[:SEED] or"
        " groups:SHARE[:SEED].",
        "--split",
        metavar="RECIPE",
        panel=SETS,
    )

    def check(self) -> None:
        """Refuse no split, and more than one."""
        ways = [bool(self.folder), bool(self.test or self.train), bool(self.whole or self.recipe)]
        if sum(ways) != 1:
            raise UsageError(
                "give one split: a folder with train and test in it, or --test and --train, or"
                " --set and --split; or judge existing training runs with --scores FILE"
            )
        pairs = (("--test", self.test, "--train", self.train),
                 ("--set", self.whole, "--split", self.recipe))  # fmt: skip
        for first, one, second, other in pairs:
            if bool(one) != bool(other):
                given, missing = (first, second) if one else (second, first)
                raise UsageError(f"{given} needs {missing}")


@dataclass(frozen=True)
class DLeDeOptions(Printed, Replaced):
    """Further options of the command."""

    scores: Path | None = option(
        None,
        "Train nothing: judge existing scores, a .csv with the columns step, repetition and the"
        " metrics.",
        metavar="FILE",
        panel=TRAINING,
    )
    full_curve: bool = option(False, "Steps of 10 % from 0 to 100 %.", panel=TRAINING)
    chance: tuple[str, ...] = option(
        (),
        "Score of random guessing by a metric, such as accuracy=25%. Default: the share of the"
        " largest class, 0 for objects. May be repeated.",
        metavar="METRIC=RATE",
        panel="Decision",
    )
    audit: str = option(
        "",
        "An existing audit of the same split, or off. Default: run one in the output folder.",
        metavar="AUDIT_DIR|off",
        panel=ANALYSES,
    )
    out: Path = option(
        Path("visleak-dlede"), "Output folder.", "--output -o", metavar="DIR", panel=OUTPUT
    )
    dry_run: bool = option(
        False, "Print the number of training runs and the expected time, and stop.", panel=OUTPUT
    )
    no_images: bool = option(False, "Put no images into the output.", panel=OUTPUT)


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
    decision = replace(decision, chance=dict(map(_chance, options.chance)))
    if options.scores is not None:
        call.only_with("--scores", WITH_SCORES)
        return _judge_scores(options.scores, decision, options, call)
    sources.check()
    trainer = _trainer(trained_by, controls, execution, options, call)
    from visleak.dlede import run
    from visleak.pipeline.ray_engine import engine_of

    cost: list[Forecast] = []
    plan = replace(plan, steps=FULL) if options.full_curve else plan
    execution = replace(
        execution,
        engine=engine_of(backend.engine, backend.ray_address),
        progress=call.progress,
        notify=call.note,
        on_forecast=lambda found: _report_cost(found, cost, call),
    )
    split, sets = _opened(sources, columns, call)
    if options.dry_run:
        return _forecast(split, trainer, options, plan, decision, controls, execution)
    call.kept = f"finished training runs are kept in {options.out}; the same command resumes"
    split = _claimed(options, split, sets, listed=sources.recipe is not None)
    given = _given_audit(options, split, call)
    audits: list[Audit] = []

    def summary(trained_on: Split) -> AuditSummary | None:
        from visleak.dlede.protocol import audit_summary

        if options.audit == "off":
            return None
        audits.append(given or _audited(split, options, workers, call))
        return audit_summary(audits[0], trained_on, options.out)

    result = run(
        split,
        trainer,
        options.out,
        plan=plan,
        decision=decision,
        controls=controls,
        execution=execution,
        audit=summary,
        force=options.force,
    )
    reply = _written(result, options, _sheet(options, split, result, call), audits)
    if cost and cost[0].done == cost[0].trainings:
        call.note(f"reused: all {cost[0].done:,} training runs were in {options.out}")
    return reply


def _trainer(
    trained_by: TrainerSettings,
    controls: ControlSettings,
    execution: Execution,
    options: DLeDeOptions,
    call: Call,
) -> Trainer:
    """Return the trainer; refuse none, and options that exclude or need each other."""
    from visleak.dlede import load_trainer

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
    return load_trainer(
        trained_by.trainer,
        device=trained_by.device,
        threads=trained_by.threads,
        time_limit=execution.limit,
    )


def _forecast(
    split: Split,
    trainer: Trainer,
    options: DLeDeOptions,
    plan: Plan,
    decision: DecisionSettings,
    controls: ControlSettings,
    execution: Execution,
) -> Reply:
    from visleak.dlede import forecast
    from visleak.documents import as_plain

    found = forecast(
        split,
        trainer,
        options.out,
        plan=plan,
        decision=decision,
        controls=controls,
        execution=execution,
    )
    return Reply([forecast_line(found)], as_plain(found) | {"seconds": found.seconds})


def _audited(split: Split, options: DLeDeOptions, workers: Workers, call: Call) -> Audit:
    from visleak.auditing import audit

    return audit(
        split.test,
        split.train,
        out=options.out / "audit",
        **workers.chosen(),
        progress=call.progress,
        force=options.force,
    )


def _chance(text: str) -> tuple[str, float]:
    """Return metric and share of METRIC=RATE."""
    name, _, rate = text.rpartition("=")
    if not name:
        raise UsageError(f"--chance must be a metric and a share, accuracy=25%; got {text!r}")
    return name, share(rate)


def _judge_scores(
    file: Path, decision: DecisionSettings, options: DLeDeOptions, call: Call
) -> Reply:
    from visleak.dlede import judge_scores
    from visleak.dlede.document import folder_of
    from visleak.dlede.judge.scores import read_scores
    from visleak.dlede.protocol import REQUEST
    from visleak.storage import free_folder

    # a folder with training runs is never replaced by scores
    free_folder(options.out, REQUEST)
    result = folder_of(options.out).result.name
    free_folder(options.out, result, force=call.replaces(options.out, result, force=options.force))
    scores = read_scores(file, lower=decision.lower)
    return _written(judge_scores(scores, decision=decision, source=str(file)), options)


def _opened(sources: Sources, columns: Columns, call: Call) -> tuple[Split, Sequence[AnySet]]:
    """Open the split; return it with the sets that it consists of."""
    from visleak.dlede import split_by, split_of
    from visleak.formats.opening import open_set, open_sides
    from visleak.formats.request import check_pattern
    from visleak.records import ImageSet
    from visleak.settings import SideColumns, Sides

    call.progress("listing images", 0, 0)
    if sources.whole is not None:
        images = open_set(sources.whole, columns)
        check_pattern([images], "group", columns.group)
        return split_by(images, str(sources.recipe)), [images]
    named = SideColumns(columns.id, columns.label, columns.group)
    test_source, train_source = (
        () if each is None else (each,) for each in (sources.test, sources.train)
    )
    compared = open_sides(Sides(sources.folder, test_source, train_source, (), named))
    (train,), by_name = compared.references, {images.name: images for images in compared.queries}
    test = by_name.get("test", compared.queries[0])
    if others := [name for name in by_name if name != test.name]:
        call.note(
            f"{test.name} is tested against {train.name}; {', '.join(others)} is ignored, give it"
            " as --test to test it"
        )
    check_pattern((test, train), "group", columns.group)
    call.progress("listing images", 1, 1)
    if not isinstance(test, ImageSet) or not isinstance(train, ImageSet):
        wrong = train if isinstance(test, ImageSet) else test
        raise UsageError(f"set {wrong.name!r} holds embeddings; training needs images")
    return split_of(test, train), [test, train]


def _claimed(options: DLeDeOptions, split: Split, sets: Sequence[AnySet], *, listed: bool) -> Split:
    """Check the output folder; write the parts of a recipe, so that the audit can be opened."""
    from visleak.dlede.document import folder_of
    from visleak.dlede.draw import write_split_tables
    from visleak.dlede.protocol import REQUEST
    from visleak.storage import free_folder, refuse_inputs

    folder = folder_of(options.out)
    refuse_inputs(folder.path, [(images.name, images.source) for images in sets], Path())
    # the result of --scores is not replaced by that of training runs
    own = (folder.path / REQUEST).exists()
    free_folder(folder.path, folder.result.name, force=options.force or own)
    if not listed:
        return split
    with folder.claimed():
        return write_split_tables(split, folder.path / "split", force=options.force)


def _given_audit(options: DLeDeOptions, split: Split, call: Call) -> Audit | None:
    from visleak.auditing import Audit
    from visleak.dlede.protocol import check_audit
    from visleak.storage import SECTIONS

    if options.audit in ("", "off"):
        return None
    found = Audit(options.audit)
    check_audit(found, split)
    if (found.folder / SECTIONS / "dlede.json").exists():
        call.note(f"the report of {found.folder} showed another result of dlede; it is replaced")
    return found


def _sheet(options: DLeDeOptions, split: Split, result: DLeDeResult, call: Call) -> bytes | None:
    from visleak.dlede.hashes import pair_sheet

    if options.no_images or result.hashes is None or not result.hashes.alike:
        return None
    try:
        return pair_sheet(split, result.hashes)
    except VisleakError as error:
        call.note(f"no sheet of similar pairs: {error}")
        return None


def _written(
    result: DLeDeResult,
    options: DLeDeOptions,
    sheet: bytes | None = None,
    audits: Sequence[Audit] = (),
) -> Reply:
    """Write a result, also as a section of the audit's report."""
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


def _report_cost(found: Forecast, cost: list[Forecast], call: Call) -> None:
    cost.append(found)
    if found.done < found.trainings:
        call.note(forecast_line(found))


def forecast_line(found: Forecast) -> str:
    """Return the expected cost of training runs as one line."""
    from visleak.quantities import counted, duration

    def time(seconds: float) -> str:
        return "under 1 s" if seconds < 1.0 else f"about {duration(seconds)}"

    parts = [
        f"{counted(found.trainings, 'training run')} on {found.training_images:,} images, each"
        f" tested on {found.test_images:,}"
    ]
    if found.done:
        parts.append(f"{found.done:,} finished before")
    if found.seconds is None or found.seconds_a_training is None:
        parts.append("the expected time is known after the first run")
    elif found.done < found.trainings:
        source = "as finished ones took" if found.measured else "by a first estimate"
        at_once = f", {found.jobs:,} concurrent" if found.jobs > 1 else ""
        parts.append(
            f"{time(found.seconds)} left ({time(found.seconds_a_training)} each {source}{at_once})"
        )
    return "; ".join(parts)
