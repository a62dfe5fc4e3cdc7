"""Tables that name picture files: CSV, TSV and Parquet manifests."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from visleak.errors import VisleakError
from visleak.images.columns import as_text, class_names_of, describe, rows_of_split, wanted_columns
from visleak.images.folder import FileOpener
from visleak.images.request import Request
from visleak.records import ImageSet


def open_manifest(request: Request) -> ImageSet:
    """List the files that a CSV (or TSV) manifest names, in its order.

    Raises:
        VisleakError: no ``path`` column, or no CSV.
        UsageError: a column was asked for that is not there.
    """
    return manifest_set(request, read_csv(request.path), request.path.parent)


def read_csv(path: Path) -> pa.Table:
    """Read a CSV file, all columns as text; empty cells are null.

    Raises:
        VisleakError: the file is no UTF-8 CSV with a header.
    """
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines, delimiter=delimiter), [])
        return pa.csv.read_csv(
            path,
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in header},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        said = " ".join(str(error).split())[:200]
        raise VisleakError(f"manifest {path} cannot be read as CSV: {said}") from error


def manifest_set(request: Request, table: pa.Table, root: Path) -> ImageSet:
    """Return the set of a table with a ``path`` column, relative to ``root``.

    Raises:
        VisleakError: there is no such column.
    """
    names = table.column_names
    if names.count("path") != 1:
        raise VisleakError(
            f"{request.text} needs one column `path` with file names, or `image` with the pictures"
            f" themselves; it has {', '.join(names)}"
        )
    chosen = wanted_columns(names, request)
    twice = next((name for name in chosen if names.count(name) > 1), None)
    if twice is not None:
        raise VisleakError(f"{request.text} has more than one column {twice!r}; keep one")
    rows = rows_of_split(table, request)
    if rows is not None:
        table = table.take(rows)
    paths = as_text(table["path"], "path")
    described = describe(table, request, paths, class_names_of(table.schema))
    return request.image_set(
        described.ids,
        pa.array(
            (os.path.join(root, name) if name else str(root) for name in paths.to_pylist()),
            pa.string(),
        ),
        FileOpener(str(root), paths.cast(pa.binary())),
        labels=described.labels,
        captions=described.captions,
        groups=described.groups,
        frames=described.frames,
    )
