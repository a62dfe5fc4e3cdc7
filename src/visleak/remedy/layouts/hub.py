"""Hugging Face data sets, written as the Parquet files that the hub keeps them in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.errors import UsageError
from visleak.images.hub import load
from visleak.images.parquet import image_column
from visleak.images.request import Request
from visleak.images.sources import locate
from visleak.records import ImageSet
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.layouts.parquet import with_pictures
from visleak.remedy.layouts.place import Opened, Place

#: Rows in a row group: what the library's own writer takes for pictures.
ROWS: Final = 100


def write_hub(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part as ``PART.parquet`` with all columns and the pictures themselves.

    The file says what its columns are, so that both visleak and ``load_dataset`` know classes.
    """
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
    (piece,) = part.pieces
    source = _loaded(piece.images)
    schema: pa.Schema = source.features.arrow_schema
    column = _column(piece.images, schema)
    name = place.below(part, f"{part.name}.parquet")
    with place.made(name).open("wb") as file, pq.ParquetWriter(file, schema) as writer:
        for done, table in _tables(source, piece, column):
            writer.write_table(table.cast(schema))
            place.progress(f"writing {part.name}", done, len(piece))
    classes = [name for name in schema.names if hasattr(source.features[name], "int2str")]
    options: Mapping[str, str] = piece.images.options
    if piece.images.labels is not None and not {"label", "label_name"} & set(schema.names):
        options = {"label": classes[0], **options}
    return Opened(name, options=options, renamed=True)


def _loaded(images: ImageSet) -> Any:
    found = locate(images.source)
    source = load(
        Request(
            text=images.source,
            path=Path(found.place),
            place=found.place,
            split=found.split,
            options=found.options,
        )
    )
    if not hasattr(source, "__len__"):
        raise UsageError(
            f"set {images.name!r} is streamed and cannot be written; open it without"
            " ?streaming=yes, or write the list of ids with --format manifest"
        )
    return source.with_format("arrow")


def _column(images: ImageSet, schema: pa.Schema) -> str:
    """Return the column with the pictures, as the set was opened.

    Raises:
        UsageError: it holds no encoded pictures.
    """
    wanted = locate(images.source).options.get("image")
    known = schema if wanted is None else pa.schema([schema.field(wanted)])
    found = image_column(known)
    if found is None:
        raise UsageError(
            f"set {images.name!r}: {images.source} holds arrays and no encoded pictures; write the"
            " list of ids with --format manifest"
        )
    return found


def _tables(source: Any, piece: Filled, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield the kept rows with their pictures put in, wherever those were stored."""
    pictures = piece.stored()
    for start in range(0, len(piece), ROWS):
        places = piece.keep[start : start + ROWS].tolist()
        table = source[places]
        stored = dict(zip(range(len(places)), pictures, strict=False))
        yield start + len(places), with_pictures(table, stored, column)
