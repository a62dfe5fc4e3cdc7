"""What tags of photographs and maps state: camera and time, place, burst, and original.

Only the heads of files are read. Coordinates and serial numbers enter no result: places are
numbered, cameras are told apart by digits of a digest.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from visleak.groups import components

#: Files that are tried first, and files of all sets that are read at most.
TRIED: Final = 60
MOST: Final = 100_000
#: Share of files with tags from which they say something.
ENOUGH: Final = 0.5
#: Metres on the ground that a photograph stands for.
AROUND: Final = 25.0
#: Share of a side by which footprints of maps must overlap.
OVERLAP: Final = 0.02

_EXIF: Final = 0x8769  # the table with time and serial number
_GPS: Final = 0x8825
_MAKE, _MODEL, _SERIAL, _TIME, _FRACTION = 0x010F, 0x0110, 0xA431, 0x9003, 0x9291
#: Tags of GeoTIFF: sides of a pixel, a pixel and its place, and the kind of coordinates.
_SCALE, _TIE, _KEYS = 33550, 33922, 34735
_KIND, _DEGREES = 1024, 2
_METRES: Final = 111_320.0  # of a degree of latitude
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: Properties of XMP, as attributes or as elements.
_PROPERTY: Final = r"[\w-]+:(?i:{})(?:\s*=\s*[\"']([^\"']+)[\"']|>([^<]+)<)"
_VALUE: Final = r"\d+(?:\.\d+)?"
_BURST: Final = re.compile(_PROPERTY.format("BurstID|BurstUUID"))
_ORIGINAL: Final = re.compile(_PROPERTY.format("OriginalDocumentID"))
_CREATED: Final = re.compile(_PROPERTY.format("DateTimeOriginal|CreateDate"))
_CAMERA: Final = re.compile(_PROPERTY.format("Model"))
_NUMBER: Final = re.compile(_PROPERTY.format("SerialNumber"))
_LATITUDE: Final = re.compile(_PROPERTY.format("GPSLatitude"))
_LONGITUDE: Final = re.compile(_PROPERTY.format("GPSLongitude|GPSLongtitude"))
_ANGLE: Final = re.compile(rf"([+-]?{_VALUE})(?:,({_VALUE}))?(?:,({_VALUE}))?([NSEW]?)")
_LONGEST: Final = 1 << 20  # bytes of XMP that are read
#: What Pillow raises for damaged files and tags.
_DAMAGED: Final = (
    OSError, ValueError, TypeError, KeyError, SyntaxError, EOFError, OverflowError,
    ZeroDivisionError, AttributeError, struct.error, Image.DecompressionBombError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shot:
    """When and by which camera a photograph was taken."""

    camera: str  # make and model, with four digits of a digest of the serial number if known
    time: int  # milliseconds since 1970 by the clock of the camera


@dataclass(frozen=True, slots=True)
class Place:
    """Where an image was taken, or what part of the ground it shows."""

    # of its middle, in metres; degrees in metres at the latitude of the image
    x: float
    y: float
    width: float  # of the ground, in metres
    height: float
    kind: str  # of the coordinates; those of two kinds are not comparable


@dataclass(frozen=True, slots=True)
class Tags:
    """What the tags of a file state, each ``None`` where they do not."""

    shot: Shot | None = None
    place: Place | None = None
    burst: str | None = None  # digest of the name of a series that was taken at once
    original: str | None = None  # digest of the name of the document that it was made of


def read_tags(paths: Sequence[str]) -> list[Tags | None] | None:
    """Return the tags of each file, if it is one; ``None`` where few files have any."""
    if not paths or len(paths) > MOST:
        return None
    step = max(1, len(paths) // TRIED)
    tried = [tags_of(path) for path in paths[::step]]
    if sum(tags is not None for tags in tried) < ENOUGH * len(tried):
        return None
    return [tags_of(path) for path in paths]


def tags_of(path: str) -> Tags | None:
    """Return what the tags of a file state, ``None`` where that is nothing."""
    if not Path(path).is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                exif = image.getexif()
                tags = {**exif, **exif.get_ifd(_EXIF)}
                xmp = _xmp(image)
                place = _of_gps(exif.get_ifd(_GPS)) or _of_map(image) or _of_xmp(xmp)
                burst, original = (_digest(found(pattern, xmp)) for pattern in (_BURST, _ORIGINAL))
                made = Tags(_shot(tags) or _shot(_as_exif(xmp)), place, burst, original)
    except _DAMAGED:
        return None
    return made if made != Tags() else None


def _digest(text: str) -> str | None:
    encoded = text.encode("utf-8", "replace")
    return hashlib.blake2b(encoded, digest_size=6).hexdigest() if text else None


# -- camera and time ------------------------------------------------------------------------------


def _shot(tags: Mapping[int, object]) -> Shot | None:
    """Return the shot that some tags state."""
    words = [str(tags.get(tag) or "").strip(" \0") for tag in (_MAKE, _MODEL)]
    camera = " ".join(word for word in words if word)
    text = str(tags.get(_TIME) or "").strip(" \0")
    try:
        taken = datetime.strptime(text, "%Y:%m:%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    if not camera or taken < _EPOCH:
        return None
    fraction = str(tags.get(_FRACTION) or "").strip(" \0")
    milliseconds = int(f"{fraction:0<3}"[:3]) if fraction.isdecimal() else 0
    if serial := str(tags.get(_SERIAL) or "").strip(" \0"):
        digest = hashlib.blake2b(serial.encode("utf-8", "replace"), digest_size=2).hexdigest()
        camera = f"{camera} {digest}"
    return Shot(camera, (taken - _EPOCH) // _MILLISECOND + milliseconds)


# -- XMP ------------------------------------------------------------------------------------------


def _xmp(image: Image.Image) -> str:
    """Return the XMP of an image as text; nothing where there is none."""
    data = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    if not data and (tags := getattr(image, "tag_v2", None)) is not None:
        data = tags.get(700) or b""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return text[:_LONGEST]


def found(pattern: re.Pattern[str], xmp: str) -> str:
    """Return the value of a property, empty where it is not there."""
    match = pattern.search(xmp)
    return (match[1] or match[2]).strip() if match else ""


def _as_exif(xmp: str) -> dict[int, object]:
    """Return camera and time of XMP as EXIF has them.

    >>> xmp = '<x tiff:Model="M" xmp:CreateDate="2021-03-04T05:06:07.25Z"/>'
    >>> sorted(_as_exif(xmp).values())
    ['', '2021:03:04 05:06:07', '25', 'M']
    """
    date, _, time = found(_CREATED, xmp).partition("T")
    clock = re.match(r"(\d\d:\d\d:\d\d)(?:\.(\d+))?", time)
    return {
        _MODEL: found(_CAMERA, xmp),
        _SERIAL: found(_NUMBER, xmp),
        _TIME: f"{date.replace('-', ':')} {clock[1]}" if clock else "",
        _FRACTION: (clock[2] or "") if clock else "",
    }


def _of_xmp(xmp: str) -> Place | None:
    latitude, longitude = (_degrees(found(each, xmp)) for each in (_LATITUDE, _LONGITUDE))
    return _at(latitude, longitude)


def _degrees(text: str) -> float | None:
    """Return an angle of XMP in degrees.

    >>> _degrees("48,30.6N"), _degrees("2,15,36W"), _degrees("+12.5"), _degrees("")
    (48.51, -2.26, 12.5, None)
    """
    match = _ANGLE.fullmatch(text)
    if match is None:
        return None
    value = float(match[1]) + float(match[2] or 0) / 60 + float(match[3] or 0) / 3600
    return round(-value if match[4] in ("S", "W") else value, 9)


# -- places ---------------------------------------------------------------------------------------


def _of_gps(tags: Mapping[int, object]) -> Place | None:
    """Return the place that the GPS of EXIF states."""
    angles = []
    for sign, number, negative in ((1, 2, "S"), (3, 4, "W")):
        parts = tags.get(number)
        if not isinstance(parts, tuple) or len(parts) != 3:
            return None
        degrees, minutes, seconds = map(float, parts)
        value = degrees + minutes / 60 + seconds / 3600
        angles.append(-value if str(tags.get(sign, "")).upper().startswith(negative) else value)
    return _at(angles[0], angles[1])


def _at(latitude: float | None, longitude: float | None) -> Place | None:
    """Return the place about a position; none for 0, 0, which cameras without signal write."""
    if latitude is None or longitude is None or not (latitude or longitude):
        return None
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        return None
    x = longitude * _METRES * math.cos(math.radians(latitude))
    return Place(x, latitude * _METRES, AROUND, AROUND, "degrees")


def _of_map(image: Image.Image) -> Place | None:
    """Return the part of the ground that a GeoTIFF shows."""
    tags = getattr(image, "tag_v2", {})
    scale, tie, keys = (tags.get(tag) for tag in (_SCALE, _TIE, _KEYS))
    if not scale or not tie or len(scale) < 2 or len(tie) < 6:
        return None
    width, height = image.width * float(scale[0]), image.height * float(scale[1])
    x = float(tie[3]) - float(tie[0]) * float(scale[0]) + width / 2
    y = float(tie[4]) + float(tie[1]) * float(scale[1]) - height / 2
    if not all(map(math.isfinite, (x, y, width, height))) or min(width, height) <= 0:
        return None
    keys = tuple(keys or ())
    entries = [keys[at : at + 4] for at in range(4, len(keys), 4)]
    kinds = {entry[0]: entry[3] for entry in entries if len(entry) == 4}
    if kinds.get(_KIND) == _DEGREES:
        across = _METRES * math.cos(math.radians(max(min(y, 90.0), -90.0)))
        return Place(x * across, y * _METRES, width * across, height * _METRES, "degrees")
    return Place(x, y, width, height, f"map {sorted(kinds.items())}")


def joined_places(places: Sequence[Place | None]) -> list[str | None]:
    """Return the name of the place of each image: images that overlap are of one place.

    >>> joined_places([Place(0, 0, 9, 9, "a"), None, Place(5, 5, 9, 9, "a"), Place(9, 0, 9, 9, "")])
    ['place 1', None, 'place 1', 'place 2']
    """
    from scipy.spatial import KDTree

    known = [row for row, place in enumerate(places) if place is not None]
    found = [place for place in places if place is not None]
    ties = []
    for kind in sorted({place.kind for place in found}):
        own = np.array([at for at, place in enumerate(found) if place.kind == kind], np.int64)
        boxes = np.array([(p.x, p.y, p.width, p.height) for p in (found[at] for at in own)])
        middle, size = boxes[:, :2], boxes[:, 2:]
        reach = float(size.max())
        pairs = KDTree(middle).query_pairs(reach, p=np.inf, output_type="ndarray")
        first, second = pairs[:, 0], pairs[:, 1]
        limit = (size[first] + size[second]) / 2 - OVERLAP * np.minimum(size[first], size[second])
        over = (abs(middle[first] - middle[second]) < limit).all(axis=1)
        ties.append((own[first[over]], own[second[over]]))
    part = components(len(found), ties)
    result: list[str | None] = [None] * len(places)
    for row, number in zip(known, part.tolist(), strict=True):
        result[row] = f"place {number + 1}"
    return result
