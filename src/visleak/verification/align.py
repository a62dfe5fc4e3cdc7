"""Alignment of two images by correlation: the geometric relation of query and reference.

Relations are 3 x 3 matrices from the query to the reference in unit coordinates: x right, y down,
the image is [0, 1] x [0, 1] for any aspect ratio.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import VIEWS, Bool, Bytes8, Float32

Matrix = npt.NDArray[np.floating]

# OpenCV's type hints lack the calls without a mask
_cv: Any = cv2
#: Enhanced correlation (Evangelidis & Psarakis 2008) ends after these steps or below this change.
STEPS: Final = 12
CHANGE: Final = 2e-3
FRAME_STEPS: Final = 20
FRAME_CHANGE: Final = 2e-4
#: Blur (pixels) before two squares are aligned.
BLUR: Final = 0.7
#: Standard deviation of grey values (levels) below which an image is not located within another.
BLANK: Final = 1.0
#: Bounds of plausible relations: scale, stretch, shift of the centre.
SCALES: Final = (0.55, 1.8)
STRETCH: Final = 0.5
SHIFT: Final = 0.45
#: Largest movement of a corner by refinement in a frame, as a share of the sides.
FRAME_MOVE: Final = 0.12


@cache
def view_matrix(view: int) -> Matrix:
    """Return the matrix from an image to its view, in unit coordinates; read-only.

    >>> view_matrix(VIEWS.index("mirror")) @ np.array([0.2, 0.3, 1.0])
    array([0.8, 0.3, 1. ])
    """
    matrix = np.eye(3)
    if VIEWS[view] != "inverted":
        if view >= VIEWS.index("mirror"):
            matrix = np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]])
        clockwise = np.array([[0.0, -1, 1], [1, 0, 0], [0, 0, 1]])
        for _ in range(view % 4):
            matrix = clockwise @ matrix
    matrix.flags.writeable = False
    return matrix


def shift_matrix(across: float, down: float) -> Matrix:
    """Return the matrix of a shift by shares of the width and height."""
    return np.array([[1.0, 0, across], [0, 1, down], [0, 0, 1]])


def inverse(matrix: Matrix) -> Matrix:
    """Return the inverse of an affine matrix, written out for speed."""
    (a, b, x), (c, d, y) = matrix[:2].tolist()
    area = a * d - b * c
    a, b, c, d = d / area, -b / area, -c / area, a / area
    return np.array([[a, b, -a * x - b * y], [c, d, -c * x - d * y], [0.0, 0.0, 1.0]])


def warp(square: npt.NDArray[np.float32], matrix: Matrix) -> npt.NDArray[np.float32]:
    """Return a square image (s, s, ..) warped by an affine relation, edges replicated."""
    return warp_to_square(square, matrix, square.shape[0])


def warp_to_square(pixels: Float32, matrix: Matrix, side: int) -> Float32:
    """Return an image (h, w, ..) warped by an affine relation onto a square (side, side, ..).

    Values are interpolated once for any size of the image; edges are replicated.
    """
    height, width = pixels.shape[:2]
    back = unit_to_pixels(width, height) @ inverse(matrix) @ _square_units(side)[1]
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size = (side, side)
    moved = cv2.warpAffine(pixels, back[:2], size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, np.float32)


def coverage(matrices: Matrix, side: int) -> npt.NDArray[np.float32]:
    """Return 1 where warped queries cover their references' squares, else 0, (n, side, side)."""
    back = np.array([inverse(matrix)[:2] for matrix in matrices])
    centres = (np.arange(side) + 0.5) / side
    coefficients = back[..., None, None]
    place = coefficients[:, :, 1] * centres[:, None] + coefficients[:, :, 2]
    place = place + coefficients[:, :, 0] * centres
    inside = ((place >= 0) & (place <= 1)).all(axis=1)
    return np.asarray(inside, np.float32)


def by_correlation(query: Float32, reference: Float32, start: Matrix) -> Matrix:
    """Return the affine relation found by correlation, or the start if none was found."""
    found = refine(blurred(query), blurred(reference), start)
    return start if found is None else found


def blurred(grey: Float32, pixels: float = BLUR) -> Float32:
    """Return a grey image slightly blurred, so that noise does not affect its alignment."""
    return np.asarray(cv2.GaussianBlur(grey, (0, 0), pixels), np.float32)


def refine(
    query: Float32, reference: Float32, start: Matrix, steps: int = STEPS, mask: Bool | None = None
) -> Matrix | None:
    """Return the affine relation near ``start`` with the highest correlation, or ``None``."""
    to_pixels, to_units = _square_units(query.shape[0])
    back = (to_pixels @ inverse(start) @ to_units)[:2].astype(np.float32)
    pixels = _correlated(reference, query, back, (steps, CHANGE), mask)
    if pixels is None:
        return None
    area = pixels[0, 0] * pixels[1, 1] - pixels[0, 1] * pixels[1, 0]
    if abs(area) < 1e-3:
        return None
    matrix = inverse(to_units @ pixels @ to_pixels)
    return matrix if is_plausible(matrix, start) else None


