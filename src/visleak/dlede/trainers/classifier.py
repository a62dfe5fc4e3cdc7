"""``torch:classifier``: a small residual network for the labels of whole images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from visleak.dlede.lesson import Lesson, Outcome, Split
from visleak.dlede.trainers.classification_metrics import score_labels
from visleak.dlede.trainers.teaching import Here, LossOf, Options
from visleak.errors import UsageError, VisleakError
from visleak.records import ImageSet, Int64


class Classifier:
    """The classifier; see :class:`visleak.dlede.trainers.teaching.Model`."""

    name = "classifier"
    version = 1
    epochs = 20
    multiple = 8
    usual = Options(side=64, batch=64, width=16, rate=0.005)
    decides: tuple[str, ...] = ("accuracy", "f1")

    def refuse(self, split: Split) -> None:
        """Refuse sets without labels, and a single class."""
        for images in (split.train, split.test):
            if images.labels is None or images.labels.null_count == len(images):
                raise UsageError(
                    f"torch:classifier needs the labels of images, and set {images.name!r} has"
                    " none; name their column with --label, open folders of classes, or take"
                    " torch:detector for annotated boxes"
                )
        if len(class_names(split)) < 2:
            raise VisleakError(
                f"all images have the label {class_names(split)[0]!r}; torch:classifier needs two"
                " classes or more"
            )

    def notes(self, split: Split) -> Iterator[str]:
        """Yield how many images have no label, and which labels training does not know."""
        for images in (split.train, split.test):
            if images.labels is not None and images.labels.null_count:
                yield (
                    f"{images.labels.null_count:,} of {len(images):,} images of set"
                    f" {images.name!r} have no label, and are left out"
                )
        train, test = (_numbers(images, split) for images in (split.train, split.test))
        foreign = np.setdiff1d(test[test >= 0], train)
        if len(foreign):
            count = int(np.isin(test, foreign).sum())
            yield (
                f"{count:,} test images have a label that no training image has, such as"
                f" {class_names(split)[foreign[0]]!r}: they are never right unless such leak"
            )

    def network(self, split: Split, width: int) -> Any:
        """Return the network for the labels of both sets."""
        from visleak.dlede.trainers.classifier_network import LabelNetwork

        return LabelNetwork(len(class_names(split)), width)

    def seen(self, lesson: Lesson) -> Int64:
        """Return the images that have a label."""
        return np.flatnonzero(_of_lesson(lesson) >= 0).astype(np.int64)

    def learner(self, network: Any, lesson: Lesson, seen: Int64, here: Here) -> LossOf:
        """Return the cross-entropy of changed pictures."""
        import torch
        from torch.nn import functional

        from visleak.dlede.trainers.changes import Changes

        pictures, content = here.pictures, here.pictures.mapped()
        rows, classes = here.lesson(lesson)[seen], _of_lesson(lesson)[seen]

        def loss_of(chosen: Int64, random: np.random.Generator) -> Any:
            changes = Changes.drawn(len(chosen), random)
            pixels = pictures.on_canvas(content, rows[chosen])
            logits = network(changes.of_pixels(pixels, here.device))
            answers = torch.from_numpy(classes[chosen]).to(here.device)
            return functional.cross_entropy(logits, answers)

        return loss_of

    def said(self, network: Any, rows: Int64, here: Here) -> tuple[Int64, Int64]:
        """Return rows, and the class that the network says of each."""
        import torch

        said = [np.empty(0, np.int64)]
        for _, maps in here.tensors(rows):
            with torch.inference_mode():
                said.append(network(maps).argmax(1).cpu().numpy())
        return rows, np.concatenate(said)

    def judged(self, said: tuple[Int64, Int64], split: Split, here: Here) -> Outcome:
        """Return the metrics over the labelled test images; one that cannot be read is wrong."""
        true = _numbers(split.test, split)
        told = np.full(len(true), -1, np.int64)
        told[said[0] - here.pictures.train] = said[1]
        known = true >= 0
        right = np.where(known, (true == told).astype(np.float64), np.nan)
        return Outcome(score_labels(true[known], told[known]), {"accuracy": right})


def class_names(split: Split) -> list[str]:
    """Return the labels of both sets, ordered."""
    both = [images.labels for images in (split.train, split.test) if images.labels is not None]
    return sorted(pa.chunked_array(both, pa.string()).drop_null().unique().to_pylist())


def _numbers(images: ImageSet, split: Split) -> Int64:
    """Return the number of each image's label, -1 where it has none."""
    number = {name: at for at, name in enumerate(class_names(split))}
    labels = [] if images.labels is None else images.labels.to_pylist()
    return np.array([-1 if label is None else number[label] for label in labels], np.int64)


def _of_lesson(lesson: Lesson) -> Int64:
    """Return the number of the label of each training image of a lesson."""
    train, test = (_numbers(images, lesson.split) for images in (lesson.split.train, lesson.test))
    return np.concatenate([train[lesson.draw.kept], test[lesson.draw.leaked]])
