"""The bundled networks, their loss, their predictions and their augmentation (torch)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import torch
from torch import nn
from torch.nn import functional

from visleak.dlede.draw import Split
from visleak.dlede.train import Outcome, TrainingTask
from visleak.dlede.trainers import label_metrics
from visleak.dlede.trainers.detections import (
    MOST,
    STRIDE,
    Detections,
    Objects,
    score_detections,
    targets_of,
)
from visleak.dlede.trainers.networks import GREY, DecodedImages, LossOf, Options
from visleak.errors import UsageError, VisleakError
from visleak.formats import Boxes
from visleak.records import Bytes8, Float64, ImageSet, Int64
from visleak.training.networks import Block, warped

SPREAD: Final = 60.0  # pixels become numbers about 0 of about 1: (pixel - GREY) / SPREAD


def scaled(maps: torch.Tensor) -> torch.Tensor:
    """Return the network's input of pixels from 0 to 255; the canvas around an image is 0."""
    return (maps - GREY) / SPREAD


def convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Module:
    """Return a convolution with its normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class LabelNetwork(nn.Module):  # type: ignore[misc]
    """A residual network of eight layers (He et al. 2016), one block per width."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.stem = convolution(3, width, 3)
        self.blocks = nn.Sequential(
            *(Block(width * 2**step, width * 2 ** (step + 1), 2) for step in range(3))
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, classes) of pixels (n, 3, height, width) from 0 to 255."""
        # the mean's gradient is deterministic on every device
        return self.head(self.blocks(torch.relu(self.stem(scaled(maps)))).mean((2, 3)))


FOCUS, FORGIVING = 2, 4  # exponents of the focal loss (section 3)
LARGEST: Final = 8.0  # logarithm of the largest predicted size in cells
PRIOR: Final = 0.1  # initial probability of an object in every cell


class CentreNetwork(nn.Module):  # type: ignore[misc]
    """A residual network down to a sixteenth, then up again to a quarter of the resolution."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.classes = classes
        # a second layer at half the resolution: the smallest objects are a few pixels
        self.stem = nn.Sequential(
            convolution(3, width, 3, 2), nn.ReLU(), convolution(width, width, 3), nn.ReLU()
        )
        self.quarter = Block(width, 2 * width, 2)
        self.eighth = Block(2 * width, 4 * width, 2)
        self.sixteenth = Block(4 * width, 8 * width, 2)
        self.from_eighth = convolution(4 * width, 2 * width, 1)
        self.from_sixteenth = convolution(8 * width, 4 * width, 1)
        self.merged = nn.Sequential(convolution(2 * width, 4 * width, 3), nn.ReLU())
        self.head = nn.Conv2d(4 * width, classes + 4, 1)
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)
        prior = float(torch.logit(torch.tensor(PRIOR)))
        nn.init.constant_(self.head.bias[:classes], prior)

    def forward(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits of the heat maps (n, classes, h, w) and the boxes (n, 4, h, w)."""
        quarter = self.quarter(self.stem(scaled(maps)))
        eighth = self.eighth(quarter)
        deep = self.from_sixteenth(self.sixteenth(eighth))
        # nearest: its gradient is deterministic on every device
        eighth = torch.relu(eighth + functional.interpolate(deep, scale_factor=2))
        back = functional.interpolate(self.from_eighth(eighth), scale_factor=2)
        found = self.head(self.merged(torch.relu(quarter + back)))
        return found[:, : self.classes], found[:, self.classes :]


def detection_loss(
    logits: torch.Tensor,
    boxes: torch.Tensor,
    heat: torch.Tensor,
    counted: torch.Tensor,
    places: torch.Tensor,
    true: torch.Tensor,
) -> torch.Tensor:
    """Return the loss (equations 1 to 3): focal of the heat maps, L1 of sizes and offsets."""
    chance, missed = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    sure = chance.exp()
    found = chance * (1 - sure) ** FOCUS
    empty = missed * sure**FOCUS * (1 - heat) ** FORGIVING
    focal = -(torch.where(heat == 1, found, empty) * counted).sum()
    predicted = boxes.permute(0, 2, 3, 1)[places[:, 0], places[:, 1], places[:, 2]]
    return (focal + (predicted - true).abs().sum()) / max(1, len(places))


def peaks(
    logits: torch.Tensor, boxes: torch.Tensor, most: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the best peaks of each image: cells without a neighbour of higher probability.

    Probabilities (n, most), 0 if there are no more; classes; corners (n, most, 4) in pixels.
    """
    rows, columns = logits.shape[2:]
    chances = torch.sigmoid(logits)
    highest = functional.max_pool2d(chances, 3, stride=1, padding=1)
    chances = torch.where(chances == highest, chances, 0.0).flatten(1)
    # sorted: topk leaves the order of equal ones open
    best, places = (part[:, :most] for part in chances.sort(dim=1, descending=True, stable=True))
    label = places // (rows * columns)
    cell = places % (rows * columns)
    predicted = boxes.flatten(2).gather(2, cell[:, None, :].expand(-1, 4, -1))
    across, down = cell % columns + predicted[:, 0], cell // columns + predicted[:, 1]
    wide, tall = (predicted[:, 2:].clamp(max=LARGEST).exp() / 2).unbind(1)
    corners = torch.stack([across - wide, down - tall, across + wide, down + tall], 2)
    return best, label, corners * STRIDE


ZOOM: Final = 1.2  # an image is enlarged or reduced by up to this factor
#: It is shifted by up to this share of the canvas, and its brightness multiplied by 1 - LIGHT to
#: 1 + LIGHT.
SHIFT: Final = 0.1
LIGHT: Final = 0.3
LEFT: Final = 0.3  # an object with less than this share on the canvas is ignored, as crowds are


@dataclass(frozen=True)
class Augmentation:
    """Random changes of each image of a batch, (images,) each."""

    zoom: Float64  # factor about the centre of the canvas; negative horizontally if it is mirrored
    shift: Float64  # after it, in shares of the canvas, (images, 2): x and y
    light: Float64  # factor of the pixels

    @classmethod
    def drawn(cls, count: int, random: np.random.Generator) -> Augmentation:
        """Draw them from a generator."""
        zoom = np.exp(random.uniform(-np.log(ZOOM), np.log(ZOOM), count))
        mirror = random.choice([-1.0, 1.0], count)
        shift = random.uniform(-SHIFT, SHIFT, (count, 2))
        light = random.uniform(1 - LIGHT, 1 + LIGHT, count)
        return cls(np.stack([zoom * mirror, zoom], 1), shift, light)

    def of_pixels(self, pixels: Bytes8, device: str) -> torch.Tensor:
        """Return augmented images, ``float32`` (n, 3, height, width) from 0 to 255."""
        maps = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() - GREY
        # from the result to the image, in coordinates from -1 to 1
        frames = np.zeros((len(pixels), 2, 3))
        frames[:, [0, 1], [0, 1]] = 1 / self.zoom
        frames[:, :, 2] = -2 * self.shift / self.zoom
        found = warped(maps, torch.from_numpy(frames).float().to(device), "zeros")
        light = torch.from_numpy(self.light).float().to(device)[:, None, None, None]
        changed = ((found + GREY) * light).clamp(0, 255)
        return changed.contiguous(memory_format=torch.channels_last)

    def of_objects(self, images: Sequence[Objects], canvas: tuple[int, int]) -> list[Objects]:
        """Return the objects after the changes."""
        size = np.array(canvas[::-1], np.float64)
        made = []
        for objects, zoom, shift in zip(images, self.zoom, self.shift, strict=True):
            ends = (objects.corners.reshape(-1, 2, 2) / size - 0.5) * zoom + 0.5 + shift
            ends = np.sort(ends, axis=1) * size
            seen = np.clip(ends, 0, size)
            area, kept = (np.prod(each[:, 1] - each[:, 0], axis=1) for each in (ends, seen))
            there = kept > 0
            crowd = objects.crowd | (kept < LEFT * area)
            made.append(Objects(objects.label[there], seen.reshape(-1, 4)[there], crowd[there]))
        return made


# -- ``torch:classifier``: a small residual network for the labels of whole images ----------------


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
        if len(names := class_names(split)) < 2:
            raise VisleakError(
                f"all images have the label {names[0]!r}; torch:classifier needs two classes or"
                " more"
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
            yield (
                f"{int(np.isin(test, foreign).sum()):,} test images have a label that no training"
                f" image has, such as {class_names(split)[foreign[0]]!r}: they are only correct if"
                " such images leak"
            )

    def network(self, split: Split, width: int) -> nn.Module:
        """Return the network for the labels of both sets."""
        return LabelNetwork(len(class_names(split)), width)

    def usable(self, task: TrainingTask) -> Int64:
        """Return the images that have a label."""
        return np.flatnonzero(_task_labels(task) >= 0).astype(np.int64)

    def loss(
        self, network: nn.Module, task: TrainingTask, usable: Int64, images: DecodedImages
    ) -> LossOf:
        """Return the cross-entropy of augmented images."""
        content, classes = images.mapped(), _task_labels(task)[usable]
        rows = images.rows(task.draw)[usable]

        def loss_of(chosen: Int64, random: np.random.Generator) -> torch.Tensor:
            changes = Augmentation.drawn(len(chosen), random)
            pixels = images.on_canvas(content, rows[chosen])
            answers = torch.from_numpy(classes[chosen]).to(images.device)
            return functional.cross_entropy(
                network(changes.of_pixels(pixels, images.device)), answers
            )

        return loss_of

    def predict(self, network: nn.Module, rows: Int64, images: DecodedImages) -> Int64:
        """Return the predicted class of each image."""
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


# -- ``torch:detector``: a compact one-stage detector of centres, trained from scratch ------------

# Written for this after Zhou et al. 2019, "Objects as Points": one heat map of centres per class,
# sizes and offsets at the centres, and peaks of 3 x 3 cells instead of suppressing overlaps.


LEAST: Final = 0.01  # detections with a lower confidence are dropped


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
        return CentreNetwork(len(_boxes(split.train_boxes).names), width)

    def usable(self, task: TrainingTask) -> Int64:
        """Return all of them: images without objects are negatives."""
        return np.arange(len(task.draw.kept) + len(task.draw.leaked), dtype=np.int64)

    def loss(
        self, network: nn.Module, task: TrainingTask, usable: Int64, images: DecodedImages
    ) -> LossOf:
        """Return the loss of augmented images."""
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
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty((0, 4)))]
        for mine, maps in images.tensors(rows):
            with torch.inference_mode():
                logits, boxes = network(maps)
            found = peaks(logits, boxes, MOST)
            chances, labels, ends = (part.cpu().numpy() for part in found)
            at = np.nonzero(chances >= LEAST)
            score, corners = (part[at].astype(np.float64) for part in (chances, ends))
            parts.append((mine[at[0]], labels[at], score, corners))
        row, label, score, corners = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Detections(row - images.train, label, score, to_originals(corners, images, row))

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
