"""Embeddings made elsewhere as a set: ``emb:FOLDER``, ``emb:FILE.npy``, ``emb:FILE.parquet``.

Opening reads headers and footers, and of small sets the columns that may be ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import UsageError, VisleakError
from visleak.formats.embedding_files import (
    TEXTS,
    VECTORS,
    Lines,
    Manifest,
    NpyPartition,
    ParquetPartition,
    Table,
    file_stamp,
    npy_shape,
    read_lines,
    read_manifest,
)
from visleak.formats.listing import count_files
from visleak.formats.request import ID_COLUMNS, Request, can_identify
from visleak.formats.tables import read_footer, read_tables
from visleak.records import EmbeddingSet, FileCount

#: Columns are checked for being unique in sets of up to this many vectors; in larger ones an
#: image's id is its row number, unless a column is asked for.
CHECKED: Final = 2_000_000
#: Columns with the name of the image's file, which is its id where no other column is.
PATH_COLUMNS: Final = ("path", "image_path", "file_name")
#: What a column is for, and how it may be called.
_USES: Final = {
    "label": ("label_name", "label"),
    "caption": ("caption",),
    "group": ("group",),
    "locator": ("locator", "url", *PATH_COLUMNS),
    "width": ("width",),
    "height": ("height",),
}
#: Columns that only mean what visleak means by them where visleak wrote them.
_OWN: Final = ("digest", "flat")
_OPTIONS: Final = ("encoder", "column", "expect")
#: Columns with the vectors, in order of preference.
VECTOR_COLUMNS: Final = ("embedding", "vector", "image_embedding", "embeddings", "emb", "features")
GROUP_ROWS: Final = 250_000  # vectors of a Parquet file that are held in memory at a time
#: Where files of vectors lie: as of clip-retrieval, side by side, as LAION published them.
PLACES: Final = (VECTORS, "", "images")
Files = Sequence[NpyPartition | ParquetPartition]


def open_embeddings(request: Request) -> EmbeddingSet:
    """List the files of a set of embeddings; no vector is read."""
    request.refuse_split()
    request.refuse_options(*_OPTIONS)
    if request.frame is not None:
        raise UsageError(
            f"frame {request.frame!r}: {request.text} is a set of embeddings, which has no frames;"
            " give the images, or leave it out"
        )
    manifest = read_manifest(request.path) if request.path.is_dir() else None
    layout = embedding_files_of(request)
    files = _with_ids(_numbered(layout.partitions), request, manifest)
    width = _one_width(request, files)
    if manifest is not None:
        _check_manifest(request.path, manifest, files, width, layout.count)
        files = _with_digests(files, manifest)
    claimed = request.options.get("encoder", "")
    if manifest is None and not claimed:
        raise VisleakError(
            f"{request.text}: nothing says which encoder made these vectors; name it:"
            f" emb:{request.path}?encoder=clip"
        )
    if manifest is not None and claimed not in ("", manifest.encoder_name):
        raise VisleakError(
            f"{request.text}: its manifest says that {manifest.encoder_name} made these vectors,"
            f" not {claimed}"
        )
    return EmbeddingSet(
        name=request.name,
        partitions=tuple(files),
        width=width,
        encoder=manifest.encoder if manifest else "",
        encoder_name=manifest.encoder_name if manifest else claimed,
        thresholds=manifest.thresholds if manifest else None,
        dataset=request.dataset,
        roles=request.roles,
        source=request.text,
        files=layout.count,
        options=request.wanted,
    )


def _numbered(files: Files) -> Files:
    """Return the partitions with the number of their first row."""
    first = np.concatenate([[0], np.cumsum([part.rows for part in files])]).astype(int)
    return [replace(part, first=int(at)) for part, at in zip(files, first, strict=False)]


def _one_width(request: Request, files: Files) -> int:
    """Return the common width."""
    if not sum(part.rows for part in files):
        raise VisleakError(
            f"{request.text} holds no vectors: emb: takes .npy files (img_emb/img_emb_0000.npy) or"
            " .parquet files with a column of vectors"
        )
    for part in files:
        if part.width != files[0].width:
            raise VisleakError(
                f"{part.locator} holds vectors of {part.width} numbers, {files[0].locator} of"
                f" {files[0].width}; a set has one width"
            )
    return files[0].width


def _check_manifest(
    folder: Path, manifest: Manifest, files: Files, width: int, count: FileCount
) -> None:
    """Refuse files that are not those the manifest describes."""
    rows = tuple(part.rows for part in files)
    if rows != manifest.shards or width != manifest.width:
        raise VisleakError(
            f"{folder}: its manifest describes {len(manifest.shards)} shards with"
            f" {sum(manifest.shards):,} vectors of width {manifest.width}, there are {len(rows)}"
            f" with {sum(rows):,} of width {width} ({count}); fetch the folder again"
        )


def _with_digests(files: Files, manifest: Manifest) -> Files:
    """Return the partitions with the digests that their files must have."""
    stated = zip(files, manifest.digests, manifest.tables, strict=True)
    return [
        replace(part, stated=tuple((path, digest) for path, digest in pairs if digest))
        for part, vectors, table in stated
        if (pairs := ((part.locator, vectors), (getattr(part.about, "path", ""), table)))
    ]


def _with_ids(files: Files, request: Request, manifest: Manifest | None) -> Files:
    """Return the partitions with what is known of their images."""
    tables = [part for part in files if isinstance(part.about, Table)]
    if not tables:
        request.refuse_columns("the set of embeddings")
        return [replace(part, pattern=request.group_pattern) for part in files]
    names = _names(tables, request, manifest)
    return [
        replace(
            part,
            about=replace(part.about, names=names) if isinstance(part.about, Table) else part.about,
            pattern=request.group_pattern,
        )
        for part in files
    ]


def _names(files: Files, request: Request, manifest: Manifest | None) -> dict[str, str]:
    """Return which column says what, by what it is for; of the columns that all files have."""
    schemas = [read_footer(Path(path)).schema.to_arrow_schema() for path in _paths(files)]
    vectors = {part.column for part in files if isinstance(part, ParquetPartition)}
    there = [
        name
        for name in schemas[0].names
        if name not in vectors and all(name in schema.names for schema in schemas[1:])
    ]
    pattern = request.group_pattern
    names: dict[str, str] = {}
    for use in ("id", "label", "group"):
        wanted = getattr(request, use)
        if wanted is None or (use == "group" and pattern is not None):
            continue
        if wanted not in there:
            raise UsageError(
                f"{use} {wanted!r}: {request.text} has no such column; it has {', '.join(there)}"
            )
        names[use] = wanted
    for use, usual in _USES.items():
        found = next((name for name in usual if name in there), None)
        if use not in names and found is not None and not (use == "group" and pattern):
            names[use] = found
    if manifest is not None:
        names |= {use: use for use in _OWN if use in there}
    if "id" not in names:
        found = "id" if manifest is not None and "id" in there else _id_column(files, there)
        names |= {"id": found} if found else {}
    return names


def _paths(files: Files) -> list[str]:
    return list(dict.fromkeys(part.about.path for part in files if isinstance(part.about, Table)))


def _id_column(files: Files, there: Sequence[str]) -> str | None:
    """Return the first of the usual columns that tells the images of a small set apart."""
    if sum(part.rows for part in files) > CHECKED:
        return None
    for name in (*ID_COLUMNS, *PATH_COLUMNS):
        if name not in there:
            continue
        tables = read_tables([Path(path) for path in _paths(files)], [name])
        if can_identify(tables[name]):
            return name
    return None


@dataclass(frozen=True, slots=True)
class EmbeddingFiles:
    """The files of a set of embeddings."""

    partitions: Files  # in the order of their numbers
    count: FileCount  # how many of the files of vectors are present


def embedding_files_of(request: Request) -> EmbeddingFiles:
    """Return the files of whatever layout there is."""
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
    partitions = [part for file in files for part in _parquet_partitions(file, request)]
    return _complete(request, partitions, count_files(files, expected=expected))


def _complete(request: Request, partitions: Files, count: FileCount) -> EmbeddingFiles:
    """Return a layout with as many files as the source states, if it does."""
    expected = _expected(request)
    if expected and (count.present, count.expected) != (expected, expected):
        raise VisleakError(
            f"{request.text}: {count}, but expect={expected} is stated. Fetch what is missing, or"
            " correct the number"
        )
    return EmbeddingFiles(partitions, count)


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
        return list(_parquet_partitions(path, request))
    raise UsageError(
        f"source {request.text!r}: {path.name} is neither .npy nor .parquet; emb: takes one"
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
    """Return clip-retrieval's ``img_emb_N.npy`` and ``metadata_N.parquet``; else nothing."""
    tables = _tables(folder)
    if not tables or any(_file_number(file) is None for file in vectors):
        return []
    lacking = next((file for file in vectors if _file_number(file) not in tables), None)
    if lacking is not None:
        raise VisleakError(
            f"{lacking} has no {TEXTS}_{_file_number(lacking)}.parquet in"
            f" {_place_of_tables(folder)}, other vectors have:"
            " fetch it, or leave all of them out to go by row number"
        )
    return [
        _npy(file, tables[number]) for file in vectors if (number := _file_number(file)) in tables
    ]


