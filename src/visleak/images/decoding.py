"""From stored bytes to the image as it is displayed, or to the reason why there is none."""

from __future__ import annotations

import ctypes
import hashlib
import io
import logging
import os
import re
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageFile

from visleak.images.dicom import dicom_image, unlogged
from visleak.images.encodings import (
    DICOM,
    JPEG,
    JPEG_XL,
    TIFF,
    Encoding,
    is_cut,
    is_walked,
    recognise,
    tiff_lacks_pixels,
)
from visleak.images.pixels import (
    check_high_bytes,
    correct_modes,
    holds_deep_colours,
    in_srgb,
    is_deep,
    lacks_low_bytes,
    rgb_of_image,
    shallow,
    shallow_colours,
)
from visleak.images.tiff import first_page
from visleak.lazy import load
from visleak.records import Bytes8, DecodedImage, Refused, Unreadable

_TAG: Final = 0x0112
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LONGEST: Final = 200  # characters of a message that are kept
_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
#: An image with more pixels is refused before any of them is decoded.
MAX_PIXELS: Final = 256_000_000
MAX_SIDE: Final = 1_000_000  # so is an image with a longer side
#: Version of the pixels that an image becomes: part of the keys of all that is cached of them.
DECODING: Final = 6
#: Words in errors of Pillow on undamaged images that it cannot read.
_UNSUPPORTED: Final = (
    *("unsupported", "unknown pixel mode", "unknown data organization", "samples per pixel"),
    *("not installed", "not available", "unimplemented", "not supported", "not implemented"),
    "does not support",
    "string index out of range",  # of the planes of a TIFF file with more bands than it knows
)
#: Messages of libtiff about pixels that it could not decode.
_DAMAGED: Final = re.compile(r"\w*(Decode|JPEGLib)\w*: ")
#: Magic bytes of variants of a format that Pillow takes for damaged files.
_UNREAD: Final = {b"MM\0+": "big-endian BigTIFF", b"PF": "floats in colour"}


def orientation_of(exif: bytes) -> int:
    """Return the orientation 1 to 8 that an EXIF block gives; 1 where it gives none.

    >>> orientation_of(b"Exif" + bytes(2) + b"MM" + bytes.fromhex("002a00000008 0001 0112 0003"
    ...                "00000001 00060000"))
    6
    >>> orientation_of(b"broken")
    1
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order: Literal["little", "big"]
    if exif[:4] == b"II*\0":
        order = "little"
    elif exif[:4] == b"MM\0*":
        order = "big"
    else:
        return 1

    def number(at: int, size: int) -> int:
        return int.from_bytes(exif[at : at + size], order)

    at = number(4, 4)
    for start in range(at + 2, min(at + 2 + 12 * number(at, 2), len(exif) - 11), 12):
        if number(start, 2) == _TAG:
            value = number(start + 8, 4 if number(start + 2, 2) == 4 else 2)
            return value if 1 <= value <= 8 else 1
    return 1


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """Return the image as the camera was held; the same object for orientation 1."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)


def split_jpeg(data: bytes) -> tuple[bytes, bytes]:
    """Take the EXIF block out of a JPEG file.

    Pillow parses the block for its resolution and warns where it is broken; without the block
    there is nothing to warn about, and the pixels are the same.
    """
    at, kept, exif, pieces = 2, 0, b"", []
    while data[at : at + 1] == b"\xff":
        marker = data[at + 1 : at + 2]
        if marker == b"\xff":
            at += 1
            continue
        if marker in (b"\xda", b"\xd9", b""):
            break
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == b"\xe1" and data[at + 4 : at + 10] == b"Exif\0\0":
            exif = exif or data[at + 4 : end]
            pieces.append(data[kept:at])
            kept = end
        at = end
    return (exif, b"".join((*pieces, data[kept:]))) if pieces else (b"", data)


class _Kept(threading.local):
    """The messages of the files that a thread reads."""

    messages: list[str] | None = None


_KEPT: Final = _Kept()


@contextmanager
def messages_kept() -> Iterator[list[str]]:
    """Collect what libtiff reports of files that this thread reads meanwhile, one text each."""
    _set_handler()
    before, _KEPT.messages = _KEPT.messages, []
    try:
        yield _KEPT.messages
    finally:
        _KEPT.messages = before


#: Handlers that libtiff may call as long as the process lives. If two threads set one each, one
#: calls the other.
_ALIVE: Final[list[object]] = []


@cache
def _set_handler() -> None:
    from PIL import _imaging

    try:
        set_handler = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
        format_text = ctypes.CDLL(None).vsnprintf
    except (AttributeError, OSError, TypeError):
        return
    set_handler.restype = ctypes.c_void_p
    previous: Any = None

    def keep(module: bytes | None, form: bytes | None, values: int | None) -> None:
        if _KEPT.messages is None:
            if previous is not None:
                previous(module, form, values)
            return
        text = ctypes.create_string_buffer(LONGEST)
        # a list of arguments is passed by its address on all platforms that have this function
        format_text(text, ctypes.c_size_t(LONGEST), form, ctypes.c_void_p(values))
        source = f"{module.decode('utf-8', 'replace')}: " if module else ""
        _KEPT.messages.append(source + text.value.decode("utf-8", "replace"))

    handler = _HANDLER(keep)
    _ALIVE.append(handler)
    found = set_handler(handler)
    if found:
        previous = _HANDLER(found)


