"""Names that files get inside a result."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from visleak.images.addresses import is_address, path_of
from visleak.images.columns import as_text, canonical_split
from visleak.images.sources import locate
from visleak.records import ImageSet
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


def file_name(place: str) -> str:
    """Return the last name of a path or an address.

    >>> file_name("a/b.zip"), file_name("https://host/b.zip?sig=1")
    ('b.zip', 'b.zip')
    """
    return os.path.basename(path_of(place) if is_address(place) else place)


def shard_names(files: Sequence[str]) -> list[str]:
    """Return the names of shards in the result, which sort in the order of the shards.

    >>> shard_names(["a/train-0.parquet", "a/train-1.parquet"])
    ['train-0.parquet', 'train-1.parquet']
    >>> shard_names(["train.parquet", "test.parquet"])
    ['00-train.parquet', '01-test.parquet']
    """
    names = [file_name(file) for file in files]
    if all(before < after for before, after in itertools.pairwise(names)):
        return names
    width = max(2, len(str(len(names) - 1)))
    return [f"{number:0{width}d}-{name}" for number, name in enumerate(names)]


def split_of(part: FilledPart) -> str:
    """Return the split a part has in a table with a ``split`` column; empty where none was asked.

    Where its pieces are of several splits, the one that is called like the part.
    """
    splits = [locate(piece.images.source).split for piece in part.pieces]
    if len(set(splits)) == 1:
        return splits[0]
    own = canonical_split(part.name)
    return next((split for split in splits if canonical_split(split) == own), part.name)


def with_split(table: pa.Table, split: str) -> pa.Table:
    """Return a table whose rows all say that they are of a split."""
    own = canonical_split(split)
    values = [
        value if canonical_split(value or "") == own else split
        for value in as_text(table["split"], "split").to_pylist()
    ]
    column = pa.array(values, pa.string()).cast(table.schema.field("split").type)
    return table.set_column(table.column_names.index("split"), table.schema.field("split"), column)


def are_row_numbers(images: ImageSet) -> bool:
    """Whether the ids of a set say no more than where its images stand."""
    return bool(images.ids.equals(pa.array(range(len(images)), pa.int64()).cast(pa.string())))
