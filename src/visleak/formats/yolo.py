"""YOLO: a ``data.yaml`` with splits, and one text file of boxes per image."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import yaml

from visleak.errors import UsageError, VisleakError, explaining
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
from visleak.formats.folders import read_list, relative_name
from visleak.formats.listing import Listing, Walk, name_text
from visleak.formats.request import SPLITS, Request, canonical_split, writable
from visleak.formats.sources import locate
from visleak.formats.writing import (
    Destination,
    OutputPart,
    OutputSource,
    contents,
    files_of,
    names_of,
    split_of,
    write_listing,
)
from visleak.records import ImageSet

#: How far beyond the image a number may be, as a share of its size; Ultralytics' own tolerance
#: (``verify_image_label``).
TOLERANCE: Final = 0.01
ALLOWED: Final = (
    "a row is `class x y width height`, or `class x y x y x y ...` of an outline, in shares of the"
    " image from 0 to 1"
)
DATA: Final = "data.yaml"  # name of the YAML


def open_yolo(request: Request) -> ImageSet:
    """List a split of a YOLO data set: ``yolo:data.yaml#val``.

    Ids are the file names relative to the split's folder (or, for a list of files, to the data
    set's). The label of an image is its one class; null where it shows several or none.
    """
    request.refuse_columns("the YOLO data set")
    content = yolo_content(request.path, request.text)
    splits = yolo_splits(content, yolo_base(request.path, content))
    wanted = canonical_split(request.split)
    if wanted not in splits:
        raise request.refusal(f"add #SPLIT, one of {', '.join(splits) or '(it has none)'}")
    listing = Listing()
    root, names = _yolo_names(request, content, splits[wanted], listing)
    classes = class_names(content.get("names"))
    labels = pa.array((_yolo_label(root / name, classes) for name in names), pa.string())
    return file_set(request, root, names, labels=labels, annotated=True, skipped=listing.skipped)


def yolo_boxes(images: ImageSet, request: Request) -> Boxes | None:
    """Return the boxes of a split; of an outline (segmentation) its bounding box.

    With ``kpt_shape`` in the YAML, key points follow in each row, which are not read. Identical
    rows are objects like others.
    """
    content = yolo_content(request.path, request.text)
    classes = class_names(content.get("names"))
    shape = content.get("kpt_shape")
    points = None
    if isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) for n in shape):
        points = int(shape[0] * shape[1])
    opener = cast(FileOpener, images.opener)
    found: list[tuple[int, int, tuple[float, float, float, float]]] = []
    labelled = False
    for row, name in enumerate(opener.names):
        path = yolo_label_file(Path(opener.root, os.fsdecode(name.as_py())))
        if (text := label_text(path)) is None:
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
    rows = [(image, place[number], corners, False) for image, number, corners in found]
    return boxes_of_rows(rows, [classes[number] for number in place], images, relative=True)


def write_yolo(parts: Sequence[OutputPart], place: Destination) -> list[OutputSource]:
    """Write the parts as the splits of one data set: ``images/SPLIT``, ``labels/SPLIT``.

    Class names and all else of the YAML stay; splits that are not written point to where they
    are, by paths relative to the YAML, except those in a place whose images are now divided among
    parts. As ``manifest``, a list of files with their labels, and one of plain paths for training.
    """
    first: dict[str, object] = {}
    for part in parts:
        for piece in part.pieces:
            content = yolo_content(Path(locate(piece.images.source).place), piece.images.source)
            first = first or content
            if content.get("names") != first.get("names"):
                raise VisleakError(
                    f"sets {parts[0].pieces[0].images.name!r} and {piece.images.name!r} have"
                    " different classes and cannot become one YOLO data set"
                )
    splits = [canonical_split(split_of(part)) for part in parts]
    if len(set(splits)) < len(splits):
        splits = [part.name for part in parts]
    written = [_write_split(part, split, place) for part, split in zip(parts, splits, strict=True)]
    entries = {split: entry for split, (entry, _) in zip(splits, written, strict=True)}
    path = Path(locate(parts[0].pieces[0].images.source).place)
    merged = _merged(first, entries, path, _divided(parts), place)
    text = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)
    place.made(DATA).write_text(text, encoding="utf-8")
    return [opened for _, opened in written]


def yolo_content(path: Path, text: str) -> dict[str, object]:
    """Read a YOLO data set's YAML."""
    what = f"{text}: {path} cannot be read as YAML"
    with explaining(what, OSError, ValueError, yaml.YAMLError, RecursionError):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise VisleakError(f"{text}: {path} is not a YOLO data set: it has no `train` or `val`")
    return content


