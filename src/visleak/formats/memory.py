"""Objects of a Python program: sequences of images, and data sets in the manner of torchvision.

Where an object names the files or the array of its items, those are read instead of the items,
which may have been transformed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image

from visleak.errors import UsageError, one_line
from visleak.formats.files import SubsetOpener, file_set, read_file
from visleak.formats.request import (
    IMAGE_COLUMNS,
    Request,
    canonical_split,
    describe,
    row_numbers,
    text_column,
    wanted_columns,
    writable,
)
from visleak.formats.tables import manifest_set
from visleak.images.decoding import QUIET, messages_kept, orientation_of, turned
from visleak.images.pixels import (
    correct_modes,
    holds_deep_colours,
    is_deep,
    rgb_of_array,
    rgb_of_image,
    shallow,
)
from visleak.records import Bytes8, ImageSet, Int64, Unreadable

if TYPE_CHECKING:
    import torch


#: Keys of an item that is a mapping, in order of preference.
ROW_IMAGES: Final = (*IMAGE_COLUMNS, "pixel_values", "path", "file")
ROW_LABELS: Final = ("label", "labels", "target", "cls", "fine_label")

#: What a program may give as a source, for messages.
ACCEPTED: Final = (
    "SOURCE text, a path, a list of paths, a data frame or Arrow table, a data set of torch or"
    " Hugging Face, a mapping with a split, or a sequence with a length of Pillow images, arrays,"
    " tensors, (image, label) or mappings"
)

SLACK: Final = 1e-4  # how far a float of a tensor may lie outside [0, 1] by rounding


def open_mapped(source: object, request: Request) -> ImageSet:
    """Make a set of a data set object; another object is taken for a plain sequence.

    Known are what torchvision's have: ``samples`` or ``imgs`` (files), ``data`` (one array),
    ``targets``, ``classes``, ``root``; timm's ``reader``, which has ``samples``; and ``dataset``
    with ``indices``, as torch's ``Subset``.
    """
    if _is_subset(source):
        return _subset(source, request)
    if type(source).__name__ == "DataLoader" and hasattr(source, "dataset"):
        _refuse_partial(source)
        return open_mapped(source.dataset, request)
    for holder in (source, _part(source, "reader")):
        if (files := _files(holder)) is not None:
            request.refuse_columns("the data set")
            return _file_set(holder, files, request)
    data = _array_of(source)
    if data is None:
        return open_memory(source, request)
    request.refuse_columns("the data set")
    targets = _targets(source)
    labels = None if targets is None else label_column(targets, _class_names(source))
    numbers = row_numbers(len(data))
    return request.image_set(numbers, numbers, MemoryOpener(data), labels=labels)


def open_memory(images: Any, request: Request) -> ImageSet:
    """Make a set of a sequence of images or of (image, label).

    Ids are the row numbers. Where the sequence keeps no list of labels and the first item is a
    tuple or a mapping, the labels of all items are read now.
    """
    targets = None if isinstance(images, list | tuple) else _targets(images)
    names, kind = _class_names(images), type(images).__name__
    for option in ("id", "label"):
        if getattr(request, option) is not None:
            raise UsageError(f"{option} {getattr(request, option)!r}: a sequence has no columns")
    if isinstance(images, Image.Image) or _is_one_image(images):
        shape = "" if isinstance(images, Image.Image) else f" of shape {tuple(images.shape)}"
        raise UsageError(
            f"source must be a sequence of images; got one image{shape}: put it in a list"
        )
    iterable, sized = hasattr(images, "__iter__"), hasattr(images, "__len__")
    if iterable and sized and not _indexed(images):
        images = list(images)
    if not sized or not _indexed(images) or isinstance(images, Mapping | bytes | bytearray):
        if isinstance(images, Mapping):
            kind += f" with the keys {', '.join(map(str, images)) or '(none)'}"
        elif iterable and not sized:
            kind += ", which has no length: give list(...) of it"
        raise UsageError(f"source must be {ACCEPTED}; got {kind}")
    count = len(images)
    if not count:
        request.refuse_empty()
    first = _item(images, 0)
    _refuse_useless(first, kind, labelled=targets is not None)
    if targets is None and isinstance(first, tuple | Mapping):
        targets = [_label_in(_item(images, row)) for row in range(count)]
    labels = None if targets is None else label_column(targets, names)
    numbers = row_numbers(count)
    return request.image_set(numbers, numbers, MemoryOpener(images), labels=labels)


def _refuse_useless(item: object, kind: str, labelled: bool) -> None:
    """Refuse a sequence whose first item holds no image, instead of listing all as unreadable."""
    image: Any = image_in(item)
    array = is_tensor(image) or isinstance(image, np.ndarray)
    if array and image.ndim > 3:
        raise UsageError(
            f"source: items must be single images; got a batch of shape {tuple(image.shape)}"
        )
    shown = rgb_of(image) if is_tensor(image) else None
    if isinstance(shown, Unreadable) and shown.reason == "unsupported":
        raise UsageError(f"source: {kind} yields tensors, but {shown.detail}")
    known = (Image.Image, bytes, str, os.PathLike)
    if labelled or item is None or array or isinstance(image, known):
        return
    if isinstance(item, Mapping):
        seen = f"a mapping with the keys {', '.join(map(str, item)) or '(none)'}"
    else:
        seen = f"{type(image).__name__}{' in a tuple' if isinstance(item, tuple) else ''}"
    raise UsageError(
        "source: items must be Pillow images, arrays, tensors, encoded bytes, paths, tuples that"
        f" begin with one of these, or mappings with {', '.join(ROW_IMAGES)}; got {seen}"
    )


def _indexed(images: object) -> bool:
    """Whether items are read by number; torch's ``IterableDataset`` inherits the method only."""
    bases = [(base.__module__.partition(".")[0], base.__name__) for base in type(images).__mro__]
    return hasattr(images, "__getitem__") and ("torch", "IterableDataset") not in bases


