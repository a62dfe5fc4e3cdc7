"""Which answers of a classifier are right, and the columns that say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from visleak.impact.evaluators.classes import FOREIGN, UNLABELLED, Classes
from visleak.impact.evaluators.ranking import BEST, NONE, Ranked, hits
from visleak.records import Bool, Int64
from visleak.stats import Rate


@dataclass(frozen=True, slots=True)
class Judged:
    """Which answers are right.

    Attributes:
        right: ``bool`` (n, 5), by place.
        targets: ``int64`` (n,): the class that would be right, or what stands for none.
        top_5: there are more classes than places.
    """

    right: Bool
    targets: Int64
    top_5: bool

    def share(self, places: int) -> Rate:
        """Return how many of the images with a label have it among so many places."""
        labelled = self.targets != UNLABELLED
        found = np.asarray(self.right[labelled, :places].any(axis=1))
        return Rate.of(int(found.sum()), int(labelled.sum()))


def judged(best: Int64, classes: Classes, labels: pa.StringArray, allowed: int) -> Judged:
    """Return which answers are right.

    Args:
        best: (n, 5), classes, or :data:`visleak.impact.evaluators.ranking.NONE`.
        classes: that may be answered.
        labels: of the images.
        allowed: how many classes may be answered.
    """
    targets = classes.targets(labels)
    # outputs of one name are one class
    answers = np.where(best >= 0, classes.first[best], NONE)
    return Judged(hits(answers, targets, len(classes)), targets, allowed > BEST)


def answer_columns(
    classes: Classes,
    answers: Ranked,
    labels: pa.StringArray | None,
    judgement: Judged | None,
    target: Path,
) -> dict[str, Any]:
    """Return the columns of a classifier's predictions; a CSV has no place for the list.

    Args:
        classes: that may be answered.
        answers: image by image.
        labels: of the images, or ``None``.
        judgement: which answers are right, where there are labels.
        target: the file.
    """
    columns: dict[str, Any] = {} if labels is None else {"label": labels}
    names = pa.array(classes.names, pa.string())
    columns["prediction"] = names.take(pa.array(answers.best[:, 0]))
    if target.suffix.lower() != ".csv":
        columns["predictions"] = _lists(names, answers.best)
    elif judgement is not None and judgement.top_5:
        five = judgement.right.any(axis=1).astype(np.int8)
        columns["top-5"] = pa.array(five, mask=judgement.targets == UNLABELLED)
    columns["confidence"] = answers.confidence
    return columns


def label_notes(classes: Classes, judgement: Judged | None) -> Iterator[str]:
    """Yield what a reader of the score must know of the labels."""
    if judgement is None:
        return
    foreign = int(np.count_nonzero(judgement.targets == FOREIGN))
    if foreign:
        yield (
            f"labels of the set that are no class of the model: {few(classes.foreign)}; their"
            f" {foreign:,} images count as wrong"
        )
    unlabelled = int(np.count_nonzero(judgement.targets == UNLABELLED))
    if unlabelled:
        yield f"images without a label, which are not counted: {unlabelled:,}"


def few(names: tuple[str, ...]) -> str:
    """Return the first names, on one line.

    >>> few(("a", "b", "c", "d", "e"))
    'a, b, c and 2 more'
    """
    told = ", ".join(names[:3])
    return f"{told} and {len(names) - 3:,} more" if len(names) > 3 else told


def _lists(names: pa.StringArray, best: Int64) -> pa.ListArray:
    """Return the names of the best outputs of each image, without places that are empty."""
    there = best != NONE
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names.take(pa.array(best[there])))
