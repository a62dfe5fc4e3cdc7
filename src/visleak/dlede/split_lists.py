"""The parts of a set as tables of their own: a recipe's split can then be opened again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.dlede.lesson import Split
from visleak.errors import UsageError, VisleakError
from visleak.images import open_images
from visleak.records import ImageSet
from visleak.storage import write_tables

#: Columns of a table, and where an image set keeps them.
COLUMNS: Final = {"label": "labels", "caption": "captions", "group": "groups", "frame": "frames"}


def listed(split: Split, folder: Path, *, force: bool = False) -> Split:
    """Write both parts of a split as tables of paths, and return them opened from there.

    Ids, labels, groups and frames stay as they are. Images are not copied. A split whose images
    are no files of their own is returned as it is.

    Args:
        split: parts of one set.
        folder: of the tables, ``train.parquet`` and ``test.parquet``.
        force: tables of another split that are there may be replaced.

    Raises:
        UsageError: tables of another split are there.
        VisleakError: the disk refuses.
    """
    if not all(_are_files(images) for images in (split.train, split.test)):
        return split
    parts = {folder / f"{images.name}.parquet": images for images in (split.train, split.test)}
    tables = {path: _table(images) for path, images in parts.items()}
    if not force:
        _refuse_others(tables)
    for path, table in tables.items():
        try:
            write_tables(path, table.schema, [table])
        except OSError as error:
            raise VisleakError(f"{path} cannot be written: {error}") from error
    train, test = (_opened(path, images) for path, images in parts.items())
    return replace(split, train=train, test=test)


def _refuse_others(tables: Mapping[Path, pa.Table]) -> None:
    """Refuse to write over the tables of another split.

    Raises:
        UsageError: there are some, or files that are no tables.
    """
    for path, table in tables.items():
        try:
            same = not path.exists() or pq.read_table(path).equals(table)
        except (OSError, pa.ArrowException):
            same = False
        if not same:
            raise UsageError(
                f"{path} is of another split; choose another folder with -o DIR, or --force"
                " replaces it"
            )


def _are_files(images: ImageSet) -> bool:
    return all(
        locator is not None and Path(locator).is_file() for locator in images.locators.to_pylist()
    )


def _table(images: ImageSet) -> pa.Table:
    places = (str(Path(locator).absolute()) for locator in images.locators.to_pylist())
    columns: dict[str, Any] = {"path": pa.array(places, pa.string()), "id": images.ids}
    for name, kept in COLUMNS.items():
        column = getattr(images, kept)
        if column is not None:
            # numbers would be read as numbers of frames
            timed = images.timed and name == "frame"
            columns[name] = column.cast(pa.timestamp("ms", "UTC")) if timed else column
    return pa.table(columns)


def _opened(path: Path, images: ImageSet) -> ImageSet:
    opened: Any = open_images(str(path), name=images.name, dataset=images.dataset, id="id")
    made: ImageSet = replace(opened, roles=images.roles, annotated=images.annotated)
    return made
