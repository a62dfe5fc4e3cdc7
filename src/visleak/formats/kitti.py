"""KITTI: object detection, tracking sequences and raw drives, as the benchmark's site unpacks them.

Frames of one drive are similar, so the recordings matter: the group of an image is its sequence,
and its frame number is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from visleak.errors import VisleakError, explaining
from visleak.formats.boxes import (
    Boxes,
    boxes_of_rows,
    damaged,
    label_lines,
    label_text,
    numbers_of,
    only_name,
)
from visleak.formats.files import FileOpener, file_set
from visleak.formats.listing import Listing, Walk, name_text
from visleak.formats.request import Request, canonical_split, writable
from visleak.formats.sources import locate
from visleak.formats.writing import Destination, OutputPart, OutputSource, contents, write_listing
from visleak.records import ImageSet

#: Names of the two parts of the benchmark on disk.
PARTS: Final = {"train": "training", "test": "testing"}
IGNORED: Final = "DontCare"  # label of regions without single objects; not a class
#: The classes of the benchmark in the order of its readme; others follow by name.
CLASSES: Final[tuple[str, ...]] = (
    *("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Person", "Cyclist", "Tram", "Misc"),
)
CAMERA: Final = "2"  # the camera that boxes are drawn for: the left colour camera
#: Columns from the class on: truncation, occlusion, angle, the box, then 3-D size, place and angle.
COLUMNS: Final = 15
#: Folders of the devkit's mapping from images to drives.
MAPPINGS: Final = ("mapping", "devkit/mapping", "devkit_object/mapping")
_DRIVE: Final = re.compile(r"(\d{4}_\d{2}_\d{2}_drive_\d{4}(?:_\w+)?)")


@dataclass(frozen=True)
class KittiPart:
    """Where one part of KITTI is."""

    root: Path  # folder that ids are relative to
    labels: Path | None  # folder with the label files, or None
    kind: str  # object, tracking or raw


def open_kitti(request: Request) -> ImageSet:
    """List a part of KITTI: ``kitti:FOLDER``, ``kitti:FOLDER#testing``.

    Ids are file names relative to the image folder. The label is the one class shown, null where
    there are several or none. Groups are sequences or drives; of object detection they are known
    where the devkit's ``mapping`` folder is beside or in FOLDER. ``?camera=3`` takes the right
    colour camera, 0 and 1 the grey ones; by default 2.
    """
    request.refuse_columns("the KITTI folder")
    request.refuse_options("camera")
    camera = request.choice("camera", ("0", "1", "2", "3"), CAMERA)
    part = _find_part(request, camera)
    listing = Listing()
    names = sorted(Walk(str(part.root), listing.takes_file).names(), key=name_text)
    if part.kind == "raw":
        names = [name for name in names if f"/image_0{camera}/" in f"/{name}"]
    if not names:
        request.refuse_empty(listing.why_empty(f"no file below {part.root}"))
    groups, frames = _recordings(part, names, request) or (None, None)
    images = file_set(
        request,
        part.root,
        names,
        labels=_labels(part, names),
        annotated=part.labels is not None,
        skipped=listing.skipped,
    )
    if groups and request.pattern("group") is None:
        images = replace(images, groups=pa.array(groups, pa.string()))
    if frames and request.pattern("frame") is None:
        images = replace(images, frames=pa.array(frames, pa.int64()))
    return images


def kitti_boxes(images: ImageSet, request: Request) -> Boxes | None:
    """Return the boxes of a part of KITTI, in pixels; ``DontCare`` regions are crowds."""
    camera = request.options.get("camera", CAMERA)
    part = _find_part(request, camera)
    if part.labels is None or camera != CAMERA:
        return None
    names = [os.fsdecode(name.as_py()) for name in cast(FileOpener, images.opener).names]
    if part.kind == "object":
        found = [
            (row, label, corners)
            for row, name in enumerate(names)
            for _, label, corners in _objects(part.labels / f"{Path(name).stem}.txt", part.kind)
        ]
    else:  # rows of frames whose image is not in the set are left out
        places = {(os.path.dirname(name), _frame_of(name)): row for row, name in enumerate(names)}
        found = [
            (places[sequence, frame], label, corners)
            for sequence in sorted({sequence for sequence, _ in places})
            for frame, label, corners in _objects(part.labels / f"{sequence}.txt", part.kind)
            if (sequence, frame) in places
        ]
    shown = {name for _, name, _ in found} - {IGNORED}
    classes = [name for name in CLASSES if name in shown] + sorted(shown - set(CLASSES))
    number = {name: index for index, name in enumerate(classes)}
    rows = [(row, number.get(name, -1), corners, name == IGNORED) for row, name, corners in found]
    return boxes_of_rows(rows, classes, images, relative=False)


def write_kitti(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part of KITTI as it is unpacked, with all files of the frames that are kept.

    Object detection: what has the image's name in the folders beside its own (labels,
    calibration, points, the other camera). Tracking: label files without the removed frames, and
    each sequence's other files whole. Raw drives: images alone. The devkit's mapping, which groups
    need, is put beside.
    """
    if place.how == "manifest":
        return write_listing(part, place)
    (piece,) = part.pieces
    found = locate(piece.images.source)
    opener = cast(FileOpener, piece.images.opener)
    root = Path(opener.root)
    inside = os.path.relpath(root, found.place)
    own = "" if inside.startswith("..") else inside
    for position, stored in contents(piece):
        name = os.fsdecode(opener.names[position].as_py())
        place.put(piece, position, place.below(part, os.path.normpath(f"./{own}/{name}")), stored)

    def beside(file: Path) -> Path:
        name = os.path.normpath(f"./{own}/../{file.parent.name}/{file.name}")
        return place.made(place.below(part, name))

    ids = list(map(str, piece.column("ids")))
    tracking = root.name.startswith("image_0")
    if tracking:
        for file, frames in _track_files(root, ids):
            if file.parent.name.startswith("label_"):
                lines = file.read_text("utf-8").splitlines(keepends=True)
                rows = (line for line in lines if _frame_of(line.partition(" ")[0]) in frames)
                beside(file).write_text("".join(rows), "utf-8")
            else:
                place.put_file(os.fsencode(file), beside(file))
    elif root.name.startswith("image_"):
        kept = {Path(id_).stem for id_ in ids}
        for file in sorted(root.parent.glob("*/*")):
            if file.parent != root and file.stem in kept and file.is_file():
                place.put_file(os.fsencode(file), beside(file))
    mapping = None if tracking else _mapping_folder(root.parent)
    if mapping is not None:
        for name in ("train_rand.txt", "train_mapping.txt"):
            path = place.made(place.below(part, f"mapping/{name}"))
            place.put_file(os.fsencode(mapping / name), path)
    camera = found.options.get("camera")
    return OutputSource(
        place.below(part),
        before="kitti:",
        after=(f"?camera={camera}" if camera else "") + (f"#{found.split}" if found.split else ""),
        ids=tuple(ids),
        options=piece.images.options,
    )


