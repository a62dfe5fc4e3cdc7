"""DICOM: stored values to pixels, by the same rule as all images of more than eight bits.

The window that a file names is a choice of how to display it, not what was acquired: it is ignored,
so that one acquisition has one rendering under all windows. The values themselves decide the range
that is shown (``visleak.images.pixels``). A linear rescale changes only the unit and is left out.
"""

from __future__ import annotations

import io
import logging
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.images.encodings import is_bare_dicom
from visleak.images.pixels import to_eight
from visleak.records import Bytes8, Refused

if TYPE_CHECKING:
    from pydicom import Dataset

#: Position and content of the magic bytes behind the preamble.
MAGIC: Final = (128, b"DICM")
#: The syntax of compressed files, and the most bytes of one that are unpacked.
_DEFLATED: Final = b"1.2.840.10008.1.2.1.99"
_HEAD: Final = 4096  # bytes in which it is named
_META_END: Final = 144  # where the length of the header ends
MAX_UNPACKED: Final = 1 << 30
#: The most bytes that are decoded for one frame.
MAX_FRAME_BYTES: Final = 2 << 30
_LOGGER: Final = logging.getLogger("pydicom")
_LOGGER.addHandler(logging.NullHandler())


class _Unlogged(threading.local):
    """Whether logs of pydicom are suppressed in a thread, as they quote values of tags."""

    inside = 0


_UNLOGGED: Final = _Unlogged()
_LOGGER.addFilter(lambda _: not _UNLOGGED.inside)


@contextmanager
def unlogged() -> Iterator[None]:
    """Suppress warnings and logs of pydicom on files that this thread reads."""
    _UNLOGGED.inside += 1
    try:
        yield
    finally:
        _UNLOGGED.inside -= 1


def is_dicom(data: bytes) -> bool:
    """Whether some bytes begin as a DICOM file does, with or without preamble."""
    start, magic = MAGIC
    return data[start : start + len(magic)] == magic or is_bare_dicom(data)


def read_header(file: BinaryIO, *, pixels: bool = True, tags: Sequence[str] = ()) -> Dataset:
    """Return the elements of a DICOM file, or those named; without preamble, with its syntax."""
    from pydicom import dcmread, uid

    file.seek(0)
    chosen = list(tags) or None
    header = dcmread(file, stop_before_pixels=not pixels, specific_tags=chosen, force=True)
    if "TransferSyntaxUID" not in header.file_meta:
        implicit, little = header.original_encoding
        syntax = uid.ExplicitVRLittleEndian if little else uid.ExplicitVRBigEndian
        header.file_meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian if implicit else syntax
    return header


def dicom_image(data: bytes) -> Image.Image:
    """Return the first frame of a DICOM file, of mode ``L`` or ``RGB``; may raise anything."""
    return Image.fromarray(next(dicom_frames(io.BytesIO(data), [0])))


def dicom_frames(file: BinaryIO, numbers: Sequence[int]) -> Iterator[Bytes8]:
    """Yield frames of a DICOM file as ``uint8`` (height, width) or (height, width, 3)."""
    from pydicom.pixels.utils import iter_pixels

    packed = check_unpacked(file)
    file.seek(0)
    whole = packed or is_bare_dicom(file.read(_HEAD))
    header = read_header(file, pixels=whole)
    check_header(header)
    if header.file_meta.TransferSyntaxUID.is_encapsulated:
        whole, header = True, read_header(file)
        check_coded(header, numbers)
    file.seek(0)
    for values in iter_pixels(header if whole else file, indices=list(numbers)):
        yield shown(header, values)


