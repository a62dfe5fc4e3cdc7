"""Encodings of images: which one some bytes are, and whether they end too early.

The magic bytes decide, never the file's name, so that each image is offered to one decoder only,
and a decoder that starts programs (EPS) or guesses (TGA without a footer) is never used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

#: File name endings of images, lower case; files with another ending are not listed.
SUFFIXES: Final = frozenset(
    [
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".gif", ".bmp"),
        *(".dib", ".tif", ".tiff", ".avif", ".avifs", ".heic", ".heics", ".heif", ".hif", ".jp2"),
        *(".j2c", ".j2k", ".jpc", ".jpf", ".jpx", ".jxl", ".pbm", ".pfm", ".pgm", ".pnm", ".ppm"),
        *(".dds", ".ico", ".pcx", ".psd", ".qoi", ".ras", ".sgi", ".tga", ".dcm", ".dicom"),
    ]
)
_BMP_HEADERS: Final = (12, 16, 40, 52, 56, 64, 108, 124)
_HEIF_BRANDS: Final = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
#: Bytes of one value of each TIFF type; others are not read.
_TIFF_SIZES: Final = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1, 10: 8, 11: 4, 12: 8, 16: 8}
#: Tags of the offsets and of the byte counts of strips and tiles.
_TIFF_PIXELS: Final = ((273, 279), (324, 325))
_TIFF_JPEG_TABLES: Final = 347  # tag of the tables without which JPEG strips cannot be decoded


#: Number of elements of DICOM that are read, their longest value, and their possible kinds.
_ELEMENTS: Final = 2
_LONGEST: Final = 128
_LONG_KINDS: Final = (b"OB", b"OW", b"OF", b"SQ", b"UT", b"UN")
_KINDS: Final = tuple(b"AE AS AT CS DA DS DT FL FD IS LO LT PN SH SL SS ST TM UI UL US".split())


@dataclass(frozen=True, slots=True)
class Encoding:
    """An image format."""

    name: str  # short name, as people write it
    plugin: str = ""  # module of Pillow (or of an add-on) that reads it; empty where there is none
    reader: str = ""  # the class in that module
    calm: bool = False  # whether opening it never makes Pillow warn
    extra: str = ""  # of visleak that brings the decoder; empty where Pillow always has it


JPEG: Final = Encoding("JPEG", "PIL.JpegImagePlugin", "JpegImageFile", calm=True)
PNG: Final = Encoding("PNG", "PIL.PngImagePlugin", "PngImageFile", calm=True)
#: PNG with an animation: the same reader, which warns when the animation's header is odd.
APNG: Final = Encoding("PNG", "PIL.PngImagePlugin", "PngImageFile")
WEBP: Final = Encoding("WebP", "PIL.WebPImagePlugin", "WebPImageFile", calm=True)
GIF: Final = Encoding("GIF", "PIL.GifImagePlugin", "GifImageFile")
TIFF: Final = Encoding("TIFF", "PIL.TiffImagePlugin", "TiffImageFile")
BMP: Final = Encoding("BMP", "PIL.BmpImagePlugin", "BmpImageFile")
PNM: Final = Encoding("PNM", "PIL.PpmImagePlugin", "PpmImageFile")
AVIF: Final = Encoding("AVIF", "PIL.AvifImagePlugin", "AvifImageFile", extra="heif")
HEIF: Final = Encoding("HEIF", "pillow_heif", "HeifImageFile", extra="heif")
JPEG_XL: Final = Encoding("JPEG XL", "pillow_jxl.JpegXLImagePlugin", "JXLImageFile", extra="heif")
JPEG2000: Final = Encoding("JPEG 2000", "PIL.Jpeg2KImagePlugin", "Jpeg2KImageFile")
DICOM: Final = Encoding("DICOM", extra="medical")
TGA: Final = Encoding("TGA", "PIL.TgaImagePlugin", "TgaImageFile")
PCX: Final = Encoding("PCX", "PIL.PcxImagePlugin", "PcxImageFile")
SGI: Final = Encoding("SGI", "PIL.SgiImagePlugin", "SgiImageFile")
#: Magic bytes at the start of the file, the most frequent formats first.
MAGICS: Final[tuple[tuple[bytes, Encoding], ...]] = (
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
    (b"\0\0\0\x0cJXL \r\n\x87\n", JPEG_XL),
    (b"qoif", Encoding("QOI", "PIL.QoiImagePlugin", "QoiImageFile")),
    (b"8BPS\0\x01", Encoding("PSD", "PIL.PsdImagePlugin", "PsdImageFile")),
    (b"DDS \x7c\0\0\0", Encoding("DDS", "PIL.DdsImagePlugin", "DdsImageFile")),
    (b"\0\0\x01\0", Encoding("ICO", "PIL.IcoImagePlugin", "IcoImageFile")),
    (b"\x59\xa6\x6a\x95", Encoding("Sun raster", "PIL.SunImagePlugin", "SunImageFile")),
    *((b"\x01\xda" + each, SGI) for each in (b"\0\x01", b"\0\x02", b"\x01\x01", b"\x01\x02")),
    *((b"\x0a" + version + b"\x01", PCX) for version in (b"\x02", b"\x03", b"\x05")),
    (b"\xff\x0a", JPEG_XL),
    (b"BM", BMP),
    *((f"P{kind}{space}".encode(), PNM) for kind in "123456fF" for space in " \t\r\n#"),
)


def recognise(data: bytes) -> Encoding | None:
    """Return the format of some encoded image, or ``None`` if it is none.

    A file cut so short that its magic bytes are cut too counts as the format it began.

    >>> recognise(bytes([137]) + b"PNG").name
    'PNG'
    >>> recognise(b"not an image") is None
    True
    """
    for magic, found in MAGICS:
        if data.startswith(magic):
            return _confirmed(data, found)
    if data[4:8] == b"ftyp":
        return _boxed(data)
    if data[128:132] == b"DICM" or is_bare_dicom(data):
        return DICOM
    if data[-18:] == b"TRUEVISION-XFILE.\0":
        return TGA
    # a file this short can only be the beginning of such an image
    short = len(data) > 2 or data[:1] in (b"\xff", b"\x89")
    return next((found for magic, found in MAGICS if short and magic.startswith(data)), None)


def _confirmed(data: bytes, found: Encoding) -> Encoding | None:
    """Look beyond magic bytes that do not settle the format."""
    if found is PNG:
        return APNG if data.find(b"acTL", 8, data.find(b"IDAT")) > 0 else PNG
    if found is WEBP:
        return WEBP if b"WEBP".startswith(data[8:12]) else None
    if found is BMP:
        return BMP if _is_bmp(data) else None
    if found is TIFF and data[128:132] == b"DICM":  # whose preamble may be that of a TIFF file
        return DICOM
    return found


def is_bare_dicom(data: bytes) -> bool:
    """Whether some bytes are those of DICOM without preamble, as older programs write it.

    Such a file begins with elements of the groups 2 or 8, in ascending order.

    >>> is_bare_dicom(bytes.fromhex("0800050043530000 0800080043530000"))
    True
    """
    at, last = 0, (0, 0)
    for _ in range(_ELEMENTS):
        tag = _little(data, at, 2), _little(data, at + 2, 2)
        if len(data) < at + 8 or tag[0] not in (2, 8) or tag <= last:
            return False
        kind, last = data[at + 4 : at + 6], tag
        if kind in _LONG_KINDS:
            at, length = at + 12, _little(data, at + 8, 4)
        elif kind in _KINDS:
            at, length = at + 8, _little(data, at + 6, 2)
        else:  # the kinds are those of the standard
            at, length = at + 8, _little(data, at + 4, 4)
        if length % 2 or length > _LONGEST:
            return False
        at += length
    return True


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _is_bmp(data: bytes) -> bool:
    if len(data) >= 18:
        return _little(data, 14, 4) in _BMP_HEADERS
    return not data[2:].isascii() or b"\0" in data


def _boxed(data: bytes) -> Encoding | None:
    """Tell AVIF from HEIF by the brands of the first box."""
    size = int.from_bytes(data[:4], "big")
    brands = data[8 : max(min(size, 256), 12)]
    if b"avif" in brands or b"avis" in brands:
        return AVIF
    return HEIF if any(brand in brands for brand in _HEIF_BRANDS) else None


def is_cut(data: bytes, kind: Encoding) -> bool:
    """Whether the file ends too early; ``False`` for formats whose structure is not known here."""
    walk = _WALKS.get(kind.name)
    try:
        return walk is not None and walk(data)
    except IndexError:
        return True


def is_walked(kind: Encoding) -> bool:
    """Whether the structure of a format is known here."""
    return kind.name in _WALKS


def _unsigned(data: bytes, at: int, size: int, order: Literal["little", "big"] = "big") -> int:
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
        at += 2 + _unsigned(data, at + 2, 2)
    return False


def _png_is_cut(data: bytes) -> bool:
    """A chunk reaches beyond the end, or the last chunk is not IEND."""
    at = 8
    while at < len(data):
        end = at + 12 + _unsigned(data, at, 4)
        if data[at + 4 : at + 8] == b"IEND":
            return False
        at = end
    return True


def _webp_is_cut(data: bytes) -> bool:
    """The RIFF length reaches beyond the end."""
    return len(data) < 12 or len(data) < 8 + _little(data, 4, 4)


def _gif_is_cut(data: bytes) -> bool:
    """The blocks end before the first image's pixel data do."""

    def colours(at: int) -> int:
        return 3 << (data[at] & 7) + 1 if data[at] & 0x80 else 0

    def after_blocks(at: int) -> int:
        while data[at]:
            at += 1 + data[at]
        return at + 1

    at = 13 + colours(10)
    while data[at] == 0x21:
        at = after_blocks(at + 2)
    if data[at] == 0x2C:
        after_blocks(at + 11 + colours(at + 9))
    return False


