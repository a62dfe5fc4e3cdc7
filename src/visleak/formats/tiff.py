"""TIFF files that hold several images: pages, stacks of OME-TIFF, levels and tiles of large images.

A large page, as of a slide or a map, is a set of tiles: only what a tile needs is decoded. Tiles
are named and read as the page is stored; a page that is one image is turned as it states.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.errors import one_line
from visleak.formats.listing import ending_of
from visleak.formats.request import Request
from visleak.formats.stacks import MAX_BYTES, Contents, check_size, files_of, stack_set
from visleak.images.decoding import turned
from visleak.images.tiff import check_bytes, orientation_of, pixels_of, shown
from visleak.lazy import library
from visleak.records import Bytes8, ImageSet, Refused, Unreadable

if TYPE_CHECKING:
    from tifffile import TiffFile, TiffFrame, TiffPage

#: Endings of TIFF files, those of slides among them.
ENDINGS: Final = (
    *(".tif", ".tiff", ".btf", ".tf8", ".svs", ".ndpi", ".scn", ".bif", ".qptiff", ".lsm", ".stk"),
)
#: Longest side of a page that is one image, and side of the tiles of a larger one.
LARGE: Final = 10_000
TILE: Final = 1024
#: Images of a slide other than its tissue, such as its label.
_BESIDE: Final = ("label", "macro", "map", "overview", "thumbnail")


@dataclass(frozen=True, slots=True)
class Plane:
    """A page, and the part of it that is an image."""

    page: int  # number among the pages of the level
    top: int
    left: int
    height: int
    width: int
    tiled: bool  # the image is a part of the page

    @property
    def name(self) -> str:
        """The image's name in its file."""
        return f"page={self.page}" + (f",x={self.left},y={self.top}" if self.tiled else "")


def open_tiff(request: Request) -> ImageSet:
    """List the pages or tiles of TIFF files, grouped by file: ``tiff:FILE#tile=512&level=1``."""
    request.refuse_options("tile", "level")
    tile = request.whole("tile", -1)
    level = request.whole("level", 0)
    files = files_of(request, lambda path: ending_of(path) in ENDINGS, "a TIFF file")
    listed = partial(contents, tile=tile, level=level)
    return stack_set(request, files, listed, partial(TiffStack, tile=tile, level=level))


def _opened(path: str) -> TiffFile:
    tifffile = library("tifffile", "tiff", "reading pages of TIFF")
    # the other files of a set of OME-TIFF, which a file names, are listed by themselves
    file: TiffFile = tifffile.TiffFile(path, _multifile=False)
    return file


def contents(path: str, tile: int, level: int) -> Contents:
    """Return the planes of a file."""
    with _opened(path) as file:
        planes = list(_planes(_pages(file, level), tile))
        problem = _lost(file)
    frames = [plane.page for plane in planes]
    names = [plane.name for plane in planes]
    return Contents(names, range(len(planes)), frames, problem=problem)


def _lost(file: TiffFile) -> Unreadable | None:
    """Return why pages are missing at the end of a file, ``None`` if none are."""
    place = file.pages.next_page_offset
    if place is None:
        return None
    file.filehandle.seek(place)
    following = file.filehandle.read(file.tiff.offsetsize)
    if struct.unpack(file.tiff.offsetformat, following)[0] < file.filehandle.size:
        return None
    return Unreadable("truncated", f"the file ends before page {len(file.pages)}")


def _pages(file: TiffFile, level: int) -> list[TiffPage | TiffFrame]:
    """Return the pages of a level of all series: images of which only the size differs.

    The label of a slide, which may name a patient, is left out, and so are the photograph of its
    glass and its thumbnail.
    """
    found: list[TiffPage | TiffFrame] = []
    for series in file.series:
        if series.name.lower() not in _BESIDE and level < len(series.levels):
            found += (page for page in series.levels[level].pages if page is not None)
    most = max((len(series.levels) for series in file.series), default=0)
    if not most:
        raise Refused("corrupt", "the file has no pages")
    if not found:
        raise Refused("unsupported", f"the file has {most} levels, and none is number {level}")
    return found


