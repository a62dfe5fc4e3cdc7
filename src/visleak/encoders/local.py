"""Local features of one image: a second way to find candidates, where global fingerprints fail.

An image that was cropped hard, turned by any angle or pasted into another one still shares small
patches with its source. SIFT (Lowe, "Distinctive image features from scale-invariant keypoints",
IJCV 2004) describes such patches independently of turn and scale. It is not independent of
mirroring nor of inversion, but both merely permute the 128 coordinates of a descriptor, so that
:func:`view_features` makes the features of a mirrored or inverted image without decoding it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.groups import rank_within
from visleak.records import VIEWS, Bytes8, Float32

SMALLEST: Final = 96  # images whose short side has fewer pixels have no local features
BOUND: Final = 256  # the long side, in pixels, an image is bounded to before features are computed
MOST: Final = 250  # the most features kept of one image
#: Features are kept evenly from this many by this many parts of the image. The strongest of all
#: would sit on the letters of an overlay, or in one quarter of a collage.
_PARTS: Final = 4
#: Low, because the strongest are kept anyway: an image tinted red has a third of the contrast.
CONTRAST: Final = 0.01
#: Text that changes whenever any feature could change.
DIGEST: Final = f"sift-1-bound{BOUND}-most{MOST}-contrast{CONTRAST}-parts{_PARTS}"


@dataclass(frozen=True)
class LocalFeatures:
    """The local features of one image: the strongest of each part first."""

    descriptors: Bytes8  # uint8 (n, 128): square-rooted SIFT descriptors of length about 512
    # float32 (n, 4): x and y of the patch's centre in pixels of the bounded image (x right, y down,
    # the centre of the first pixel is 0, 0), scale (diameter in the same pixels), angle (degrees in
    # [0, 360), clockwise from the x axis)
    keypoints: Float32
    width: int  # size of the bounded image in pixels
    height: int

    def __len__(self) -> int:
        return len(self.descriptors)


def local_features(
    image: Bytes8,
    *,
    smallest: int = SMALLEST,
    bound: int = BOUND,
    most: int = MOST,
    contrast: float = CONTRAST,
) -> LocalFeatures:
    """Return the SIFT features of an image, the strongest of each part of it.

    The result depends on the pixels alone, not on the number of threads OpenCV uses.

    >>> blank = np.zeros((120, 160, 3), np.uint8)
    >>> local_features(blank).descriptors.shape
    (0, 128)
    """
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    shrink = bound / max(grey.shape)
    if shrink < 1:
        size = [max(1, round(side * shrink)) for side in grey.shape[::-1]]
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    height, width = grey.shape
    if min(image.shape[:2]) < smallest:
        return _without_features(width, height)
    # Without precise upscaling the first octave is half a pixel off, and the features of a
    # mirrored image would not be the mirrored features.
    sift = cv2.SIFT.create(contrastThreshold=contrast, enable_precise_upscale=True)
    found, raw = sift.detectAndCompute(grey, None)
    if not found:
        return _without_features(width, height)
    keypoints = np.array([(*k.pt, k.size, k.angle) for k in found], np.float32).reshape(-1, 4)
    response = np.array([k.response for k in found], np.float32)
    order = _spread(keypoints, response, width, height)[:most]
    keypoints[:, 3] %= 360
    kept = np.asarray(raw, np.float32)[order]
    return LocalFeatures(_square_rooted(kept), keypoints[order], width, height)


def _spread(
    keypoints: Float32, response: Float32, width: int, height: int
) -> npt.NDArray[np.int64]:
    """Return an order: the strongest feature of every part, then the second; ties by keypoint."""
    order = np.lexsort((*keypoints.T, -response))
    size = np.array([width, height], np.float32)
    cells = np.clip((keypoints[order, :2] + 0.5) * _PARTS / size, 0, _PARTS - 1).astype(np.int64)
    part = cells[:, 0] * _PARTS + cells[:, 1]
    return np.asarray(order[np.argsort(rank_within(part), kind="stable")])


def _without_features(width: int, height: int) -> LocalFeatures:
    return LocalFeatures(np.zeros((0, 128), np.uint8), np.zeros((0, 4), np.float32), width, height)


def _square_rooted(raw: Float32) -> Bytes8:
    """Return RootSIFT (Arandjelovic & Zisserman, CVPR 2012) as ``uint8``: length 512, capped."""
    total = np.maximum(raw.sum(axis=1, keepdims=True, dtype=np.float64), 1.0)
    return np.asarray(np.minimum(np.rint(512 * np.sqrt(raw / total)), 255), np.uint8)


def view_features(
    descriptors: Bytes8, keypoints: Float32, widths: int | npt.NDArray[np.int32], view: int
) -> tuple[Bytes8, Float32]:
    """Return the features that the mirrored or the inverted image would have, up to rounding.

    Turns need no view: SIFT is independent of them, and ``mirror`` finds all four mirrored views.
    """
    name = VIEWS[view]
    if name == "original":
        return descriptors, keypoints
    if name not in _SOURCES:
        raise ValueError(f"view must be original, mirror or inverted; got {name}")
    x, y, scale, angle = keypoints.T
    if name == "mirror":
        x = (widths - 1) - x
        angle = (180 - angle) % 360
    else:
        angle = (angle + 180) % 360
    moved = np.stack([x, y, scale, angle], axis=1).astype(np.float32)
    return np.take(descriptors, _SOURCES[name], axis=1), moved


def _sources() -> Mapping[str, npt.NDArray[np.int64]]:
    """Return, for each view, which coordinate of the descriptor each of the 128 comes from.

    They are 4 rows of 4 cells of 8 directions, in the frame of the keypoint's angle. A mirror flips
    the axis across that angle and the sign of the directions. Inversion turns all gradients, and
    with them the frame, by half a turn: the directions stay, the cells are reflected in the centre.
    """
    cells = np.arange(128).reshape(4, 4, 8)
    signs = -np.arange(8) % 8
    return {"mirror": cells[::-1, :, signs].reshape(-1), "inverted": cells[::-1, ::-1].reshape(-1)}


_SOURCES: Final = _sources()
