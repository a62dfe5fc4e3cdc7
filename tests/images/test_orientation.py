"""EXIF orientation, against an oracle in numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from made_images import exif_of, pixels

from visleak.images import decode

ORACLE = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "JPEG", "AVIF"])
def test_orientation(kind, orientation, picture, encode):
    image = picture(48, 32)
    options = {"lossless": True} if kind == "WEBP" else {}
    plain = pixels(encode(image, kind, **options))
    found = decode(encode(image, kind, exif=exif_of(orientation), **options))
    want = ORACLE[orientation](plain)
    assert np.array_equal(found.pixels, want)
    assert (found.height, found.width) == want.shape[:2]


@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"Exif\0\0",
        b"Exif\0\0MM\0*\xff\xff\xff\xff",
        b"\0" * 40,
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x03\0" * 9,
    ],
)
def test_broken_exif_is_no_turn_and_no_warning(exif, picture, encode):
    for kind in ("JPEG", "PNG", "WEBP"):
        data = encode(picture(), kind, exif=exif) if exif else encode(picture(), kind)
        assert pixels(data).shape == (32, 48, 3)


def test_orientation_out_of_range_is_no_turn(picture, encode):
    assert pixels(encode(picture(), exif=exif_of(9))).shape == (32, 48, 3)


def test_exif_in_little_and_big_endian_and_as_long(picture, encode):
    for order, mark in (("<", b"II"), (">", b"MM")):
        for kind, value in ((3, struct.pack(order + "HH", 6, 0)), (4, struct.pack(order + "I", 6))):
            head = mark + struct.pack(order + "HIH", 42, 8, 1)
            block = b"Exif\0\0" + head + struct.pack(order + "HHI", 0x0112, kind, 1) + value
            assert pixels(encode(picture(), "JPEG", exif=block)).shape == (48, 32, 3)
