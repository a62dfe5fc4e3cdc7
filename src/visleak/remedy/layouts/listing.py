"""A plain list of pictures that are files: where each lies, with what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.images.frames import as_iso
from visleak.remedy.contents import FilledPart
from visleak.remedy.layouts.place import Opened, Place
from visleak.store import write_csv_rows

#: Columns beside ``id`` and ``path``, and those of a set that they are taken from.
COLUMNS: Final = {"label": "labels", "caption": "captions", "group": "groups", "frame": "frames"}


def write_listing(
    part: FilledPart, place: Place, name: str = "", paths: Sequence[str] = ()
) -> Opened:
    """Write ``PART.csv`` (id, path, and label, caption, group, frame where they are known).

    Paths are relative to the list, so it keeps working when it is moved together with the data.
    It is read back as a CSV manifest; its cells are plain, so they are not guarded against
    spreadsheets, which would change ids.

    Args:
        part: what is listed.
        place: where.
        name: of the list, if not ``PART.csv``.
        paths: of the files, if not those where they are.

    Raises:
        UsageError: an image is no file.
        VisleakError: a name is not UTF-8.
    """
    name = name or f"{part.name}.csv"
    path = place.made(name)
    columns = {
        column: _frames(part) if column == "frame" else part.column(source)
        for column, source in COLUMNS.items()
        if any(getattr(piece.images, source) is not None for piece in part.pieces)
    }
    ids = ids_of(part)
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            write_csv_rows(file, [("id", "path", *columns)])
            rows = zip(ids, paths or files_of(part, place, path), *columns.values(), strict=True)
            write_csv_rows(file, (["" if v is None else v for v in row] for row in rows))
    except UnicodeEncodeError as error:
        raise VisleakError(
            f"a name of part {part.name!r} is not UTF-8 and cannot be listed; use --format copy"
            " or --format link"
        ) from error
    return Opened(name, ids=tuple(ids))


def _frames(part: FilledPart) -> list[str | int | None]:
    """Return frame numbers, and times as texts that are read as times again."""
    return [
        as_iso(int(value)) if value is not None and piece.images.timed else value
        for piece in part.pieces
        for value in piece.column("frames")
    ]


def files_of(part: FilledPart, place: Place, beside: Path) -> list[str]:
    """Return the file of each image of a part, relative to the folder of a list.

    Raises:
        UsageError: an image is no file.
    """
    found = []
    for piece in part.pieces:
        for position in piece.keep.tolist():
            file = piece.path(position)
            if file is None:
                raise UsageError(
                    f"set {piece.images.name!r}: an image is no file that a list could name; use"
                    " --format copy"
                )
            found.append(place.link_to(file, beside))
    return found


def ids_of(part: FilledPart) -> list[str]:
    """Return the ids of a part; one that is taken gets the name of its set before it."""
    taken: set[str] = set()
    ids = []
    for piece in part.pieces:
        for own in piece.column("ids"):
            free = str(own)
            while free in taken:
                free = f"{piece.images.name}/{free}"
            taken.add(free)
            ids.append(free)
    return ids
