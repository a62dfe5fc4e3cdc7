"""What a network learns from a set, and what it is asked about afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.groups import chained, components, numbered
from visleak.records import Bool, Bytes8, ImageSet, Int64
from visleak.training.holdout import held_out
from visleak.training.material import Material

#: Pictures to learn from, at least.
FEWEST: Final = 16


@dataclass(frozen=True)
class Questions:
    """Pictures that a network is asked about.

    Attributes:
        kind: ``test`` or ``held out``.
        pictures: ``uint8`` (n, side, side, 3).
        rows: ``int64`` (k,): those of them that it is asked about.
        classes: ``int64`` (k,): the right answers, or ``None``.
    """

    kind: str
    pictures: Bytes8
    rows: Int64
    classes: Int64 | None


@dataclass(frozen=True)
class Lessons:
    """What is learnt from.

    Attributes:
        pictures: ``uint8`` (n, side, side, 3).
        rows: ``int64`` (k,): those of them that are learnt from.
        classes: ``int64`` (k,): their classes; ``None`` where no labels are known.
        names: of the classes, sorted.
        by_class: classes are what is learnt; otherwise pictures are told apart.
        questions: what is asked afterwards.
    """

    pictures: Bytes8
    rows: Int64
    classes: Int64 | None
    names: tuple[str, ...]
    by_class: bool
    questions: Questions


def lessons_of(
    images: ImageSet,
    material: Material,
    test: tuple[ImageSet, Material] | None,
    *,
    labels: str,
    seed: int,
    say: Callable[[str], None],
) -> Lessons:
    """Return what to learn and what to ask.

    Args:
        images, material: the set and its pictures.
        test: the set to ask about; without it a part of the other is held out.
        labels: ``auto`` learns the classes where there are labels, ``none`` never does.
        seed: of what is held out.
        say: is told what is left out.

    Raises:
        VisleakError: there are too few pictures, or all have one label.
    """
    names = _names(material.labels)
    by_class = labels == "auto" and bool(names)
    if by_class and len(names) == 1:
        raise VisleakError(
            f"all pictures of set {images.name!r} have the label {names[0]!r}: there are no"
            " classes to tell apart; --labels none learns without labels, --label COLUMN takes"
            " another column"
        )
    classes = _numbers(material, names)
    usable = classes >= 0 if by_class else np.ones(len(material), np.bool_)
    if usable.sum() < FEWEST:
        kind = "labelled pictures" if by_class else "pictures"
        raise VisleakError(
            f"set {images.name!r} has {int(usable.sum())} {kind} that can be read; at least"
            f" {FEWEST} are needed to learn from"
        )
    if unlabelled := int((~usable).sum()):
        say(f"{counted(unlabelled)} of {images.name} without a label: not learnt from")
    held = np.zeros(len(material), np.bool_)
    if test is None:
        held[usable] = _held(material, classes, usable, by_class, seed)
        questions = Questions("held out", material.pictures, np.flatnonzero(held), None)
        if names:
            questions = _answered(questions, classes)
    else:
        questions = _asked(*test, names, by_class=by_class, say=say)
    rows = np.flatnonzero(usable & ~held)
    known = classes[rows] if names else None
    return Lessons(material.pictures, rows, known, names, by_class, questions)


def _held(material: Material, classes: Int64, usable: Bool, by_class: bool, seed: int) -> Bool:
    """Return which of the usable pictures to hold out; equal ones and groups stay together."""
    rows = np.flatnonzero(usable)
    ties = [chained(material.twins()[rows])]
    if material.groups is not None:
        groups = material.groups.take(pa.array(rows)).dictionary_encode().indices
        ties.append(chained(groups.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)))
    kinds = numbered(classes[rows]) if by_class else np.zeros(len(rows), np.int64)
    return held_out(kinds, components(len(rows), ties), seed)


def _answered(questions: Questions, classes: Int64) -> Questions:
    """Return the questions with the answers that are known; others are not asked."""
    rows = questions.rows[classes[questions.rows] >= 0]
    return Questions(questions.kind, questions.pictures, rows, classes[rows])


def _asked(
    images: ImageSet,
    material: Material,
    names: Sequence[str],
    *,
    by_class: bool,
    say: Callable[[str], None],
) -> Questions:
    """Return the questions that a test set asks."""
    every = np.arange(len(material))
    classes = _numbers(material, names)
    questions = Questions("test", material.pictures, every, None)
    known = int((classes >= 0).sum())
    if by_class and not known:
        raise VisleakError(
            f"no picture of the test set {images.name!r} has one of the labels learnt"
            f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}); --label COLUMN names"
            " the column for both sets"
        )
    if by_class and known < len(every):
        say(
            f"{counted(len(every) - known)} of {images.name} with no label of the training set:"
            " not asked about"
        )
    return _answered(questions, classes) if known else questions


def _names(labels: pa.StringArray | None) -> tuple[str, ...]:
    if labels is None:
        return ()
    return tuple(sorted(name for name in pc.unique(labels).to_pylist() if name is not None))


def _numbers(material: Material, names: Sequence[str]) -> Int64:
    """Return the place of each picture's label in the names, -1 where it is none of them."""
    if material.labels is None or not names:
        return np.full(len(material), -1, np.int64)
    places = pc.index_in(material.labels, pa.array(names, pa.string()))
    return np.asarray(places.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def counted(count: int) -> str:
    """Return a number of pictures in words.

    >>> counted(1), counted(2_000)
    ('1 picture', '2,000 pictures')
    """
    return f"{count:,} picture{'' if count == 1 else 's'}"
