"""CIFAR-10 and CIFAR-100: the original Python pickles, read by a restricted reader."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import UsageError, VisleakError, explaining
from visleak.formats.files import StatefulOpener, by_owner, starts_of
from visleak.formats.request import Request, canonical_split, row_numbers, writable
from visleak.formats.sources import locate
from visleak.formats.writing import Destination, OutputPart, OutputSource, Selection
from visleak.records import Bytes8, ImageSet, Int64, Unreadable

#: A larger pickle is refused; the largest of the two data sets has 155 MB.
MAX_PICKLE_BYTES: Final = 1 << 30
#: Per data set: files of each split, the file with the class names, (labels, names) by column.
LAYOUTS: Final[tuple[tuple[dict[str, tuple[str, ...]], str, dict[str, str]], ...]] = (
    (
        {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
        "batches.meta",
        {"labels": "label_names"},
    ),
    (
        {"train": ("train",), "test": ("test",)},
        "meta",
        {"fine_labels": "fine_label_names", "coarse_labels": "coarse_label_names"},
    ),
)
#: The function that restores an array, under the name that all versions of numpy have.
_ARRAY: Final = b"cnumpy.core.multiarray\n_reconstruct\n"


def open_cifar(request: Request) -> ImageSet:
    """List a split of CIFAR-10 or CIFAR-100: ``cifar:FOLDER#train`` or ``#test``.

    Ids are the row numbers of the split, labels the class names (CIFAR-100: fine, or the column
    that ``label`` names).
    """
    for option, value in request.columns.items():
        if option != "label":
            raise UsageError(f"{option} {value!r}: CIFAR files have no such column")
    folder, (splits, meta, columns) = _layout(request)
    split = canonical_split(request.split)
    if split not in splits:
        raise request.refusal(f"add #train or #test to choose a split; got {split!r}")
    column = request.label or next(iter(columns))
    if column not in columns:
        raise UsageError(f"label {column!r}: {folder} has {', '.join(columns)}")
    files = [str(folder / name) for name in splits[split]]
    sizes, labels = [], list[object]()
    for file in files:
        content = load_pickle(file)
        sizes.append(len(pixel_rows(content)))
        found = content.get(column)
        if not isinstance(found, list) or len(found) != sizes[-1]:
            raise VisleakError(f"{file} has no {column!r} for its {sizes[-1]:,} images")
        labels += found
    named = load_pickle(folder / meta).get(columns[column])
    names = dict(enumerate(map(_text, named if isinstance(named, list) else [])))
    texts = (names.get(n, str(n)) if isinstance(n, int) else str(n) for n in labels)
    places = (
        f"{file}!{row}" for file, size in zip(files, sizes, strict=True) for row in range(size)
    )
    return request.image_set(
        row_numbers(sum(sizes)),
        pa.array(places, pa.string()),
        CifarOpener(tuple(files), starts_of(sizes)),
        labels=pa.array(texts, pa.string()),
    )


@dataclass
class CifarOpener(StatefulOpener):
    """Reads the rows of CIFAR files, one file in memory at a time."""

    files: tuple[str, ...]  # the files of the split, in order
    starts: Int64  # int64: position at which each file begins, and the end
    _held: tuple[int, Bytes8] | None = field(default=None, repr=False, compare=False)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images as arrays, see :class:`visleak.records.Opener`."""
        for number, rows in by_owner(self.starts, np.asarray(positions, np.int64)):
            for row in rows:
                try:
                    if self._held is None or self._held[0] != number:
                        self._held = number, pixel_rows(load_pickle(self.files[number]))
                    pixels = self._held[1][row]
                except (VisleakError, IndexError) as error:
                    yield Unreadable("io-error", str(error))
                else:
                    yield np.ascontiguousarray(pixels.reshape(3, 32, 32).transpose(1, 2, 0))


def write_cifar(part: OutputPart, place: Destination) -> OutputSource:
    """Write the batches of a part under their names, without the removed rows."""
    (piece,) = part.pieces
    opener = cast(CifarOpener, piece.images.opener)
    for file, (start, end) in zip(opener.files, pairwise(opener.starts.tolist()), strict=True):
        keep = piece.keep[(piece.keep >= start) & (piece.keep < end)] - start
        content = load_pickle(file)
        for name, value in content.items():  # every column with one value per image
            if isinstance(value, np.ndarray) and len(value) == end - start:
                content[name] = value[keep]
            elif isinstance(value, list) and len(value) == end - start:
                content[name] = [value[at] for at in keep.tolist()]
        content["data"] = _pixels(content, piece, keep, start)
        with place.made(place.below(part, Path(file).name)).open("wb") as target:
            write_pickle(content, target)
        place.progress(f"writing {part.name}", end, len(piece.images))
    folder = Path(opener.files[0]).parent
    names = next(meta for _, meta, _ in LAYOUTS if (folder / meta).is_file())
    place.made(place.below(part, names)).write_bytes((folder / names).read_bytes())
    return OutputSource(
        place.below(part),
        before="cifar:",
        after=f"#{locate(piece.images.source).split}",
        options=piece.images.options,
        renamed=True,
    )


