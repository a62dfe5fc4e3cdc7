"""Pictures that a Python program already holds: Pillow images and arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from visleak.errors import UsageError
from visleak.images.orientation import orientation_of, turned
from visleak.images.pixels import rgb_of_array, rgb_of_image
from visleak.images.request import Request, writable
from visleak.records import Bytes8, ImageSet, Unreadable


@dataclass(frozen=True)
class MemoryOpener:
    """Hands out the pictures of a sequence.

    Attributes:
        pictures: anything with a length and an item for each number; an item is a Pillow image,
            an array, or a tuple that begins with one of them.
    """

    pictures: Any

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures as arrays, see :class:`visleak.records.Opener`."""
        for position in positions:
            try:
                item = self.pictures[int(position)]
                yield rgb_of(item[0] if isinstance(item, tuple) and item else item)
            except Exception as error:  # items may come from anybody's code
                yield Unreadable("corrupt", " ".join(str(error).split())[:200])


def rgb_of(picture: Any) -> bytes | Bytes8 | Unreadable:
    """Return a Pillow image or an array as ``uint8`` (height, width, 3), or why that cannot be.

    Bytes are an encoded picture and are passed on.
    """
    if isinstance(picture, bytes):
        return picture
    if isinstance(picture, Image.Image):
        try:
            exif = picture.info.get("exif")
            orientation = orientation_of(exif) if isinstance(exif, bytes) else 1
            picture.load()
            return rgb_of_image(turned(picture, orientation))
        except OSError as error:
            reason = "truncated" if "truncated" in str(error) else "corrupt"
            return Unreadable(reason, " ".join(str(error).split())[:200])
    if isinstance(picture, np.ndarray):
        if not picture.size:
            return Unreadable("empty", f"an array of shape {picture.shape} has no pixels")
        return rgb_of_array(picture)
    return Unreadable(
        "corrupt", f"expected a Pillow image or an array, got {type(picture).__name__}"
    )


def open_memory(pictures: Any, request: Request) -> ImageSet:
    """Make a set of a sequence of pictures or of (picture, label).

    Ids are the row numbers. If the first item is a tuple, every item is asked for its label now.

    Raises:
        UsageError: the object is no sequence, or one single picture.
        VisleakError: it is empty.
    """
    for option in ("id", "label"):
        if getattr(request, option) is not None:
            raise UsageError(f"{option} {getattr(request, option)!r}: a sequence has no columns")
    if isinstance(pictures, Image.Image) or _is_one_picture(pictures):
        raise UsageError("source must be a sequence of pictures; got one picture: put it in a list")
    known = hasattr(pictures, "__len__") and hasattr(pictures, "__getitem__")
    if not known or isinstance(pictures, Mapping | bytes | bytearray):
        raise UsageError(
            "source must be SOURCE text, a path, or a sequence of Pillow images or arrays; got"
            f" {type(pictures).__name__}"
        )
    count = len(pictures)
    if not count:
        request.no_pictures()
    ids = pa.array(range(count), pa.int64()).cast(pa.string())
    labels = None
    if isinstance(_item(pictures, 0), tuple):
        labels = pa.array((_label(_item(pictures, row)) for row in range(count)), pa.string())
    return request.image_set(ids, ids, MemoryOpener(pictures), labels=labels)


def _is_one_picture(pictures: Any) -> bool:
    if not isinstance(pictures, np.ndarray):
        return False
    return pictures.ndim < 3 or (pictures.ndim == 3 and pictures.shape[2] in (3, 4))


def _item(pictures: Any, row: int) -> Any:
    """Return an item, or ``None`` where there is none: reading it again will say why."""
    try:
        return pictures[row]
    except Exception:  # items may come from anybody's code
        return None


def _label(item: Any) -> str | None:
    if not isinstance(item, tuple) or len(item) < 2 or item[1] is None:
        return None
    value = item[1]
    return writable(str(value.item() if isinstance(value, np.generic) else value))
