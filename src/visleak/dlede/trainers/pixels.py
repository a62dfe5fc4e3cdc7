"""The images of both sets, decoded once at a smaller size, in a file that all runs map."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from visleak.auditing import workers_for
from visleak.dlede.draw.split import Draw, Split
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.context import GrowingColumn, Progress, RunContext
from visleak.records import Bool, Bytes8, Int64
from visleak.training.data import Decoded, decoded

#: Grey value around an image that is smaller than the canvas.
GREY: Final = 114

#: Images per task.
CHUNK: Final = 64

#: Pillow's number of the bilinear filter, which averages when an image becomes smaller.
BILINEAR: Final = 2


@dataclass(frozen=True)
class DecodedImages:
    """The decoded images of a split: the training set's rows, then the test set's.

    Unreadable images have a height and a width of 0.

    Attributes:
        path: of the file: the pixels of one image after the other, ``uint8`` RGB.
        starts: ``int64`` (n + 1,): where in the file each begins.
        sizes: ``int64`` (n, 2): height and width as decoded.
        originals: ``int64`` (n, 2): height and width as people see the image.
        canvas: height and width that hold every image, multiples of the requested number.
        train: number of rows of the training set.
        unreadable: set, id and reason of each unreadable image.
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

    @property
    def readable_test(self) -> Bool:
        """Which test images could be read, (test images,)."""
        return self.readable[self.train :]

    def rows(self, draw: Draw) -> Int64:
        """Return the rows of the training images of a draw, in the task's order."""
        return np.concatenate([draw.kept, draw.leaked + self.train])

    def mapped(self) -> Bytes8:
        """Return the file's content, memory-mapped and read-only."""
        return np.memmap(self.path, np.uint8, mode="r", shape=(int(self.starts[-1]),))

    def on_canvas(self, content: Bytes8, rows: Int64) -> Bytes8:
        """Return images in the upper left corner of a grey canvas, ``uint8`` (k, h, w, 3).

        Args:
            content: from :meth:`mapped`.
            rows: ``int64`` (k,).
        """
        made = np.full((len(rows), *self.canvas, 3), GREY, np.uint8)
        for canvas, row in zip(made, rows, strict=True):
            height, width = self.sizes[row]
            pixels = content[self.starts[row] : self.starts[row + 1]]
            canvas[:height, :width] = pixels.reshape(height, width, 3)
        return made

    def notes(self) -> Iterator[str]:
        """Yield a note if images could not be read."""
        if self.unreadable:
            name, first, why = self.unreadable[0]
            yield (
                f"{len(self.unreadable):,} images could not be read, such as {first!r} of set"
                f" {name!r} ({why}); they are excluded from training, and nothing is found in those"
                " of the test set"
            )


def decode_images(
    split: Split, side: int, multiple: int, folder: Path, progress: Progress
) -> DecodedImages:
    """Decode the images of both sets; none is enlarged.

    Args:
        split: the sets.
        side: most pixels of a long side; longer ones are made smaller, with their aspect ratio.
        multiple: of which the sides of the canvas are multiples.
        folder: of the file.
        progress: called with the progress.

    Raises:
        UsageError: a set has embeddings without images.
        VisleakError: no image of a set can be read, or the disk has no room.
    """
    sets = (split.train, split.test)
    for images in sets:
        if not images.has_pixels:
            raise UsageError(
                f"set {images.name!r} has embeddings without images; give the images themselves"
            )
    path, parts = folder / "pictures.rgb", list[Decoded]()
    size_of = partial(reduced_size, side=side)
    with (
        RunContext.at(folder, workers_for(sum(map(len, sets)), None), None, progress) as place,
        GrowingColumn(path, np.uint8) as column,
    ):
        for images in sets:
            for part in decoded(images, place, size_of, chunk=CHUNK, resample=BILINEAR):
                _append(column, part.pixels, path)
                parts.append(part)
    sizes = np.concatenate([part.sizes for part in parts])
    train = len(split.train)
    for images, own in ((split.train, sizes[:train]), (split.test, sizes[train:])):
        if not own.any():
            raise VisleakError(
                f"set {images.name!r}: none of its {len(images):,} images can be read"
            )
    height, width = (-(-int(most) // multiple) * multiple for most in sizes.max(axis=0))
    return DecodedImages(
        path,
        np.concatenate([[0], np.cumsum(3 * sizes.prod(axis=1))]),
        sizes,
        np.concatenate([part.originals for part in parts]),
        (height, width),
        train,
        tuple(_unreadable(split, parts)),
    )


def _append(column: GrowingColumn[np.uint8], pixels: Bytes8, path: Path) -> None:
    try:
        column.append(pixels)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free
        raise VisleakError(
            f"the decoded images cannot be written to {path.parent} ({error.strerror};"
            f" {free / 1e9:,.1f} GB are free); take a smaller side=, or write elsewhere"
        ) from error


def _unreadable(split: Split, parts: list[Decoded]) -> Iterator[tuple[str, str, str]]:
    """Yield set, id and reason of unreadable images."""
    first, train = 0, len(split.train)
    for part in parts:
        for at, why in part.unreadable:
            images, row = (split.train, first + at)
            if row >= train:
                images, row = split.test, row - train
            reason = why.reason + (f": {why.detail}" if why.detail else "")
            yield images.name, images.ids[row].as_py(), reason
        first += len(part.sizes)


def reduced_size(height: int, width: int, *, side: int) -> tuple[int, int]:
    """Return height and width of an image whose long side is at most ``side``.

    >>> reduced_size(375, 1242, side=160), reduced_size(96, 128, side=160)
    ((48, 160), (96, 128))
    """
    scale = min(1.0, side / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))
