"""The common frame of two related images: their overlap, warped from each image.

The frame is the part of the reference that the query covers, at the lower resolution of the two. A
small crop is thus compared in full detail, and a reduced image without the detail that it lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Bytes8, Float32
from visleak.verification.align import Matrix, inverse, jacobian, unit_to_pixels
from visleak.verification.detail import plain_share
from visleak.verification.regions import WHOLE, area_of, clipped_to

#: Largest long side of a frame, and smallest side, pixels.
SIDE: Final = 128
MIN_SIDE: Final = 16
#: Flat margins (letterbox, canvas of a turned image, backdrop): largest difference from the corner
#: (levels), smallest share of the image, and smallest share that remains as content.
FILL_LEVELS: Final = 6
FILL_LEAST: Final = 0.01
FILL_LEAVES: Final = 0.2
#: A pixel with fewer pixels of content among the 25 around it is a speck in a margin.
FILL_SPECK: Final = 6
#: Least content of a pixel that is compared, of 255.
INSIDE: Final = 200
#: Smallest share of a frame with content of both images.
COVERED: Final = 0.1
#: Long side at which plain areas are measured, pixels.
PLAIN_SIDE: Final = 640


Level = TypeVar("Level", np.uint8, np.float32)


@dataclass(frozen=True, eq=False)
class Photo:
    """An image with the mask of its content."""

    pixels: Bytes8  # RGB uint8 (h, w, 3)
    content: Bytes8  # 255 where there is content, 0 in flat margins, uint8 (h, w)

    @classmethod
    def of(cls, pixels: Bytes8) -> Photo:
        """Return an image with its flat margins masked."""
        return cls(pixels, content_mask(pixels))

    def bounded(self, side: int) -> Photo:
        """Return the image with its long side at most ``side`` pixels."""
        return Photo(bounded(self.pixels, side), bounded(self.content, side))

    @cached_property
    def grey(self) -> Float32:
        """The luminance, (h, w)."""
        return _grey(self.pixels)

    @cached_property
    def plain(self) -> float:
        """Share of the image without any detail, 0..1."""
        return plain_share(_grey(bounded(self.pixels, PLAIN_SIDE)))


def _grey(pixels: Bytes8) -> Float32:
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.float32)


@dataclass(frozen=True, slots=True)
class Frame:
    """The overlap of two images in their common frame."""

    # RGB float32 (h, w, 3)
    query: Float32
    reference: Float32
    mask: Bool  # content of both, (h, w)
    to_frame: Matrix  # matrix from the reference's unit coordinates to the frame's
    covered: float  # share of the reference that the query covers, 0..1
    used: float  # share of the query inside the reference, 0..1


def bounded(pixels: npt.NDArray[Level], side: int) -> npt.NDArray[Level]:
    """Return the image with its long side at most ``side`` pixels."""
    height, width = pixels.shape[:2]
    ratio = side / max(height, width)
    if ratio >= 1:
        return pixels
    size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), pixels.dtype)


def content_mask(pixels: Bytes8) -> Bytes8:
    """Return 255 where an image has content and 0 in its flat margins, ``uint8`` (h, w).

    Margins have the colour of a corner and are connected to it. Content is the convex hull of the
    rest: paper between printed lines is content, although it has the colour of the corners. If
    next to nothing would remain, everything is content.
    """
    height, width = pixels.shape[:2]
    content = np.full((height, width), 255, np.uint8)
    levels = (FILL_LEVELS,) * 3
    flags = 4 | cv2.FLOODFILL_MASK_ONLY | cv2.FLOODFILL_FIXED_RANGE | (255 << 8)
    # not modified, but OpenCV refuses read-only arrays
    image = np.array(pixels)
    known: list[tuple[bytes, Bytes8]] = []
    for x, y in ((0, 0), (width - 1, 0), (0, height - 1), (width - 1, height - 1)):
        colour = image[y, x].tobytes()
        if any(colour == own and filled[y, x] for own, filled in known):
            # it would fill the same margin
            continue
        mask = np.zeros((height + 2, width + 2), np.uint8)
        cv2.floodFill(image, mask, (x, y), (0, 0, 0), levels, levels, flags)
        filled = mask[1:-1, 1:-1]
        known.append((colour, filled))
        if cv2.countNonZero(filled) >= FILL_LEAST * filled.size:
            content[filled > 0] = 0
    return _hull(content)


def _hull(content: Bytes8) -> Bytes8:
    """Return the convex hull of content without specks, or everything if that is too little."""
    if cv2.countNonZero(content) == content.size:
        return content
    # thin strokes are content, single pixels are specks
    around = cv2.boxFilter(np.minimum(content, 1), -1, (5, 5), normalize=False)
    kept = (content > 0) & (around >= FILL_SPECK)
    rows = np.flatnonzero(kept.any(axis=1))
    hull = np.zeros_like(content)
    if len(rows):
        # the outermost points of every row have the same hull as all points
        first = kept[rows].argmax(axis=1)
        last = kept.shape[1] - 1 - kept[rows, ::-1].argmax(axis=1)
        ends = np.concatenate([np.stack([first, rows], 1), np.stack([last, rows], 1)])
        cv2.fillConvexPoly(hull, cv2.convexHull(ends.astype(np.int32)), 255)
    return hull if cv2.countNonZero(hull) >= FILL_LEAVES * hull.size else np.full_like(hull, 255)


@dataclass(frozen=True, slots=True)
class Placement:
    """Position and size of the frame of two images."""

    to_frame: Matrix  # matrix from the reference's unit coordinates to the frame's
    size: tuple[int, int]  # width and height of the frame, pixels
    corners: Float32  # of the query, in unit coordinates of the reference, float32 (4, 2)

    @classmethod
    def of(
        cls, query: tuple[int, int], reference: tuple[int, int], matrix: Matrix, side: int
    ) -> Placement | None:
        """Return the placement for two images (height, width), ``None`` with next to no overlap.

        ``side``: largest long side of the frame, pixels.
        """
        corners = _corners(matrix)
        area = abs(float(np.linalg.det(jacobian(matrix))))
        left, top = np.clip(corners.min(axis=0), 0, 1)
        right, bottom = np.clip(corners.max(axis=0), 0, 1)
        if right - left < 1e-3 or bottom - top < 1e-3:
            return None
        height, width = reference
        # pixels of the reference per pixel of the query
        coarser = math.sqrt(area * (width * height) / (query[0] * query[1]))
        across, down = (right - left) * width, (bottom - top) * height
        fine = min(1 / max(1.0, coarser), side / max(across, down))
        size = (max(MIN_SIDE, round(across * fine)), max(MIN_SIDE, round(down * fine)))
        to_frame = np.array(
            [
                [1 / (right - left), 0, -left / (right - left)],
                [0, 1 / (bottom - top), -top / (bottom - top)],
                [0, 0, 1.0],
            ]
        )
        return cls(to_frame, size, corners)


def common_frame(query: Photo, reference: Photo, matrix: Matrix) -> Frame | None:
    """Return the overlap of two images under a relation, ``None`` if it is too small."""
    place = Placement.of(query.pixels.shape[:2], reference.pixels.shape[:2], matrix, SIDE)
    if place is None:
        return None
    ours, theirs, mask = warp_both(
        (query.pixels, reference.pixels), (query.content, reference.content), matrix, place
    )
    if mask is None:
        return None
    corners = place.corners.astype(np.float64)
    shared, query_area = area_of(clipped_to(corners, WHOLE)), max(area_of(corners), 1e-9)
    used = min(1.0, shared / query_area)
    return Frame(ours, theirs, mask, place.to_frame, min(1.0, shared), used)


def warp_both(
    planes: tuple[npt.NDArray[Level], npt.NDArray[Level]],
    contents: tuple[Bytes8, Bytes8],
    matrix: Matrix,
    place: Placement,
) -> tuple[Float32, Float32, Bool | None]:
    """Return query and reference in their frame, and the mask of the content of both.

    ``planes``: grey (h, w) or RGB (h, w, 3) of both. The mask is ``None`` if it is too small.
    """
    theirs, whole = warped(planes[1], contents[1], place.to_frame, place.size)
    ours, part = warped(planes[0], contents[0], place.to_frame @ matrix, place.size)
    mask = (whole >= INSIDE) & (part >= INSIDE)
    enough = max(COVERED * mask.size, MIN_SIDE * MIN_SIDE / 2)
    return ours, theirs, np.asarray(mask) if np.count_nonzero(mask) >= enough else None


def common_extent(place: Placement) -> Bool:
    """Return the mask of both images in a frame, including their margins, (h, w)."""
    width, height = place.size
    corners = place.corners @ place.to_frame[:2, :2].T + place.to_frame[:2, 2]
    # far enough outside, without integer overflow
    corners = np.rint(np.clip(corners, -9, 9) * (width, height)).astype(np.int32)
    canvas = np.zeros((height, width), np.uint8)
    return np.asarray(cv2.fillConvexPoly(canvas, corners, 1) > 0)


def _corners(matrix: Matrix) -> Float32:
    """Return the corners of the query (4, 2) in the reference, in order around it."""
    corners = matrix @ np.array([[0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1.0]])
    return np.asarray((corners[:2] / corners[2]).T, np.float32)


def warped(
    pixels: npt.NDArray[Level],
    content: Bytes8,
    matrix: Matrix,
    size: tuple[int, int],
) -> tuple[Float32, Bytes8]:
    """Return an image and its mask of content in a frame of (width, height) pixels."""
    height, width = content.shape
    area = abs(float(np.linalg.det(jacobian(matrix)))) * size[0] * size[1]
    shrink = math.sqrt(width * height / max(area, 1e-6))
    if shrink > 1.1:
        # averaged first, because the warp only reads the four nearest pixels
        smaller = (max(1, round(width / shrink)), max(1, round(height / shrink)))
        pixels = np.asarray(cv2.resize(pixels, smaller, interpolation=cv2.INTER_AREA), pixels.dtype)
        content = np.asarray(cv2.resize(content, smaller, interpolation=cv2.INTER_AREA), np.uint8)
        height, width = content.shape
    there = unit_to_pixels(*size) @ matrix @ inverse(unit_to_pixels(width, height))
    found = cv2.warpPerspective(
        pixels, there, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    inside = cv2.warpPerspective(content, there, size, flags=cv2.INTER_LINEAR)
    return np.asarray(found, np.float32), np.asarray(inside, np.uint8)
