"""Which picture format some bytes are.

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
        extra: of visleak that brings the decoder; empty where Pillow always has it.
    """

    name: str
    plugin: str = ""
    reader: str = ""
    calm: bool = False
    extra: str = ""


JPEG: Final = Format("JPEG", "PIL.JpegImagePlugin", "JpegImageFile", calm=True)
PNG: Final = Format("PNG", "PIL.PngImagePlugin", "PngImageFile", calm=True)
#: PNG with an animation: the same reader, which warns when the animation's header is odd.
APNG: Final = Format("PNG", "PIL.PngImagePlugin", "PngImageFile")
WEBP: Final = Format("WebP", "PIL.WebPImagePlugin", "WebPImageFile", calm=True)
GIF: Final = Format("GIF", "PIL.GifImagePlugin", "GifImageFile")
TIFF: Final = Format("TIFF", "PIL.TiffImagePlugin", "TiffImageFile")
BMP: Final = Format("BMP", "PIL.BmpImagePlugin", "BmpImageFile")
PNM: Final = Format("PNM", "PIL.PpmImagePlugin", "PpmImageFile")
AVIF: Final = Format("AVIF", "PIL.AvifImagePlugin", "AvifImageFile", extra="heif")
HEIF: Final = Format("HEIF", "pillow_heif", "HeifImageFile", extra="heif")
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
    *(
        (b"\x01\xda" + packed + size, Format("SGI", "PIL.SgiImagePlugin", "SgiImageFile"))
        for packed in (b"\0", b"\x01")
        for size in (b"\x01", b"\x02")
    ),
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
