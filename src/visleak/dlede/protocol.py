"""The whole of D-LeDe: training runs, verdict, controls and evidence."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.dlede.document import folder_of
from visleak.dlede.draw import (
    Split,
    check_audited,
    check_unchanged,
    pinned,
    split_of,
    write_split_tables,
)
from visleak.dlede.draw.draws import class_counts
from visleak.dlede.draw.recipes import split_by
from visleak.dlede.hashes import hash_evidence, hash_line
from visleak.dlede.judge import UNDECIDED, check_steps
from visleak.dlede.judge.detection_limit import detection_limit
from visleak.dlede.judge.judge import CALIBRATION_FAILED, judge, judge_by_others, proved
from visleak.dlede.judge.scores import Scores, chance_levels, missing_metrics
from visleak.dlede.results import (
    AuditSummary,
    Calibration,
    DLeDeResult,
    HashEvidence,
    Judgement,
    SplitSet,
)
from visleak.dlede.settings import (
    ControlSettings,
    DecisionSettings,
    DLeDeOptions,
    Execution,
    Forecast,
    Plan,
    Sources,
)
from visleak.dlede.train import Trainer, gains_of
from visleak.dlede.train.curves import (
    CALIBRATION,
    LONGER,
    PREPARED,
    Curve,
    TrainedCurve,
    calibrate,
    check_convergence,
    control_curves,
    forecast_of,
    prepared_folder,
    train_curve,
)
from visleak.documents import digest_of, read_document
from visleak.errors import UsageError, VisleakError, explaining
from visleak.formats.opening import open_set, open_sides
from visleak.formats.request import check_pattern
from visleak.options import Columns
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.records import AnySet, ImageSet
from visleak.settings import SideColumns, Sides
from visleak.storage import SECTIONS, claimed, free_folder, refuse_inputs, write_json

REQUEST: Final = "request.json"  # the file that states which training runs a folder holds
KIND: Final = "visleak dlede request"
#: Names of its entries for people, if they differ.
_NAMES: Final = {
    "nested": "way to draw (--redraw-each-step)",
    "stratified": "way to draw (--stratify)",
}
RUNS: Final = "runs"  # folder of the training runs of the curve

#: The summary of an audit, or a function that returns it for the images that are trained on.
AuditSource = AuditSummary | Callable[[Split], AuditSummary | None] | None


def run(
    split: Split,
    trainer: Trainer,
    output: str | os.PathLike[str] = "visleak-dlede",
    *,
    plan: Plan | None = None,
    decision: DecisionSettings | None = None,
    controls: ControlSettings | None = None,
    execution: Execution | None = None,
    audit: AuditSource = None,
    force: bool = False,
) -> DLeDeResult:
    """Leak test images on purpose, retrain, and judge by the increase whether the split leaked.

    Each training run is kept in the folder: an interrupted command resumes, and one with more
    steps or repetitions trains only what is missing. The result itself is not written; see
    :func:`visleak.dlede.document.write`.

    Args:
        split: training and test images.
        trainer: trains and evaluates.
        output: the folder.
        plan: steps and repetitions.
        decision: how the curve is judged.
        controls: calibration, convergence check, hashes.
        execution: where runs are executed, and who is notified.
        audit: summary of the audit of the same split, or a function from the split to it, called
            after all checks and before any training run. A proved leak ends the command before it
            trains, unless the controls allow it.
        force: drop the training runs of another split, trainer or seed in the folder.

    Raises:
        UsageError: an argument does not fit, or the folder holds something else.
        VisleakError: no training run has a result, an image changed meanwhile, or the disk refuses.

    Source: Babu et al. 2025, "D-LeDe: A data leakage detection method for automotive perception
    systems", section 4 and Algorithm 1.
    """
    folder, plan, execution = Path(output), plan or Plan(), execution or Execution()
    decision, controls = decision or DecisionSettings(), controls or ControlSettings()
    curve = Curve.of(split, plan, trainer, folder / RUNS)
    control_curves(curve, decision, controls)  # refuses what cannot be planned
    with claimed(folder, result=folder_of(folder).result.name, reads=False):
        _state_request(folder, curve, force=force)
        try:
            split = pinned(split, execution.progress)
            curve = replace(curve, split=split)
            extra = control_curves(curve, decision, controls)
            prepared = trainer.prepare(split, prepared_folder(folder, "split"), execution.progress)
            cost = forecast_of((curve, *extra.curves), prepared, jobs=execution.jobs)
            summary, hashes = _evidence(split, audit, controls, execution, cost)
            proof = summary.proof if summary else ""
            if proof and not controls.allow_proved_leak:
                return DLeDeResult(
                    *_about(curve),
                    scores=Scores((), plan.steps, (), np.zeros((0, 0, len(plan.steps)))),
                    judgement=proved(plan, decision),
                    hashes=hashes,
                    audit=summary,
                    proof=proof,
                )
            execution.on_forecast(cost)
            trained = train_curve(curve, prepared, decision, execution)
            of_metrics = tuple(_metric_notes(trained, decision))
            decision = _settled(decision, trainer, trained)
            calibration, clean, uncalibrated = calibrate(extra, decision, controls, execution)
            convergence, unconverged = check_convergence(
                extra, trained, prepared, decision, execution
            )
            check_unchanged(split, curve.split_digest)
        finally:
            shutil.rmtree(folder / PREPARED, ignore_errors=True)
    scores = trained.scores
    judgement = _judgement(scores, decision, calibration)
    by_clean = calibration is not None and judgement.threshold == calibration.threshold
    return DLeDeResult(
        *_about(curve),
        scores=scores,
        judgement=judgement,
        others=judge_by_others(scores, decision, judgement.threshold, calibrated=by_clean),
        failed=trained.failed,
        seconds=sum(run.seconds for run in trained.runs),
        notes=(*getattr(prepared, "notes", ()), *of_metrics, *uncalibrated, *unconverged),
        class_counts=class_counts(split, curve.draws()),
        memory=gains_of(trained.runs, curve.folder, scores.lower),
        calibration=calibration,
        detection=detection_limit(
            scores, judgement, clean=clean, calibrated=by_clean, chance=decision.chance
        ),
        convergence=convergence,
        hashes=hashes,
        audit=summary,
    )


def forecast(
    split: Split,
    trainer: Trainer,
    output: str | os.PathLike[str] = "visleak-dlede",
    *,
    plan: Plan | None = None,
    decision: DecisionSettings | None = None,
    controls: ControlSettings | None = None,
    execution: Execution | None = None,
) -> Forecast:
    """Return the expected cost of :func:`run`; nothing is trained, and nothing stays on disk.

    Raises:
        UsageError, VisleakError: as :func:`run`, before its first training run.
    """
    execution = execution or Execution()
    curve = Curve.of(split, plan or Plan(), trainer, Path(output) / RUNS)
    extra = control_curves(curve, decision or DecisionSettings(), controls or ControlSettings())
    with tempfile.TemporaryDirectory(prefix="visleak-") as scratch:
        prepared = trainer.prepare(split, Path(scratch), execution.progress)
        return forecast_of((curve, *extra.curves), prepared, jobs=execution.jobs)


def judge_scores(
    scores: Scores, *, decision: DecisionSettings | None = None, source: str = ""
) -> DLeDeResult:
    """Judge training runs made elsewhere.

    Args:
        scores: their metrics, see :func:`visleak.dlede.judge.scores.read_scores`.
        decision: how they are judged.
        source: of the scores.

    Raises:
        UsageError: a metric does not exist, or a rule needs more steps.
        VisleakError: no repetition has all deciding steps.
    """
    decision = decision or DecisionSettings()
    check_steps(decision.rule, scores.steps[:3])
    judgement = judge(scores, decision)
    if not judgement.repetitions:
        steps = ", ".join(map(str, judgement.decided_by))
        raise VisleakError(
            f"nothing can be judged: no repetition of {source or 'the scores'} has a score at all"
            f" the steps {steps} %; add what is missing"
        )
    rescaled = f"{', '.join(scores.rescaled)}: read as percent, and divided by 100"
    notes = (missing_metrics(scores, decision.metrics), rescaled if scores.rescaled else "")
    return DLeDeResult(
        *(SplitSet(), SplitSet(), {"name": "scores", "source": source}),
        plan=Plan(steps=scores.steps, repetitions=len(scores.repetitions)),
        scores=scores,
        judgement=judgement,
        detection=detection_limit(scores, judgement, chance=decision.chance),
        others=judge_by_others(scores, decision, decision.limit),
        notes=tuple(filter(None, notes)),
    )


def _about(curve: Curve) -> tuple[SplitSet, SplitSet, dict[str, object], Plan]:
    """Return the sets, the trainer with the epochs trained, and the plan."""
    train, test = (
        SplitSet(each.name, len(each), each.source)
        for each in (curve.split.train, curve.split.test)
    )
    epochs = {} if curve.epochs is None else {"epochs": curve.epochs}
    return train, test, {**curve.trainer_about, **epochs}, curve.plan


def _evidence(
    split: Split,
    audit: AuditSource,
    controls: ControlSettings,
    execution: Execution,
    cost: Forecast,
) -> tuple[AuditSummary | None, HashEvidence | None]:
    """Collect evidence before anything is trained; report it unless all runs are finished."""
    summary = (audit(split) if callable(audit) else audit) or shared_files(split)
    hashes = hash_evidence(split, progress=execution.progress) if controls.hashes else None
    if summary and cost.done < cost.training_runs:
        execution.notify(summary.line)
    if hashes and cost.done < cost.training_runs:
        execution.notify(hash_line(hashes))
    return summary, hashes


def _state_request(folder: Path, curve: Curve, *, force: bool) -> None:
    """Write which training runs the folder holds; refuse others unless ``force`` drops them."""
    plan, trainer = curve.plan, curve.trainer_about
    request = {"split": curve.split_digest, "trainer": digest_of(trainer), "seed": plan.seed}
    request |= {"nested": plan.nested, "stratified": plan.stratified, "epochs": plan.epochs}
    stated = trainer.get("files")
    files = stated if isinstance(stated, Mapping) else {}
    path = folder / REQUEST
    if path.exists():
        found = read_document(path, KIND, 1, "choose another folder with -o DIR")
        other = [name for name, value in request.items() if found.get(name) != value]
        held = [folder / name for name in (RUNS, CALIBRATION, LONGER)]
        if other and not force and any(any(each.rglob("*.json")) for each in held):
            before = found.get("files")
            known = before if isinstance(before, Mapping) else files
            edited = [name for name, digest in files.items() if known.get(name, digest) != digest]
            what = " and ".join(_NAMES.get(name, name) for name in other)
            what += f" ({', '.join(edited)} changed)" if edited else ""
            raise UsageError(
                f"{folder} holds training runs with another {what}; choose another folder with"
                " -o DIR, or --force drops them"
            )
        for each in held if other else ():
            shutil.rmtree(each, ignore_errors=True)
    with explaining(f"{path} cannot be written", OSError):
        write_json(path, {"schema": 1, "kind": KIND, **request, "files": files})


def _settled(
    decision: DecisionSettings, trainer: Trainer, trained: TrainedCurve
) -> DecisionSettings:
    """Add the trainer's deciding metrics if none are requested, and known scores of guessing."""
    metrics, split = trained.scores.metrics, trained.curve.split
    own = tuple(name for name in trainer.decides if name in metrics)
    # labels of a set with boxes do not determine the F1 of a detector
    classifies = "accuracy" in metrics and split.test_boxes is None
    known = chance_levels(split.test.labels) if classifies else {}
    chance = {name: value for name, value in known.items() if name in metrics}
    return replace(decision, metrics=decision.metrics or own, chance={**chance, **decision.chance})


