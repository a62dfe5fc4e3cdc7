"""Predictions from npz archives of numpy arrays. Nothing in them is ever unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import VisleakError
from visleak.impact.answer_columns import (
    BLOCK,
    TEXTS,
    Bool,
    ClassScores,
    Found,
    joined,
    quoted,
    text_of,
)

#: Bytes that the arrays read whole may have together: a million ids of 200 letters are 0.8 GB.
LARGEST: Final = 2 << 30

#: Kinds of numpy's types that are read: yes and no, numbers, text.
_KINDS: Final = "biufUS"


@dataclass(frozen=True, slots=True)
class Stored:
    """What the header of an array says, before the array is read."""

    shape: tuple[int, ...]
    kind: np.dtype[Any]
    by_columns: bool

    @property
    def size(self) -> int:
        """Bytes of the array; Python's whole numbers, so that none is too large to be counted."""
        return math.prod(self.shape) * self.kind.itemsize


def read_npz(path: Path) -> Found:
    """Return the plain columns of an npz archive, its class scores, ranked lists, and the rest.

    Raises:
        VisleakError: an array holds Python objects, or is absurdly large.
        ValueError, OSError, zipfile.BadZipFile: it is no npz archive.
    """
    with zipfile.ZipFile(path) as archive:
        found = _headers(path, archive)
        rows = _rows(path, found)
        known = {name for name, each in found.items() if each.kind.kind in _KINDS}
        plain = [n for n in found if n in known - {"classes"} and found[n].shape == rows]
        whole = {*plain, *({"classes", "predictions"} & known)}
        _refuse_large(path, {name: found[name].size for name in whole})
        columns = {name: _arrow(_native(_read(archive, name))) for name in plain}
        lists = {n for n in known if len(found[n].shape) == 2 and found[n].shape[:1] == rows}
        scores = ranked = None
        if "scores" in lists and found["scores"].kind.kind in "iuf":
            if found["scores"].by_columns:
                _refuse_large(path, {"scores": found["scores"].size})
            names = _native(_read(archive, "classes")) if "classes" in known else None
            scores = ClassScores(_classes(path, names), partial(_score_blocks, path))
        if "predictions" in lists:
            ranked = partial(_ranked_blocks, path, _native(_read(archive, "predictions")))
    used = {*columns, *(["scores", "classes"] if scores else []), *(["predictions"] * bool(ranked))}
    return columns, scores, ranked, tuple(name for name in found if name not in used)


def _rows(path: Path, found: dict[str, Stored]) -> tuple[int, ...]:
    """Return how many ids there are; refuse what must have as many and has not."""
    if "id" not in found:
        return ()
    rows = found["id"].shape
    if len(rows) != 1:
        raise VisleakError(f"{path}: array `id` must be one id an image; its shape is {rows}")
    for name in (*TEXTS, "predictions", "scores"):
        if name in found and found[name].shape[:1] != rows:
            raise VisleakError(
                f"{path}: array {quoted(name)} of shape {found[name].shape} must have a row for"
                f" each of the {rows[0]:,} ids"
            )
    return rows


def _headers(path: Path, archive: zipfile.ZipFile) -> dict[str, Stored]:
    """Return what each array says of itself; refuse what could hide more than data."""
    found = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename or name in found:
            raise VisleakError(
                f"{path}: {quoted(info.filename)} is no array of an npz archive, or a second one"
            )
        with archive.open(info) as member:
            stored = _header(member)
            rest = info.file_size - member.tell()
        if stored.kind.hasobject:
            raise VisleakError(
                f"{path}: array {quoted(name)} holds Python objects, which are never loaded; save"
                " it as numbers or text, such as np.array(ids, dtype=str)"
            )
        if stored.size != rest:
            raise VisleakError(
                f"{path}: array {quoted(name)} claims {stored.size:,} bytes and has {rest:,}; the"
                " file is damaged"
            )
        found[name] = stored
    return found


def _header(member: IO[bytes]) -> Stored:
    version = np.lib.format.read_magic(member)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"arrays of format {version} are not read")
    shape, by_columns, kind = readers[version](member)
    return Stored(tuple(map(int, shape)), kind, bool(by_columns) and len(shape) > 1)


def _refuse_large(path: Path, sizes: dict[str, int]) -> None:
    total = sum(sizes.values())
    if total > LARGEST:
        name = max(sizes, key=sizes.__getitem__)
        raise VisleakError(
            f"{path}: its arrays claim {total:,} bytes, array {quoted(name)} most of them; at most"
            f" {LARGEST:,} are read (use Parquet for more)"
        )


def _read(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    return array


def _arrow(array: npt.NDArray[Any]) -> pa.Array:
    return joined(pa.array(array))


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in this machine's order of bytes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _classes(path: Path, names: npt.NDArray[Any] | None) -> pa.StringArray | None:
    if names is None:
        return None
    if names.ndim != 1:
        raise VisleakError(
            f"{path}: array `classes` must be one name a class; its shape is {names.shape}"
        )
    return text_of(_arrow(names), f"{path}: array `classes`")


def _score_blocks(path: Path) -> Iterator[tuple[npt.NDArray[Any], Bool]]:
    """Yield rows of class scores without ever holding all of them."""
    with zipfile.ZipFile(path) as archive, archive.open("scores.npy") as member:
        stored = _header(member)
        rows, width = stored.shape
        step = max(1, BLOCK // max(1, width))
        if stored.by_columns:
            whole = _read(archive, "scores")
        for start in range(0, rows, step):
            count = min(step, rows - start)
            if stored.by_columns:
                values = whole[start : start + count]
            else:
                data = member.read(count * width * stored.kind.itemsize)
                values = np.frombuffer(data, stored.kind).reshape(count, width)
            yield _native(values), np.ones(count, dtype=np.bool_)


def _ranked_blocks(path: Path, ranked: npt.NDArray[Any]) -> Iterator[pa.ListArray]:
    width = ranked.shape[1]
    step = max(1, BLOCK // max(1, width))
    for start in range(0, len(ranked), step):
        part = ranked[start : start + step]
        flat = _arrow(np.ascontiguousarray(part).reshape(-1))
        texts = text_of(flat, f"{path}: array `predictions`")
        offsets = np.arange(len(part) + 1, dtype=np.int32) * np.int32(width)
        yield pa.ListArray.from_arrays(pa.array(offsets), texts)
