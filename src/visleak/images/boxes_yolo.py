"""Boxes of YOLO data sets: one text file a picture, one row an object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from visleak.images.annotated import class_names, yolo_content, yolo_label_file
from visleak.images.box_rows import BoxRows, damaged, label_text, numbers_of
from visleak.images.boxes import Boxes
from visleak.images.folder import FileOpener
from visleak.images.request import Request
from visleak.records import ImageSet

#: How far beyond the picture a number may be, as a share of its size; Ultralytics' own tolerance
#: (``verify_image_label``).
TOLERANCE: Final = 0.01

ALLOWED: Final = (
    "a row is `class x y width height`, or `class x y x y x y ...` of an outline, in shares of the"
    " picture from 0 to 1"
)


def yolo_boxes(images: ImageSet, request: Request) -> Boxes | None:
    """Return the boxes of a split; of an outline (segmentation) its bounding box.

    With ``kpt_shape`` in the YAML, rows go on with key points, which are not read. Identical rows
    are objects like others.

    Args:
        images: the split.
        request: the parts of its source.

    Returns:
        ``None`` where no picture has a label file.

    Raises:
        VisleakError: see :func:`visleak.images.boxes_of.boxes_of`.
    """
    content = yolo_content(request.path, request.text)
    classes = class_names(content.get("names"))
    points = _key_points(content.get("kpt_shape"))
    opener = cast(FileOpener, images.opener)
    root = Path(opener.root)
    found: list[tuple[int, int, tuple[float, float, float, float]]] = []
    labelled = False
    for row, name in enumerate(opener.names):
        path = yolo_label_file(root / os.fsdecode(name.as_py()))
        text = label_text(path)
        if text is None:
            continue
        labelled = True
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                found.append((row, *_object(path, number, line, classes, points)))
    if not labelled:
        return None
    # without names in the YAML, classes are called by those numbers that occur
    classes = classes or {number: str(number) for _, number, _ in found}
    place = {number: index for index, number in enumerate(sorted(classes))}
    rows = BoxRows()
    for image, number, corners in found:
        rows.add(image, place[number], corners)
    return rows.boxes([classes[number] for number in place], images, relative=True)


def _key_points(shape: Any) -> int | None:
    """Return how many numbers of key points follow a box, ``None`` where none do."""
    if isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) for n in shape):
        return int(shape[0] * shape[1])
    return None


def _object(
    path: Path, number: int, line: str, classes: Mapping[int, str], points: int | None
) -> tuple[int, tuple[float, float, float, float]]:
    """Return the class and the corners of a row."""
    words = line.split()
    values = numbers_of(words)
    if points is not None:
        right = len(words) == 5 + points
    else:
        right = len(words) == 5 or (len(words) >= 7 and len(words) % 2 == 1)
    if values is None or not right or not values[0].is_integer() or values[0] < 0:
        allowed = f"{ALLOWED}; here {points} numbers of key points follow" if points else ALLOWED
        raise damaged(path, number, allowed, line)
    if classes and int(values[0]) not in classes:
        known = f"{min(classes)} to {max(classes)}"
        raise damaged(path, number, f"the class is none of the YAML's `names` ({known})", line)
    numbers = values[1:] if points is None else values[1:5]
    if min(numbers) < -TOLERANCE or max(numbers) > 1 + TOLERANCE:
        raise damaged(path, number, ALLOWED, line)
    if len(numbers) > 4:
        across, down = numbers[::2], numbers[1::2]
        return int(values[0]), (min(across), min(down), max(across), max(down))
    x, y, width, height = numbers
    if width < 0 or height < 0:
        raise damaged(path, number, "width and height are 0 or more", line)
    return int(values[0]), (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