def _metric_notes(trained: TrainedCurve, decision: DecisionSettings) -> Iterator[str]:
    if line := missing_metrics(trained.scores, decision.metrics):
        yield line
    counts, runs = Counter(name for each in trained.runs for name in each.metrics), trained.runs
    for name, count in counts.items():
        if name not in trained.scores.metrics:
            yield f"{name} is excluded: only {count:,} of {len(runs):,} training runs report it"


def _judgement(
    scores: Scores, decision: DecisionSettings, calibration: Calibration | None
) -> Judgement:
    """Judge by the requested threshold, else the calibrated one, else the paper's."""
    if decision.threshold is not None or calibration is None:
        return judge(scores, decision)
    if calibration.threshold > 0.0:
        return judge(scores, replace(decision, threshold=calibration.threshold), calibrated=True)
    # clean splits rise too little, or too unevenly, to conclude anything: only the means are judged
    made = judge(scores, decision)
    return replace(
        made,
        metrics=tuple(replace(each, verdict=UNDECIDED) for each in made.metrics),
        verdict=UNDECIDED,
        disagree=False,
        more=None,
        reason_code=made.reason_code or CALIBRATION_FAILED,
    )


# -- the audit of the split ------------------------------------------------------------------------
#
# D-LeDe needs a leak of a large part of the test set to show in the scores
# (:mod:`visleak.dlede.judge.detection_limit`); an audit proves a smaller one image by image.


