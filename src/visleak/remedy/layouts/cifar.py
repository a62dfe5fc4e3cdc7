"""CIFAR batches: pickles of plain numbers and texts, written as Python 2 wrote the originals."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np

from visleak.errors import VisleakError
from visleak.images.cifar import LAYOUTS, CifarOpener, load_pickle, pixel_rows
from visleak.images.sources import locate
from visleak.records import Bytes8, Int64
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.layouts.place import Opened, Place

#: What reads an array back; the name that every version of numpy knows.
_ARRAY: Final = b"cnumpy.core.multiarray\n_reconstruct\n"


def write_cifar(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write the batches of each part under their names, without the rows that go."""
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
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
    return Opened(
        place.below(part),
        before="cifar:",
        after=f"#{split}",
        options=piece.images.options,
        renamed=True,
    )


def _kept(content: Mapping[str, Any], rows: int, keep: Int64) -> dict[str, Any]:
    """Return a batch with the rows that are kept: of every column that has a value a picture."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, np.ndarray) and len(value) == rows:
            found[name] = value[keep]
        elif isinstance(value, list) and len(value) == rows:
            found[name] = [value[at] for at in keep.tolist()]
        else:
            found[name] = value
    return found


def _pixels(content: dict[str, Any], piece: Filled, keep: Int64, start: int) -> Bytes8:
    """Return the pixels of a batch, with those of what takes a place in it."""
    pixels = pixel_rows(content).copy()
    for row, at in enumerate(keep.tolist()):
        stand = piece.instead.get(start + at)
        if stand is not None:
            pixels[row] = cast(Bytes8, stand.stored).transpose(2, 0, 1).reshape(-1)
    return pixels


def write_pickle(content: Mapping[str, Any], file: BinaryIO) -> None:
    """Write numbers, texts, lists and ``uint8`` arrays by name as a pickle of protocol 2.

    Texts are written as strings of Python 2, as in the originals, so that ``encoding="bytes"``
    and ``encoding="latin1"`` read them as they read those.

    Raises:
        VisleakError: a value is something else.
    """
    file.write(b"\x80\x02}(")
    for name, value in content.items():
        file.write(b"".join(_text(name.encode())))
        for data in _value(name, value):
            file.write(data)
    file.write(b"u.")


def _value(name: str, value: Any) -> Iterator[bytes]:
    if isinstance(value, bool) or value is None:
        yield {True: b"\x88", False: b"\x89", None: b"N"}[value]
    elif isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise VisleakError(f"column {name!r} of a CIFAR file holds {value}, which is too large")
        yield b"J" + struct.pack("<i", value)
    elif isinstance(value, bytes | str):
        yield from _text(value.encode() if isinstance(value, str) else value)
    elif isinstance(value, list):
        yield b"]("
        for each in value:
            yield from _value(name, each)
        yield b"e"
    elif isinstance(value, np.ndarray) and value.dtype == np.uint8:
        yield from _array(value)
    else:
        raise VisleakError(f"column {name!r} of a CIFAR file is no list, text or array of bytes")


def _text(data: bytes) -> Iterator[bytes]:
    yield b"T" + struct.pack("<I", len(data)) + data


def _array(value: Bytes8) -> Iterator[bytes]:
    """Yield the opcodes that rebuild an array: what numpy itself writes under Python 2."""
    yield _ARRAY + b"cnumpy\nndarray\nK\x00\x85"
    yield from _text(b"b")
    yield b"\x87R(K\x01("
    for length in value.shape:
        yield b"J" + struct.pack("<i", length)
    yield b"tcnumpy\ndtype\n"
    yield from _text(b"u1")
    yield b"K\x00K\x01\x87R(K\x03"
    yield from _text(b"|")
    yield b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    yield from _text(np.ascontiguousarray(value).tobytes())
    yield b"tb"