def _track_files(root: Path, ids: Sequence[str]) -> Iterator[tuple[Path, set[int | None]]]:
    """Yield the files of sequences, and the frames that are kept of each."""
    frames: dict[str, set[int | None]] = {}
    for name in ids:
        frames.setdefault(os.path.dirname(name), set()).add(_frame_of(name))
    for folder in sorted(root.parent.iterdir()):
        for sequence, kept in frames.items():
            if (file := folder / f"{sequence}.txt").is_file():
                yield file, kept


def _find_part(request: Request, camera: str) -> KittiPart:
    """Find the image folder: of object detection, of tracking, else of raw drives."""
    part = PARTS.get(canonical_split(request.split or "training"), request.split)
    for base in (request.path / part, request.path):
        if base == request.path and request.split and base.name != part:
            continue
        for kind, images, labels in (
            # objects are labelled in the left colour camera's images, for all cameras
            ("object", f"image_{camera}", "label_2"),
            ("tracking", f"image_0{camera}", "label_02"),
        ):
            # a raw drive's camera contains `data`, a tracking camera its sequences
            if (base / images).is_dir() and not (base / images / "data").is_dir():
                there = (base / labels).is_dir()
                return KittiPart(base / images, base / labels if there else None, kind)
    near = [request.path.resolve(), *request.path.glob("*/"), *request.path.glob("*/*/")]
    if not request.split and any(_DRIVE.search(str(path)) for path in near):
        return KittiPart(request.path, None, "raw")
    raise request.refusal(
        f"{request.path} holds neither {part}/image_{camera} (object"
        f" detection) nor {part}/image_0{camera} (tracking) nor drives (raw data)"
    )


