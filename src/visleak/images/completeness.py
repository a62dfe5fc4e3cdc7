"""Whether an encoded picture ends before its own structure says it should.

Asked of files that failed to decode, to tell a truncated one from a corrupt one, and where the
decoder would be content with part of the pixels.
"""

from __future__ import annotations

from typing import Final, Literal

from visleak.images.formats import Format


def is_cut(data: bytes, kind: Format) -> bool:
    """Whether the file ends too early; ``False`` for formats whose structure is not known here."""
    walk = _WALKS.get(kind.name)
    if walk is None:
        return False
    try:
        return walk(data)
    except IndexError:
        return True


def is_walked(kind: Format) -> bool:
    """Whether the structure of a format is known here."""
    return kind.name in _WALKS


def _number(data: bytes, at: int, size: int, order: Literal["little", "big"] = "big") -> int:
    """Return an unsigned number; raises IndexError where the file ends before it does."""
    if at + size > len(data):
        raise IndexError(at)
    return int.from_bytes(data[at : at + size], order)


def _jpeg_is_cut(data: bytes) -> bool:
    """No end marker after the first scan begins (thumbnails hold end markers of their own)."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xDA:
            return data.find(b"\xff\xd9", at) < 0
        if marker == 0xFF:
            at += 1
            continue
        at += 2 + _number(data, at + 2, 2)
    return False


def _png_is_cut(data: bytes) -> bool:
    """A chunk reaches beyond the end, or the last chunk is not IEND."""
    at = 8
    while at < len(data):
        end = at + 12 + _number(data, at, 4)
        if data[at + 4 : at + 8] == b"IEND":
            return False
        at = end
    return True


def _webp_is_cut(data: bytes) -> bool:
    """The RIFF length reaches beyond the end."""
    return len(data) < 12 or len(data) < 8 + int.from_bytes(data[4:8], "little")


def _gif_is_cut(data: bytes) -> bool:
    """The blocks end before the first picture's pixel data do."""
    flags = data[10]
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while True:
        block = data[at]
        if block == 0x2C:
            flags = data[at + 9]
            at += 10 + (3 << (flags & 7) + 1 if flags & 0x80 else 0) + 1
            _skip_sub_blocks(data, at)
            return False
        if block != 0x21:
            return False
        at = _skip_sub_blocks(data, at + 2)


def _skip_sub_blocks(data: bytes, at: int) -> int:
    while data[at]:
        at += 1 + data[at]
    return at + 1


def _bmp_is_cut(data: bytes) -> bool:
    """The pixel array, or the header before it, reaches beyond the end."""
    if len(data) < 26:
        return True
    start = int.from_bytes(data[10:14], "little")
    header = int.from_bytes(data[14:18], "little")
    if header == 12:
        width, height = (int.from_bytes(data[at : at + 2], "little") for at in (18, 20))
        bits, packed = int.from_bytes(data[24:26], "little"), 0
    else:
        width, height = (
            int.from_bytes(data[at : at + 4], "little", signed=True) for at in (18, 22)
        )
        bits, packed = int.from_bytes(data[28:30], "little"), int.from_bytes(data[30:34], "little")
    if packed in (1, 2):  # run lengths: the size is stated, if at all
        return len(data) < start + int.from_bytes(data[34:38], "little")
    return len(data) < start + (width * bits + 31) // 32 * 4 * abs(height)


def _tiff_is_cut(data: bytes) -> bool:
    """The first directory, or anything it points to, reaches beyond the end."""
    return _tiff_reaches_beyond(data, pixels_only=False)


def tiff_lacks_pixels(data: bytes) -> bool:
    """Whether the first directory of a TIFF file, or pixel data, reach beyond the end.

    Asked before decoding: the library that reads TIFF would print to the terminal.
    """
    try:
        return _tiff_reaches_beyond(data, pixels_only=True)
    except IndexError:
        return True


#: Bytes of one value of each TIFF type; others are not looked at.
_TIFF_SIZES: Final = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1, 10: 8, 11: 4, 12: 8, 16: 8}

#: Tags of the offsets and of the byte counts of strips and tiles.
_TIFF_PIXELS: Final = ((273, 279), (324, 325))

#: Tag of the tables without which JPEG strips cannot be decoded.
_TIFF_JPEG_TABLES: Final = 347


def _tiff_reaches_beyond(data: bytes, *, pixels_only: bool) -> bool:
    order: Literal["little", "big"] = "little" if data[:1] == b"I" else "big"
    wide = data[2:4] in (b"+\0", b"\0+")
    at = _number(data, 8, 8, order) if wide else _number(data, 4, 4, order)
    head, entry, word = (8, 20, 8) if wide else (2, 12, 4)
    count = _number(data, at, head, order)
    found: dict[int, list[int]] = {}
    for start in range(at + head, at + head + count * entry, entry):
        _number(data, start, entry, order)
        tag, kind = _number(data, start, 2, order), _number(data, start + 2, 2, order)
        length, size = _number(data, start + 4, word, order), _TIFF_SIZES.get(kind, 0)
        of_pixels = any(tag in pair for pair in _TIFF_PIXELS)
        if not size or (pixels_only and not of_pixels and tag != _TIFF_JPEG_TABLES):
            continue
        place = start + 4 + word
        if length * size > word:
            place = _number(data, place, word, order)
        if place + length * size > len(data):
            return True
        if of_pixels:
            steps = range(place, place + length * size, size)
            found[tag] = [_number(data, step, size, order) for step in steps]
    return any(
        offset + extent > len(data)
        for offsets, extents in _TIFF_PIXELS
        for offset, extent in zip(found.get(offsets, ()), found.get(extents, ()), strict=False)
    )


def _boxes_are_cut(data: bytes) -> bool:
    """A top-level box reaches beyond the end (AVIF, HEIF)."""
    at = 0
    while at < len(data):
        size = _number(data, at, 4)
        if size == 1:
            size = _number(data, at + 8, 8)
        if size == 0:
            return False
        if size < 8 or len(data) < at + size:
            return True
        at += size
    return b"mdat" not in data


def _qoi_is_cut(data: bytes) -> bool:
    return data[-8:] != b"\0\0\0\0\0\0\0\x01"


def _jpeg2000_is_cut(data: bytes) -> bool:
    return b"\xff\xd9" not in data[-4:]


_WALKS: Final = {
    "JPEG": _jpeg_is_cut,
    "PNG": _png_is_cut,
    "WebP": _webp_is_cut,
    "GIF": _gif_is_cut,
    "BMP": _bmp_is_cut,
    "TIFF": _tiff_is_cut,
    "AVIF": _boxes_are_cut,
    "HEIF": _boxes_are_cut,
    "QOI": _qoi_is_cut,
    "JPEG 2000": _jpeg2000_is_cut,
}
