"""Colours of sixteen bits, of which Pillow hands out the high bytes only.

The same rows, read in the other order of bytes, give the low bytes.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np
from PIL import Image

from visleak.images.depth import alpha_to_eight, to_eight
from visleak.images.raw_modes import raw_mode, with_raw_mode

#: Ways in which rows of sixteen-bit colours are stored, and the way that gives their low bytes.
_NATIVE: Final = "16B" if sys.byteorder == "little" else "16L"
_LOW: Final = {
    f"{mode};{order}": f"{mode};{other}"
    for mode in ("RGB", "RGBX", "RGBA", "R", "G", "B", "A")
    for order, other in (("16B", "16L"), ("16L", "16B"), ("16N", _NATIVE))
} | {"LA;16B": "RGBA"}


def holds_deep_colours(image: Image.Image) -> bool:
    """Whether an opened image stores sixteen-bit colours.

    Must be called before its pixels are loaded.
    """
    tiles = getattr(image, "tile", None) or ()
    return bool(tiles) and all(raw_mode(tile) in _LOW for tile in tiles)


def shallow_colours(image: Image.Image, again: Image.Image) -> Image.Image:
    """Return sixteen-bit colours in eight bits, mode ``RGB`` or ``RGBA``.

    Args:
        image: loaded by Pillow.
        again: the same file, opened and not loaded yet.
    """
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
