"""Tables that name picture files: CSV, TSV and Parquet manifests."""

from __future__ import annotations

import csv
import io
import os

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from visleak.delimited import arrow_encoding, dialect_of
from visleak.errors import VisleakError
from visleak.images.addresses import folder_of, is_address, path_of, redacted
from visleak.images.columns import as_text, class_names_of, describe, rows_of_split, wanted_columns
from visleak.images.fetching import RemoteOpener, remote_places, without_secrets
from visleak.images.folder import FileOpener
from visleak.images.remote_file import arrow_source, opened
from visleak.images.request import Request
from visleak.records import ImageSet, Opener


def open_manifest(request: Request) -> ImageSet:
    """List the files that a CSV (or TSV) manifest names, in its order.

    Raises:
        VisleakError: no ``path`` column, or no CSV.
        UsageError: a column was asked for that is not there.
    """
    return manifest_set(request, read_csv(request.place), folder_of(request.place))


def read_csv(place: str | os.PathLike[str]) -> pa.Table:
    """Read a CSV file, all columns as text; empty cells are null.

    Raises:
        VisleakError: the file is no CSV with a header, or its encoding is not known for sure.
    """
    place = os.fspath(place)
    path = path_of(place) if is_address(place) else place
    try:
        with opened(place) as file:
            dialect = dialect_of(file, path)
            file.seek(0)
            lines = io.TextIOWrapper(file, encoding=dialect.encoding, newline="")
            header = next(csv.reader(lines, delimiter=dialect.delimiter), [])
        with arrow_source(place) as source:
            return pa.csv.read_csv(
                source,
                read_options=pa.csv.ReadOptions(encoding=arrow_encoding(dialect)),
                parse_options=pa.csv.ParseOptions(
                    delimiter=dialect.delimiter, newlines_in_values=True
                ),
                convert_options=pa.csv.ConvertOptions(
                    column_types={name: pa.string() for name in header},
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        said = " ".join(str(error).split())[:200]
        advice = "; save it as UTF-8" if "UTF8" in said else ""
        raise VisleakError(
            f"manifest {redacted(place)} cannot be read as CSV: {said}{advice}"
        ) from error


def manifest_set(request: Request, table: pa.Table, root: str) -> ImageSet:
    """Return the set of a table with a ``path`` column, relative to the folder ``root``.

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
    fetched = remote_places(request, paths.to_pylist(), root)
    described = describe(table, request, without_secrets(paths), class_names_of(table.schema))
    if fetched is None:
        locators = pa.array(
            (os.path.join(root, name) if name else root for name in paths.to_pylist()), pa.string()
        )
        opener: Opener = FileOpener(root, paths.cast(pa.binary()))
    else:
        locators = pc.fill_null(without_secrets(fetched), redacted(root))
        opener = RemoteOpener(fetched)
    return request.image_set(
        without_secrets(described.ids),
        locators,
        opener,
        labels=described.labels,
        captions=described.captions,
        groups=described.groups,
        frames=described.frames,
    )
