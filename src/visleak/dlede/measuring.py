"""The whole of D-LeDe: trainings, verdict, calibration, and what lies beside them as evidence."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from visleak.dlede.asking import THRESHOLD, Extras, Verdict, Works
from visleak.dlede.besides import (
    CALIBRATION,
    PREPARED,
    besides_of,
    calibrated,
    converged,
    prepared,
    refuse_incomplete,
    trained_by,
)
from visleak.dlede.converging import LONGER, usual_epochs
from visleak.dlede.courses import Course, Trained
from visleak.dlede.deciding import lacking
from visleak.dlede.detecting import detection_limit
from visleak.dlede.forecasting import Forecast, forecast_of
from visleak.dlede.guessing import chance_levels
from visleak.dlede.hash_evidence import hash_evidence
from visleak.dlede.lesson import Split, Trainer
from visleak.dlede.makeup import makeup_of
from visleak.dlede.markup import audit_line, hash_line
from visleak.dlede.memory import memory_of
from visleak.dlede.plan import Plan
from visleak.dlede.proving import nothing_trained, proof_of, proved, shared_files
from visleak.dlede.reasons import CALIBRATION_FAILED
from visleak.dlede.results import Calibration, DLeDe, HashEvidence, Judgement
from visleak.dlede.rules import UNDECIDED
from visleak.dlede.scores import Scores
from visleak.documents import digest_of, read_document
from visleak.errors import UsageError, VisleakError
from visleak.records import ImageSet
from visleak.storage import claimed, write_json

#: What a folder says of the trainings in it.
REQUEST: Final = "request.json"
KIND: Final = "visleak dlede request"

#: What a reader calls an entry of it, where that is another word.
_CALLED: Final = {"nested": "way to draw (--independent)", "stratified": "way to draw (--stratify)"}

#: Folder of the trainings of the curve.
RUNS: Final = "runs"


def dlede(
    split: Split,
    trainer: Trainer,
    out: str | os.PathLike[str] = "visleak-dlede",
    *,
    plan: Plan | None = None,
    verdict: Verdict | None = None,
    extras: Extras | None = None,
    works: Works | None = None,
    audit: Mapping[str, Any] | Callable[[], Mapping[str, Any] | None] | None = None,
    force: bool = False,
) -> DLeDe:
    """Leak on purpose, train again, and tell from the rise whether the split leaked already.

    Each training is kept in the folder: a run that was stopped goes on, and one with more steps
    or repetitions trains only what is missing. The result itself is not written; see
    :func:`visleak.dlede.output.write`.

    Args:
        split: training and test images.
        trainer: trains and evaluates.
        out: the folder.
        plan: steps and repetitions.
        verdict: how the curve is judged.
        extras: calibration, check of convergence, hashes.
        works: who works, and who is told.
        audit: what to say of the audit of the same split, as ``DLeDe.audit`` has it; a function is
            called for it when all is checked and nothing is trained yet. Where it proves a leak,
            nothing is trained, unless the extras allow it.
        force: drop the trainings of another split, trainer or seed that are in the folder.

    Raises:
        UsageError: an argument does not fit, or the folder holds something else.
        VisleakError: no training came to a result, or the disk refuses.

    Source: Babu et al. 2025, "D-LeDe: A data leakage detection method for automotive perception
    systems", section 4 and Algorithm 1.
    """
    folder = Path(out)
    verdict, extras, works = verdict or Verdict(), extras or Extras(), works or Works()
    course = Course.of(split, plan or Plan(), trainer, folder / RUNS)
    besides = besides_of(course, verdict, extras)
    with claimed(folder):
        _take(folder, course, force=force)
        ready = trainer.ready(split, prepared(folder, "split"), works.progress)
        costs = forecast_of((course, *besides.courses), ready, jobs=works.jobs)
        cause, hashes = _looked_at(split, audit, extras, works, costs)
        if (proof := proof_of(cause)) and not extras.allow_proved_leak:
            shutil.rmtree(folder / PREPARED, ignore_errors=True)
            return _proved(course, verdict, cause, hashes, proof)
        works.told(costs)
        trained = trained_by(course, ready, verdict, works)
        refuse_incomplete(trained)
        of_metrics = tuple(_on_metrics(trained, verdict))
        verdict = _settled(verdict, trainer, trained)
        calibration, clean, uncalibrated = calibrated(besides, verdict, extras, works)
        convergence, unconverged = converged(besides, trained, ready, verdict, works)
        shutil.rmtree(folder / PREPARED, ignore_errors=True)
    judgement = _judgement(trained.scores, verdict, calibration)
    by_clean = calibration is not None and judgement.threshold == calibration.threshold
    return DLeDe(
        train=_about(split.train),
        test=_about(split.test),
        trainer=_told(course),
        plan=course.plan,
        scores=trained.scores,
        judgement=judgement,
        others=verdict.others(trained.scores, judgement.threshold, calibrated=by_clean),
        failed=trained.failed,
        seconds=trained.seconds,
        notes=(*getattr(ready, "notes", ()), *of_metrics, *uncalibrated, *unconverged),
        makeup=makeup_of(split, course.draws()),
        memory=memory_of(trained.runs, course.folder, trained.scores.lower),
        calibration=calibration,
        detection=detection_limit(
            trained.scores, judgement, clean=clean, calibrated=by_clean, chance=verdict.chance
        ),
        convergence=convergence,
        hashes=hashes,
        audit=cause,
    )


def _looked_at(
    split: Split,
    audit: Mapping[str, Any] | Callable[[], Mapping[str, Any] | None] | None,
    extras: Extras,
    works: Works,
    costs: Forecast,
) -> tuple[Mapping[str, Any] | None, HashEvidence | None]:
    """Look at the images before anything is trained; say what is found, unless all is trained."""
    cause = (audit() if callable(audit) else audit) or shared_files(split)
    hashes = hash_evidence(split, progress=works.progress) if extras.hashes else None
    if costs.done < costs.trainings:
        if cause:
            works.say(audit_line(cause))
        if hashes is not None:
            works.say(hash_line(hashes))
    return cause, hashes


def _proved(
    course: Course,
    verdict: Verdict,
    cause: Mapping[str, Any] | None,
    hashes: HashEvidence | None,
    proof: str,
) -> DLeDe:
    """Return the result of a split that is proved to leak: nothing was trained."""
    threshold = THRESHOLD if verdict.threshold is None else verdict.threshold
    return DLeDe(
        train=_about(course.split.train),
        test=_about(course.split.test),
        trainer=_told(course),
        plan=course.plan,
        scores=nothing_trained(course.plan),
        judgement=proved(course.plan, verdict.rule, threshold, verdict.certainty),
        hashes=hashes,
        audit=cause,
        proof=proof,
    )


def forecast(
    split: Split,
    trainer: Trainer,
    out: str | os.PathLike[str] = "visleak-dlede",
    *,
    plan: Plan | None = None,
    verdict: Verdict | None = None,
    extras: Extras | None = None,
    works: Works | None = None,
) -> Forecast:
    """Return what :func:`dlede` would cost; nothing is trained, and nothing stays on disk.

    Raises:
        UsageError, VisleakError: as :func:`dlede`, before its first training.
    """
    import tempfile

    verdict, extras, works = verdict or Verdict(), extras or Extras(), works or Works()
    course = Course.of(split, plan or Plan(), trainer, Path(out) / RUNS)
    besides = besides_of(course, verdict, extras)
    with tempfile.TemporaryDirectory(prefix="visleak-") as scratch:
        ready = trainer.ready(split, Path(scratch), works.progress)
        return forecast_of((course, *besides.courses), ready, jobs=works.jobs)


def _about(images: ImageSet) -> dict[str, Any]:
    return {"name": images.name, "images": len(images), "source": images.source}


def _take(folder: Path, course: Course, *, force: bool) -> None:
    """Say in the folder what is trained there.

    Raises:
        UsageError: it holds trainings of something else, and ``force`` is not set.
    """
    plan = course.plan
    asked = {
        "split": course.about["split"],
        "trainer": digest_of(course.about["trainer"]),
        "seed": plan.seed,
        "nested": plan.nested,
        "stratified": plan.stratified,
        "epochs": plan.epochs,
    }
    path = folder / REQUEST
    if path.exists():
        found = read_document(path, KIND, 1, "choose another folder with -o DIR")
        other = [name for name, value in asked.items() if found.get(name) != value]
        there = any(any((folder / name).rglob("*.json")) for name in (RUNS, CALIBRATION, LONGER))
        if other and there and not force:
            what = " and ".join(_CALLED.get(name, name) for name in other)
            if edited := _edited(found, course):
                what += f" ({', '.join(edited)} changed)"
            raise UsageError(
                f"{folder} holds trainings with another {what}; choose another folder with -o DIR,"
                " or --force drops them"
            )
        if other:
            for name in (RUNS, CALIBRATION, LONGER):
                shutil.rmtree(folder / name, ignore_errors=True)
    try:
        write_json(path, {"schema": 1, "kind": KIND, **asked, **_files(course)})
    except OSError as error:
        raise VisleakError(f"{path} cannot be written: {error}") from error


def _files(course: Course) -> dict[str, Any]:
    """Return the digests of the files that a trainer names, if it names any."""
    return {"files": course.about["trainer"].get("files", {})}


def _edited(found: Mapping[str, Any], course: Course) -> list[str]:
    """Return the files of the trainer that are others by now than in a folder's request."""
    before, now = found.get("files"), _files(course)["files"]
    if not isinstance(before, Mapping):
        return []
    return [name for name, digest in now.items() if before.get(name, digest) != digest]


