"""The annotated objects of a set as a set of their own: one image per box."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.formats.boxes import Boxes
from visleak.groups import rank_within
from visleak.images import decode
from visleak.records import Bytes8, Float64, ImageSet, Int64, Opener, Problem, Unreadable

#: Short side of a box below which there is nothing to compare, pixels.
SMALLEST: Final = 8
#: Shares of a side are written with few digits: corners are known to this many pixels.
ROUNDING: Final = 0.01


@dataclass(frozen=True)
class ObjectOpener:
    """Reads the boxes of images. An image is decoded once for all of its boxes that are asked."""

    opener: Opener  # of the images
    image: Int64  # int64 (n,), ascending: the image of each box
    corners: Float64  # float64 (n, 4): left, top, right, bottom
    relative: bool  # corners are shares of the image's width and height, else pixels

    @property
    def stamp(self) -> str | None:
        """What changes with the boxes; ``None`` where it is not known whether the images do."""
        own = getattr(self.opener, "stamp", "")
        boxes = hashlib.blake2b(self.corners.tobytes() + self.image.tobytes(), digest_size=16)
        return None if own is None else own + boxes.hexdigest()

    def read(self, positions: Sequence[int]) -> Iterator[Bytes8 | Unreadable]:
        """Yield the pixels of some boxes, see :class:`visleak.records.Opener`."""
        owners = self.image[list(positions)]
        images = np.unique(owners)
        stored = iter(self.opener.read(images.tolist()))
        last, pixels = -1, None
        for position, owner in zip(positions, owners.tolist(), strict=True):
            if owner != last:
                data = next(stored)
                image = data if isinstance(data, Unreadable) else decode(data)
                pixels = image if isinstance(image, Unreadable) else image.pixels
                last = owner
            if pixels is None or isinstance(pixels, Unreadable):
                yield pixels or Unreadable("missing")
            else:
                yield self._cut(pixels, self.corners[position])

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

    Raises:
        UsageError: the set has no boxes.
    """
    if boxes is None:
        raise UsageError(
            f"--objects boxes: {images.source or images.name} has no annotated boxes; give a coco:,"
            " yolo: or kitti: source"
        )
    number = rank_within(boxes.image)
    kept = np.flatnonzero(~boxes.crowd)
    if not len(kept):
        raise VisleakError(f"--objects boxes: no image of {images.source} has an annotated box")
    owners, names = boxes.image[kept], np.array([*boxes.names, None], object)
    taken = pa.array(owners)
    numbers = number[kept].tolist()
    # a locator in a file is FILE!MEMBER
    ids, locators = (
        pa.array(
            [
                f"{text}{mark}{at}"
                for text, at in zip(column.take(taken).to_pylist(), numbers, strict=True)
            ]
        )
        for column, mark in ((images.ids, "#"), (images.locators, "!#"))
    )
    groups, frames = (
        None if column is None else column.take(taken) for column in (images.groups, images.frames)
    )
    return replace(
        images,
        ids=ids,
        locators=locators,
        opener=ObjectOpener(images.opener, owners, boxes.corners[kept], boxes.relative),
        labels=pa.array(names[boxes.label[kept]], pa.string()),
        captions=None,
        groups=groups,
        frames=frames,
        problems=tuple(_of_objects(each) for each in images.problems),
        options={**images.options, "objects": "boxes"},
    )


def _of_objects(problem: Problem) -> Problem:
    return replace(problem, detail=f"none of its boxes can be read; {problem.detail}".strip("; "))
