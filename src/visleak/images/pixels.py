"""From whatever a decoder or a caller has to ``uint8`` RGB of shape (height, width, 3).

Alpha is laid over white, or ignored where it hides everything. Of more than eight bits, the range
that an image uses is shown. Colours are those of sRGB: what has another profile (ICC) is converted.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.records import Bytes8, Int64

if TYPE_CHECKING:
    from PIL.ImageCms import ImageCmsTransform


HIDDEN: Final = 1  # opacity (of 255) up to which nothing of an image is seen
_PHOTOMETRIC: Final = 262  # tags of TIFF: how values become light, and their type
_SAMPLE_FORMAT: Final = 339
_UNSIGNED: Final = 1
_SIGNED: Final = 2
OUTSIDE: Final = 1e-4  # share of the values at either end that does not count
LEVELS: Final = 256  # levels above which an image has more to show than eight bits hold
#: A range that is used by less than one part in so many is made narrower, where there are levels.
NARROW: Final = 8
#: Levels up to which an image may be a drawing of a few tones, one of them far from the others.
TONES: Final = 64
OVERSHOOT: Final = 0.1  # how far floats within 0..1 may lie outside, as filters leave them
OWN_UNIT: Final = 16  # floats up to here that are not whole numbers are in a unit of their own
_CHUNK: Final = 1 << 20  # values worked on at a time; only bounds memory
BRIGHT: Final = 0.75  # share of the values below those that may surround a saturated highlight
_Levels = tuple[npt.NDArray[np.generic], Int64]
#: Tags of TIFF: bits of each sample, and whether the colours lie in planes of their own (2).
_BITS: Final = 258
_PLANAR: Final = 284
#: Types of the other order of bytes, as libtiff hands them out.
_OF_LIBTIFF: Final = {"I;16BS": "I;16NS", "I;32BS": "I;32NS", "F;32BF": "F;32NF"}
#: High bytes below this have less than an eighth of the range, and fewer than so many levels.
FAINT: Final = 32
#: First bytes of a JPEG 2000 codestream, and the position of the bits of its first component.
_SIZ: Final = b"\xff\x4f\xff\x51"
_PRECISION: Final = 42
#: Ways in which rows of sixteen-bit colours are stored, and the way that gives their low bytes.
_NATIVE: Final = "16B" if sys.byteorder == "little" else "16L"
_LOW: Final = {
    f"{mode};{order}": f"{mode};{other}"
    for mode in ("RGB", "RGBX", "RGBA", "R", "G", "B", "A")
    for order, other in (("16B", "16L"), ("16L", "16B"), ("16N", _NATIVE))
} | {"LA;16B": "RGBA"}


def rgb_of_image(image: Image.Image) -> Bytes8:
    """Return the pixels of a loaded Pillow image of any mode, (h, w, 3); maybe read-only."""
    if is_deep(image):
        image = shallow(image)
    image = in_srgb(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        return np.asarray(image)
    if image.mode == "LAB":
        import cv2

        # Pillow hands out a and b with a sign, as TIFF stores them; OpenCV expects an offset of 128
        planes = np.bitwise_xor(np.asarray(image), np.array([0, 128, 128], np.uint8))
        return np.asarray(cv2.cvtColor(planes, cv2.COLOR_LAB2RGB), dtype=np.uint8)
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
    return _profiled(Image.fromarray(grey), image)


def _profiled(made: Image.Image, image: Image.Image) -> Image.Image:
    if profile := image.info.get("icc_profile"):
        made.info["icc_profile"] = profile
    return made


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


def _repeat(grey: Bytes8) -> Bytes8:
    import cv2

    # thirty times as fast as numpy.repeat
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(grey), cv2.COLOR_GRAY2RGB), np.uint8)


def rgb_of_array(array: npt.NDArray[np.generic]) -> Bytes8:
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
    channels = 1 if array.ndim == 2 else array.shape[2]
    if channels == 1:
        return _repeat(to_eight(array if array.ndim == 2 else array[:, :, 0]))
    colours = to_eight(array[:, :, :3])
    if channels == 3:
        return np.ascontiguousarray(colours)
    alpha = alpha_to_eight(array[:, :, 3])
    return _over_white(Image.fromarray(np.dstack([colours, alpha])))


def to_eight(values: npt.NDArray[np.generic]) -> Bytes8:
    """Return an array of any real type as ``uint8``, shape kept.

    ``uint8`` stays as it is, booleans become 0 and 255, all else is shown in :func:`shown_range`.
    Not-a-number becomes 0, or the greatest value in the midst of bright ones.

    >>> to_eight(np.array([0.0, 0.5, 1.0])).tolist()
    [0, 128, 255]
    >>> to_eight(np.array([0, 2048, 4095], dtype=np.uint16)).tolist()
    [0, 128, 255]
    """
    if values.dtype == np.uint8:
        return np.asarray(values, np.uint8)
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    low, high = shown_range(values)
    if values.dtype.kind == "f" and np.isnan(values).any():
        values = _with_highlights(values)
    return _scaled(values, low, high)


def alpha_to_eight(values: npt.NDArray[np.generic]) -> Bytes8:
    """Return opacities as ``uint8``.

    Opaque is 1 for floats within 0..1, else the greatest value of the fewest bits, at least eight.
    """
    if values.dtype in (np.uint8, np.bool_):
        return to_eight(values)
    return _scaled(values, 0, opaque(values))


def opaque(values: npt.NDArray[np.generic]) -> float:
    """Return the opacity that is opaque, see :func:`alpha_to_eight`."""
    most = float(np.nan_to_num(values).max(initial=0))
    return 1.0 if values.dtype.kind == "f" and most <= 1 else _bits_range(most)


def shown_range(values: npt.NDArray[np.generic]) -> tuple[float, float]:
    """Return the values that are shown as 0 and as 255, see the module's description.

    >>> shown_range(np.array([7, 1000], dtype=np.uint16))
    (0.0, 1023.0)
    >>> shown_range(np.array([-1.5, 0, 3]))
    (-1.5, 3.0)
    """
    levels, counts = _levels(values)
    floats = values.dtype.kind == "f"
    if len(levels) < 2:  # one colour, which shows no number of bits
        level = float(levels[0]) if len(levels) else 0.0
        tops = (1.0, 255.0, 65535.0) if floats else (255.0, 65535.0)
        top = next((top for top in tops if level <= top), level)
        return (level, 0.0) if level < 0 else (0.0, top)
    low, high = _bulk(*_with_data(levels, counts))
    shares = floats and -OVERSHOOT * high <= low and high <= 1 + OVERSHOOT
    unit = 65535 if shares else 1
    if (stretched := _of_eight_bits(levels, shares)) is not None:
        return stretched
    low, high = low * unit, (min(high, 1.0) if shares else high) * unit
    top = _bits_range(high)
    in_own_unit = not shares and high <= OWN_UNIT and not bool((levels % 1 == 0).all())
    narrow = len(levels) > LEVELS and NARROW * (high - low) < top
    if (low < 0 and not shares) or in_own_unit or narrow:
        return low / unit, high / unit
    return 0.0, top / unit


def _with_highlights(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Return values with the greatest in place of not-a-number that marks saturation.

    A region of one channel is saturated if most of its neighbours are among the brightest quarter
    of the channel's values, else its data is missing.
    """
    import cv2

    first, last, whole = slice(None, -1), slice(1, None), slice(None)
    filled = values.astype(np.float64)
    rows = filled if filled.ndim > 1 else filled[None]
    for plane in np.moveaxis(rows, 2, 0) if rows.ndim == 3 else (rows,):
        holes, finite = np.isnan(plane), plane[np.isfinite(plane)]
        if not (finite.size and holes.any()) or finite.min() == finite.max():
            continue
        bright = plane >= np.quantile(finite, BRIGHT)
        count, regions = cv2.connectedComponents(holes.astype(np.uint8), connectivity=4)
        votes = np.zeros(count, np.int64)
        for one, other in ((first, last), (last, first)):
            for at, beside in (((one, whole), (other, whole)), ((whole, one), (whole, other))):
                rim = (regions[at] > 0) & ~holes[beside]
                signs = np.where(bright[beside][rim], 1, -1)
                votes += np.bincount(regions[at][rim], signs, count).astype(np.int64)
        plane[holes & (votes > 0)[regions]] = finite.max()
    return filled