def audit_summary(audit: Audit, split: Split, output: Path) -> AuditSummary:
    """Return what a result holds of an audit of the same contents, people's verdicts included."""
    if audit.unfinished:
        raise VisleakError(
            f"the audit {audit.folder} is unfinished: {counted(audit.unfinished, 'image')} could"
            " not be read again; run it again when the source is complete"
        )
    check_audited(audit, split)
    judged = apply_verdicts(audit)
    headline = judged.headline
    if lost := audit.unreadable():
        example = f"such as {lost[0].id!r} of {lost[0].set!r}"
        headline += f"; {counted(len(lost), 'image')} could not be read, {example}"
    inside = audit.folder.parent == output
    folder = audit.folder.name if inside else str(audit.folder)
    return AuditSummary(folder, headline, *_copies(judged, split))


def _copies(audit: Audit, split: Split) -> tuple[int, int] | tuple[()]:
    """Return how many of the test images have a near or exact copy in training, if it is known.

    An audit with other names for the sets counts if its only comparison is of the test images.
    """
    compared, names = audit.summary.comparisons, (split.test.name, split.train.name)
    own = [each for each in compared if (each.query_set, each.reference_set) == names]
    (found, *others) = own or compared
    table = audit.images()
    queries = table.filter(pc.equal(table["set"], found.query_set))["id"].to_pylist()
    rate = found.rates.get("near_or_exact")
    if others or rate is None or not set(queries) <= set(split.test.ids.to_pylist()):
        return ()
    return rate.count, rate.total


