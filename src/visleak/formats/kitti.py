"""KITTI: object detection, tracking sequences and raw drives, as the benchmark's site unpacks them.

Frames of one drive look alike, so what tells frames apart matters here: the group of an image is
its sequence, and its frame number is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.formats.boxes import Boxes, BoxRows, damaged, label_text, numbers_of, only_name
from visleak.formats.files import FileOpener, file_set, read_file
from visleak.formats.listing import Listing, Walk, name_text
from visleak.formats.request import Request, canonical_split, writable
from visleak.formats.sources import locate
from visleak.formats.writing import (
    Destination,
    OutputPart,
    OutputSource,
    Selection,
    contents,
    write_listing,
)
from visleak.records import ImageSet

#: What the two parts of the benchmark are called on disk.
SPLITS: Final = {"train": "training", "test": "testing"}


#: What KITTI writes where objects are not told apart; no class.
IGNORED: Final = "DontCare"


_DRIVE: Final = re.compile(r"(\d{4}_\d{2}_\d{2}_drive_\d{4}(?:_\w+)?)")


@dataclass(frozen=True)
class KittiPart:
    """How one part of KITTI lies on disk.

    Attributes:
        root: folder that ids are relative to.
        labels: folder with the label files, or ``None``.
        kind: ``object``, ``tracking`` or ``raw``.
    """

    root: Path
    labels: Path | None
    kind: str


def open_kitti(request: Request) -> ImageSet:
    """List a part of KITTI: ``kitti:FOLDER``, ``kitti:FOLDER#testing``.

    Ids are file names relative to the image folder. The label is the one class shown, null where
    there are several or none. Groups are sequences or drives; of object detection they are known
    where the devkit's ``mapping`` folder lies beside or in FOLDER. ``?camera=3`` takes the right
    colour camera, 0 and 1 the grey ones; by default 2.

    Raises:
        UsageError: there is no such part or camera.
        VisleakError: it holds no images, or the devkit's mapping does not fit it.
    """
    request.refuse_columns("the KITTI folder")
    request.refuse_options("camera")
    camera = request.options.get("camera", "2")
    if camera not in ("0", "1", "2", "3"):
        raise UsageError(f"source {request.text!r}: camera is one of 0, 1, 2, 3; got {camera!r}")
    layout = find_part(request, camera)
    listing = Listing()
    names = sorted(Walk(str(layout.root), listing.takes_file).names(), key=name_text)
    if layout.kind == "raw":
        names = [name for name in names if f"/image_0{camera}/" in f"/{name}"]
    if not names:
        request.refuse_empty(listing.why_empty(f"no file below {layout.root}"))
    groups, frames = _recordings(layout, names, request)
    images = file_set(
        request,
        layout.root,
        names,
        labels=_labels(layout, names),
        annotated=layout.labels is not None,
        skipped=listing.skipped,
    )
    if request.group_pattern is None and groups is not None:
        images = replace(images, groups=groups)
    return images if request.frame_pattern else replace(images, frames=frames)


def find_part(request: Request, camera: str) -> KittiPart:
    """Find the image folder: of object detection, of tracking, else of raw drives.

    Args:
        request: the parts of the source.
        camera: 0 to 3.

    Raises:
        UsageError: there is none of them.
    """
    split = canonical_split(request.split or "training")
    part = SPLITS.get(split, request.split)
    for base in (request.path / part, request.path):
        if base == request.path and request.split and base.name != part:
            continue
        for kind, images, labels in (
            # objects are labelled in the left colour camera's images, for all cameras
            ("object", f"image_{camera}", "label_2"),
            ("tracking", f"image_0{camera}", "label_02"),
        ):
            # below a raw drive's camera lies `data`, below a tracking camera its sequences
            if (base / images).is_dir() and not (base / images / "data").is_dir():
                there = (base / labels).is_dir()
                return KittiPart(base / images, base / labels if there else None, kind)
    if not request.split and any(_DRIVE.search(str(path)) for path in _near(request.path)):
        return KittiPart(request.path, None, "raw")
    raise UsageError(
        f"source {request.text!r}: {request.path} holds neither {part}/image_{camera} (object"
        f" detection) nor {part}/image_0{camera} (tracking) nor drives (raw data)"
    )


def _near(folder: Path) -> Iterable[Path]:
    """Yield a folder and what lies up to two levels below it."""
    yield folder.resolve()
    for depth in ("*", "*/*"):
        yield from (path for path in folder.glob(depth) if path.is_dir())


def frame_of(name: str) -> int | None:
    """Return the number that an image is called by, ``None`` where it is called otherwise."""
    stem = name.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() and len(stem) < 18 else None


def _recordings(
    layout: KittiPart, names: Sequence[str], request: Request
) -> tuple[pa.StringArray | None, pa.Int64Array | None]:
    """Return the sequence of each image and its number there, ``None`` where nothing tells."""
    if layout.kind == "object":
        return _of_drives(layout, names, request)
    if layout.kind == "tracking":
        # both parts count their sequences from 0000, and they are different drives
        part = "testing/" if layout.root.parent.name == SPLITS["test"] else ""
        sequences = (name_text(name).rpartition("/")[0] for name in names)
        groups = (f"{part}{sequence}" if sequence else None for sequence in sequences)
    else:
        base = str(request.path.resolve())
        found = (_DRIVE.search(f"{base}/{name_text(name)}") for name in names)
        groups = (drive[1] if drive else None for drive in found)
    return pa.array(groups, pa.string()), pa.array(map(frame_of, names), pa.int64())


def _of_drives(
    layout: KittiPart, names: Sequence[str], request: Request
) -> tuple[pa.StringArray | None, pa.Int64Array | None]:
    """Return drive and frame of each image of object detection, where the devkit tells."""
    training = layout.root.parent.name == SPLITS["train"]
    places = _mapping(layout.root.parent) if training else None
    if places is None:
        return None, None
    numbers = [frame_of(name) for name in names]
    beyond = next((n for n in numbers if n is not None and n >= len(places)), None)
    if beyond is not None:
        raise VisleakError(
            f"{request.text}: the devkit's mapping names {len(places):,} images, and one is"
            f" number {beyond}; it is of another release"
        )
    known = [(None, None) if n is None else places[n] for n in numbers]
    return (
        pa.array([drive for drive, _ in known], pa.string()),
        pa.array([frame for _, frame in known], pa.int64()),
    )


def _mapping(training: Path) -> list[tuple[str, int]] | None:
    """Return drive and frame of each training image, ``None`` where the devkit is not there.

    ``train_rand.txt`` says for each image which line of ``train_mapping.txt`` is its own,
    counted from 1.
    """
    places = [
        base / folder
        for base in (training.parent, training.parent.parent)
        for folder in ("mapping", "devkit/mapping", "devkit_object/mapping")
    ]
    place = next((p for p in places if (p / "train_rand.txt").is_file()), None)
    if place is None:
        return None
    try:
        order = [
            int(number)
            for number in (place / "train_rand.txt").read_text("ascii").replace(",", " ").split()
        ]
        lines = (place / "train_mapping.txt").read_text("ascii").splitlines()
        words = [line.split() for line in lines if line.strip()]
        drives = [(drive, int(frame)) for _, drive, frame in words]
        if order and min(order) < 1:
            raise ValueError(f"line {min(order)} does not exist")
        return [drives[line - 1] for line in order]
    except (OSError, ValueError, IndexError) as error:
        raise VisleakError(
            f"{place}: train_rand.txt and train_mapping.txt cannot be read together: {error}"
        ) from error


def _labels(layout: KittiPart, names: Sequence[str]) -> pa.StringArray | None:
    """Return the one class that each image shows."""
    if layout.labels is None:
        return None
    if layout.kind == "object":
        shown = [_classes(layout.labels / f"{Path(name).stem}.txt", 0).get(-1) for name in names]
    else:
        sequences = {name.rpartition("/")[0] for name in names}
        known = {name: _classes(layout.labels / f"{name}.txt", 2) for name in sequences}
        shown = [known[name.rpartition("/")[0]].get(frame_of(name)) for name in names]
    return pa.array((only_name(classes or ()) for classes in shown), pa.string())


def _classes(file: Path, column: int) -> dict[int | None, set[str]]:
    """Return the classes in a label file: by frame where they are in column 2, else under -1."""
    try:
        data = read_file(str(file))
        lines = data.decode("utf-8").splitlines() if isinstance(data, bytes) else []
    except UnicodeDecodeError:
        return {}
    found: dict[int | None, set[str]] = {}
    for words in map(str.split, lines):
        if len(words) > column and words[column] != IGNORED:
            frame = int(words[0]) if column and words[0].isdecimal() else -1
            found.setdefault(frame, set()).add(writable(words[column]))
    return found


#: The classes of the benchmark in the order of its readme; others follow by name.
BOX_CLASSES: Final[tuple[str, ...]] = (
    *("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Person", "Cyclist", "Tram", "Misc"),
)


#: The camera whose images the boxes are drawn in: the left colour camera.
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
        ``None`` where the part has no labels, as the test part has none; where its images are
        of another camera than the one that boxes are drawn for; of raw drives.

    Raises:
        VisleakError: see :func:`visleak.formats.opening.boxes_of`.
    """
    camera = request.options.get("camera", CAMERA)
    layout = find_part(request, camera)
    if layout.labels is None or camera != CAMERA:
        return None
    names = [os.fsdecode(name.as_py()) for name in cast(FileOpener, images.opener).names]
    if layout.kind == "object":
        of_images = _of_images(layout.labels, names)
    else:
        of_images = _of_frames(layout.labels, names)
    found = [(row, *each) for row, each in of_images]
    shown = {name for _, name, _ in found if name != IGNORED}
    classes = [name for name in BOX_CLASSES if name in shown]
    classes += sorted(shown - set(classes))
    number = {name: index for index, name in enumerate(classes)}
    rows = BoxRows()
    for row, name, corners in found:
        rows.add(row, number.get(name, -1), corners, name == IGNORED)
    return rows.boxes(classes, images, relative=False)


