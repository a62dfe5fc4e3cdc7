"""Annotated objects of a set's images, as COCO, YOLO and KITTI have them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError, explaining
from visleak.formats.files import read_file
from visleak.formats.request import writable
from visleak.groups import rank_within
from visleak.images import decode
from visleak.records import Bool, Bytes8, Float64, ImageSet, Int64, Opener, Unreadable

#: A larger label file is refused before it is read; KITTI's longest have a megabyte.
MAX_LABEL_BYTES: Final = 1 << 26
_SHOWN: Final = 60  # how much of a damaged row is shown


@dataclass(frozen=True)
class Boxes:
    """The annotated objects of a set of images, one row per object."""

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
        rows, labels = self.image, self.label
        if (np.diff(rows, prepend=0) < 0).any() or (rows >= self.images).any():
            raise ValueError(f"rows of boxes must ascend and be below {self.images}")
        if (labels < -1).any() or (labels >= len(self.names)).any():
            raise ValueError(f"classes of boxes must be below {len(self.names)}")

    def taken(self, rows: Int64) -> Boxes:
        """Return the boxes of some images, which become the rows 0, 1, ...

        Args:
            rows: ``int64``, distinct, in the order they shall have.
        """
        place = np.full(self.images, -1, np.int64)
        place[rows] = np.arange(len(rows))
        image = place[self.image]
        kept = np.argsort(image, kind="stable")[np.count_nonzero(image < 0) :]
        return replace(
            self,
            image=image[kept],
            label=self.label[kept],
            corners=self.corners[kept],
            crowd=self.crowd[kept],
            images=len(rows),
        )

    def counts(self) -> Int64:
        """Return how many objects of each class each image shows, (images, classes); no crowds."""
        made = np.zeros((self.images, len(self.names)), np.int64)
        real = ~self.crowd & (self.label >= 0)
        np.add.at(made, (self.image[real], self.label[real]), 1)
        return made


def joined_boxes(first: Boxes, second: Boxes) -> Boxes:
    """Return the boxes of two sets as those of one: the first set's images, then the second's."""
    if first.names != second.names or first.relative != second.relative:
        raise ValueError("boxes of different classes or units cannot be joined")
    return replace(
        first,
        image=np.concatenate([first.image, second.image + first.images]),
        label=np.concatenate([first.label, second.label]),
        corners=np.concatenate([first.corners, second.corners]),
        crowd=np.concatenate([first.crowd, second.crowd]),
        images=first.images + second.images,
    )


def boxes_of_rows(
    rows: Sequence[tuple[int, int, Sequence[float], bool]],
    names: Iterable[str],
    images: ImageSet,
    relative: bool,
) -> Boxes:
    """Return objects (row of the image, class, corners, crowd) as the boxes of a set.

    Those of an image stay in order.
    """
    image, label, corners, crowd = zip(*rows, strict=True) if rows else ((),) * 4
    order = np.argsort(np.array(image, np.int64), kind="stable")
    return Boxes(
        names=tuple(names),
        image=np.array(image, np.int64)[order],
        label=np.array(label, np.int64)[order],
        corners=np.array(corners, np.float64).reshape(-1, 4)[order],
        crowd=np.array(crowd, np.bool_)[order],
        images=len(images),
        relative=relative,
    )


def label_lines(path: Path) -> list[str]:
    """Return the lines of a label file; none where it cannot be read or is not UTF-8."""
    data = read_file(str(path))
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8").splitlines() if isinstance(data, bytes) else []
    return []


def label_text(path: Path) -> str | None:
    """Return the content of a label file, ``None`` where there is none."""
    what = f"{shown(path)} cannot be read"
    with explaining(what, OSError), suppress(FileNotFoundError, NotADirectoryError):
        size = path.stat().st_size
        if size > MAX_LABEL_BYTES:
            raise VisleakError(
                f"{shown(path)} has {size:,} bytes; label files up to {MAX_LABEL_BYTES:,} are read"
            )
        data = read_file(str(path))
        if not isinstance(data, bytes):
            raise VisleakError(f"{what}: {data.detail}")
        with explaining(f"{what} as UTF-8 text", UnicodeDecodeError):
            return data.decode("utf-8-sig")
    return None


def numbers_of(words: Sequence[str]) -> list[float] | None:
    """Return words as finite numbers, ``None`` where one is not a finite number.

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
    """Return the error of a damaged row: its place, what is allowed, and its text."""
    got = writable(text.strip())
    got = got if len(got) <= _SHOWN else got[:_SHOWN] + " ..."
    return VisleakError(f"{shown(path)}, line {line}: {allowed}; got {got!r}")


