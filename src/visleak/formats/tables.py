"""Tables that name image files: CSV, TSV and Parquet."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from visleak.delimited import arrow_encoding, dialect_of, write_csv_rows
from visleak.errors import VisleakError, explaining, one_line
from visleak.formats.addresses import folder_of, is_address, path_of, redacted
from visleak.formats.files import FileOpener, RemoteOpener, remote_places, without_secrets
from visleak.formats.listing import Walk, globbed
from visleak.formats.remote import StoreError, arrow_source, opened
from visleak.formats.request import (
    Request,
    class_names_of,
    describe,
    rows_of_split,
    text_column,
    wanted_columns,
)
from visleak.formats.sources import is_glob
from visleak.formats.writing import (
    Destination,
    OutputPart,
    OutputSource,
    Selection,
    are_row_numbers,
    file_name,
    files_of,
    ids_of,
    put_files,
    source_place,
    split_of,
    with_split,
)
from visleak.records import ImageSet, Opener


def open_manifest(request: Request) -> ImageSet:
    """List the files that a CSV (or TSV) manifest names, in its order."""
    return manifest_set(request, read_csv(request.place), folder_of(request.place))


def write_table(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part as a table of the kind it came in: all columns, the rows that are kept.

    Paths lead to the files where they are (``manifest``), or to those beside the table. Where ids
    were paths and paths change, a column ``id`` keeps them.
    """
    tables = [_rows(piece) for piece in part.pieces]
    names = tables[0].column_names
    other = next(
        (p for p, t in zip(part.pieces, tables, strict=True) if t.column_names != names), None
    )
    if other is not None:
        raise VisleakError(
            f"part {part.name!r}: sets {part.pieces[0].images.name!r} and {other.images.name!r}"
            " have different columns and cannot become one table"
        )
    table = pa.concat_tables(tables, promote_options="permissive")
    file = file_name(source_place(part.pieces[0]))
    if "*" in file or not Path(file).suffix:
        file = f"{part.name}.parquet"
    path = place.made(place.below(part, file))
    listed = text_column(table["path"], "path").to_pylist()
    if place.how == "manifest":
        paths = files_of(part, place, path)
    else:
        paths = put_files(part, place, [name or "" for name in listed])
    options = dict(part.pieces[0].images.options)
    own, ids = part.column("ids"), ids_of(part)
    by_path = own == listed
    if by_path and paths != listed:
        table = _with_ids(table, ids, part)
        options.pop("id", None)
    kind = table.schema.field("path").type
    table = _replaced(table, "path", pa.array(paths, pa.string()).cast(kind))
    split = split_of(part)
    if split:
        table = with_split(table, split)
    _save(table, path)
    return OutputSource(
        place.below(part, file),
        after=f"#{split}" if split else "",
        ids=tuple(ids) if by_path else None,
        renamed=not by_path and (ids != own or are_row_numbers(part.pieces[0].images)),
        options=options,
    )


def read_csv(place: str | os.PathLike[str]) -> pa.Table:
    """Read a CSV file, all columns as text; empty cells are null."""
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
        said = one_line(error)
        advice = "; save it as UTF-8" if "UTF8" in said else ""
        raise VisleakError(
            f"manifest {redacted(place)} cannot be read as CSV: {said}{advice}"
        ) from error


def manifest_set(request: Request, table: pa.Table, root: str) -> ImageSet:
    """Return the set of a table with a ``path`` column, relative to the folder ``root``."""
    names = table.column_names
    if names.count("path") != 1:
        raise VisleakError(
            f"{request.text} needs one column `path` with file names, or `image` with the images"
            f" themselves; it has {', '.join(names)}"
        )
    chosen = wanted_columns(names, request)
    twice = next((name for name in chosen if names.count(name) > 1), None)
    if twice is not None:
        raise VisleakError(f"{request.text} has more than one column {twice!r}; keep one")
    rows = rows_of_split(table, request)
    if rows is not None:
        table = table.take(rows)
    paths = text_column(table["path"], "path")
    fetched = remote_places(request, paths.to_pylist(), root)
    ids, columns = describe(table, request, without_secrets(paths), class_names_of(table.schema))
    if fetched is None:
        locators = pa.array(
            (os.path.join(root, name) if name else root for name in paths.to_pylist()), pa.string()
        )
        opener: Opener = FileOpener(root, paths.cast(pa.binary()))
    else:
        locators = pc.fill_null(without_secrets(fetched), redacted(root))
        opener = RemoteOpener(fetched)
    return request.image_set(
        without_secrets(ids),
        locators,
        opener,
        **columns,
    )