class _Dtype:
    """Stands for ``numpy.dtype`` while a pickle is read."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = code.decode("latin-1") if isinstance(code, bytes) else str(code)
        self.order = "|"

    def __setstate__(self, state: Sequence[object]) -> None:
        order = state[1]
        self.order = order.decode("latin-1") if isinstance(order, bytes) else str(order)

    def plain(self) -> np.dtype[np.generic]:
        """Return the number type; objects and records are refused."""
        dtype = np.dtype(self.code)
        if dtype.kind not in "buif":
            raise pickle.UnpicklingError(f"arrays of {self.code} are not read")
        return dtype.newbyteorder(">") if self.order == ">" else dtype


class _Array:
    """Stands for ``numpy.ndarray`` while a pickle is read."""

    def __init__(self, *_: object) -> None:
        self.values: npt.NDArray[np.generic] = np.empty(0)

    def __setstate__(
        self, state: tuple[object, tuple[int, ...], _Dtype, bool, bytes | str]
    ) -> None:
        _, shape, dtype, fortran, raw = state
        raw = raw.encode("latin-1") if isinstance(raw, str) else raw
        flat = np.frombuffer(raw, dtype.plain())
        self.values = flat.reshape(shape, order="F" if fortran else "C")


def _encoded(text: str, encoding: str = "latin1") -> bytes:
    """Stands for ``_codecs.encode``, with which Python 3 writes bytes into old pickles."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the encoding {encoding!r} is not read")
    return text.encode("latin-1")


_ALLOWED: Final[dict[tuple[str, str], type | Callable[..., bytes]]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _encoded,
}


class _Unpickler(pickle.Unpickler):
    """Builds numbers, texts, lists, dicts and plain arrays; nothing else, and runs nothing."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it loads {module}.{name}, which no CIFAR file does")
        return _ALLOWED[module, name]


def load_pickle(path: Path | str) -> dict[str, object]:
    """Return the content of a CIFAR pickle: numbers, texts, lists and arrays by name."""
    # a damaged pickle can raise anything
    with explaining(f"{path} cannot be read as a CIFAR file", Exception):
        try:
            size = os.path.getsize(path)
        except FileNotFoundError as error:
            raise VisleakError(f"{path} is missing; unpack the whole data set there") from error
        if size > MAX_PICKLE_BYTES:
            raise VisleakError(f"{path} has {size:,} bytes; CIFAR files have less than 200 MB")
        with open(path, "rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise ValueError("it is not a table")
    return {
        _text(key): value.values if isinstance(value, _Array) else value
        for key, value in content.items()
    }


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else writable(str(value))


def pixel_rows(content: Mapping[str, object]) -> Bytes8:
    """Return the pixels of a CIFAR file: ``uint8`` (n, 3072), planes of 32 x 32."""
    data = content.get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise VisleakError("a CIFAR file without its `data` of 3,072 bytes an image")
    return data


def _layout(
    request: Request,
) -> tuple[Path, tuple[dict[str, tuple[str, ...]], str, dict[str, str]]]:
    """Return the folder with the files (the given one or one in it) and how they are called."""
    inside = ("", "cifar-10-batches-py", "cifar-100-python")
    for folder in (request.path / name for name in inside):
        for layout in LAYOUTS:
            if (folder / layout[1]).is_file():
                return folder, layout
    raise VisleakError(
        f"{request.path} holds no CIFAR files: expected batches.meta and data_batch_1 to 5"
        " (CIFAR-10) or meta, train and test (CIFAR-100)"
    )


def _pixels(content: Mapping[str, object], piece: Selection, keep: Int64, start: int) -> Bytes8:
    """Return the pixels of a batch, with those of replacements."""
    pixels = pixel_rows(content).copy()
    for row, at in enumerate(keep.tolist()):
        stand = piece.instead.get(start + at)
        if stand is not None:
            pixels[row] = cast(Bytes8, stand.stored).transpose(2, 0, 1).reshape(-1)
    return pixels


def write_pickle(content: Mapping[str, object], file: BinaryIO) -> None:
    """Write numbers, texts, lists and ``uint8`` arrays by name as a pickle of protocol 2.

    Texts are written as strings of Python 2, as in the originals, so that ``encoding="bytes"``
    and ``encoding="latin1"`` read them as they read those.
    """
    file.write(b"\x80\x02}(")
    for name, value in content.items():
        file.write(_pickled_text(name.encode()))
        file.writelines(_value(name, value))
    file.write(b"u.")


def _value(name: str, value: object) -> Iterator[bytes]:
    if isinstance(value, bool) or value is None:
        yield {True: b"\x88", False: b"\x89", None: b"N"}[value]
    elif isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise VisleakError(f"column {name!r} of a CIFAR file holds {value}, which is too large")
        yield b"J" + struct.pack("<i", value)
    elif isinstance(value, bytes | str):
        yield _pickled_text(value.encode() if isinstance(value, str) else value)
    elif isinstance(value, list):
        yield b"]("
        for each in value:
            yield from _value(name, each)
        yield b"e"
    elif isinstance(value, np.ndarray) and value.dtype == np.uint8:
        yield from _array(value)
    else:
        raise VisleakError(
            f"column {name!r} of a CIFAR file is not a list, a text or an array of bytes"
        )


def _pickled_text(data: bytes) -> bytes:
    return b"T" + struct.pack("<I", len(data)) + data


def _array(value: Bytes8) -> Iterator[bytes]:
    """Yield the opcodes that rebuild an array: what numpy itself writes under Python 2."""
    yield _ARRAY + b"cnumpy\nndarray\nK\x00\x85" + _pickled_text(b"b") + b"\x87R(K\x01("
    for length in value.shape:
        yield b"J" + struct.pack("<i", length)
    yield b"tcnumpy\ndtype\n" + _pickled_text(b"u1") + b"K\x00K\x01\x87R(K\x03"
    yield _pickled_text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    yield _pickled_text(np.ascontiguousarray(value).tobytes())
    yield b"tb"