def _of_images(folder: Path, names: list[str]) -> Iterator[tuple[int, _Object]]:
    """Yield the row of each object's image, and the object."""
    for row, name in enumerate(names):
        for _, found in _objects(folder / f"{Path(name).stem}.txt", "object"):
            yield row, found


def _of_frames(folder: Path, names: list[str]) -> Iterator[tuple[int, _Object]]:
    """The same of tracking; rows of frames whose image is not in the set are no part of it."""
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


#: Folders of the devkit's mapping from images to drives.
MAPPINGS: Final = ("mapping", "devkit/mapping", "devkit_object/mapping")


def write_kitti(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part of KITTI as it is unpacked, with all files of the frames that are kept.

    Object detection: what has the image's name in the folders beside its own (labels,
    calibration, points, the other camera). Tracking: label files without the removed frames, and
    each sequence's other files whole. Raw drives: images alone. Groups need the devkit's
    mapping, which is put beside.
    """
    if place.how == "manifest":
        return write_listing(part, place)
    (piece,) = part.pieces
    found = locate(piece.images.source)
    root = Path(cast(FileOpener, piece.images.opener).root)
    source = Path(found.place)
    inside = os.path.relpath(root, source)
    own = "" if inside.startswith("..") or inside == "." else inside
    for position, stored in contents(piece):
        name = os.fsdecode(cast(FileOpener, piece.images.opener).names[position].as_py())
        place.put(piece, position, place.below(part, f"{own}/{name}" if own else name), stored)
    for file, target in _belongings(piece, root):
        name = os.path.normpath(f"{own}/../{target}")
        place.put_file(os.fsencode(file), place.made(place.below(part, name)))
    if root.name.startswith("image_0"):
        _put_tracks(piece, root, part, own, place)
    else:
        _put_mapping(source, root, part, place)
    camera = found.options.get("camera")
    return OutputSource(
        place.below(part),
        before="kitti:",
        after=(f"?camera={camera}" if camera else "") + (f"#{found.split}" if found.split else ""),
        ids=tuple(map(str, piece.column("ids"))),
        options=piece.images.options,
    )


def _belongings(piece: Selection, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files beside the images of object detection that have their names."""
    if root.name.startswith("image_0") or not root.name.startswith("image_"):
        return
    kept = {Path(str(id_)).stem for id_ in piece.column("ids")}
    for folder in sorted(root.parent.iterdir()):
        if folder.is_dir() and folder != root:
            for file in sorted(folder.iterdir()):
                if file.stem in kept and file.is_file():
                    yield file, f"{folder.name}/{file.name}"