def _told(course: Course) -> dict[str, Any]:
    """Return name and settings of the trainer, with the epochs that were trained."""
    about = dict(course.about["trainer"])
    epochs = usual_epochs(course)
    return about if epochs is None else about | {"epochs": epochs}


def _settled(verdict: Verdict, trainer: Trainer, trained: Trained) -> Verdict:
    """Return the verdict with the metrics that decide, those asked for or the trainer's.

    What guessing scores is added where it is known and nobody says otherwise.
    """
    own = tuple(name for name in trainer.decides if name in trained.scores.metrics)
    # labels of a set of which objects are searched for say nothing of its F1
    classifies = "accuracy" in trained.scores.metrics
    known = chance_levels(trained.course.split) if classifies else {}
    chance = {name: value for name, value in known.items() if name in trained.scores.metrics}
    chance |= verdict.chance
    return replace(verdict, metrics=verdict.metrics or own, chance=chance)


def _on_metrics(trained: Trained, verdict: Verdict) -> Iterator[str]:
    """Yield lines on metrics that are missing, or that only some trainings have."""
    if line := lacking(trained.scores, verdict.metrics):
        yield line
    counts = Counter(name for run in trained.runs for name in run.outcome.metrics)
    for name, count in counts.items():
        if name not in trained.scores.metrics:
            yield (
                f"{name} is left out: only {count:,} of {len(trained.runs):,} trainings gave it;"
                " have all give it"
            )


