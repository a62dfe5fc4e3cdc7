"""The result files of a training run: our JSON, or YOLO's own ``results.txt`` and ``.csv``.

Of YOLO's files the **last** epoch counts. The best one is not for us to choose: it is the best on
the test set, and picking it there would itself be a leak, of which there is more the noisier a
training is.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from visleak.dlede.train import Outcome, TrainingFailed
from visleak.errors import one_line
from visleak.quantities import is_share_name
from visleak.records import Float64

#: Larger files are not results.
MAX_BYTES: Final = 256 << 20

#: Columns of ``results.csv`` -> metric; YOLOv5's and YOLOv9's names, then Ultralytics'. ``(B)``,
#: for boxes, is cut off before.
COLUMNS: Final = {
    "precision": "precision",
    "recall": "recall",
    "mAP_0.5": "map50",
    "mAP_0.5:0.95": "map50_95",
    "mAP50": "map50",
    "mAP50-95": "map50_95",
    "accuracy_top1": "accuracy",
    "accuracy_top5": "accuracy_top5",
}

#: Place of each metric in a row of ``results.txt``, as YOLOv7 and YOLOv5 up to 5.0 write it: epoch,
#: memory, box, obj, cls, total, labels, img_size, P, R, mAP@.5, mAP@.5:.95, val box, obj, cls.
PLACES: Final = {"precision": 8, "recall": 9, "map50": 10, "map50_95": 11}
_WIDTH: Final = 15

YOLO_FILES: Final = ("results.txt", "results.csv")


def f1_of(precision: float, recall: float) -> float:
    """Return the harmonic mean of precision and recall of one training, 0 where both are 0."""
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def read_json(path: Path, rows: Mapping[str, int], images: int) -> Outcome:
    """Read the json that a command wrote: name of each metric to its value over the test set.

    ``precision``, ``recall``, ``f1``, ``map50``, ``map50_95``, ``accuracy`` are shares; any other
    number is a metric as well. ``f1`` that is missing is made of precision and recall.
    ``"images": {metric: {image: value}}`` holds values of single images, named by id or path; null
    or no value is unknown. What is not a number, or not finite, or not a metric of ours is left out
    and named in ``Outcome.about``.
    """
    content = _content(path)
    metrics, left_out = {}, {}
    for name, value in content.items():
        if name == "images":
            continue
        if is_share_name(name):
            metrics[name] = _share(name, value, path)
        elif (number := _finite(value)) is not None:
            metrics[name] = number
        else:
            left_out[name[:100]] = _kind(value)
    if not metrics:
        raise TrainingFailed(
            f"{path.name} has no metric; it needs precision, recall, map50 and f1, or any other"
            ' numbers, such as {"accuracy": 0.9}'
        )
    about: dict[str, object] = {"result": path.name}
    if left_out:
        about["left_out"] = left_out
    return Outcome(_with_f1(metrics), _of_images(content.get("images"), rows, images, path), about)


def _content(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TrainingFailed(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise TrainingFailed(f"{path.name} cannot be read as json: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise TrainingFailed(
            f"{path.name} holds {_kind(content)}; it must be an object, such as"
            ' {"map50": 0.61, "f1": 0.58}'
        )
    return content


def _finite(value: object) -> float | None:
    """Return a number, ``None`` of everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond what a float holds
        return None


