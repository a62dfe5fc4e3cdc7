"""In which form the values of a file lie, and what Pillow would take for another form.

Where libtiff decodes, values come in the order of bytes of this machine, and Pillow expects that of
the file for most types. Where Pillow reads planes of sixteen-bit colours itself, it takes them for
planes of eight. Of PNM files with sixteen-bit colours it drops the low bytes.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from PIL import Image

#: Tags of TIFF: bits of each sample, and whether the colours lie in planes of their own (2).
_BITS: Final = 258
_PLANAR: Final = 284

#: Types of the other order of bytes, as libtiff hands them out.
_OF_LIBTIFF: Final = {"I;16BS": "I;16NS", "I;32BS": "I;32NS", "F;32BF": "F;32NF"}


def mend(image: Image.Image) -> None:
    """Correct how an opened file is going to be read.

    Raises:
        NotImplementedError: it cannot be read rightly.
    """
    tags: Any = getattr(image, "tag_v2", {})
    planes = tags.get(_PLANAR) == 2 and max(tags.get(_BITS, (1,))) > 8
    tiles = getattr(image, "tile", None) or []
    for number, tile in enumerate(tiles):
        codec, mode = tile[0], raw_mode(tile)
        if codec == "libtiff" and mode in _OF_LIBTIFF and sys.byteorder == "little":
            tiles[number] = with_raw_mode(tile, _OF_LIBTIFF[mode])
        elif codec == "raw" and planes:
            if mode not in ("R", "G", "B", "A"):
                raise NotImplementedError(f"planes of {mode} with {max(tags[_BITS])} bits")
            order = "16B" if tags.prefix == b"MM" else "16L"
            tiles[number] = with_raw_mode(tile, f"{mode};{order}")
        elif codec == "ppm" and tile[3] == ("RGB", 65535):
            raw = _like(tile, ("raw", *tile[1:3], ("RGB;16B", 0, 1)))
            tiles[number] = raw


def raw_mode(tile: Any) -> str:
    """Return how the values of a part of a file are stored, in Pillow's words."""
    args = tile[3]
    first = args[0] if isinstance(args, tuple) and args else args
    return first if isinstance(first, str) else ""


def with_raw_mode(tile: Any, mode: str) -> Any:
    """Return a part of a file that is read as if its values were stored so."""
    args = (mode, *tile[3][1:]) if isinstance(tile[3], tuple) else mode
    return _like(tile, (*tile[:3], args))


def _like(tile: Any, parts: tuple[Any, ...]) -> Any:
    """Return parts in the type of a tile, which is a named tuple of newer versions of Pillow."""
    return tile._make(parts) if hasattr(tile, "_make") else parts
