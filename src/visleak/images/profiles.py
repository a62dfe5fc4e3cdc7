"""Colours of other spaces to sRGB, by the profile (ICC) that an image carries.

Two files of one photograph, one in Adobe RGB or CMYK and one in sRGB, hold other values and are
displayed the same: so values are compared after conversion. A profile that is damaged, or made for
another number of channels, is ignored, as programs that display images do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from PIL.ImageCms import ImageCmsTransform

#: Levels by which a profile may change a colour and still be sRGB: values stay as they are then,
#: so that a file with that profile and one without it are the same image.
SAME: Final = 2
#: Steps of each channel on which a profile is compared with sRGB.
_STEPS: Final = 9
#: Modes that a profile of a colour space describes; others are converted to the last one first.
_MODES: Final = {
    "RGB ": ("RGB", "RGBA", "P", "PA", "YCbCr", "RGBX", "RGBa"),
    "GRAY": ("L", "LA", "1", "La"),
    "CMYK": ("CMYK",),
}


def in_srgb(image: Image.Image) -> Image.Image:
    """Return a loaded image with its colours in sRGB; the same object where they are already.

    Opacity is kept. Adobe's ranges of greys and inks are those of Pillow.
    """
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes) or not profile:
        return image
    conversion = _conversion(profile)
    if conversion is None or image.mode not in _MODES[conversion[0]]:
        return image
    space, transform = conversion
    alpha = None
    if image.has_transparency_data:
        image = image.convert("RGBA" if space == "RGB " else "LA")
        alpha = image.getchannel("A")
    source = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}[space]
    found = transform.apply(image if image.mode == source else image.convert(source))
    if alpha is not None:
        found.putalpha(alpha)
    return found


@lru_cache(maxsize=64)
def _conversion(profile: bytes) -> tuple[str, ImageCmsTransform] | None:
    """Return the colour space of a profile and how to convert from it, ``None`` if not needed."""
    import io

    from PIL import ImageCms

    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        space = opened.profile.xcolor_space
        mode = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}[space]
        transform = ImageCms.buildTransform(
            opened,
            ImageCms.createProfile("sRGB"),
            mode,
            "RGB",
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
        return None if _is_srgb(mode, transform) else (space, transform)
    except (ImageCms.PyCMSError, OSError, KeyError, ValueError, TypeError):
        return None


def _is_srgb(mode: str, transform: ImageCmsTransform) -> bool:
    """Whether a transform leaves colours as they are."""
    if mode == "CMYK":
        return False
    levels = np.rint(np.linspace(0, 255, _STEPS)).astype(np.uint8)
    if mode == "L":
        colours = np.arange(256, dtype=np.uint8)[None]
        values = np.repeat(colours[:, :, None], 3, axis=2)
    else:
        values = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 3)
        colours = values
    made = np.asarray(transform.apply(Image.fromarray(colours)))
    return bool((abs(made.astype(np.int16) - values) <= SAME).all())