def yolo_splits(content: Mapping[str, object], base: Path) -> dict[str, list[str]]:
    """Return the folders or list files of each split of a data set, by canonical name.

    Args:
        content: of the YAML.
        base: the data set's folder, which entries are relative to.
    """

    def place(entry: str) -> str:
        # Roboflow writes ../train for train, and Ultralytics reads it so
        inner = entry.removeprefix("../")
        return inner if not (base / entry).exists() and (base / inner).exists() else entry

    splits = {}
    for key, value in content.items():
        name = canonical_split(str(key))
        entries = [value] if isinstance(value, str) else value
        if name not in SPLITS or not isinstance(entries, list) or not entries:
            continue
        if all(isinstance(entry, str) for entry in entries):
            splits[name] = [place(writable(entry)) for entry in entries]
    return splits


def yolo_base(path: Path, content: Mapping[str, object]) -> Path:
    """Return the data set's folder: `path` in the YAML, else the folder of the YAML."""
    given = content.get("path")
    if isinstance(given, str) and (path.parent / given).is_dir():
        return path.parent / given
    return path.parent


def _yolo_names(
    request: Request, content: Mapping[str, object], entries: Sequence[str], listing: Listing
) -> tuple[Path, list[str]]:
    """Return the folder that ids are relative to, and the names of the images, sorted."""
    base = yolo_base(request.path, content)
    if len(entries) == 1 and (base / entries[0]).is_dir():
        root = base / entries[0]
        names = list(Walk(str(root), listing.takes_file).names())
    else:
        root, names = base, []
        for entry in entries:
            place = base / entry
            if place.is_dir():
                below = Walk(str(place), listing.takes_file).names()
                names += [relative_name(f"{entry}/{name}", base) for name in below]
            elif place.is_file() and place.suffix == ".txt":
                # A leading ./ means: beside the list; anything else: below the data set.
                names += [
                    os.path.relpath(place.parent / line, base)
                    if line.startswith("./")
                    else relative_name(line, base)
                    for line in read_list(place)
                ]
            else:
                text = f"source {request.text!r}: {place} is neither a folder nor a .txt list"
                given, here = content.get("path"), request.path.parent
                if isinstance(given, str) and not (here / given).is_dir():
                    text += (
                        f"; its `path: {given}` is not a folder either (looked for {here / given}),"
                        f" so that splits were looked for beside the file, in {here}"
                    )
                raise UsageError(text)
    if not names:
        places = ", ".join(str(base / entry) for entry in entries)
        request.refuse_empty(listing.why_empty(f"no file below {places}"))
    return root, sorted(names, key=name_text)


def class_names(names: object) -> dict[int, str]:
    """Return the class names of the entry ``names`` of a YOLO data set, by number."""
    items = dict(enumerate(names)) if isinstance(names, list) else names
    if not isinstance(items, dict):
        return {}
    return {n: writable(str(name)) for n, name in items.items() if isinstance(n, int)}


def yolo_label_file(image: Path) -> Path:
    """Return the label file of an image: in ``labels`` instead of the last ``images``.

    Without ``images`` in its path it is beside the image, as for Ultralytics.
    >>> yolo_label_file(Path("/coco/images/val/1.jpg")), yolo_label_file(Path("/coco/1.jpg"))
    (PosixPath('/coco/labels/val/1.txt'), PosixPath('/coco/1.txt'))
    """
    before, folder, after = os.path.abspath(image).rpartition(f"{os.sep}images{os.sep}")
    place = f"{before}{os.sep}labels{os.sep}{after}" if folder else after
    return Path(place).with_suffix(".txt")


