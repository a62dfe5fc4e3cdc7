"""What several tests of images need."""

import struct
import zlib

import numpy as np
from PIL import Image

from visleak.images import decode, grey
from visleak.records import DecodedImage, Unreadable


def pixels(data, **options):
    found = decode(data, **options)
    assert isinstance(found, DecodedImage), found
    assert found.pixels.dtype == np.uint8
    assert found.pixels.shape[2] == 3
    if not options:
        assert np.array_equal(grey(data), Image.fromarray(found.pixels).convert("L"))
    return found.pixels


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def png(width, height, depth, colour, raw, *extra):
    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + b"".join(chunk(*one) for one in extra)
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def reason(data):
    found = decode(data)
    assert isinstance(found, Unreadable), found
    assert "\n" not in found.detail
    return found.reason


FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM", "QOI", "SGI"]
