"""Embeddings made elsewhere as a set: ``emb:FOLDER``, ``emb:FILE.npy``, ``emb:FILE.parquet``.

Opening reads headers and footers, and of small sets the columns that may be ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import UsageError, VisleakError, explaining
from visleak.formats.arrays import npy_header
from visleak.formats.files import file_stamp, starts_of
from visleak.formats.listing import count_files
from visleak.formats.request import ID_COLUMNS, Request, can_identify, captured, text_column
from visleak.formats.tables import read_footer, read_tables
from visleak.records import EmbeddingSet, FileCount, Int64, Refused

MANIFEST: Final = "manifest.json"  # names within the folder, as clip-retrieval has them
UNREADABLE: Final = "unreadable.csv"
VECTORS: Final = "img_emb"
TEXTS: Final = "metadata"
#: Present while a folder is being written, with the state to resume from.
UNFINISHED: Final = "unfinished.json"
KIND: Final = "visleak embeddings"  # kind of the manifest, and the version of its layout
SCHEMA: Final = 1
FLOATS: Final = ("float16", "float32", "float64")  # types of the numbers that are read
#: Columns that stay numbers or marks; all others are text.
_PLAIN: Final = {"width": pa.int32(), "height": pa.int32(), "flat": pa.bool_()}
#: Columns are checked for unique values in sets of up to this many vectors; in larger sets the
#: ids are row numbers unless a column is chosen.
CHECKED: Final = 2_000_000
#: Columns with the name of the image's file, the id where no other column can be.
PATH_COLUMNS: Final = ("path", "image_path", "file_name")
#: Meanings of columns, and their possible names.
_USES: Final = {
    "label": ("label_name", "label"),
    "caption": ("caption",),
    "group": ("group",),
    "locator": ("locator", "url", *PATH_COLUMNS),
    "width": ("width",),
    "height": ("height",),
}
#: Columns with the vectors, in order of preference.
VECTOR_COLUMNS: Final = ("embedding", "vector", "image_embedding", "embeddings", "emb", "features")
GROUP_ROWS: Final = 250_000  # vectors of a Parquet file that are held in memory at a time
#: Folders of the files of vectors: of clip-retrieval, the folder itself, of LAION.
PLACES: Final = (VECTORS, "", "images")


def open_embeddings(request: Request) -> EmbeddingSet:
    """List the files of a set of embeddings; no vector is read."""
    request.refuse_split()
    request.refuse_options("encoder", "column", "expect")
    if request.frame is not None:
        raise UsageError(
            f"frame {request.frame!r}: {request.text} is a set of embeddings, which has no frames;"
            " give the images, or leave it out"
        )
    manifest = read_manifest(request.path) if request.path.is_dir() else None
    files, count = embedding_files_of(request)
    if not sum(part.rows for part in files):
        raise VisleakError(
            f"{request.text} holds no vectors: emb: takes .npy files (img_emb/img_emb_0000.npy) or"
            " .parquet files with a column of vectors"
        )
    width = files[0].width
    for part in files:
        if part.width != width:
            raise VisleakError(
                f"{part.locator} holds vectors of {part.width} numbers, {files[0].locator} of"
                f" {width}; a set has one width"
            )
    first = starts_of([part.rows for part in files]).tolist()
    files = [replace(part, first=at) for part, at in zip(files, first, strict=False)]
    files = _with_ids(files, request, manifest)
    if manifest is not None:
        _check_manifest(request.path, manifest, files, width, count)
        stated = zip(files, manifest.digests, manifest.tables, strict=True)
        files = [
            replace(part, stated=tuple((path, digest) for path, digest in pairs if digest))
            for part, vectors, table in stated
            if (pairs := ((part.locator, vectors), (getattr(part.about, "path", ""), table)))
        ]
    claimed = request.options.get("encoder", "")
    if manifest is None and not claimed:
        raise VisleakError(
            f"{request.text}: the encoder that made these vectors is unknown; name it:"
            f" emb:{request.path}?encoder=clip"
        )
    if manifest is not None and claimed not in ("", manifest.encoder_name):
        raise VisleakError(
            f"{request.text}: by its manifest {manifest.encoder_name} made these vectors,"
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
        files=count,
        options=request.wanted,
        unreadable=request.path / UNREADABLE if manifest and manifest.unreadable else None,
    )


def _check_manifest(
    folder: Path, manifest: Manifest, files: Files, width: int, count: FileCount
) -> None:
    rows = tuple(part.rows for part in files)
    if rows != manifest.shards or width != manifest.width:
        raise VisleakError(
            f"{folder}: its manifest describes {len(manifest.shards)} shards with"
            f" {sum(manifest.shards):,} vectors of width {manifest.width}, there are {len(rows)}"
            f" with {sum(rows):,} of width {width} ({count}); fetch the folder again"
        )
    if manifest.unreadable and not (folder / UNREADABLE).is_file():
        raise VisleakError(
            f"{folder}: its manifest counts {manifest.unreadable:,} unreadable images, and"
            f" {UNREADABLE} is missing; fetch the folder again"
        )


def _with_ids(files: Files, request: Request, manifest: Manifest | None) -> Files:
    pattern, names = request.pattern("group"), dict[str, str]()
    paths = [part.about.path for part in files if part.about and not part.about.names]
    if paths:
        names = _names(files, list(dict.fromkeys(paths)), request, manifest)
    else:
        request.refuse_columns("the set of embeddings")
    return [
        replace(part, about=table and replace(table, names=table.names or names), pattern=pattern)
        for part in files
        for table in [part.about]
    ]


def _names(
    files: Files, paths: Sequence[str], request: Request, manifest: Manifest | None
) -> dict[str, str]:
    """Return the columns that all files have, by their meaning."""
    schemas = [read_footer(path).schema.to_arrow_schema().names for path in paths]
    vectors = {part.column for part in files if isinstance(part, ParquetPartition)}
    there = [n for n in schemas[0] if n not in vectors and all(n in names for names in schemas)]
    searched = {"group"} if request.pattern("group") is not None else set()
    names: dict[str, str] = {}
    for use in ("id", "label", "group"):
        wanted = getattr(request, use)
        if wanted is None or use in searched:
            continue
        if wanted not in there:
            raise UsageError(
                f"{use} {wanted!r}: {request.text} has no such column; it has {', '.join(there)}"
            )
        names[use] = wanted
    for use, usual in _USES.items():
        found = next((name for name in usual if name in there), None)
        if use not in names and use not in searched and found is not None:
            names[use] = found
    if manifest is not None:  # columns that mean this only where visleak wrote them
        names |= {use: use for use in ("digest", "flat") if use in there}
    if "id" in names:
        return names
    if manifest is not None and "id" in there:
        return names | {"id": "id"}
    # in small sets, the first of the usual columns whose values are unique
    if sum(part.rows for part in files if part.about and not part.about.names) <= CHECKED:
        for name in (*ID_COLUMNS, *PATH_COLUMNS):
            if name in there and can_identify(read_tables(paths, [name])[name]):
                return names | {"id": name}
    return names


def embedding_files_of(request: Request) -> tuple[Files, FileCount]:
    """Return the files of whatever layout there is, in the order of their numbers."""
    path, expected = request.path, request.whole("expect", 0, least=1)
    partitions: Files
    if path.is_file():
        count = FileCount(1, expected or 1)
        if path.suffix == ".npy":
            partitions = [_npy(path, _beside(path, alone=False))]
        elif path.suffix == ".parquet":
            partitions = list(_parquet_partitions(path, request))
        else:
            raise request.refusal(
                f"{path.name} is neither .npy nor .parquet; emb: takes one of them, or a folder of"
                " them"
            )
    elif places := [found for place in PLACES if (found := in_order((path / place).glob("*.npy")))]:
        vectors, *others = places
        partitions = _with_tables(path, vectors) or [
            _npy(file, _beside(file, alone=len(vectors) == 1)) for file in vectors
        ]
        count = count_files(vectors, _tables(path)[1], expected)
        count = replace(count, ignored=sum(map(len, others)))
    else:
        files = in_order(path.glob("*.parquet"))
        partitions = [part for file in files for part in _parquet_partitions(file, request)]
        count = count_files(files, expected=expected)
    if expected and (count.present, count.expected) != (expected, expected):
        raise VisleakError(
            f"{request.text}: {count}, but expect={expected} is stated. Fetch what is missing, or"
            " correct the number"
        )
    return partitions, count


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
    place, tables = _tables(folder)
    numbers = [_file_number(file) for file in vectors]
    if not tables or -1 in numbers:
        return []
    for file, number in zip(vectors, numbers, strict=True):
        if number not in tables:
            raise VisleakError(
                f"{file} has no {TEXTS}_{number}.parquet in {place}, other vectors have: fetch it,"
                " or leave all of them out to go by row number"
            )
    return [_npy(file, tables[n]) for file, n in zip(vectors, numbers, strict=True)]


def _tables(folder: Path) -> tuple[Path, dict[int, Path]]:
    """Return the folder of the tables beside files of vectors, and these by their numbers."""
    place = folder / TEXTS if (folder / TEXTS).is_dir() else folder
    files = {_file_number(file): file for file in in_order(place.glob(f"{TEXTS}_*.parquet"))}
    files.pop(-1, None)
    return place, files


def _file_number(file: Path) -> int:
    """Return the number at the end of a file's name, -1 where there is none."""
    found = re.search(r"(\d+)$", file.stem)
    return int(found[1]) if found else -1


