"""The pictures of both sets, decoded and made smaller once, in a file that all trainings map."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from visleak.auditing import workers_for
from visleak.dlede.lesson import Draw, Split
from visleak.encoders.preparing import PixelPreparation
from visleak.errors import UsageError, VisleakError
from visleak.images import decode
from visleak.pipeline.columns import GrowingColumn
from visleak.pipeline.workplace import Handle, Progress, Workplace, shared
from visleak.records import Bool, Bytes8, ImageSet, Int64, Unreadable

#: What lies around a picture that is smaller than the canvas.
GREY: Final = 114

#: Pictures a task.
CHUNK: Final = 64

#: Pillow's number of the bilinear filter, which averages where a picture becomes smaller.
BILINEAR: Final = 2


@dataclass(frozen=True)
class Pictures:
    """The prepared pictures of a split: the training set's rows, then the test set's.

    A picture that could not be read has a height and a width of 0.

    Attributes:
        path: of the file: the pixels of one picture after the other, ``uint8`` RGB.
        starts: ``int64`` (n + 1,): where in the file each begins.
        sizes: ``int64`` (n, 2): height and width as prepared.
        originals: ``int64`` (n, 2): height and width as people see the picture.
        canvas: height and width that hold every picture, multiples of what was asked for.
        train: how many of the rows are the training set's.
        unreadable: those that could not be read: (set, id, why).
    """

    path: Path
    starts: Int64
    sizes: Int64
    originals: Int64
    canvas: tuple[int, int]
    train: int
    unreadable: tuple[tuple[str, str, str], ...]

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def readable(self) -> Bool:
        """Which could be read, (n,)."""
        return np.asarray(self.sizes[:, 0] > 0)

    @property
    def test(self) -> Int64:
        """The rows of the test set."""
        return np.arange(self.train, len(self), dtype=np.int64)

    def lesson(self, draw: Draw) -> Int64:
        """Return the rows of a lesson's training images, in the lesson's order."""
        return np.concatenate([draw.kept, draw.leaked + self.train])

    def mapped(self) -> Bytes8:
        """Return the file's content, memory-mapped and read-only."""
        return np.memmap(self.path, np.uint8, mode="r", shape=(int(self.starts[-1]),))

    def on_canvas(self, content: Bytes8, rows: Int64) -> Bytes8:
        """Return pictures in the upper left corner of a grey canvas, ``uint8`` (k, h, w, 3).

        Args:
            content: what :meth:`mapped` returned.
            rows: ``int64`` (k,).
        """
        made = np.full((len(rows), *self.canvas, 3), GREY, np.uint8)
        for canvas, row in zip(made, rows, strict=True):
            height, width = self.sizes[row]
            pixels = content[self.starts[row] : self.starts[row + 1]]
            canvas[:height, :width] = pixels.reshape(height, width, 3)
        return made


def prepare_pictures(
    split: Split, side: int, multiple: int, folder: Path, progress: Progress
) -> Pictures:
    """Decode the pictures of both sets; none is enlarged.

    Args:
        split: the sets.
        side: most pixels of a long side; longer ones are made smaller, their shape kept.
        multiple: of which the sides of the canvas are multiples.
        folder: where the file is written.
        progress: is told how far it is.

    Raises:
        UsageError: a set has embeddings and no pictures.
        VisleakError: no picture of a set can be read, or the disk has no room.
    """
    sets = (split.train, split.test)
    for images in sets:
        if not images.pictures:
            raise UsageError(
                f"set {images.name!r} has embeddings and no pictures; give the pictures themselves"
            )
    workers = workers_for(sum(map(len, sets)), None)
    path = folder / "pictures.rgb"
    parts: list[_Done] = []
    with (
        Workplace.at(folder, workers, None, progress) as place,
        GrowingColumn(path, np.uint8) as column,
    ):
        for images in sets:
            for done in _read(images, side, place):
                _append(column, done.pixels, path)
                parts.append(done)
    sizes = np.concatenate([part.sizes for part in parts])
    train = len(split.train)
    _refuse_empty(split, sizes)
    height, width = (-(-int(most) // multiple) * multiple for most in sizes.max(axis=0))
    return Pictures(
        path,
        np.concatenate([[0], np.cumsum(3 * sizes.prod(axis=1))]),
        sizes,
        np.concatenate([part.originals for part in parts]),
        (height, width),
        train,
        tuple(_named(split, parts)),
    )


def _append(column: GrowingColumn, pixels: Bytes8, path: Path) -> None:
    try:
        column.append(pixels)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free
        raise VisleakError(
            f"the decoded pictures cannot be written to {path.parent} ({error.strerror};"
            f" {free / 1e9:,.1f} GB are free); take a smaller side=, or write elsewhere"
        ) from error


def _refuse_empty(split: Split, sizes: Int64) -> None:
    train = len(split.train)
    for images, part in ((split.train, sizes[:train]), (split.test, sizes[train:])):
        if not part.any():
            raise VisleakError(
                f"set {images.name!r}: none of its {len(images):,} pictures can be read; there is"
                " nothing to train on or to evaluate"
            )


def _named(split: Split, parts: list[_Done]) -> Iterator[tuple[str, str, str]]:
    """Yield set, id and reason of what could not be read."""
    row = 0
    for part in parts:
        for place, why in part.unreadable:
            at = row + place
            images = split.train if at < len(split.train) else split.test
            inside = at if at < len(split.train) else at - len(split.train)
            said = why.reason + (f": {why.detail}" if why.detail else "")
            yield images.name, images.ids[inside].as_py(), said
        row += len(part.sizes)


def _read(images: ImageSet, side: int, place: Workplace) -> Iterator[_Done]:
    """Yield what became of the pictures of a set, in its order."""
    opener = place.share(images.opener)
    parts = (range(at, min(at + CHUNK, len(images))) for at in range(0, len(images), CHUNK))
    count = 0
    tasks = (_Task(opener, part, side) for part in parts)
    for done in place.each(_work, tasks, f"reading {images.name}"):
        yield done
        count += len(done.sizes)
        place.progress(f"reading {images.name}", count, len(images))


# -- in a worker ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle
    positions: range
    side: int


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of a task's pictures; ``unreadable`` has their places in the task."""

    pixels: Bytes8
    sizes: Int64
    originals: Int64
    unreadable: tuple[tuple[int, Unreadable], ...]


def _work(task: _Task) -> _Done:
    pixels = [np.empty(0, np.uint8)]
    sizes = np.zeros((len(task.positions), 2), np.int64)
    originals = np.ones((len(task.positions), 2), np.int64)
    unreadable = []
    for place, data in enumerate(shared(task.opener).read(list(task.positions))):
        picture = data if isinstance(data, Unreadable) else decode(data)
        if isinstance(picture, Unreadable):
            unreadable.append((place, picture))
            continue
        originals[place] = picture.height, picture.width
        sizes[place] = prepared_size(picture.height, picture.width, task.side)
        height, width = (int(length) for length in sizes[place])
        pixels.append(PixelPreparation((height, width), resample=BILINEAR)(picture).reshape(-1))
    return _Done(np.concatenate(pixels), sizes, originals, tuple(unreadable))


def prepared_size(height: int, width: int, side: int) -> tuple[int, int]:
    """Return height and width of a picture whose long side is at most ``side``.

    >>> prepared_size(375, 1242, 160), prepared_size(96, 128, 160)
    ((48, 160), (96, 128))
    """
    scale = min(1.0, side / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))
