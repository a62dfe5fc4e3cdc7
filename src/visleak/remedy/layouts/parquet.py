"""Parquet files that hold the pictures: the same schema, with the rows that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError
from visleak.images.addresses import redacted
from visleak.images.parquet import ParquetOpener
from visleak.images.remote_file import arrow_source
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.fitting import Stored
from visleak.remedy.layouts.names import are_row_numbers, shard_names, split_of, with_split
from visleak.remedy.layouts.place import Opened, Place

#: Bytes of a row group that are held at once.
HELD: Final = 128 << 20


def write_parquet(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write the shards of each part under their names: schema, metadata, packing as they were.

    Raises:
        VisleakError: the sets of a part have different columns.
    """
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
    refuse_other_columns(part)
    shards = [
        (piece, number, file)
        for piece in part.pieces
        for number, file in enumerate(_opener(piece).files)
    ]
    names = shard_names([file for _, _, file in shards])
    split = split_of(part)
    # apart from the lists, so that the folder can be read as one table
    folder = "data" if len(names) > 1 and not place.many else ""
    names = [place.below(part, f"{folder}/{name}".strip("/")) for name in names]
    for name, (piece, number, _) in zip(names, shards, strict=True):
        write_shard(piece, number, place.made(name), split, place)
    return Opened(
        names[0] if len(names) == 1 else place.below(part, folder),
        after=f"#{split}" if split else "",
        options=part.pieces[0].images.options,
        renamed=len(part.pieces) > 1 or are_row_numbers(part.pieces[0].images),
    )


def _opener(piece: Filled) -> ParquetOpener:
    return cast(ParquetOpener, piece.images.opener)


def refuse_other_columns(part: FilledPart) -> None:
    """Refuse to put sets with different columns into one data set.

    Raises:
        VisleakError: they differ.
    """
    schemas = []
    for piece in part.pieces:
        with arrow_source(_opener(piece).files[0]) as source:
            schemas.append(pq.read_schema(source))
    for piece, schema in zip(part.pieces, schemas, strict=True):
        if not schema.equals(schemas[0], check_metadata=False):
            first = part.pieces[0].images.name
            raise VisleakError(
                f"part {part.name!r}: sets {first!r} and {piece.images.name!r} have different"
                " columns and cannot become one Parquet data set; use --format manifest"
            )


def write_shard(piece: Filled, number: int, path: Path, split: str, place: Place) -> None:
    """Write the rows of one file that are kept, row group by row group.

    Args:
        piece: what is kept.
        number: of the file.
        path: to write.
        split: that its rows are of; empty where none was asked for.
        place: is told how far it is.
    """
    opener = _opener(piece)
    with (
        arrow_source(opener.files[number]) as source,
        pq.ParquetFile(source, buffer_size=1 << 20) as file,
    ):
        rows = file.metadata.num_rows
        with (
            path.open("wb") as made,
            pq.ParquetWriter(made, file.schema_arrow, **_packing(file.metadata)) as writer,
        ):
            for start, table, places in _kept(piece, number, file):
                stands = {
                    row: piece.instead[at].stored
                    for row, at in enumerate(places)
                    if at in piece.instead
                }
                filled = with_pictures(table, stands, opener.column)
                writer.write_table(with_split(filled, split) if split else filled)
                place.progress(f"writing {redacted(path.name)}", start, rows)
        place.progress(f"writing {redacted(path.name)}", rows, rows)


def _kept(
    piece: Filled, number: int, file: pq.ParquetFile
) -> Iterator[tuple[int, pa.Table, list[int]]]:
    """Yield the kept rows of a file: where they begin, the rows, and their positions in the set."""
    opener = _opener(piece)
    all_rows = piece.keep if opener.rows is None else opener.rows[piece.keep]
    for group in np.flatnonzero(opener.owners[:, 0] == number).tolist():
        start, end = int(opener.starts[group]), int(opener.starts[group + 1])
        first, last = np.searchsorted(all_rows, [start, end])
        if first == last:
            continue
        inside = all_rows[first:last] - start
        positions = piece.keep[first:last]
        for begin, table in _batches(file, int(opener.owners[group, 1])):
            low, high = np.searchsorted(inside, [begin, begin + table.num_rows])
            if low < high:
                taken = table.take(pa.array(inside[low:high] - begin))
                yield start + begin, taken, positions[low:high].tolist()


def _batches(file: pq.ParquetFile, group: int) -> Iterator[tuple[int, pa.Table]]:
    footer = file.metadata.row_group(group)
    size = max(1, min(footer.num_rows, HELD * footer.num_rows // max(1, footer.total_byte_size)))
    begin = 0
    for batch in file.iter_batches(size, row_groups=[group], use_threads=False):
        yield begin, pa.Table.from_batches([batch])
        begin += batch.num_rows


def with_pictures(table: pa.Table, pictures: Mapping[int, Stored], column: str) -> pa.Table:
    """Put pictures into rows of a table; all other columns stay.

    Args:
        table: the rows.
        pictures: row to what is put there, encoded.
        column: where, as ``name`` or ``name.bytes``.
    """
    if not pictures:
        return table
    base, _, leaf = column.partition(".")
    values = table[base].combine_chunks()
    held = values.field(leaf) if leaf else values
    mask = np.zeros(table.num_rows, np.bool_)
    mask[list(pictures)] = True
    stored = [pictures[row] for row in np.flatnonzero(mask).tolist()]
    held = pc.replace_with_mask(held, pa.array(mask), pa.array(stored, held.type))
    if leaf:
        fields = [values.type.field(i) for i in range(values.type.num_fields)]
        children = [held if f.name == leaf else values.field(f.name) for f in fields]
        held = pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
    return table.set_column(table.column_names.index(base), table.schema.field(base), held)


def _packing(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return how the columns of a file are packed, for a writer."""
    if not footer.num_row_groups:
        return {}
    group = footer.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    return {
        "compression": {
            c.path_in_schema: "none" if c.compression == "UNCOMPRESSED" else c.compression.lower()
            for c in columns
        },
        "use_dictionary": [
            c.path_in_schema for c in columns if any("DICTIONARY" in e for e in c.encodings)
        ],
        "write_statistics": [c.path_in_schema for c in columns if c.is_stats_set],
    }