def _beside(file: Path, *, alone: bool) -> Path | None:
    """Return the file with the ids of the vectors of a ``.npy`` file."""
    own = (".ids.txt", ".ids.parquet", ".parquet")
    names = [file.with_name(file.stem + ending) for ending in own]
    if alone:
        names += [file.parent / name for name in ("ids.txt", "ids.parquet", f"{TEXTS}.parquet")]
    return next((name for name in names if name.is_file()), None)


def _npy(file: Path, texts: Path | None) -> NpyPartition:
    rows, width = npy_shape(file)
    about = None
    if texts is not None:
        if texts.suffix == ".txt":
            about, known = Table(str(texts), {"id": ""}), len(read_lines(texts))
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
    types = pa.types
    nested = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    lists = [
        str(field.name)
        for field in schema
        if any(is_(field.type) for is_ in nested) and types.is_floating(field.type.value_type)
    ]
    if wanted is not None and wanted not in lists:
        there = ", ".join(lists) or "none"
        raise UsageError(f"column {wanted!r}: {file} has no such column of vectors; it has {there}")
    usual = [wanted] if wanted else [name for name in VECTOR_COLUMNS if name in lists]
    if len(lists) == 1 or usual:
        return (usual or lists)[0]
    if lists:
        raise VisleakError(
            f"{file} has several columns of vectors ({', '.join(lists)}); choose one:"
            f" emb:{file}?column={lists[0]}"
        )
    raise VisleakError(
        f"{file} has no column of vectors (lists of floats); it has {', '.join(schema.names)}"
    )


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


