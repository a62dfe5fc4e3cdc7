"""Annotated objects of a set's images, as COCO, YOLO and KITTI have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visleak.records import Bool, Float64, Int64


@dataclass(frozen=True)
class Boxes:
    """The annotated objects of a set of images, one row an object.

    Attributes:
        names: of the classes.
        image: ``int64`` (objects,), ascending: row of the set.
        label: ``int64`` (objects,): index into ``names``; -1 for regions of no class.
        corners: ``float64`` (objects, 4): left, top, right, bottom.
        crowd: ``bool`` (objects,): regions that are neither to be found nor counted as wrong
            (COCO's ``iscrowd``, KITTI's ``DontCare``).
        images: how many images the set has.
        relative: corners are shares of the picture's width and height, else pixels.
    """

    names: tuple[str, ...]
    image: Int64
    label: Int64
    corners: Float64
    crowd: Bool
    images: int
    relative: bool

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
    """Return the boxes of two sets as those of one: the first set's images, then the second's.

    Raises:
        ValueError: their classes or units differ.
    """
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
