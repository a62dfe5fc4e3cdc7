"""Data sets in the manner of torchvision: an object with a length and an item for each number.

Where the object tells which files or which array its items come from, those are read, and not
items that may have been transformed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import UsageError
from visleak.images.folder import file_set
from visleak.images.memory import is_tensor, label_column, open_memory, picture_in, rgb_of
from visleak.images.pixels import rgb_of_array
from visleak.images.request import Request
from visleak.records import Bytes8, ImageSet, Int64, Opener, Unreadable


@dataclass(frozen=True)
class ArrayOpener:
    """Hands out the pictures of one array.

    Attributes:
        data: (n, height, width, channels) or (n, height, width), ``uint8``.
    """

    data: npt.NDArray[np.uint8]

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures as arrays, see :class:`visleak.records.Opener`."""
        for position in positions:
            yield rgb_of_array(self.data[int(position)])


@dataclass(frozen=True)
class ChosenOpener:
    """Reads some pictures of another opener.

    Attributes:
        opener: the other one.
        rows: ``int64``, ascending: which of its positions.
    """

    opener: Opener
    rows: Int64

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures at the positions, see :class:`visleak.records.Opener`."""
        return self.opener.read(self.rows[np.asarray(positions, np.int64)].tolist())


def open_mapped(source: Any, request: Request) -> ImageSet:
    """Make a set of a data set object; what is no data set is taken for a plain sequence.

    Known are what torchvision's have: ``samples`` or ``imgs`` (files), ``data`` (one array),
    ``targets``, ``classes``, ``root``; and ``dataset`` with ``indices``, as torch's ``Subset``.

    Raises:
        UsageError: it is no sequence, an index is not in it, or its transform normalises.
        VisleakError: it is empty.
    """
    if _is_subset(source):
        return _subset(source, request)
    files = _files(source)
    if files is not None:
        request.refuse_columns("the data set")
        return _file_set(source, files, request)
    data = _array_of(source)
    if data is not None:
        request.refuse_columns("the data set")
        return _array_set(source, data, request)
    return _item_set(source, request)


def _subset(source: Any, request: Request) -> ImageSet:
    """Return the chosen rows of a data set, each once, under the ids they have in the whole."""
    rows, inner = _rows(source), source.dataset
    while _is_subset(inner):
        rows, inner = _taken(_rows(inner), rows), inner.dataset
    if not len(rows):
        request.no_pictures("the subset is empty")
    whole = open_mapped(inner, replace(request, group=None, frame=None))
    rows = _taken(np.arange(len(whole)), np.unique(rows))
    taken = pa.array(rows)
    return request.image_set(
        whole.ids.take(taken),
        whole.locators.take(taken),
        ChosenOpener(whole.opener, rows),
        labels=None if whole.labels is None else whole.labels.take(taken),
    )


def _is_subset(source: Any) -> bool:
    return hasattr(source, "dataset") and hasattr(source, "indices")


def _rows(subset: Any) -> Int64:
    return np.asarray(list(subset.indices), np.int64)


def _taken(values: Int64, rows: Int64) -> Int64:
    """Return ``values[rows]``; refuses rows that are not there."""
    if len(rows) and (rows.min() < 0 or rows.max() >= len(values)):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise UsageError(f"source: a subset of {len(values)} pictures names row {wrong}")
    return values[rows]


def _files(source: Any) -> list[tuple[str, Any]] | None:
    """Return (path, target) of the files that a data set is made of."""
    for name in ("samples", "imgs"):
        found = _part(source, name)
        if isinstance(found, list | tuple) and found and all(map(_names_file, found)):
            return [(os.fspath(path), target) for path, target, *_ in found]
    return None


def _names_file(sample: Any) -> bool:
    return (
        isinstance(sample, tuple | list)
        and len(sample) >= 2
        and isinstance(sample[0], str | os.PathLike)
    )


def _file_set(source: Any, files: Sequence[tuple[str, Any]], request: Request) -> ImageSet:
    """Return the files as a set; ids are paths below the root, else as they are."""
    root = getattr(source, "root", None)
    base = os.path.abspath(root) if isinstance(root, str | os.PathLike) else os.getcwd()
    paths = [os.path.abspath(path) for path, _ in files]
    inside = all(path.startswith(base.rstrip("/") + "/") for path in paths)
    names = [os.path.relpath(path, base) for path in paths] if inside else paths
    return file_set(
        request,
        Path(base),
        names,
        labels=label_column([target for _, target in files], _class_names(source)),
    )


def _array_of(source: Any) -> npt.NDArray[np.uint8] | None:
    """Return the one array that holds a data set's pictures, ``None`` where there is none."""
    data = None if isinstance(source, np.ndarray) or is_tensor(source) else _part(source, "data")
    if data is not None and is_tensor(data):
        data = data.numpy()
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
        return None
    pictures = data.ndim == 3 or (data.ndim == 4 and data.shape[3] in (1, 3))
    return data if pictures and _has_length(source, len(data)) else None


def _part(source: Any, name: str) -> Any:
    """Return an attribute of anybody's object, ``None`` where it has none to give."""
    try:
        return getattr(source, name, None)
    except Exception:  # a property may do anything
        return None


def _has_length(source: Any, length: int) -> bool:
    return hasattr(source, "__len__") and len(source) == length > 0


def _array_set(source: Any, data: npt.NDArray[np.uint8], request: Request) -> ImageSet:
    """Return the pictures of an array as a set; ids are row numbers."""
    ids = pa.array(range(len(data)), pa.int64()).cast(pa.string())
    targets = _targets(source)
    labels = None if targets is None else label_column(targets, _class_names(source))
    return request.image_set(ids, ids, ArrayOpener(data), labels=labels)


def _targets(source: Any) -> list[Any] | None:
    """Return the label of every item, where a data set keeps a list of them."""
    for name in ("targets", "labels"):
        found = _part(source, name)
        if hasattr(found, "__len__") and hasattr(source, "__len__") and len(found) == len(source):
            return list(found)
    return None


def _class_names(source: Any) -> dict[int, str]:
    """Return the name of each class by its number."""
    numbers, classes = _part(source, "class_to_idx"), _part(source, "classes")
    if isinstance(numbers, dict):
        return {number: str(name) for name, number in numbers.items()}
    return (
        {n: str(name) for n, name in enumerate(classes)}
        if isinstance(classes, list | tuple)
        else {}
    )


def _item_set(source: Any, request: Request) -> ImageSet:
    """Return what the items themselves are; normalised tensors are refused at once."""
    sequence = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if sequence and not isinstance(source, Mapping | bytes) and len(source):
        picture = picture_in(_first(source))
        shown = rgb_of(picture) if is_tensor(picture) else None
        if isinstance(shown, Unreadable) and shown.reason == "unsupported":
            name = type(source).__name__
            raise UsageError(f"source: {name} yields tensors, but {shown.detail}")
    targets = None if isinstance(source, list | tuple) else _targets(source)
    return open_memory(source, request, targets, _class_names(source))


def _first(source: Any) -> Any:
    try:
        return source[0]
    except Exception:  # items may come from anybody's code; reading will say
        return None
