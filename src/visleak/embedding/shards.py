"""A shard of a folder of embeddings: a file of vectors, a table of texts, a note at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import VisleakError
from visleak.formats.embedding_files import TEXTS, VECTORS
from visleak.records import Fingerprints, Float32, ImageSet, Int64, Problem
from visleak.storage import file_digest, replacing, write_json, write_tables

CHUNK: Final = 16_384  # rows written at a time; only bounds memory
GROUP: Final = 50_000  # rows per row group of the table
#: Notes of finished shards; they are removed when the folder is complete.
NOTES: Final = ".shard_*.json"


@dataclass(frozen=True, slots=True)
class Shard:
    """The files of a shard."""

    folder: Path  # of the embeddings
    number: int  # of the shard

    @property
    def vectors(self) -> Path:
        """The file of vectors."""
        return self.folder / VECTORS / f"{VECTORS}_{self.number:04d}.npy"

    @property
    def texts(self) -> Path:
        """The table of the images."""
        return self.folder / TEXTS / f"{TEXTS}_{self.number:04d}.parquet"

    @property
    def note(self) -> Path:
        """The note, which exists once both are complete."""
        return self.folder / f".shard_{self.number:04d}.json"


@dataclass(frozen=True, slots=True)
class Note:
    """A finished shard."""

    rows: int  # number of vectors
    digest: str  # BLAKE2b-128 of the file of vectors, in hexadecimal
    table: str  # that of the table
    problems: tuple[Problem, ...]  # images that could not be read


def read_note(shard: Shard) -> Note | None:
    """Return the note of a shard, ``None`` if it is not finished."""
    if not shard.note.is_file() or not (shard.vectors.is_file() and shard.texts.is_file()):
        return None
    try:
        stored: Any = json.loads(shard.note.read_text(encoding="utf-8"))
        problems = tuple(Problem(*(str(cell) for cell in row)) for row in stored["problems"])
        return Note(int(stored["rows"]), str(stored["digest"]), str(stored["table"]), problems)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VisleakError(f"{shard.note} is damaged ({error!r}); use --force") from error


def write_shard(
    shard: Shard,
    prints: Fingerprints,
    order: Int64,
    dtype: str,
    table: pa.Table,
    problems: Sequence[Problem],
) -> Note:
    """Write a shard; its note last, so that a killed run leaves it unfinished."""
    _write_matrix(shard.vectors, prints.matrix, order, dtype)
    parts = (table.slice(start, GROUP) for start in range(0, max(1, len(table)), GROUP))
    write_tables(shard.texts, table.schema, parts)
    note = Note(len(order), file_digest(shard.vectors), file_digest(shard.texts), tuple(problems))
    rows = [[p.set, p.id, p.locator, p.reason, p.detail] for p in note.problems]
    content = {"rows": note.rows, "digest": note.digest, "table": note.table, "problems": rows}
    write_json(shard.note, content)
    return note


def _write_matrix(path: Path, matrix: Float32, order: Int64, dtype: str) -> None:
    """Write rows of a matrix as ``.npy``, a bounded number at a time."""
    shape = (len(order), matrix.shape[1])
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    with replacing(path) as beside, beside.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for rows in _parts(matrix, order):
            file.write(np.ascontiguousarray(rows, dtype).data)


def _parts(matrix: Float32, order: Int64) -> Iterator[npt.NDArray[np.float32]]:
    for start in range(0, len(order), CHUNK):
        yield matrix[order[start : start + CHUNK]]


def texts_of(images: ImageSet, prints: Fingerprints, order: Int64) -> pa.Table:
    """Return the table of the images of some embeddings, one row per image."""
    listed = pa.array(prints.rows[order])
    columns = {
        "id": images.ids,
        "label": images.labels,
        "caption": images.captions,
        "group": images.groups,
        "locator": images.locators,
    }
    known = {name: column.take(listed) for name, column in columns.items() if column is not None}
    return pa.table(
        {
            **known,
            "width": pa.array(prints.sizes[order, 0], pa.int32()),
            "height": pa.array(prints.sizes[order, 1], pa.int32()),
            "digest": pa.array([d.tobytes().hex() for d in prints.digests[order]], pa.string()),
            "flat": pa.array(prints.flat[order]),
        }
    )
