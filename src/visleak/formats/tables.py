"""Tables that name image files (CSV, TSV, Parquet), and Parquet files that hold the images."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from visleak.delimited import arrow_encoding, dialect_of, write_csv_rows
from visleak.errors import VisleakError, explaining, one_line
from visleak.formats.files import (
    FileOpener,
    RemoteOpener,
    Root,
    StatefulOpener,
    as_unreadable,
    by_owner,
    remote_places,
    starts_of,
    without_secrets,
)
from visleak.formats.listing import Listing, Walk, globbed, sequences
from visleak.formats.remote import (
    StoreError,
    arrow_source,
    folder_of,
    is_address,
    opened,
    path_of,
    redacted,
    stamp_of_file,
)
from visleak.formats.request import (
    IMAGE_COLUMNS,
    Request,
    class_names_of,
    describe,
    holds_names,
    row_numbers,
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
    Stored,
    are_row_numbers,
    file_name,
    file_names,
    files_of,
    ids_of,
    put_files,
    source_place,
    split_of,
    with_split,
)
from visleak.images.encodings import SUFFIXES
from visleak.records import MISSING_LISTED, Bytes8, ImageSet, Int64, Opener, Problem, Unreadable

BATCH_BYTES: Final = 16 << 20  # bytes of images decoded from a row group at a time
HELD: Final = 128 << 20  # bytes of a row group that are held at once
SMALL: Final = 64 << 20  # bytes of a column that is read to see whether its values repeat


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
    for piece, other in zip(part.pieces, tables, strict=True):
        if other.column_names != names:
            raise VisleakError(
                f"part {part.name!r}: sets {part.pieces[0].images.name!r} and"
                f" {piece.images.name!r} have different columns and cannot become one table"
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
        if "id" in names:
            raise VisleakError(
                f"part {part.name!r}: paths change, and the ids that they are; its column `id` does"
                " not tell all rows apart, so it cannot keep them: rename that column, or choose"
                " ids with --id when you audit"
            )
        table = table.append_column("id", pa.array(ids, pa.string()))
        options.pop("id", None)
    changed = pa.array(paths, pa.string()).cast(table.schema.field("path").type)
    table = table.set_column(names.index("path"), "path", changed)
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
        parsed = {"delimiter": dialect.delimiter, "newlines_in_values": True}
        types = dict.fromkeys(header, pa.string())
        with arrow_source(place) as source:
            return pa.csv.read_csv(
                source,
                pa.csv.ReadOptions(encoding=arrow_encoding(dialect)),
                pa.csv.ParseOptions(**parsed),
                pa.csv.ConvertOptions(
                    column_types=types, null_values=[""], strings_can_be_null=True
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
        looks = any(os.path.splitext(name)[1].lower() in SUFFIXES for name in names)
        hint = "; its first row names an image: add a header, such as path,label" if looks else ""
        raise VisleakError(
            f"{request.text} needs one column `path` with file names, or `image` with the images"
            f" themselves; it has {', '.join(names)}{hint}"
        )
    for name in wanted_columns(names, request):
        if names.count(name) > 1:
            raise VisleakError(f"{request.text} has more than one column {name!r}; keep one")
    if (rows := rows_of_split(table, request)) is not None:
        table = table.take(rows)
    paths = text_column(table["path"], "path")
    places = paths.to_pylist()
    if request.root is not None:
        root, places = Root.parse(request.root).applied(root, places)
    fetched = remote_places(request, places, root)
    ids, columns = describe(table, request, without_secrets(paths), class_names_of(table.schema))
    opener: Opener
    if fetched is None:
        locators = pa.array(
            (os.path.join(root, name) if name else root for name in places), pa.string()
        )
        opener = FileOpener(root, pa.array(places, pa.string()).cast(pa.binary()))
    else:
        locators = pc.fill_null(without_secrets(fetched), redacted(root))
        opener = RemoteOpener(fetched)
    return request.image_set(without_secrets(ids), locators, opener, **columns)


def parquet_files(request: Request) -> list[str]:
    """Return the files of a Parquet source: itself, those of a folder, or those of a glob."""
    path, place = request.path, request.place
    if is_address(place):
        if "*" not in place:
            return [place]
        with explaining(f"{request.text} cannot be listed", StoreError):
            return globbed(place, ".parquet") or request.refuse_empty("no object matches")
    if path.is_dir():
        return [str(file) for file in shards_of(path)]
    return [place] if path.exists() else globbed(place, ".parquet")


def shards_of(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, or of its sub-folder ``data``, by name."""
    for place in (folder, folder / "data"):
        if found := [file for file in place.glob("*.parquet") if not file.name.startswith(".")]:
            return sorted(found)
    return []


