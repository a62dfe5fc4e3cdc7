"""Rows that a Python program holds: data frames of pandas or polars, and tables of Arrow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

import pyarrow as pa

from visleak.errors import UsageError
from visleak.formats.memory import MemoryOpener
from visleak.formats.request import IMAGE_COLUMNS, Request, describe, wanted_columns
from visleak.formats.tables import manifest_set
from visleak.records import ImageSet


class DataFrame(Protocol):
    """What data frames of pandas and polars have in common."""

    columns: Sequence[str]

    def __getitem__(self, name: str) -> Sequence[object]: ...


def is_rows(source: object) -> TypeGuard[pa.Table | DataFrame]:
    """Whether an object is a table; no library is loaded to find out."""
    library = type(source).__module__.partition(".")[0]
    frame = library in ("pandas", "polars") and hasattr(source, "columns")
    return frame or isinstance(source, pa.Table)


def open_rows(source: pa.Table | DataFrame, request: Request) -> ImageSet:
    """Make a set of a table with a column ``path``, relative to the working folder, or ``image``.

    Images may be encoded bytes, a struct of ``bytes`` and ``path``, arrays or Pillow images. Ids
    are the paths, or row numbers, unless a column is named.
    """
    names = source.column_names if isinstance(source, pa.Table) else list(map(str, source.columns))
    image = next((name for name in IMAGE_COLUMNS if name in names), None)
    if image is None and "path" not in names:
        raise UsageError(
            "source: a table must have a column `path` with file names or `image` with images;"
            f" got the columns {', '.join(names) or '(none)'}"
        )
    chosen = [name for name in wanted_columns(names, request) if name != image]
    if image is None:
        named = ["path", *(name for name in chosen if name != "path")]
        return manifest_set(request, _table(source, named), os.getcwd())
    images = [_content(value) for value in _values(source, image)]
    if not images:
        request.refuse_empty("it has no rows")
    numbers = pa.array(map(str, range(len(images))), pa.string())
    table = _table(source, chosen) if chosen else pa.table({"row": numbers})
    ids, columns = describe(table, request, None, {})
    return request.image_set(ids, numbers, MemoryOpener(images), **columns)


def _table(source: pa.Table | DataFrame, names: Sequence[str]) -> pa.Table:
    """Return some columns as text where Arrow has no type for them."""
    if isinstance(source, pa.Table):
        return source.select(names)
    return pa.table({name: _column(_values(source, name)) for name in names})


def _values(source: pa.Table | DataFrame, name: str) -> list[object]:
    column = source[name]
    return list(column.to_pylist() if isinstance(column, pa.ChunkedArray) else column)


def _column(values: Sequence[object]) -> pa.Array:
    # pandas marks what is missing by NaN
    known = [None if value is None or value != value else value for value in values]  # noqa: PLR0124
    try:
        return pa.array(known)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array((None if value is None else str(value) for value in known), pa.string())


def _content(value: object) -> object:
    """Return the image in a cell; of a struct the bytes, or the file that it names."""
    return value.get("bytes") or value.get("path") if isinstance(value, Mapping) else value
