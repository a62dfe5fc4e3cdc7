"""Zero-shot classification with CLIP (Radford et al. 2021, section 3.1): names make the classes.

The vector of a class is the mean of the unit vectors of its prompts, normalised; an image is of the
class whose vector has the largest cosine with its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from visleak.encoders.vision_language import TextTower, load_vision_language
from visleak.errors import UsageError, VisleakError, explaining
from visleak.impact.evaluators.classes import class_names
from visleak.impact.evaluators.classification import BEST, Classification, Ranked, best_of, save
from visleak.impact.evaluators.predictions import (
    check_target,
    context,
    image_vectors,
    refuse_embeddings,
)
from visleak.progress import Progress, silent
from visleak.quantities import some
from visleak.records import Float32, Float64, ImageSet

PLACE: Final = "{}"  # placeholder for the name of a class
SIMPLE: Final = "simple"  # names of the built-in templates
OPENAI: Final = "openai"
_SIMPLE: Final = ("a photo of a {}.",)  # Radford et al. (2021), section 3.1.4: for any data set
_OPENAI_FILE: Final = "openai_templates.json"  # the 80 for ImageNet, with source and licence


@dataclass(frozen=True, slots=True)
class Templates:
    """The prompt templates of a classifier."""

    name: str  # `simple`, `openai` or the file
    sentences: tuple[str, ...]  # each with PLACE in it, all different

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

    >>> load_templates("simple").sentences
    ('a photo of a {}.',)
    >>> len(load_templates("openai").sentences)
    80
    """
    if text == SIMPLE:
        return Templates(SIMPLE, _SIMPLE)
    if text == OPENAI:
        stored = files("visleak.impact.evaluators").joinpath(_OPENAI_FILE)
        return Templates(OPENAI, tuple(json.loads(stored.read_text(encoding="utf-8"))["templates"]))
    path = Path(text)
    if not path.is_file():
        raise UsageError(
            f"templates must be {OPENAI}, {SIMPLE} or a text file with one per line; got {text!r}"
        )
    with explaining(f"templates {path} cannot be read as UTF-8 text", OSError, UnicodeDecodeError):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    seen: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        where = f"templates {path}, line {number}: {line[:80]!r}"
        if line and PLACE not in line:
            raise VisleakError(
                f"{where} has no {PLACE} for the name of a class; write such as {_SIMPLE[0]}"
            )
        if line in seen:
            raise VisleakError(f"{where} is also in line {seen[line]}; it would count twice")
        if line:
            seen[line] = number
    if not seen:
        raise VisleakError(
            f"templates {path}: the file is empty; write one per line, such as {_SIMPLE[0]}"
        )
    return Templates(text, tuple(seen))


BLOCK: Final = 2_048  # images compared with all classes at a time


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
) -> Classification:
    """Classify the images of a set with CLIP and class names, and write the predictions.

    Names are those of a file, see :mod:`visleak.impact.evaluators.classes`, or the set's labels;
    the file of predictions is that of :mod:`visleak.impact.evaluators.classification`.
    """
    target = check_target(out, force=force)
    refuse_embeddings(images)
    sentences = load_templates(templates)
    names = class_names(images.labels, Path(classes) if classes is not None else None)
    towers = load_vision_language(model, **options)
    vectors, cut = _class_vectors(towers.texts, names.names, sentences, progress)
    prompts = len(names.names) * len(sentences.sentences)
    notes = []
    if cut:
        notes.append(
            f"prompts longer than the {towers.texts.context} tokens of the model, which are"
            f" truncated: {cut:,} of {prompts:,}"
        )
    if names.shared:
        notes.append(
            f"names that several classes have: {some(names.shared)}; the first of these classes is"
            " predicted"
        )
    count = len(sentences.sentences)
    about = {
        "evaluator": "zeroshot",
        "model": {**towers.about(), "logit scale": towers.texts.logit_scale},
        "classes": {**names.classes.about(), "names digest": names.digest},
        "templates": {"name": sentences.name, "count": count, "digest": sentences.digest},
        "prompts": {"count": prompts, "cut": cut},
    }
    with context(images, workers, cache, progress) as place:
        prints = image_vectors(images, towers.images, place)
        result = save(
            images,
            prints.rows,
            predicted(prints.matrix, vectors, towers.texts.logit_scale),
            names.classes,
            target,
            model=towers.images.name,
            about=about,
            problems=(*images.problems, *prints.problems),
            notes=notes,
            force=force,
        )
    named = (sentences.name, count)
    return replace(result, templates=named, prompts=prompts, cut=cut)


def _class_vectors(
    tower: TextTower, names: Sequence[str], templates: Templates, progress: Progress
) -> tuple[Float64, int]:
    """Return the unit vectors of classes, ensembled over templates, and how many are truncated."""
    prompts = [prompt for name in names for prompt in templates.prompts(name)]
    read = tower.encode(prompts, lambda done, total: progress("reading prompts", done, total))
    by_class = read.matrix.reshape(len(names), len(templates.sentences), -1).astype(np.float64)
    means = by_class.mean(axis=1)
    # prompts that cancel each other out leave no direction, and the class is never predicted
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    matrix = np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0)
    return matrix, int(np.count_nonzero(read.cut))


def predicted(images: Float32, classes: Float64, scale: float) -> Ranked:
    """Return the best classes of each image, earlier ones first where equal, and their probability.

    ``images`` (n, d) and ``classes`` (c, d): unit rows.
    """
    best = np.empty((len(images), BEST), np.int64)
    confidence = np.empty(len(images), np.float32)
    for start in range(0, len(images), BLOCK):
        part = slice(start, start + BLOCK)
        cosines = images[part].astype(np.float64) @ classes.T
        best[part] = best_of(cosines, np.arange(len(classes)))
        largest = cosines.max(axis=1, keepdims=True)
        confidence[part] = 1 / np.exp(scale * (cosines - largest)).sum(axis=1)
    return Ranked(best, confidence)
