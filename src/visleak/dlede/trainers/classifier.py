"""``torch:classifier``: a small residual network for the labels of whole images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from visleak.dlede.draw import Split
from visleak.dlede.train import Outcome, TrainingTask
from visleak.dlede.trainers.networks import DecodedImages, LossOf, Options
from visleak.errors import UsageError, VisleakError
from visleak.records import ImageSet, Int64

if TYPE_CHECKING:
    import torch
    from torch import nn


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

    def network(self, split: Split, width: int) -> nn.Module:
        """Return the network for the labels of both sets."""
        from visleak.dlede.trainers.torch_networks import LabelNetwork

        return LabelNetwork(len(class_names(split)), width)

    def usable(self, task: TrainingTask) -> Int64:
        """Return the images that have a label."""
        return np.flatnonzero(_task_labels(task) >= 0).astype(np.int64)

    def loss(
        self, network: nn.Module, task: TrainingTask, usable: Int64, images: DecodedImages
    ) -> LossOf:
        """Return the cross-entropy of augmented images."""
        import torch
        from torch.nn import functional

        from visleak.dlede.trainers.torch_networks import Augmentation

        content = images.mapped()
        rows, classes = images.rows(task.draw)[usable], _task_labels(task)[usable]

        def loss_of(chosen: Int64, random: np.random.Generator) -> torch.Tensor:
            changes = Augmentation.drawn(len(chosen), random)
            pixels = images.on_canvas(content, rows[chosen])
            logits = network(changes.of_pixels(pixels, images.device))
            answers = torch.from_numpy(classes[chosen]).to(images.device)
            return functional.cross_entropy(logits, answers)

        return loss_of

    def predict(self, network: nn.Module, rows: Int64, images: DecodedImages) -> Int64:
        """Return the predicted class of each image."""
        import torch

        found = [np.empty(0, np.int64)]
        for _, maps in images.tensors(rows):
            with torch.inference_mode():
                found.append(network(maps).argmax(1).cpu().numpy())
        return np.concatenate(found)

    def evaluate(self, network: nn.Module, split: Split, images: DecodedImages) -> Outcome:
        """Return the metrics over the labelled test images; an unreadable one counts as wrong."""
        true = _numbers(split.test, split)
        predicted, rows = np.full(len(true), -1, np.int64), images.readable_test
        predicted[rows - images.train] = self.predict(network, rows, images)
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


def label_metrics(
    true: Int64, predicted: Int64, *, predicted_classes: bool = False
) -> Mapping[str, float]:
    """Return ``accuracy`` and ``f1`` of classes (n,); -1 for none predicted.

    F1 is the mean over the classes that occur (macro), or are predicted as well, of
    2 TP / (predicted + true).

    >>> label_metrics(np.array([0, 0, 1]), np.array([0, 1, 1]))["f1"]
    0.6666666666666666
    """
    classes = int(max(true.max(), predicted.max())) + 1
    right = true == predicted
    found = np.bincount(true[right], minlength=classes)
    count = np.bincount(true, minlength=classes)
    guessed = np.bincount(predicted[predicted >= 0], minlength=classes)
    known = count + (guessed if predicted_classes else 0) > 0
    f1 = 2 * found[known] / (guessed + count)[known]
    return {"accuracy": float(right.mean()), "f1": float(f1.mean())}
