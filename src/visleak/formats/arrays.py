"""Arrays of images: NumPy (``.npy``, ``.npz``), HDF5, and IDX as of MNIST.

Images are read one at a time, packed ones forward; nothing that is pickled is read.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.formats.files import by_owner, starts_of
from visleak.formats.listing import ending_of
from visleak.formats.request import Request
from visleak.formats.sources import ARRAYS
from visleak.formats.stacks import MAX_BYTES, Contents, check_size, files_of, image_of, stack_set
from visleak.lazy import library
from visleak.records import Bytes8, ImageSet, Refused, Unreadable

if TYPE_CHECKING:
    import h5py

Values = npt.NDArray[np.generic]
#: Types of IDX, by their number.
_IDX_TYPES: Final = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_CHANNELS: Final = (1, 3, 4)
#: Names of arrays of images, and what the array with their labels is called then.
_LABELS: Final = (("images", "labels"), ("image", "label"), ("x", "y"), ("X", "Y"), ("X", "y"))
#: Labels are read whole; more bytes are not.
_MAX_LABELS: Final = 1 << 28


def is_arrays(path: str) -> bool:
    """Whether a file is an array of images, by its name."""
    name = os.path.basename(path).lower()
    return name.endswith(ARRAYS) and "idx1" not in name  # which holds labels


def open_arrays(request: Request) -> ImageSet:
    """List the images of arrays: ``array:FILE.npz#key=test_images``.

    Without a key, all arrays of a file that have the shape of images are listed.
    """
    request.refuse_options("key")
    key = request.options.get("key", "")
    files = files_of(request, is_arrays, "an array (.npy, .npz, .h5, .hdf5, IDX)")
    listed = partial(contents, key=key, text=request.text)
    # the arrays of a file are whole sets, often both sides, and not a recording
    return stack_set(request, files, listed, partial(ArrayStack, key=key), by_file=False)


def contents(path: str, key: str, text: str) -> Contents:
    """Return the images of a file."""
    names, labels = list[str](), list[str | None]()
    with _opened(path) as file:
        for name, count in _chosen(file, key, text):
            before = f"{name}/" if name else ""
            names += [f"{before}{row}" for row in range(count)]
            labels += _labels(file, name, count)
    known = any(label is not None for label in labels)
    return Contents(names, range(len(names)), labels=labels if known else None)


def _chosen(file: ArrayFile, key: str, text: str) -> list[tuple[str, int]]:
    if key and key not in file.names:
        raise UsageError(
            f"source {text!r}: there is no array {key!r}; there are {', '.join(file.names)}"
        )
    found, why = list[tuple[str, int]](), "the file has no array"
    labels = {name for each in file.names for name in _label_names(file, each)}
    for name in [key] if key else (name for name in file.names if name not in labels):
        try:
            found.append((name, _images(file.array(name))))
        except Refused as error:
            why = f"array {name!r}: {error}" if name else str(error)
            if error.why.reason != "unsupported":
                raise
    if not found:
        raise Refused("unsupported", why)
    sets = [each for each in found if not _is_one_image(file.array(each[0]))]
    return sets or found  # a matrix beside images is something else


def _images(rows: Rows) -> int:
    """Return how many images an array holds; refuses one that holds none."""
    shape, dtype = rows.shape, rows.dtype
    if rows.encoded:
        return shape[0]
    if dtype.hasobject:
        raise Refused("unsupported", "an array of objects, which would be read as pickles")
    if dtype.kind not in "buif":
        raise Refused("unsupported", f"an array of {dtype}")
    one = _is_one_image(rows)
    if not (one or len(shape) == 3 or (len(shape) == 4 and _channels(shape[1:]) is not None)):
        raise Refused(
            "unsupported",
            f"shape {shape}; images are (n, height, width), with 1, 3 or 4 channels last or first",
        )
    inner = shape if one else shape[1:]
    sides = [side for at, side in enumerate(inner) if len(inner) == 2 or at != _channels(inner)]
    if min(inner) < 1:
        raise Refused("unsupported", f"an array of shape {shape} has no pixels")
    count = 1 if one else shape[0]
    check_size(sides[1], sides[0], count)
    if math.prod(inner) * dtype.itemsize > MAX_BYTES:
        raise Refused("too-large", f"images of more than {MAX_BYTES:,} bytes")
    return count


def _is_one_image(rows: Rows) -> bool:
    """Whether an array is one image: two axes, or a last one of channels."""
    shape = rows.shape
    coloured = len(shape) == 3 and shape[2] in (3, 4) and shape[1] > 4
    return not rows.encoded and (len(shape) == 2 or coloured)


def _channels(shape: Sequence[int]) -> int | None:
    """Return the axis of the channels of one image, ``None`` where there is none.

    >>> _channels((32, 32, 3)), _channels((3, 32, 32)), _channels((8, 8, 8))
    (2, 0, None)
    """
    return next((at for at in (len(shape) - 1, 0) if shape[at] in _CHANNELS), None)


def _label_names(file: ArrayFile, name: str) -> list[str]:
    """Return the arrays with the labels of an array of images, by their names."""
    folder, slash, last = name.rpartition("/")
    pairs = ((images, labels) for images, labels in _LABELS if images in re.split(r"[_.-]", last))
    others = (folder + slash + last.replace(images, labels) for images, labels in pairs)
    return [other for other in others if other in file.names and other != name]


def _labels(file: ArrayFile, name: str, count: int) -> list[str | None]:
    """Return the labels of an array of images: whole numbers or texts of an array beside it."""
    for other in _label_names(file, name):
        rows = file.array(other)
        fits = rows.dtype.kind in "uiSU" and rows.shape and math.prod(rows.shape) == count
        if fits and count * rows.dtype.itemsize <= _MAX_LABELS:
            values = [np.asarray(rows.row(at)).ravel()[0] for at in range(count)]
            return [
                v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values
            ]
    return [None] * count


class ArrayStack:
    """An open file of arrays."""

    def __init__(self, path: str, key: str) -> None:
        self._file = _opened(path)
        chosen = _chosen(self._file, key, path)
        self._arrays = [self._file.array(name) for name, _ in chosen]
        self._starts = starts_of([count for _, count in chosen])

    def read(self, numbers: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield some images."""
        for at, inside in by_owner(self._starts, np.asarray(numbers, np.int64)):
            rows = self._arrays[at]
            for number in inside:
                values = rows.row(-1 if _is_one_image(rows) else number)
                if isinstance(values, bytes):
                    yield values
                    continue
                if values.ndim == 3 and _channels(values.shape) == 0:
                    values = values.transpose(1, 2, 0)
                yield image_of(values.astype(values.dtype.newbyteorder("="), copy=False))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# -- files ---------------------------------------------------------------------------------------


