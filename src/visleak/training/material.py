"""The pictures of a set as a network takes them, decoded once into a file that is mapped."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.encoders.preparing import PixelPreparation
from visleak.errors import VisleakError
from visleak.images import decode
from visleak.pipeline.columns import GrowingColumn
from visleak.pipeline.workplace import Handle, Workplace, shared
from visleak.records import Bool, Bytes8, ImageSet, Int64, Unreadable

#: Pictures a task at most, and pixels that it hands over at most.
CHUNK: Final = 256
PIXELS: Final = 4_000_000

#: Pictures whose size is looked at before all are read.
SAMPLE: Final = 256

#: Rows hashed at a time.
_BLOCK: Final = 4096


@dataclass(frozen=True)
class Material:
    """The readable pictures of a set.

    Attributes:
        pictures: ``uint8`` (n, side, side, 3), memory-mapped.
        rows: ``int64`` (n,): position of each in its set, ascending.
        unreadable: how many could not be read, those that the listing found included.
        labels: Arrow string array (n,) or ``None``; null where unknown.
        groups: likewise.
    """

    pictures: Bytes8
    rows: Int64
    unreadable: int
    labels: pa.StringArray | None
    groups: pa.StringArray | None

    def __len__(self) -> int:
        return len(self.rows)

    def digest(self) -> str:
        """Return the digest (BLAKE2b-128) of pixels, labels and groups, in the set's order."""
        hasher = hashlib.blake2b(repr(self.pictures.shape).encode(), digest_size=16)
        for start in range(0, len(self), _BLOCK):
            hasher.update(np.ascontiguousarray(self.pictures[start : start + _BLOCK]).data)
        for column in (self.labels, self.groups):
            hasher.update(repr(None if column is None else column.to_pylist()).encode())
        return hasher.hexdigest()

    def twins(self) -> Int64:
        """Return a number for each picture that only pictures of equal pixels share."""
        digests = [hashlib.blake2b(each.data, digest_size=16).digest() for each in self._each()]
        _, number = np.unique(np.array(digests, dtype="V16"), return_inverse=True)
        return np.asarray(number, np.int64)

    def _each(self) -> Iterator[Bytes8]:
        for start in range(0, len(self), _BLOCK):
            yield from np.ascontiguousarray(self.pictures[start : start + _BLOCK])


@dataclass(frozen=True)
class Sizes:
    """Sizes of some pictures of a set.

    Attributes:
        short: median length of their short sides in pixels.
        square: the side that all of them have, 0 where they differ or are not square.
    """

    short: float
    square: int


def sizes_of(images: ImageSet) -> Sizes:
    """Return the sizes of pictures spread over a set.

    Raises:
        VisleakError: none of them can be read.
    """
    positions = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
    found = []
    for data in images.opener.read(positions.tolist()):
        picture = data if isinstance(data, Unreadable) else decode(data)
        if not isinstance(picture, Unreadable):
            found.append((picture.height, picture.width))
    if not found:
        raise VisleakError(
            f"set {images.name!r}: none of {len(positions):,} pictures spread over it can be read;"
            " there is nothing to train on"
        )
    sides = np.array(found)
    same = int(sides.min()) if sides.min() == sides.max() else 0
    return Sizes(float(np.median(sides.min(axis=1))), same)


def read_material(images: ImageSet, side: int, place: Workplace) -> Material:
    """Decode the pictures of a set and squash each to a square.

    Args:
        images: the set.
        side: of the square, in pixels.
        place: where to work; the pixels stay in its scratch folder.

    Raises:
        VisleakError: the disk has no room for the pixels.
    """
    need, free = len(images) * side * side * 3, shutil.disk_usage(place.scratch).free
    if need > free:
        raise VisleakError(
            f"{len(images):,} pictures of {side} pixels need {need / 1e9:,.1f} GB of scratch, and"
            f" there are {free / 1e9:,.1f} GB in {place.scratch.parent.parent}; write elsewhere"
            " with -o FILE, or take a smaller --size"
        )
    opener = place.share(images.opener)
    step = min(CHUNK, max(1, PIXELS // (side * side)))
    parts = (range(start, min(start + step, len(images))) for start in range(0, len(images), step))
    tasks = (_Task(opener, part, side) for part in parts)
    kept = [np.empty(0, np.bool_)]
    done = 0
    with GrowingColumn(place.file(".pixels"), np.uint8, (side, side, 3)) as column:
        for pixels, readable in place.each(_work, tasks, f"reading {images.name}"):
            column.append(pixels)
            kept.append(readable)
            done += len(readable)
            place.progress(f"reading {images.name}", done, len(images))
        rows = np.flatnonzero(np.concatenate(kept)).astype(np.int64)
        taken = pa.array(rows)
        return Material(
            column.mapped(),
            rows,
            len(images) - len(rows) + len(images.problems),
            None if images.labels is None else images.labels.take(taken),
            None if images.groups is None else images.groups.take(taken),
        )


# -- in a worker ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle
    positions: range
    side: int


def _work(task: _Task) -> tuple[Bytes8, Bool]:
    """Return the prepared pictures (k, side, side, 3), and which of the task's were readable."""
    prepare = PixelPreparation((task.side, task.side))
    made = [np.empty((0, task.side, task.side, 3), np.uint8)]
    readable = []
    for data in shared(task.opener).read(list(task.positions)):
        picture = data if isinstance(data, Unreadable) else decode(data)
        readable.append(not isinstance(picture, Unreadable))
        if not isinstance(picture, Unreadable):
            made.append(prepare(picture)[None])
    return np.concatenate(made), np.array(readable, np.bool_)