def _levels(values: npt.NDArray[np.generic]) -> _Levels:
    """Return the finite values, ascending, and how often each occurs."""
    flat = values.ravel()
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        counts = np.zeros(65536, np.int64)
        for start in range(0, len(flat), _CHUNK):
            counts += np.bincount(flat[start : start + _CHUNK], minlength=65536)
        levels = np.flatnonzero(counts)
        return levels, counts[levels]
    if values.dtype.kind == "f":
        flat = flat[np.isfinite(flat)]
    levels, counts = np.unique(flat, return_counts=True)
    return levels.astype(np.float64), counts.astype(np.int64)


def _with_data(levels: npt.NDArray[np.generic], counts: Int64) -> _Levels:
    """Remove the greatest value, or the least negative one, if it is far from all others."""
    if len(levels) <= TONES:
        return levels, counts
    if levels[-1] - levels[-2] > levels[-2] - min(levels[0], 0):
        levels, counts = levels[:-1], counts[:-1]
    if levels[0] < 0 and levels[1] - levels[0] > levels[-1] - levels[1]:
        levels, counts = levels[1:], counts[1:]
    return levels, counts


def _bulk(levels: npt.NDArray[np.generic], counts: Int64) -> tuple[float, float]:
    """Return the least and the greatest value, but for some at either end."""
    until = np.cumsum(counts)
    beside = int(OUTSIDE * until[-1])
    ends = np.searchsorted(until, [beside, until[-1] - beside - 1], side="right")
    return float(levels[ends[0]]), float(levels[ends[1]])


