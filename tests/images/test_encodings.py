"""Telling formats apart by content."""

from __future__ import annotations

from visleak.images.encodings import recognise


def test_formats_are_told_by_content(picture, encode):
    assert recognise(encode(picture(), "TGA")).name == "TGA"
    assert recognise(b"GIF89") is not None