def is_parquet_folder(path: Path) -> bool:
    """Whether a folder holds Parquet files and no image files."""
    return path.is_dir() and bool(shards_of(path)) and next(Walk(str(path)).names(), None) is None


def is_parquet_glob(path: Path) -> bool:
    """Whether a path is a pattern of Parquet files."""
    return is_glob(path) and path.suffix == ".parquet"


def read_footer(file: str | os.PathLike[str]) -> pq.FileMetaData:
    """Read the footer of a Parquet file."""
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
    request = Request.at(piece.images.source)
    if request.place.lower().endswith((".csv", ".tsv")):
        table = read_csv(request.place)
    else:
        files = parquet_files(request)
        table = read_tables(files, read_footer(files[0]).schema.to_arrow_schema().names)
    rows = rows_of_split(table, request)
    kept = pa.array(piece.keep)
    return table.take(kept if rows is None else rows.take(kept))


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


def open_parquet(request: Request) -> ImageSet:
    """List a Parquet file with image bytes or with paths, or several such files."""
    files = parquet_files(request)
    footers = [read_footer(file) for file in files]
    schema = footers[0].schema.to_arrow_schema()
    column = image_column(schema)
    if column is None:
        images = manifest_set(request, read_tables(files, schema.names), folder_of(files[0]))
    else:
        images = _bytes_set(request, files, footers, column)
    problems = (*images.problems, *_missing_shards(request, files))
    return replace(images, skipped=_beside(request.path, files), problems=problems)