def _frame(page: TiffPage | TiffFrame) -> TiffPage:
    """Return the page that describes a page."""
    if page.keyframe is None:
        raise Refused("corrupt", "a page without a description")
    return page.keyframe


def _planes(pages: Sequence[TiffPage | TiffFrame], tile: int) -> Iterator[Plane]:
    for number, page in enumerate(pages):
        frame = _frame(page)
        height, width = frame.imagelength, frame.imagewidth
        side = tile if tile >= 0 else TILE * (max(height, width) > LARGE)
        if not side:
            check_size(width, height, len(pages))
            yield Plane(number, 0, 0, height, width, tiled=False)
            continue
        check_size(side, side, -(-height // side) * -(-width // side))
        for top, left in product(range(0, height, side), range(0, width, side)):
            bottom, right = min(top + side, height), min(left + side, width)
            yield Plane(number, top, left, bottom - top, right - left, tiled=True)


class TiffStack:
    """An open TIFF file."""

    def __init__(self, path: str, tile: int, level: int) -> None:
        self._file = _opened(path)
        self._pages = _pages(self._file, level)
        self._planes = list(_planes(self._pages, tile))

    def read(self, numbers: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield some planes."""
        for plane in map(self._planes.__getitem__, numbers):
            page = self._pages[plane.page]
            frame = _frame(page)
            if plane.tiled:
                values = _region(page, plane)
            else:
                check_bytes(frame, plane.height, plane.width)
                values = pixels_of(page, frame.axes)
            try:
                image = shown(frame, values)
                orientation = 1 if plane.tiled else orientation_of(frame)
                if orientation != 1:
                    image = np.asarray(turned(Image.fromarray(image), orientation), np.uint8)
                yield image
            except Refused as error:
                yield error.why
            except ValueError as error:
                yield Unreadable("unsupported", one_line(error))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _region(page: TiffPage | TiffFrame, plane: Plane) -> npt.NDArray[np.generic]:
    """Return a part of a page; only the tiles or strips that touch it are decoded."""
    frame = _frame(page)
    if frame.dtype is None or frame.imagedepth != 1:
        raise Refused("unsupported", "pages of this kind are not divided into tiles")
    check_bytes(frame, plane.height, plane.width)
    high = frame.tilelength if frame.is_tiled else min(frame.rowsperstrip, frame.imagelength)
    wide = frame.tilewidth if frame.is_tiled else frame.imagewidth
    down, across = -(-frame.imagelength // high), -(-frame.imagewidth // wide)
    samples = frame.samplesperpixel
    made = np.zeros((plane.height, plane.width, samples), frame.dtype)
    bottom, right = plane.top + plane.height, plane.left + plane.width
    for plate, row, column in product(
        range(samples if frame.planarconfig == 2 else 1),
        range(plane.top // high, -(-bottom // high)),
        range(plane.left // wide, -(-right // wide)),
    ):
        part = _segment(page, (plate * down + row) * across + column)
        if part is None:
            continue
        top, left = row * high, column * wide
        y, x = max(top, plane.top), max(left, plane.left)
        inside = part[y - top : bottom - top, x - left : right - left]
        height, width, count = inside.shape
        target = made[y - plane.top :, x - plane.left :, plate:]
        target[:height, :width, :count] = inside
    return made if samples > 1 else made[:, :, 0]


def _segment(page: TiffPage | TiffFrame, number: int) -> npt.NDArray[np.generic] | None:
    """Return one decoded tile or strip, (height, width, samples); ``None`` for an empty one."""
    frame = _frame(page)
    offset, size = page.dataoffsets[number], page.databytecounts[number]
    if not size:
        return None
    if size > MAX_BYTES:
        raise Refused("too-large", f"a tile of {size:,} bytes")
    handle = page.parent.filehandle
    handle.seek(offset)
    data = handle.read(size)
    if len(data) < size:
        raise EOFError("the file ends before its image does")
    jpeg = {"jpegtables": page.jpegtables, "jpegheader": frame.jpegheader}
    decoded = frame.decode(data, number, **jpeg)[0]
    return None if decoded is None else np.asarray(decoded)[0]
