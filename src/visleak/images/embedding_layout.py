"""Which files a set of embeddings is made of, whatever layout it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import UsageError, VisleakError
from visleak.images.embedding_files import (
    Lines,
    NpyPartition,
    ParquetPartition,
    Table,
    npy_shape,
    read_lines,
    stamp_of,
)
from visleak.images.embedding_manifest import TEXTS, VECTORS
from visleak.images.file_sequence import count_files
from visleak.images.parquet import read_footer
from visleak.images.request import Request
from visleak.records import FileCount

#: Columns with the vectors, in order of preference.
VECTOR_COLUMNS: Final = ("embedding", "vector", "image_embedding", "embeddings", "emb", "features")

#: Vectors of a Parquet file that are held in memory at a time.
GROUP_ROWS: Final = 250_000

#: Where files of vectors lie: as of clip-retrieval, side by side, as LAION published them.
PLACES: Final = (VECTORS, "", "images")

Files = Sequence[NpyPartition | ParquetPartition]


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a set of embeddings.

    Attributes:
        partitions: in the order of their numbers.
        count: how many of the files of vectors are present.
    """

    partitions: Files
    count: FileCount


def layout_of(request: Request) -> Layout:
    """Return the files of whatever layout there is.

    Raises:
        UsageError: the source is of another kind, or lacks a wanted column.
        VisleakError: a file is damaged, or files are missing and their number was stated.
    """
    path, expected = request.path, _expected(request)
    if path.is_file():
        return _complete(request, _one_file(path, request), FileCount(1, expected or 1))
    vectors, *others = [
        found for place in PLACES if (found := in_order((path / place).glob("*.npy")))
    ] or [[]]
    if vectors:
        partitions = _with_tables(path, vectors) or [
            _npy(file, _beside(file, alone=len(vectors) == 1)) for file in vectors
        ]
        count = count_files(vectors, _tables(path), expected)
        return _complete(request, partitions, replace(count, ignored=sum(map(len, others))))
    files = in_order(path.glob("*.parquet"))
    partitions = [part for file in files for part in _parquet(file, request)]
    return _complete(request, partitions, count_files(files, expected=expected))


def _complete(request: Request, partitions: Files, count: FileCount) -> Layout:
    """Return a layout with as many files as the source states, if it does."""
    expected = _expected(request)
    if expected and (count.present, count.expected) != (expected, expected):
        raise VisleakError(
            f"{request.text}: {count}, but expect={expected} is stated. Fetch what is missing, or"
            " correct the number"
        )
    return Layout(partitions, count)


def _expected(request: Request) -> int:
    """Return how many files there must be as the source states it, 0 where it does not."""
    text = request.options.get("expect")
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise UsageError(
            f"source {request.text!r}: option expect must be a number of files, 1 or more; got"
            f" {text!r}"
        )
    return int(text)


def _one_file(path: Path, request: Request) -> Files:
    """Return the partitions of a single file."""
    if path.suffix == ".npy":
        return [_npy(path, _beside(path, alone=False))]
    if path.suffix == ".parquet":
        return list(_parquet(path, request))
    raise UsageError(
        f"source {request.text!r}: {path.name} is no .npy and no .parquet file; emb: takes one"
        " of them, or a folder of them"
    )


def in_order(files: Iterable[Path]) -> list[Path]:
    """Return files in the order of the numbers in their names: 2 before 10; no hidden ones.

    >>> [p.name for p in in_order([Path("a_10.npy"), Path("a_2.npy"), Path(".a_1.npy")])]
    ['a_2.npy', 'a_10.npy']
    """

    def key(file: Path) -> tuple[list[tuple[int, str]], str]:
        parts = re.split(r"(\d+)", file.name)
        return [(int(p), "") if p.isdigit() else (-1, p) for p in parts], file.name

    return sorted((file for file in files if not file.name.startswith(".")), key=key)


def _with_tables(folder: Path, vectors: Sequence[Path]) -> Files:
    """Return clip-retrieval's layout: ``img_emb_N.npy`` and ``metadata_N.parquet``; else nothing.

    Raises:
        VisleakError: some vectors have their table and others have not.
    """
    tables = _tables(folder)
    if not tables or any(_number(file) is None for file in vectors):
        return []
    lacking = next((file for file in vectors if _number(file) not in tables), None)
    if lacking is not None:
        raise VisleakError(
            f"{lacking} has no {TEXTS}_{_number(lacking)}.parquet in"
            f" {_place_of_tables(folder)}, other vectors have:"
            " fetch it, or leave all of them out to go by row number"
        )
    return [_npy(file, tables[number]) for file in vectors if (number := _number(file)) in tables]