@dataclass
class ParquetOpener(StatefulOpener):
    """Reads one column of some Parquet files, row group by row group."""

    files: tuple[str, ...]  # the files, in storage order
    column: str  # the column with the bytes, with dots (image.bytes)
    starts: Int64  # int64: row at which each row group begins, over all files, and the end
    owners: Int64  # int64 (groups, 2): file and number within the file of each row group
    # int64: the row of each position, ascending; None where they are the same
    rows: Int64 | None = None
    stamp: str | None = ""  # of remote files
    _footers: dict[int, pq.FileMetaData] = field(default_factory=dict, repr=False)
    _open: _RowGroup | None = field(default=None, repr=False, compare=False)  # read last

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        wanted = np.asarray(positions, dtype=np.int64)
        if self.rows is not None:
            wanted = self.rows[wanted]
        for group, rows in by_owner(self.starts, wanted):
            yield from self._read_group(group, rows)

    def _read_group(self, group: int, inside: list[int]) -> Iterator[bytes | Unreadable]:
        """Yield the given rows of a row group; after a failure, the failure for each."""
        done = 0
        try:
            for value in self._values(group, inside):
                yield Unreadable("missing", "the row holds no image") if value is None else value
                done += 1
        except StoreError as error:
            failure = as_unreadable(error)
        except FileNotFoundError:
            failure = Unreadable("missing", "the Parquet file is gone")
        except PermissionError as error:
            failure = as_unreadable(error)
        except (OSError, pa.ArrowException) as error:
            failure = Unreadable("io-error", one_line(error))
        else:
            return
        yield from itertools.repeat(failure, len(inside) - done)

    def _values(self, group: int, inside: list[int]) -> Iterator[bytes | None]:
        # while it is read, another thread opens its own
        read, self._open = self._open, None
        if read is not None and (read.group != group or inside[0] < read.start):
            read.close()
            read = None
        if read is None:
            read = self._opened(group)
        lasting = False
        try:
            yield from map(read.value, inside)
            lasting = not (is_address(self.files[self.owners[group][0]]) or read.ended(inside[-1]))
        finally:
            if lasting:
                self.close()
                self._open = read
            else:
                read.close()

    def close(self) -> None:
        """Close the row group that is open; the next read opens it again."""
        held, self._open = self._open, None
        if held is not None:
            held.close()

    def _opened(self, group: int) -> _RowGroup:
        owner, number = map(int, self.owners[group])
        with contextlib.ExitStack() as resources:
            source = resources.enter_context(arrow_source(self.files[owner]))
            footer = self._footers.get(owner)
            file = resources.enter_context(
                pq.ParquetFile(source, metadata=footer, buffer_size=1 << 20)
            )
            self._footers[owner] = file.metadata
            about = file.metadata.row_group(number)
            columns = map(about.column, range(about.num_columns))
            size = sum(
                c.total_uncompressed_size for c in columns if c.path_in_schema == self.column
            )
            batches = file.iter_batches(
                max(1, min(1024, BATCH_BYTES * about.num_rows // max(1, size))),
                row_groups=[number],
                columns=[self.column],
                use_threads=False,
            )
            large = about.total_byte_size > BATCH_BYTES
            return _RowGroup(group, about.num_rows, large, batches, resources.pop_all())


@dataclass
class _RowGroup:
    """A row group whose images are read in ascending order, batch by batch."""

    group: int  # its number over all files
    rows: int
    large: bool  # Arrow keeps memory of a large one: several times that of the images
    batches: Iterator[pa.RecordBatch]
    resources: contextlib.ExitStack  # the open file
    start: int = 0  # row at which the batch begins that was read last
    values: pa.Array = field(default_factory=lambda: pa.array([]))

    def value(self, row: int) -> bytes | None:
        """Return the image of a row, which is not before the last batch."""
        while row >= self.start + len(self.values):
            self.start += len(self.values)
            values = next(self.batches).column(0)
            self.values = pc.struct_field(values, 0) if pa.types.is_struct(values.type) else values
        image: bytes | None = self.values[row - self.start].as_py()
        return image

    def ended(self, row: int) -> bool:
        """Whether a row is the last one."""
        return row == self.rows - 1

    def close(self) -> None:
        """Close the file and release the memory."""
        self.resources.close()
        self.values = pa.array([])
        if self.large:
            pa.default_memory_pool().release_unused()


def write_parquet(part: OutputPart, place: Destination) -> OutputSource:
    """Write the shards of a part under their names: schema, metadata, packing as they were."""
    schemas = []
    for piece in part.pieces:
        with arrow_source(_opener(piece).files[0]) as source:
            schemas.append(pq.read_schema(source))
        if not schemas[-1].equals(schemas[0], check_metadata=False):
            raise VisleakError(
                f"part {part.name!r}: sets {part.pieces[0].images.name!r} and"
                f" {piece.images.name!r} have different columns and cannot become one Parquet data"
                " set; use --format manifest"
            )
    shards = [
        (piece, number, file)
        for piece in part.pieces
        for number, file in enumerate(_opener(piece).files)
    ]
    names = file_names([file for _, _, file in shards])
    split = split_of(part)
    # apart from the lists, so that the folder can be read as one table
    folder = "data" if len(names) > 1 and not place.many else ""
    names = [place.below(part, f"{folder}/{name}".strip("/")) for name in names]
    for name, (piece, number, _) in zip(names, shards, strict=True):
        write_shard(piece, number, place.made(name), split, place)
    return OutputSource(
        names[0] if len(names) == 1 else place.below(part, folder),
        after=f"#{split}" if split else "",
        options=part.pieces[0].images.options,
        renamed=len(part.pieces) > 1 or are_row_numbers(part.pieces[0].images),
    )


def image_column(schema: pa.Schema) -> str | None:
    """Return the column with the bytes of the images, as ``name`` or ``name.bytes``.

    >>> image_column(pa.schema([("image", pa.struct([("bytes", pa.binary())]))]))
    'image.bytes'
    """

    def leaf(name: str) -> str | None:
        kind = schema.field(name).type
        if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            return f"{name}.bytes"
        return name if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else None

    usual = [name for name in IMAGE_COLUMNS if name in schema.names]
    structs = [name for name in schema.names if pa.types.is_struct(schema.field(name).type)]
    return next((found for name in (*usual, *structs) if (found := leaf(name))), None)


def _missing_shards(request: Request, files: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each sequence of which files are missing by their names.

    A single file (``train-00000-of-00004.parquet``) is complete by itself.
    """
    if files == [request.place]:
        return
    for found in sequences([Path(file) for file in files]):
        missing = list(found.absent(found.span())) if found.total else []
        if missing:
            shown = ", ".join(missing[:MISSING_LISTED])
            detail = f"{len(missing):,} of {found.total:,} files are missing: {shown}"
            locator = redacted(f"{folder_of(files[0])}/{missing[0]}")
            yield Problem(request.name, missing[0], locator, "missing", detail)


def _beside(folder: Path, files: Sequence[str]) -> Mapping[str, int]:
    """Return the number of other files in a folder of Parquet files, by ending."""
    used, listing = set(files), Listing()
    if folder.is_dir():
        walk = Walk(str(folder), lambda path: path not in used and listing.takes_file(path))
        deque(walk.names(), maxlen=0)
    return listing.skipped


def _bytes_set(
    request: Request, files: list[str], footers: list[pq.FileMetaData], column: str
) -> ImageSet:
    schema = footers[0].schema.to_arrow_schema()
    base = column.removesuffix(".bytes")
    names = wanted_columns([name for name in schema.names if name != base], request)
    names += _small_columns(footers, {*names, base})
    struct = schema.field(base).type
    has_paths = pa.types.is_struct(struct) and struct.get_field_index("path") >= 0
    table = read_tables(files, [*names, f"{base}.path"] if has_paths else names)
    paths = None
    if has_paths:
        paths = text_column(pc.struct_field(table[base], "path"), f"{base}.path")
        table = table.drop_columns([base])
    sizes = [footer.num_rows for footer in footers]
    if not names:  # a table without columns forgets its rows
        table = pa.table({"row": np.arange(sum(sizes))})
    numbers = map(row_numbers, sizes)
    parts = map(pc.binary_join_element_wise, map(redacted, files), numbers, itertools.repeat("!"))
    locators = pa.concat_arrays(parts).cast(pa.string())
    if (rows := rows_of_split(table, request)) is not None:
        table, locators = table.take(rows), locators.take(rows)
        paths = None if paths is None else paths.take(rows)
    ids, columns = describe(table, request, paths, class_names_of(schema))
    owners = [(f, g) for f, footer in enumerate(footers) for g in range(footer.num_row_groups)]
    opener = ParquetOpener(
        tuple(files),
        column,
        starts_of([footers[f].row_group(g).num_rows for f, g in owners]),
        np.asarray(owners, dtype=np.int64).reshape(-1, 2),
        None if rows is None else rows.to_numpy(),
        _stamp(files),
    )
    return request.image_set(ids, locators, opener, **columns)


def _small_columns(footers: Sequence[pq.FileMetaData], known: set[str]) -> Iterator[str]:
    """Yield other columns of texts and whole numbers that are small, which may name groups."""
    schema, sizes = footers[0].schema.to_arrow_schema(), Counter[str]()
    for footer in footers:
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                sizes[column.path_in_schema] += column.total_uncompressed_size
    for name in schema.names:
        if name not in known and holds_names(schema.field(name).type) and sizes[name] <= SMALL:
            yield name


def _stamp(files: Sequence[str]) -> str | None:
    """Return a text that changes when a remote file does; ``None`` where that is unknown."""
    stamps: list[str | None] = []
    for file in filter(is_address, files):
        with opened(file) as source:
            stamps.append(stamp_of_file(source))
    return None if None in stamps else "\n".join(map(str, stamps))


def _opener(piece: Selection) -> ParquetOpener:
    return cast(ParquetOpener, piece.images.opener)


def write_shard(piece: Selection, number: int, path: Path, split: str, place: Destination) -> None:
    """Write the rows of one file that are kept, row group by row group."""
    opener, shown = _opener(piece), f"writing {redacted(path.name)}"
    with (
        arrow_source(opener.files[number]) as source,
        pq.ParquetFile(source, buffer_size=1 << 20) as file,
        path.open("wb") as made,
        pq.ParquetWriter(made, file.schema_arrow, **_packing(file.metadata)) as writer,
    ):
        for start, table, places in _kept_rows(piece, number, file):
            stands = {
                row: piece.instead[at].stored
                for row, at in enumerate(places)
                if at in piece.instead
            }
            filled = with_images(table, stands, opener.column)
            writer.write_table(with_split(filled, split) if split else filled)
            place.progress(shown, start, file.metadata.num_rows)
        place.progress(shown, file.metadata.num_rows, file.metadata.num_rows)


def _packing(footer: pq.FileMetaData) -> dict[str, object]:
    if not footer.num_row_groups:
        return {}
    group = footer.row_group(0)
    columns = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
    packed = {name: c.compression.lower() for name, c in columns.items()}
    return {
        "compression": {n: "none" if p == "uncompressed" else p for n, p in packed.items()},
        "use_dictionary": [n for n, c in columns.items() if "DICTIONARY" in "".join(c.encodings)],
        "write_statistics": [name for name, c in columns.items() if c.is_stats_set],
    }


def _kept_rows(
    piece: Selection, number: int, file: pq.ParquetFile
) -> Iterator[tuple[int, pa.Table, list[int]]]:
    """Yield the kept rows of a file: where they begin, the rows, and their positions in the set."""
    opener = _opener(piece)
    all_rows = piece.keep if opener.rows is None else opener.rows[piece.keep]
    for at in np.flatnonzero(opener.owners[:, 0] == number).tolist():
        first, last = np.searchsorted(all_rows, opener.starts[at : at + 2])
        if first == last:
            continue
        begin, group = int(opener.starts[at]), int(opener.owners[at, 1])
        footer = file.metadata.row_group(group)
        size = HELD * footer.num_rows // max(1, footer.total_byte_size)
        size = max(1, min(footer.num_rows, size))
        for batch in file.iter_batches(size, row_groups=[group], use_threads=False):
            low, high = np.searchsorted(all_rows, [begin, begin + batch.num_rows])
            if low < high:
                table = pa.Table.from_batches([batch])
                taken = table.take(pa.array(all_rows[low:high] - begin))
                yield begin, taken, piece.keep[low:high].tolist()
            begin += batch.num_rows


def with_images(table: pa.Table, images: Mapping[int, Stored], column: str) -> pa.Table:
    """Put images into rows of a table; all other columns stay."""
    if not images:
        return table
    base, _, leaf = column.partition(".")
    values = table[base].combine_chunks()
    held = values.field(leaf) if leaf else values
    rows = sorted(images)
    mask = np.zeros(table.num_rows, np.bool_)
    mask[rows] = True
    stored = pa.array([images[row] for row in rows], held.type)
    held = pc.replace_with_mask(held, pa.array(mask), stored)
    if leaf:
        fields = [values.type.field(i) for i in range(values.type.num_fields)]
        children = [held if f.name == leaf else values.field(f.name) for f in fields]
        held = pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
    return table.set_column(table.column_names.index(base), table.schema.field(base), held)
