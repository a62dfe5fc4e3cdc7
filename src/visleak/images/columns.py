"""Ids, labels and the other texts that come from the columns of a manifest or a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.images.frames import Frames, read_frames
from visleak.images.request import Request, writable

#: Columns that name an image, in order of preference.
ID_COLUMNS: Final = ("id", "image_id", "index")

#: What the parts of a data set are called, and what they may be called.
SPLITS: Final[Mapping[str, tuple[str, ...]]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


def canonical_split(name: str) -> str:
    """Return ``train``, ``val`` or ``test`` for any of their names, else the name, lower case.

    >>> canonical_split("Validation")
    'val'
    """
    lower = name.strip().lower()
    return next((split for split, names in SPLITS.items() if lower in names), lower)


@dataclass(frozen=True)
class Described:
    """The columns of an image set that a table gives; ``None`` where it gives none."""

    ids: pa.StringArray
    labels: pa.StringArray | None
    captions: pa.StringArray | None
    groups: pa.StringArray | None
    frames: Frames | None


def wanted_columns(names: Sequence[str], request: Request) -> list[str]:
    """Return those columns of a table that can say something about the images.

    Raises:
        UsageError: ``id``, ``label``, ``group`` or ``frame`` names a column that is not there.
    """
    for option, value in request.columns.items():
        if value not in names:
            raise UsageError(
                f"{option} {value!r}: {request.text} has no such column; it has {', '.join(names)}"
            )
    usual = (*ID_COLUMNS, "label", "label_name", "caption", "group", "frame", "split")
    chosen = {*usual, *request.columns.values()}
    return [name for name in names if name in chosen]


def describe(
    table: pa.Table,
    request: Request,
    paths: pa.StringArray | None,
    class_names: Mapping[str, Sequence[str]] | None = None,
) -> Described:
    """Return what a table says about its images.

    Args:
        table: the columns of :func:`wanted_columns`, one row an image.
        request: which columns the caller prefers.
        paths: the file name of each image, which serves as id where no column does.
        class_names: names of the integer labels, by column.
    """
    label = request.label
    if label is None:
        label = next((name for name in ("label_name", "label") if name in table.column_names), None)
    group = None if request.group_pattern else request.group or "group"
    return Described(
        ids=_ids(table, request, paths),
        labels=None if label is None else _labels(table, label, (class_names or {}).get(label)),
        captions=_optional(table, "caption"),
        groups=None if group is None else _optional(table, group),
        frames=_frames(table, request),
    )


def _ids(table: pa.Table, request: Request, paths: pa.StringArray | None) -> pa.StringArray:
    if request.id is not None:
        return as_text(table[request.id], request.id)
    for name in ID_COLUMNS:
        if name in table.column_names and can_identify(table[name]):
            return as_text(table[name], name)
    if paths is not None and can_identify(paths):
        return paths
    return pa.array(range(table.num_rows), pa.int64()).cast(pa.string())


def can_identify(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column tells all rows apart: text or whole numbers, no null, all different."""
    kind = column.type
    if not (pa.types.is_integer(kind) or _is_text(kind)) or column.null_count:
        return False
    distinct = int(pc.count_distinct(column).as_py())
    return distinct == len(column)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_text(column: pa.Array | pa.ChunkedArray, name: str) -> pa.StringArray:
    """Return a column as one Arrow string array; numbers in decimal, nulls kept.

    Raises:
        VisleakError: the column holds something that is no text.
    """
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        text = column.cast(pa.string())
        text.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise VisleakError(
            f"column {name!r} of type {column.type} holds something that is no text"
        ) from error
    return text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text


def _labels(table: pa.Table, name: str, names: Sequence[str] | None) -> pa.StringArray:
    column = table[name]
    if not names or not pa.types.is_integer(column.type):
        return as_text(column, name)
    # Hubs write -1 for "no label"; it stays -1.
    known = pc.and_(pc.greater_equal(column, 0), pc.less(column, len(names)))
    inside = pc.if_else(known, column, None)
    taken = pc.take(pa.array(names, pa.string()), inside)
    return as_text(pc.coalesce(taken, column.cast(pa.string())), name)


def _optional(table: pa.Table, name: str) -> pa.StringArray | None:
    return as_text(table[name], name) if name in table.column_names else None


def _frames(table: pa.Table, request: Request) -> Frames | None:
    if request.frame_pattern is not None:
        return None
    name = request.frame or "frame"
    if name not in table.column_names:
        return None
    return read_frames(table[name], f"{request.text}: column {name!r}")


def rows_of_split(table: pa.Table, request: Request) -> pa.Array | None:
    """Return the row numbers of the split that ``#split`` asks for; ``None`` for all rows.

    Raises:
        UsageError: there is no ``split`` column or no such split.
    """
    if not request.split:
        return None
    if "split" not in table.column_names:
        raise UsageError(
            f"source {request.text!r}: #{request.split} needs a `split` column; there is none"
        )
    found = [canonical_split(value or "") for value in as_text(table["split"], "split").to_pylist()]
    wanted = canonical_split(request.split)
    rows = [row for row, split in enumerate(found) if split == wanted]
    if not rows:
        raise UsageError(
            f"source {request.text!r}: no split {request.split!r}; there are"
            f" {', '.join(sorted({split for split in found if split}))}"
        )
    return pa.array(rows, pa.int64())


def class_names_of(schema: pa.Schema) -> dict[str, Sequence[str]]:
    """Return the class names that the Hugging Face metadata of a Parquet schema give, by column."""
    import json

    try:
        features: Any = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        found = {
            str(column): [writable(str(name)) for name in feature["names"]]
            for column, feature in features.items()
            if isinstance(feature, dict) and isinstance(feature.get("names"), list)
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return dict(found)
