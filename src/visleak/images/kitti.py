"""KITTI: object detection, tracking sequences and raw drives, as the benchmark's site unpacks them.

Frames of one drive look alike, so what tells frames apart matters here: the group of a picture is
its sequence, and its frame number is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.images.annotated import only
from visleak.images.columns import canonical_split
from visleak.images.folder import Walk, as_text, file_set, read_file
from visleak.images.listing import Listing
from visleak.images.request import Request, writable
from visleak.records import ImageSet

#: What the two parts of the benchmark are called on disk.
SPLITS: Final = {"train": "training", "test": "testing"}

#: What KITTI writes where objects are not told apart; no class.
IGNORED: Final = "DontCare"

_DRIVE: Final = re.compile(r"(\d{4}_\d{2}_\d{2}_drive_\d{4}(?:_\w+)?)")


@dataclass(frozen=True)
class Layout:
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
        VisleakError: it holds no pictures, or the devkit's mapping does not fit it.
    """
    request.refuse_columns("the KITTI folder")
    request.refuse_options("camera")
    camera = request.options.get("camera", "2")
    if camera not in ("0", "1", "2", "3"):
        raise UsageError(f"source {request.text!r}: camera is one of 0, 1, 2, 3; got {camera!r}")
    layout = find_layout(request, camera)
    listing = Listing()
    names = sorted(Walk(str(layout.root), listing.takes_file).names(), key=as_text)
    if layout.kind == "raw":
        names = [name for name in names if f"/image_0{camera}/" in f"/{name}"]
    if not names:
        request.no_pictures(listing.why_empty(f"no file below {layout.root}"))
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


def find_layout(request: Request, camera: str) -> Layout:
    """Find the picture folder: of object detection, of tracking, else of raw drives.

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
            # objects are labelled in the left colour camera's pictures, for all cameras
            ("object", f"image_{camera}", "label_2"),
            ("tracking", f"image_0{camera}", "label_02"),
        ):
            # below a raw drive's camera lies `data`, below a tracking camera its sequences
            if (base / images).is_dir() and not (base / images / "data").is_dir():
                there = (base / labels).is_dir()
                return Layout(base / images, base / labels if there else None, kind)
    if not request.split and any(_DRIVE.search(str(path)) for path in _near(request.path)):
        return Layout(request.path, None, "raw")
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
    """Return the number that a picture is called by, ``None`` where it is called otherwise."""
    stem = name.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() and len(stem) < 18 else None


def _recordings(
    layout: Layout, names: Sequence[str], request: Request
) -> tuple[pa.StringArray | None, pa.Int64Array | None]:
    """Return the sequence of each picture and its number there, ``None`` where nothing tells."""
    if layout.kind == "object":
        return _of_drives(layout, names, request)
    if layout.kind == "tracking":
        # both parts count their sequences from 0000, and they are different drives
        part = "testing/" if layout.root.parent.name == SPLITS["test"] else ""
        sequences = (as_text(name).rpartition("/")[0] for name in names)
        groups = (f"{part}{sequence}" if sequence else None for sequence in sequences)
    else:
        base = str(request.path.resolve())
        found = (_DRIVE.search(f"{base}/{as_text(name)}") for name in names)
        groups = (drive[1] if drive else None for drive in found)
    return pa.array(groups, pa.string()), pa.array(map(frame_of, names), pa.int64())


def _of_drives(
    layout: Layout, names: Sequence[str], request: Request
) -> tuple[pa.StringArray | None, pa.Int64Array | None]:
    """Return drive and frame of each picture of object detection, where the devkit tells."""
    training = layout.root.parent.name == SPLITS["train"]
    places = _mapping(layout.root.parent) if training else None
    if places is None:
        return None, None
    numbers = [frame_of(name) for name in names]
    beyond = next((n for n in numbers if n is not None and n >= len(places)), None)
    if beyond is not None:
        raise VisleakError(
            f"{request.text}: the devkit's mapping names {len(places):,} pictures, and one is"
            f" number {beyond}; it is of another release"
        )
    known = [(None, None) if n is None else places[n] for n in numbers]
    return (
        pa.array([drive for drive, _ in known], pa.string()),
        pa.array([frame for _, frame in known], pa.int64()),
    )


def _mapping(training: Path) -> list[tuple[str, int]] | None:
    """Return drive and frame of each training picture, ``None`` where the devkit is not there.

    ``train_rand.txt`` says for each picture which line of ``train_mapping.txt`` is its own,
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


def _labels(layout: Layout, names: Sequence[str]) -> pa.StringArray | None:
    """Return the one class that each picture shows."""
    if layout.labels is None:
        return None
    if layout.kind == "object":
        shown = [_classes(layout.labels / f"{Path(name).stem}.txt", 0).get(-1) for name in names]
    else:
        sequences = {name.rpartition("/")[0] for name in names}
        known = {name: _classes(layout.labels / f"{name}.txt", 2) for name in sequences}
        shown = [known[name.rpartition("/")[0]].get(frame_of(name)) for name in names]
    return pa.array((only(classes or ()) for classes in shown), pa.string())


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
