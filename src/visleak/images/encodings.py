"""Encodings of images: which one some bytes are, and whether they end too early.

The magic bytes decide, never the file's name, so that each image is offered to one decoder only,
and a decoder that starts programs (EPS) or guesses (TGA without a footer) is never asked.
"""

from __future__ import annotations

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


#: Elements of DICOM that are read, their longest value, and the kinds that they may name.
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
    *(
        (b"\x01\xda" + packed + size, Encoding("SGI", "PIL.SgiImagePlugin", "SgiImageFile"))
        for packed in (b"\0", b"\x01")
        for size in (b"\x01", b"\x02")
    ),
    (b"\x0a\x02\x01", Encoding("PCX", "PIL.PcxImagePlugin", "PcxImageFile")),
    (b"\x0a\x03\x01", Encoding("PCX", "PIL.PcxImagePlugin", "PcxImageFile")),
    (b"\x0a\x05\x01", Encoding("PCX", "PIL.PcxImagePlugin", "PcxImageFile")),
    (b"\xff\x0a", JPEG_XL),
    (b"BM", BMP),
    *(
        (b"P" + kind + space, PNM)
        for kind in (b"1", b"2", b"3", b"4", b"5", b"6", b"f", b"F")
        for space in (b" ", b"\t", b"\r", b"\n", b"#")
    ),
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
    return next((found for magic, found in MAGICS if _begins(magic, data)), None)


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
        tag = (
            int.from_bytes(data[at : at + 2], "little"),
            int.from_bytes(data[at + 2 : at + 4], "little"),
        )
        if len(data) < at + 8 or tag[0] not in (2, 8) or tag <= last:
            return False
        kind, last = data[at + 4 : at + 6], tag
        if kind in _LONG_KINDS:
            at, length = at + 12, int.from_bytes(data[at + 8 : at + 12], "little")
        elif kind in _KINDS:
            at, length = at + 8, int.from_bytes(data[at + 6 : at + 8], "little")
        else:  # the kinds are those of the standard
            at, length = at + 8, int.from_bytes(data[at + 4 : at + 8], "little")
        if length % 2 or length > _LONGEST:
            return False
        at += length
    return True


def _begins(magic: bytes, data: bytes) -> bool:
    """Whether a file this short can only be the beginning of such an image."""
    return magic.startswith(data) and (len(data) > 2 or data[:1] in (b"\xff", b"\x89"))


def _is_bmp(data: bytes) -> bool:
    """Tell a bitmap from a text that begins with BM."""
    if len(data) >= 18:
        return int.from_bytes(data[14:18], "little") in _BMP_HEADERS
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
    if walk is None:
        return False
    try:
        return walk(data)
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
    return len(data) < 12 or len(data) < 8 + int.from_bytes(data[4:8], "little")


def _gif_is_cut(data: bytes) -> bool:
    """The blocks end before the first image's pixel data do."""
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


def _tiff_reaches_beyond(data: bytes, *, pixels_only: bool) -> bool:
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
