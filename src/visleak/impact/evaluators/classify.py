"""Running a classifier on a set: its predictions as a file, and its accuracy."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from visleak.errors import UsageError
from visleak.impact.evaluators.classes import Classes, classes_of
from visleak.impact.evaluators.classification import BEST, Classification, Ranked, few, ranked, save
from visleak.impact.evaluators.classifiers import Classifier, load_classifier
from visleak.impact.evaluators.feeding import context, feed, nothing_read, refuse_embeddings
from visleak.impact.evaluators.predictions import check_target
from visleak.pipeline.context import GrowingColumn, Number
from visleak.progress import Progress, silent
from visleak.records import ImageSet, Problem


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
) -> Classification:
    """Run a classifier on a set and write its predictions.

    A Parquet file has ``id``, ``label``, ``prediction``, ``predictions`` (up to five, likeliest
    first) and ``confidence``, with ``scores`` also those of every class that may be predicted; a
    CSV has ``top-5`` (0 or 1) instead of the list. An image that cannot be read has no row. A model
    that is an object must have a digest of its weights if there is a cache.
    """
    target = check_target(out, force=force)
    _refuse(images, target, restrict=restrict, scores=scores)
    progress("loading the model", 0, 0)
    network = load_classifier(model, **(running or {})) if isinstance(model, str) else model
    progress("loading the model", 1, 1)
    file = Path(classes) if classes is not None else None
    meaning = classes_of(network.width, images.labels, network.names, file)
    allowed = meaning.in_set if restrict else np.ones(len(meaning), np.bool_)
    problems: list[Problem] = []
    with context(images, workers, cache, progress) as place, ExitStack() as stack:
        start = time.perf_counter()

        # predictions grow in scratch files
        def column(name: str, dtype: type[Number], *shape: int) -> GrowingColumn[Number]:
            return stack.enter_context(GrowingColumn(place.file(name), dtype, shape))

        rows, best = column(".rows", np.int64), column(".best", np.int64, BEST)
        confidence = column(".confidence", np.float32)
        width = int(np.count_nonzero(allowed))
        matrix = column(".scores", np.float32, width) if scores else None
        for part in feed(images, network, place):
            predicted = ranked(part.outputs, allowed)
            rows.append(part.rows)
            best.append(predicted.best)
            confidence.append(predicted.confidence)
            if matrix is not None:
                matrix.append(part.outputs[:, allowed])
            problems.extend(part.unreadable)
        if not rows.rows:
            raise nothing_read(images, problems)
        repeated = "names that several outputs have, which count as one class"
        result = save(
            images,
            rows.mapped(),
            Ranked(best.mapped(), confidence.mapped()),
            meaning,
            target,
            model=network.name,
            about=_about(network, meaning, restrict),
            problems=problems,
            allowed=allowed,
            scores=matrix.mapped() if matrix is not None else None,
            notes=[f"{repeated}: {few(meaning.repeated)}"] if meaning.repeated else [],
            force=force,
        )
        return replace(result, seconds=time.perf_counter() - start)


def _about(network: Classifier, meaning: Classes, restrict: bool) -> dict[str, object]:
    names = ("name", "digest", "precision", "device")
    return {
        "evaluator": "classify",
        "model": {
            **{name: getattr(network, name) for name in names},
            "preparation": dict(network.prepared),
        },
        "classes": {**meaning.about(), "restricted": restrict},
    }


def _refuse(images: ImageSet, target: Path, *, restrict: bool, scores: bool) -> None:
    if scores and target.suffix.lower() == ".csv":
        raise UsageError(f"the scores of all classes need a .parquet; got {str(target)!r}")
    refuse_embeddings(images)
    if restrict and (images.labels is None or images.labels.null_count == len(images)):
        raise UsageError(f"--restrict needs labels, and set {images.name!r} has none")