def _frame_of(name: str) -> int | None:
    """Return the name of an image as a number, ``None`` if it is not one."""
    stem = name.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() and len(stem) < 18 else None


def _recordings(
    part: KittiPart, names: Sequence[str], request: Request
) -> tuple[list[str | None], list[int | None]] | None:
    """Return the sequence of each image and its number there, ``None`` where they are unknown."""
    if part.kind == "object":
        return _recordings_of_objects(part, names, request)
    if part.kind == "tracking":
        # both parts count their sequences from 0000, and they are different drives
        prefix = "testing/" if part.root.parent.name == PARTS["test"] else ""
        sequences = [name_text(name).rpartition("/")[0] for name in names]
        groups = [f"{prefix}{sequence}" if sequence else None for sequence in sequences]
    else:
        base = str(request.path.resolve())
        drives = [_DRIVE.search(f"{base}/{name_text(name)}") for name in names]
        groups = [drive[1] if drive else None for drive in drives]
    return groups, [_frame_of(name) for name in names]


def _recordings_of_objects(
    part: KittiPart, names: Sequence[str], request: Request
) -> tuple[list[str | None], list[int | None]] | None:
    """Return drive and frame of each image of object detection, from the devkit's mapping.

    ``train_rand.txt`` holds for each image its line of ``train_mapping.txt``, counted from 1.
    """
    folder = _mapping_folder(part.root.parent)
    if folder is None:
        return None
    what = f"{folder}: train_rand.txt and train_mapping.txt cannot be read together"
    with explaining(what, OSError, ValueError, IndexError):
        order = (folder / "train_rand.txt").read_text("ascii").replace(",", " ").split()
        lines = (folder / "train_mapping.txt").read_text("ascii").splitlines()
        drives = [
            (drive, int(frame)) for _, drive, frame in map(str.split, filter(str.strip, lines))
        ]
        places = [int(number) - 1 for number in order]
        if places and min(places) < 0:
            raise ValueError(f"line {min(places) + 1} does not exist")
        known = [drives[place] for place in places]
    numbers = [_frame_of(name) for name in names]
    beyond = next((n for n in numbers if n is not None and n >= len(known)), None)
    if beyond is not None:
        raise VisleakError(
            f"{request.text}: the devkit's mapping names {len(known):,} images, and one is"
            f" number {beyond}; it is of another release"
        )
    found = [(None, None) if number is None else known[number] for number in numbers]
    return [drive for drive, _ in found], [frame for _, frame in found]


def _mapping_folder(part: Path) -> Path | None:
    """Return the folder of the devkit's mapping for the training part, if it is there."""
    places = (base / name for base in (part.parent, part.parent.parent) for name in MAPPINGS)
    training = part.name == PARTS["train"]
    return next((p for p in places if training and (p / "train_rand.txt").is_file()), None)


def _labels(part: KittiPart, names: Sequence[str]) -> pa.StringArray | None:
    if part.labels is None:
        return None
    if part.kind == "object":
        shown = [_classes(part.labels / f"{Path(name).stem}.txt", 0).get(-1) for name in names]
    else:
        sequences = [os.path.dirname(name) for name in names]
        known = {name: _classes(part.labels / f"{name}.txt", 2) for name in set(sequences)}
        shown = [
            known[sequence].get(_frame_of(name))
            for sequence, name in zip(sequences, names, strict=True)
        ]
    return pa.array((only_name(classes or ()) for classes in shown), pa.string())


def _classes(file: Path, column: int) -> dict[int | None, set[str]]:
    """Return the classes in a label file: by frame where they are in column 2, else under -1."""
    found: dict[int | None, set[str]] = {}
    for words in map(str.split, label_lines(file)):
        if len(words) > column and words[column] != IGNORED:
            frame = int(words[0]) if column and words[0].isdecimal() else -1
            found.setdefault(frame, set()).add(writable(words[column]))
    return found


def _objects(path: Path, kind: str) -> Iterator[tuple[int, str, list[float]]]:
    """Yield frame (0 of object detection), class and corners of each row of a label file."""
    before = 0 if kind == "object" else 2  # columns before the class: frame and track
    for number, line in enumerate((label_text(path) or "").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        # results have a score too
        right = len(words) - before in (COLUMNS, COLUMNS + 1)
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
        yield int(frame[0]), writable(words[before]), corners