def _of_eight_bits(levels: npt.NDArray[np.generic], shares: bool) -> tuple[float, float] | None:
    """Return the range of stretched eight-bit values, ``None`` for other values."""
    if shares:
        eights = levels * 255
        # a float of half precision is off by up to 1/16 of a level
        return (0.0, 1.0) if bool((abs(eights - np.rint(eights)) < 1 / 16).all()) else None
    if levels[0] >= 0 and 255 < levels[-1] <= 65535:
        for step in (257, 256):
            if bool((levels % step == 0).all()):
                return 0.0, 255.0 * step
    return None


def _bits_range(most: float) -> float:
    """Return the greatest value of the fewest bits, at least eight, that hold a value."""
    return float(2 ** max(8, round(most).bit_length()) - 1)


def _scaled(values: npt.NDArray[np.generic], low: float, high: float) -> Bytes8:
    flat = values.ravel()
    made = np.empty(len(flat), np.uint8)
    table = None
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        table = _shares(np.arange(65536, dtype=np.float64), low, high)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        shares = _shares(part.astype(np.float64), low, high) if table is None else table[part]
        made[start : start + _CHUNK] = shares
    return made.reshape(values.shape)


def _shares(values: npt.NDArray[np.float64], low: float, high: float) -> Bytes8:
    values = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    shares = (np.clip(values, low, high) - low) / ((high - low) or 1.0)
    return np.asarray(np.rint(shares * 255), np.uint8)


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


def raw_mode(tile: tuple[object, ...]) -> str:
    """Return how the values of a part of a file are stored, in Pillow's words."""
    args = tile[3]
    first = args[0] if isinstance(args, tuple) and args else args
    return first if isinstance(first, str) else ""


def with_raw_mode(tile: tuple[object, ...], mode: str) -> tuple[object, ...]:
    """Return a part of a file that is read as if its values were stored so."""
    args = (mode, *tile[3][1:]) if isinstance(tile[3], tuple) else mode
    return _like(tile, (*tile[:3], args))


def _like(tile: tuple[object, ...], parts: tuple[object, ...]) -> tuple[object, ...]:
    """Return parts in the type of a tile, which is a named tuple of newer versions of Pillow."""
    return tile._make(parts) if hasattr(tile, "_make") else parts


