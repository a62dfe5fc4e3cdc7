"""Boxes of KITTI: object detection (one file a picture) and tracking (one file a sequence)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from visleak.images.box_rows import BoxRows, damaged, label_text, numbers_of
from visleak.images.boxes import Boxes
from visleak.images.folder import FileOpener
from visleak.images.kitti import IGNORED, find_layout, frame_of
from visleak.images.request import Request, writable
from visleak.records import ImageSet

#: The classes of the benchmark in the order of its readme; others follow by name.
CLASSES: Final[tuple[str, ...]] = (
    *("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Person", "Cyclist", "Tram", "Misc"),
)

#: The camera whose pictures the boxes are drawn in: the left colour camera.
CAMERA: Final = "2"

#: Columns before the class, of each kind of label file: frame and track of tracking.
BEFORE: Final = {"object": 0, "tracking": 2}

#: Class, truncation, occlusion, angle, then the box; 3-D size, place and angle follow.
_COLUMNS: Final = 15

#: An object: its class and (left, top, right, bottom).
_Object = tuple[str, list[float]]


def kitti_boxes(images: ImageSet, request: Request) -> Boxes | None:
    """Return the boxes of a part of KITTI, in pixels; ``DontCare`` regions are crowds.

    Args:
        images: the set.
        request: the parts of its source.

    Returns:
        ``None`` where the part has no labels, as the test part has none; where its pictures are
        of another camera than the one that boxes are drawn for; of raw drives.

    Raises:
        VisleakError: see :func:`visleak.images.boxes_of.boxes_of`.
    """
    camera = request.options.get("camera", CAMERA)
    layout = find_layout(request, camera)
    if layout.labels is None or camera != CAMERA:
        return None
    names = [os.fsdecode(name.as_py()) for name in cast(FileOpener, images.opener).names]
    if layout.kind == "object":
        of_images = _of_pictures(layout.labels, names)
    else:
        of_images = _of_frames(layout.labels, names)
    found = [(row, *each) for row, each in of_images]
    shown = {name for _, name, _ in found if name != IGNORED}
    classes = [name for name in CLASSES if name in shown]
    classes += sorted(shown - set(classes))
    number = {name: index for index, name in enumerate(classes)}
    rows = BoxRows()
    for row, name, corners in found:
        rows.add(row, number.get(name, -1), corners, name == IGNORED)
    return rows.boxes(classes, images, relative=False)


def _of_pictures(folder: Path, names: list[str]) -> Iterator[tuple[int, _Object]]:
    """Yield the row of each object's picture, and the object."""
    for row, name in enumerate(names):
        for _, found in _objects(folder / f"{Path(name).stem}.txt", "object"):
            yield row, found


def _of_frames(folder: Path, names: list[str]) -> Iterator[tuple[int, _Object]]:
    """The same of tracking; rows of frames whose picture is not in the set are no part of it."""
    place = {(name.rpartition("/")[0], frame_of(name)): row for row, name in enumerate(names)}
    for sequence in sorted({sequence for sequence, _ in place}):
        for frame, found in _objects(folder / f"{sequence}.txt", "tracking"):
            row = place.get((sequence, frame))
            if row is not None:
                yield row, found


def _objects(path: Path, kind: str) -> Iterator[tuple[int, _Object]]:
    """Yield frame (0 of object detection), class and corners of each row of a label file."""
    before = BEFORE[kind]
    for number, line in enumerate((label_text(path) or "").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        # results go on with a score
        right = len(words) - before in (_COLUMNS, _COLUMNS + 1)
        corners = numbers_of(words[before + 4 : before + 8])
        frame = numbers_of(words[:1]) if before else [0.0]
        if not right or corners is None or frame is None or not frame[0].is_integer():
            first = "frame track " if before else ""
            allowed = (
                f"a row is `{first}class truncated occluded angle left top right bottom` and 7"
                " numbers of the object in space"
            )
            raise damaged(path, number, allowed, line)
        if corners[2] < corners[0] or corners[3] < corners[1]:
            raise damaged(path, number, "right and bottom are not before left and top", line)
        yield int(frame[0]), (writable(words[before]), corners)
