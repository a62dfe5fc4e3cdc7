"""KITTI: the pictures that are kept, and what belongs to each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

from visleak.images.folder import FileOpener
from visleak.images.sources import locate
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.layouts.files import contents
from visleak.remedy.layouts.listing import write_listing
from visleak.remedy.layouts.place import Opened, Place

#: Folders of the devkit's mapping from pictures to drives.
MAPPINGS: Final = ("mapping", "devkit/mapping", "devkit_object/mapping")


def write_kitti(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part of KITTI as it is unpacked, with all files of the frames that are kept.

    Object detection: what has the picture's name in the folders beside its own (labels,
    calibration, points, the other camera). Tracking: label files without the removed frames, and
    each sequence's other files whole. Raw drives: pictures alone. Groups need the devkit's
    mapping, which is put beside.
    """
    if place.how == "manifest":
        return [write_listing(part, place) for part in parts]
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
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
    return Opened(
        place.below(part),
        before="kitti:",
        after=(f"?camera={camera}" if camera else "") + (f"#{found.split}" if found.split else ""),
        ids=tuple(map(str, piece.column("ids"))),
        options=piece.images.options,
    )


def _belongings(piece: Filled, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files beside the pictures of object detection that have their names."""
    if root.name.startswith("image_0") or not root.name.startswith("image_"):
        return
    kept = {Path(str(id_)).stem for id_ in piece.column("ids")}
    for folder in sorted(root.parent.iterdir()):
        if folder.is_dir() and folder != root:
            for file in sorted(folder.iterdir()):
                if file.stem in kept and file.is_file():
                    yield file, f"{folder.name}/{file.name}"


def _put_tracks(piece: Filled, root: Path, part: FilledPart, own: str, place: Place) -> None:
    """Put the files of sequences: labels of the frames that are kept, all others whole."""
    frames: dict[str, set[int]] = {}
    for picture in map(str, piece.column("ids")):
        frames.setdefault(os.path.dirname(picture), set()).add(_number(Path(picture).stem))
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


def _put_mapping(source: Path, root: Path, part: FilledPart, place: Place) -> None:
    """Put the devkit's mapping into the data set, wherever it lay."""
    for base in (root.parent.parent, root.parent.parent.parent):
        for folder in (base / name for name in MAPPINGS):
            if (folder / "train_rand.txt").is_file() and root.parent.name == "training":
                for file in ("train_rand.txt", "train_mapping.txt"):
                    path = place.made(place.below(part, f"mapping/{file}"))
                    place.put_file(os.fsencode(folder / file), path)
                return