def shared_files(split: Split) -> AuditSummary | None:
    """Return a summary of test images whose files, links followed, are training files, if any."""
    test, train = (
        [os.path.realpath(each) for each in images.locators.to_pylist() if each]
        for images in (split.test, split.train)
    )
    trained, total = frozenset(train), len(split.test)
    # images in memory may have equal names, and are not files
    shared = sum(file in trained and os.path.exists(file.partition("!")[0]) for file in test)
    headline = f"{shared:,} of {total:,} test images are the same files as training images"
    return AuditSummary(None, headline, shared, total) if shared else None


Notify = Callable[[str], None]


def open_split(
    sources: Sources, columns: Columns, progress: Progress, notify: Notify
) -> tuple[Split, Sequence[AnySet]]:
    """Open the split; return it with the sets that it consists of."""
    progress("listing images", 0, 0)
    if sources.whole is not None:
        images = open_set(sources.whole, columns)
        check_pattern([images], "group", columns.group)
        return split_by(images, str(sources.recipe)), [images]
    named = SideColumns(columns.id, columns.label, columns.group)
    given = [() if each is None else (each,) for each in (sources.test, sources.train)]
    compared = open_sides(Sides(sources.folder, given[0], given[1], (), named))
    (train,), by_name = compared.references, {images.name: images for images in compared.queries}
    test = by_name.get("test", compared.queries[0])
    if others := [name for name in by_name if name != test.name]:
        notify(
            f"{test.name} is tested against {train.name}; {', '.join(others)} is ignored, give it"
            " as --test to test it"
        )
    check_pattern((test, train), "group", columns.group)
    progress("listing images", 1, 1)
    if not isinstance(test, ImageSet) or not isinstance(train, ImageSet):
        wrong = train if isinstance(test, ImageSet) else test
        raise UsageError(f"set {wrong.name!r} holds embeddings; training needs images")
    return split_of(test, train), [test, train]


def claimed_split(
    out: Path, split: Split, sets: Sequence[AnySet], *, listed: bool, force: bool
) -> Split:
    """Check the output folder; write the parts of a recipe, so that the audit can be opened."""
    folder = folder_of(out)
    refuse_inputs(folder.path, [(images.name, images.source) for images in sets], Path())
    # the result of --scores is not replaced by that of training runs
    own = (folder.path / REQUEST).exists()
    free_folder(folder.path, folder.result.name, force=force or own)
    if not listed:
        return split
    with folder.claimed():
        return write_split_tables(split, folder.path / "split", force=force)


def given_audit(options: DLeDeOptions, split: Split, notify: Notify) -> Audit | None:
    """Return the audit that was named, after a check that it compared the images of this split."""
    if options.audit in ("", "off"):
        return None
    audit = Audit(options.audit)
    table, compared = audit.images(), audit.summary.comparisons
    names = {name for each in compared for name in (each.query_set, each.reference_set)}
    seen = [set(table.filter(pc.equal(table["set"], name))["id"].to_pylist()) for name in names]
    for images in (split.test, split.train):
        ids = set(images.ids.to_pylist())
        # the tables of an audit do not contain unreadable images
        if not any(found and found <= ids and 2 * len(found) > len(ids) for found in seen):
            raise UsageError(
                f"--audit {audit.folder} is of other sets: none of them has the images of"
                f" {images.name!r}; leave it out to run one"
            )
    if (audit.folder / SECTIONS / "dlede.json").exists():
        notify(f"the report of {audit.folder} showed another result of dlede; it is replaced")
    return audit