# Without a handler, errors that Pillow logs would be printed in programs that set up no logging.
logging.getLogger("PIL").addHandler(logging.NullHandler())


T = TypeVar("T")
#: Makes something of a loaded and turned image, given its full width and height.
_Make = Callable[[Image.Image, int, int], T]


class _Quiet:
    """Silences warnings while any thread is inside.

    Pillow warns about broken metadata, which is not the caller's concern. ``catch_warnings``
    changes the state of the process, so only the first thread in and the last one out touch it.
    """

    def __init__(self) -> None:
        self._forget()
        # A worker that is forked while another thread is inside must not wait for that thread.
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._context: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._context = warnings.catch_warnings()
                self._context.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._context is not None:
                self._context.__exit__(None, None, None)
                self._context = None


QUIET: Final = _Quiet()  # within it no warning of Pillow is shown


def decode(data: bytes | Bytes8, *, enough: int = 0) -> DecodedImage | Unreadable:
    """Decode one image as it is displayed.

    EXIF orientation is applied, alpha is laid over white (and ignored where it hides everything),
    of more than 8 bits the range that the image uses becomes 8, of an animation the first frame is
    taken. Colours of another profile (ICC) become sRGB. Never raises, never warns; safe in threads.

    >>> decode(b"").reason
    'empty'
    >>> decode(b"words").reason
    'not-an-image'
    """
    if isinstance(data, np.ndarray):
        return DecodedImage(data, data.shape[1], data.shape[0])
    return _made(data, enough, lambda image, *size: DecodedImage(rgb_of_image(image), *size))


def grey(data: bytes | Bytes8) -> Image.Image | Unreadable:
    """Decode one image as it is displayed, in shades of grey: Pillow's mode ``L``.

    They are the greys of the colours of :func:`decode`, without a copy of these.

    >>> grey(np.full((2, 3, 3), 7, np.uint8)).getpixel((0, 0))
    7
    >>> grey(b"").reason
    'empty'
    """

    def make(image: Image.Image, width: int, height: int) -> Image.Image:
        image = in_srgb(image)
        # a grey of three equal channels is that channel, so mode L need not take the way over RGB
        if image.mode in ("RGB", "L") and "transparency" not in image.info:
            return image.convert("L")
        return Image.fromarray(rgb_of_image(image)).convert("L")

    if isinstance(data, np.ndarray):
        return Image.fromarray(data).convert("L")
    return _made(data, 0, make)


def _what_else(data: bytes) -> str:
    """Describe content that is often found instead of an image, and what to do."""
    head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS; fetch the images with `git lfs pull`"
    if head.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "it is a web page or XML, as a failed download leaves; download it again"
    return "the content is of no known image format"


def _made(data: bytes, enough: int, make: _Make[T]) -> T | Unreadable:
    if not data:
        return Unreadable("empty", "the file has no content")
    kind = recognise(data)
    if kind is None:
        return Unreadable("not-an-image", _what_else(data))
    none = nullcontext(list[str]())
    kept: AbstractContextManager[list[str]] = messages_kept() if kind is TIFF else none
    with kept as messages:
        try:
            made = _decode(data, kind, enough, make)
            if any(_DAMAGED.match(message) for message in messages):
                raise OSError("decoder error")  # of a part of the image, which Pillow does not mind
            return made
        except Exception as error:
            why = _refusal(data, kind, error, messages)
            if kind is TIFF and why.reason == "unsupported":
                return _of_first_page(data, make, why)
            return why


def _decode(data: bytes, kind: Encoding, enough: int, make: _Make[T]) -> T | Unreadable:
    if (kind is TIFF and tiff_lacks_pixels(data)) or (
        # other code in the process may have set this switch of Pillow
        ImageFile.LOAD_TRUNCATED_IMAGES and is_cut(data, kind)
    ):
        return _refusal(data, kind, OSError("image file is truncated"), [])
    if kind is JPEG:
        return _decode_jpeg(data, enough, make)
    if kind is DICOM:
        with QUIET, unlogged():
            image = dicom_image(data)
        return _too_large(*image.size) or make(image, *image.size)
    calm: AbstractContextManager[None] = nullcontext() if kind.calm else QUIET
    with calm:
        return _decode_other(data, kind, make)


#: The classes that read formats.
_READERS: dict[Encoding, Any] = {}


def _reader(kind: Encoding) -> Any:
    """Return the class that reads a format; raises ImportError where there is none."""
    if kind not in _READERS:
        if not kind.plugin:
            raise ImportError(f"no decoder for {kind.name}")
        _READERS[kind] = load(f"{kind.plugin}:{kind.reader}")
    return _READERS[kind]