def _bmp_is_cut(data: bytes) -> bool:
    """The pixel array, or the header before it, reaches beyond the end."""
    if len(data) < 26:
        return True
    start = _little(data, 10, 4)
    if _little(data, 14, 4) == 12:
        width, height, bits, packed = *(_little(data, at, 2) for at in (18, 20, 24)), 0
    else:
        width, height = (
            int.from_bytes(data[at : at + 4], "little", signed=True) for at in (18, 22)
        )
        bits, packed = _little(data, 28, 2), _little(data, 30, 4)
    if packed in (1, 2):  # run lengths: the size is stated, if at all
        return len(data) < start + _little(data, 34, 4)
    return len(data) < start + (width * bits + 31) // 32 * 4 * abs(height)


def tiff_lacks_pixels(data: bytes) -> bool:
    """Whether the first directory of a TIFF file, or pixel data, reach beyond the end.

    Checked before decoding, as the library that reads TIFF would print to the terminal.
    """
    try:
        return _tiff_is_cut(data, pixels_only=True)
    except IndexError:
        return True


def _tiff_is_cut(data: bytes, pixels_only: bool = False) -> bool:
    """The first directory, or anything it points to, reaches beyond the end."""
    order: Literal["little", "big"] = "little" if data[:1] == b"I" else "big"
    wide = data[2:4] in (b"+\0", b"\0+")
    at = _unsigned(data, 8, 8, order) if wide else _unsigned(data, 4, 4, order)
    head, entry, word = (8, 20, 8) if wide else (2, 12, 4)
    count = _unsigned(data, at, head, order)
    found: dict[int, list[int]] = {}
    for start in range(at + head, at + head + count * entry, entry):
        _unsigned(data, start, entry, order)
        tag, kind = _unsigned(data, start, 2, order), _unsigned(data, start + 2, 2, order)
        length, size = _unsigned(data, start + 4, word, order), _TIFF_SIZES.get(kind, 0)
        of_pixels = any(tag in pair for pair in _TIFF_PIXELS)
        if not size or (pixels_only and not of_pixels and tag != _TIFF_JPEG_TABLES):
            continue
        place = start + 4 + word
        if length * size > word:
            place = _unsigned(data, place, word, order)
        if place + length * size > len(data):
            return True
        if of_pixels:
            steps = range(place, place + length * size, size)
            found[tag] = [_unsigned(data, step, size, order) for step in steps]
    return any(
        offset + extent > len(data)
        for offsets, extents in _TIFF_PIXELS
        for offset, extent in zip(found.get(offsets, ()), found.get(extents, ()), strict=False)
    )


def _boxes_are_cut(data: bytes) -> bool:
    """A top-level box reaches beyond the end (AVIF, HEIF)."""
    at = 0
    while at < len(data):
        size = _unsigned(data, at, 4)
        if size == 1:
            size = _unsigned(data, at + 8, 8)
        if size == 0:
            return False
        if size < 8 or len(data) < at + size:
            return True
        at += size
    return b"mdat" not in data


_WALKS: Final[dict[str, Callable[[bytes], bool]]] = {
    "JPEG": _jpeg_is_cut,
    "PNG": _png_is_cut,
    "WebP": _webp_is_cut,
    "GIF": _gif_is_cut,
    "BMP": _bmp_is_cut,
    "TIFF": _tiff_is_cut,
    "AVIF": _boxes_are_cut,
    "HEIF": _boxes_are_cut,
    "QOI": lambda data: data[-8:] != b"\0\0\0\0\0\0\0\x01",
    "JPEG 2000": lambda data: b"\xff\xd9" not in data[-4:],
}
