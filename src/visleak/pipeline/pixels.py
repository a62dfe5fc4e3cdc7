"""Decoding the pictures that verification needs: one pass a set, in storage order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.images import decode
from visleak.pipeline.chunks import Refused
from visleak.pipeline.context import Carried, GrowingColumn, Handle, RunContext, shared
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost
from visleak.records import Bytes8, Int64, Unreadable
from visleak.vectors import forget

#: Pictures a task.
CHUNK: Final = 256

#: Makes what is kept of a decoded picture.
Reduce = Callable[[Bytes8], Bytes8]


@dataclass(frozen=True, slots=True)
class Drawer:
    """Reduced pictures of one set, by row of its fingerprints.

    Attributes:
        pixels: scratch file with the pixels, one picture after the other, or the pixels themselves.
        slot: ``int64`` (n,): place of each fingerprint row in the drawer, or -1.
        offset: ``int64`` (k + 1,): where each picture's bytes begin.
        shape: ``int32`` (k, 2): height and width.
    """

    pixels: Path | Bytes8
    slot: Int64
    offset: Int64
    shape: npt.NDArray[np.int32]

    def picture(self, row: int) -> Bytes8:
        """Return a picture as it was reduced."""
        place = int(self.slot[row])
        height, width = (int(side) for side in self.shape[place])
        start, stop = int(self.offset[place]), int(self.offset[place + 1])
        depth = (stop - start) // max(1, height * width)
        shape = (height, width) if depth == 1 else (height, width, depth)
        return self._all()[start:stop].reshape(shape)

    def stack(self, rows: Int64, side: int) -> Bytes8:
        """Return square one-channel pictures of one size (n, side, side)."""
        area = side * side
        return self._all().reshape(-1, side, side)[self.offset[self.slot[rows]] // area]

    def forget(self) -> None:
        """Let the system take back the memory of the pictures that were looked at."""
        if self.offset[-1]:
            forget(self._all())

    def only(self, rows: Int64) -> tuple[Drawer, Int64]:
        """Return some pictures in a drawer that can be sent, and their rows in it.

        Args:
            rows: ``int64`` (n,), in any order; a picture that is asked for twice is sent once.
        """
        places, row = np.unique(self.slot[rows], return_inverse=True)
        starts, stops = self.offset[places], self.offset[places + 1]
        pixels = [np.empty(0, np.uint8)]
        if self.offset[-1]:
            stored = self._all()
            pixels += [stored[a:b] for a, b in zip(starts, stops, strict=True)]
        offset = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64)
        slot = np.arange(len(places))
        drawer = Drawer(np.concatenate(pixels), slot, offset, self.shape[places])
        self.forget()
        return drawer, row.astype(np.int64)

    def _all(self) -> Bytes8:
        return _mapped(self.pixels) if isinstance(self.pixels, Path) else self.pixels


class Shelf:
    """Drawers as workers get at them.

    Args:
        drawers: by the names of their sets.
        place: its workers read the scratch file, or are sent the pictures that a task needs.
    """

    def __init__(self, drawers: Mapping[str, Drawer], place: RunContext) -> None:
        self._drawers = drawers
        here = place.executor.here
        self._shared = {name: place.share(each) for name, each in drawers.items()} if here else {}

    def hand(self, name: str, rows: Int64) -> tuple[Handle, Int64]:
        """Return a drawer with at least the pictures of some rows, and their rows in it."""
        if name in self._shared:
            return self._shared[name], rows
        drawer, inside = self._drawers[name].only(rows)
        return Carried(drawer), inside


@lru_cache(maxsize=8)
def _mapped(path: Path) -> Bytes8:
    return np.memmap(path, np.uint8, mode="r")


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle
    positions: Int64
    reduce: Reduce
    enough: int


def fill(own: EncodedSet, needed: Int64, reduce: Reduce, enough: int, place: RunContext) -> Drawer:
    """Decode the needed fingerprint rows of a set and keep what ``reduce`` makes of them.

    Args:
        own: the set and its fingerprints.
        needed: rows of the fingerprints, ascending.
        reduce: makes a small ``uint8`` array of an RGB picture; importable by its name.
        enough: pixels of the short side that ``reduce`` can do with.
        place: where to work.

    Raises:
        ImagesLost: some cannot be read again.
    """
    path, opener = place.file(".pixels"), place.share(own.opener)
    positions = own.fingerprints.rows[needed]
    parts = [positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK)]
    tasks = (_Task(opener, part, reduce, enough) for part in parts)
    shapes: list[npt.NDArray[np.int32]] = [np.empty((0, 2), np.int32)]
    sizes: list[Int64] = [np.zeros(1, np.int64)]
    refused: list[Refused] = []
    done = 0
    with GrowingColumn(path, np.uint8) as column:
        for found in place.each(_work, tasks, f"looking at {own.images.name}"):
            column.append(found.pixels)
            shapes.append(found.shape)
            sizes.append(found.size)
            refused += found.refused
            done += len(found.size) + len(found.refused)
            place.progress(f"looking at {own.images.name}", done, len(positions))
    if refused:
        raise ImagesLost(own.images.name, refused)
    slot = np.full(len(own.fingerprints), -1, np.int64)
    slot[needed] = np.arange(len(needed))
    return Drawer(path, slot, np.cumsum(np.concatenate(sizes)), np.concatenate(shapes))


@dataclass(frozen=True, slots=True)
class _Reduced:
    """What became of some pictures: their pixels in one row, shapes (k, 2), sizes (k,)."""

    pixels: Bytes8
    shape: npt.NDArray[np.int32]
    size: Int64
    refused: tuple[Refused, ...]


def _work(task: _Task) -> _Reduced:
    """Decode some pictures."""
    reduced: list[Bytes8] = []
    refused: list[Refused] = []
    positions = task.positions.tolist()
    for position, data in zip(positions, shared(task.opener).read(positions), strict=True):
        picture = data if isinstance(data, Unreadable) else decode(data, enough=task.enough)
        if isinstance(picture, Unreadable):
            refused.append((position, picture))
        else:
            reduced.append(task.reduce(picture.pixels))
    return _Reduced(
        np.concatenate([np.empty(0, np.uint8), *(picture.ravel() for picture in reduced)]),
        np.array([picture.shape[:2] for picture in reduced], np.int32).reshape(-1, 2),
        np.array([picture.size for picture in reduced], np.int64),
        tuple(refused),
    )
