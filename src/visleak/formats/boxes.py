"""Annotated objects of a set's images, as COCO, YOLO and KITTI have them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from visleak.errors import VisleakError, explaining
from visleak.formats.files import read_file
from visleak.formats.request import writable
from visleak.records import Bool, Float64, ImageSet, Int64

#: A larger label file is refused before it is read; KITTI's longest have a megabyte.
MAX_LABEL_BYTES: Final = 1 << 26
_SHOWN: Final = 60  # how much of a damaged row is shown


@dataclass(frozen=True)
class Boxes:
    """The annotated objects of a set of images, one row an object."""

    names: tuple[str, ...]  # of the classes
    image: Int64  # ``int64`` (objects,), ascending: row of the set
    label: Int64  # ``int64`` (objects,): index into ``names``; -1 for regions of no class
    corners: Float64  # ``float64`` (objects, 4): left, top, right, bottom
    # ``bool`` (objects,): regions that are neither to be found nor counted as wrong (COCO's
    # ``iscrowd``, KITTI's ``DontCare``)
    crowd: Bool
    images: int  # how many images the set has
    relative: bool  # corners are shares of the image's width and height, else pixels

    def __post_init__(self) -> None:
        count = len(self.image)
        if self.corners.shape != (count, 4) or {len(self.label), len(self.crowd)} != {count}:
            raise ValueError(f"all columns of boxes must have {count} rows")
        if count and (
            (np.diff(self.image) < 0).any() or self.image[0] < 0 or self.image[-1] >= self.images
        ):
            raise ValueError(f"rows of boxes must ascend and be below {self.images}")
        if count and (self.label.min() < -1 or self.label.max() >= len(self.names)):
            raise ValueError(f"classes of boxes must be below {len(self.names)}")

    def taken(self, rows: Int64) -> Boxes:
        """Return the boxes of some images, which become the rows 0, 1, ...

        Args:
            rows: ``int64``, distinct, in the order they shall have.
        """
        place = np.full(self.images, -1, np.int64)
        place[rows] = np.arange(len(rows))
        kept = np.flatnonzero(place[self.image] >= 0)
        kept = kept[np.argsort(place[self.image[kept]], kind="stable")]
        return Boxes(
            self.names,
            place[self.image[kept]],
            self.label[kept],
            self.corners[kept],
            self.crowd[kept],
            len(rows),
            self.relative,
        )

    def counts(self) -> Int64:
        """Return how many objects of each class each image shows, (images, classes); no crowds."""
        made = np.zeros((self.images, len(self.names)), np.int64)
        real = ~self.crowd & (self.label >= 0)
        np.add.at(made, (self.image[real], self.label[real]), 1)
        return made


def both(first: Boxes, second: Boxes) -> Boxes:
    """Return the boxes of two sets as those of one: the first set's images, then the second's."""
    if first.names != second.names or first.relative != second.relative:
        raise ValueError("boxes of different classes or units cannot be joined")
    return Boxes(
        first.names,
        np.concatenate([first.image, second.image + first.images]),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.corners, second.corners]),
        np.concatenate([first.crowd, second.crowd]),
        first.images + second.images,
        first.relative,
    )


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
    """Return the content of a label file, ``None`` where there is none."""
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
    with explaining(f"{shown(path)} cannot be read as UTF-8 text", UnicodeDecodeError):
        return data.decode("utf-8-sig")


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


def only_name(names: Iterable[str]) -> str | None:
    """Return the one member of a set of names, else ``None``.

    >>> only_name({"cat"}), only_name({"cat", "dog"}), only_name(())
    ('cat', None, None)
    """
    distinct = set(names)
    return distinct.pop() if len(distinct) == 1 else None