def _judgement(scores: Scores, verdict: Verdict, calibration: Calibration | None) -> Judgement:
    """Judge by the threshold that was asked for, else the calibrated one, else the paper's.

    Where clean splits rise too little, or too unevenly, to give a threshold above 0, nothing can
    be told of this one: the means are compared with the paper's, and the verdict is undecided.
    """
    if verdict.threshold is not None or calibration is None:
        return verdict.of(scores)
    if calibration.threshold > 0.0:
        return verdict.of(scores, threshold=calibration.threshold, calibrated=True)
    made = verdict.of(scores)
    metrics = tuple(replace(each, verdict=UNDECIDED) for each in made.metrics)
    return replace(
        made,
        metrics=metrics,
        verdict=UNDECIDED,
        disagree=False,
        more=None,
        reason_code=made.reason_code or CALIBRATION_FAILED,
    )


def judge_scores(
    scores: Scores,
    *,
    verdict: Verdict | None = None,
    source: str = "",
) -> DLeDe:
    """Judge trainings that were done elsewhere.

    Args:
        scores: their metrics, see :func:`visleak.dlede.curve_files.read_scores`.
        verdict: how they are judged.
        source: where the scores come from.

    Raises:
        UsageError: a metric is not there, or a rule needs more steps.
        VisleakError: no repetition has all steps that decide.
    """
    verdict = verdict or Verdict()
    verdict.refuse_few(scores.steps[:3])
    limit = THRESHOLD if verdict.threshold is None else verdict.threshold
    plan = Plan(steps=scores.steps, repetitions=len(scores.repetitions))
    nothing = {"name": "", "images": 0, "source": ""}
    judgement = verdict.of(scores, threshold=limit)
    if not judgement.repetitions:
        steps = ", ".join(map(str, judgement.decided_by))
        raise VisleakError(
            f"nothing can be judged: no repetition of {source or 'the scores'} has a score at all"
            f" the steps {steps} %; add what is missing"
        )
    notes = [lacking(scores, verdict.metrics)]
    if scores.rescaled:
        notes.append(f"{', '.join(scores.rescaled)}: read as percent, and divided by 100")
    return DLeDe(
        train=nothing,
        test=nothing,
        trainer={"name": "scores", "source": source},
        plan=plan,
        scores=scores,
        judgement=judgement,
        detection=detection_limit(scores, judgement, chance=verdict.chance),
        others=verdict.others(scores, limit),
        notes=tuple(filter(None, notes)),
    )
