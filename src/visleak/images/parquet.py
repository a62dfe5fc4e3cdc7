"""Parquet files that hold the encoded pictures themselves (the layout of the hubs)."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError
from visleak.images.addresses import folder_of, is_address, redacted
from visleak.images.columns import (
    as_text,
    class_names_of,
    describe,
    rows_of_split,
    wanted_columns,
)
from visleak.images.file_sequence import sequences
from visleak.images.folder import Walk, why_not
from visleak.images.listing import Listing
from visleak.images.patterns import globbed
from visleak.images.remote_file import arrow_source, opened, stamp_of_file
from visleak.images.request import Request
from visleak.images.stores import StoreError
from visleak.records import MISSING_LISTED, Bytes8, ImageSet, Int64, Problem, Unreadable

#: Columns that may hold the pictures, in order of preference.
IMAGE_COLUMNS: Final = ("image", "img", "picture", "jpg", "png", "webp", "bytes")

#: Bytes of pictures decoded from a row group at a time.
BATCH_BYTES: Final = 16 << 20


@dataclass
class ParquetOpener:
    """Reads one column of some Parquet files, row group by row group.

    Attributes:
        files: the files, in storage order.
        column: the column with the bytes, with dots (``image.bytes``).
        starts: ``int64``: row at which each row group begins, over all files, and the end.
        owners: ``int64`` (groups, 2): file and number within the file of each row group.
        rows: ``int64``: the row of each position, ascending; ``None`` where they are the same.
        stamp: of remote files, see :class:`visleak.images.remote_file.RemoteFile`.
    """

    files: tuple[str, ...]
    column: str
    starts: Int64
    owners: Int64
    rows: Int64 | None = None
    stamp: str | None = ""
    _footers: dict[int, pq.FileMetaData] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_footers": {}}

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures at the positions, see :class:`visleak.records.Opener`."""
        wanted = np.asarray(positions, dtype=np.int64)
        if self.rows is not None:
            wanted = self.rows[wanted]
        groups = np.searchsorted(self.starts, wanted, side="right") - 1
        for group, members in itertools.groupby(
            zip(groups.tolist(), wanted.tolist(), strict=True), key=lambda pair: pair[0]
        ):
            inside = [row - int(self.starts[group]) for _, row in members]
            yield from self._read_group(group, inside)

    def _read_group(self, group: int, inside: list[int]) -> Iterator[bytes | Unreadable]:
        """Yield the given rows of a row group; after a failure, the failure for each."""
        done = 0
        try:
            for value in self._values(group, inside):
                yield Unreadable("missing", "the row holds no picture") if value is None else value
                done += 1
        except StoreError as error:
            failure = why_not(error)
        except FileNotFoundError:
            failure = Unreadable("missing", "the Parquet file is gone")
        except PermissionError:
            failure = Unreadable("no-permission", "the system does not let this user read the file")
        except (OSError, pa.ArrowException) as error:
            failure = Unreadable("io-error", " ".join(str(error).split())[:200])
        else:
            return
        for _ in inside[done:]:
            yield failure

    def _values(self, group: int, inside: list[int]) -> Iterator[bytes | None]:
        owner, number = (int(value) for value in self.owners[group])
        with (
            arrow_source(self.files[owner]) as source,
            pq.ParquetFile(source, metadata=self._footers.get(owner), buffer_size=1 << 20) as file,
        ):
            self._footers[owner] = file.metadata
            wanted, start = iter(inside), 0
            row = next(wanted)
            for batch in file.iter_batches(
                self._batch_rows(file.metadata, number),
                row_groups=[number],
                columns=[self.column],
                use_threads=False,
            ):
                values = _leaf(batch.column(0))
                while row < start + len(values):
                    yield values[row - start].as_py()
                    following = next(wanted, None)
                    if following is None:
                        return
                    row = following
                start += len(values)

    def _batch_rows(self, footer: pq.FileMetaData, number: int) -> int:
        group = footer.row_group(number)
        sizes = (group.column(i) for i in range(group.num_columns))
        total: int = sum(
            c.total_uncompressed_size for c in sizes if c.path_in_schema == self.column
        )
        rows: int = group.num_rows
        return max(1, min(1024, BATCH_BYTES * rows // max(1, total)))


def _leaf(column: pa.Array) -> pa.Array:
    """Return the bytes of a column that may be a struct around them."""
    return pc.struct_field(column, 0) if pa.types.is_struct(column.type) else column


def image_column(schema: pa.Schema) -> str | None:
    """Return the column with the bytes of the pictures, as ``name`` or ``name.bytes``.

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


def open_parquet(request: Request) -> ImageSet:
    """List a Parquet file with image bytes or with paths, or several such files.

    Raises:
        VisleakError: no column holds pictures or names files, or a file is no Parquet.
        UsageError: a column was asked for that is not there.
    """
    files = parquet_files(request)
    footers = [read_footer(file) for file in files]
    schema = footers[0].schema.to_arrow_schema()
    column = image_column(schema)
    if column is None:
        from visleak.images.manifest import manifest_set

        images = manifest_set(request, read_tables(files, schema.names), folder_of(files[0]))
    else:
        images = _bytes_set(request, files, footers, column)
    problems = (*images.problems, *_missing_shards(request, files))
    return replace(images, skipped=_beside(request.path, files), problems=problems)


def _missing_shards(request: Request, files: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each sequence of which files are missing by their names.

    A file that is named by itself (``train-00000-of-00004.parquet``) is all that was asked for.
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
    struct = schema.field(base).type
    has_paths = pa.types.is_struct(struct) and struct.get_field_index("path") >= 0
    table = read_tables(files, [*names, f"{base}.path"] if has_paths else names)
    paths = None
    if has_paths:
        paths = as_text(pc.struct_field(table[base], "path"), f"{base}.path")
        table = table.drop_columns([base])
    sizes = [footer.num_rows for footer in footers]
    if not names:  # a table without columns forgets its rows
        table = pa.table({"row": np.arange(sum(sizes))})
    locators = _locators(files, sizes)
    rows = rows_of_split(table, request)
    if rows is not None:
        table, locators = table.take(rows), locators.take(rows)
        paths = None if paths is None else paths.take(rows)
    described = describe(table, request, paths, class_names_of(schema))
    starts, owners = _layout(footers)
    return request.image_set(
        described.ids,
        locators,
        ParquetOpener(
            tuple(files),
            column,
            starts,
            owners,
            None if rows is None else rows.to_numpy(),
            _stamp(files),
        ),
        labels=described.labels,
        captions=described.captions,
        groups=described.groups,
        frames=described.frames,
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
        return globbed(pattern, ".parquet") or request.no_pictures("no object matches")
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


def read_footer(file: str | os.PathLike[str]) -> pq.FileMetaData:
    """Read what a Parquet file says of itself.

    Raises:
        VisleakError: it is no Parquet file.
    """
    try:
        with arrow_source(os.fspath(file)) as source:
            return pq.read_metadata(source)
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise VisleakError(
            f"{redacted(os.fspath(file))} cannot be read as Parquet: {said}"
        ) from error


def read_tables(files: Sequence[str | os.PathLike[str]], columns: list[str]) -> pa.Table:
    """Read some columns of several Parquet files, one after the other.

    Raises:
        VisleakError: they cannot be read, or do not fit together.
    """
    try:
        tables = [_table(os.fspath(file), columns) for file in files]
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise VisleakError(
            f"{redacted(os.fspath(files[0]))}: its columns cannot be read: {said}"
        ) from error


def _table(file: str, columns: list[str]) -> pa.Table:
    with arrow_source(file) as source:
        return pq.ParquetFile(source).read(columns=columns)


def _stamp(files: Sequence[str]) -> str | None:
    """Return a text that changes when a remote file does; ``None`` where that cannot be told."""
    stamps: list[str | None] = []
    for file in filter(is_address, files):
        with opened(file) as source:
            stamps.append(stamp_of_file(source))
    return None if None in stamps else "\n".join(map(str, stamps))


def _layout(footers: list[pq.FileMetaData]) -> tuple[Int64, Int64]:
    """Return where each row group begins, and which file and number it is."""
    owners = [(f, g) for f, footer in enumerate(footers) for g in range(footer.num_row_groups)]
    sizes = [footers[f].row_group(g).num_rows for f, g in owners]
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return starts, np.asarray(owners, dtype=np.int64).reshape(-1, 2)


def _locators(files: Sequence[str], sizes: Sequence[int]) -> pa.StringArray:
    """Return ``file!row`` for each row."""
    parts = [
        pc.binary_join_element_wise(
            redacted(file), pa.array(np.arange(size)).cast(pa.string()), "!"
        )
        for file, size in zip(files, sizes, strict=True)
    ]
    return pa.concat_arrays(parts).cast(pa.string())