def holds_deep_colours(image: Image.Image) -> bool:
    """Whether an opened image stores sixteen-bit colours; only before its pixels are loaded."""
    tiles = getattr(image, "tile", None) or ()
    if getattr(image, "tag_v2", {}).get(_PLANAR) == 2 and any(t[0] == "libtiff" for t in tiles):
        return False  # of planes, it always gives the high bytes
    return bool(tiles) and all(raw_mode(tile) in _LOW for tile in tiles)


def lacks_low_bytes(image: Image.Image, data: bytes) -> bool:
    """Whether Pillow makes eight bits of stored sixteen; only before the pixels are loaded."""
    if is_deep(image) or holds_deep_colours(image):
        return False
    raws = map(raw_mode, getattr(image, "tile", None) or ())
    return _sample_bits(image, data) == 16 or any(";16" in raw for raw in raws)


def _sample_bits(image: Image.Image, data: bytes) -> int:
    """Return the bits of a sample where the format states them, else 8."""
    if image.format == "SGI":
        return 8 * data[3]
    if image.format == "JPEG2000":
        at = data.find(_SIZ) + _PRECISION
        return (data[at] & 127) + 1 if _PRECISION <= at < len(data) else 8
    return int(max(getattr(image, "tag_v2", {}).get(_BITS, (8,))))


def check_high_bytes(image: Image.Image) -> None:
    """Refuse a loaded image without its low bytes if the high bytes show next to nothing."""
    most = np.atleast_1d(np.asarray(image).max(axis=(0, 1))).tolist()
    opacity = most.pop() if image.mode in ("RGBA", "LA") else 255
    if max(most) < FAINT or HIDDEN < opacity < FAINT:
        raise NotImplementedError("16-bit colours that use few bits, in a form read with 8 of them")


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
    return _profiled(Image.fromarray(np.dstack(parts).astype(np.uint8)), image)


# -- colours of other spaces to sRGB, by the profile (ICC) that an image carries ------------------

# Two files of one photograph, one in Adobe RGB or CMYK and one in sRGB, hold other values and are
# displayed the same: so values are compared after conversion. A profile that is damaged, or made
# for another number of channels, is ignored, as programs that display images do.


#: Levels by which a profile may change a colour and still be sRGB: values stay as they are then,
#: so that a file with that profile and one without it are the same image.
SAME: Final = 2
#: Steps of each channel on which a profile is compared with sRGB.
_STEPS: Final = 9
#: Pillow's mode of a colour space, and the modes that a profile of it describes.
_SPACES: Final = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}
_MODES: Final = {
    "RGB": ("RGB", "RGBA", "P", "PA", "YCbCr", "RGBX", "RGBa"),
    "L": ("L", "LA", "1", "La"),
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
    source, transform = conversion
    alpha = None
    if image.has_transparency_data:
        image = image.convert("RGBA" if source == "RGB" else "LA")
        alpha = image.getchannel("A")
    found = transform.apply(image if image.mode == source else image.convert(source))
    if alpha is not None:
        found.putalpha(alpha)
    return found


@lru_cache(maxsize=64)
def _conversion(profile: bytes) -> tuple[str, ImageCmsTransform] | None:
    """Return the mode of a profile's colours and how to convert them, ``None`` if not needed."""
    import io

    from PIL import ImageCms

    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = _SPACES[opened.profile.xcolor_space]
        transform = ImageCms.buildTransform(
            opened,
            ImageCms.createProfile("sRGB"),
            mode,
            "RGB",
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
        return None if _is_srgb(mode, transform) else (mode, transform)
    except (ImageCms.PyCMSError, OSError, KeyError, ValueError, TypeError):
        return None


def _is_srgb(mode: str, transform: ImageCmsTransform) -> bool:
    if mode == "CMYK":
        return False
    if mode == "L":
        colours = np.arange(256, dtype=np.uint8)[None]
        values = np.repeat(colours[:, :, None], 3, axis=2)
    else:
        levels = np.rint(np.linspace(0, 255, _STEPS)).astype(np.uint8)
        values = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 3)
        colours = values
    made = np.asarray(transform.apply(Image.fromarray(colours)))
    return bool((abs(made.astype(np.int16) - values) <= SAME).all())
