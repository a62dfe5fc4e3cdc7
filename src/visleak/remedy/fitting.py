"""An image in the form that another one's place holds."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from PIL import Image

from visleak.errors import VisleakError
from visleak.formats.writing import Stored
from visleak.images import decode
from visleak.images.encodings import recognise
from visleak.records import Unreadable

#: Which endings a format's files have, where it is not just its name.
ENDINGS: Final = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "TIFF": (".tif", ".tiff"),
    "BMP": (".bmp", ".dib"),
    "PNM": (".pbm", ".pfm", ".pgm", ".pnm", ".ppm"),
    "AVIF": (".avif", ".avifs"),
    "HEIF": (".heic", ".heics", ".heif", ".hif"),
    "JPEG 2000": (".jp2", ".j2c", ".j2k", ".jpc", ".jpf", ".jpx"),
    "JPEG XL": (".jxl",),
    "Sun raster": (".ras",),
}


def fitting(stored: Stored, holds: str, name: str | None, shown: str) -> Stored:
    """Return an image in the form that its place holds; encoded bytes stay as they are."""
    if holds == "arrays":
        image = decode(stored)
        if isinstance(image, Unreadable) or image.pixels.shape != (32, 32, 3):
            has = "cannot be decoded"
            if not isinstance(image, Unreadable):
                has = f"has {image.width} x {image.height} pixels"
            raise VisleakError(f"{shown} {has}: its place holds 32 x 32")
        return np.ascontiguousarray(image.pixels)
    if isinstance(stored, np.ndarray):
        encoded = io.BytesIO()
        Image.fromarray(stored).save(encoded, "PNG")
        stored = encoded.getvalue()
    if name is None:
        return stored
    kind = recognise(stored)
    ending = name[name.rfind(".") :].lower()
    if kind is None or ending not in ENDINGS.get(kind.name, (f".{kind.name.lower()}",)):
        what = "no image" if kind is None else kind.name
        raise VisleakError(
            f"{shown} is {what} and cannot stand under the name {name!r}; take a pool of"
            f" {ending or 'such'} images, or write the list alone with --format manifest"
        )
    return stored
