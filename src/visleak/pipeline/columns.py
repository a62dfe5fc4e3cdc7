"""Growing columns on disk: rows are appended while a step runs and memory-mapped after it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from visleak.storage import naming


class GrowingColumn:
    """A file of rows of one shape and type.

    Args:
        path: the file.
        dtype: type of a value.
        shape: shape of a row.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._file = path.open("wb")
        self.rows = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append rows."""
        if values.shape[1:] != self._shape:
            raise ValueError(f"rows must have shape {self._shape}, got {values.shape[1:]}")
        with naming(self._path):
            self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.rows += len(values)

    def mapped(self) -> npt.NDArray[Any]:
        """Close the file and return its rows, memory-mapped and read-only."""
        with naming(self._path):
            self._file.close()
        shape = (self.rows, *self._shape)
        if not self.rows:
            return np.empty(shape, self._dtype)
        return np.memmap(self._path, self._dtype, mode="r", shape=shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with naming(self._path):
            self._file.close()
