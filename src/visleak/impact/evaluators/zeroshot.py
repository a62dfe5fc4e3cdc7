"""Zero-shot classification with CLIP (Radford et al. 2021, section 3.1): names make the classes.

The vector of a class is the mean of the unit vectors of its prompts, normalised; an image is of the
class whose vector has the largest cosine with its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.encoders.text_towers import TextTower
from visleak.encoders.vision_language import (
    VisionLanguage,
    load_vision_language,
)
from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.classes import ClassNames, class_names
from visleak.impact.evaluators.feeding import image_vectors, refuse_embeddings, workplace
from visleak.impact.evaluators.outputs import (
    BEST,
    NONE,
    Judged,
    Ranked,
    answer_columns,
    few,
    judged,
    label_notes,
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
from visleak.pipeline.workplace import Progress, silent
from visleak.records import Fingerprints, Float32, ImageSet
from visleak.reporting import Document
from visleak.stats import Rate

#: Placeholder for the name of a class.
PLACE: Final = "{}"

#: Names of the built-in templates.
SIMPLE: Final = "simple"
OPENAI: Final = "openai"

#: Radford et al. (2021), section 3.1.4: a template for any data set.
_SIMPLE: Final = ("a photo of a {}.",)

#: The 80 for ImageNet, with source and licence.
_OPENAI_FILE: Final = "openai_templates.json"


@dataclass(frozen=True, slots=True)
class Templates:
    """The prompt templates of a classifier.

    Attributes:
        name: ``simple``, ``openai`` or the file.
        sentences: each with :data:`PLACE` in it, all different.
    """

    name: str
    sentences: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest of the sentences in their order."""
        return hashlib.blake2b("\n".join(self.sentences).encode(), digest_size=16).hexdigest()

    def prompts(self, name: str) -> list[str]:
        """Return the prompts of one class.

        >>> Templates("mine", ("a {}.", "the {}.")).prompts("red fox")
        ['a red fox.', 'the red fox.']
        """
        # str.format would interpret {0} and {name.x} in a user's file
        return [sentence.replace(PLACE, name) for sentence in self.sentences]


def load_templates(text: str) -> Templates:
    """Return templates by name, or those of a text file with one per line.

    Raises:
        UsageError: there is no such file.
        VisleakError: a line has no placeholder, or occurs twice; or there is none.

    >>> load_templates("simple").sentences
    ('a photo of a {}.',)
    >>> len(load_templates("openai").sentences)
    80
    """
    if text == SIMPLE:
        return Templates(SIMPLE, _SIMPLE)
    if text == OPENAI:
        content = (
            files("visleak.impact.evaluators").joinpath(_OPENAI_FILE).read_text(encoding="utf-8")
        )
        return Templates(OPENAI, tuple(json.loads(content)["templates"]))
    path = Path(text)
    if not path.is_file():
        raise UsageError(
            f"templates must be {OPENAI}, {SIMPLE} or a text file with one per line; got {text!r}"
        )
    return Templates(text, _checked(path, _lines(path)))


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise VisleakError(f"templates {path} cannot be read as UTF-8 text ({error})") from error
    numbered = enumerate((line.strip() for line in text.splitlines()), start=1)
    return [(number, line) for number, line in numbered if line]


