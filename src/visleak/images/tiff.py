"""TIFF by tifffile: pages of any number of bands to the image as it is displayed."""

from __future__ import annotations

import io
import logging
import re
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.images.pixels import opaque, rgb_of_array, rgb_of_image
from visleak.records import Bytes8, Refused

if TYPE_CHECKING:
    from tifffile import TiffFrame, TiffPage

_WHITE_IS_ZERO: Final = 0
_PALETTE: Final = 3
_INKS: Final = 5
_LAB: Final = (8, 9, 10)
#: Kinds of the fourth band: opacity, with colours multiplied by it or not.
_ASSOCIATED: Final = 1
_STRAIGHT: Final = 2
#: Tags of the orientation, of a colour profile and of the metadata of GDAL.
_ORIENTATION: Final = 274
_PROFILE: Final = 34675
_GDAL: Final = 42112
#: Colours of bands as GDAL names them, in the order in which they are shown.
_COLOURS: Final = ("red", "green", "blue")
_ITEM: Final = re.compile(r'<Item name="(?:COLORINTERP|DESCRIPTION)"([^>]*)>([^<]*)</Item>')
_SAMPLE: Final = re.compile(r'sample="(\d+)"')
#: Bytes of a page that are unpacked at once.
MAX_PAGE: Final = 1 << 30
# Without a handler, logs of tifffile would be printed in programs that set up no logging.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


def shown(page: TiffPage, values: npt.NDArray[np.generic]) -> Bytes8:
    """Return the values of a page, or of a part of it, as they are compared.

    Of many bands three are: those that the file calls red, green and blue, else the first three.
    Two bands are the first one.
    """
    photometric = int(page.photometric)
    if photometric in _LAB:
        raise Refused("unsupported", "TIFF in CIELAB, of which pages are not read")
    if photometric == _PALETTE and page.colormap is not None and values.ndim == 2:
        return rgb_of_array(np.moveaxis(np.asarray(page.colormap)[:, values], 0, -1))
    if photometric == _INKS and values.ndim == 3 and values.shape[2] >= 4:
        if values.dtype != np.uint8:
            raise Refused("unsupported", f"inks of {values.dtype}, of which pages are not read")
        inks = Image.fromarray(np.ascontiguousarray(values[:, :, :4]), "CMYK")
        return _in_srgb(page, inks)
    if values.dtype.kind == "c":
        values = np.abs(values)
    if values.ndim == 3 and values.shape[2] not in (1, 3):
        extra = list(map(int, page.extrasamples)) if values.shape[2] == 4 else []
        alpha = extra[-1] if extra else 0
        if alpha == _ASSOCIATED:
            opacity = values[:, :, 3:].astype(np.float64)
            most = opaque(values[:, :, 3])
            scale = np.divide(most, opacity, where=opacity > 0, out=0 * opacity)
            colours = values[:, :, :3] * scale
            whole = np.rint(colours) if values.dtype.kind in "ui" else colours
            colours = np.minimum(whole, most).astype(values.dtype)
            values = np.dstack([colours, values[:, :, 3]])
        elif alpha != _STRAIGHT:
            values = values[:, :, _bands(page, values.shape[2])]
    image = rgb_of_array(values)
    if photometric == _WHITE_IS_ZERO:
        image = np.asarray(255 - image, np.uint8)
    return _in_srgb(page, Image.fromarray(image))


def _in_srgb(page: TiffPage, image: Image.Image) -> Bytes8:
    tag = page.tags.get(_PROFILE)
    if tag is not None and isinstance(tag.value, bytes):
        image.info["icc_profile"] = tag.value
    return rgb_of_image(image)


def _bands(page: TiffPage, count: int) -> list[int]:
    """Return the bands that are shown.

    GDAL names bands in XML. Names such as "Band 4 (red)" are descriptions and no colours.
    """
    if count < 3:
        return [0]
    tag = page.tags.get(_GDAL)
    named: dict[str, int] = {}
    for about, name in _ITEM.findall(str(tag.value) if tag is not None else ""):
        if band := _SAMPLE.search(about):
            named.setdefault(name.strip().lower(), int(band[1]))
    found = [named[colour] for colour in _COLOURS if named.get(colour, count) < count]
    return found if len(found) == len(_COLOURS) else [0, 1, 2]


def first_page(data: bytes) -> tuple[Image.Image, int]:
    """Return the first page of a file, and its orientation; may raise anything."""
    from tifffile import TiffFile

    with TiffFile(io.BytesIO(data)) as file:
        page = file.pages.first
        check_bytes(page, page.imagelength, page.imagewidth)
        return Image.fromarray(shown(page, pixels_of(page, page.axes))), orientation_of(page)


def orientation_of(page: TiffPage) -> int:
    """Return the orientation 1 to 8 that a page states; 1 where it states none."""
    return int(page.tags.valueof(_ORIENTATION, default=1))


def pixels_of(page: TiffPage | TiffFrame, axes: str) -> npt.NDArray[np.generic]:
    """Return all values of a page, bands last."""
    values = np.asarray(page.asarray(maxworkers=1))
    return values.transpose(1, 2, 0) if axes == "SYX" else values


def check_bytes(page: TiffPage, height: int, width: int) -> None:
    """Refuse a part of a page that takes too much memory."""
    itemsize = 0 if page.dtype is None else page.dtype.itemsize
    if height * width * page.samplesperpixel * page.imagedepth * itemsize > MAX_PAGE:
        raise Refused("too-large", f"a page of more than {MAX_PAGE:,} bytes")