@dataclass(frozen=True)
class MemoryOpener:
    """Reads the items of a sequence."""

    # anything with a length and an item for each number, such as an array; an item is a Pillow
    # image, an array, a tensor, or a tuple that begins with one of them
    images: Any

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images as arrays, see :class:`visleak.records.Opener`."""
        for position in positions:
            try:
                item = self.images[int(position)]
                yield rgb_of(image_in(item))
            except Exception as error:  # items may come from any code
                yield Unreadable("corrupt", one_line(error))


def rgb_of(image: object) -> bytes | Bytes8 | Unreadable:
    """Return a Pillow image or an array as ``uint8`` (height, width, 3), or why that cannot be.

    Bytes are an encoded image and are passed on. A tensor of torch has its channels first and
    is ``uint8`` or a float in [0, 1].
    """
    if isinstance(image, Image.Image):
        return _of_image(image)
    if is_tensor(image):
        image = _of_tensor(image)
    if isinstance(image, str | os.PathLike):
        return read_file(os.fspath(image))
    if isinstance(image, bytes | Unreadable):
        return image
    if isinstance(image, np.ndarray):
        if not image.size:
            return Unreadable("empty", f"an array of shape {image.shape} has no pixels")
        return rgb_of_array(image)
    return Unreadable("corrupt", f"expected a Pillow image or an array, got {type(image).__name__}")


def _of_image(image: Image.Image) -> bytes | Bytes8 | Unreadable:
    try:
        if (file := getattr(image, "fp", None)) and holds_deep_colours(image):
            file.seek(0)  # Pillow would keep the high bytes only
            return bytes(file.read())
        exif = image.info.get("exif")
        with QUIET, messages_kept():
            correct_modes(image)
            image.load()
        shown = shallow(image) if is_deep(image) else image
        return rgb_of_image(turned(shown, orientation_of(exif if isinstance(exif, bytes) else b"")))
    except OSError as error:
        reason = "truncated" if "truncated" in str(error) else "corrupt"
        return Unreadable(reason, one_line(error))


def _is_one_image(images: object) -> bool:
    if is_tensor(images) and hasattr(images, "shape"):
        channels, at = {1, 3, 4}, 0
    elif isinstance(images, np.ndarray):
        channels, at = {3, 4}, 2
    else:
        return False
    return images.ndim < 3 or (images.ndim == 3 and images.shape[at] in channels)


def _label_in(item: object) -> object:
    if isinstance(item, Mapping):
        return next((item[name] for name in ROW_LABELS if name in item), None)
    return item[1] if isinstance(item, tuple) and len(item) > 1 else None


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor of torch, which is not imported to find out."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(value).__mro__)


def _of_tensor(tensor: torch.Tensor) -> npt.NDArray[np.generic] | Unreadable:
    """Return a tensor (channels, height, width) as an array with its channels last."""
    values: npt.NDArray[np.float32] = tensor.detach().cpu().numpy()
    if values.ndim == 3:
        values = values.transpose(1, 2, 0)
    if values.dtype.kind != "f":
        return values
    if values.size and not (values.min() >= -SLACK and values.max() <= 1 + SLACK):
        return Unreadable(
            "unsupported",
            "its values are not in [0, 1]: they are normalised; give the data set without its"
            " transform",
        )
    return np.asarray(np.clip(values, 0, 1))


def image_in(item: object) -> object:
    """Return the image of an item, which may be (image, label, ...) or a mapping with one."""
    if isinstance(item, Mapping):
        return next((item[name] for name in ROW_IMAGES if name in item), item)
    return item[0] if isinstance(item, tuple) and item else item


def _item(images: Sequence[object], row: int) -> object:
    """Return an item, ``None`` if that fails; a later read reports the error."""
    try:
        return images[row]
    except Exception:  # items may come from any code
        return None


def label_column(targets: Sequence[object], names: Mapping[int, str]) -> pa.StringArray:
    """Return labels as text: the name of a number where it has one."""
    return pa.array((_label(target, names) for target in targets), pa.string())


def _label(target: object, names: Mapping[int, str]) -> str | None:
    if isinstance(target, np.generic) or (is_tensor(target) and target.ndim == 0):
        target = target.item()
    if isinstance(target, int) and not isinstance(target, bool):
        return writable(names.get(target, str(target)))
    return None if target is None else writable(str(target))


def _subset(source: Any, request: Request) -> ImageSet:
    """Return the chosen rows of a data set, each once, under the ids they have in the whole."""
    rows, inner = np.asarray(list(source.indices), np.int64), source.dataset
    while _is_subset(inner):
        rows = _taken(np.asarray(list(inner.indices), np.int64), rows)
        inner = inner.dataset
    if not len(rows):
        request.refuse_empty("the subset is empty")
    whole = open_mapped(inner, replace(request, group=None, frame=None))
    rows = _taken(np.arange(len(whole)), np.unique(rows))
    taken = pa.array(rows)
    return request.image_set(
        whole.ids.take(taken),
        whole.locators.take(taken),
        SubsetOpener(whole.opener, rows),
        labels=None if whole.labels is None else whole.labels.take(taken),
    )


def _refuse_partial(loader: Any) -> None:
    """Refuse a loader that may skip or repeat images of its data set."""
    batches: Any = getattr(loader, "batch_sampler", None)
    own = type(batches).__name__ in ("BatchSampler", "NoneType")
    sampler = getattr(batches, "sampler", loader.sampler) if own else batches
    name = type(sampler).__name__
    if name == "_InfiniteConstantSampler":  # of a data set that can only be iterated
        return
    whole = name in ("SequentialSampler", "RandomSampler")
    if not whole or len(sampler) != len(loader.dataset):
        raise UsageError(
            f"source: a DataLoader with {name} need not hand out every image of its data set once;"
            " give the data set, or a torch.utils.data.Subset of it"
        )


def _is_subset(source: object) -> bool:
    return hasattr(source, "dataset") and hasattr(source, "indices")


def _taken(values: Int64, rows: Int64) -> Int64:
    if len(rows) and (rows.min() < 0 or rows.max() >= len(values)):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise UsageError(f"source: a subset of {len(values)} images names row {wrong}")
    return values[rows]


def _files(source: object) -> list[tuple[str, object]] | None:
    def names_file(sample: object) -> bool:
        if not isinstance(sample, tuple | list) or len(sample) < 2:
            return False
        return isinstance(sample[0], str | os.PathLike)

    for name in ("samples", "imgs"):
        found = _part(source, name)
        if isinstance(found, list | tuple) and found and all(map(names_file, found)):
            return [(os.fspath(path), target) for path, target, *_ in found]
    return None


def _file_set(source: object, files: Sequence[tuple[str, object]], request: Request) -> ImageSet:
    """Return the files as a set; ids are paths below the root, else as they are."""
    root = getattr(source, "root", None)
    base = os.path.abspath(root) if isinstance(root, str | os.PathLike) else os.getcwd()
    paths = [os.path.abspath(path) for path, _ in files]
    if all(path.startswith(base.rstrip("/") + "/") for path in paths):
        paths = [os.path.relpath(path, base) for path in paths]
    labels = label_column([target for _, target in files], _class_names(source))
    return file_set(request, Path(base), paths, labels=labels)


def _array_of(source: object) -> npt.NDArray[np.uint8] | None:
    """Return the one array that holds a data set's images, ``None`` where there is none."""
    data = None if isinstance(source, np.ndarray) or is_tensor(source) else _part(source, "data")
    if data is not None and is_tensor(data):
        data = data.numpy()
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
        return None
    images = data.ndim == 3 or (data.ndim == 4 and data.shape[3] in (1, 3))
    whole = images and hasattr(source, "__len__") and len(source) == len(data) > 0
    return data if whole else None