def _of_first_page(data: bytes, make: _Make[T], why: Unreadable) -> T | Unreadable:
    """Return a TIFF file that Pillow does not read, as of many bands, read by tifffile."""
    try:
        with QUIET:
            page, orientation = first_page(data)
    except ImportError:
        advice = "; pip install 'visleak[tiff]' reads more kinds"
        return Unreadable(why.reason, f"{why.detail}{advice}")
    except Exception:  # Pillow's error is as good
        return why
    image = turned(page, orientation)
    return _too_large(*image.size) or make(image, *image.size)


def _decode_jpeg(data: bytes, enough: int, make: _Make[T]) -> T | Unreadable:
    exif, data = split_jpeg(data)
    image = _reader(JPEG)(io.BytesIO(data))
    width, height = image.size
    if (refused := _too_large(width, height)) is not None:
        return refused
    if enough and min(width, height) >= 2 * enough:
        image.draft(None, (enough, enough))
    image.load()
    if image.mode == "CMYK" and "adobe" not in image.info:
        inks = ImageChops.invert(image)  # Pillow takes all for Adobe's, whose inks are inverted
        inks.info = image.info
        image = inks
    orientation = orientation_of(exif)
    size = (height, width) if orientation > 4 else (width, height)
    return make(turned(image, orientation), *size)


def _decode_other(data: bytes, kind: Encoding, make: _Make[T]) -> T | Unreadable:
    image = _opened(data, kind)
    if (refused := _too_large(*image.size)) is not None:
        return refused
    coloured, lacking = holds_deep_colours(image), lacks_low_bytes(image, data)
    image.load()
    if lacking:
        check_high_bytes(image)
    if kind is TIFF:
        orientation = int(image.getexif().get(0x0112, 1))  # gone where Pillow has applied it
    else:
        orientation = orientation_of(image.info.get("exif") or b"")
    if coloured:
        image = shallow_colours(image, _opened(data, kind))
    elif is_deep(image):
        image = shallow(image)
    image = turned(image, orientation)
    return make(image, image.width, image.height)


def _opened(data: bytes, kind: Encoding) -> Image.Image:
    for magic, variant in _UNREAD.items():
        if data.startswith(magic):
            raise NotImplementedError(variant)
    image: Image.Image = _reader(kind)(io.BytesIO(data))
    correct_modes(image)
    return image


def _too_large(width: int, height: int) -> Unreadable | None:
    if width * height <= MAX_PIXELS and max(width, height) <= MAX_SIDE:
        return None
    return Unreadable(
        "too-large",
        f"{width} x {height} pixels; up to {MAX_PIXELS:,} pixels and {MAX_SIDE:,} a side are read",
    )


def _refusal(data: bytes, kind: Encoding, error: Exception, messages: list[str]) -> Unreadable:
    if isinstance(error, Refused):
        return error.why
    words, cause = str(error).lower(), error.__cause__ or error
    text = " ".join(" ".join([str(error), *(f"({each})" for each in messages[:1])]).split())[:200]
    if kind is DICOM:
        text = type(error).__name__  # what the library says of a file may quote its tags
    missing = isinstance(error, ImportError) or (kind.extra and "not installed" in words)
    if missing:
        advice = f": pip install 'visleak[{kind.extra}]'" if kind.extra else ""
        return Unreadable("unsupported", f"no decoder for {kind.name} is installed{advice}")
    if isinstance(error, Image.DecompressionBombError | MemoryError):
        return Unreadable("too-large", f"{kind.name}: {text or 'out of memory'}")
    ended = any(word in words for word in ("truncated", "eof", "not enough"))
    if not is_walked(kind):
        ended |= isinstance(cause, IndexError | struct.error)
    if ended or is_cut(data, kind):
        return Unreadable("truncated", f"the {kind.name} file ends before its image does")
    unknown = isinstance(cause, NotImplementedError | KeyError)  # Pillow looks up types by key
    if unknown or any(word in words for word in _UNSUPPORTED):
        reader = "pydicom" if kind is DICOM else "Pillow"
        detail = f"{kind.name} with pixels that {reader} does not read ({text})"
        return Unreadable("unsupported", detail)
    if kind is JPEG_XL:
        text = "the content cannot be decoded"  # its library asks for a build that says more
    return Unreadable("corrupt", f"{kind.name}: {text or type(error).__name__}")


def content_digest(data: bytes | npt.NDArray[np.generic]) -> bytes:
    """Return the BLAKE2b-128 digest of what is stored: 16 bytes.

    For an array, of its shape, its type and its values in C order.

    >>> content_digest(b"image").hex()
    'bd8df2a8a9f082951387300becc9be66'
    """
    if isinstance(data, np.ndarray):
        digest = hashlib.blake2b(f"{data.shape}{data.dtype.str}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        return digest.digest()
    return hashlib.blake2b(data, digest_size=16).digest()
