"""Hard negatives made of photographs: similar pairs that are not of the same shot.

Five kinds, each drawn with a seed of its kind and number, so that equal photographs give equal
pairs:

- ``parallax``: another shot of the scene. The camera moved sideways (parallax of 2-8 % of the
  width) and turned by up to 2 degrees, and the light changed.
- ``stereo``: both images of the stereo pair that ships with scikit-image, in several crops.
- ``motion``: the next frame of a burst. Two to four objects moved by 3-10 % of the width, and the
  camera moved slightly.
- ``apart``: two crops of one photograph that overlap by at most 5 % of their area.
- ``backdrop``: another object in front of the same backdrop: the centre of another photograph over
  25-60 % of the area, the border shared.

Photographs with a caption, a logo or a frame are near pairs, and not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.floating[Any]]

KINDS = ("parallax", "stereo", "motion", "apart", "backdrop")

#: Number of crops of the one real stereo pair.
STEREO_CROPS = 12


@dataclass(frozen=True)
class HardNegative:
    """A pair that is not near.

    Attributes:
        query, reference: RGB ``uint8`` images.
        kind: one of ``KINDS``.
        source: position of the photograph that it was made of, -1 for the stereo pair.
    """

    query: Image
    reference: Image
    kind: str
    source: int


def hard_negatives(photographs: Sequence[Image], *, seed: int = 0) -> list[HardNegative]:
    """Return one pair of every kind per photograph, and crops of the stereo pair.

    Args:
        photographs: RGB ``uint8``; those with a short side below 64 pixels are skipped.
        seed: of the draws.
    """
    pairs = []
    for number, picture in enumerate(photographs):
        if min(picture.shape[:2]) < 64:
            continue
        other = photographs[(number + 1) % len(photographs)]
        rng = np.random.default_rng([seed, number])
        for kind, make in (("parallax", parallax), ("motion", motion)):
            pairs.append(HardNegative(make(picture, rng), picture, kind, number))
        pairs.append(HardNegative(*apart(picture, rng), "apart", number))
        pairs.append(HardNegative(backdrop(picture, other, rng), picture, "backdrop", number))
    return pairs + stereo(np.random.default_rng([seed, len(KINDS)]))


def parallax(picture: Image, rng: np.random.Generator) -> Image:
    """Return the scene from a slightly different point, in another light.

    The depth is a slope with a smooth random field, and one to three near objects before it.
    """
    height, width = picture.shape[:2]
    size = (width, height)
    slope = np.linspace(0, 1, height, dtype=np.float32)[:, None] * np.ones(width, np.float32)
    depth = 0.4 * slope + 0.3 * _smooth(rng, size, 0.25)
    for _ in range(rng.integers(1, 4)):
        depth = np.maximum(depth, _blob(rng, size, 0.15, 0.35) * rng.uniform(0.7, 1.0))
    depth -= depth.mean()
    angle, reach = rng.uniform(0, 2 * np.pi), rng.uniform(0.02, 0.08) * width
    moved = _displaced(picture, depth * reach * np.cos(angle), depth * reach * np.sin(angle) * 0.5)
    return _relit(_turned(moved, rng, 2.0), rng)


def motion(picture: Image, rng: np.random.Generator) -> Image:
    """Return the next frame of a burst: objects moved, and the camera shook."""
    height, width = picture.shape[:2]
    size = (width, height)
    across, down = (0.01 * width * _smooth(rng, size, 0.3) for _ in range(2))
    for _ in range(rng.integers(2, 5)):
        blob = _blob(rng, size, 0.2, 0.35)
        angle, reach = rng.uniform(0, 2 * np.pi), rng.uniform(0.03, 0.10) * width
        across, down = across + blob * reach * np.cos(angle), down + blob * reach * np.sin(angle)
    return _turned(_displaced(picture, across, down), rng, 1.0)


def apart(picture: Image, rng: np.random.Generator) -> tuple[Image, Image]:
    """Return two crops of a photograph with a common strip of at most 5 %."""
    along = rng.integers(2)
    length = picture.shape[along]
    share = rng.uniform(0, 0.05)
    # two crops of length c with an overlap of share * c fill the image: c (2 - share) = length
    crop = int(length / (2 - share))
    first, second = np.s_[:crop], np.s_[length - crop :]
    if along == 0:
        return picture[first].copy(), picture[second].copy()
    return picture[:, first].copy(), picture[:, second].copy()


def backdrop(picture: Image, other: Image, rng: np.random.Generator) -> Image:
    """Return a photograph with the centre of another one on 25-60 % of its area."""
    height, width = picture.shape[:2]
    side = float(np.sqrt(rng.uniform(0.25, 0.6)))
    h, w = int(side * height), int(side * width)
    top = int((height - h) * rng.uniform(0.3, 0.7))
    left = int((width - w) * rng.uniform(0.3, 0.7))
    oh, ow = other.shape[:2]
    centre = other[oh // 8 : oh - oh // 8, ow // 8 : ow - ow // 8]
    mask = np.zeros((height, width), np.float32)
    mask[top : top + h, left : left + w] = 1
    mask = cv2.GaussianBlur(mask, (0, 0), 0.01 * width)[..., None]
    object_ = np.zeros_like(picture)
    object_[top : top + h, left : left + w] = cv2.resize(
        centre, (w, h), interpolation=cv2.INTER_AREA
    )
    return np.clip(np.rint(picture * (1 - mask) + object_ * mask), 0, 255).astype(np.uint8)


def stereo(rng: np.random.Generator) -> list[HardNegative]:
    """Return crops of both images of a real stereo pair (Middlebury 2014, "Motorcycle")."""
    from skimage import data

    left, right, _ = data.stereo_motorcycle()
    pairs = []
    height, width = left.shape[:2]
    for number in range(STEREO_CROPS):
        share = 1.0 if number == 0 else rng.uniform(0.5, 0.9)
        h, w = int(share * height), int(share * width)
        y, x = rng.integers(height - h + 1), rng.integers(width - w + 1)
        window = np.s_[y : y + h, x : x + w]
        pairs.append(HardNegative(left[window].copy(), right[window].copy(), "stereo", -1))
    return pairs


def _smooth(rng: np.random.Generator, size: tuple[int, int], grain: float) -> Plane:
    """Return a smooth random field (h, w) of deviation 1; ``grain`` is a share of the sides."""
    cells = max(3, round(1 / grain) + 1)
    coarse = rng.normal(size=(cells, cells)).astype(np.float32)
    field = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)
    return np.asarray((field - field.mean()) / field.std())


def _blob(rng: np.random.Generator, size: tuple[int, int], least: float, most: float) -> Plane:
    """Return 1 in an ellipse (radii: shares of the sides) and 0 outside, with a soft edge."""
    width, height = size
    x, y = rng.uniform(0.2, 0.8, 2)
    across, down = rng.uniform(least, most, 2)
    xs, ys = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    distance = np.hypot((xs - x) / across, (ys - y) / down)
    return np.asarray(np.clip((1 - distance) / 0.1, 0, 1), np.float32)


def _displaced(picture: Image, across: Plane, down: Plane) -> Image:
    """Return an image with its content moved right and down, in pixels."""
    height, width = picture.shape[:2]
    xs, ys = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    there = ((xs - across).astype(np.float32), (ys - down).astype(np.float32))
    return np.asarray(
        cv2.remap(picture, *there, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT), np.uint8
    )


def _turned(picture: Image, rng: np.random.Generator, most: float) -> Image:
    """Return an image turned by up to ``most`` degrees, scaled by up to 2 % and moved by 2 %."""
    height, width = picture.shape[:2]
    turn = cv2.getRotationMatrix2D(
        ((width - 1) / 2, (height - 1) / 2), rng.uniform(-most, most), rng.uniform(0.98, 1.02)
    )
    turn[:, 2] += rng.uniform(-0.02, 0.02, 2) * (width, height)
    return np.asarray(
        cv2.warpAffine(picture, turn, (width, height), borderMode=cv2.BORDER_REFLECT), np.uint8
    )


def _relit(picture: Image, rng: np.random.Generator) -> Image:
    """Return an image with a light gradient and another exposure."""
    height, width = picture.shape[:2]
    gain = rng.uniform(0.85, 1.15) + 0.05 * _smooth(rng, (width, height), 0.3)
    lit = picture * gain[..., None] + rng.uniform(-12, 12)
    return np.clip(np.rint(lit), 0, 255).astype(np.uint8)
