"""The detail that two aligned images share, by level of a Laplacian pyramid.

A processed copy shares the fine texture of its source unless the processing removed it. Two images
of similar subjects (X-rays, steel plates, leaves) share coarse shapes and long edges, which many
relations align, but no texture. Correlation is therefore measured on derivatives along the weaker
direction of each window, where a straight edge has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bool, Float32, Float64

#: Side of a window in pixels of its level, and smallest share of it inside the mask.
WINDOW: Final = 12
COVERED: Final = 0.6
#: Energy of gradients due to compression and sensor noise at each level, grey levels squared per
#: pixel squared; its length is the number of levels.
NOISE: Final = (1.2, 0.5, 0.3)
#: Levels of the pyramid for agreement and contradiction: copies lose the finest one first.
JUDGED: Final = (1, 2)
#: Smallest energy of windows with contrast, as a share of that of the strongest windows, and
#: correlation below which they contradict.
MATTERS: Final = 0.15
CONTRADICTS: Final = 0.35
#: Largest energy of the details of a plain window, levels squared.
PLAIN: Final = 0.1

_THREE: Final = np.ones((3, 3), np.uint8)


@dataclass(frozen=True, slots=True)
class Detail:
    """The detail that two images share; the fields are fields of ``Measures``."""

    # sum of the correlations of windows, in units of its standard deviation for unrelated images,
    # the largest of all levels
    amount: float = 0.0
    # upper quartile of the correlations of windows by weight, the larger of two levels
    matched: float = 0.0
    # share of the windows with contrast that contradict, mean of two levels, 0..1
    opposed: float = 0.0
    windows: float = 0.0  # number of windows with texture in both images, the largest of all levels
    # share of the windows of the finest level with texture, 0..1: high for photographs, low for
    # pages
    textured: float = 0.0


def shared_detail(query: Float32, reference: Float32, mask: Bool) -> Detail:
    """Return the detail that two grey images (h, w) in one frame share inside a mask."""
    return detail_of(windows_of(query, reference, mask))


def detail_of(windows: Sequence[Float64], noise: Sequence[float] = NOISE) -> Detail:
    """Return the detail shared in the windows of each level, given the noise of the levels."""
    levels = [_level(level, own) for level, own in zip(windows, noise, strict=False)]
    if not levels:
        return Detail()
    judged = [levels[number] for number in JUDGED if number < len(levels)] or levels
    return Detail(
        amount=max(level.amount for level in levels),
        matched=max(level.matched for level in judged),
        opposed=sum(level.opposed for level in judged) / len(JUDGED),
        windows=max(level.windows for level in levels),
        textured=levels[0].textured,
    )


def windows_of(query: Float32, reference: Float32, mask: Bool) -> list[Float64]:
    """Return the structure tensors (3, 3, n) of the windows of each level, finest first.

    First axis: query with query, reference with reference, query with reference. Second axis:
    across-across, across-down (symmetric), down-down.
    """
    found: list[Float64] = []
    inside = mask.astype(np.float32)
    # no edge at the border of the mask
    ours, theirs = np.where(mask, query, reference), reference
    while len(found) < len(NOISE) and min(ours.shape) >= 2 * WINDOW:
        smaller = [np.asarray(cv2.pyrDown(plane), np.float32) for plane in (ours, theirs, inside)]
        size = (ours.shape[1], ours.shape[0])
        weight = cv2.erode((inside > 0.99).astype(np.uint8), _THREE).astype(np.float32)
        details = [
            np.asarray((plane - cv2.pyrUp(coarse, dstsize=size)) * weight, np.float32)
            for plane, coarse in ((ours, smaller[0]), (theirs, smaller[1]))
        ]
        if not found:
            # single pixels are noise
            details = [np.asarray(cv2.blur(plane, (2, 2)), np.float32) for plane in details]
        tensors = _tensors(details[0], details[1], weight)
        if tensors.shape[2] < 4:
            break
        found.append(tensors)
        ours, theirs, inside = smaller
    return found


def _tensors(ours: Float32, theirs: Float32, weight: Float32) -> Float64:
    """Return structure tensors of windows (3, 3, n): means of products of gradients."""
    (ax, ay), (bx, by) = (
        [
            np.asarray(cv2.Sobel(plane, -1, *along, scale=0.25), np.float32)
            for along in ((1, 0), (0, 1))
        ]
        for plane in (ours, theirs)
    )
    share = _window_means(weight)
    enough = share > COVERED

    def means(*products: npt.NDArray[np.floating]) -> Float64:
        rows = [_window_means(product * weight)[enough] / share[enough] for product in products]
        return np.stack(rows).astype(np.float64)

    own, others = means(ax * ax, ax * ay, ay * ay), means(bx * bx, bx * by, by * by)
    return np.stack([own, others, means(ax * bx, (ax * by + ay * bx) / 2, ay * by)])


def plain_share(grey: Float32) -> float:
    """Return the share of a grey image (h, w) without any detail, 0..1.

    It is next to 0 for photographs; paper and solid areas of renderings are plain.
    """
    details = grey - np.asarray(cv2.GaussianBlur(grey, (0, 0), 2.0), np.float32)
    if min(grey.shape) < WINDOW:
        return float((details * details).mean() < PLAIN)
    return float((_window_means(details * details) < PLAIN).mean())


def _window_means(plane: npt.NDArray[np.floating]) -> Float32:
    rows, columns = plane.shape[0] // WINDOW, plane.shape[1] // WINDOW
    cut = plane[: rows * WINDOW, : columns * WINDOW]
    return np.asarray(cv2.resize(cut, (columns, rows), interpolation=cv2.INTER_AREA), np.float32)


def _level(windows: Float64, noise: float) -> Detail:
    ours, theirs, both = along_weaker_direction(windows)
    correlation = both / np.sqrt((ours + noise) * (theirs + noise))
    fainter = np.minimum(ours, theirs)
    weight = fainter / (fainter + noise)
    total = float(weight.sum())
    order = np.argsort(correlation, kind="stable")
    place = np.searchsorted(np.cumsum(weight[order]) / (total + 1e-6), 0.75)
    return Detail(
        amount=float(weight @ correlation) / float(np.sqrt(weight @ weight + 0.05)),
        matched=float(correlation[order][min(int(place), len(order) - 1)]),
        opposed=_opposed(windows, noise),
        windows=total,
        textured=total / len(weight),
    )


def along_weaker_direction(tensors: Float64) -> tuple[Float64, Float64, Float64]:
    """Return both energies and the product of derivatives along each window's weaker direction."""
    joint = sum(tensor / (tensor[0] + tensor[2] + 1e-3) for tensor in tensors[:2])
    angle = 0.5 * np.arctan2(2 * joint[1], joint[0] - joint[2]) + np.pi / 2
    across, down = np.cos(angle), np.sin(angle)
    ours, theirs, both = (
        across * across * tensor[0] + 2 * across * down * tensor[1] + down * down * tensor[2]
        for tensor in tensors
    )
    return ours, theirs, both


def _opposed(windows: Float64, noise: float) -> float:
    """Return the share of the windows with contrast in both images that contradict."""
    ours, theirs, both = windows[:, 0] + windows[:, 2]
    fainter = np.minimum(ours, theirs)
    matters = fainter > max(MATTERS * float(np.percentile(fainter, 90)), 2 * noise)
    correlation = both / np.sqrt((ours + 2 * noise) * (theirs + 2 * noise))
    return float((matters & (correlation < CONTRADICTS)).sum()) / (float(matters.sum()) + 0.5)
