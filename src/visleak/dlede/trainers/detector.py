"""``torch:detector``: a compact one-stage detector of centres, trained from scratch.

Written for this after Zhou et al. 2019, "Objects as Points": one heat map of centres a class,
sizes and offsets at the centres, and peaks of 3 x 3 cells in place of a suppression of overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from visleak.dlede.lesson import Lesson, Outcome, Split
from visleak.dlede.trainers.annotations import in_pixels, on_canvas, to_originals
from visleak.dlede.trainers.detection_metrics import MOST, Found, score_detections
from visleak.dlede.trainers.heatmaps import STRIDE, targets_of
from visleak.dlede.trainers.teaching import Here, LossOf, Options
from visleak.errors import UsageError, VisleakError
from visleak.images.boxes import Boxes
from visleak.records import Int64

#: Detections that are less sure are left out.
LEAST: Final = 0.01


class Detector:
    """The detector; see :class:`visleak.dlede.trainers.teaching.Model`."""

    name = "detector"
    version = 1
    epochs = 20
    multiple = 16
    usual = Options(side=160, batch=8, width=16, rate=0.006)
    decides: tuple[str, ...] = ("map50", "f1")

    def refuse(self, split: Split) -> None:
        """Refuse sets without objects."""
        for images, boxes in ((split.train, split.train_boxes), (split.test, split.test_boxes)):
            if boxes is None:
                raise UsageError(
                    f"torch:detector needs annotated boxes, and set {images.name!r} has none; open"
                    " both sets as coco:, yolo: or kitti:, or take torch:classifier for labels of"
                    " whole images"
                )
            if not boxes.counts().any():
                raise VisleakError(
                    f"set {images.name!r} has no annotated object of any class; there is nothing"
                    " for torch:detector to learn or to find"
                )

    def notes(self, split: Split) -> Iterator[str]:
        """Yield which classes only one of the sets has."""
        train, test = _boxes(split.train_boxes), _boxes(split.test_boxes)
        there = [boxes.counts().any(axis=0) for boxes in (train, test)]
        for which, said in (
            (there[0] & ~there[1], "have no objects in the test set, and count in no metric"),
            (there[1] & ~there[0], "have no objects in the training set"),
        ):
            names = [train.names[number] for number in np.flatnonzero(which)]
            if names:
                yield f"{len(names)} of {len(train.names)} classes {said}, such as {names[0]!r}"

    def network(self, split: Split, width: int) -> Any:
        """Return the network for the classes of the split."""
        from visleak.dlede.trainers.detector_network import CentreNetwork

        return CentreNetwork(len(_boxes(split.train_boxes).names), width)

    def seen(self, lesson: Lesson) -> Int64:
        """Return all of them: a picture without objects teaches what is none."""
        return np.arange(len(lesson.draw.kept) + len(lesson.draw.leaked), dtype=np.int64)

    def learner(self, network: Any, lesson: Lesson, seen: Int64, here: Here) -> LossOf:
        """Return the loss of changed pictures."""
        import torch

        from visleak.dlede.trainers.changes import Changes
        from visleak.dlede.trainers.detector_network import detection_loss

        pictures, content = here.pictures, here.pictures.mapped()
        rows = here.lesson(lesson)[seen]
        boxes = _boxes(lesson.boxes).taken(seen)
        objects = on_canvas(boxes, pictures, rows)
        shape = pictures.canvas[0] // STRIDE, pictures.canvas[1] // STRIDE

        def loss_of(chosen: Int64, random: np.random.Generator) -> Any:
            changes = Changes.drawn(len(chosen), random)
            pixels = pictures.on_canvas(content, rows[chosen])
            there = changes.of_objects([objects[each] for each in chosen], pictures.canvas)
            made = targets_of(there, len(boxes.names), shape)
            targets = [
                torch.from_numpy(part).to(here.device)
                for part in (made.heat, made.counted, made.places, made.boxes)
            ]
            logits, said = network(changes.of_pixels(pixels, here.device))
            return detection_loss(logits, said, *targets)

        return loss_of

    def said(self, network: Any, rows: Int64, here: Here) -> Found:
        """Return what the network finds in some pictures of the test set."""
        import torch

        from visleak.dlede.trainers.detector_network import peaks

        image, label = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        score, corners = [np.empty(0)], [np.empty((0, 4))]
        for mine, maps in here.tensors(rows):
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
        whole = to_originals(np.concatenate(corners), here.pictures, row)
        return Found(row - here.pictures.train, np.concatenate(label), np.concatenate(score), whole)

    def judged(self, said: Found, split: Split, here: Here) -> Outcome:
        """Return the metrics; nothing is found in a picture that cannot be read."""
        truth = in_pixels(_boxes(split.test_boxes), here.pictures, here.pictures.test)
        scores = score_detections(truth, said)
        sure = scores.confidence if np.isfinite(scores.confidence) else None
        return Outcome(scores.metrics, {"f1": scores.f1}, {"confidence": sure})


def _boxes(boxes: Boxes | None) -> Boxes:
    """Return boxes that :meth:`Detector.refuse` has seen."""
    if boxes is None:
        raise ValueError("the split has no boxes")
    return boxes
