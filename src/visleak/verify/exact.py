"""Whether two pictures are, almost everywhere, the same pixels."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from visleak.records import Bytes8

#: What `exact` allows (DESIGN: almost all pixels approximately identical).
EXACT_LEVELS: Final = 16
EXACT_SHARE: Final = 0.95
EXACT_MEAN: Final = 3.0
EXACT_TILE: Final = 24.0
TILES: Final = 8


def exactly_alike(query: Bytes8, reference: Bytes8) -> bool:
    """Whether almost all pixels of two pictures of one size are approximately identical.

    That is, at least 95 % of the pixels within 16/255 in every channel, a mean difference of at
    most 3/255, and no tile of 1/64 of the picture over 24/255 (after Barz & Denzler 2020, grade
    "exact"; this project's constants).
    """
    if query.shape != reference.shape:
        return False
    if cv2.norm(query, reference, cv2.NORM_L1) > EXACT_MEAN * query.size:
        return False
    difference = cv2.absdiff(query, reference)
    if (difference.max(axis=2) <= EXACT_LEVELS).mean() < EXACT_SHARE:
        return False
    mean = difference.mean(axis=2, dtype=np.float32)
    height, width = mean.shape
    down = np.unique(np.linspace(0, height, min(TILES, height) + 1).astype(int))[:-1]
    across = np.unique(np.linspace(0, width, min(TILES, width) + 1).astype(int))[:-1]
    sums = np.add.reduceat(np.add.reduceat(mean, down, axis=0), across, axis=1)
    sizes = np.diff(np.append(down, height))[:, None] * np.diff(np.append(across, width))[None, :]
    return bool((sums / sizes).max() <= EXACT_TILE)