# -- files ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a folder of embeddings."""

    encoder: str  # digest of the encoder
    encoder_name: str  # how the command line calls it
    width: int  # number of coordinates
    thresholds: Mapping[str, object] | None  # that the encoder came with, or None
    anonymous: bool  # ids are salted hashes, and nothing else is known of the images
    shards: tuple[int, ...]  # number of vectors in each shard
    # BLAKE2b-128 of each shard's file of vectors; empty where it is not stated
    digests: tuple[str, ...]
    tables: tuple[str, ...]  # those of their tables
    unreadable: int  # images that could not be read, and have no vector


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, ``None`` if it has none."""
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / UNFINISHED).is_file():
            raise VisleakError(
                f"{folder} is not finished; run the same `visleak encode` again, it resumes"
                " where it stopped"
            )
        return None
    with explaining(f"{path} cannot be read", ValueError, OSError, RecursionError):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("kind") != KIND:
        # clip-retrieval and others have files of that name too
        return None
    schema = content.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise VisleakError(
            f"{path} has layout {schema!r}, this visleak reads up to {SCHEMA}; use a newer one"
        )
    try:
        encoder, shards, limits = content["encoder"], content["shards"], content["thresholds"]
        return Manifest(
            encoder=str(encoder["digest"]),
            encoder_name=str(encoder["name"]),
            width=int(encoder["width"]),
            thresholds=None if limits is None else _thresholds(limits),
            anonymous=bool(content["anonymous"]),
            shards=tuple(int(shard["rows"]) for shard in shards),
            digests=tuple(str(shard.get("digest", "")) for shard in shards),
            tables=tuple(str(shard.get("metadata_digest", "")) for shard in shards),
            unreadable=int(content.get("unreadable", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error!r}); encode the set again") from error


def _thresholds(stated: Mapping[str, Any]) -> dict[str, object]:
    hard, soft = float(stated["hard"]), float(stated["soft"])
    if not -1.0 <= soft <= hard <= 1.0:
        raise ValueError("thresholds are similarities with -1 <= soft <= hard <= 1")
    return {
        "hard": hard,
        "soft": soft,
        "provenance": str(stated.get("provenance", "")),
        "provisional": bool(stated.get("provisional", False)),
    }


@dataclass(frozen=True, slots=True)
class Table:
    """A Parquet file with one row per vector, or a text file with one id per line."""

    path: str
    names: Mapping[str, str]  # what a column is for (id, label, ...) to its name in the file
    start: int = 0  # row of the file at which the partition begins

    @property
    def is_text(self) -> bool:
        """Whether the file is text."""
        return self.path.endswith(".txt")

    def column(self, use: str, rows: Int64) -> pa.Array:
        """Return a column for some rows: numbers for a size, else text."""
        if self.is_text:
            return read_lines(Path(self.path)).take(pa.array(rows))
        name = self.names[use]
        stored = rows_of(self.path, name, rows + self.start)
        plain = _PLAIN.get(use)
        return text_column(stored, name) if plain is None else stored.cast(plain).combine_chunks()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePartition:
    """Vectors in a file."""

    locator: str
    rows: int  # shape of the matrix
    width: int
    stamp: str  # size and time of change of the files
    first: int = 0  # number of its first row in the whole set: the id of images that have no other
    start: int = 0  # row of the file at which the vectors begin
    about: Table | None = None  # what is known of the images
    pattern: re.Pattern[str] | None = None  # finds the group in the id
    # its files and the digests that the manifest states for them
    stated: tuple[tuple[str, str], ...] = ()

    def columns(self, rows: Int64 | None = None) -> Mapping[str, pa.Array]:
        """Return what is known of some images, see :class:`visleak.records.Partition`."""
        chosen = np.arange(self.rows, dtype=np.int64) if rows is None else rows
        return PartitionColumns(self, chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class NpyPartition(FilePartition):
    """A ``.npy`` file, memory-mapped."""

    def matrix(self) -> npt.NDArray[np.generic]:
        """Return the vectors as stored, see :class:`visleak.records.Partition`."""
        if not self.rows:
            return np.empty((0, self.width), np.float32)
        with explaining(f"{self.locator} cannot be read", OSError, ValueError):
            stored = np.load(self.locator, mmap_mode="r", allow_pickle=False)
        if stored.shape != (self.rows, self.width):
            raise VisleakError(f"{self.locator} has changed since it was opened")
        return np.asarray(stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetPartition(FilePartition):
    """Some row groups of a Parquet file with a column of vectors."""

    column: str  # name of the column
    groups: tuple[int, ...]  # numbers of the row groups

    def matrix(self) -> npt.NDArray[np.generic]:
        """Return the vectors as stored, see :class:`visleak.records.Partition`; in memory."""
        with (
            explaining(f"{self.locator} cannot be read", pa.ArrowException, OSError),
            pq.ParquetFile(self.locator, memory_map=True) as file,
        ):
            stored = file.read_row_groups(list(self.groups), columns=[self.column])
        return vectors_of(stored[self.column].combine_chunks(), self.width, self.locator)


Files = Sequence[NpyPartition | ParquetPartition]


class PartitionColumns(Mapping[str, pa.Array]):
    """The columns of some images of a partition, each read on access."""

    def __init__(self, part: FilePartition, rows: Int64) -> None:
        self._part = part
        self._rows = rows
        stored = part.about.names if part.about is not None else ()
        grouped = ("group",) if part.pattern is not None else ()
        self._uses = tuple(dict.fromkeys(("id", "locator", *stored, *grouped)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._uses)

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, use: object) -> bool:  # the mixin's would read the column
        return use in self._uses

    def __getitem__(self, use: str) -> pa.Array:
        if use not in self._uses:
            raise KeyError(use)
        part, about = self._part, self._part.about
        if use == "group" and part.pattern is not None:
            ids = self["id"].to_pylist()
            return pa.array((captured(part.pattern, id_) for id_ in ids), pa.string())
        if about is None or use not in about.names:
            # row numbers: over the whole set, or in the file as FILE!ROW
            start = part.first if use == "id" else part.start
            numbers = pa.array(start + self._rows, pa.int64()).cast(pa.string())
            if use == "id":
                return numbers
            place = pa.scalar(part.locator, pa.string())
            return pc.binary_join_element_wise(place, numbers, "!").cast(pa.string())
        column = about.column(use, self._rows)
        if use == "id" and column.null_count:
            row = int(self._rows[np.flatnonzero(column.is_null())[0]])
            raise VisleakError(f"{part.locator}: the id of row {row} is null; choose another --id")
        return column


def rows_of(path: str, name: str, rows: Int64) -> pa.ChunkedArray:
    """Read some rows of a column of a Parquet file; only the row groups that hold them."""
    with (
        explaining(f"{path} cannot be read", pa.ArrowException, OSError),
        pq.ParquetFile(path, memory_map=True) as file,
    ):
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        starts = starts_of([group.num_rows for group in groups])
        owner = np.searchsorted(starts, rows, side="right") - 1
        held = np.unique(owner)
        stored = file.read_row_groups(held.tolist(), columns=[name])[name]
    begins = starts_of(np.diff(starts)[held].tolist())
    place = rows - starts[owner] + begins[np.searchsorted(held, owner)]
    return stored.take(pa.array(place.astype(np.int64)))


def vectors_of(column: pa.Array, width: int, locator: str) -> npt.NDArray[np.generic]:
    """Return a column of lists as a matrix (rows, width); NaN where there is no vector."""
    missing = column.is_null().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(column).fill_null(width).to_numpy(zero_copy_only=False)
    if (wrong := lengths[lengths != width]).size:
        raise VisleakError(
            f"{locator}: a vector has {int(wrong[0])} numbers, the first has {width};"
            " all must have the same"
        )
    values = column.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    if not missing.any():
        return np.asarray(values)
    matrix = np.full((len(column), width), np.nan, values.dtype)
    matrix[~missing] = values
    return matrix


def read_lines(path: Path) -> pa.StringArray:
    """Return the lines of a text file of ids."""
    with explaining(f"{path} cannot be read as UTF-8 text", OSError, UnicodeDecodeError):
        text = path.read_text(encoding="utf-8-sig")
    lines = text.removesuffix("\n").split("\n") if text else []
    return pa.array([line.rstrip("\r") for line in lines], pa.string())


def npy_shape(path: Path) -> tuple[int, int]:
    """Return the shape of a matrix in a ``.npy`` file from its header."""
    with (
        explaining(f"{path} is not a .npy file", OSError, ValueError, Refused),
        path.open("rb") as file,
    ):
        header = npy_header(file)
        begins = file.tell()
    shape, dtype = header.shape, header.dtype
    if dtype.name not in FLOATS or len(shape) != 2:
        raise VisleakError(
            f"{path} holds {dtype} of shape {shape}; vectors are a matrix (rows, width) of"
            f" {', '.join(FLOATS)}"
        )
    wanted, there = begins + header.size, path.stat().st_size
    if there < wanted:
        raise VisleakError(
            f"{path} is truncated: {there:,} of {wanted:,} bytes are there; fetch the file"
            " again, or encode the set again"
        )
    return shape[0], shape[1]