def parquet_files(request: Request) -> list[str]:
    """Return the files of a Parquet source: itself, those of a folder, or those of a glob."""
    path, place = request.path, request.place
    if is_address(place):
        return _remote_files(place, request) if "*" in place else [place]
    if path.is_dir():
        return [str(file) for file in shards_of(path)]
    return [place] if path.exists() else globbed(place, ".parquet")


def _remote_files(pattern: str, request: Request) -> list[str]:
    try:
        return globbed(pattern, ".parquet") or request.refuse_empty("no object matches")
    except StoreError as error:
        raise VisleakError(f"{request.text} cannot be listed: {error}") from error


def shards_of(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, or of its sub-folder ``data``, by name."""
    for place in (folder, folder / "data"):
        if not place.is_dir():
            continue
        found = sorted(file for file in place.glob("*.parquet") if not file.name.startswith("."))
        if found:
            return found
    return []


def is_parquet_folder(path: Path) -> bool:
    """Whether a folder holds Parquet files and no image files."""
    return path.is_dir() and bool(shards_of(path)) and next(Walk(str(path)).names(), None) is None


def is_parquet_glob(path: Path) -> bool:
    """Whether a path is a pattern of Parquet files."""
    return is_glob(path) and path.suffix == ".parquet"


def read_footer(file: str | os.PathLike[str]) -> pq.FileMetaData:
    """Read what a Parquet file says of itself."""
    file = os.fspath(file)
    what = f"{redacted(file)} cannot be read as Parquet"
    with explaining(what, pa.ArrowException, OSError), arrow_source(file) as source:
        return pq.read_metadata(source)


def read_tables(files: Sequence[str | os.PathLike[str]], columns: list[str]) -> pa.Table:
    """Read some columns of several Parquet files, one after the other."""
    tables = []
    what = f"{redacted(os.fspath(files[0]))}: its columns cannot be read"
    with explaining(what, pa.ArrowException, OSError):
        for file in files:
            with arrow_source(os.fspath(file)) as source:
                tables.append(pq.ParquetFile(source).read(columns=columns))
        return pa.concat_tables(tables, promote_options="permissive")


def _rows(piece: Selection) -> pa.Table:
    """Return the kept rows of a table, all columns."""
    request = Request.at(piece.images.source)
    if request.place.lower().endswith((".csv", ".tsv")):
        table = read_csv(request.place)
    else:
        files = parquet_files(request)
        table = read_tables(files, read_footer(files[0]).schema.to_arrow_schema().names)
    rows = rows_of_split(table, request)
    if rows is not None:
        table = table.take(rows)
    return table.take(pa.array(piece.keep))


def _with_ids(table: pa.Table, ids: Sequence[str], part: OutputPart) -> pa.Table:
    if "id" in table.column_names:
        raise VisleakError(
            f"part {part.name!r}: paths change, and the ids that they are; its column `id` does not"
            " tell all rows apart, so it cannot keep them: rename that column, or choose ids with"
            " --id when you audit"
        )
    return table.append_column("id", pa.array(ids, pa.string()))


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _save(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        with path.open("wb") as opened:
            pq.write_table(table, opened)
        return
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            write_csv_rows(file, [table.column_names], delimiter)
            for batch in table.to_batches(max_chunksize=10_000):
                columns = [pc.fill_null(column, "").to_pylist() for column in batch.columns]
                write_csv_rows(file, zip(*columns, strict=True), delimiter)
    except UnicodeEncodeError as error:
        raise VisleakError(f"a name in {redacted(path.name)} is not UTF-8") from error
