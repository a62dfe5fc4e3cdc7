"""Predicted classes of a set: ranking outputs, comparing them with labels, saving them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.errors import UsageError
from visleak.impact.evaluators.classes import FOREIGN, UNLABELLED, Classes, classes_of
from visleak.impact.evaluators.classifiers import Classifier, load_classifier
from visleak.impact.evaluators.predictions import (
    Evaluation,
    Values,
    about_set,
    check_target,
    content_of,
    context,
    document_of,
    feed,
    nothing_read,
    rate_numbers,
    rate_text,
    refuse_embeddings,
    versions,
    write_predictions,
    write_unreadable,
)
from visleak.pipeline.context import GrowingColumn, Number
from visleak.progress import Progress, silent
from visleak.quantities import some
from visleak.rates import Rate
from visleak.records import Bool, Float32, Float64, ImageSet, Int64, Problem
from visleak.reporting import Document

BEST: Final = 5  # predictions per image
NONE: Final = -1  # prediction of a place that is empty, because there are fewer classes

#: Rows whose outputs are between 0 and 1 and add up to 1 within this are probabilities.
_SUM: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Ranked:
    """The predictions of a model, image by image."""

    best: Int64  # (n, 5): outputs, likeliest first; NONE where there are fewer
    confidence: Float32  # (n,) in [0, 1]: probability of the first


@dataclass(frozen=True, kw_only=True)
class Classification(Evaluation):
    """The result of a classifier on a set."""

    set: str
    model: str
    images: int  # with a prediction
    accuracy: Rate | None  # of the labelled images; `None` without labels
    top_5: Rate | None  # `None` without labels, or of no more than five classes
    classes: int
    rule: str  # how the meaning of the outputs is known
    seconds: float | None = None  # of a network: reading and computing
    templates: tuple[str, int] | None = None  # of zero-shot classification: their name and number
    prompts: int = 0
    cut: int = 0  # prompts longer than the context


def ranked(outputs: Float32, allowed: Bool) -> Ranked:
    """Return the best outputs of each row; of equal ones the first comes first.

    ``outputs`` (n, c): logits or probabilities. ``allowed`` (c,): which may be predicted.
    """
    columns = np.flatnonzero(allowed)
    kept = outputs[:, columns].astype(np.float64)
    sums = outputs.astype(np.float64).sum(axis=1)
    likely = (outputs >= 0).all(axis=1) & (np.abs(sums - 1) <= _SUM)
    largest = kept.max(axis=1)
    softmax = 1 / np.exp(kept - largest[:, None]).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = largest / kept.sum(axis=1)
    # if all allowed classes have probability 0, they are equally likely
    shares = np.where(np.isnan(shares), 1 / kept.shape[1], shares)
    confidence = np.asarray(np.where(likely, shares, softmax), np.float32)
    return Ranked(best_of(kept, columns), confidence)


def best_of(scores: Float64, columns: Int64) -> Int64:
    """Return the outputs with the highest scores, (n, 5)."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :BEST]
    best = np.full((len(scores), BEST), NONE, np.int64)
    best[:, : order.shape[1]] = columns[order]
    return best


def hits(best: Int64, targets: Int64) -> Bool:
    """Return which predictions (n, k) are correct; none is where the target (n,) is below 0."""
    return np.asarray((best == targets[:, None]) & (best >= 0))


def save(
    images: ImageSet,
    rows: Int64,
    found: Ranked,
    classes: Classes,
    target: Path,
    *,
    model: str,
    about: Mapping[str, object],
    problems: Sequence[Problem],
    allowed: Bool | None = None,
    scores: Float32 | None = None,
    notes: Sequence[str] = (),
    force: bool = False,
) -> Classification:
    """Write predictions, their file last, and return the result."""
    chosen = np.arange(len(classes)) if allowed is None else np.flatnonzero(allowed)
    names = pa.array(classes.names, pa.string())
    columns: dict[str, Values] = {}
    right, targets = np.zeros(found.best.shape, np.bool_), np.full(len(rows), UNLABELLED)
    if images.labels is not None:
        columns["label"] = labels = images.labels.take(pa.array(rows))
        targets = classes.targets(labels)
        # outputs of one name are one class
        right = hits(np.where(found.best >= 0, classes.first[found.best], NONE), targets)
    labelled = targets != UNLABELLED
    top_5 = images.labels is not None and len(chosen) > BEST
    columns["prediction"] = names.take(pa.array(found.best[:, 0]))
    if target.suffix.lower() != ".csv":
        # without empty places
        known = found.best != NONE
        ends = pa.array(np.append(0, np.cumsum(known.sum(axis=1))), pa.int32())
        flat = names.take(pa.array(found.best[known]))
        columns["predictions"] = pa.ListArray.from_arrays(ends, flat)
    elif top_5:
        columns["top-5"] = pa.array(right.any(axis=1).astype(np.int8), mask=~labelled)
    columns["confidence"] = found.confidence
    if scores is not None:
        columns["scores"] = scores
    unreadable = write_unreadable(target, problems)
    content = {**about, "set": about_set(images, len(rows), len(problems)), "versions": versions()}
    write_predictions(
        target,
        images.ids.take(pa.array(rows)),
        columns,
        content,
        classes=[classes.names[k] for k in chosen] if scores is not None else (),
        force=force,
    )
    total = int(labelled.sum())
    first, five = (int(right[labelled, :k].any(axis=1).sum()) for k in (1, BEST))
    has_labels = images.labels is not None
    return Classification(
        file=target,
        set=images.name,
        model=model,
        images=len(rows),
        accuracy=Rate.of(first, total) if has_labels else None,
        top_5=Rate.of(five, total) if top_5 else None,
        unreadable=len(problems),
        unreadable_file=unreadable,
        classes=len(classes),
        rule=classes.rule,
        notes=(*notes, *(_label_notes(classes, targets) if has_labels else ())),
    )


