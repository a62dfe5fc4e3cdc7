"""Training targets of a detector of centres: heat maps, sizes and offsets (Zhou et al. 2019).

"Objects as Points": an object is a peak of its class's heat map at the centre of its box; at that
place the maps hold the size of the box and the offset of its centre in the cell. Lengths are in
cells. Unlike in the paper, sizes are learned as logarithms: then an error counts equally for small
boxes and large ones, as it does in an IoU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.records import Bool, Float32, Float64, Int64

#: Pixels of a cell's side.
STRIDE: Final = 4

#: A box whose corners are as far off as the radius overlaps the true one by this IoU or more.
OVERLAP: Final = 0.7


@dataclass(frozen=True)
class Objects:
    """The annotated objects of one image on its canvas.

    Attributes:
        label: ``int64`` (k,): class, -1 for regions of no class.
        corners: ``float64`` (k, 4): left, top, right, bottom in pixels of the canvas.
        crowd: ``bool`` (k,): regions that are neither to be found nor wrong.
    """

    label: Int64
    corners: Float64
    crowd: Bool


@dataclass(frozen=True)
class Targets:
    """The training targets of a batch.

    Attributes:
        heat: ``float32`` (images, classes, rows, columns), 1 at the centres.
        counted: ``bool``, of the same shape: cells whose heat counts.
        places: ``int64`` (objects, 3): image, row and column of each centre.
        boxes: ``float32`` (objects, 4): offsets across and down in the cell, from 0 to 1, and
            the natural logarithms of width and height in cells.
    """

    heat: Float32
    counted: Bool
    places: Int64
    boxes: Float32


def radius_of(height: float, width: float, overlap: float = OVERLAP) -> float:
    """Return how far the corners of a box may be off, whichever way, to overlap by ``overlap``.

    The least of three cases (Law & Deng 2018, "CornerNet", section 3.2): the box is shifted, is
    too small all around, or is too large all around. Their code takes wrong roots; these are the
    right ones.

    >>> round(radius_of(10, 10), 3)
    0.817
    """
    area, half = height * width, height + width
    share = (1 - overlap) / (1 + overlap)
    shifted = (half - math.sqrt(half**2 - 4 * area * share)) / 2
    inside = (half - math.sqrt(half**2 - 4 * area * (1 - overlap))) / 4
    outside = (math.sqrt(half**2 + 4 * area * (1 / overlap - 1)) - half) / 4
    return min(shifted, inside, outside)


def targets_of(images: Sequence[Objects], classes: int, shape: tuple[int, int]) -> Targets:
    """Return the training targets of some images.

    Of two objects whose centres share a cell, whatever their class, the smaller one's box is
    taught. Regions of a crowd take the cells they cover out of the heat map of their class, of
    all classes where they have none; centres of objects stay.

    Args:
        images: their objects; the centres are on the canvas.
        classes: how many there are.
        shape: rows and columns of the heat maps.
    """
    heat = np.zeros((len(images), classes, *shape), np.float32)
    counted = np.ones(heat.shape, np.bool_)
    places: dict[tuple[int, int, int], tuple[float, ...]] = {}
    for number, objects in enumerate(images):
        cells = objects.corners / STRIDE
        for region in np.flatnonzero(objects.crowd | (objects.label < 0)):
            label = objects.label[region]
            which = slice(None) if label < 0 else slice(label, label + 1)
            _forget(counted[number, which], cells[region])
        areas = (cells[:, 2] - cells[:, 0]) * (cells[:, 3] - cells[:, 1])
        real = np.flatnonzero(~objects.crowd & (objects.label >= 0))
        for each in real[np.argsort(-areas[real], kind="stable")]:
            left, top, right, bottom = (float(value) for value in cells[each])
            across, down = (left + right) / 2, (top + bottom) / 2
            row = min(int(down), shape[0] - 1)
            column = min(int(across), shape[1] - 1)
            width, height = right - left, bottom - top
            draw(heat[number, objects.label[each]], row, column, radius_of(height, width))
            sizes = math.log(width), math.log(height)
            places[number, row, column] = across - column, down - row, *sizes
    counted |= heat == 1
    return Targets(
        heat,
        counted,
        np.array(list(places), np.int64).reshape(-1, 3),
        np.array(list(places.values()), np.float32).reshape(-1, 4),
    )


def draw(plane: Float32, row: int, column: int, radius: float) -> None:
    """Raise a heat map to a Gaussian about a cell, as far as the whole cells of the radius.

    Its standard deviation is a third of what it covers: (2 r + 1) / 6 cells.
    """
    reach = int(radius)
    deviation = (2 * reach + 1) / 6
    top, left = max(0, row - reach), max(0, column - reach)
    window = plane[top : row + reach + 1, left : column + reach + 1]
    down = np.arange(top, top + window.shape[0]) - row
    across = np.arange(left, left + window.shape[1]) - column
    squares = down[:, None] ** 2 + across[None, :] ** 2
    np.maximum(window, np.exp(-squares / (2 * deviation**2)), out=window, casting="same_kind")


def _forget(planes: Bool, cells: Float64) -> None:
    """Let the cells that a region touches not count."""
    left, top = np.floor(np.maximum(cells[:2], 0)).astype(np.int64)
    right, bottom = np.ceil(np.maximum(cells[2:], 0)).astype(np.int64)
    planes[:, top:bottom, left:right] = False
