"""From whatever a decoder or a caller has to ``uint8`` RGB of shape (height, width, 3).

Alpha is laid over white. Sixteen-bit values are divided by 257 and rounded. Colour profiles (ICC)
are ignored: values are taken as sRGB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.records import Bytes8


def rgb_of_image(image: Image.Image) -> Bytes8:
    """Return the pixels of a loaded Pillow image of any mode, shape (height, width, 3).

    May be read-only: Pillow lends its buffer.
    """
    mode = image.mode
    if mode == "RGB" and "transparency" not in image.info:
        return np.asarray(image)
    if mode.startswith("I;16") or mode in ("I", "F"):
        return _of_deep_image(image)
    if mode == "LAB":
        return _of_lab(image)
    if image.has_transparency_data:
        return _over_white(image)
    return np.asarray(image.convert("RGB"))


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
    if np.asarray(alpha).min() == 255:
        return np.asarray(rgba.convert("RGB"))
    white = Image.new("RGB", rgba.size, (255, 255, 255))
    white.paste(rgba, mask=alpha)
    return np.asarray(white)


def _of_deep_image(image: Image.Image) -> Bytes8:
    values = np.asarray(image)
    sixteen = image.mode.startswith("I;16") or (
        image.mode == "I" and getattr(image, "format", "") in ("PNG", "PPM")
    )
    grey = _sixteen_to_eight(values) if sixteen and _fits_sixteen(values) else to_eight(values)
    key = image.info.get("transparency")
    if isinstance(key, int):
        grey = np.where(values == key, np.uint8(255), grey)
    return _repeat(grey)


def _fits_sixteen(values: npt.NDArray[Any]) -> bool:
    return values.dtype.itemsize == 2 or bool(values.min() >= 0 and values.max() <= 65535)


def _of_lab(image: Image.Image) -> Bytes8:
    import cv2

    # Pillow, like OpenCV, holds L as 0..255 and a, b offset by 128.
    planes = np.frombuffer(image.tobytes(), np.uint8).reshape(image.height, image.width, 3)
    return np.asarray(cv2.cvtColor(planes, cv2.COLOR_LAB2RGB), dtype=np.uint8)


def _sixteen_to_eight(values: npt.NDArray[Any]) -> Bytes8:
    return ((values.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)


def to_eight(values: npt.NDArray[Any]) -> Bytes8:
    """Return an array of any real type as ``uint8``, shape kept.

    Booleans: 0 and 255. ``uint16``: divided by 257. Other integers: as they are within 0..255,
    divided by 257 within 0..65535, else stretched from their least to their greatest. Floats:
    times 255 within 0..1, as they are within 0..255, else stretched; not-a-number becomes 0.

    >>> to_eight(np.array([0.0, 0.5, 1.0])).tolist()
    [0, 128, 255]
    >>> to_eight(np.array([0, 65535], dtype=np.uint16)).tolist()
    [0, 255]
    """
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint16:
        return _sixteen_to_eight(values)
    if values.dtype.kind == "f":
        return _floats_to_eight(np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0))
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    if least >= 0 and most <= 255:
        return values.astype(np.uint8)
    return _sixteen_to_eight(values) if least >= 0 and most <= 65535 else _stretched(values)


def _floats_to_eight(values: npt.NDArray[np.float64]) -> Bytes8:
    least, most = float(values.min(initial=0)), float(values.max(initial=0))
    if least < 0 or most > 255:
        return _stretched(values)
    return np.asarray(np.rint(values * 255 if most <= 1 else values), dtype=np.uint8)


def _stretched(values: npt.NDArray[Any]) -> Bytes8:
    least = float(values.min())
    spread = (float(values.max()) - least) or 1.0
    return np.asarray(np.rint((values.astype(np.float64) - least) / spread * 255), dtype=np.uint8)


def _repeat(grey: Bytes8) -> Bytes8:
    return np.repeat(grey[:, :, None], 3, axis=2)


def rgb_of_array(array: npt.NDArray[Any]) -> Bytes8:
    """Return a picture held as an array of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4).

    Raises:
        ValueError: another shape, no pixels, or values that are not real numbers.
    """
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
    return _over_white(Image.fromarray(np.ascontiguousarray(to_eight(array))))
