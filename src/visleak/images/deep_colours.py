"""How values of more than eight bits are stored in a file, and reading them in full.

Where libtiff decodes, values come in the byte order of this machine, and Pillow expects that of the
file for most types. Where Pillow reads planes of sixteen-bit colours itself, it takes them for
planes of eight. Of PNM files with sixteen-bit colours it drops the low bytes.

Of sixteen-bit colours, Pillow returns the high bytes only. The same rows, read in the other byte
order, give the low bytes. Where libraries unpack them (compressed planes, JPEG 2000, premultiplied
alpha) nothing does. Then an image whose values reach into the high bytes is shown by these, and any
other is refused: it would be black.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
from PIL import Image

from visleak.images.depth import alpha_to_eight, to_eight
from visleak.images.pixels import HIDDEN, is_deep

#: Tags of TIFF: bits of each sample, and whether the colours lie in planes of their own (2).
_BITS: Final = 258
_PLANAR: Final = 284
#: Types of the other order of bytes, as libtiff hands them out.
_OF_LIBTIFF: Final = {"I;16BS": "I;16NS", "I;32BS": "I;32NS", "F;32BF": "F;32NF"}
#: High bytes below this have less than an eighth of the range, and fewer than so many levels.
FAINT: Final = 32
#: How a JPEG 2000 codestream begins, and where in it the bits of the first component stand.
_SIZ: Final = b"\xff\x4f\xff\x51"
_PRECISION: Final = 42
#: Ways in which rows of sixteen-bit colours are stored, and the way that gives their low bytes.
_NATIVE: Final = "16B" if sys.byteorder == "little" else "16L"
_LOW: Final = {
    f"{mode};{order}": f"{mode};{other}"
    for mode in ("RGB", "RGBX", "RGBA", "R", "G", "B", "A")
    for order, other in (("16B", "16L"), ("16L", "16B"), ("16N", _NATIVE))
} | {"LA;16B": "RGBA"}


def correct_modes(image: Image.Image) -> None:
    """Correct how an opened file is going to be read."""
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


def holds_deep_colours(image: Image.Image) -> bool:
    """Whether an opened image stores sixteen-bit colours.

    Must be called before its pixels are loaded.
    """
    tiles = getattr(image, "tile", None) or ()
    if getattr(image, "tag_v2", {}).get(_PLANAR) == 2 and any(t[0] == "libtiff" for t in tiles):
        return False  # of planes, it gives the high bytes however they are asked for
    return bool(tiles) and all(raw_mode(tile) in _LOW for tile in tiles)


def lacks_low_bytes(image: Image.Image, data: bytes) -> bool:
    """Whether an opened image stores sixteen bits and Pillow makes eight of them.

    Must be called before its pixels are loaded.
    """
    if is_deep(image) or holds_deep_colours(image):
        return False
    raws = map(raw_mode, getattr(image, "tile", None) or ())
    return _sample_bits(image, data) == 16 or any(";16" in raw for raw in raws)


def _sample_bits(image: Image.Image, data: bytes) -> int:
    """Return the bits of a sample where the format says so, else 8."""
    if image.format == "SGI":
        return 8 * data[3]
    if image.format == "JPEG2000":
        at = data.find(_SIZ) + _PRECISION
        return (data[at] & 127) + 1 if _PRECISION <= at < len(data) else 8
    return int(max(getattr(image, "tag_v2", {}).get(_BITS, (8,))))


def check_high_bytes(image: Image.Image) -> None:
    """Refuse a loaded image without its low bytes if the high bytes show next to nothing."""
    most = [high for _, high in _extrema(image)]
    opacity = most.pop() if image.mode in ("RGBA", "LA") else 255
    if max(most) < FAINT or HIDDEN < opacity < FAINT:
        raise NotImplementedError("16-bit colours that use few bits, in a form read with 8 of them")


def _extrema(image: Image.Image) -> tuple[tuple[float, float], ...]:
    found: Any = image.getextrema()
    return found if isinstance(found[0], tuple) else (found,)


def shallow_colours(image: Image.Image, again: Image.Image) -> Image.Image:
    """Return sixteen-bit colours in eight bits, mode ``RGB`` or ``RGBA``."""
    tiles = getattr(again, "tile")  # noqa: B009 - images of Pillow's files have it, others do not
    grey = raw_mode(tiles[0]) == "LA;16B"
    tiles[:] = [with_raw_mode(tile, _LOW[raw_mode(tile)]) for tile in tiles]
    again.load()
    low = np.asarray(again).astype(np.uint16)
    if grey:  # all four bytes of grey and alpha come at once
        values = ((low[:, :, ::2] << 8) | low[:, :, 1::2])[:, :, [0, 0, 0, 1]]
    else:
        values = (np.asarray(image).astype(np.uint16) << 8) | low
    colours = to_eight(values[:, :, :3])
    key = image.info.get("transparency")
    if isinstance(key, tuple):
        colours = np.where((values[:, :, :3] == key).all(axis=2, keepdims=True), 255, colours)
    parts = [colours, alpha_to_eight(values[:, :, 3])] if values.shape[2] == 4 else [colours]
    return Image.fromarray(np.dstack(parts).astype(np.uint8))