def check_header(header: Dataset) -> None:
    """Refuse a file without pixels, or with too many for one frame."""
    rows, columns = int(header.get("Rows") or 0), int(header.get("Columns") or 0)
    if not rows or not columns:
        raise Refused("unsupported", "DICOM without pixels")
    bits, samples = int(header.get("BitsAllocated") or 8), int(header.get("SamplesPerPixel") or 1)
    if rows * columns * samples * max(1, bits // 8) > MAX_FRAME_BYTES:
        raise Refused("too-large", f"{columns} x {rows} pixels of {bits} bits are not read")


def check_coded(header: Dataset, numbers: Sequence[int]) -> None:
    """Refuse frames that are coded with more pixels than the header states."""
    from pydicom.encaps import get_frame

    count, declared = int(header.get("NumberOfFrames") or 1), (header.Rows, header.Columns)
    for number in numbers:
        coded = coded_size(get_frame(header.PixelData, number, number_of_frames=count))
        if coded is not None and (coded[0] > declared[0] or coded[1] > declared[1]):
            raise Refused(
                "corrupt",
                f"frame {number} is coded as {coded[1]} x {coded[0]} pixels; the header has"
                f" {declared[1]} x {declared[0]}",
            )


def coded_size(data: bytes) -> tuple[int, int] | None:
    """Return the height and width that JPEG, JPEG-LS or JPEG 2000 states, ``None`` of others.

    >>> coded_size(b"\\xff\\xd8\\xff\\xfe\\0\\4..\\xff\\xc3\\0\\x0b\\x08\\0\\2\\0\\3")
    (2, 3)
    """
    start = data.find(b"\xffO\xffQ", 0, 1 << 12)
    if start >= 0:
        wide, high = (int.from_bytes(data[start + at : start + at + 4]) for at in (8, 12))
        return high, wide
    at = 2 if data[:2] == b"\xff\xd8" else len(data)
    while at + 9 <= len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if mark == 0xF7 or (0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC)):
            return int.from_bytes(data[at + 5 : at + 7]), int.from_bytes(data[at + 7 : at + 9])
        at += 1 if mark == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def check_unpacked(file: BinaryIO) -> bool:
    """Return whether a file is compressed as a whole; refuse one of too many bytes."""
    file.seek(0)
    head = file.read(_HEAD)
    if _DEFLATED not in head:
        return False
    # the group that names the syntax is not packed; its first element is its length
    if head[132:140] != b"\2\0\0\0UL\4\0":
        raise Refused("unsupported", "a deflated file without the length of its header")
    file.seek(_META_END + int.from_bytes(head[140:_META_END], "little"))
    unpacker, size = zlib.decompressobj(-zlib.MAX_WBITS), 0
    while packed := unpacker.unconsumed_tail or file.read(1 << 16):
        size += len(unpacker.decompress(packed, 1 << 20))
        if size > MAX_UNPACKED:
            raise Refused("too-large", f"it unpacks to more than {MAX_UNPACKED:,} bytes")
    return True


def shown(header: Dataset, values: npt.NDArray[np.generic]) -> Bytes8:
    """Return the values of one frame as they are compared.

    Colours are RGB already, but for a palette. Of greys, unused bits are cut off, a table of the
    modality is applied, padding becomes the least value, and white is great.
    """
    photometric = str(header.get("PhotometricInterpretation", "")).upper()
    if photometric == "PALETTE COLOR":
        from pydicom.pixels.processing import apply_color_lut

        return to_eight(np.asarray(apply_color_lut(values, header)))
    if values.ndim == 3:
        return to_eight(values)
    values = _own_bits(header, values)
    if int(header.get("BitsStored") or 8) == 1:
        return to_eight(values.astype(np.bool_))
    padding = _padding(header, values)
    if "ModalityLUTSequence" in header:
        from pydicom.pixels.processing import apply_modality_lut

        values = np.asarray(apply_modality_lut(values, header))
    if padding is not None and not padding.all():
        values = np.where(padding, values[~padding].min(), values).astype(values.dtype)
    grey = to_eight(values)
    falling = float(header.get("RescaleSlope") or 1) < 0
    inverse = header.get("PresentationLUTShape") == "INVERSE"
    return 255 - grey if (photometric == "MONOCHROME1") != (falling or inverse) else grey


def _own_bits(header: Dataset, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return integers without their unused bits, which may hold overlays."""
    stored = int(header.get("BitsStored") or 0)
    width = 8 * values.dtype.itemsize
    if values.dtype.kind not in "ui" or not 1 < stored < width:
        return values
    spare = width - stored
    whole = cast("npt.NDArray[np.int64]", values)
    return np.asarray((whole << spare) >> spare)


def _padding(header: Dataset, values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_] | None:
    """Return which values only fill the frame, ``None`` where the file names none."""
    first = header.get("PixelPaddingValue")
    if not isinstance(first, int):
        return None
    last = header.get("PixelPaddingRangeLimit")
    low, high = sorted((first, last if isinstance(last, int) else first))
    numbers = cast("npt.NDArray[np.int64]", values)
    return np.asarray((numbers >= low) & (numbers <= high))
