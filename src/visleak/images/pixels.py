"""From whatever a decoder or a caller has to ``uint8`` RGB of shape (height, width, 3).

Alpha is laid over white, or ignored where it hides everything. Of more than eight bits, the range
that an image uses is shown (``depth.py``). Colour profiles (ICC) are ignored: values are taken as
sRGB.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.images.depth import alpha_to_eight, to_eight
from visleak.records import Bytes8

HIDDEN: Final = 1  # opacity (of 255) up to which nothing of an image is seen


_PHOTOMETRIC: Final = 262  # tags of TIFF: how values become light, and their type


_SAMPLE_FORMAT: Final = 339


_UNSIGNED: Final = 1


_SIGNED: Final = 2


def rgb_of_image(image: Image.Image) -> Bytes8:
    """Return the pixels of a loaded Pillow image of any mode, shape (height, width, 3).

    May be read-only: Pillow lends its buffer.
    """
    mode = image.mode
    if mode == "RGB" and "transparency" not in image.info:
        return np.asarray(image)
    if is_deep(image):
        image = shallow(image)
    if mode == "LAB":
        return _of_lab(image)
    if image.has_transparency_data:
        return _over_white(image)
    return np.asarray(image.convert("RGB"))


def is_deep(image: Image.Image) -> bool:
    """Whether an image holds one value per pixel that is not of eight bits without a sign."""
    signed = image.mode == "L" and _sample_format(image) == _SIGNED
    return signed or image.mode.startswith("I;16") or image.mode in ("I", "F")


def shallow(image: Image.Image) -> Image.Image:
    """Return a deep image in shades of grey of eight bits, mode ``L``, its transparent value white.

    Must be called before the image is turned: then it has lost the tags of its file.
    """
    values = np.asarray(image)
    kind = _sample_format(image)
    if image.mode == "L":
        values = values.view(np.int8)
    elif image.mode == "I" and kind == _UNSIGNED:
        values = values.view(np.uint32)
    elif image.mode.startswith("I;16"):
        values = values.astype(np.uint16, copy=False)
    grey = to_eight(values)
    if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0:
        grey = 255 - grey  # white is zero, which Pillow does not undo here
    key = image.info.get("transparency")
    if isinstance(key, int):
        grey = np.where(values == key, np.uint8(255), grey)
    return Image.fromarray(grey)


def _sample_format(image: Image.Image) -> int:
    """Return the type of a TIFF file's values; 0 for other files."""
    tags = getattr(image, "tag_v2", None)
    return 0 if tags is None else int(tags.get(_SAMPLE_FORMAT, (_UNSIGNED,))[0])


def _over_white(image: Image.Image) -> Bytes8:
    key = image.info.get("transparency")
    if isinstance(key, tuple) and any(value > 255 for value in key):
        # Sixteen-bit RGB came with its high bytes only; so must the transparent colour.
        image = image.copy()
        image.info["transparency"] = tuple(value >> 8 for value in key)
    if image.mode in ("La", "PA"):
        image = image.convert("LA" if image.mode == "La" else "RGBA")
    rgba = image.convert("RGBA")
    alpha = rgba.getchannel("A")
    opacities = np.asarray(alpha)
    if opacities.min() == 255 or opacities.max() <= HIDDEN:
        return np.asarray(rgba.convert("RGB"))
    white = Image.new("RGB", rgba.size, (255, 255, 255))
    white.paste(rgba, mask=alpha)
    return np.asarray(white)


def _of_lab(image: Image.Image) -> Bytes8:
    import cv2

    # Pillow hands out a and b with a sign, as TIFF stores them; OpenCV expects them offset by 128.
    planes = np.bitwise_xor(np.asarray(image), np.array([0, 128, 128], np.uint8))
    return np.asarray(cv2.cvtColor(planes, cv2.COLOR_LAB2RGB), dtype=np.uint8)


def _repeat(grey: Bytes8) -> Bytes8:
    return np.repeat(grey[:, :, None], 3, axis=2)


def rgb_of_array(array: npt.NDArray[Any]) -> Bytes8:
    """Return an image held as an array of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4)."""
    if array.dtype.kind not in "buif":
        raise ValueError(f"expected real numbers, got an array of {array.dtype}")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise ValueError(
            "expected an array of shape (height, width), (height, width, 3) or (height, width, 4),"
            f" got {array.shape}"
        )
    if not array.size:
        raise ValueError(f"expected at least one pixel, got an array of shape {array.shape}")
    if array.ndim == 2:
        return _repeat(to_eight(array))
    if array.shape[2] == 1:
        return _repeat(to_eight(array[:, :, 0]))
    if array.shape[2] == 3:
        return np.ascontiguousarray(to_eight(array))
    colours, alpha = to_eight(array[:, :, :3]), alpha_to_eight(array[:, :, 3])
    return _over_white(Image.fromarray(np.dstack([colours, alpha])))
