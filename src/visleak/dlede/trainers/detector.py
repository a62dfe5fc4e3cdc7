"""``torch:detector``: a compact one-stage detector of centres, trained from scratch.

Written for this after Zhou et al. 2019, "Objects as Points": one heat map of centres per class,
sizes and offsets at the centres, and peaks of 3 x 3 cells instead of suppressing overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from visleak.dlede.draw import Split
from visleak.dlede.train import Outcome, TrainingTask
from visleak.dlede.trainers.detections import (
    MOST,
    STRIDE,
    Detections,
    Objects,
    score_detections,
    targets_of,
)
from visleak.dlede.trainers.networks import DecodedImages, LossOf, Options
from visleak.errors import UsageError, VisleakError
from visleak.formats import Boxes
from visleak.records import Float64, Int64

if TYPE_CHECKING:
    import torch
    from torch import nn

#: Detections with a lower confidence are dropped.
LEAST: Final = 0.01


class Detector:
    """The detector; see :class:`visleak.dlede.trainers.networks.Model`."""

    name = "detector"
    version = 1
    epochs = 20
    multiple = 16
    usual = Options(side=160, batch=8, width=16, rate=0.006)
    decides: tuple[str, ...] = ("map50", "f1")

    def check(self, split: Split) -> None:
        """Refuse sets without objects."""
        for images, boxes in ((split.train, split.train_boxes), (split.test, split.test_boxes)):
            if boxes is None:
                raise UsageError(
                    f"torch:detector needs annotated boxes, and set {images.name!r} has none; open"
                    " both sets as coco:, yolo: or kitti:, or use torch:classifier for labels of"
                    " whole images"
                )
            if not boxes.counts().any():
                raise VisleakError(
                    f"set {images.name!r} has no annotated object of any class; there is nothing"
                    " for torch:detector to learn or to find"
                )

    def notes(self, split: Split) -> Iterator[str]:
        """Yield the classes that only one of the sets has."""
        train, test = _boxes(split.train_boxes), _boxes(split.test_boxes)
        there = [boxes.counts().any(axis=0) for boxes in (train, test)]
        for which, text in (
            (there[0] & ~there[1], "have no objects in the test set, and count in no metric"),
            (there[1] & ~there[0], "have no objects in the training set"),
        ):
            names = [train.names[number] for number in np.flatnonzero(which)]
            if names:
                yield f"{len(names)} of {len(train.names)} classes {text}, such as {names[0]!r}"

    def network(self, split: Split, width: int) -> nn.Module:
        """Return the network for the classes of the split."""
        from visleak.dlede.trainers.torch_networks import CentreNetwork

        return CentreNetwork(len(_boxes(split.train_boxes).names), width)

    def usable(self, task: TrainingTask) -> Int64:
        """Return all of them: images without objects are negatives."""
        return np.arange(len(task.draw.kept) + len(task.draw.leaked), dtype=np.int64)

    def loss(
        self, network: nn.Module, task: TrainingTask, usable: Int64, images: DecodedImages
    ) -> LossOf:
        """Return the loss of augmented images."""
        import torch

        from visleak.dlede.trainers.torch_networks import Augmentation, detection_loss

        content = images.mapped()
        rows = images.rows(task.draw)[usable]
        boxes = _boxes(task.boxes).taken(usable)
        objects = on_canvas(boxes, images, rows)
        shape = images.canvas[0] // STRIDE, images.canvas[1] // STRIDE

        def loss_of(chosen: Int64, random: np.random.Generator) -> torch.Tensor:
            changes = Augmentation.drawn(len(chosen), random)
            pixels = images.on_canvas(content, rows[chosen])
            moved = changes.of_objects([objects[each] for each in chosen], images.canvas)
            made = targets_of(moved, len(boxes.names), shape)
            targets = [
                torch.from_numpy(part).to(images.device)
                for part in (made.heat, made.counted, made.places, made.boxes)
            ]
            logits, predicted = network(changes.of_pixels(pixels, images.device))
            return detection_loss(logits, predicted, *targets)

        return loss_of

    def predict(self, network: nn.Module, rows: Int64, images: DecodedImages) -> Detections:
        """Return the detections in some test images."""
        import torch

        from visleak.dlede.trainers.torch_networks import peaks

        image, label = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        score, corners = [np.empty(0)], [np.empty((0, 4))]
        for mine, maps in images.tensors(rows):
            with torch.inference_mode():
                logits, boxes = network(maps)
                found = peaks(logits, boxes, MOST)
            chances, labels, ends = (part.cpu().numpy() for part in found)
            which, place = np.nonzero(chances >= LEAST)
            image.append(mine[which])
            label.append(labels[which, place])
            score.append(chances[which, place].astype(np.float64))
            corners.append(ends[which, place].astype(np.float64))
        row = np.concatenate(image)
        whole = to_originals(np.concatenate(corners), images, row)
        return Detections(row - images.train, np.concatenate(label), np.concatenate(score), whole)

    def evaluate(self, network: nn.Module, split: Split, images: DecodedImages) -> Outcome:
        """Return the metrics; nothing is found in unreadable images."""
        found = self.predict(network, images.readable_test, images)
        truth = in_pixels(_boxes(split.test_boxes), images, images.test)
        scores = score_detections(truth, found)
        sure = scores.confidence if np.isfinite(scores.confidence) else None
        return Outcome(scores.metrics, {"f1": scores.f1}, {"confidence": sure})


def _boxes(boxes: Boxes | None) -> Boxes:
    """Return boxes that :meth:`Detector.check` requires."""
    if boxes is None:
        raise ValueError("the split has no boxes")
    return boxes


def on_canvas(boxes: Boxes, images: DecodedImages, rows: Int64) -> list[Objects]:
    """Return the objects of each image in pixels of the canvas, cut off at its edge."""
    mine = rows[boxes.image]
    size = images.sizes[mine][:, ::-1].astype(np.float64)
    factor = size if boxes.relative else size / images.originals[mine][:, ::-1]
    corners = np.clip(boxes.corners * np.tile(factor, 2), 0, np.tile(size, 2))
    whole = np.asarray((corners[:, 2:] > corners[:, :2]).all(axis=1))
    starts = np.searchsorted(boxes.image, np.arange(boxes.images + 1))
    made = []
    for start, stop in pairwise(starts.tolist()):
        mine = np.arange(start, stop)[whole[start:stop]]
        made.append(Objects(boxes.label[mine], corners[mine], boxes.crowd[mine]))
    return made


def in_pixels(boxes: Boxes, images: DecodedImages, rows: Int64) -> Boxes:
    """Return boxes in pixels of the original images."""
    if not boxes.relative:
        return boxes
    size = images.originals[rows[boxes.image]][:, ::-1]
    return replace(boxes, corners=boxes.corners * np.tile(size, 2), relative=False)


def to_originals(corners: Float64, images: DecodedImages, rows: Int64) -> Float64:
    """Return corners (n, 4) on the canvas as pixels of the originals, cut off at their edges."""
    size = np.tile(images.originals[rows][:, ::-1], 2)
    return np.clip(corners * size / np.tile(images.sizes[rows][:, ::-1], 2), 0, size)
