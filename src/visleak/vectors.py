"""Stored vectors: checks, unit rows in ``float32``, and release of their memory."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.records import Bool, Float32, Partition

#: A stored row whose length is off by more than this is counted.
NORM_TOLERANCE: Final = 1e-2
#: Rows that are read at a time from a memory-mapped array.
GATHERED: Final = 16

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class UnitRows:
    """Stored rows at unit length."""

    matrix: Float32  # ``float32`` (n, d); unit rows, all zero where a stored row is broken
    # ``bool`` (n,): the stored row has no direction: it holds NaN or infinity, or nothing but zeros
    broken: Bool
    off: Bool  # ``bool`` (n,): its length differs from 1 by more than `NORM_TOLERANCE`


def unit_rows(stored: npt.NDArray[np.generic]) -> UnitRows:
    """Return stored rows (n, d) of any float type at unit length.

    Each row is worked on by itself in ``float64``, so the result does not depend on which rows
    come together.

    >>> unit_rows(np.array([[3.0, 4.0], [np.nan, 1.0]], np.float16)).matrix.tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).broken.tolist()
    [False, True]
    """
    rows = np.asarray(stored, np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    broken = ~(np.isfinite(norms) & (norms > 0))
    matrix = np.zeros(rows.shape, np.float32)
    matrix[~broken] = rows[~broken] / norms[~broken, None]
    off = ~broken & (np.abs(norms - 1.0) > NORM_TOLERANCE)
    return UnitRows(matrix, broken, np.asarray(off))


def check_digest(partition: Partition) -> None:
    """Compare the files of a partition with the digests of their manifest, where it has any."""
    for path, stated in partition.stated:
        try:
            with Path(path).open("rb") as file:
                whole = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        except OSError as error:
            raise VisleakError(f"{path} cannot be read: {error}") from error
        if (read := whole.hexdigest()) != stated:
            raise VisleakError(
                f"{path} is not the file that its manifest describes (digest {read[:12]}, the"
                f" manifest states {stated[:12]}). Fetch the file again, or encode the set again"
            )


def parts_of(count: int, step: int) -> list[slice]:
    """Return the slices that cut ``count`` rows into parts.

    >>> parts_of(5, 3)
    [slice(0, 3, None), slice(3, 6, None)]
    """
    return [slice(start, start + step) for start in range(0, count, step)]


def gathered(stored: npt.NDArray[Number], rows: npt.NDArray[np.integer]) -> npt.NDArray[Number]:
    """Return some rows of an array that may be memory-mapped; they alone stay in memory.

    The system maps up to half a MiB around each row that is read: of thousands of scattered rows
    that is the whole file. Each costs 20 microseconds, so this is for samples.
    """
    found = np.empty((len(rows), *stored.shape[1:]), stored.dtype)
    for part in parts_of(len(rows), GATHERED):
        found[part] = stored[rows[part]]
        forget(stored)
    return found


def forget(stored: npt.NDArray[np.generic]) -> None:
    """Let the system take back the memory of a memory-mapped array; its values stay on disk."""
    base: object = stored
    while isinstance(base, np.ndarray) and base.base is not None:
        if isinstance(base, np.memmap) and base.mode == "c":
            return  # what was changed in memory is on no disk
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