def _tables(folder: Path) -> dict[int, Path]:
    """Return the tables beside files of vectors, by their numbers."""
    files = in_order(_place_of_tables(folder).glob(f"{TEXTS}_*.parquet"))
    return {number: file for file in files if (number := _file_number(file)) is not None}


def _place_of_tables(folder: Path) -> Path:
    return folder / TEXTS if (folder / TEXTS).is_dir() else folder


def _file_number(file: Path) -> int | None:
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
    """Return a ``.npy`` file as a partition."""
    rows, width = npy_shape(file)
    about: Lines | Table | None = None
    if texts is not None:
        if texts.suffix == ".txt":
            about, known = Lines(str(texts)), len(read_lines(texts))
        else:
            about, known = Table(str(texts), {}), read_footer(texts).num_rows
        if known != rows:
            raise VisleakError(
                f"{file} holds {rows:,} vectors and {texts} describes {known:,} images; the numbers"
                " must be equal"
            )
    stamp = file_stamp(file, *([texts] if texts else []))
    return NpyPartition(locator=str(file), rows=rows, width=width, stamp=stamp, about=about)


def _parquet_partitions(file: Path, request: Request) -> Iterator[ParquetPartition]:
    """Yield the partitions of a Parquet file with a column of vectors."""
    footer = read_footer(file)
    column = _vector_column(file, footer.schema.to_arrow_schema(), request.options.get("column"))
    width = _width_of(file, column)
    stamp = file_stamp(file)
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
    """Return the column with the vectors."""
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
