"""Markings on registered images (stamps, highlights), detected by a second network.

The network of :mod:`alteration` has a field of view of 40 pixels and no colours: it takes a stamp
for other content and hardly detects a mark that moved. This network classifies cells by colours and
up to 120 pixels around them: other content, or a marking on the query or the reference. A stamp is
on one image only; a mark that moved is on both. The network was trained on rendered documents and
on copies of photographs by ``benchmarks/fit_laid_over.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from visleak.records import Bool, Float32
from visleak.verification import networks
from visleak.verification.alteration import (
    CELL,
    MAX_LOG_ODDS,
    boxes_of,
    enlarged,
    masked,
    normalized_planes,
    smooth,
)
from visleak.verification.regions import Box

#: Least log-odds of a marking that gets a box.
MARKED_FROM: Final = 1.0
#: Sides of the network input are multiples of this, pixels.
MULTIPLE: Final = 8
#: Largest absolute value of an opponent colour, in units of :mod:`tints`.
MAX_COLOUR: Final = 4.0


@dataclass(frozen=True, slots=True)
class Markings:
    """The markings on two images, as the largest log-odds of each kind, -6..6."""

    content: float = -MAX_LOG_ODDS  # of content that differs without a marking
    # of a marking on either image, the larger and the smaller
    more: float = -MAX_LOG_ODDS
    less: float = -MAX_LOG_ODDS
    boxes: tuple[Box, ...] = ()  # of the markings in the frame if both images have any


#: Markings of images whose content differs nearly everywhere.
MARKED_EVERYWHERE: Final = Markings(content=MAX_LOG_ODDS, more=MAX_LOG_ODDS, less=MAX_LOG_ODDS)


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """Two registered images, enlarged if small, padded with 0 to multiples of ``MULTIPLE``."""

    planes: Float32  # (3, h, w), see alteration.normalized_planes
    colours: Float32  # (4, h / 2, w / 2), see tints.Tints
    size: tuple[int, int]  # height and width without padding, pixels
    enlarged: float  # factor of the sides

    @classmethod
    def of(
        cls, query: Float32, reference: Float32, mask: Bool, colours: Float32 | None
    ) -> NetworkInput:
        """Return the input for two grey images (h, w) inside a mask.

        ``colours``: (h, w, 4) of any size; ``None`` if neither image has any.
        """
        query, reference, mask, times = enlarged(query, reference, mask)
        height, width = mask.shape
        rows, columns = (-(-side // MULTIPLE) * MULTIPLE for side in mask.shape)
        planes = np.zeros((3, rows, columns), np.float32)
        planes[:, :height, :width] = normalized_planes(query, reference, mask)
        hues = np.zeros((4, rows // 2, columns // 2), np.float32)
        if colours is not None:
            half = -(-width // 2), -(-height // 2)
            resized = cv2.resize(colours, half, interpolation=cv2.INTER_LINEAR)
            inside = cv2.resize(mask.astype(np.uint8), half, interpolation=cv2.INTER_NEAREST)
            bounded = np.clip(resized, -MAX_COLOUR, MAX_COLOUR) * inside[..., None]
            hues[:, : half[1], : half[0]] = bounded.transpose(2, 0, 1)
        return cls(planes, hues, (height, width), times)

    @property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of the cells of the images."""
        height, width = self.size
        return -(-height // CELL), -(-width // CELL)

    def odds(self) -> Float32:
        """Return the log-odds of all cells, (3, rows, columns): content, query, reference."""
        rows, columns = self.cells
        odds = networks.run_network(networks.LAID_OVER, looks=self.planes, colours=self.colours)
        return np.clip(odds[:, :rows, :columns], -MAX_LOG_ODDS, MAX_LOG_ODDS)


def find_markings(
    query: Float32,
    reference: Float32,
    mask: Bool,
    colours: Float32 | None = None,
    hidden: Bool | None = None,
) -> Markings:
    """Return the markings on two registered grey images (h, w).

    Args:
        query, reference: the images.
        mask: where content is compared.
        colours: of both, (h, w, 4) of any size; see :mod:`tints`.
        hidden: area that one of them covers, where markings are searched as well.
    """
    if min(mask.shape) < 2 * CELL:
        return Markings()
    whole = mask if hidden is None else mask | hidden
    given = NetworkInput.of(query, reference, whole, colours)
    content, ours, theirs = given.odds()
    content, ours, theirs = masked(content, mask), masked(ours, whole), masked(theirs, whole)
    less, more = sorted(float(smooth(odds).max()) for odds in (ours, theirs))
    marked = np.maximum(ours, theirs) > MARKED_FROM
    return Markings(
        content=float(smooth(content).max()),
        more=more,
        less=less,
        boxes=boxes_of(marked, CELL / given.enlarged) if less > MARKED_FROM else (),
    )