def _kind(value: object) -> str:
    if isinstance(value, bool | float) or value is None:
        return json.dumps(value)
    kinds = ((str, "a text"), (list, "a list"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "too large a number")


def _share(name: str, value: object, path: Path) -> float:
    number = _finite(value)
    if number is None:
        shown = f"{value[:40]!r}, a text" if isinstance(value, str) else _kind(value)
        raise TrainingFailed(f"{path.name}: {name} is {shown}; it must be a number from 0 to 1")
    if not -1e-6 <= number <= 1 + 1e-6:
        hint = "; percent are to be divided by 100" if 1 < number <= 100 else ""
        raise TrainingFailed(f"{path.name}: {name} is {number:g}; it is a share from 0 to 1{hint}")
    return min(1.0, max(0.0, number))


def _with_f1(metrics: dict[str, float]) -> dict[str, float]:
    if "f1" not in metrics and {"precision", "recall"} <= metrics.keys():
        return metrics | {"f1": f1_of(metrics["precision"], metrics["recall"])}
    return metrics


def _of_images(
    content: object, rows: Mapping[str, int], images: int, path: Path
) -> dict[str, Float64]:
    if content is None:
        return {}
    wrong = TrainingFailed(
        f'{path.name}: "images" must be {{metric: {{image: number}}}}, images by id or path'
    )
    if not isinstance(content, dict):
        raise wrong
    found = {}
    for metric, values in content.items():
        if not isinstance(values, dict):
            raise wrong
        column = np.full(images, np.nan)
        for name, value in values.items():
            if name not in rows:
                raise TrainingFailed(
                    f'{path.name}: "images" names {name[:200]!r}, which is neither id nor path of'
                    " a test image"
                )
            number = _finite(value)
            if number is None and not (value is None or isinstance(value, float)):
                raise wrong
            column[rows[name]] = np.nan if number is None else number
        found[metric] = column
    return found


# -- YOLO's own ----------------------------------------------------------------------------------


def read_yolo(folder: Path, apart: str = "") -> Outcome:
    """Read the last epoch of the one ``results.txt`` or ``.csv`` below a folder, and its F1."""
    found = _yolo_files(folder, apart)
    if not found:
        raise TrainingFailed(f"it left no result: no {' or '.join(YOLO_FILES)} in {folder}")
    if len(found) > 1:
        named = " and ".join(os.path.relpath(path, folder) for path in found[:2])
        raise TrainingFailed(
            f"it left {len(found)} results, {named}; let it write one, or the {{out}} json"
        )
    path = found[0]
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TrainingFailed(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TrainingFailed(f"{path.name} cannot be read ({error.strerror})") from error
    values, epoch = (_last_of_text if path.suffix == ".txt" else _last_of_csv)(text, path)
    metrics = {name: _share(name, value, path) for name, value in values.items()}
    return Outcome(_with_f1(metrics), about={"result": path.name, "epoch": epoch})


def _yolo_files(folder: Path, apart: str) -> list[Path]:
    found = []
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if here != folder or name != apart)
        found += [here / name for name in YOLO_FILES if name in files]
    return found


def _last_of_text(text: str, path: Path) -> tuple[dict[str, float], str]:
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if not rows or len(rows[-1]) != _WIDTH or "/" not in rows[-1][0]:
        raise TrainingFailed(
            f"{path.name} does not end with a row of YOLOv7's: {_WIDTH} columns, epoch first, then"
            " memory, losses, labels, size, P, R, mAP@.5, mAP@.5:.95"
        )
    row = rows[-1]
    return {name: _number(row[at], name, path) for name, at in PLACES.items()}, row[0]


def _last_of_csv(text: str, path: Path) -> tuple[dict[str, float], str]:
    rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    header = [cell.strip() for cell in rows[0]] if rows else []
    known = {_metric(cell): at for at, cell in enumerate(header) if _metric(cell) is not None}
    if not known:
        raise TrainingFailed(
            f"{path.name} has no column such as metrics/mAP50(B) or metrics/mAP_0.5; it has"
            f" {', '.join(header)[:200] or 'none'}"
        )
    if len(rows) < 2 or len(rows[-1]) != len(header):
        raise TrainingFailed(f"{path.name} does not end with a whole row")
    row = rows[-1]
    values = {str(name): _number(row[at], str(name), path) for name, at in known.items()}
    return values, row[header.index("epoch")].strip() if "epoch" in header else ""


def _metric(column: str) -> str | None:
    """Return the metric of a column; of boxes, where the file also has masks or key points."""
    return COLUMNS.get(column.removeprefix("metrics/").removesuffix("(B)"))


def _number(cell: str, name: str, path: Path) -> float:
    try:
        return float(cell)
    except ValueError as error:
        shown = cell.strip()[:40]
        raise TrainingFailed(f"{path.name}: {name} is {shown!r}, no number") from error
