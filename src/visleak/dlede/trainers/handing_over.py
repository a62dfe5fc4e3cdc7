"""What a training is handed over as: lists, YOLO folders of links, a ``data.yaml``, COCO files.

Pictures are never copied. Folders hold links with names of our own (``000017.jpg``), so that
pictures of one name, such as a training image and a leaked one, stay apart; label files are
written beside them from the split's boxes, whatever layout these came in. Trainers that keep a
cache beside pictures or labels so write it into the training's own folder, never into the data
set, and no training reads the cache of another (YOLOv7 does not check whose cache it reads).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from visleak.dlede.lesson import Lesson, Split
from visleak.dlede.trainers.picture_files import check_files, files_of, sizes_of
from visleak.errors import VisleakError
from visleak.images.boxes import Boxes
from visleak.pipeline.workplace import Progress
from visleak.records import Float64, ImageSet, Int64


@dataclass(frozen=True)
class Sizes:
    """Widths and heights of the pictures of both sets, ``int64`` (n, 2)."""

    train: Int64
    test: Int64

    @classmethod
    def of(cls, split: Split, progress: Progress) -> Sizes:
        """Read them; see :func:`visleak.dlede.trainers.picture_files.sizes_of`."""
        return cls(sizes_of(split.train, progress), sizes_of(split.test, progress))


@dataclass(frozen=True)
class Side:
    """The pictures of one side of a training.

    Attributes:
        files: absolute paths.
        boxes: their objects, or ``None``.
        sizes: ``int64`` (n, 2): widths and heights, or ``None`` where nobody needs them.
    """

    files: list[str]
    boxes: Boxes | None
    sizes: Int64 | None


def check_split(split: Split) -> None:
    """See that both sets can be handed over as files.

    Raises:
        VisleakError: they cannot; one line with what to do.
    """
    check_files(split.train)
    check_files(split.test)


def check_boxes(split: Split, what: str) -> None:
    """See that there are boxes.

    Args:
        split: the split.
        what: needs them, for the message.

    Raises:
        VisleakError: a set has none.
    """
    for images, boxes in ((split.train, split.train_boxes), (split.test, split.test_boxes)):
        if boxes is None:
            raise VisleakError(
                f"{what} needs boxes, and set {images.name!r} has none; open it as coco:FILE,"
                " yolo:data.yaml#SPLIT or kitti:FOLDER"
            )


def check_folder(folder: Path) -> None:
    """See that YOLO trainers find the labels of pictures that are linked in a folder.

    They look for ``/labels/`` in place of ``/images/``: YOLOv7 of the first, others of the last.

    Raises:
        VisleakError: the folder lies in one called ``images``.
    """
    if "images" in Path(os.path.abspath(folder)).parts:
        raise VisleakError(
            f"{folder} lies in a folder called images, in which YOLO trainers look for labels at"
            " another place; choose another folder with -o DIR"
        )


def training_side(lesson: Lesson, sizes: Sizes | None) -> Side:
    """Return what a lesson trains on."""
    draw = lesson.draw
    both = None
    if sizes is not None:
        both = np.concatenate([sizes.train[draw.kept], sizes.test[draw.leaked]])
    return Side(files_of(lesson.train), lesson.boxes, both)


def evaluation_side(lesson: Lesson, sizes: Sizes | None) -> Side:
    """Return what a lesson evaluates on."""
    boxes = lesson.split.test_boxes if lesson.split.train_boxes is not None else None
    return Side(files_of(lesson.test), boxes, None if sizes is None else sizes.test)


def write_list(path: Path, files: list[str]) -> Path:
    """Write one path a line."""
    path.write_bytes(b"".join(os.fsencode(file) + b"\n" for file in files))
    return path


def write_folder(folder: Path, side: Side) -> list[str]:
    """Write ``images`` (links) and ``labels`` (text files) as YOLO trainers look for them.

    Without boxes there is no ``labels``.

    Returns:
        The absolute paths of the links, in order.
    """
    check_folder(folder)
    pictures = Path(os.path.abspath(folder)) / "images"
    pictures.mkdir(parents=True)
    links = []
    for row, file in enumerate(side.files):
        link = pictures / f"{row:06d}{_ending(file)}"
        link.symlink_to(file)
        links.append(str(link))
    if side.boxes is not None:
        labels = pictures.parent / "labels"
        labels.mkdir()
        for row, lines in enumerate(label_lines(side.boxes, side.sizes)):
            (labels / f"{row:06d}.txt").write_text("".join(lines), encoding="ascii")
    return links


def _ending(file: str) -> str:
    ending = os.path.splitext(file)[1]
    return ending if ending[1:].isascii() and ending[1:].isalnum() else ""


def label_lines(boxes: Boxes, sizes: Int64 | None) -> list[list[str]]:
    r"""Return the lines of each picture's label file: class, centre, width and height as shares.

    Boxes are cut at the picture's edge; what then has no area is left out, as are crowds and
    regions of no class, which YOLO does not know, and a line that is there already: YOLOv7 drops
    a picture with two equal labels.

    >>> made = Boxes(("car",), np.array([0]), np.array([0]), np.array([[10.0, 0, 30, 20]]),
    ...     np.array([False]), images=2, relative=False)
    >>> label_lines(made, np.array([[40, 20], [40, 20]]))
    [['0 0.5 0.5 0.5 1\n'], []]
    """
    corners = np.clip(_shares(boxes, sizes), 0, 1)
    middle, extent = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    shown = ~boxes.crowd & (boxes.label >= 0) & (extent > 0).all(axis=1)
    lines: list[dict[str, None]] = [{} for _ in range(boxes.images)]
    for at in np.flatnonzero(shown).tolist():
        numbers = " ".join(f"{number:.7g}" for number in (*middle[at], *extent[at]))
        lines[int(boxes.image[at])][f"{int(boxes.label[at])} {numbers}\n"] = None
    return [list(each) for each in lines]


def _shares(boxes: Boxes, sizes: Int64 | None) -> Float64:
    """Return corners as shares of width and height, (objects, 4)."""
    if boxes.relative:
        return boxes.corners
    if sizes is None:
        raise ValueError("boxes in pixels become shares by the sizes of the pictures")
    return np.asarray(boxes.corners / np.tile(sizes[boxes.image], 2))


def write_data(path: Path, train: Path, test: Path, names: tuple[str, ...]) -> Path:
    """Write a YOLO data set's YAML.

    Args:
        path: of the YAML.
        train, test: lists of pictures; ``test`` becomes ``val``, which YOLO evaluates on.
        names: of the classes.
    """
    content = {
        "train": os.path.abspath(train),
        "val": os.path.abspath(test),
        "nc": len(names),
        "names": list(names),
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def write_yolo(folder: Path, lesson: Lesson, sizes: Sizes | None) -> Path:
    """Write both sides as folders of links, and the YAML that names them; return its path."""
    for which in ("train", "test"):
        write_links(folder, lesson, sizes, which)
    boxes = lesson.split.test_boxes
    names = () if boxes is None else boxes.names
    return write_data(
        folder / "data.yaml", _listed(folder, "train"), _listed(folder, "test"), names
    )


def write_links(folder: Path, lesson: Lesson, sizes: Sizes | None, which: str) -> Path:
    """Write a side, ``train`` or ``test``, as a folder of links with a list of them, once.

    Returns:
        The folder.
    """
    made = folder / which
    if not made.exists():
        side = (training_side if which == "train" else evaluation_side)(lesson, sizes)
        write_list(_listed(folder, which), write_folder(made, side))
    return made


def _listed(folder: Path, which: str) -> Path:
    return folder / f"{which}.links.txt"


def write_coco(path: Path, side: Side) -> Path:
    """Write a COCO annotation file: absolute paths, numbers of images and classes from 1.

    A crowd that is of no class (KITTI's ``DontCare``) is written once for each class, which is
    how COCO's evaluation lets any detection in it be.

    Raises:
        ValueError: the side has no boxes or no sizes.
    """
    boxes, sizes = side.boxes, side.sizes
    if boxes is None or sizes is None:
        raise ValueError("a COCO file has boxes and sizes")
    content = {
        "images": [
            {"id": row, "file_name": file, "width": int(size[0]), "height": int(size[1])}
            for row, (file, size) in enumerate(zip(side.files, sizes, strict=True), 1)
        ],
        "annotations": _annotations(boxes, sizes),
        "categories": [{"id": number, "name": name} for number, name in enumerate(boxes.names, 1)],
    }
    path.write_text(json.dumps(content), encoding="ascii")
    return path


def _annotations(boxes: Boxes, sizes: Int64) -> list[dict[str, Any]]:
    corners = boxes.corners * np.tile(sizes[boxes.image], 2) if boxes.relative else boxes.corners
    found: list[dict[str, Any]] = []
    for at in range(len(boxes.image)):
        left, top, right, bottom = corners[at].tolist()
        own = int(boxes.label[at])
        if own < 0 and not boxes.crowd[at]:
            continue  # an object of no class is nothing to learn and nothing to find
        for label in range(len(boxes.names)) if own < 0 else (own,):
            found.append(
                {
                    "id": len(found) + 1,
                    "image_id": int(boxes.image[at]) + 1,
                    "category_id": label + 1,
                    "bbox": [left, top, right - left, bottom - top],
                    "area": (right - left) * (bottom - top),
                    "iscrowd": int(boxes.crowd[at]),
                }
            )
    return found


def rows_by_name(folder: Path, test: ImageSet) -> dict[str, int]:
    """Return the row of each test image by its id, by its path, and by its link where it has one.

    Args:
        folder: that was handed over.
        test: the images.
    """
    listed = _listed(folder, "test")
    links = listed.read_bytes().splitlines() if listed.is_file() else []
    rows = {os.fsdecode(link): row for row, link in enumerate(links)}
    rows |= {file: row for row, file in enumerate(files_of(test))}
    return rows | {id_: row for row, id_ in enumerate(test.ids.to_pylist())}
