"""Metrics of detections, by pycocotools."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from visleak.encoders.libraries import library
from visleak.formats import Boxes
from visleak.records import Bool, Float64, Int64

#: Detections of a class that count in one image, as COCO has it: the most confident ones.
MOST: Final = 100


@dataclass(frozen=True)
class Detections:
    """The detections in a set of images, one row per detection.

    Attributes:
        image: ``int64`` (detections,): row of the set.
        label: ``int64`` (detections,): class.
        score: ``float64`` (detections,): confidence; higher is more certain.
        corners: ``float64`` (detections, 4): left, top, right, bottom in pixels.
    """

    image: Int64
    label: Int64
    score: Float64
    corners: Float64


@dataclass(frozen=True)
class DetectionScores:
    """The scores of a detector.

    Attributes:
        metrics: ``precision``, ``recall``, ``f1``, ``map50``, ``map50_95``; in [0, 1], higher is
            better.
        confidence: from which detections count in the first three; infinite without any.
        f1: ``float64`` (images,): of each image at that confidence, over all of its classes; 1
            if it has no objects and no detections.
    """

    metrics: Mapping[str, float]
    confidence: float
    f1: Float64


def score_detections(truth: Boxes, found: Detections) -> DetectionScores:
    """Compare detections with the annotated objects.

    The mean average precisions are COCO's (101 points; IoU .5, and .5 to .95 in steps of .05).
    Precision, recall and F1 are means over classes at IoU .5, at the one confidence at which the
    mean F1 is highest, as YOLO reports them; a class without detections has a precision
    of 0. A class without test objects counts in none of them.

    Args:
        truth: the test set's objects, in pixels.
        found: the detections.

    Raises:
        MissingExtra: pycocotools is not installed.
        ValueError: the corners are not in pixels, or no class has an object.
    """
    if truth.relative:
        raise ValueError("detections are compared in pixels")
    evaluated = _evaluated(truth, found)
    precision = evaluated.eval["precision"][..., 0, 0]  # (thresholds, recalls, classes)
    known = precision[0, 0] > -1
    if not known.any():
        raise ValueError("no class has an object to be found")
    matches = _matches(evaluated, len(truth.names))
    confidence, rates = _best(matches, np.flatnonzero(known), evaluated)
    return DetectionScores(
        {
            **rates,
            "map50": float(precision[0][:, known].mean()),
            "map50_95": float(precision[:, :, known].mean()),
        },
        confidence,
        _each_image(evaluated, matches, confidence, truth.images),
    )


def _evaluated(truth: Boxes, found: Detections) -> Any:
    """Return pycocotools' evaluation of objects of all sizes."""
    what = "the evaluation of detections"
    coco = library("pycocotools.coco", "torch", what)
    cocoeval = library("pycocotools.cocoeval", "torch", what)
    with contextlib.redirect_stdout(io.StringIO()):
        true, made = coco.COCO(), coco.COCO()
        for data, objects in ((true, _annotations(truth)), (made, _detections(found))):
            data.dataset = {
                "images": [{"id": image} for image in range(truth.images)],
                "categories": [{"id": label} for label in range(len(truth.names))],
                "annotations": objects,
            }
            data.createIndex()
        evaluated = cocoeval.COCOeval(true, made, "bbox")
        evaluated.params.areaRng, evaluated.params.areaRngLbl = [[0, np.inf]], ["all"]
        evaluated.params.maxDets = [MOST]
        evaluated.evaluate()
        evaluated.accumulate()
    return evaluated


def _annotations(truth: Boxes) -> list[dict[str, Any]]:
    """Return the objects in COCO's format; a region without a class is a crowd of every class."""
    made: list[dict[str, Any]] = []
    for image, label, corners, crowd in zip(
        truth.image.tolist(), truth.label.tolist(), truth.corners, truth.crowd.tolist(), strict=True
    ):
        for each in (label,) if label >= 0 else range(len(truth.names)):
            ignored = crowd or label < 0
            made.append(_object(len(made), image, each, corners) | {"iscrowd": int(ignored)})
    return made


def _detections(found: Detections) -> list[dict[str, Any]]:
    columns = (found.image.tolist(), found.label.tolist(), found.corners, found.score.tolist())
    return [
        _object(number, image, label, corners) | {"score": score}
        for number, (image, label, corners, score) in enumerate(zip(*columns, strict=True))
    ]


def _object(number: int, image: int, label: int, corners: Float64) -> dict[str, Any]:
    left, top, right, bottom = (float(value) for value in corners)
    width, height = right - left, bottom - top
    return {
        "id": number + 1,  # 0 stands for no match
        "image_id": image,
        "category_id": label,
        "bbox": [left, top, width, height],
        "area": width * height,
    }


@dataclass(frozen=True)
class _Matches:
    """All detections that count at IoU .5, one row each.

    ``right`` marks those that match an object; those in crowds are excluded.
    """

    image: Int64
    label: Int64
    score: Float64
    right: Bool


def _matches(evaluated: Any, classes: int) -> _Matches:
    rows: list[tuple[int, int, float, bool]] = []
    for part in evaluated.evalImgs:
        if part is None:
            continue
        for score, match, ignored in zip(
            part["dtScores"], part["dtMatches"][0], part["dtIgnore"][0], strict=True
        ):
            if not ignored:
                rows.append((part["image_id"], part["category_id"], score, match > 0))
    image, label, score, right = zip(*rows, strict=True) if rows else ((), (), (), ())
    return _Matches(
        np.array(image, np.int64),
        np.array(label, np.int64),
        np.array(score, np.float64),
        np.array(right, np.bool_),
    )


def _objects(evaluated: Any) -> list[tuple[int, int, int]]:
    """Return (image, class, objects to be found) of all parts."""
    return [
        (part["image_id"], part["category_id"], int((np.asarray(part["gtIgnore"]) == 0).sum()))
        for part in evaluated.evalImgs
        if part is not None
    ]


def _best(matches: _Matches, known: Int64, evaluated: Any) -> tuple[float, dict[str, float]]:
    """Return the confidence at which the mean F1 is highest, and the means there.

    Of several such, the highest.
    """
    objects = np.zeros(int(known.max()) + 1)
    for _, label, count in _objects(evaluated):
        if label < len(objects):
            objects[label] += count
    levels = np.unique(matches.score)[::-1]
    if not len(levels):
        return float("inf"), {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    precision, recall = np.zeros((2, len(known), len(levels)))
    for row, label in enumerate(known):
        mine = matches.label == label
        place = np.searchsorted(-levels, -matches.score[mine])
        right = np.cumsum(np.bincount(place, matches.right[mine], len(levels)))
        said = np.cumsum(np.bincount(place, minlength=len(levels)))
        precision[row] = right / np.maximum(said, 1)
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
    objects = np.zeros(images)
    for image, _, count in _objects(evaluated):
        objects[image] += count
    whole = found + objects
    return np.where(whole > 0, 2 * right / np.maximum(whole, 1), 1.0)
