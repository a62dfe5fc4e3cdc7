"""COCO: the annotation file without what belongs to removed images, and the pictures beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from visleak.errors import UsageError, VisleakError
from visleak.images.folder import FileOpener
from visleak.images.request import writable
from visleak.images.sources import locate
from visleak.records import Int64
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.layouts.files import contents
from visleak.remedy.layouts.names import free_name
from visleak.remedy.layouts.place import Opened, Place

#: Lists of a COCO file whose rows belong to an image.
OF_IMAGES: Final = ("annotations", "segment_info")


def write_coco(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part's annotation file: images and annotations that are kept, all else as it is.

    Pictures are put into ``images``; as ``manifest``, they stay where they are. Of several parts,
    the files stand side by side in ``annotations``. Where images of several sets come together,
    numbers that are taken are given anew.

    Raises:
        VisleakError: sets of one part have different categories.
    """
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
    contents_ = [_kept(piece) for piece in part.pieces]
    names = _names(part, contents_)
    merged = _merged(part, contents_)
    file = Path(locate(part.pieces[0].images.source).place).name
    file = f"annotations/{part.name}-{file}" if place.many else file
    folder = f"images/{part.name}" if place.many else "images"
    path = place.made(file)
    if place.how == "manifest":
        folder = place.link_to(os.fsencode(_root(part)), path)
    else:
        _put(part, names, folder, place)
        folder = f"../{folder}" if place.many else folder
    # a name that is no UTF-8 is JSON as an escape
    path.write_bytes(json.dumps(merged, ensure_ascii=False).encode("utf-8", "backslashreplace"))
    ids = sorted(name for each in names for name in each.values())
    own = [names[at][str(id_)] for at, p in enumerate(part.pieces) for id_ in p.column("ids")]
    where = {name: at for at, name in enumerate(own)}
    return Opened(file, "coco:", f"?images={folder}", tuple(ids), _order(ids, where))


def _root(part: FilledPart) -> str:
    """Return the folder that all pictures of a part lie in."""
    roots = {os.path.abspath(cast(FileOpener, p.images.opener).root) for p in part.pieces}
    if len(roots) > 1:
        raise UsageError(
            f"part {part.name!r}: its pictures lie in {' and '.join(sorted(roots))}, and a COCO"
            " file has one folder; use --format link or --format copy"
        )
    return roots.pop()


def _order(ids: Sequence[str], where: Mapping[str, int]) -> Int64:
    return np.array([where[id_] for id_ in ids], np.int64)


def _kept(piece: Filled) -> dict[str, Any]:
    """Return the content of a piece's annotation file without what goes."""
    path = Path(locate(piece.images.source).place)
    content: dict[str, Any] = json.loads(path.read_bytes())
    kept = set(piece.column("ids"))
    images = [row for row in content["images"] if writable(str(row["file_name"])) in kept]
    numbers = {row["id"] for row in images}
    found = content | {"images": images}
    for name in OF_IMAGES:
        if isinstance(content.get(name), list):
            found[name] = [row for row in content[name] if row.get("image_id") in numbers]
    return found


def _names(part: FilledPart, contents_: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return, for each piece, the new name of each image; change the rows accordingly."""
    taken: set[str] = set()
    names = []
    for piece, content in zip(part.pieces, contents_, strict=True):
        own = {}
        for row in content["images"]:
            given = writable(str(row["file_name"]))
            own[given] = free_name(given, piece.images.name, taken)
            taken.add(own[given])
            if own[given] != given:
                row["file_name"] = own[given]
        names.append(own)
    return names


def _merged(part: FilledPart, contents_: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the files of several pieces as one; numbers that are taken are given anew."""
    first, *others = contents_
    merged = dict(first)
    for content, piece in zip(others, part.pieces[1:], strict=True):
        if _classes(content) != _classes(first):
            raise VisleakError(
                f"part {part.name!r}: sets {part.pieces[0].images.name!r} and"
                f" {piece.images.name!r} have different categories and cannot become one COCO file"
            )
        images = _renumbered(merged["images"], content["images"])
        numbers = {old["id"]: new["id"] for old, new in zip(content["images"], images, strict=True)}
        merged["images"] = [*merged["images"], *images]
        for name in OF_IMAGES:
            if name in merged or name in content:
                rows = [r | {"image_id": numbers[r["image_id"]]} for r in content.get(name, [])]
                merged[name] = [*merged.get(name, []), *_renumbered(merged.get(name, []), rows)]
    return merged


def _classes(content: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    return sorted((row["id"], row["name"]) for row in content.get("categories", []))


def _renumbered(there: Iterable[Mapping[str, Any]], rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return rows whose ``id`` is no other row's: one that is taken counts on from the largest."""
    taken = {row["id"] for row in there if "id" in row}
    largest = max(
        (n for n in (*taken, *(r.get("id") for r in rows)) if isinstance(n, int)), default=0
    )
    found = []
    for row in rows:
        if row.get("id") in taken and "id" in row:
            largest += 1
            found.append(row | {"id": largest})
        else:
            found.append(row)
    return found


def _put(part: FilledPart, names: Sequence[Mapping[str, str]], folder: str, place: Place) -> None:
    for piece, own in zip(part.pieces, names, strict=True):
        for position, stored in contents(piece):
            name = own[str(piece.images.ids[position].as_py())]
            place.put(piece, position, f"{folder}/{name}", stored)
