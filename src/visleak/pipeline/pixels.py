"""The pixels that verification needs: decoded in one pass per set, and tasks on pairs of images."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from visleak.images import decode
from visleak.pipeline.context import GrowingColumn, Handle, InlineValue, RunContext
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost, Refused
from visleak.records import Bool, Bytes8, Int64, Opener, Unreadable
from visleak.vectors import forget, parts_of

#: Images per task, and bytes of their reduced pixels, at most: several tasks wait in memory.
CHUNK: Final = 256
BYTES: Final = 16_000_000
#: Makes a small ``uint8`` array of RGB pixels.
Reduce = Callable[[Bytes8], Bytes8]


@dataclass(frozen=True, slots=True)
class Pixels:
    """Reduced images of one set, by row of its fingerprints."""

    values: Path | Bytes8  # all pixels, one image after the other, or a scratch file of them
    slot: Int64  # int64 (n,): position of each fingerprint's image here, or -1
    offset: Int64  # int64 (k + 1,): where each image's bytes begin
    shape: npt.NDArray[np.int32]  # int32 (k, 2): height and width

    def image(self, row: int) -> Bytes8:
        """Return a reduced image."""
        place = int(self.slot[row])
        height, width = (int(side) for side in self.shape[place])
        start, stop = int(self.offset[place]), int(self.offset[place + 1])
        depth = (stop - start) // max(1, height * width)
        shape = (height, width) if depth == 1 else (height, width, depth)
        return self._all()[start:stop].reshape(shape)

    def stack(self, rows: Int64, side: int) -> Bytes8:
        """Return square one-channel images of one size (n, side, side)."""
        area = side * side
        return self._all().reshape(-1, side, side)[self.offset[self.slot[rows]] // area]

    def forget(self) -> None:
        """Release the memory of images that were read."""
        if self.offset[-1]:
            forget(self._all())

    def only(self, rows: Int64) -> tuple[Pixels, Int64]:
        """Return some images in a form that can be sent, and their rows in it."""
        places, row = np.unique(self.slot[rows], return_inverse=True)
        starts, stops = self.offset[places], self.offset[places + 1]
        values = [np.empty(0, np.uint8)]
        if self.offset[-1]:
            stored = self._all()
            values += [stored[a:b] for a, b in zip(starts, stops, strict=True)]
        offset = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64)
        some = Pixels(np.concatenate(values), np.arange(len(places)), offset, self.shape[places])
        self.forget()
        return some, row.astype(np.int64)

    def _all(self) -> Bytes8:
        return _mapped(self.values) if isinstance(self.values, Path) else self.values


class SharedPixels:
    """The reduced images of several sets, for workers."""

    def __init__(self, pixels: Mapping[str, Pixels], context: RunContext) -> None:
        self._pixels = pixels
        local = context.executor.local
        self._shared = {name: context.share(own) for name, own in pixels.items()} if local else {}

    def handle(self, name: str, rows: Int64) -> tuple[Handle[Pixels], Int64]:
        """Return a handle of at least the images of some rows, and their rows in it."""
        if name in self._shared:
            return self._shared[name], rows
        some, inside = self._pixels[name].only(rows)
        return InlineValue(some), inside


def shared_pixels(
    needed: Iterable[tuple[EncodedSet, Int64]], reduce: Reduce, enough: int, context: RunContext
) -> SharedPixels:
    """Return the reduced images of some rows of sets, each decoded once.

    ``enough``: side from which they may be made of a smaller version of a JPEG.
    """
    sets: dict[str, tuple[EncodedSet, Bool]] = {}
    for encoded, rows in needed:
        if encoded.name not in sets:
            sets[encoded.name] = encoded, np.zeros(len(encoded.fingerprints), np.bool_)
        sets[encoded.name][1][rows] = True
    read = {
        name: read_pixels(encoded, np.flatnonzero(own), reduce, enough, context)
        for name, (encoded, own) in sets.items()
    }
    return SharedPixels(read, context)


@contextlib.contextmanager
def loaded(pixels: tuple[Handle[Pixels], Handle[Pixels]]) -> Iterator[tuple[Pixels, Pixels]]:
    """Yield the reduced images of both sides, and release their memory afterwards."""
    left, right = pixels[0].load(), pixels[1].load()
    yield left, right
    left.forget()
    right.forget()


# -- tasks on the pixels of pairs -----------------------------------------------------------------

Input = TypeVar("Input")
Result = TypeVar("Result")


class _Pairs(Protocol):
    """Pairs of images of two sides, as rows of their fingerprints."""

    @property
    def sides(self) -> tuple[EncodedSet, EncodedSet]: ...

    @property
    def query(self) -> Int64: ...

    @property
    def reference(self) -> Int64: ...

    def __len__(self) -> int: ...

    def only(self, keep: slice, /) -> Self: ...


Some = TypeVar("Some", bound=_Pairs)


@dataclass(frozen=True, slots=True)
class PairTask(Generic[Input]):
    """A task on some pairs."""

    pixels: tuple[Handle[Pixels], Handle[Pixels]]  # reduced images of both sides
    query: Int64  # rows in these
    reference: Int64
    input: Input  # what else a step needs


def in_tasks(
    todo: Sequence[Some],
    context: RunContext,
    step: str,
    size: int,
    reduce: tuple[Reduce, int],
    inputs: Callable[[Some], Callable[[slice], Input]],
    work: Callable[[PairTask[Input]], Result],
) -> Iterator[tuple[Some, Result]]:
    """Yield the pairs of each task, ``size`` at a time, with its result."""
    total, done = sum(map(len, todo)), 0
    if not total:
        return
    needed = (
        end for rows in todo for end in zip(rows.sides, (rows.query, rows.reference), strict=True)
    )
    pixels = shared_pixels(needed, *reduce, context)

    def task(rows: Some, make: Callable[[slice], Input], part: slice) -> PairTask[Input]:
        some = rows.only(part)
        left, query = pixels.handle(rows.sides[0].name, some.query)
        right, reference = pixels.handle(rows.sides[1].name, some.reference)
        return PairTask((left, right), query, reference, make(part))

    for rows in (rows for rows in todo if len(rows)):
        parts, make = parts_of(len(rows), size), inputs(rows)
        tasks = (task(rows, make, part) for part in parts)
        for part, found in zip(parts, context.each(work, tasks, step), strict=True):
            some = rows.only(part)
            yield some, found
            done += len(some)
            context.progress(step, done, total)


# -- decoding -------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _mapped(path: Path) -> Bytes8:
    return np.memmap(path, np.uint8, mode="r")


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle[Opener]
    positions: Int64
    reduce: Reduce
    enough: int


def read_pixels(
    encoded: EncodedSet, rows: Int64, reduce: Reduce, enough: int, context: RunContext
) -> Pixels:
    """Decode the images of some fingerprints and reduce them."""
    path, opener = context.file(".pixels"), context.share(encoded.opener)
    positions = encoded.fingerprints.rows[rows]
    parts = _parts(positions, encoded.fingerprints.sizes[rows], enough)
    tasks = (_Task(opener, part, reduce, enough) for part in parts)
    step = f"decoding images of {encoded.name}"
    shapes: list[npt.NDArray[np.int32]] = [np.empty((0, 2), np.int32)]
    sizes: list[Int64] = [np.zeros(1, np.int64)]
    refused: list[Refused] = []
    done = 0
    with GrowingColumn(path, np.uint8) as column:
        for values, shape, size, lost in context.each(_decode, tasks, step):
            column.append(values)
            shapes.append(shape)
            sizes.append(size)
            refused += lost
            done += len(size) + len(lost)
            context.progress(step, done, len(positions))
    if refused:
        raise ImagesLost(encoded.name, refused)
    slot = np.full(len(encoded.fingerprints), -1, np.int64)
    slot[rows] = np.arange(len(rows))
    return Pixels(path, slot, np.cumsum(np.concatenate(sizes)), np.concatenate(shapes))


def _parts(positions: Int64, sizes: npt.NDArray[np.int32], side: int) -> list[Int64]:
    """Return positions in parts for tasks, by the sizes of their images (n, 2) and a long side."""
    shrink = np.minimum(1, side / np.maximum(sizes.max(axis=1, initial=1), 1))
    area = 3 * sizes.astype(np.float64).prod(axis=1) * shrink**2
    by_bytes, by_count = area.cumsum() // BYTES, np.arange(len(positions)) // CHUNK
    cuts = np.flatnonzero((np.diff(by_bytes) > 0) | (np.diff(by_count) > 0)) + 1
    return [part for part in np.split(positions, cuts) if len(part)]


def _decode(task: _Task) -> tuple[Bytes8, npt.NDArray[np.int32], Int64, list[Refused]]:
    """Return the pixels of some images, shapes (k, 2) and sizes (k,), and those that are lost."""
    reduced: list[Bytes8] = []
    refused: list[Refused] = []
    positions = task.positions.tolist()
    for position, data in zip(positions, task.opener.load().read(positions), strict=True):
        image = data if isinstance(data, Unreadable) else decode(data, enough=task.enough)
        if isinstance(image, Unreadable):
            refused.append((position, image))
        else:
            reduced.append(task.reduce(image.pixels))
    return (
        np.concatenate([np.empty(0, np.uint8), *(pixels.ravel() for pixels in reduced)]),
        np.array([pixels.shape[:2] for pixels in reduced], np.int32).reshape(-1, 2),
        np.array([pixels.size for pixels in reduced], np.int64),
        refused,
    )
