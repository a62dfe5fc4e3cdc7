"""Files that are cut at any place."""

from __future__ import annotations

import numpy as np
import pytest
from made_images import FORMATS, pixels, reason
from PIL import Image, ImageFile

from visleak.images import decode
from visleak.records import DecodedImage, Unreadable


def cuts(data):
    rng = np.random.default_rng(len(data))
    inner = rng.integers(3, len(data), 60).tolist()
    return sorted(
        {*range(3, 40), *inner, *range(len(data) - 12, len(data))} & set(range(len(data)))
    )


VARIANTS = [
    *((kind, {}) for kind in FORMATS),
    ("JPEG", {"progressive": True}),
    ("WEBP", {"lossless": True}),
    *(("TIFF", {"compression": name}) for name in ("tiff_lzw", "jpeg", "tiff_adobe_deflate")),
]


@pytest.mark.parametrize(("kind", "options"), VARIANTS)
def test_a_cut_file_is_truncated_or_whole(kind, options, picture, encode, capfd):
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
    for image in (picture(), noise):
        data = encode(image, kind, **options)
        whole, whole_small = pixels(data), pixels(data, enough=8)
        for cut in cuts(data):
            if kind == "JPEG":
                small = decode(data[:cut], enough=8)
                assert isinstance(small, Unreadable) or np.array_equal(small.pixels, whole_small)
            found = decode(data[:cut])
            if isinstance(found, DecodedImage):
                assert np.array_equal(found.pixels, whole), cut
                assert cut > len(data) * 0.9
            elif cut >= 12:
                assert found.reason == "truncated", (cut, len(data), found)
            else:
                assert found.reason in ("truncated", "not-an-image"), (cut, found)
    assert capfd.readouterr().err == ""


def test_a_cut_file_is_refused_even_where_pillow_is_told_to_take_it(monkeypatch, picture, encode):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for kind in ("JPEG", "PNG", "BMP", "GIF", "WEBP"):
        data = encode(picture(), kind)
        assert reason(data[: len(data) // 2]) == "truncated"