def _opened(path: str) -> ArrayFile:
    ending, file = ending_of(path), ArrayFile()
    if ending in (".h5", ".hdf5"):
        h5py = library("h5py", "hdf5", "reading HDF5")

        def visit(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset) and item.shape is not None:
                file.opens[name] = partial(HdfRows, item)

        # links out of the file are not followed
        file.enter_context(h5py.File(path, "r")).visititems(visit)
    elif ending == ".npz":
        archive = file.enter_context(zipfile.ZipFile(path))
        for member in archive.namelist():
            opens = partial(archive.open, member)
            file.opens[member.removesuffix(".npy")] = partial(StreamRows, opens, npy_header)
    else:
        reader: Any = gzip.open if path.lower().endswith(".gz") else open
        opens = partial(reader, path, "rb")
        header = npy_header if ending == ".npy" else idx_header
        file.opens[""] = partial(StreamRows, opens, header)
    return file


@dataclass(frozen=True, slots=True)
class Header:
    """The shape and the type of a stored array."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool = False

    @property
    def size(self) -> int:
        """Bytes of the array, in Python's integers, which do not overflow."""
        return math.prod(self.shape) * self.dtype.itemsize


def npy_header(file: IO[bytes]) -> Header:
    """Read the header of a ``.npy`` file."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise Refused("unsupported", f"version {version} of .npy, which is for named fields")
    return Header(tuple(int(side) for side in shape), dtype, fortran and len(shape) > 1)


def idx_header(file: IO[bytes]) -> Header:
    """Read the header of an IDX file.

    >>> import io
    >>> idx_header(io.BytesIO(bytes([0, 0, 8, 1, 0, 0, 0, 5]))).shape
    (5,)
    """
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES:
        raise Refused("corrupt", "the content is not that of an IDX file")
    sizes = file.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise EOFError("the IDX file ends in its header: truncated")
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    return Header(shape, np.dtype(_IDX_TYPES[magic[2]]))


class StreamRows:
    """An array that is read forward; an earlier row is read from its start again."""

    encoded: Final = False

    def __init__(
        self, opens: Callable[[], IO[bytes]], header: Callable[[IO[bytes]], Header]
    ) -> None:
        self._opens, self._reads = opens, header
        self._file: IO[bytes] | None = None
        self._begin()

    def _begin(self) -> IO[bytes]:
        self.close()
        file, self._next = self._opens(), 0
        try:
            self.header = self._reads(file)
        except Exception:
            file.close()
            raise
        self.shape, self.dtype, self._file = self.header.shape, self.header.dtype, file
        return file

    def row(self, number: int) -> Values:
        """Return one row, or the whole of an array that is one image (number -1)."""
        if number < 0:
            return self._read(0, self.shape)
        if not self.header.fortran:
            return self._read(number, self.shape[1:])
        # its rows are not stored one after the other
        if self.header.size > MAX_BYTES:
            raise Refused("unsupported", f"an array of {self.header.size:,} bytes in Fortran order")
        return np.asarray(self._read(0, self.shape)[number])

    def _read(self, number: int, shape: tuple[int, ...]) -> Values:
        size = math.prod(shape) * self.dtype.itemsize
        file = self._file
        if file is None or number < self._next:
            file = self._begin()
        if number > self._next:
            file.seek((number - self._next) * size, os.SEEK_CUR)
        self._next = number + 1
        data = file.read(size)
        if len(data) < size:
            raise EOFError(f"the file is truncated: it ends before image {number + 1:,}")
        values: Values = np.frombuffer(data, self.dtype)
        return np.reshape(values, shape, order="F" if self.header.fortran else "C")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class HdfRows:
    """A data set of an HDF5 file."""

    def __init__(self, data: h5py.Dataset) -> None:
        import h5py

        self._data = data
        self.shape = tuple(data.shape)
        self.dtype: np.dtype[np.generic] = np.dtype(data.dtype)
        #: rows are encoded images, of any length
        self.encoded = data.ndim == 1 and h5py.check_vlen_dtype(data.dtype) == np.uint8
        if data.external or data.is_virtual:
            raise Refused("unsupported", "data in other files")
        if data.chunks and math.prod(data.chunks) * data.dtype.itemsize > MAX_BYTES:
            raise Refused("too-large", f"chunks of more than {MAX_BYTES:,} bytes")

    def row(self, number: int) -> bytes | Values:
        """Return one row, or the whole of an array that is one image (number -1)."""
        values = self._data[()] if number < 0 else self._data[number]
        return np.asarray(values, np.uint8).tobytes() if self.encoded else np.asarray(values)


Rows = StreamRows | HdfRows


class ArrayFile(ExitStack):
    """The arrays of an open file by name; the name of the only array of a file is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.opens: dict[str, Callable[[], Rows]] = {}
        self._found: dict[str, Rows] = {}

    @property
    def names(self) -> Sequence[str]:
        """The names of the arrays."""
        return sorted(self.opens)

    def array(self, name: str) -> Rows:
        """Return an array."""
        if name not in self._found:
            rows = self._found[name] = self.opens[name]()
            if isinstance(rows, StreamRows):
                self.callback(rows.close)
        return self._found[name]
