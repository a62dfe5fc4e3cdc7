"""The inputs of a training run as files: lists, YOLO folders of links, a ``data.yaml``, COCO.

Images are never copied. Folders hold links with new names (``000017.jpg``), because images of both
sets may have one name, and label files written from the split's boxes. Trainers that cache images
or labels in their folder so write the cache of each training run into its own folder (YOLOv7 reads
any cache without a check).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from PIL import Image

from visleak.dlede.draw import PinnedOpener, Split
from visleak.dlede.train import TrainingTask
from visleak.dlede.trainers.detections import coco_objects
from visleak.errors import VisleakError
from visleak.formats import Boxes
from visleak.formats.files import FileOpener, JoinedOpener, SubsetOpener
from visleak.images.decoding import orientation_of
from visleak.progress import Progress
from visleak.records import ImageSet, Int64, Opener


@dataclass(frozen=True)
class ImageSizes:
    """Widths and heights of the images of both sets, ``int64`` (n, 2)."""

    train: Int64
    test: Int64

    @classmethod
    def of(cls, split: Split, progress: Progress) -> ImageSizes:
        """Read the sizes of both sets."""
        return cls(sizes_of(split.train, progress), sizes_of(split.test, progress))


@dataclass(frozen=True)
class Side:
    """The images of one side of a training run."""

    files: list[str]  # absolute paths
    boxes: Boxes | None  # their objects, or None
    sizes: Int64 | None  # (n, 2): widths and heights, or None if not needed


def check_split(split: Split) -> None:
    """Check that the images of both sets are files."""
    check_files(split.train)
    check_files(split.test)


def check_boxes(split: Split, what: str) -> None:
    """Refuse a split without boxes."""
    for images, boxes in ((split.train, split.train_boxes), (split.test, split.test_boxes)):
        if boxes is None:
            raise VisleakError(
                f"{what} needs boxes, and set {images.name!r} has none; open it as coco:FILE,"
                " yolo:data.yaml#SPLIT or kitti:FOLDER"
            )


def check_folder(folder: Path) -> None:
    """Refuse a folder where YOLO trainers, which put /labels/ for /images/, find no labels."""
    if "images" in Path(os.path.abspath(folder)).parts:
        raise VisleakError(
            f"{folder} is in a folder called images, where YOLO trainers look for labels at"
            " another place; choose another folder with -o DIR"
        )


def side_of(task: TrainingTask, sizes: ImageSizes | None, which: str) -> Side:
    """Return what a task trains on (``train``), or evaluates on (``test``)."""
    split, draw = task.split, task.draw
    if which == "test":
        boxes = split.test_boxes if split.train_boxes is not None else None
        return Side(files_of(task.test), boxes, sizes.test if sizes else None)
    both = (sizes.train[draw.kept], sizes.test[draw.leaked]) if sizes else None
    return Side(files_of(task.train), task.boxes, np.concatenate(both) if both else None)


def write_list(path: Path, files: list[str]) -> Path:
    """Write one path per line."""
    path.write_bytes(b"".join(os.fsencode(file) + b"\n" for file in files))
    return path


def write_folder(folder: Path, side: Side) -> list[str]:
    """Write ``images`` (links) and, with boxes, ``labels`` (texts) as YOLO trainers find them."""
    check_folder(folder)
    place = Path(os.path.abspath(folder))
    images, labels = place / "images", place / "labels"
    images.mkdir(parents=True)
    links = []
    for row, file in enumerate(side.files):
        ending = os.path.splitext(file)[1]
        kept = ending if ending[1:].isascii() and ending[1:].isalnum() else ""
        link = images / f"{row:06d}{kept}"
        link.symlink_to(file)
        links.append(str(link))
    if side.boxes is not None:
        labels.mkdir()
        for row, lines in enumerate(label_lines(side.boxes, side.sizes)):
            (labels / f"{row:06d}.txt").write_text("".join(lines), encoding="ascii")
    return links


def label_lines(boxes: Boxes, sizes: Int64 | None) -> list[list[str]]:
    r"""Return the lines of each image's label file: class, centre, width and height as shares.

    Boxes are cut at the image's edge; those without area are excluded, as are crowds and
    regions of no class, which YOLO does not have, and repeated lines: YOLOv7 drops
    an image with two equal labels.

    >>> made = Boxes(("car",), np.array([0]), np.array([0]), np.array([[10.0, 0, 30, 20]]),
    ...     np.array([False]), images=2, relative=False)
    >>> label_lines(made, np.array([[40, 20], [40, 20]]))
    [['0 0.5 0.5 0.5 1\n'], []]
    """
    shares = boxes.corners
    if not boxes.relative:
        if sizes is None:
            raise ValueError("boxes in pixels need the sizes of the images")
        shares = shares / np.tile(sizes[boxes.image], 2)
    corners = np.clip(shares, 0, 1)
    middle, extent = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    shown = ~boxes.crowd & (boxes.label >= 0) & (extent > 0).all(axis=1)
    lines: list[dict[str, None]] = [{} for _ in range(boxes.images)]
    for at in np.flatnonzero(shown).tolist():
        numbers = " ".join(f"{number:.7g}" for number in (*middle[at], *extent[at]))
        lines[int(boxes.image[at])][f"{int(boxes.label[at])} {numbers}\n"] = None
    return [list(each) for each in lines]


def write_yolo(folder: Path, task: TrainingTask, sizes: ImageSizes | None) -> Path:
    """Write both sides as folders of links, and the YAML that names their lists."""
    # YOLO evaluates on val
    content: dict[str, object] = {}
    for key, which in (("train", "train"), ("val", "test")):
        write_links(folder, task, sizes, which)
        content[key] = os.path.abspath(_listed(folder, which))
    boxes = task.split.test_boxes
    names = [] if boxes is None else list(boxes.names)
    content |= {"nc": len(names), "names": names}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    path = folder / "data.yaml"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def write_links(folder: Path, task: TrainingTask, sizes: ImageSizes | None, which: str) -> Path:
    """Write a side, ``train`` or ``test``, as a folder of links with a list of them, once."""
    made = folder / which
    if not made.exists():
        write_list(_listed(folder, which), write_folder(made, side_of(task, sizes, which)))
    return made


def _listed(folder: Path, which: str) -> Path:
    return folder / f"{which}.links.txt"


def write_coco(path: Path, side: Side) -> Path:
    """Write a COCO annotation file: absolute paths, numbers of images and classes from 1.

    A crowd that is of no class (KITTI's ``DontCare``) is written once for each class, which is
    how COCO's evaluation lets any detection in it be.
    """
    boxes, sizes = side.boxes, side.sizes
    if boxes is None or sizes is None:
        raise ValueError("a COCO file has boxes and sizes")
    images = [
        {"id": row, "file_name": file, "width": int(size[0]), "height": int(size[1])}
        for row, (file, size) in enumerate(zip(side.files, sizes, strict=True), 1)
    ]
    classes = [{"id": number, "name": name} for number, name in enumerate(boxes.names, 1)]
    corners = boxes.corners * np.tile(sizes[boxes.image], 2) if boxes.relative else boxes.corners
    # a region of no class that is not a crowd is neither learned nor found
    kept = (boxes.label >= 0) | boxes.crowd
    columns = boxes.image[kept], boxes.label[kept], corners[kept], boxes.crowd[kept]
    objects = coco_objects(*columns, len(boxes.names), first=1)
    content = {"images": images, "annotations": objects, "categories": classes}
    path.write_text(json.dumps(content), encoding="ascii")
    return path


def rows_by_name(folder: Path, test: ImageSet) -> dict[str, int]:
    """Return the row of each test image by its id, its path, and its link where it has one."""
    listed = _listed(folder, "test")
    links = listed.read_bytes().splitlines() if listed.is_file() else []
    rows = {os.fsdecode(link): row for row, link in enumerate(links)}
    rows |= {file: row for row, file in enumerate(files_of(test))}
    return rows | {id_: row for row, id_ in enumerate(test.ids.to_pylist())}


_TURNED: Final = (5, 6, 7, 8)  # EXIF's orientations that swap width and height


def files_of(images: ImageSet) -> list[str]:
    """Return the absolute path of each image, as the system names it (``os.fsencode`` it)."""
    names = _names(images.opener, np.arange(len(images)))
    if names is None:
        raise VisleakError(
            f"set {images.name!r}: this trainer opens the images itself, and those of"
            f" {images.source or 'a set in memory'} are not files of this machine; unpack them into"
            " a folder, or use --trainer torch:detector, which reads every source"
        )
    return names


def _names(opener: Opener, rows: Int64) -> list[str] | None:
    """Return the paths of some rows of an opener, ``None`` where they are not files."""
    if isinstance(opener, PinnedOpener):
        return _names(opener.unchanged.opener, rows)
    if isinstance(opener, SubsetOpener):
        return _names(opener.opener, opener.rows[rows])
    if isinstance(opener, JoinedOpener):
        found: list[str] = []
        for part, start, end in zip(opener.parts, opener.starts, opener.starts[1:], strict=False):
            names = _names(part, rows[(rows >= start) & (rows < end)] - start)
            if names is None:
                return None
            found += names
        return found
    if not isinstance(opener, FileOpener):
        return None
    names = opener.names.take(rows).to_pylist()
    root = os.path.abspath(opener.root)
    return [os.path.join(root, os.fsdecode(name or b"")) for name in names]


def check_files(images: ImageSet) -> None:
    """Check that the images are existing files that a list can name line by line."""
    files = files_of(images)
    if missing := [file for file in files if not os.path.isfile(file)]:
        raise VisleakError(
            f"set {images.name!r}: {len(missing):,} of {len(files):,} images do not exist, such"
            f" as {missing[0]!r}; a training run cannot skip them: {_remove(images, 'them')}"
        )
    if broken := [file for file in files if len(file.splitlines()) > 1]:
        raise VisleakError(
            f"set {images.name!r}: {broken[0]!r} has a line break in its name, and a list has one"
            " path a line; rename it"
        )


def _remove(images: ImageSet, them: str) -> str:
    if os.path.isdir(images.source):
        return f"remove {them} from the folder {images.source}"
    return f"take {them} from the list"


def sizes_of(images: ImageSet, progress: Progress) -> Int64:
    """Return width and height of each image with EXIF orientation applied, (n, 2)."""
    files = files_of(images)
    sizes = np.zeros((len(files), 2), np.int64)
    for row, file in enumerate(files):
        try:
            with Image.open(file) as image:
                # not getexif(), which decodes a whole PNG to look for a block at its end
                turned = orientation_of(image.info.get("exif", b"")) in _TURNED
                sizes[row] = image.size[::-1] if turned else image.size
        except Exception as error:  # Pillow raises many kinds
            raise VisleakError(
                f"set {images.name!r}: {file!r} is not a readable image; {_remove(images, 'it')}"
            ) from error
        if row % 500 == 499 or row + 1 == len(files):
            progress(f"reading the sizes of {images.name}", row + 1, len(files))
    return sizes
