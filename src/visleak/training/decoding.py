"""The images of a set, decoded once at the sizes that a network takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from visleak.encoders.preparing import PixelPreparation
from visleak.images import decode
from visleak.pipeline.context import Handle, RunContext, shared
from visleak.records import Bytes8, ImageSet, Int64, Unreadable


@dataclass(frozen=True, slots=True)
class Decoded:
    """A part of a set.

    Attributes:
        pixels: of one image after the other, ``uint8`` RGB.
        sizes: ``int64`` (k, 2): height and width of each, 0 if unreadable.
        originals: ``int64`` (k, 2): height and width as people see the image, 1 if unreadable.
        unreadable: positions in the part, with the reasons.
    """

    pixels: Bytes8
    sizes: Int64
    originals: Int64
    unreadable: tuple[tuple[int, Unreadable], ...]


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle
    positions: range
    size_of: Callable[[int, int], tuple[int, int]]
    resample: int


def decoded(
    images: ImageSet,
    place: RunContext,
    size_of: Callable[[int, int], tuple[int, int]],
    *,
    chunk: int,
    resample: int,
) -> Iterator[Decoded]:
    """Yield the images of a set in parts, in its order.

    Args:
        images: the set.
        place: where to work.
        size_of: from height and width of an image to those it is resized to; picklable.
        chunk: images per part.
        resample: Pillow's number of the filter.
    """
    opener, done, step = place.share(images.opener), 0, f"reading {images.name}"
    count = len(images)
    tasks = (
        _Task(opener, range(at, min(at + chunk, count)), size_of, resample)
        for at in range(0, count, chunk)
    )
    for part in place.each(_decode, tasks, step):
        yield part
        done += len(part.sizes)
        place.progress(step, done, count)


def _decode(task: _Task) -> Decoded:
    pixels = [np.empty(0, np.uint8)]
    sizes = np.zeros((len(task.positions), 2), np.int64)
    originals = np.ones((len(task.positions), 2), np.int64)
    unreadable = []
    for at, data in enumerate(shared(task.opener).read(list(task.positions))):
        image = data if isinstance(data, Unreadable) else decode(data)
        if isinstance(image, Unreadable):
            unreadable.append((at, image))
            continue
        originals[at] = image.height, image.width
        sizes[at] = size = task.size_of(image.height, image.width)
        pixels.append(PixelPreparation(size, resample=task.resample)(image).reshape(-1))
    return Decoded(np.concatenate(pixels), sizes, originals, tuple(unreadable))
