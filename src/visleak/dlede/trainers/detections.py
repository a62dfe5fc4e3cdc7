"""Training objects of a detector, and metrics of its detections by pycocotools."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from visleak.formats import Boxes
from visleak.lazy import library
from visleak.records import Bool, Float32, Float64, Int64

#: Detections of a class that count in one image, as COCO has it: the most confident ones.
MOST: Final = 100


@dataclass(frozen=True)
class Detections:
    """The detections in a set of images, one row per detection."""

    image: Int64  # (detections,): row of the set
    label: Int64  # (detections,): class
    score: Float64  # (detections,): confidence; higher is more certain
    corners: Float64  # (detections, 4): left, top, right, bottom in pixels


@dataclass(frozen=True)
class DetectionScores:
    """The scores of a detector."""

    metrics: Mapping[str, float]  # precision, recall, f1, map50, map50_95; in [0, 1]
    confidence: float  # from which detections count in the first three; infinite without any
    f1: Float64  # (images,) at that confidence; 1 without objects and detections


def score_detections(truth: Boxes, found: Detections) -> DetectionScores:
    """Compare detections with the annotated objects.

    The mean average precisions are COCO's (IoU .5, and .5 to .95). Precision, recall and F1 are
    means over classes at IoU .5, at the one confidence at which the mean F1 is highest, as YOLO
    reports them. A class without test objects counts in none, one without detections has a
    precision of 0.
    """
    if truth.relative:
        raise ValueError("detections are compared in pixels")
    evaluated = _evaluated(truth, found)
    precision = evaluated.eval["precision"][..., 0, 0]  # (thresholds, recalls, classes)
    known = precision[0, 0] > -1
    if not known.any():
        raise ValueError("no class has an object to be found")
    matches = _matches(evaluated)
    confidence, rates = _best(matches, np.flatnonzero(known), evaluated)
    rates["map50"] = float(precision[0][:, known].mean())
    rates["map50_95"] = float(precision[:, :, known].mean())
    each = _each_image(evaluated, matches, confidence, truth.images)
    return DetectionScores(rates, confidence, each)


def _evaluated(truth: Boxes, found: Detections) -> Any:
    what = "the evaluation of detections"
    coco = library("pycocotools.coco", "torch", what)
    cocoeval = library("pycocotools.cocoeval", "torch", what)
    ignored = truth.crowd | (truth.label < 0)
    classes, none = len(truth.names), np.zeros(len(found.image), np.bool_)
    objects = coco_objects(truth.image, truth.label, truth.corners, ignored, classes)
    guesses = coco_objects(found.image, found.label, found.corners, none, classes)
    scores = found.score.tolist()
    detections = [row | {"score": s} for row, s in zip(guesses, scores, strict=True)]
    with contextlib.redirect_stdout(io.StringIO()):
        true, made = coco.COCO(), coco.COCO()
        for data, rows in ((true, objects), (made, detections)):
            data.dataset = {
                "images": [{"id": image} for image in range(truth.images)],
                "categories": [{"id": label} for label in range(len(truth.names))],
                "annotations": rows,
            }
            data.createIndex()
        evaluated = cocoeval.COCOeval(true, made, "bbox")
        evaluated.params.areaRng, evaluated.params.areaRngLbl = [[0, np.inf]], ["all"]
        evaluated.params.maxDets = [MOST]
        evaluated.evaluate()
        evaluated.accumulate()
    return evaluated


def coco_objects(
    images: Int64, labels: Int64, corners: Float64, crowds: Bool, classes: int, first: int = 0
) -> list[dict[str, object]]:
    """Return objects in COCO's format; a region of no class is one of every class.

    ``first``: number of the first image, and of the first class.
    """
    made: list[dict[str, object]] = []
    columns = (images, labels, corners, crowds)
    for image, own, box, crowd in zip(*(each.tolist() for each in columns), strict=True):
        left, top, width, height = box[0], box[1], box[2] - box[0], box[3] - box[1]
        for label in (own,) if own >= 0 else range(classes):
            # 0 means no match
            named = {"id": len(made) + 1, "image_id": image + first, "category_id": label + first}
            shape = {"bbox": [left, top, width, height], "area": width * height}
            made.append({**named, **shape, "iscrowd": int(crowd)})
    return made


@dataclass(frozen=True)
class _Matches:
    """Detections that count at IoU .5, without those in crowds; ``right`` ones match an object."""

    image: Int64
    label: Int64
    score: Float64
    right: Bool


def _matches(evaluated: Any) -> _Matches:
    rows = [
        (part["image_id"], part["category_id"], score, match > 0)
        for part in evaluated.evalImgs
        if part is not None
        for score, match, ignored in zip(
            part["dtScores"], part["dtMatches"][0], part["dtIgnore"][0], strict=True
        )
        if not ignored
    ]
    image, label, score, right = zip(*rows, strict=True) if rows else ((), (), (), ())
    numbers = np.array(image, np.int64), np.array(label, np.int64)
    return _Matches(*numbers, np.array(score, np.float64), np.array(right, np.bool_))


def _objects(evaluated: Any) -> tuple[Int64, Int64, Int64]:
    """Return image, class, and number of objects to be found of all parts."""
    rows = [
        (part["image_id"], part["category_id"], int((np.asarray(part["gtIgnore"]) == 0).sum()))
        for part in evaluated.evalImgs
        if part is not None
    ]
    image, label, count = np.array(rows, np.int64).reshape(-1, 3).T
    return image, label, count


def _best(matches: _Matches, known: Int64, evaluated: object) -> tuple[float, dict[str, float]]:
    """Return the highest confidence at which the mean F1 is highest, and the means there."""
    _, classes, count = _objects(evaluated)
    objects = np.bincount(classes, count)
    levels = np.unique(matches.score)[::-1]
    if not len(levels):
        return float("inf"), {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    precision, recall = np.zeros((2, len(known), len(levels)))
    for row, label in enumerate(known):
        mine = matches.label == label
        place = np.searchsorted(-levels, -matches.score[mine])
        right = np.cumsum(np.bincount(place, matches.right[mine], len(levels)))
        predicted = np.cumsum(np.bincount(place, minlength=len(levels)))
        precision[row] = right / np.maximum(predicted, 1)
        recall[row] = right / objects[label]
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
    at = int(f1.mean(axis=0).argmax())
    means = {"precision": precision, "recall": recall, "f1": f1}
    return float(levels[at]), {name: float(each[:, at].mean()) for name, each in means.items()}


def _each_image(evaluated: Any, matches: _Matches, confidence: float, images: int) -> Float64:
    """Return the F1 of each image: 2 TP / (2 TP + FP + FN) = 2 TP / (found + objects)."""
    counts = matches.score >= confidence
    found = np.bincount(matches.image[counts], minlength=images)
    right = np.bincount(matches.image[counts & matches.right], minlength=images)
    image, _, count = _objects(evaluated)
    whole = found + np.bincount(image, count, images)
    return np.where(whole > 0, 2 * right / np.maximum(whole, 1), 1.0)


# -- training targets ------------------------------------------------------------------------------
#
# An object is a peak of its class's heat map at the centre of its box; there the maps hold the size
# of the box and the offset of its centre in the cell. Lengths are in cells. Unlike in the paper,
# sizes are learned as logarithms: an error counts equally for small and large boxes, as in an IoU.

STRIDE: Final = 4  # pixels of a cell's side
#: A box whose corners are as far off as the radius overlaps the true one by this IoU or more.
OVERLAP: Final = 0.7


@dataclass(frozen=True)
class Objects:
    """The annotated objects of one image on its canvas."""

    label: Int64  # (k,): class, -1 for regions of no class
    corners: Float64  # (k, 4): left, top, right, bottom in pixels of the canvas
    crowd: Bool  # (k,): regions that are neither to be found nor wrong


@dataclass(frozen=True)
class Targets:
    """The training targets of a batch."""

    heat: Float32  # (images, classes, rows, columns), 1 at the centres
    counted: Bool  # bool, of the same shape: cells whose heat counts
    places: Int64  # (objects, 3): image, row and column of each centre
    boxes: Float32  # (objects, 4): offsets in the cell, 0 to 1; log of width and height in cells


def radius_of(height: float, width: float, overlap: float = OVERLAP) -> float:
    """Return how far the corners of a box may be off, whichever way, to overlap by ``overlap``.

    The least of three cases (Law & Deng 2018, "CornerNet", section 3.2): the box is shifted, is
    too small all around, or is too large all around. Their code takes wrong roots; these are the
    right ones.

    >>> round(radius_of(10, 10), 3)
    0.817
    """
    area, half = height * width, height + width
    share = (1 - overlap) / (1 + overlap)
    shifted = (half - math.sqrt(half**2 - 4 * area * share)) / 2
    inside = (half - math.sqrt(half**2 - 4 * area * (1 - overlap))) / 4
    outside = (math.sqrt(half**2 + 4 * area * (1 / overlap - 1)) - half) / 4
    return min(shifted, inside, outside)


def targets_of(images: Sequence[Objects], classes: int, shape: tuple[int, int]) -> Targets:
    """Return the training targets of some images.

    Of two objects whose centres share a cell the smaller one's box is taught. Regions of a crowd
    take their cells out of the heat map of their class, or of all; centres of objects stay.
    """
    heat = np.zeros((len(images), classes, *shape), np.float32)
    counted = np.ones(heat.shape, np.bool_)
    places: dict[tuple[int, int, int], tuple[float, ...]] = {}
    for number, objects in enumerate(images):
        cells = objects.corners / STRIDE
        for region in np.flatnonzero(objects.crowd | (objects.label < 0)):
            label = objects.label[region]
            which = slice(None) if label < 0 else slice(label, label + 1)
            left, top = np.floor(np.maximum(cells[region, :2], 0)).astype(np.int64)
            right, bottom = np.ceil(np.maximum(cells[region, 2:], 0)).astype(np.int64)
            counted[number, which, top:bottom, left:right] = False
        areas = (cells[:, 2] - cells[:, 0]) * (cells[:, 3] - cells[:, 1])
        real = np.flatnonzero(~objects.crowd & (objects.label >= 0))
        for each in real[np.argsort(-areas[real], kind="stable")]:
            start, end = cells[each, :2], cells[each, 2:]
            across, down = ((start + end) / 2).tolist()
            width, height = (end - start).tolist()
            row, column = min(int(down), shape[0] - 1), min(int(across), shape[1] - 1)
            draw(heat[number, objects.label[each]], row, column, radius_of(height, width))
            sizes = math.log(width), math.log(height)
            places[number, row, column] = across - column, down - row, *sizes
    counted |= heat == 1
    return Targets(
        heat,
        counted,
        np.array(list(places), np.int64).reshape(-1, 3),
        np.array(list(places.values()), np.float32).reshape(-1, 4),
    )


def draw(plane: Float32, row: int, column: int, radius: float) -> None:
    """Raise a heat map to a Gaussian about a cell; its deviation is a third of what it covers."""
    reach = int(radius)
    deviation = (2 * reach + 1) / 6
    top, left = max(0, row - reach), max(0, column - reach)
    window = plane[top : row + reach + 1, left : column + reach + 1]
    down = np.arange(top, top + window.shape[0]) - row
    across = np.arange(left, left + window.shape[1]) - column
    squares = down[:, None] ** 2 + across[None, :] ** 2
    np.maximum(window, np.exp(-squares / (2 * deviation**2)), out=window, casting="same_kind")
