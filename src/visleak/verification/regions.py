"""Regions of an image that another image shows, as convex polygons in unit coordinates; boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.verification.align import Matrix

#: Corners (k, 2) in order around the region.
Polygon = npt.NDArray[np.float64]
#: Left, top, width and height, pixels.
Box = tuple[int, int, int, int]
#: Side of the raster on which unions are measured.
RASTER: Final = 1024
#: The box of a whole image: left, top, right, bottom.
WHOLE: Final = np.array([0.0, 0, 1, 1])

_UNIT: Final = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])


def region_of(matrix: Matrix) -> Polygon:
    """Return the part of the query inside the reference, corners (k, 2) in unit coordinates.

    >>> region_of(np.array([[1.0, 0, 0.75], [0, 1, 0], [0, 0, 1]])).tolist()
    [[0.0, 0.0], [0.25, 0.0], [0.25, 1.0], [0.0, 1.0]]
    """
    corners = np.linalg.inv(matrix) @ np.vstack([_UNIT.T, np.ones(4)])
    region: Polygon = (corners[:2] / corners[2]).T
    return clipped_to(region, WHOLE)


def clipped_to(region: Polygon, box: Polygon) -> Polygon:
    """Return the part of a convex region inside a box (left, top, right, bottom)."""
    for side in range(4):
        region = _clipped(region, side % 2, float(box[side]), 1 if side < 2 else -1)
    return region


def _clipped(region: Polygon, axis: int, bound: float, sign: int) -> Polygon:
    """Return the part of a convex region on one side of a line (Sutherland & Hodgman 1974).

    OpenCV's intersection fails for collinear edges, which tiles have.
    """
    distance = sign * (region[:, axis] - bound)
    found = []
    for here, after, near, far in zip(
        region, np.roll(region, -1, axis=0), distance, np.roll(distance, -1), strict=True
    ):
        if near >= 0:
            found.append(here)
        if (near > 0 > far) or (near < 0 < far):
            found.append(here + (after - here) * (near / (near - far)))
    return np.array(found).reshape(-1, 2)


def area_of(region: Polygon) -> float:
    """Return the area of a region."""
    x, y = region.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def share_of(matrix: Matrix) -> float:
    """Return the share of the query inside the reference, 0..1."""
    return min(1.0, area_of(region_of(matrix)))


def union_of(regions: Sequence[Polygon]) -> float:
    """Return the share of an image that the union of regions covers, 0..1.

    >>> left = np.array([[0, 0], [0.5, 0], [0.5, 1], [0, 1]])
    >>> round(union_of([left, left + [0.25, 0]]), 2)
    0.75
    """
    if len(regions) == 1:
        return min(1.0, area_of(regions[0]))
    canvas = np.zeros((RASTER, RASTER), np.uint8)
    for region in regions:
        # pixels whose centre is inside
        corners = np.rint((region * RASTER - 0.5) * 256).astype(np.int32)
        cv2.fillPoly(canvas, [corners], 1, shift=8)
    return float(np.count_nonzero(canvas)) / canvas.size
