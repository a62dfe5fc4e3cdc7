"""CIFAR-10 and CIFAR-100: the original Python pickles, read without trusting a pickle."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError, one_line
from visleak.formats.request import Request, canonical_split, writable
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
#: What reads an array back; the name that every version of numpy knows.
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
        raise UsageError(
            f"source {request.text!r}: add #train or #test to choose a split; got {split!r}"
        )
    column = request.label or next(iter(columns))
    if column not in columns:
        raise UsageError(f"label {column!r}: {folder} has {', '.join(columns)}")
    files = [folder / name for name in splits[split]]
    sizes, labels = [], list[int]()
    for file in files:
        content = load_pickle(file)
        sizes.append(len(pixel_rows(content)))
        found = content.get(column)
        if not isinstance(found, list) or len(found) != sizes[-1]:
            raise VisleakError(f"{file} has no {column!r} for its {sizes[-1]:,} images")
        labels.extend(found)
    named = load_pickle(folder / meta).get(columns[column], [])
    names = [_text(name) for name in named] if isinstance(named, list) else []
    ids = pa.array(np.arange(sum(sizes))).cast(pa.string())
    owners = (str(file) for file, size in zip(files, sizes, strict=True) for _ in range(size))
    rows = (str(row) for size in sizes for row in range(size))
    locators = pc.binary_join_element_wise(
        pa.array(owners, pa.string()), pa.array(rows, pa.string()), "!"
    )
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return request.image_set(
        ids,
        locators,
        CifarOpener(tuple(str(file) for file in files), starts),
        labels=pa.array((_class_name(label, names) for label in labels), pa.string()),
    )


@dataclass
class CifarOpener:
    """Reads the rows of CIFAR files, one file in memory at a time."""

    files: tuple[str, ...]  # the files of the split, in order
    starts: Int64  # int64: position at which each file begins, and the end
    _held: tuple[int, Bytes8] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_held": None}

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images as arrays, see :class:`visleak.records.Opener`."""
        for position in positions:
            number = int(np.searchsorted(self.starts, position, side="right")) - 1
            try:
                rows = self._rows(number)
                row = rows[position - int(self.starts[number])]
            except (VisleakError, IndexError) as error:
                yield Unreadable("io-error", str(error))
            else:
                yield np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))

    def _rows(self, number: int) -> Bytes8:
        held = self._held
        if held is None or held[0] != number:
            held = self._held = (number, pixel_rows(load_pickle(self.files[number])))
        return held[1]


def write_cifar(part: OutputPart, place: Destination) -> OutputSource:
    """Write the batches of a part under their names, without the rows that go."""
    (piece,) = part.pieces
    opener = cast(CifarOpener, piece.images.opener)
    for number, file in enumerate(opener.files):
        start, end = int(opener.starts[number]), int(opener.starts[number + 1])
        keep = piece.keep[(piece.keep >= start) & (piece.keep < end)] - start
        content = _kept(load_pickle(file), end - start, keep)
        content["data"] = _pixels(content, piece, keep, start)
        with place.made(place.below(part, Path(file).name)).open("wb") as target:
            write_pickle(content, target)
        place.progress(f"writing {part.name}", end, len(piece.images))
    names = next(meta for _, meta, _ in LAYOUTS if (Path(opener.files[0]).parent / meta).is_file())
    meta = place.made(place.below(part, names))
    meta.write_bytes((Path(opener.files[0]).parent / names).read_bytes())
    split = locate(piece.images.source).split
    return OutputSource(
        place.below(part),
        before="cifar:",
        after=f"#{split}",
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
        """Return the type of numbers it stands for; no objects, no records."""
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
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which no CIFAR file does"
            ) from None


def load_pickle(path: Path | str) -> dict[str, object]:
    """Return the content of a CIFAR pickle: numbers, texts, lists and arrays by name."""
    try:
        size = os.path.getsize(path)
        if size > MAX_PICKLE_BYTES:
            raise VisleakError(f"{path} has {size:,} bytes; CIFAR files have less than 200 MB")
        with open(path, "rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except VisleakError:
        raise
    except FileNotFoundError as error:
        raise VisleakError(f"{path} is missing; unpack the whole data set there") from error
    except Exception as error:  # a damaged pickle can raise anything
        what = f"{path} cannot be read as a CIFAR file"
        raise VisleakError(f"{what}: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise VisleakError(f"{path} cannot be read as a CIFAR file: it is not a table")
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


def _class_name(label: object, names: Sequence[str]) -> str:
    return names[label] if isinstance(label, int) and 0 <= label < len(names) else str(label)


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


def _kept(content: Mapping[str, object], rows: int, keep: Int64) -> dict[str, object]:
    """Return a batch with the rows that are kept: of every column that has a value an image."""
    found: dict[str, object] = {}
    for name, value in content.items():
        if isinstance(value, np.ndarray) and len(value) == rows:
            found[name] = value[keep]
        elif isinstance(value, list) and len(value) == rows:
            found[name] = [value[at] for at in keep.tolist()]
        else:
            found[name] = value
    return found


def _pixels(content: Mapping[str, object], piece: Selection, keep: Int64, start: int) -> Bytes8:
    """Return the pixels of a batch, with those of what takes a place in it."""
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
        file.write(b"".join(_pickled_text(name.encode())))
        for data in _value(name, value):
            file.write(data)
    file.write(b"u.")


def _value(name: str, value: object) -> Iterator[bytes]:
    if isinstance(value, bool) or value is None:
        yield {True: b"\x88", False: b"\x89", None: b"N"}[value]
    elif isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise VisleakError(f"column {name!r} of a CIFAR file holds {value}, which is too large")
        yield b"J" + struct.pack("<i", value)
    elif isinstance(value, bytes | str):
        yield from _pickled_text(value.encode() if isinstance(value, str) else value)
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


def _pickled_text(data: bytes) -> Iterator[bytes]:
    yield b"T" + struct.pack("<I", len(data)) + data


def _array(value: Bytes8) -> Iterator[bytes]:
    """Yield the opcodes that rebuild an array: what numpy itself writes under Python 2."""
    yield _ARRAY + b"cnumpy\nndarray\nK\x00\x85"
    yield from _pickled_text(b"b")
    yield b"\x87R(K\x01("
    for length in value.shape:
        yield b"J" + struct.pack("<i", length)
    yield b"tcnumpy\ndtype\n"
    yield from _pickled_text(b"u1")
    yield b"K\x00K\x01\x87R(K\x03"
    yield from _pickled_text(b"|")
    yield b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    yield from _pickled_text(np.ascontiguousarray(value).tobytes())
    yield b"tb"
