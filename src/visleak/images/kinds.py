"""Which kinds of source a file, a folder or an address itself tells."""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.images.archive import TARS
from visleak.images.formats import SUFFIXES


@dataclass(frozen=True)
class Kind:
    """A kind of source that the file itself tells.

    Attributes:
        shown: how messages call it.
        is_it: whether a path is one.
        opens: dotted path of the function that opens it.
        options: what may stand after ``?``.
    """

    shown: str
    is_it: Callable[[Path], bool]
    opens: str
    options: tuple[str, ...] = ()


def _ends(*suffixes: str) -> Callable[[Path], bool]:
    return lambda path: path.is_file() and path.name.lower().endswith(suffixes)


def is_glob(path: Path) -> bool:
    """Whether a path is a pattern and not the name of something."""
    return glob.has_magic(str(path)) and not path.exists()


def _is_picture(path: Path) -> bool:
    from visleak.images.listing import is_picture_file

    return path.is_file() and is_picture_file(str(path))


def _holds_shards(path: Path) -> bool:
    """Whether a folder holds Parquet files and no picture files."""
    if not path.is_dir():
        return False
    from visleak.images.folder import Walk
    from visleak.images.parquet import shards_of

    return bool(shards_of(path)) and next(Walk(str(path)).names(), None) is None


def _lists_shards(path: Path) -> bool:
    """Whether a text file names tar archives and nothing else."""
    if not _ends(".txt")(path):
        return False
    from visleak.images.lists import read_list

    names = read_list(path)
    return bool(names) and all(name.lower().endswith(TARS) for name in names)


#: SOURCE without a prefix, in the order in which they are tried.
KINDS: Final = (
    Kind("a folder of Parquet files", _holds_shards, "visleak.images.parquet:open_parquet"),
    Kind("a folder", Path.is_dir, "visleak.images.folder:open_folder"),
    Kind(
        "a glob",
        lambda path: is_glob(path) and path.suffix != ".parquet",
        "visleak.images.lists:open_glob",
    ),
    Kind("a glob of .parquet files", is_glob, "visleak.images.parquet:open_parquet"),
    Kind(
        "a .txt list of .tar shards",
        _lists_shards,
        "visleak.images.webdataset:open_shard_list",
        ("image", "remote"),
    ),
    Kind("a .txt file list", _ends(".txt"), "visleak.images.lists:open_list", ("remote",)),
    Kind(
        "a .csv manifest",
        _ends(".csv", ".tsv"),
        "visleak.images.manifest:open_manifest",
        ("remote",),
    ),
    Kind("a .parquet file", _ends(".parquet"), "visleak.images.parquet:open_parquet", ("remote",)),
    Kind("a .zip archive", _ends(".zip"), "visleak.images.archive_zip:open_zip"),
    Kind("a .tar archive", _ends(*TARS), "visleak.images.archive_tar:open_tar"),
    Kind("a picture", _is_picture, "visleak.images.folder:open_file"),
)


#: An address by its ending; anything else is a folder.
REMOTE: Final = (
    ((".csv", ".tsv"), "visleak.images.manifest:open_manifest"),
    ((".parquet",), "visleak.images.parquet:open_parquet"),
    ((".txt",), "visleak.images.lists:open_list"),
    ((".zip",), "visleak.images.archive_zip:open_zip"),
    (TARS, "visleak.images.archive_tar:open_tar"),
    (tuple(SUFFIXES), "visleak.images.remote:open_remote_picture"),
)