def _tables(folder: Path) -> dict[int, Path]:
    """Return the tables beside files of vectors, by their numbers."""
    files = in_order(_place_of_tables(folder).glob(f"{TEXTS}_*.parquet"))
    return {number: file for file in files if (number := _number(file)) is not None}


def _place_of_tables(folder: Path) -> Path:
    return folder / TEXTS if (folder / TEXTS).is_dir() else folder


def _number(file: Path) -> int | None:
    found = re.search(r"(\d+)$", file.stem)
    return int(found[1]) if found else None


def _beside(file: Path, *, alone: bool) -> Path | None:
    """Return the file with the ids of the vectors of a ``.npy`` file."""
    own = (".ids.txt", ".ids.parquet", ".parquet")
    names = [file.with_name(file.stem + ending) for ending in own]
    if alone:
        names += [file.parent / name for name in ("ids.txt", "ids.parquet", f"{TEXTS}.parquet")]
    return next((name for name in names if name.is_file()), None)


def _npy(file: Path, texts: Path | None) -> NpyPartition:
    """Return a ``.npy`` file as a partition.

    Raises:
        VisleakError: it is damaged, or its texts are of another number of images.
    """
    rows, width = npy_shape(file)
    if texts is None:
        return NpyPartition(str(file), rows, width, stamp_of(file))
    about: Lines | Table
    if texts.suffix == ".txt":
        about, known = Lines(str(texts)), len(read_lines(texts))
    else:
        about, known = Table(str(texts), {}), read_footer(texts).num_rows
    if known != rows:
        raise VisleakError(
            f"{file} holds {rows:,} vectors and {texts} speaks of {known:,} images; they must be"
            " of one number"
        )
    return NpyPartition(str(file), rows, width, stamp_of(file, texts), about=about)


def _parquet(file: Path, request: Request) -> Iterator[ParquetPartition]:
    """Yield the partitions of a Parquet file with a column of vectors."""
    footer = read_footer(file)
    column = _vector_column(file, footer.schema.to_arrow_schema(), request.options.get("column"))
    width = _width_of(file, column)
    stamp = stamp_of(file)
    begins, rows = 0, 0
    groups: list[int] = []
    for number in range(footer.num_row_groups):
        groups.append(number)
        rows += footer.row_group(number).num_rows
        if rows >= GROUP_ROWS or number + 1 == footer.num_row_groups:
            yield ParquetPartition(
                locator=str(file),
                rows=rows,
                width=width,
                stamp=f"{stamp} {groups[0]}-{groups[-1]}",
                column=column,
                groups=tuple(groups),
                start=begins,
                about=Table(str(file), {}, begins),
            )
            begins, rows, groups = begins + rows, 0, []


def _vector_column(file: Path, schema: pa.Schema, wanted: str | None) -> str:
    """Return the column with the vectors.

    Raises:
        UsageError: the wanted one is none.
        VisleakError: there is none, or several and none is wanted.
    """
    lists = [str(field.name) for field in schema if _is_vector(field.type)]
    if wanted is not None:
        if wanted in lists:
            return wanted
        there = ", ".join(lists) or "none"
        raise UsageError(f"column {wanted!r}: {file} has no such column of vectors; it has {there}")
    if len(lists) == 1:
        return lists[0]
    usual = [name for name in VECTOR_COLUMNS if name in lists]
    if usual:
        return usual[0]
    if lists:
        raise VisleakError(
            f"{file} has several columns of vectors ({', '.join(lists)}); choose one:"
            f" emb:{file}?column={lists[0]}"
        )
    raise VisleakError(
        f"{file} has no column of vectors (lists of floats); it has {', '.join(schema.names)}"
    )


def _is_vector(kind: pa.DataType) -> bool:
    nested = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in nested) and bool(pa.types.is_floating(kind.value_type))


def _width_of(file: Path, column: str) -> int:
    """Return the number of coordinates of the first vector of a column."""
    with pq.ParquetFile(file) as opened:
        kind = opened.schema_arrow.field(column).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        for batch in opened.iter_batches(1, columns=[column]):
            length = pc.list_value_length(batch.column(0))[0].as_py()
            if length is not None:
                return int(length)
    raise VisleakError(f"{file}: column {column!r} holds no vector")
