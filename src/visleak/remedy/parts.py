"""What a data set to be written consists of: images of sets that are there, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from visleak.records import ImageSet, Int64


@dataclass(frozen=True)
class Substitute:
    """An image of another set that takes the place of one."""

    images: ImageSet
    position: int


@dataclass(frozen=True)
class Piece:
    """Some images of one set, in its order.

    Attributes:
        keep: ``int64``, ascending positions in the set.
        instead: position (one of ``keep``) to the image that takes its place; it keeps the place,
            the name and the label.
    """

    images: ImageSet
    keep: Int64
    instead: Mapping[int, Substitute] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.keep) and (
            (np.diff(self.keep) <= 0).any() or self.keep[0] < 0 or self.keep[-1] >= len(self.images)
        ):
            raise ValueError(f"positions of {self.images.name!r} must ascend and be in the set")
        if not set(self.instead) <= set(self.keep.tolist()):
            raise ValueError(f"images of {self.images.name!r} to be replaced must be kept")


@dataclass(frozen=True)
class Part:
    """A data set to be written.

    Attributes:
        name: of the set: ``test``, ``train``.
        pieces: what it is made of, in order; images of several sets where some were moved.
    """

    name: str
    pieces: tuple[Piece, ...]

    def __len__(self) -> int:
        return sum(len(piece.keep) for piece in self.pieces)
