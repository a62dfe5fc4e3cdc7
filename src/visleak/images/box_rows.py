"""Annotated objects on their way from files to :class:`visleak.images.boxes.Boxes`.

A damaged row is refused, never left out: an object that is lost in silence is counted as a false
alarm of whoever finds it, in every score that is made of the set.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from visleak.errors import VisleakError
from visleak.images.boxes import Boxes
from visleak.images.folder import read_file
from visleak.images.request import writable
from visleak.records import ImageSet

#: A larger label file is refused before it is read; KITTI's longest have a megabyte.
MAX_LABEL_BYTES: Final = 1 << 26

#: How much of a damaged row is shown.
_SHOWN: Final = 60


@dataclass
class BoxRows:
    """Objects as they are read, in any order of images."""

    _image: array[int] = field(default_factory=lambda: array("q"))
    _label: array[int] = field(default_factory=lambda: array("q"))
    _corners: array[float] = field(default_factory=lambda: array("d"))
    _crowd: bytearray = field(default_factory=bytearray)

    def add(self, image: int, label: int, corners: Sequence[float], crowd: bool = False) -> None:
        """Take an object: row of its image, class, (left, top, right, bottom)."""
        self._image.append(image)
        self._label.append(label)
        self._corners.extend(corners)
        self._crowd.append(crowd)

    def boxes(self, names: Sequence[str], images: ImageSet, relative: bool) -> Boxes:
        """Return all objects of a set; those of an image stay in the order of their file."""
        image = np.array(self._image, np.int64)
        order = np.argsort(image, kind="stable")
        return Boxes(
            names=tuple(names),
            image=image[order],
            label=np.array(self._label, np.int64)[order],
            corners=np.array(self._corners, np.float64).reshape(-1, 4)[order],
            crowd=np.frombuffer(bytes(self._crowd), np.bool_)[order],
            images=len(images),
            relative=relative,
        )


def label_text(path: Path) -> str | None:
    """Return the content of a label file, ``None`` where there is none.

    Raises:
        VisleakError: it is there and cannot be read.
    """
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise VisleakError(f"{shown(path)} cannot be read: {error.strerror}") from error
    if size > MAX_LABEL_BYTES:
        raise VisleakError(
            f"{shown(path)} has {size:,} bytes; label files up to {MAX_LABEL_BYTES:,} are read"
        )
    data = read_file(str(path))
    if not isinstance(data, bytes):
        raise VisleakError(f"{shown(path)} cannot be read: {data.detail}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise VisleakError(f"{shown(path)} cannot be read as UTF-8 text: {error}") from error


def numbers_of(words: Sequence[str]) -> list[float] | None:
    """Return words as finite numbers, ``None`` where one is none.

    >>> numbers_of(["1", ".5"]), numbers_of(["nan"]), numbers_of(["1_0"])
    ([1.0, 0.5], None, None)
    """
    try:
        found = [float(word) for word in words]
    except ValueError:
        return None
    plain = all(word.isascii() and "_" not in word for word in words)
    return found if plain and all(map(math.isfinite, found)) else None


def damaged(path: Path, line: int, allowed: str, text: str) -> VisleakError:
    """Return the error of a damaged row: where it is, what is allowed, what stands there."""
    got = writable(text.strip())
    got = got if len(got) <= _SHOWN else got[:_SHOWN] + " ..."
    return VisleakError(f"{shown(path)}, line {line}: {allowed}; got {got!r}")


def shown(path: Path) -> str:
    """Return a path as it may stand in a message."""
    return writable(str(path))
