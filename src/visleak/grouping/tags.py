"""Camera and time of photographs, as their EXIF states them; only the heads of files are read."""

from __future__ import annotations

import hashlib
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from PIL import Image

#: Files that are tried first, and files of all sets that are read at most.
TRIED: Final = 60
MOST: Final = 100_000
#: Share of files with camera and time from which tags say something.
ENOUGH: Final = 0.5

_EXIF: Final = 0x8769  # the table with time and serial number
_MAKE, _MODEL, _SERIAL, _TIME, _FRACTION = 0x010F, 0x0110, 0xA431, 0x9003, 0x9291
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: What Pillow raises for damaged files and tags.
_DAMAGED: Final = (
    OSError, ValueError, TypeError, KeyError, SyntaxError, EOFError, OverflowError,
    struct.error, Image.DecompressionBombError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shot:
    """When and by which camera a photograph was taken.

    Attributes:
        camera: make and model, with four digits of a digest of the serial number where it is known.
        time: milliseconds since 1970 by the clock of the camera.
    """

    camera: str
    time: int


def read_shots(paths: Sequence[str]) -> list[Shot | None] | None:
    """Return the shot of each file; ``None`` where few files have camera and time.

    Args:
        paths: of the files; a path that is not a file has no shot.
    """
    if not paths or len(paths) > MOST:
        return None
    step = max(1, len(paths) // TRIED)
    tried = [read_shot(path) for path in paths[::step]]
    if sum(shot is not None for shot in tried) < ENOUGH * len(tried):
        return None
    return [read_shot(path) for path in paths]


def read_shot(path: str) -> Shot | None:
    """Return the shot of a file, ``None`` where its tags do not state camera and time."""
    if not Path(path).is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                exif = image.getexif()
                inner = exif.get_ifd(_EXIF)
                return _shot({**exif, **inner})
    except _DAMAGED:
        return None


def _shot(tags: dict[int, object]) -> Shot | None:
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