def _part(source: object, name: str) -> Any:
    """Return an attribute of any object, ``None`` if it cannot be read."""
    try:
        return getattr(source, name, None)
    except Exception:  # a property may do anything
        return None


def _targets(source: object) -> list[object] | None:
    for name in ("targets", "labels"):
        found = _part(source, name)
        if hasattr(found, "__len__") and hasattr(source, "__len__") and len(found) == len(source):
            return list(found)
    return None


def _class_names(source: object) -> dict[int, str]:
    numbers, classes = _part(source, "class_to_idx"), _part(source, "classes")
    if isinstance(numbers, dict):
        return {number: str(name) for name, number in numbers.items()}
    return dict(enumerate(map(str, classes if isinstance(classes, list | tuple) else ())))


# -- rows that a Python program holds: data frames of pandas or polars, and tables of Arrow -------


class DataFrame(Protocol):
    """The common interface of data frames of pandas and polars."""

    columns: Sequence[str]

    def __getitem__(self, name: str) -> Sequence[object]: ...


def is_rows(source: object) -> TypeGuard[pa.Table | DataFrame]:
    """Whether an object is a table; no library is loaded to find out."""
    frame = _library(source) in ("pandas", "polars") and hasattr(source, "columns")
    return frame or isinstance(source, pa.Table)


