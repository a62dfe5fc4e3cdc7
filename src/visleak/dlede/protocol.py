"""The whole of D-LeDe: training runs, verdict, controls and evidence."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from visleak.dlede.audit import audit_line, proof_of, shared_files
from visleak.dlede.draw.draws import class_counts
from visleak.dlede.draw.split import Split
from visleak.dlede.hashes import hash_evidence, hash_line
from visleak.dlede.judge.detection_limit import detection_limit
from visleak.dlede.judge.judge import CALIBRATION_FAILED, judged, judged_by_others, proved
from visleak.dlede.judge.rules import UNDECIDED, check_steps
from visleak.dlede.judge.scores import Scores, chance_levels, missing_metrics
from visleak.dlede.results import Calibration, DLeDeResult, HashEvidence, Judgement
from visleak.dlede.settings import (
    ControlSettings,
    DecisionSettings,
    Execution,
    Forecast,
    Plan,
)
from visleak.dlede.train.controls import (
    CALIBRATION,
    LONGER,
    PREPARED,
    calibrate,
    check_convergence,
    control_curves,
    prepared_folder,
)
from visleak.dlede.train.curves import Curve, TrainedCurve, forecast_of, train_curve
from visleak.dlede.train.runs import gains_of
from visleak.dlede.train.trainer import Trainer
from visleak.documents import digest_of, read_document
from visleak.errors import UsageError, VisleakError
from visleak.records import ImageSet
from visleak.storage import claimed, write_json

#: The file that states which training runs a folder holds.
REQUEST: Final = "request.json"
KIND: Final = "visleak dlede request"

#: Names of its entries for people, if they differ.
_NAMES: Final = {
    "nested": "way to draw (--redraw-each-step)",
    "stratified": "way to draw (--stratify)",
}

#: Folder of the training runs of the curve.
RUNS: Final = "runs"

#: The summary of an audit as ``DLeDeResult.audit`` holds it, or a function that returns it.
AuditSource = Mapping[str, Any] | Callable[[], Mapping[str, Any] | None] | None


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
    :func:`visleak.dlede.document.document.write`.

    Args:
        split: training and test images.
        trainer: trains and evaluates.
        output: the folder.
        plan: steps and repetitions.
        decision: how the curve is judged.
        controls: calibration, convergence check, hashes.
        execution: where runs are executed, and who is notified.
        audit: summary of the audit of the same split. A function is called for it after all checks
            and before any training run. If it proves a leak, nothing is trained, unless the
            controls allow it.
        force: drop the training runs of another split, trainer or seed in the folder.

    Raises:
        UsageError: an argument does not fit, or the folder holds something else.
        VisleakError: no training run has a result, or the disk refuses.

    Source: Babu et al. 2025, "D-LeDe: A data leakage detection method for automotive perception
    systems", section 4 and Algorithm 1.
    """
    folder, plan, execution = Path(output), plan or Plan(), execution or Execution()
    decision, controls = decision or DecisionSettings(), controls or ControlSettings()
    curve = Curve.of(split, plan, trainer, folder / RUNS)
    extra = control_curves(curve, decision, controls)
    with claimed(folder):
        _state_request(folder, curve, force=force)
        try:
            prepared = trainer.prepare(split, prepared_folder(folder, "split"), execution.progress)
            cost = forecast_of((curve, *extra.curves), prepared, jobs=execution.jobs)
            summary, hashes = _evidence(split, audit, controls, execution, cost)
            if (proof := proof_of(summary)) and not controls.allow_proved_leak:
                return DLeDeResult(
                    **_about(curve),
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
        finally:
            shutil.rmtree(folder / PREPARED, ignore_errors=True)
    scores = trained.scores
    judgement = _judgement(scores, decision, calibration)
    by_clean = calibration is not None and judgement.threshold == calibration.threshold
    return DLeDeResult(
        **_about(curve),
        scores=scores,
        judgement=judgement,
        others=judged_by_others(scores, decision, judgement.threshold, calibrated=by_clean),
        failed=trained.failed,
        seconds=trained.seconds,
        notes=(*getattr(prepared, "notes", ()), *of_metrics, *uncalibrated, *unconverged),
        makeup=class_counts(split, curve.draws()),
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
        scores: their metrics, see :func:`visleak.dlede.judge.scores_file.read_scores`.
        decision: how they are judged.
        source: of the scores.

    Raises:
        UsageError: a metric does not exist, or a rule needs more steps.
        VisleakError: no repetition has all deciding steps.
    """
    decision = decision or DecisionSettings()
    check_steps(decision.rule, scores.steps[:3])
    judgement = judged(scores, decision)
    if not judgement.repetitions:
        steps = ", ".join(map(str, judgement.decided_by))
        raise VisleakError(
            f"nothing can be judged: no repetition of {source or 'the scores'} has a score at all"
            f" the steps {steps} %; add what is missing"
        )
    notes = [missing_metrics(scores, decision.metrics)]
    if scores.rescaled:
        notes.append(f"{', '.join(scores.rescaled)}: read as percent, and divided by 100")
    nothing = {"name": "", "images": 0, "source": ""}
    return DLeDeResult(
        train=nothing,
        test=nothing,
        trainer={"name": "scores", "source": source},
        plan=Plan(steps=scores.steps, repetitions=len(scores.repetitions)),
        scores=scores,
        judgement=judgement,
        detection=detection_limit(scores, judgement, chance=decision.chance),
        others=judged_by_others(scores, decision, decision.limit),
        notes=tuple(filter(None, notes)),
    )


def _about(curve: Curve) -> dict[str, Any]:
    """Return sets, trainer with the epochs trained, and plan as fields of a result."""

    def about(images: ImageSet) -> dict[str, Any]:
        return {"name": images.name, "images": len(images), "source": images.source}

    epochs = {} if curve.epochs is None else {"epochs": curve.epochs}
    return {
        "train": about(curve.split.train),
        "test": about(curve.split.test),
        "trainer": {**curve.about["trainer"], **epochs},
        "plan": curve.plan,
    }


def _evidence(
    split: Split,
    audit: AuditSource,
    controls: ControlSettings,
    execution: Execution,
    cost: Forecast,
) -> tuple[Mapping[str, Any] | None, HashEvidence | None]:
    """Collect evidence before anything is trained; report it unless all runs are finished."""
    summary = (audit() if callable(audit) else audit) or shared_files(split)
    hashes = hash_evidence(split, progress=execution.progress) if controls.hashes else None
    if cost.done < cost.trainings:
        if summary:
            execution.notify(audit_line(summary))
        if hashes is not None:
            execution.notify(hash_line(hashes))
    return summary, hashes


def _state_request(folder: Path, curve: Curve, *, force: bool) -> None:
    """Write which training runs the folder holds.

    Raises:
        UsageError: it holds others, and ``force`` is not set.
    """
    plan, trainer = curve.plan, curve.about["trainer"]
    request = {
        "split": curve.about["split"],
        "trainer": digest_of(trainer),
        "seed": plan.seed,
        "nested": plan.nested,
        "stratified": plan.stratified,
        "epochs": plan.epochs,
    }
    files = trainer.get("files", {})
    path = folder / REQUEST
    if path.exists():
        found = read_document(path, KIND, 1, "choose another folder with -o DIR")
        other = [name for name, value in request.items() if found.get(name) != value]
        held = [folder / name for name in (RUNS, CALIBRATION, LONGER)]
        if other and not force and any(any(each.rglob("*.json")) for each in held):
            what = " and ".join(_NAMES.get(name, name) for name in other)
            before = found.get("files")
            known = before if isinstance(before, Mapping) else files
            edited = [name for name, digest in files.items() if known.get(name, digest) != digest]
            what += f" ({', '.join(edited)} changed)" if edited else ""
            raise UsageError(
                f"{folder} holds training runs with another {what}; choose another folder with"
                " -o DIR, or --force drops them"
            )
        for each in held if other else ():
            shutil.rmtree(each, ignore_errors=True)
    try:
        write_json(path, {"schema": 1, "kind": KIND, **request, "files": files})
    except OSError as error:
        raise VisleakError(f"{path} cannot be written: {error}") from error


def _settled(
    decision: DecisionSettings, trainer: Trainer, trained: TrainedCurve
) -> DecisionSettings:
    """Return the settings with the deciding metrics, those requested or the trainer's.

    The score of guessing is added if it is known and not given.
    """
    metrics, split = trained.scores.metrics, trained.curve.split
    own = tuple(name for name in trainer.decides if name in metrics)
    # labels of a set with boxes do not determine the F1 of a detector
    classifies = "accuracy" in metrics and split.test_boxes is None
    known = chance_levels(split.test.labels) if classifies else {}
    chance = {name: value for name, value in known.items() if name in metrics}
    return replace(decision, metrics=decision.metrics or own, chance={**chance, **decision.chance})


def _metric_notes(trained: TrainedCurve, decision: DecisionSettings) -> Iterator[str]:
    """Yield notes on metrics that are missing, or that only some training runs have."""
    if line := missing_metrics(trained.scores, decision.metrics):
        yield line
    counts = Counter(name for each in trained.runs for name in each.metrics)
    for name, count in counts.items():
        if name not in trained.scores.metrics:
            yield (
                f"{name} is excluded: only {count:,} of {len(trained.runs):,} training runs report"
                " it"
            )


def _judgement(
    scores: Scores, decision: DecisionSettings, calibration: Calibration | None
) -> Judgement:
    """Judge by the requested threshold, else the calibrated one, else the paper's.

    If clean splits rise too little, or too unevenly, for a threshold above 0, nothing can be
    concluded: the means are compared with the paper's threshold, and the verdict is undecided.
    """
    if decision.threshold is not None or calibration is None:
        return judged(scores, decision)
    if calibration.threshold > 0.0:
        return judged(scores, decision, threshold=calibration.threshold, calibrated=True)
    made = judged(scores, decision)
    return replace(
        made,
        metrics=tuple(replace(each, verdict=UNDECIDED) for each in made.metrics),
        verdict=UNDECIDED,
        disagree=False,
        more=None,
        reason_code=made.reason_code or CALIBRATION_FAILED,
    )