def _checked(path: Path, lines: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    if not lines:
        raise VisleakError(
            f"templates {path}: the file is empty; write one per line, such as {_SIMPLE[0]}"
        )
    seen: dict[str, int] = {}
    for number, line in lines:
        if PLACE not in line:
            raise VisleakError(
                f"templates {path}, line {number}: {line[:80]!r} has no {PLACE} for the name of a"
                f" class; write such as {_SIMPLE[0]}"
            )
        if line in seen:
            raise VisleakError(
                f"templates {path}, line {number}: {line[:80]!r} is also in line {seen[line]};"
                " it would count twice"
            )
        seen[line] = number
    return tuple(seen)


Float64 = npt.NDArray[np.float64]

#: Images compared with all classes at a time.
BLOCK: Final = 2_048


@dataclass(frozen=True)
class ClassVectors:
    """The classifier of some class names.

    Attributes:
        matrix: ``float64`` (classes, width), unit rows.
        prompts: number of prompts.
        cut: prompts longer than the context of the model.
    """

    matrix: Float64
    prompts: int
    cut: int


@dataclass(frozen=True, slots=True)
class ZeroShot:
    """The result of zero-shot classification of a set.

    Attributes:
        file: of the predictions.
        set, model: their names.
        images: with a prediction.
        accuracy: share of the labelled images whose best class is theirs; ``None`` without labels.
        top_5: share of those whose class is among the best five; ``None`` without labels, or where
            there are no more than five classes.
        classes: number of classes, and how the set's labels are matched with them.
        templates: their name and number.
        prompts, cut: number of prompts, and of those longer than the context.
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
    """Classify the images of a set with CLIP and class names, and write the predictions.

    Args:
        images: the set.
        model: ``clip[:ARGUMENT][?OPTION=VALUE&...]``, as the encoder is named.
        out: ``.parquet`` with ``id``, ``label``, ``prediction``, ``predictions`` (up to five, best
            first) and ``confidence``; or ``.csv``, with ``top-5`` (0 or 1) instead of the list.
        options: more options of the model, by name; they come before those in its text.
        classes: a file with names, see :func:`visleak.impact.evaluators.classes.class_names`;
            by default the set's labels.
        templates: ``simple``, ``openai`` or a text file with one per line.
        workers: processes that decode and prepare; by default one per core.
        cache: folder for image vectors; ``None`` for none.
        progress: reports each step.
        force: replace an existing file.

    Raises:
        UsageError: an argument cannot be used.
        MissingExtra: the model needs a package that is not installed.
        VisleakError: the model could not be loaded, a file cannot be used, or no image can be read.
    """
    target = check_target(out, force=force)
    refuse_embeddings(images)
    sentences = load_templates(templates)
    names = class_names(images.labels, Path(classes) if classes is not None else None)
    job = _Job(images, load_vision_language(model, **options), names, sentences, target, force)
    made = class_vectors(job.model.texts, names.names, sentences, progress)
    with workplace(images, workers, cache, progress) as place:
        prints = image_vectors(images, job.model.pictures, place)
        found = answers(prints.matrix, made.matrix, job.model.texts.logit_scale)
        return _written(job, made, prints, found)


def class_vectors(
    tower: TextTower, names: Sequence[str], templates: Templates, progress: Progress = silent
) -> ClassVectors:
    """Return the unit vectors of classes, ensembled over templates.

    Args:
        tower: encodes the prompts.
        names: of the classes.
        templates: of their prompts.
        progress: reports each step.
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
    # prompts that cancel each other out leave no direction, and the class is never predicted
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    matrix = np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0)
    return ClassVectors(matrix, len(prompts), int(np.count_nonzero(read.cut)))


def answers(pictures: Float32, classes: Float64, scale: float) -> Ranked:
    """Return the best classes of each image, and the probability of the first.

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
    """Write the files, that of the predictions last, and return the result."""
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
    """Return how the predictions were made, for the file."""
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
            f"prompts longer than the {job.model.texts.context} tokens of the model, which are"
            f" truncated: {made.cut:,} of {made.prompts:,}"
        )
    if names.shared:
        yield (
            f"names that several classes have: {few(names.shared)}; the first of these classes is"
            " predicted"
        )
    yield from label_notes(names.classes, right)


def document(result: ZeroShot) -> Document:
    """Return a result as a document."""
    name, count = result.templates
    facts = [
        *accuracy_facts(result.accuracy, result.top_5),
        ("classes", f"{result.classes:,}: {result.rule}"),
        ("templates", f"{count:,}: {name}; {result.prompts:,} prompts"),
    ]
    return document_of(result, f"{result.images:,} images of {result.set} by {result.model}", facts)


def content(result: ZeroShot) -> dict[str, Any]:
    """Return a result as plain values."""
    return content_of(
        result,
        set=result.set,
        model=result.model,
        images=result.images,
        accuracy=rate_numbers(result.accuracy),
        top_5=rate_numbers(result.top_5),
        classes={"count": result.classes, "rule": result.rule},
        templates={"name": result.templates[0], "count": result.templates[1]},
        prompts={"count": result.prompts, "cut": result.cut},
    )
