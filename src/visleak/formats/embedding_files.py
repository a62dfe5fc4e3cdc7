"""Files of a set of embeddings: their manifest, and partitions of ``.npy`` and Parquet files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError, explaining
from visleak.formats.arrays import npy_header
from visleak.formats.request import captured, text_column
from visleak.records import Int64, Refused

MANIFEST: Final = "manifest.json"  # names within the folder, as clip-retrieval has them
VECTORS: Final = "img_emb"
TEXTS: Final = "metadata"
#: There while a folder is being written, with what is needed to resume.
UNFINISHED: Final = "unfinished.json"
KIND: Final = "visleak embeddings"  # what the manifest says it is, and the version of its layout
SCHEMA: Final = 1
FLOATS: Final = ("float16", "float32", "float64")  # types of the numbers that are read
#: Columns that stay numbers or marks; all others are text.
_PLAIN: Final = {"width": pa.int32(), "height": pa.int32(), "flat": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder of embeddings says of itself."""

    encoder: str  # digest of the encoder
    encoder_name: str  # how the command line calls it
    width: int  # number of coordinates
    thresholds: Mapping[str, object] | None  # that the encoder came with, or None
    anonymous: bool  # ids are salted hashes, and nothing else is known of the images
    shards: tuple[int, ...]  # number of vectors in each shard
    # BLAKE2b-128 of each shard's file of vectors; empty where it is not stated
    digests: tuple[str, ...]
    tables: tuple[str, ...]  # those of their tables


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
        return _manifest(content)
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error!r}); encode the set again") from error


def _manifest(content: Mapping[str, Any]) -> Manifest:
    encoder, thresholds = content["encoder"], content["thresholds"]
    if thresholds is not None:
        hard, soft = float(thresholds["hard"]), float(thresholds["soft"])
        if not -1.0 <= soft <= hard <= 1.0:
            raise ValueError("thresholds are similarities with -1 <= soft <= hard <= 1")
        thresholds = {
            "hard": hard,
            "soft": soft,
            "provenance": str(thresholds.get("provenance", "")),
            "provisional": bool(thresholds.get("provisional", False)),
        }
    return Manifest(
        encoder=str(encoder["digest"]),
        encoder_name=str(encoder["name"]),
        width=int(encoder["width"]),
        thresholds=thresholds,
        anonymous=bool(content["anonymous"]),
        shards=tuple(int(shard["rows"]) for shard in content["shards"]),
        digests=tuple(str(shard.get("digest", "")) for shard in content["shards"]),
        tables=tuple(str(shard.get("metadata_digest", "")) for shard in content["shards"]),
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """A text file with one id a line."""

    path: str

    @property
    def uses(self) -> tuple[str, ...]:
        """Ids are all there is."""
        return ("id",)

    def column(self, use: str, rows: Int64) -> pa.Array:
        """Return the ids of some rows."""
        return read_lines(Path(self.path)).take(pa.array(rows))


@dataclass(frozen=True, slots=True)
class Table:
    """A Parquet file with one row a vector."""

    path: str
    names: Mapping[str, str]  # what a column is for (id, label, ...) to its name in the file
    start: int = 0  # row of the file at which the partition begins

    @property
    def uses(self) -> tuple[str, ...]:
        """What the columns are for."""
        return tuple(self.names)

    def column(self, use: str, rows: Int64) -> pa.Array:
        """Return a column for some rows: text, or numbers where they are meant as such."""
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
    about: Lines | Table | None = None  # what is known of the images, or None
    pattern: re.Pattern[str] | None = None  # finds the group in the id
    # its files and the digests that the manifest states for them
    stated: tuple[tuple[str, str], ...] = ()

    def columns(self, rows: Int64 | None = None) -> Mapping[str, pa.Array]:
        """Return what is known of some images, see :class:`visleak.records.Partition`."""
        return Known(self, np.arange(self.rows, dtype=np.int64) if rows is None else rows)


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


class Known(Mapping[str, pa.Array]):
    """What is known of some images; a column is read when it is asked for."""

    def __init__(self, part: FilePartition, rows: Int64) -> None:
        self._part = part
        self._rows = rows
        stored = part.about.uses if part.about is not None else ()
        grouped = ("group",) if part.pattern is not None else ()
        self._uses = tuple(dict.fromkeys(("id", "locator", *stored, *grouped)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._uses)

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, use: object) -> bool:
        return use in self._uses

    def __getitem__(self, use: str) -> pa.Array:
        if use not in self._uses:
            raise KeyError(use)
        part, about = self._part, self._part.about
        if use == "group" and part.pattern is not None:
            ids = self["id"].to_pylist()
            return pa.array((captured(part.pattern, id_) for id_ in ids), pa.string())
        if about is None or use not in about.uses:
            return self._id() if use == "id" else self._locator()
        column = about.column(use, self._rows)
        if use == "id" and column.null_count:
            row = int(self._rows[np.flatnonzero(column.is_null())[0]])
            raise VisleakError(f"{part.locator}: the id of row {row} is null; choose another --id")
        return column

    def _id(self) -> pa.Array:
        """Return the row numbers over the whole set."""
        return pa.array(self._part.first + self._rows, pa.int64()).cast(pa.string())

    def _locator(self) -> pa.Array:
        """Return ``FILE!ROW``."""
        numbers = pa.array(self._part.start + self._rows, pa.int64()).cast(pa.string())
        place = pa.scalar(self._part.locator, pa.string())
        return pc.binary_join_element_wise(place, numbers, "!").cast(pa.string())


def rows_of(path: str, name: str, rows: Int64) -> pa.ChunkedArray:
    """Read some rows of a column of a Parquet file; only the row groups that hold them."""
    with (
        explaining(f"{path} cannot be read", pa.ArrowException, OSError),
        pq.ParquetFile(path, memory_map=True) as file,
    ):
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        owner = np.searchsorted(starts, rows, side="right") - 1
        groups = np.unique(owner)
        stored = file.read_row_groups(groups.tolist(), columns=[name])[name]
    kept = np.diff(starts)[groups]
    begins = np.concatenate([[0], np.cumsum(kept)])[:-1]
    place = rows - starts[owner] + begins[np.searchsorted(groups, owner)]
    return stored.take(pa.array(place.astype(np.int64)))


def vectors_of(column: pa.Array, width: int, locator: str) -> npt.NDArray[np.generic]:
    """Return a column of lists as a matrix (rows, width); NaN where there is no vector."""
    missing = column.is_null().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(column).fill_null(width).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        raise VisleakError(
            f"{locator}: a vector has {int(lengths[wrong[0]])} numbers, the first has {width};"
            " all must have the same"
        )
    there = column.drop_null().flatten()
    values = there.to_numpy(zero_copy_only=False).reshape(-1, width)
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
        raise VisleakError(f"{path} is truncated: {there:,} of {wanted:,} bytes are there")
    return shape[0], shape[1]


def file_stamp(*paths: Path | str) -> str:
    """Return a text that changes when one of the files does."""
    found = [os.stat(path) for path in paths]
    return " ".join(f"{status.st_size} {status.st_mtime_ns}" for status in found)
