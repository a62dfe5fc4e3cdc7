"""Running a classifier on a set: its predictions as a file, and its accuracy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import UsageError
from visleak.impact.evaluators.classes import Classes, classes_of
from visleak.impact.evaluators.classifiers import Classifier, load_classifier
from visleak.impact.evaluators.feeding import (
    feed,
    nothing_read,
    refuse_embeddings,
    workplace,
)
from visleak.impact.evaluators.outputs import (
    BEST,
    Judged,
    Ranked,
    answer_columns,
    few,
    judged,
    label_notes,
    ranked,
)
from visleak.impact.evaluators.predictions import (
    about_set,
    accuracy_facts,
    check_target,
    content_of,
    document_of,
    rate_numbers,
    versions,
    write_predictions,
    write_unreadable,
)
from visleak.pipeline.columns import GrowingColumn
from visleak.pipeline.workplace import Progress, Workplace, silent
from visleak.records import Bool, Float32, ImageSet, Int64, Problem
from visleak.reporting import Document
from visleak.stats import Rate


@dataclass(frozen=True, slots=True)
class Classified:
    """The result of a classifier on a set.

    Attributes:
        file: of the predictions.
        set, model: their names.
        images: with a prediction.
        accuracy: share of the labelled images whose likeliest class is theirs; ``None`` without
            labels.
        top_5: share of those whose class is among the likeliest five; ``None`` without labels, or
            where there are no more than five classes.
        unreadable: images without a prediction, and the file that lists them.
        classes: number of outputs, and how their meaning is known.
        seconds: reading and computing.
        notes: what a reader must know, one line each.
    """

    file: Path
    set: str
    model: str
    images: int
    accuracy: Rate | None
    top_5: Rate | None
    unreadable: int
    unreadable_file: Path | None
    classes: int
    rule: str
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Job:
    """A classifier, a set, and a file."""

    images: ImageSet
    network: Classifier
    classes: Classes
    restrict: bool
    target: Path
    force: bool

    @property
    def allowed(self) -> Bool:
        """Outputs that may be predicted, ``bool`` (c,)."""
        return self.classes.in_set if self.restrict else np.ones(len(self.classes), np.bool_)


@dataclass(frozen=True, slots=True)
class _Predicted:
    """The predictions for the readable images of a set; ``scores`` of allowed classes."""

    rows: Int64
    ranked: Ranked
    scores: Float32 | None
    problems: tuple[Problem, ...]


def classify(
    images: ImageSet,
    model: str | Classifier,
    out: str | os.PathLike[str],
    *,
    classes: str | os.PathLike[str] | None = None,
    restrict: bool = False,
    scores: bool = False,
    running: Mapping[str, object] | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
    force: bool = False,
) -> Classified:
    """Run a classifier on a set and write its predictions.

    Args:
        images: the set.
        model: a classifier or its text, see
            :func:`visleak.impact.evaluators.classifiers.load_classifier`.
        out: ``.parquet`` with ``id``, ``label``, ``prediction``, ``predictions`` (up to five,
            likeliest first) and ``confidence``; or ``.csv``, with ``top-5`` (0 or 1) instead of
            the list. An image that cannot be read has no row.
        classes: a file with the names of the outputs, see
            :func:`visleak.impact.evaluators.classes.read_names`.
        restrict: predict classes of the set only.
        scores: also write the score of every class that may be predicted (Parquet).
        running: options for a model given as text: ``device``, ``precision``, ``batch``.
        workers: processes that decode and prepare; by default one per core.
        cache: folder for the model's outputs between runs; ``None`` for none. A model that is an
            object must then have a digest of its weights.
        progress: reports each step.
        force: replace an existing file.

    Raises:
        UsageError: an argument cannot be used.
        MissingExtra: the model needs a package that is not installed.
        VisleakError: the model could not be loaded or fails, the meaning of its outputs is not
            known, or no image can be read.
    """
    target = check_target(out, force=force)
    _refuse(images, target, restrict=restrict, scores=scores)
    progress("loading the model", 0, 0)
    network = load_classifier(model, **(running or {})) if isinstance(model, str) else model
    progress("loading the model", 1, 1)
    file = Path(classes) if classes is not None else None
    meaning = classes_of(network.width, images.labels, network.names, file)
    job = _Job(images, network, meaning, restrict, target, force)
    with workplace(images, workers, cache, progress) as place:
        start = time.perf_counter()
        found = _predicted(job, place, scores)
        seconds = time.perf_counter() - start
        return _written(job, found, seconds)


def _refuse(images: ImageSet, target: Path, *, restrict: bool, scores: bool) -> None:
    """Refuse invalid arguments before a model is loaded."""
    if scores and target.suffix.lower() == ".csv":
        raise UsageError(f"the scores of all classes need a .parquet; got {str(target)!r}")
    refuse_embeddings(images)
    if restrict and (images.labels is None or images.labels.null_count == len(images)):
        raise UsageError(f"--restrict needs labels, and set {images.name!r} has none")


def _predicted(job: _Job, place: Workplace, scores: bool) -> _Predicted:
    """Run the network on the set; the columns of its predictions grow in scratch files."""
    problems: list[Problem] = []
    with ExitStack() as stack:

        def column(name: str, dtype: npt.DTypeLike, *shape: int) -> GrowingColumn:
            return stack.enter_context(GrowingColumn(place.file(name), dtype, shape))

        rows, best = column(".rows", np.int64), column(".best", np.int64, BEST)
        confidence = column(".confidence", np.float32)
        width = int(np.count_nonzero(job.allowed))
        matrix = column(".scores", np.float32, width) if scores else None
        for part in feed(job.images, job.network, place):
            answers = ranked(part.outputs, job.allowed)
            rows.append(part.rows)
            best.append(answers.best)
            confidence.append(answers.confidence)
            if matrix is not None:
                matrix.append(part.outputs[:, job.allowed])
            problems.extend(part.unreadable)
        if not rows.rows:
            raise nothing_read(job.images, problems)
        return _Predicted(
            rows.mapped(),
            Ranked(best.mapped(), confidence.mapped()),
            matrix.mapped() if matrix is not None else None,
            tuple(problems),
        )


def _written(job: _Job, found: _Predicted, seconds: float) -> Classified:
    """Write the files, that of the predictions last, and return the result."""
    images, meaning = job.images, job.classes
    labels = images.labels.take(pa.array(found.rows)) if images.labels is not None else None
    allowed = int(np.count_nonzero(job.allowed))
    right = judged(found.ranked.best, meaning, labels, allowed) if labels is not None else None
    columns = answer_columns(meaning, found.ranked, labels, right, job.target)
    scored = found.scores is not None
    if scored:
        columns["scores"] = found.scores
    unreadable = write_unreadable(job.target, found.problems)
    file = write_predictions(
        job.target,
        images.ids.take(pa.array(found.rows)),
        columns,
        _about(job, found),
        classes=[meaning.names[k] for k in np.flatnonzero(job.allowed)] if scored else (),
        force=job.force,
    )
    return Classified(
        file=file,
        set=images.name,
        model=job.network.name,
        images=len(found.rows),
        accuracy=right.share(1) if right else None,
        top_5=right.share(BEST) if right and right.top_5 else None,
        unreadable=len(found.problems),
        unreadable_file=unreadable,
        classes=len(meaning),
        rule=meaning.rule,
        seconds=seconds,
        notes=tuple(_notes(meaning, right)),
    )


def _about(job: _Job, found: _Predicted) -> dict[str, Any]:
    """Return how the predictions were made, for the file."""
    images, network, meaning = job.images, job.network, job.classes
    return {
        "evaluator": "classify",
        "model": {
            "name": network.name,
            "digest": network.digest,
            "precision": network.precision,
            "device": network.device,
            "preparation": dict(network.prepared),
        },
        "classes": {
            "count": len(meaning),
            "rule": meaning.rule,
            "digest": meaning.digest,
            "restricted": job.restrict,
        },
        "set": about_set(images, len(found.rows), len(found.problems)),
        "versions": versions(),
    }


def _notes(meaning: Classes, right: Judged | None) -> Iterator[str]:
    """Yield what a reader of the score must know."""
    if meaning.repeated:
        yield f"names that several outputs have, which count as one class: {few(meaning.repeated)}"
    yield from label_notes(meaning, right)


def document(result: Classified) -> Document:
    """Return a result as a document."""
    speed = (result.images + result.unreadable) / max(result.seconds, 1e-9)
    facts = [
        *accuracy_facts(result.accuracy, result.top_5),
        ("classes", f"{result.classes:,}: {result.rule}"),
        ("time", f"{result.seconds:,.1f} s, {speed:,.0f} images/s"),
    ]
    return document_of(result, f"{result.images:,} images of {result.set} by {result.model}", facts)


def content(result: Classified) -> dict[str, Any]:
    """Return a result as plain values."""
    return content_of(
        result,
        set=result.set,
        model=result.model,
        images=result.images,
        accuracy=rate_numbers(result.accuracy),
        top_5=rate_numbers(result.top_5),
        classes={"count": result.classes, "rule": result.rule},
        seconds=round(result.seconds, 3),
    )
