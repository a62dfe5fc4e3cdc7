"""Names that files get inside a result."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from visleak.images.columns import canonical_split
from visleak.images.sources import locate
from visleak.remedy.contents import FilledPart
from visleak.remedy.layouts.place import is_outside


def inner_name(name: str) -> str:
    """Return a name below the folder of a result for any path or address.

    >>> inner_name("cats//1.png"), inner_name("../dogs/2.png"), inner_name("/mnt/3.png")
    ('cats/1.png', 'dogs/2.png', 'mnt/3.png')
    >>> inner_name("https://host/a/4.png?sig=1")
    'host/a/4.png'
    """
    if re.match(r"[a-z][a-z0-9+.-]*://", name):
        name = name.partition("://")[2].partition("?")[0]
    if not is_outside(name):
        return os.path.normpath(name)
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def free_name(name: str, mark: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken, with a mark before its last part if need be.

    >>> free_name("cat/1.png", "train", {"cat/1.png"})
    'cat/train-1.png'
    """
    folder, slash, last = name.rpartition("/")
    free, number = name, 1
    while free in taken:
        free = f"{folder}{slash}{mark}{f'-{number}' if number > 1 else ''}-{last}"
        number += 1
    return free


def split_of(part: FilledPart) -> str:
    """Return the split a part has in a table with a ``split`` column; empty where none was asked.

    Where its pieces are of several splits, the one that is called like the part.
    """
    splits = [locate(piece.images.source).split for piece in part.pieces]
    if len(set(splits)) == 1:
        return splits[0]
    own = canonical_split(part.name)
    return next((split for split in splits if canonical_split(split) == own), part.name)