def _yolo_label(image: Path, classes: Mapping[int, str]) -> str | None:
    firsts = {line.split()[0] for line in label_lines(yolo_label_file(image)) if line.strip()}
    numbers = {int(first) for first in firsts if first.isascii() and first.isdigit()}
    return only_name(classes.get(number, str(number)) for number in numbers)


def _object(
    path: Path, number: int, line: str, classes: Mapping[int, str], points: int | None
) -> tuple[int, tuple[float, float, float, float]]:
    words = line.split()
    values, count = numbers_of(words), len(words)
    if points is not None:
        right = count == 5 + points
    else:
        right = count == 5 or (count >= 7 and count % 2 == 1)
    if values is None or not right or not values[0].is_integer() or values[0] < 0:
        allowed = f"{ALLOWED}; here {points} numbers of key points follow" if points else ALLOWED
        raise damaged(path, number, allowed, line)
    label = int(values[0])
    if classes and label not in classes:
        known = f"{min(classes)} to {max(classes)}"
        raise damaged(path, number, f"the class is none of the YAML's `names` ({known})", line)
    numbers = values[1:] if points is None else values[1:5]
    if min(numbers) < -TOLERANCE or max(numbers) > 1 + TOLERANCE:
        raise damaged(path, number, ALLOWED, line)
    if len(numbers) > 4:
        across, down = numbers[::2], numbers[1::2]
        return label, (min(across), min(down), max(across), max(down))
    x, y, width, height = numbers
    if width < 0 or height < 0:
        raise damaged(path, number, "width and height are 0 or more", line)
    return label, (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _divided(parts: Sequence[OutputPart]) -> set[str]:
    """Return the splits of the source whose images are divided among several parts."""
    found = Counter[str]()
    for part in parts:
        found.update({canonical_split(locate(p.images.source).split) for p in part.pieces})
    return {split for split, count in found.items() if count > 1}


def _merged(
    content: Mapping[str, object],
    entries: Mapping[str, str],
    path: Path,
    divided: set[str],
    place: Destination,
) -> dict[str, object]:
    """Return the YAML with new places for the splits that are written.

    A split in the place of one that is now divided would hold images of all parts; it is left out.
    """
    base = yolo_base(path, content)
    known = yolo_splits(content, base)
    gone = {entry for split in divided for entry in known.get(split, ())}
    merged: dict[str, object] = {}
    for key, value in content.items():
        split = canonical_split(str(key))
        if split not in known:
            if key != "path":  # without it, places count from the YAML's own folder
                merged[key] = value
        elif split in entries:
            merged[key] = entries[split]
        elif not gone & set(known[split]):
            files = (os.fsencode(base / entry) for entry in known[split])
            merged[key] = [place.link_to(file, place.folder / DATA) for file in files]
    named = {canonical_split(str(key)) for key in merged}
    return {s: e for s, e in entries.items() if s not in named} | merged


def _write_split(part: OutputPart, split: str, place: Destination) -> tuple[str, OutputSource]:
    """Write a split; return its entry in the YAML, and how it is opened.

    It is a folder of images, or a list of files where names have ``images`` in them.
    """
    if place.how == "manifest":
        opened = write_listing(part, place)
        path = place.made(f"{split}.txt")
        _write_list(path, files_of(part, place, path))
        return path.name, opened
    names = names_of(part)
    listed = any("/images/" in f"/{name}" for name in names)
    targets = iter(names if listed else [f"images/{split}/{name}" for name in names])
    for piece in part.pieces:
        for position, stored in contents(piece):
            target = next(targets)
            place.put(piece, position, target, stored)
            boxes = yolo_label_file(Path(os.fsdecode(piece.path(position) or b"")))
            if boxes.is_file():
                put = yolo_label_file(Path(f"/{target}")).relative_to("/")
                place.put_file(os.fsencode(boxes), place.made(str(put)))
    if listed:
        _write_list(place.made(f"{split}.txt"), names)
    entry = f"{split}.txt" if listed else f"images/{split}"
    return entry, OutputSource.by_name(DATA, names, "yolo:", f"#{split}")


def _write_list(path: Path, names: Sequence[str]) -> None:
    text = "".join(f"./{name}\n" for name in names)  # ./ counts from the list's own folder
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
