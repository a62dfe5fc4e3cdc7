"""Which picture format some bytes are, and whether they end before the format says they should.

The magic bytes decide, never the file's name, so that each picture is offered to one decoder
only and a decoder that starts programs (EPS) or guesses (TGA without a footer) is never asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: File name endings of pictures, lower case; files with another ending are not listed.
SUFFIXES: Final = frozenset(
    [
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".gif", ".bmp"),
        *(".dib", ".tif", ".tiff", ".avif", ".avifs", ".heic", ".heics", ".heif", ".hif", ".jp2"),
        *(".j2c", ".j2k", ".jpc", ".jpf", ".jpx", ".jxl", ".pbm", ".pfm", ".pgm", ".pnm", ".ppm"),
        *(".dds", ".ico", ".pcx", ".psd", ".qoi", ".ras", ".sgi", ".tga"),
    ]
)


@dataclass(frozen=True, slots=True)
class Format:
    """A picture format.

    Attributes:
        name: short name, as people write it.
        plugin: module of Pillow (or of an add-on) that reads it; empty where there is none.
        reader: the class in that module.
        calm: whether opening it never makes Pillow warn.
    """

    name: str
    plugin: str = ""
    reader: str = ""
    calm: bool = False


JPEG: Final = Format("JPEG", "PIL.JpegImagePlugin", "JpegImageFile", calm=True)
PNG: Final = Format("PNG", "PIL.PngImagePlugin", "PngImageFile", calm=True)
#: PNG with an animation: the same reader, which warns when the animation's header is odd.
APNG: Final = Format("PNG", "PIL.PngImagePlugin", "PngImageFile")
WEBP: Final = Format("WebP", "PIL.WebPImagePlugin", "WebPImageFile", calm=True)
GIF: Final = Format("GIF", "PIL.GifImagePlugin", "GifImageFile")
TIFF: Final = Format("TIFF", "PIL.TiffImagePlugin", "TiffImageFile")
BMP: Final = Format("BMP", "PIL.BmpImagePlugin", "BmpImageFile")
PNM: Final = Format("PNM", "PIL.PpmImagePlugin", "PpmImageFile")
AVIF: Final = Format("AVIF", "PIL.AvifImagePlugin", "AvifImageFile")
HEIF: Final = Format("HEIF", "pillow_heif", "HeifImageFile")
JPEG2000: Final = Format("JPEG 2000", "PIL.Jpeg2KImagePlugin", "Jpeg2KImageFile")
TGA: Final = Format("TGA", "PIL.TgaImagePlugin", "TgaImageFile")

#: Magic bytes at the start of the file, the most frequent formats first.
MAGICS: Final[tuple[tuple[bytes, Format], ...]] = (
    (b"\xff\xd8\xff", JPEG),
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"RIFF", WEBP),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
    (b"II*\0", TIFF),
    (b"MM\0*", TIFF),
    (b"II+\0", TIFF),
    (b"MM\0+", TIFF),
    (b"\xff\x4f\xff\x51", JPEG2000),
    (b"\0\0\0\x0cjP  \r\n\x87\n", JPEG2000),
    (b"\0\0\0\x0cJXL \r\n\x87\n", Format("JPEG XL")),
    (b"qoif", Format("QOI", "PIL.QoiImagePlugin", "QoiImageFile")),
    (b"8BPS\0\x01", Format("PSD", "PIL.PsdImagePlugin", "PsdImageFile")),
    (b"DDS \x7c\0\0\0", Format("DDS", "PIL.DdsImagePlugin", "DdsImageFile")),
    (b"\0\0\x01\0", Format("ICO", "PIL.IcoImagePlugin", "IcoImageFile")),
    (b"\x59\xa6\x6a\x95", Format("Sun raster", "PIL.SunImagePlugin", "SunImageFile")),
    (b"\x01\xda\0\x01", Format("SGI", "PIL.SgiImagePlugin", "SgiImageFile")),
    (b"\x01\xda\x01\x01", Format("SGI", "PIL.SgiImagePlugin", "SgiImageFile")),
    (b"\x0a\x02\x01", Format("PCX", "PIL.PcxImagePlugin", "PcxImageFile")),
    (b"\x0a\x03\x01", Format("PCX", "PIL.PcxImagePlugin", "PcxImageFile")),
    (b"\x0a\x05\x01", Format("PCX", "PIL.PcxImagePlugin", "PcxImageFile")),
    (b"\xff\x0a", Format("JPEG XL")),
    (b"BM", BMP),
    *(
        (b"P" + kind + space, PNM)
        for kind in (b"1", b"2", b"3", b"4", b"5", b"6", b"f", b"F")
        for space in (b" ", b"\t", b"\r", b"\n", b"#")
    ),
)

_BMP_HEADERS: Final = (12, 16, 40, 52, 56, 64, 108, 124)
_HEIF_BRANDS: Final = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")


def recognise(data: bytes) -> Format | None:
    """Return the format of some encoded picture, or ``None`` if it is none.

    A file cut so short that its magic bytes are cut too counts as the format it began.

    >>> recognise(bytes([137]) + b"PNG").name
    'PNG'
    >>> recognise(b"not a picture") is None
    True
    """
    for magic, found in MAGICS:
        if data.startswith(magic):
            return _confirmed(data, found)
    if data[4:8] == b"ftyp":
        return _boxed(data)
    if data[-18:] == b"TRUEVISION-XFILE.\0":
        return TGA
    return next((found for magic, found in MAGICS if _begins(magic, data)), None)


def _confirmed(data: bytes, found: Format) -> Format | None:
    """Look beyond magic bytes that do not settle the format."""
    if found is PNG:
        return APNG if data.find(b"acTL", 8, data.find(b"IDAT")) > 0 else PNG
    if found is WEBP:
        return WEBP if b"WEBP".startswith(data[8:12]) else None
    if found is BMP:
        return BMP if _is_bmp(data) else None
    return found


def _begins(magic: bytes, data: bytes) -> bool:
    """Whether a file this short can only be the beginning of such a picture."""
    return magic.startswith(data) and (len(data) > 2 or data[:1] in (b"\xff", b"\x89"))


def _is_bmp(data: bytes) -> bool:
    """Tell a bitmap from a text that begins with BM."""
    if len(data) >= 18:
        return int.from_bytes(data[14:18], "little") in _BMP_HEADERS
    return not data[2:].isascii() or b"\0" in data


def _boxed(data: bytes) -> Format | None:
    """Tell AVIF from HEIF by the brands of the first box."""
    size = int.from_bytes(data[:4], "big")
    brands = data[8 : max(min(size, 256), 12)]
    if b"avif" in brands or b"avis" in brands:
        return AVIF
    return HEIF if any(brand in brands for brand in _HEIF_BRANDS) else None


def is_cut(data: bytes, kind: Format) -> bool:
    """Whether the file ends before its own structure says it should.

    Asked of files that failed to decode, to tell a truncated one from a corrupt one, and of
    formats whose decoder is content with part of the pixels.
    """
    walk = _WALKS.get(kind.name)
    if walk is None:
        return False
    try:
        return walk(data)
    except (IndexError, ValueError):
        return True


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
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def _png_is_cut(data: bytes) -> bool:
    """A chunk reaches beyond the end, or the last chunk is not IEND."""
    at = 8
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
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
    """The first directory, or one of its strips or tiles, reaches beyond the end."""
    order = "little" if data[:1] == b"I" else "big"
    wide = data[2:4] in (b"+\0", b"\0+")

    def number(at: int, size: int) -> int:
        if at + size > len(data):
            raise IndexError
        return int.from_bytes(data[at : at + size], order)  # type: ignore[arg-type]

    at = number(8, 8) if wide else number(4, 4)
    count, entry, word = (number(at, 8), 20, 8) if wide else (number(at, 2), 12, 4)
    at += 8 if wide else 2
    found: dict[int, list[int]] = {}
    for start in range(at, at + min(count, 4096) * entry, entry):
        tag, kind = number(start, 2), number(start + 2, 2)
        length, size = number(start + 4, word), {1: 1, 3: 2, 4: 4, 16: 8}.get(kind, 0)
        if tag in (273, 279, 324, 325) and size:
            value = start + 4 + word
            if length * size > word:
                value = number(value, word)
            number(value, length * size)
            found[tag] = [number(value + i * size, size) for i in range(length)]
    return any(
        offset + extent > len(data)
        for offsets, extents in ((273, 279), (324, 325))
        for offset, extent in zip(found.get(offsets, ()), found.get(extents, ()), strict=False)
    )


def _boxes_are_cut(data: bytes) -> bool:
    """A top-level box reaches beyond the end (AVIF, HEIF)."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
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