def plain(source: Any) -> Any:
    """Return a column or a set as a list, and a table that is read later or in batches as a table.

    A set has no order, so its items are sorted.
    """
    if isinstance(source, set | frozenset):
        return sorted(source, key=str)
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, np.ndarray):
        return source.tolist() if source.ndim == 1 else source
    if isinstance(source, pa.Array | pa.ChunkedArray):
        return source.to_pylist()
    if _library(source) in ("pandas", "polars"):
        made = next((name for name in ("collect", "to_list") if hasattr(source, name)), None)
        return getattr(source, made)() if made else source
    return source


def split_rows(source: pa.Table | DataFrame) -> dict[str, pa.Table | DataFrame]:
    """Return the rows of each split that a column ``split`` names; none without this column."""
    if "split" not in _names(source):
        return {}
    rows: dict[str, list[int]] = {}
    values = text_column(_table(source, ["split"])["split"], "split").to_pylist()
    for row, value in enumerate(values):
        if value:
            rows.setdefault(canonical_split(value), []).append(row)
    table: Any = source
    taken = table.__getitem__ if _library(source) == "polars" else table.take
    return {split: taken(numbers) for split, numbers in rows.items()}


def _names(source: pa.Table | DataFrame) -> list[str]:
    columns = source.column_names if isinstance(source, pa.Table) else source.columns
    return list(map(str, columns))


def _library(source: object) -> str:
    return type(source).__module__.partition(".")[0]


def open_rows(source: pa.Table | DataFrame, request: Request) -> ImageSet:
    """Make a set of a table with a column ``path``, relative to the working folder, or ``image``.

    Images may be encoded bytes, a struct of ``bytes`` and ``path``, arrays or Pillow images. Ids
    are the paths, or row numbers, unless a column is named.
    """
    names = _names(source)
    image = next((name for name in IMAGE_COLUMNS if name in names), None)
    if image is None and "path" not in names:
        raise UsageError(
            "source: a table must have a column `path` with file names or `image` with images;"
            f" got the columns {', '.join(names) or '(none)'}"
        )
    chosen = [name for name in wanted_columns(names, request) if name != image]
    if image is None:
        named = ["path", *(name for name in chosen if name != "path")]
        return manifest_set(request, _table(source, named), os.getcwd())
    images = [
        value.get("bytes") or value.get("path") if isinstance(value, Mapping) else value
        for value in _values(source, image)
    ]
    if not images:
        request.refuse_empty("it has no rows")
    numbers = row_numbers(len(images))
    table = _table(source, chosen) if chosen else pa.table({"row": numbers})
    ids, columns = describe(table, request, None, {})
    return request.image_set(ids, numbers, MemoryOpener(images), **columns)


def _table(source: pa.Table | DataFrame, names: Sequence[str]) -> pa.Table:
    """Return some columns as text where Arrow has no type for them."""
    if isinstance(source, pa.Table):
        return source.select(names)
    return pa.table({name: _column(_values(source, name)) for name in names})


def _values(source: pa.Table | DataFrame, name: str) -> list[object]:
    column = source[name]
    return list(column.to_pylist() if isinstance(column, pa.ChunkedArray) else column)


def _column(values: Sequence[object]) -> pa.Array:
    # pandas marks what is missing by NaN
    known = [None if value is None or value != value else value for value in values]  # noqa: PLR0124
    try:
        return pa.array(known)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array((None if value is None else str(value) for value in known), pa.string())