def _label_notes(classes: Classes, targets: Int64) -> Iterator[str]:
    if foreign := int(np.count_nonzero(targets == FOREIGN)):
        yield (
            f"labels of the set that are not a class of the model: {some(classes.foreign)}; their"
            f" {foreign:,} images count as wrong"
        )
    if unlabelled := int(np.count_nonzero(targets == UNLABELLED)):
        yield f"images without a label, which are not counted: {unlabelled:,}"


def document(result: Classification) -> Document:
    """Return a result as a document."""
    facts = []
    if result.accuracy is None or not result.accuracy.total:
        facts.append(("accuracy", "unknown: the images have no labels"))
    else:
        facts.append(("accuracy", rate_text(result.accuracy)))
        facts += [("top-5", rate_text(result.top_5))] if result.top_5 is not None else []
    facts.append(("classes", f"{result.classes:,}: {result.rule}"))
    if result.templates is not None:
        name, count = result.templates
        facts.append(("templates", f"{count:,}: {name}; {result.prompts:,} prompts"))
    if result.seconds is not None:
        speed = (result.images + result.unreadable) / max(result.seconds, 1e-9)
        facts.append(("time", f"{result.seconds:,.1f} s, {speed:,.0f} images/s"))
    return document_of(result, f"{result.images:,} images of {result.set} by {result.model}", facts)


def content(result: Classification) -> dict[str, object]:
    """Return a result as plain values."""
    more: dict[str, object] = {}
    if result.templates is not None:
        more["templates"] = dict(zip(("name", "count"), result.templates, strict=True))
        more["prompts"] = {"count": result.prompts, "cut": result.cut}
    if result.seconds is not None:
        more["seconds"] = round(result.seconds, 3)
    return content_of(
        result,
        set=result.set,
        model=result.model,
        images=result.images,
        accuracy=rate_numbers(result.accuracy),
        top_5=rate_numbers(result.top_5),
        classes={"count": result.classes, "rule": result.rule},
        **more,
    )


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
    if scores and target.suffix.lower() == ".csv":
        raise UsageError(f"the scores of all classes need a .parquet; got {str(target)!r}")
    refuse_embeddings(images)
    if restrict and (images.labels is None or images.labels.null_count == len(images)):
        raise UsageError(f"--restrict needs labels, and set {images.name!r} has none")
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
        for positions, outputs, unreadable in feed(images, network, place):
            predicted = ranked(outputs, allowed)
            rows.append(positions)
            best.append(predicted.best)
            confidence.append(predicted.confidence)
            if matrix is not None:
                matrix.append(outputs[:, allowed])
            problems.extend(unreadable)
        if not rows.rows:
            raise nothing_read(images, problems)
        repeated = "names that several outputs have, which count as one class"
        parts = ("name", "digest", "precision", "device")
        described = {name: getattr(network, name) for name in parts}
        about = {
            "evaluator": "classify",
            "model": {**described, "preparation": dict(network.prepared)},
            "classes": {**meaning.about(), "restricted": restrict},
        }
        result = save(
            images,
            rows.mapped(),
            Ranked(best.mapped(), confidence.mapped()),
            meaning,
            target,
            model=network.name,
            about=about,
            problems=problems,
            allowed=allowed,
            scores=matrix.mapped() if matrix is not None else None,
            notes=[f"{repeated}: {some(meaning.repeated)}"] if meaning.repeated else [],
            force=force,
        )
        return replace(result, seconds=time.perf_counter() - start)
