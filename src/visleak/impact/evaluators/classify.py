"""A classifier over a set of pictures: its answers as a file, and how often they are right."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.auditing import workers_for
from visleak.errors import UsageError, VisleakError
from visleak.images.addresses import redacted
from visleak.impact.evaluators.classes import FOREIGN, UNLABELLED, Classes, classes_of
from visleak.impact.evaluators.classifiers import Classifier, load_classifier
from visleak.impact.evaluators.feeding import feed, ids_of, refuse_embeddings
from visleak.impact.evaluators.predictions import (
    check_target,
    write_predictions,
    write_unreadable,
)
from visleak.impact.evaluators.ranking import BEST, NONE, Ranked, hits, ranked
from visleak.pipeline.columns import GrowingColumn
from visleak.pipeline.workplace import Progress, Workplace, silent
from visleak.records import Bool, Float32, ImageSet, Int64, Problem
from visleak.stats.rates import wilson

#: Whose versions may change an answer.
LIBRARIES: Final = (
    *("torch", "transformers", "timm", "onnxruntime", "torchmetrics"),
    *("numpy", "Pillow", "opencv-python-headless"),
)


@dataclass(frozen=True, slots=True)
class Share:
    """How many of some images, with the 95 % interval of Wilson.

    Attributes:
        count, images: of them.
        low, high: ends of the interval, in [0, 1].
    """

    count: int
    images: int
    low: float
    high: float

    @classmethod
    def of(cls, count: int, images: int) -> Share:
        """Return a share with its interval; NaN of no images."""
        return cls(count, images, *wilson(count, images))

    @property
    def value(self) -> float:
        """In [0, 1]; NaN of no images."""
        return self.count / self.images if self.images else float("nan")


@dataclass(frozen=True, slots=True)
class Classified:
    """What a classifier answered on a set.

    Attributes:
        file: of the predictions.
        set, model: their names.
        images: with a prediction.
        accuracy: share of the labelled images whose likeliest class is theirs; ``None`` without
            labels.
        top_5: share of those whose class is among the likeliest five; ``None`` without labels, or
            where there are no more than five classes.
        unreadable: images without a prediction, and the file that lists them.
        classes: number of outputs, and how it is known what they mean.
        seconds: reading and computing.
        notes: what a reader must know, one line each.
    """

    file: Path
    set: str
    model: str
    images: int
    accuracy: Share | None
    top_5: Share | None
    unreadable: int
    unreadable_file: Path | None
    classes: int
    rule: str
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Job:
    """Which model answers for which set, and where to."""

    images: ImageSet
    network: Classifier
    classes: Classes
    restrict: bool
    target: Path
    force: bool

    @property
    def allowed(self) -> Bool:
        """Outputs that may be answered, ``bool`` (c,)."""
        return self.classes.in_set if self.restrict else np.ones(len(self.classes), np.bool_)


@dataclass(frozen=True, slots=True)
class _Answers:
    """What a model answered on the readable images of a set; ``scores`` (n, c) if wanted."""

    rows: Int64
    ranked: Ranked
    scores: Float32 | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Judged:
    """Which answers are right.

    Attributes:
        right: ``bool`` (n, 5), by place.
        targets: ``int64`` (n,): the output that would be right, or what stands for none.
        top_5: there are more classes than places.
    """

    right: Bool
    targets: Int64
    top_5: bool

    def share(self, places: int) -> Share:
        """Return how many of the images with a label have it among so many places."""
        labelled = self.targets != UNLABELLED
        found = np.asarray(self.right[labelled, :places].any(axis=1))
        return Share.of(int(found.sum()), int(labelled.sum()))


def classify(
    images: ImageSet,
    model: str | Classifier,
    out: str | os.PathLike[str],
    *,
    classes: str | os.PathLike[str] | None = None,
    restrict: bool = False,
    scores: bool = False,
    workers: int | None = None,
    progress: Progress = silent,
    force: bool = False,
) -> Classified:
    """Write what a model takes each picture of a set for.

    Args:
        images: the set.
        model: a classifier or its text, see
            :func:`visleak.impact.evaluators.classifiers.load_classifier`.
        out: ``.parquet`` with ``id``, ``label``, ``prediction``, ``predictions`` (up to five,
            likeliest first) and ``confidence``; or ``.csv``, where ``top-5`` (0 or 1) stands for
            the list. An image that cannot be read has no row.
        classes: a file with the names of the outputs, see
            :func:`visleak.impact.evaluators.classes.read_names`.
        restrict: answer with classes of the set only.
        scores: write the score of every class, too (Parquet).
        workers: processes that decode and prepare; by default one for each core.
        progress: is told how far it is.
        force: replace a file that is there.

    Raises:
        UsageError: an argument cannot be used.
        MissingExtra: the model needs a package that is not installed.
        VisleakError: the model cannot be had or fails, what its outputs mean is not known, or no
            picture can be read.
    """
    target = check_target(out, force=force)
    _refuse(images, target, restrict=restrict, scores=scores)
    network = load_classifier(model) if isinstance(model, str) else model
    file = Path(classes) if classes is not None else None
    meaning = classes_of(network.width, images.labels, network.names, file)
    job = _Job(images, network, meaning, restrict, target, force)
    with Workplace.at(None, workers_for(len(images), workers), None, progress) as place:
        start = time.perf_counter()
        found = _answered(job, place, scores)
        seconds = time.perf_counter() - start
        return _written(job, found, seconds)


def _refuse(images: ImageSet, target: Path, *, restrict: bool, scores: bool) -> None:
    """Refuse what cannot be done, before a model is loaded."""
    if scores and target.suffix.lower() == ".csv":
        raise UsageError(f"the scores of all classes need a .parquet; got {str(target)!r}")
    refuse_embeddings(images)
    if restrict and (images.labels is None or images.labels.null_count == len(images)):
        raise UsageError(f"--restrict needs labels, and set {images.name!r} has none")


def _answered(job: _Job, place: Workplace, scores: bool) -> _Answers:
    """Run the network over the set; scores of all classes grow in a scratch file."""
    parts: list[tuple[Int64, Ranked]] = []
    problems: list[Problem] = []
    with ExitStack() as stack:
        matrix = None
        if scores:
            column = GrowingColumn(place.file(".scores"), np.float32, (job.network.width,))
            matrix = stack.enter_context(column)
        for part in feed(job.images, job.network, place):
            parts.append((part.rows, ranked(part.outputs, job.allowed)))
            problems.extend(part.unreadable)
            if matrix is not None:
                matrix.append(part.outputs)
        if not any(len(rows) for rows, _ in parts):
            raise VisleakError(_nothing(job.images, problems))
        return _Answers(
            np.concatenate([rows for rows, _ in parts]),
            Ranked(
                np.concatenate([each.best for _, each in parts]),
                np.concatenate([each.confidence for _, each in parts]),
            ),
            matrix.mapped() if matrix is not None else None,
            tuple(problems),
        )


def _nothing(images: ImageSet, problems: list[Problem]) -> str:
    """Return the line for a set without a single prediction."""
    if not problems:
        return f"set {images.name!r} has no images"
    first = problems[0]
    return (
        f"none of the {len(problems):,} images of set {images.name!r} could be read, such as"
        f" {first.id!r} ({first.reason}{': ' if first.detail else ''}{first.detail})"
    )


def _judged(job: _Job, found: _Answers, labels: pa.StringArray) -> _Judged:
    meaning = job.classes
    targets = meaning.targets(labels)
    best = np.where(found.ranked.best >= 0, meaning.first[found.ranked.best], NONE)
    right = hits(best, targets, len(meaning))
    return _Judged(right, targets, int(np.count_nonzero(job.allowed)) > BEST)


def _written(job: _Job, found: _Answers, seconds: float) -> Classified:
    """Write the files, that of the predictions last; return what they say in short."""
    images, meaning = job.images, job.classes
    labels = images.labels.take(pa.array(found.rows)) if images.labels is not None else None
    judged = _judged(job, found, labels) if labels is not None else None
    unreadable = write_unreadable(job.target, found.problems)
    file = write_predictions(
        job.target,
        ids_of(images, found.rows),
        _columns(job, found, labels, judged),
        _about(job, found),
        classes=meaning.names if found.scores is not None else (),
        force=job.force,
    )
    return Classified(
        file=file,
        set=images.name,
        model=job.network.name,
        images=len(found.rows),
        accuracy=judged.share(1) if judged else None,
        top_5=judged.share(BEST) if judged and judged.top_5 else None,
        unreadable=len(found.problems),
        unreadable_file=unreadable,
        classes=len(meaning),
        rule=meaning.rule,
        seconds=seconds,
        notes=tuple(_notes(meaning, judged)),
    )


def _columns(
    job: _Job, found: _Answers, labels: pa.StringArray | None, judged: _Judged | None
) -> dict[str, Any]:
    """Return the columns of the file."""
    columns: dict[str, Any] = {} if labels is None else {"label": labels}
    names = pa.array(job.classes.names, pa.string())
    best = found.ranked.best
    columns["prediction"] = names.take(pa.array(best[:, 0]))
    if job.target.suffix.lower() != ".csv":
        columns["predictions"] = _lists(names, best)
    elif judged is not None and judged.top_5:
        five = judged.right.any(axis=1).astype(np.int8)
        columns["top-5"] = pa.array(five, mask=judged.targets == UNLABELLED)
    columns["confidence"] = found.ranked.confidence
    if found.scores is not None:
        columns["scores"] = found.scores
    return columns


def _lists(names: pa.StringArray, best: Int64) -> pa.ListArray:
    """Return the names of the best outputs of each image, without places that are empty."""
    there = best != NONE
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names.take(pa.array(best[there])))


def _about(job: _Job, found: _Answers) -> dict[str, Any]:
    """Return what made the predictions, for the file."""
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
        "set": {
            "name": images.name,
            "dataset": images.dataset,
            "source": redacted(images.source),
            "options": dict(images.options),
            "images": len(found.rows),
            "unreadable": len(found.problems),
        },
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _notes(meaning: Classes, judged: _Judged | None) -> Iterator[str]:
    """Yield what a reader of the score must know."""
    if meaning.repeated:
        yield (
            f"names that several outputs have, which count as one class: {_few(meaning.repeated)}"
        )
    if judged is None:
        return
    foreign = int(np.count_nonzero(judged.targets == FOREIGN))
    if foreign:
        yield (
            f"labels of the set that are no class of the model: {_few(meaning.foreign)}; their"
            f" {foreign:,} images count as wrong"
        )
    unlabelled = int(np.count_nonzero(judged.targets == UNLABELLED))
    if unlabelled:
        yield f"images without a label, which are not counted: {unlabelled:,}"


def _few(names: tuple[str, ...]) -> str:
    told = ", ".join(names[:3])
    return f"{told} and {len(names) - 3:,} more" if len(names) > 3 else told
