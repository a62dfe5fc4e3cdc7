"""Tables and lists that name picture files: the rows that are kept, with paths made right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError
from visleak.images.addresses import is_address, redacted
from visleak.images.columns import as_text, rows_of_split
from visleak.images.folder import FileOpener
from visleak.images.lists import read_list, relative_name
from visleak.images.manifest import read_csv
from visleak.images.parquet import parquet_files, read_footer, read_tables
from visleak.images.request import Request
from visleak.images.sources import locate
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.layouts.files import contents
from visleak.remedy.layouts.listing import files_of, ids_of, write_listing
from visleak.remedy.layouts.names import (
    are_row_numbers,
    file_name,
    free_name,
    inner_name,
    split_of,
    with_split,
)
from visleak.remedy.layouts.place import Opened, Place
from visleak.storage import write_csv_rows


def write_list(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part as a ``.txt`` list beside its files; as ``manifest``, a list with ids.

    Where a name leads out of the list's folder, the list becomes a table that keeps the ids.
    """
    return [_write_list(part, place) for part in parts]


def _write_list(part: FilledPart, place: Place) -> Opened:
    if place.how == "manifest":
        return write_listing(part, place)
    listed = [name for piece in part.pieces for name in _listed(piece)]
    names = _put_files(part, place, listed)
    file = file_name(_place_of(part.pieces[0]))
    local = all(isinstance(piece.images.opener, FileOpener) for piece in part.pieces)
    if names != listed or not local:
        return write_listing(part, place, place.below(part, f"{Path(file).stem}.csv"), names)
    path = place.made(place.below(part, file))
    text = "".join(f"{name}\n" for name in names)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return Opened(place.below(part, file))


def _listed(piece: Filled) -> list[str]:
    """Return the kept names of a list, in their plain form."""
    place = _place_of(piece)
    root = Path(place).parent
    names = read_list(place)
    return [
        names[at] if is_address(names[at]) else relative_name(names[at], root)
        for at in piece.keep.tolist()
    ]


def write_table(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part as a table of the kind it came in: all columns, the rows that are kept.

    Paths lead to the files where they are (``manifest``), or to those beside the table. Where ids
    were paths and paths change, a column ``id`` keeps them.

    Raises:
        VisleakError: the sets of a part have different columns.
    """
    return [_write_table(part, place) for part in parts]


def _write_table(part: FilledPart, place: Place) -> Opened:
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
    file = file_name(_place_of(part.pieces[0]))
    if "*" in file or not Path(file).suffix:
        file = f"{part.name}.parquet"
    path = place.made(place.below(part, file))
    listed = as_text(table["path"], "path").to_pylist()
    if place.how == "manifest":
        paths = files_of(part, place, path)
    else:
        paths = _put_files(part, place, [name or "" for name in listed])
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
    return Opened(
        place.below(part, file),
        after=f"#{split}" if split else "",
        ids=tuple(ids) if by_path else None,
        renamed=not by_path and (ids != own or are_row_numbers(part.pieces[0].images)),
        options=options,
    )


def _place_of(piece: Filled) -> str:
    return locate(piece.images.source).place


def _rows(piece: Filled) -> pa.Table:
    """Return the kept rows of a table, all columns."""
    found = locate(piece.images.source)
    request = Request(
        text=piece.images.source, path=Path(found.place), place=found.place, split=found.split
    )
    if found.opens.endswith(":open_parquet"):
        files = parquet_files(request)
        table = read_tables(files, read_footer(files[0]).schema.to_arrow_schema().names)
    else:
        table = read_csv(found.place)
    rows = rows_of_split(table, request)
    if rows is not None:
        table = table.take(rows)
    return table.take(pa.array(piece.keep))


def _put_files(part: FilledPart, place: Place, listed: Sequence[str]) -> list[str]:
    """Put the files of a part below its folder; return their names there."""
    taken: dict[str, object] = {}
    names = []
    rest = iter(listed)
    for piece in part.pieces:
        for position, stored in contents(piece):
            given = next(rest)
            source: object = piece.path(position) or (piece.images.name, position)
            name = inner_name(given)
            if taken.get(name, source) != source:
                name = free_name(name, piece.images.name, taken)
            if name not in taken:  # rows may share a file
                taken[name] = source
                place.put(piece, position, place.below(part, name), stored)
            names.append(given if os.path.normpath(given) == name else name)
    return names


def _with_ids(table: pa.Table, ids: Sequence[str], part: FilledPart) -> pa.Table:
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
