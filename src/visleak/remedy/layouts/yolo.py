"""YOLO: one ``data.yaml`` with the splits that are written, their pictures and their labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from visleak.errors import VisleakError
from visleak.images.annotated import yolo_base, yolo_content, yolo_splits
from visleak.images.columns import canonical_split
from visleak.images.folder import as_text
from visleak.images.sources import locate
from visleak.remedy.contents import FilledPart
from visleak.remedy.layouts.files import contents, names_of
from visleak.remedy.layouts.listing import files_of, write_listing
from visleak.remedy.layouts.names import split_of
from visleak.remedy.layouts.place import Opened, Place

#: Name of the YAML.
DATA: Final = "data.yaml"


def write_yolo(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write the parts as the splits of one data set: ``images/SPLIT``, ``labels/SPLIT``.

    Class names and all else of the YAML stay; splits that are not written point to where they
    are, by paths relative to the YAML, but for those that lie where images come from that are
    parted now. As ``manifest``, a list of files with their labels, and one of plain paths for
    training.

    Raises:
        VisleakError: sets have different classes.
    """
    contents_ = [_content(part) for part in parts]
    splits = [canonical_split(split_of(part)) for part in parts]
    if len(set(splits)) < len(splits):
        splits = [part.name for part in parts]
    for part, content in zip(parts, contents_, strict=True):
        if content.get("names") != contents_[0].get("names"):
            raise VisleakError(
                f"sets {parts[0].name!r} and {part.name!r} have different classes and cannot"
                " become one YOLO data set"
            )
    written = [_write(part, split, place) for part, split in zip(parts, splits, strict=True)]
    entries = {split: entry for split, (entry, _) in zip(splits, written, strict=True)}
    merged = _merged(contents_[0], entries, _path(parts[0]), _parted(parts), place)
    text = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)
    place.made(DATA).write_text(text, encoding="utf-8")
    return [opened for _, opened in written]


def _path(part: FilledPart) -> Path:
    return Path(locate(part.pieces[0].images.source).place)


def _content(part: FilledPart) -> dict[str, Any]:
    first: dict[str, Any] = {}
    for piece in part.pieces:
        content = yolo_content(Path(locate(piece.images.source).place), piece.images.source)
        if first and content.get("names") != first.get("names"):
            raise VisleakError(
                f"part {part.name!r}: its sets have different classes and cannot become one"
            )
        first = first or content
    return first


def _parted(parts: Sequence[FilledPart]) -> set[str]:
    """Return the splits of the source whose images come into several parts."""
    found = [
        {canonical_split(locate(piece.images.source).split) for piece in part.pieces}
        for part in parts
    ]
    return {split for own in found for split in own if sum(split in each for each in found) > 1}


def _merged(
    content: Mapping[str, Any],
    entries: Mapping[str, str],
    path: Path,
    parted: set[str],
    place: Place,
) -> dict[str, Any]:
    """Return the YAML with new places for the splits that are written.

    A split that lies where one lies that is parted now would hold images of all parts; it is left
    out.
    """
    base, known = yolo_base(path, content), yolo_splits(content)
    gone = {entry for split in parted for entry in known.get(split, ())}
    merged: dict[str, Any] = {}
    for key, value in content.items():
        split = canonical_split(str(key))
        if split in entries and split in known:
            merged[key] = entries[split]
        elif split in known and gone & set(known[split]):
            continue
        elif split in known:
            files = (os.fsencode(base / entry) for entry in known[split])
            merged[key] = [place.link_to(file, place.folder / DATA) for file in files]
        elif key != "path":  # without it, places count from the YAML's own folder
            merged[key] = value
    named = {canonical_split(str(key)) for key in merged}
    return {s: e for s, e in entries.items() if s not in named} | merged


def _write(part: FilledPart, split: str, place: Place) -> tuple[str, Opened]:
    """Write a split; return its entry in the YAML, and how it is opened.

    It is a folder of pictures, or a list of files where names have ``images`` in them.
    """
    if place.how == "manifest":
        opened = write_listing(part, place)
        path = place.made(f"{split}.txt")
        # ./ counts from the list's own folder
        text = "".join(f"./{file}\n" for file in files_of(part, place, path))
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return f"{split}.txt", opened
    names = names_of(part)
    listed = any(_boxes_of(f"/{name}") for name in names)
    targets = names if listed else [f"images/{split}/{name}" for name in names]
    rest = iter(targets)
    for piece in part.pieces:
        for position, stored in contents(piece):
            target = next(rest)
            place.put(piece, position, target, stored)
            boxes = _boxes_of(os.path.abspath(os.fsdecode(piece.path(position) or b"")))
            if os.path.isfile(boxes):
                place.put_file(os.fsencode(boxes), place.made(_boxes_of(f"/{target}")[1:]))
    if listed:
        text = "".join(f"./{name}\n" for name in names)
        place.made(f"{split}.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    texts = [as_text(name) for name in names]
    order = sorted(range(len(names)), key=texts.__getitem__)
    return f"{split}.txt" if listed else f"images/{split}", Opened(
        DATA,
        "yolo:",
        f"#{split}",
        ids=tuple(texts[at] for at in order),
        order=np.array(order, np.int64),
    )


def _boxes_of(picture: str) -> str:
    """Return where the label file of a picture would lie; empty where it is in no ``images``.

    >>> _boxes_of("/coco/images/val/1.jpg"), _boxes_of("/coco/1.jpg")
    ('/coco/labels/val/1.txt', '')
    """
    before, folder, after = picture.rpartition("/images/")
    return f"{before}/labels/{os.path.splitext(after)[0]}.txt" if folder else ""
