"""Pictures that are files below a folder, whose sub-folders are labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from visleak.images.folder import FileOpener, as_text
from visleak.images.listing import is_picture_file
from visleak.remedy.contents import Filled, FilledPart, path_of
from visleak.remedy.fitting import Stored
from visleak.remedy.layouts.listing import write_listing
from visleak.remedy.layouts.names import free_name
from visleak.remedy.layouts.place import Opened, Place


def write_folder(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part as a folder of pictures under their names; of several, one a sub-folder.

    Files that have a picture's name but for the ending (captions, boxes) go with it. As
    ``manifest``, a list of the files where they are.
    """
    if place.how == "manifest":
        return [write_listing(part, place) for part in parts]
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
    names = names_of(part)
    rest = iter(names)
    beside = SideFiles()
    for piece in part.pieces:
        for position, stored in contents(piece):
            name = next(rest)
            place.put(piece, position, place.below(part, name), stored)
            for file in beside.of(path_of(piece.images, position)):
                stem, ending = os.path.splitext(name)[0], os.path.splitext(file)[1]
                path = place.folder / place.below(part, stem + os.fsdecode(ending))
                if not os.path.lexists(path):  # two pictures may share a caption
                    place.put_file(file, path)
    texts = [as_text(name) for name in names]
    order = sorted(range(len(names)), key=texts.__getitem__)
    return Opened(
        place.below(part),
        ids=tuple(texts[at] for at in order),
        order=np.array(order, np.int64),
    )


class SideFiles:
    """Files that belong to pictures: captions and boxes, named as they are but for the ending."""

    def __init__(self) -> None:
        self._folder = b""
        self._files: dict[bytes, list[bytes]] = {}

    def of(self, picture: bytes | None) -> list[bytes]:
        """Return the side files of a picture; pictures of one folder are asked for in a row."""
        if picture is None:
            return []
        folder, name = os.path.split(picture)
        if folder != self._folder:
            self._folder, self._files = folder, {}
            with os.scandir(folder) as entries:
                for entry in entries:
                    text = os.fsdecode(entry.name)
                    hidden = text.startswith(".") or "." not in text
                    if hidden or not entry.is_file():
                        continue
                    # what is a picture without its name saying so belongs to itself
                    if not is_picture_file(os.fsdecode(entry.path)):
                        stem = os.path.splitext(entry.name)[0]
                        self._files.setdefault(stem, []).append(entry.path)
        return sorted(self._files.get(os.path.splitext(name)[0], ()))


def contents(piece: Filled) -> Iterator[tuple[int, Stored | None]]:
    """Yield the places of a piece, and the content of what is no file."""
    if isinstance(piece.images.opener, FileOpener):
        for position in piece.keep.tolist():
            stand = piece.instead.get(position)
            yield position, None if stand is None else stand.stored
    else:
        yield from zip(piece.keep.tolist(), piece.stored(), strict=True)


def names_of(part: FilledPart) -> list[str]:
    """Return a name for each image of a part: its own, changed only where two would be one.

    An image that comes from another set and finds its name taken gets that set's name before its
    own: ``cat/1.png`` of ``train`` becomes ``cat/train-1.png``.
    """
    taken: set[str] = set()
    names = []
    for piece in part.pieces:
        for name in _own_names(piece):
            free = free_name(name, piece.images.name, taken)
            taken.add(free)
            names.append(free)
    return names


def _own_names(piece: Filled) -> Iterator[str]:
    opener = piece.images.opener
    if not isinstance(opener, FileOpener):
        yield from (str(name) for name in piece.column("ids"))
        return
    for position in piece.keep.tolist():
        yield os.fsdecode(opener.names[position].as_py())