def _put_tracks(
    piece: Selection, root: Path, part: OutputPart, own: str, place: Destination
) -> None:
    """Put the files of sequences: labels of the frames that are kept, all others whole."""
    frames: dict[str, set[int]] = {}
    for image in map(str, piece.column("ids")):
        frames.setdefault(os.path.dirname(image), set()).add(_number(Path(image).stem))
    for folder in sorted(root.parent.iterdir()):
        for sequence, kept in frames.items():
            file = folder / f"{sequence}.txt"
            if not file.is_file():
                continue
            name = place.below(part, os.path.normpath(f"{own}/../{folder.name}/{file.name}"))
            if not folder.name.startswith("label_"):
                place.put_file(os.fsencode(file), place.made(name))
                continue
            lines = file.read_text("utf-8").splitlines(keepends=True)
            rows = [line for line in lines if _number(line.partition(" ")[0]) in kept]
            place.made(name).write_text("".join(rows), "utf-8")


def _number(text: str) -> int:
    """Return the number of a frame, -1 where the text is none."""
    return int(text) if text.isascii() and text.isdigit() else -1


def _put_mapping(source: Path, root: Path, part: OutputPart, place: Destination) -> None:
    """Put the devkit's mapping into the data set, wherever it lay."""
    for base in (root.parent.parent, root.parent.parent.parent):
        for folder in (base / name for name in MAPPINGS):
            if (folder / "train_rand.txt").is_file() and root.parent.name == "training":
                for file in ("train_rand.txt", "train_mapping.txt"):
                    path = place.made(place.below(part, f"mapping/{file}"))
                    place.put_file(os.fsencode(folder / file), path)
                return
