"""Existing vectors of images or of captions, with the id of an image per row."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import UsageError, VisleakError, one_line
from visleak.formats import open_images
from visleak.formats.embedding_files import MANIFEST, Table
from visleak.formats.tables import read_footer
from visleak.records import Bool, EmbeddingSet, Float32
from visleak.vectors import check_digest, forget, unit_rows

Matrix = npt.NDArray[np.floating]

ROWS: Final = 65_536  # rows that are normalised at a time

#: Names in a .npz of the ids of images and of the vectors, in order of preference.
NPZ_IDS: Final = ("image_id", "id", "ids")
NPZ_VECTORS: Final = ("vectors", "embeddings", "features")

#: Columns with the id of the image that a caption is of, in order of preference.
TEXT_IDS: Final = ("image_id", "id")

WRITTEN: Final = "emb:FOLDER, or a .npy, .npz or .parquet file"  # what is given, for messages


@dataclass(frozen=True)
class StoredVectors:
    """Vectors and the images they are of."""

    ids: pa.StringArray  # (n,)
    matrix: Float32  # (n, d), unit rows; zero where a stored row has no direction
    usable: Bool  # (n,): the stored row has one
    source: str  # as given

    @property
    def digest(self) -> str:
        """Digest of ids and vectors."""
        hasher = hashlib.blake2b(digest_size=16)
        for id_ in self.ids.to_pylist():
            hasher.update(id_.encode("utf-8", "surrogateescape") + b"\0")
        hasher.update(np.ascontiguousarray(self.matrix).astype("<f4", copy=False).data)
        return hasher.hexdigest()


def read_image_vectors(text: str) -> StoredVectors:
    """Return the vectors of images; their ids are unique."""
    found = _read_npz(text, "--images") if _is_npz(text) else _read_emb(text, "--images")
    counts = found.ids.value_counts()
    if len(counts) < len(found.ids):
        twice = next(row["values"].as_py() for row in counts if row["counts"].as_py() > 1)
        raise VisleakError(
            f"--images {text}: id {twice!r} occurs more than once; give one vector per image"
        )
    return found


def read_caption_vectors(text: str) -> StoredVectors:
    """Return the vectors of captions, each with the id of the image it is of."""
    return _read_npz(text, "--texts") if _is_npz(text) else _read_emb(text, "--texts")


def _is_npz(text: str) -> bool:
    return text.lower().endswith(".npz")


def _read_npz(text: str, option: str) -> StoredVectors:
    path = Path(text.removeprefix("emb:"))
    if not path.is_file():
        raise UsageError(f"{option} {text}: there is no such file; give {WRITTEN}")
    try:
        with np.load(path, allow_pickle=False) as held:
            names = list(held)
            ids = next((held[name] for name in NPZ_IDS if name in names), None)
            vectors = next((held[name] for name in NPZ_VECTORS if name in names), None)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise VisleakError(f"{option} {text} cannot be read as .npz ({one_line(error)})") from error
    if ids is None or vectors is None:
        raise VisleakError(
            f"{option} {text} needs arrays {NPZ_IDS[1]} and {NPZ_VECTORS[0]}; it has"
            f" {', '.join(names) or 'none'}"
        )
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or ids.shape != (len(vectors),):
        raise VisleakError(
            f"{option} {text}: vectors must be floats (n, width) with n ids; got {vectors.dtype}"
            f" {vectors.shape} and ids {ids.shape}"
        )
    if ids.dtype.kind not in "iuU":
        raise VisleakError(f"{option} {text}: ids must be text or whole numbers; got {ids.dtype}")
    return _unit(pa.array(ids.tolist()).cast(pa.string()), [vectors], len(vectors), text)


def _read_emb(text: str, option: str) -> StoredVectors:
    source = text if text.startswith("emb:") else f"emb:{text}"
    place, asks, _ = source.removeprefix("emb:").partition("?")
    if not Path(place).exists():
        raise UsageError(f"{option} {text}: there is no {place}; give {WRITTEN}")
    if "encoder=" not in source and not (Path(place) / MANIFEST).is_file():
        # the model does not matter as long as both sides come from one
        source += f"{'&' if asks else '?'}encoder=unknown"
    images = cast(EmbeddingSet, open_images(source))
    if option == "--texts":
        column = _text_column(images)
        images = images if column is None else cast(EmbeddingSet, open_images(source, id=column))
    parts = images.partitions
    for part in parts:
        check_digest(part)
    ids = pa.concat_arrays([part.columns()["id"] for part in parts])
    if ids.null_count:
        raise VisleakError(f"{option} {text}: an id is null; every vector needs one")
    return _unit(ids, (part.matrix() for part in parts), len(images), text)


def _text_column(images: EmbeddingSet) -> str | None:
    """Return the column with the image that a caption is of; ids there need not be unique."""
    about = getattr(images.partitions[0], "about", None)
    if not isinstance(about, Table):
        return None
    names = read_footer(about.path).schema.to_arrow_schema().names
    return next((name for name in TEXT_IDS if name in names), None)


def _unit(ids: pa.StringArray, stored: Iterable[Matrix], rows: int, source: str) -> StoredVectors:
    """Return stored matrices, one after the other, as unit rows."""
    matrix: Float32 | None = None
    usable = np.zeros(rows, np.bool_)
    done = 0
    for part in _blocks(stored):
        unit = unit_rows(part)
        if matrix is None:
            matrix = np.empty((rows, part.shape[1]), np.float32)
        there = slice(done, done + len(part))
        matrix[there] = unit.matrix
        usable[there] = ~unit.broken
        done += len(part)
    if matrix is None or not usable.any():
        raise VisleakError(f"{source} holds no vector with a direction")
    return StoredVectors(ids, matrix, usable, source)


def _blocks(stored: Iterable[Matrix]) -> Iterator[Matrix]:
    for matrix in stored:
        for start in range(0, len(matrix), ROWS):
            yield matrix[start : start + ROWS]
        forget(matrix)


def about_vectors(vectors: StoredVectors) -> Mapping[str, object]:
    """Return what identifies stored vectors, as plain values."""
    return {
        "source": vectors.source,
        "rows": len(vectors.ids),
        "width": int(vectors.matrix.shape[1]),
        "digest": vectors.digest,
    }
