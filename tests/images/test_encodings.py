"""Telling formats apart by content; HEIC, AVIF and JPEG XL by their add-ons."""

from __future__ import annotations

import io
import sys

import numpy as np
import pillow_heif
import pillow_jxl  # noqa: F401 - registers its format
import pytest
from PIL import Image

from visleak.images import decode
from visleak.images.encodings import recognise
from visleak.records import Unreadable


def test_formats_are_told_by_content(picture, encode):
    assert recognise(encode(picture(), "TGA")).name == "TGA"
    assert recognise(b"GIF89") is not None


pillow_heif.register_heif_opener()


@pytest.mark.parametrize("kind", ["JXL", "HEIF", "AVIF"])
def test_pixels_orientation_and_damage(kind, natural):
    image = Image.fromarray(natural["astronaut"][:120, :160])
    turned = Image.Exif()
    turned[0x0112] = 6
    expected = {0: image, 6: image.transpose(Image.Transpose.ROTATE_270)}
    for orientation, shown in expected.items():
        file = io.BytesIO()
        options = {"exif": turned.tobytes()} if orientation else {}
        image.save(file, kind, quality=95, **options)
        found = decode(file.getvalue())
        assert found.pixels.shape == (shown.height, shown.width, 3)
        assert np.abs(found.pixels.astype(int) - np.asarray(shown)).mean() < 4
    cut = decode(file.getvalue()[:800])
    assert isinstance(cut, Unreadable)
    assert cut.reason in ("truncated", "corrupt")


def test_a_missing_decoder_is_one_line(monkeypatch):
    monkeypatch.setattr("visleak.images.decoding._READERS", {})
    monkeypatch.setitem(sys.modules, "pillow_jxl.JpegXLImagePlugin", None)
    found = decode(b"\xff\x0a" + bytes(100))
    assert found.detail.endswith("pip install 'visleak[heif]'")
