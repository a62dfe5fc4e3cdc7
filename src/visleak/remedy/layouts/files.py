"""Pictures that are files below a folder, whose sub-folders are labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from visleak.images.folder import FileOpener, as_text
from visleak.remedy.contents import Filled, FilledPart, Stored
from visleak.remedy.layouts.listing import write_listing
from visleak.remedy.layouts.names import free_name
from visleak.remedy.layouts.place import Opened, Place


def write_folder(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part as a folder of pictures under their names; of several, one a sub-folder.

    As ``manifest``, a list of the files where they are.
    """
    if place.how == "manifest":
        return [write_listing(part, place) for part in parts]
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
    names = names_of(part)
    rest = iter(names)
    for piece in part.pieces:
        for position, stored in contents(piece):
            place.put(piece, position, place.below(part, next(rest)), stored)
    texts = [as_text(name) for name in names]
    order = sorted(range(len(names)), key=texts.__getitem__)
    return Opened(
        place.below(part),
        ids=tuple(texts[at] for at in order),
        order=np.array(order, np.int64),
    )


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