def refine_frame(
    query: Float32, reference: Float32, mask: Bool, *, perspective: bool = False
) -> Matrix | None:
    """Return the small move of the query with the highest correlation, or ``None``."""
    height, width = mask.shape
    smooth = [
        np.asarray(cv2.GaussianBlur(grey, (0, 0), 1.0), np.float32) for grey in (query, reference)
    ]
    begin = np.eye(3 if perspective else 2, 3, dtype=np.float32)
    pixels = _correlated(smooth[1], smooth[0], begin, (FRAME_STEPS, FRAME_CHANGE), mask)
    if pixels is None or abs(np.linalg.det(pixels)) < 0.1:
        return None
    to_pixels = unit_to_pixels(width, height)
    move = np.asarray(np.linalg.inv(inverse(to_pixels) @ pixels @ to_pixels))
    return move / move[2, 2] if _is_small(move) else None


def _correlated(
    template: Float32, image: Float32, begin: Float32, ends: tuple[int, float], mask: Bool | None
) -> Matrix | None:
    """Return the matrix in pixels, of the kind of ``begin``, with the highest correlation."""
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, *ends)
    motion = cv2.MOTION_HOMOGRAPHY if len(begin) == 3 else cv2.MOTION_AFFINE
    valid = None if mask is None else mask.astype(np.uint8)
    try:
        _, found = _cv.findTransformECC(template, image, begin, motion, criteria, valid, 1)
    except cv2.error:
        # no texture in the overlap, or no convergence
        return None
    pixels = np.eye(3)
    pixels[: len(begin)] = found
    return pixels if np.isfinite(pixels).all() else None


def _is_small(move: Matrix) -> bool:
    """Whether all corners of a frame move little, and none through infinity."""
    corners = np.array([[0, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1.0]])
    there = move @ corners
    if (there[2] * np.sign(move[2, 2]) < 0.2 * abs(move[2, 2])).any():
        return False
    return bool(np.abs(there[:2] / there[2] - corners[:2]).max() <= FRAME_MOVE)


def locate(query: Bytes8, reference: Bytes8, view: Matrix | None = None) -> Matrix | None:
    """Return the shift by whole pixels at which one image correlates best within the other.

    ``None`` if neither image fits into the other, or the smaller one is blank.

    Args:
        query, reference: the images at one scale.
        view: relation of the view in which the query is searched.
    """
    turned, to_pixels = _turned(query, np.eye(3) if view is None else view)
    spare = np.subtract(reference.shape[:2], turned.shape[:2])
    if spare.min() * spare.max() < 0:
        return None
    sides = [cv2.cvtColor(side, cv2.COLOR_RGB2GRAY) for side in (turned, reference)]
    larger, smaller = sides if spare.min() < 0 else sides[::-1]
    if smaller.std() < BLANK:
        return None
    found = cv2.matchTemplate(larger, smaller, cv2.TM_CCOEFF_NORMED)
    down, across = divmod(int(found.argmax()), found.shape[1])
    sign = -1 if spare.min() < 0 else 1
    shift = shift_matrix(sign * across, sign * down)
    height, width = reference.shape[:2]
    return np.asarray(inverse(unit_to_pixels(width, height)) @ shift @ to_pixels)


def _turned(query: Bytes8, view: Matrix) -> tuple[Bytes8, Matrix]:
    """Return an image in a view, and the matrix from unit coordinates to its pixels."""
    height, width = query.shape[:2]
    size = (width, height) if view[0, 0] != 0 else (height, width)
    to_pixels = unit_to_pixels(*size) @ view
    if np.array_equal(view, np.eye(3)):
        return query, to_pixels
    pixels = to_pixels @ inverse(unit_to_pixels(width, height))
    turned = cv2.warpAffine(query, pixels[:2], size, flags=cv2.INTER_NEAREST)
    return np.asarray(turned, np.uint8), to_pixels


def jacobian(matrix: Matrix) -> Matrix:
    """Return the (2, 2) Jacobian of a relation at the centre of the query."""
    x, y, z = matrix @ np.array([0.5, 0.5, 1.0])
    return np.asarray((matrix[:2, :2] - np.outer([x / z, y / z], matrix[2, :2])) / z)


def is_plausible(matrix: Matrix, start: Matrix) -> bool:
    """Whether a relation is a moderate change of ``start``."""
    (a, b, x), (c, d, y) = (matrix @ inverse(start))[:2].tolist()
    scale = math.sqrt(abs(a * d - b * c))
    if not SCALES[0] <= scale <= SCALES[1]:
        return False
    stretch = math.hypot(a / scale - 1, b / scale, c / scale, d / scale - 1)
    centre = max(abs((a + b) / 2 + x - 0.5), abs((c + d) / 2 + y - 0.5))
    return stretch <= STRETCH and centre <= SHIFT


def unit_to_pixels(width: int, height: int) -> Matrix:
    """Return the matrix from unit coordinates to pixels, whose centres are whole numbers."""
    return np.array([[width, 0, -0.5], [0, height, -0.5], [0, 0, 1.0]])


@cache
def _square_units(side: int) -> tuple[Matrix, Matrix]:
    """Return the matrices from unit coordinates to pixels of a square, and back."""
    to_pixels = unit_to_pixels(side, side)
    return to_pixels, inverse(to_pixels)
