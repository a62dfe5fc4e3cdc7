"""Zero-shot classification with a CLIP (Radford et al. 2021, section 3.1): names make the classes.

The vector of a class is the mean of the unit vectors of its sentences, at unit length again; an
image is of the class whose vector has the largest cosine with its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.auditing import open_cache, workers_for
from visleak.encoders.text_towers import TextTower
from visleak.encoders.vision_language import (
    VisionLanguage,
    load_vision_language,
)
from visleak.impact.evaluators.class_names import ClassNames, class_names
from visleak.impact.evaluators.feeding import picture_vectors, refuse_embeddings
from visleak.impact.evaluators.judging import (
    Judged,
    answer_columns,
    few,
    judged,
    label_notes,
)
from visleak.impact.evaluators.predictions import (
    check_target,
    write_predictions,
    write_unreadable,
)
from visleak.impact.evaluators.provenance import about_set, versions
from visleak.impact.evaluators.ranking import BEST, NONE, Ranked
from visleak.impact.evaluators.templates import SIMPLE, Templates, load_templates
from visleak.pipeline.workplace import Progress, Workplace, silent
from visleak.records import Fingerprints, Float32, ImageSet
from visleak.stats import Rate

Float64 = npt.NDArray[np.float64]

#: Images compared with all classes at a time.
BLOCK: Final = 2_048


@dataclass(frozen=True)
class ClassVectors:
    """The classifier that names make.

    Attributes:
        matrix: ``float64`` (classes, width), unit rows.
        prompts: sentences that were read.
        cut: sentences whose end was not read, because the context is shorter.
    """

    matrix: Float64
    prompts: int
    cut: int


@dataclass(frozen=True, slots=True)
class ZeroShot:
    """What a CLIP answered on a set.

    Attributes:
        file: of the predictions.
        set, model: their names.
        images: with a prediction.
        accuracy: share of the labelled images whose best class is theirs; ``None`` without labels.
        top_5: share of those whose class is among the best five; ``None`` without labels, or where
            there are no more than five classes.
        classes: number of classes, and how the set's labels are matched with them.
        templates: their name and number.
        prompts, cut: sentences that were read, and those whose end was not.
        unreadable: images without a prediction, and the file that lists them.
        notes: what a reader must know, one line each.
    """

    file: Path
    set: str
    model: str
    images: int
    accuracy: Rate | None
    top_5: Rate | None
    classes: int
    rule: str
    templates: tuple[str, int]
    prompts: int
    cut: int
    unreadable: int
    unreadable_file: Path | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Job:
    images: ImageSet
    model: VisionLanguage
    names: ClassNames
    templates: Templates
    target: Path
    force: bool


def zeroshot(
    images: ImageSet,
    model: str,
    out: str | os.PathLike[str],
    *,
    options: Mapping[str, object] = MappingProxyType({}),
    classes: str | os.PathLike[str] | None = None,
    templates: str = SIMPLE,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
    force: bool = False,
) -> ZeroShot:
    """Write which of some names a CLIP finds for each picture of a set.

    Args:
        images: the set.
        model: ``clip[:ARGUMENT][?OPTION=VALUE&...]``, as the encoder is named.
        out: ``.parquet`` with ``id``, ``label``, ``prediction``, ``predictions`` (up to five, best
            first) and ``confidence``; or ``.csv``, where ``top-5`` (0 or 1) stands for the list.
        options: more options of the model, by name; they come before those in its text.
        classes: a file with names, see :func:`visleak.impact.evaluators.class_names.class_names`;
            by default the set's labels.
        templates: ``simple``, ``openai`` or a text file with one a line.
        workers: processes that decode and prepare; by default one for each core.
        cache: folder for vectors of pictures; ``None`` for none.
        progress: is told how far it is.
        force: replace a file that is there.

    Raises:
        UsageError: an argument cannot be used.
        MissingExtra: the model needs a package that is not installed.
        VisleakError: the model cannot be had, a file cannot be used, or no picture can be read.
    """
    target = check_target(out, force=force)
    refuse_embeddings(images)
    sentences = load_templates(templates)
    names = class_names(images.labels, Path(classes) if classes is not None else None)
    job = _Job(images, load_vision_language(model, **options), names, sentences, target, force)
    made = class_vectors(job.model.texts, names.names, sentences, progress)
    with (
        open_cache(cache) as store,
        Workplace.at(None, workers_for(len(images), workers), store, progress) as place,
    ):
        prints = picture_vectors(images, job.model.pictures, place)
        found = answers(prints.matrix, made.matrix, job.model.texts.logit_scale)
        return _written(job, made, prints, found)


def class_vectors(
    tower: TextTower, names: Sequence[str], templates: Templates, progress: Progress = silent
) -> ClassVectors:
    """Return the unit vectors of classes, ensembled over templates.

    Args:
        tower: reads the sentences.
        names: of the classes.
        templates: what their names are put into.
        progress: is told how far it is.
    """
    prompts = [prompt for name in names for prompt in templates.prompts(name)]
    read = tower.encode(prompts, lambda done, total: progress("reading prompts", done, total))
    each = len(templates.sentences)
    means = np.stack(
        [
            read.matrix[start : start + each].astype(np.float64).mean(axis=0)
            for start in range(0, len(prompts), each)
        ]
    )
    # sentences that cancel each other out leave no direction, and no class is found by it
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    matrix = np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0)
    return ClassVectors(matrix, len(prompts), int(np.count_nonzero(read.cut)))


def answers(pictures: Float32, classes: Float64, scale: float) -> Ranked:
    """Return the best classes of each picture, and the probability of the first.

    Equal cosines: the class that comes first is first.

    Args:
        pictures: ``float32`` (n, d), unit rows.
        classes: ``float64`` (c, d), unit rows.
        scale: of the cosines before the softmax that gives the probability.
    """
    best = np.full((len(pictures), BEST), NONE, np.int64)
    confidence = np.empty(len(pictures), np.float32)
    for start in range(0, len(pictures), BLOCK):
        part = slice(start, start + BLOCK)
        cosines = pictures[part].astype(np.float64) @ classes.T
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :BEST]
        best[part, : order.shape[1]] = order
        largest = cosines.max(axis=1, keepdims=True)
        confidence[part] = 1 / np.exp(scale * (cosines - largest)).sum(axis=1)
    return Ranked(best, confidence)


def _written(job: _Job, made: ClassVectors, prints: Fingerprints, found: Ranked) -> ZeroShot:
    """Write the files, that of the predictions last; return what they say in short."""
    images, classes = job.images, job.names.classes
    labels = images.labels.take(pa.array(prints.rows)) if images.labels is not None else None
    right = judged(found.best, classes, labels, len(classes)) if labels is not None else None
    problems = (*images.problems, *prints.problems)
    unreadable = write_unreadable(job.target, problems)
    file = write_predictions(
        job.target,
        prints.ids,
        answer_columns(classes, found, labels, right, job.target),
        _about(job, made, len(prints), len(problems)),
        force=job.force,
    )
    return ZeroShot(
        file=file,
        set=images.name,
        model=job.model.pictures.name,
        images=len(prints),
        accuracy=right.share(1) if right else None,
        top_5=right.share(BEST) if right and right.top_5 else None,
        classes=len(classes),
        rule=classes.rule,
        templates=(job.templates.name, len(job.templates.sentences)),
        prompts=made.prompts,
        cut=made.cut,
        unreadable=len(problems),
        unreadable_file=unreadable,
        notes=tuple(_notes(job, made, right)),
    )


def _about(job: _Job, made: ClassVectors, read: int, unreadable: int) -> dict[str, Any]:
    """Return what made the predictions, for the file."""
    names, sentences = job.names, job.templates
    return {
        "evaluator": "zeroshot",
        "model": {**job.model.about(), "logit scale": job.model.texts.logit_scale},
        "classes": {
            "count": len(names.classes),
            "rule": names.classes.rule,
            "digest": names.classes.digest,
            "names digest": names.digest,
        },
        "templates": {
            "name": sentences.name,
            "count": len(sentences.sentences),
            "digest": sentences.digest,
        },
        "prompts": {"count": made.prompts, "cut": made.cut},
        "set": about_set(job.images, read, unreadable),
        "versions": versions(),
    }


def _notes(job: _Job, made: ClassVectors, right: Judged | None) -> Iterator[str]:
    """Yield what a reader of the score must know."""
    names = job.names
    if made.cut:
        yield (
            f"prompts longer than the {job.model.texts.context} tokens that the model reads, whose"
            f" end it did not see: {made.cut:,} of {made.prompts:,}"
        )
    if names.shared:
        yield (
            f"names that several classes have: {few(names.shared)}; nothing tells these apart, and"
            " the class that comes first is answered"
        )
    yield from label_notes(names.classes, right)
