"""Ranked classes of each image, which of them are correct, and their columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.errors import MissingExtra
from visleak.impact.evaluators.classes import FOREIGN, UNLABELLED, Classes
from visleak.records import Bool, Float32, Int64
from visleak.stats import Rate

#: Answers kept an image.
BEST: Final = 5

#: Place of an answer that is not there, because there are fewer classes.
NONE: Final = -1

#: Rows whose outputs lie between 0 and 1 and add up to 1 as closely as this are probabilities.
_SUM: Final = 1e-3

#: Images a call of torchmetrics.
_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Ranked:
    """The answers of a model, image by image.

    Attributes:
        best: ``int64`` (n, 5): outputs, likeliest first; :data:`NONE` where there are fewer.
        confidence: ``float32`` (n,) in [0, 1]: probability of the first.
    """

    best: Int64
    confidence: Float32


def ranked(outputs: Float32, allowed: Bool) -> Ranked:
    """Return the best outputs of each row; of equal ones the first comes first.

    Args:
        outputs: ``float32`` (n, c), logits or probabilities, larger for likelier classes.
        allowed: ``bool`` (c,): outputs that may be answered.
    """
    columns = np.flatnonzero(allowed)
    kept = outputs[:, columns].astype(np.float64)
    order = np.argsort(-kept, axis=1, kind="stable")[:, :BEST]
    best = np.full((len(outputs), BEST), NONE, np.int64)
    best[:, : order.shape[1]] = columns[order]
    return Ranked(best, _confidence(outputs, kept))


def _confidence(outputs: Float32, kept: np.ndarray[Any, Any]) -> Float32:
    """Return the probability of the largest of ``kept`` among them (n,)."""
    sums = outputs.astype(np.float64).sum(axis=1)
    likely = (outputs >= 0).all(axis=1) & (np.abs(sums - 1) <= _SUM)
    largest = kept.max(axis=1)
    softmax = 1 / np.exp(kept - largest[:, None]).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = largest / kept.sum(axis=1)
    # where all allowed classes have probability 0 each is as likely as the others
    shares = np.where(np.isnan(shares), 1 / kept.shape[1], shares)
    return np.asarray(np.where(likely, shares, softmax), np.float32)


def hits(best: Int64, targets: Int64, classes: int) -> Bool:
    """Return which answers are right, ``bool`` (n, k).

    By torchmetrics, image by image; on a machine without torch, where only ONNX files are run, by
    comparison.

    Args:
        best: (n, k), outputs or :data:`NONE`.
        targets: (n,), outputs, or below 0 where no answer can be right.
        classes: number of outputs.
    """
    try:
        accuracy = _accuracy()
    except MissingExtra:
        return np.asarray((best == targets[:, None]) & (best >= 0))
    import torch

    # two classes more: of answers that are not there, and of targets that nothing can hit
    answers = torch.from_numpy(np.where(best < 0, classes, best))
    wanted = torch.from_numpy(np.where(targets < 0, classes + 1, targets))
    right = np.zeros(best.shape, np.bool_)
    for start in range(0, len(best), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        for place in range(best.shape[1]):
            flags = accuracy(
                answers[part, place, None],
                wanted[part, None],
                num_classes=classes + 2,
                average="micro",
                multidim_average="samplewise",
                validate_args=False,
            )
            right[part, place] = flags.numpy() > 0.5
    return right


def _accuracy() -> Any:
    from visleak.encoders.libraries import library

    library("torch", "torch", "accuracy by torchmetrics")
    metrics = library("torchmetrics.functional.classification", "torch", "accuracy by torchmetrics")
    return metrics.multiclass_accuracy


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
        best: (n, 5), classes, or :data:`visleak.impact.evaluators.outputs.NONE`.
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
