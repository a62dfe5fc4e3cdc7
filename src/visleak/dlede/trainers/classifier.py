"""``torch:classifier``: a small residual network for the labels of whole images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from visleak.dlede.draw.split import Split
from visleak.dlede.train.trainer import Outcome, TrainingTask
from visleak.dlede.trainers.networks import ImageBatches, LossOf, Options
from visleak.errors import UsageError, VisleakError
from visleak.records import ImageSet, Int64


class Classifier:
    """The classifier; see :class:`visleak.dlede.trainers.networks.Model`."""

    name = "classifier"
    version = 1
    epochs = 20
    multiple = 8
    usual = Options(side=64, batch=64, width=16, rate=0.005)
    decides: tuple[str, ...] = ("accuracy", "f1")

    def check(self, split: Split) -> None:
        """Refuse sets without labels, and a single class."""
        for images in (split.train, split.test):
            if images.labels is None or images.labels.null_count == len(images):
                raise UsageError(
                    f"torch:classifier needs the labels of images, and set {images.name!r} has"
                    " none; name their column with --label, open folders of classes, or use"
                    " torch:detector for annotated boxes"
                )
        if len(class_names(split)) < 2:
            raise VisleakError(
                f"all images have the label {class_names(split)[0]!r}; torch:classifier needs two"
                " classes or more"
            )

    def notes(self, split: Split) -> Iterator[str]:
        """Yield the numbers of images without a label, or with one that training lacks."""
        for images in (split.train, split.test):
            if images.labels is not None and images.labels.null_count:
                yield (
                    f"{images.labels.null_count:,} of {len(images):,} images of set"
                    f" {images.name!r} have no label, and are excluded"
                )
        train, test = (_numbers(images, split) for images in (split.train, split.test))
        foreign = np.setdiff1d(test[test >= 0], train)
        if len(foreign):
            count = int(np.isin(test, foreign).sum())
            yield (
                f"{count:,} test images have a label that no training image has, such as"
                f" {class_names(split)[foreign[0]]!r}: they are only correct if such images leak"
            )

    def network(self, split: Split, width: int) -> Any:
        """Return the network for the labels of both sets."""
        from visleak.dlede.trainers.torch_networks import LabelNetwork

        return LabelNetwork(len(class_names(split)), width)

    def usable(self, task: TrainingTask) -> Int64:
        """Return the images that have a label."""
        return np.flatnonzero(_task_labels(task) >= 0).astype(np.int64)

    def loss(self, network: Any, task: TrainingTask, usable: Int64, data: ImageBatches) -> LossOf:
        """Return the cross-entropy of augmented images."""
        import torch
        from torch.nn import functional

        from visleak.dlede.trainers.torch_networks import Augmentation

        images, content = data.images, data.images.mapped()
        rows, classes = images.rows(task.draw)[usable], _task_labels(task)[usable]

        def loss_of(chosen: Int64, random: np.random.Generator) -> Any:
            changes = Augmentation.drawn(len(chosen), random)
            pixels = images.on_canvas(content, rows[chosen])
            logits = network(changes.of_pixels(pixels, data.device))
            answers = torch.from_numpy(classes[chosen]).to(data.device)
            return functional.cross_entropy(logits, answers)

        return loss_of

    def predict(self, network: Any, rows: Int64, data: ImageBatches) -> tuple[Int64, Int64]:
        """Return rows, and the predicted class of each."""
        import torch

        found = [np.empty(0, np.int64)]
        for _, maps in data.tensors(rows):
            with torch.inference_mode():
                found.append(network(maps).argmax(1).cpu().numpy())
        return rows, np.concatenate(found)

    def evaluate(
        self, predictions: tuple[Int64, Int64], split: Split, data: ImageBatches
    ) -> Outcome:
        """Return the metrics over the labelled test images; an unreadable one counts as wrong."""
        true = _numbers(split.test, split)
        predicted = np.full(len(true), -1, np.int64)
        predicted[predictions[0] - data.images.train] = predictions[1]
        known = true >= 0
        right = np.where(known, (true == predicted).astype(np.float64), np.nan)
        return Outcome(label_metrics(true[known], predicted[known]), {"accuracy": right})


def class_names(split: Split) -> list[str]:
    """Return the labels of both sets, ordered."""
    both = [images.labels for images in (split.train, split.test) if images.labels is not None]
    return sorted(pa.chunked_array(both, pa.string()).drop_null().unique().to_pylist())


def _numbers(images: ImageSet, split: Split) -> Int64:
    """Return the number of each image's label, -1 if it has none."""
    number = {name: at for at, name in enumerate(class_names(split))}
    labels = [] if images.labels is None else images.labels.to_pylist()
    return np.array([-1 if label is None else number[label] for label in labels], np.int64)


def _task_labels(task: TrainingTask) -> Int64:
    """Return the number of the label of each training image of a task."""
    train, test = (_numbers(images, task.split) for images in (task.split.train, task.test))
    return np.concatenate([train[task.draw.kept], test[task.draw.leaked]])


def label_metrics(true: Int64, predicted: Int64) -> Mapping[str, float]:
    """Return ``accuracy`` and ``f1``, in [0, 1], higher is better.

    F1 is the mean over the classes that occur (macro), 2 TP / (predicted + true) each.

    Args:
        true: ``int64`` (n,): class of each image, n > 0.
        predicted: ``int64`` (n,): its predicted class; -1 for none.
    """
    classes = int(max(true.max(), predicted.max())) + 1
    right = true == predicted
    found = np.bincount(true[right], minlength=classes)
    count = np.bincount(true, minlength=classes)
    guessed = np.bincount(predicted[predicted >= 0], minlength=classes)
    known = count > 0
    f1 = 2 * found[known] / (guessed + count)[known]
    return {"accuracy": float(right.mean()), "f1": float(f1.mean())}