def shown(path: Path) -> str:
    """Return a path as text for a message."""
    return writable(str(path))


def only_name(names: Iterable[str]) -> str | None:
    """Return the one member of a set of names, else ``None``.

    >>> only_name({"cat"}), only_name({"cat", "dog"}), only_name(())
    ('cat', None, None)
    """
    distinct = set(names)
    return distinct.pop() if len(distinct) == 1 else None


# -- the annotated objects of a set as a set of their own: one image per box ----------------------


#: Short side of a box below which there is nothing to compare, pixels.
SMALLEST: Final = 8
#: Shares of a side are written with few digits: corners are known to this many pixels.
ROUNDING: Final = 0.01


@dataclass(frozen=True)
class ObjectOpener:
    """Reads the boxes of images. An image is decoded once per call for all of its boxes."""

    opener: Opener  # of the images
    image: Int64  # int64 (n,), ascending: the image of each box
    corners: Float64  # float64 (n, 4): left, top, right, bottom
    relative: bool  # corners are shares of the image's width and height, else pixels

    @property
    def stamp(self) -> str | None:
        """Text that changes with the boxes; ``None`` where changes of the images are unknown."""
        own = getattr(self.opener, "stamp", "")
        boxes = hashlib.blake2b(self.corners.tobytes() + self.image.tobytes(), digest_size=16)
        return None if own is None else own + boxes.hexdigest()

    def read(self, positions: Sequence[int]) -> Iterator[Bytes8 | Unreadable]:
        """Yield the pixels of some boxes, see :class:`visleak.records.Opener`."""
        owners = self.image[list(positions)]
        stored = self.opener.read(np.unique(owners).tolist())
        by_image = groupby(zip(owners.tolist(), positions, strict=True), key=itemgetter(0))
        for data, (_, boxes) in zip(stored, by_image, strict=True):
            image = data if isinstance(data, Unreadable) else decode(data)
            for _, position in boxes:
                if isinstance(image, Unreadable):
                    yield image
                else:
                    yield self._cut(image.pixels, self.corners[position])

    def _cut(self, pixels: Bytes8, corners: Float64) -> Bytes8 | Unreadable:
        height, width = pixels.shape[:2]
        size = np.array([width, height] * 2, np.float64)
        inside = np.clip(corners * size if self.relative else corners, 0, size)
        # a pixel belongs to the box if the box covers any of it, but for what rounding adds
        left, top = np.floor(inside[:2] + ROUNDING).astype(int).tolist()
        right, bottom = np.ceil(inside[2:] - ROUNDING).astype(int).tolist()
        if min(right - left, bottom - top) < SMALLEST:
            detail = f"the box has {right - left} x {bottom - top} pixels; {SMALLEST} are needed"
            return Unreadable("unsupported", detail)
        return np.ascontiguousarray(pixels[top:bottom, left:right])


def object_set(images: ImageSet, boxes: Boxes | None) -> ImageSet:
    """Return the objects of a set, whose ids are ``IMAGE#NUMBER`` and whose labels are classes.

    Boxes are numbered from 0 in the order of the annotations; crowds are left out.
    """
    if boxes is None:
        raise UsageError(
            f"--objects boxes: {images.source or images.name} has no annotated boxes; give a coco:,"
            " yolo: or kitti: source"
        )
    kept = np.flatnonzero(~boxes.crowd)
    if not len(kept):
        raise VisleakError(f"--objects boxes: no image of {images.source} has an annotated box")
    owners, names = boxes.image[kept], np.array([*boxes.names, None], object)
    taken = pa.array(owners)
    numbers = pa.array(rank_within(boxes.image)[kept]).cast(pa.string())

    def numbered(column: pa.StringArray, mark: str) -> pa.StringArray:
        joined = pc.binary_join_element_wise(column.take(taken), numbers, mark)
        return joined.cast(pa.string())

    groups, frames = images.groups, images.frames
    problems = (
        replace(each, detail=f"none of its boxes can be read; {each.detail}".strip("; "))
        for each in images.problems
    )
    return replace(
        images,
        ids=numbered(images.ids, "#"),
        locators=numbered(images.locators, "!#"),  # a locator in a file is FILE!MEMBER
        opener=ObjectOpener(images.opener, owners, boxes.corners[kept], boxes.relative),
        labels=pa.array(names[boxes.label[kept]], pa.string()),
        captions=None,
        groups=None if groups is None else groups.take(taken),
        frames=None if frames is None else frames.take(taken),
        problems=tuple(problems),
        options={**images.options, "objects": "boxes"},
    )
