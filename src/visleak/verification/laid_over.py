"""What was laid over one of two registered images, or over each, as a second network sees it.

A stamp is other content to the network of :mod:`alteration`, which sees 40 pixels and no colours,
and a mark that moved is little to it. This one judges cells by up to 120 pixels around them and
their colours: other content in its place, or something laid over one image or the other. A stamp is
of one of them alone, a mark that moved is of both. It was trained on rendered documents and on
copies of photographs by ``benchmarks/fit_laid_over.py``.
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
    MOST,
    Box,
    enlarged,
    places,
    planes,
    smooth,
    within,
)

#: Log-odds of a place that is named, at least.
NAMED: Final = 1.0
#: Sides of the input of the network are multiples of this, pixels.
MULTIPLE: Final = 8
#: Bound of a colour, beside what is usual, in units of :mod:`tints`.
BRIGHTEST: Final = 4.0


@dataclass(frozen=True, slots=True)
class LaidOver:
    """What was laid over either of two images; log-odds of the most likely place, -6..6."""

    content: float = -MOST  # that content differs, and nothing was laid over it
    more: float = -MOST  # that one image has something laid over it
    less: float = -MOST  # that the other, for which less speaks, has so as well
    # left, top, width, height in the frame of what is laid over both, pixels; largest first
    boxes: tuple[Box, ...] = ()


#: What is said of images whose content differs nearly everywhere.
EVERYWHERE: Final = LaidOver(content=MOST, more=MOST, less=MOST)


@dataclass(frozen=True, slots=True)
class Looks:
    """The input of the network: two images in register, enlarged where they are small.

    Sides are multiples of ``MULTIPLE``; what is beyond the images is 0.
    """

    planes: Float32  # (3, h, w): see alteration.planes
    colours: Float32  # (4, h / 2, w / 2): see tints.Tints
    size: tuple[int, int]  # height and width of the images, pixels
    enlarged: float  # factor of the sides

    @classmethod
    def of(cls, query: Float32, reference: Float32, mask: Bool, colours: Float32 | None) -> Looks:
        """Return what is seen of two grey images (h, w), where the mask holds.

        ``colours``: (h, w, 4) of any size; none where neither image has any.
        """
        query, reference, mask, times = enlarged(query, reference, mask)
        height, width = mask.shape
        rows, columns = (-(-side // MULTIPLE) * MULTIPLE for side in mask.shape)
        seen = np.zeros((3, rows, columns), np.float32)
        seen[:, :height, :width] = planes(query, reference, mask)
        hues = np.zeros((4, rows // 2, columns // 2), np.float32)
        if colours is not None:
            half = -(-width // 2), -(-height // 2)
            resized = cv2.resize(colours, half, interpolation=cv2.INTER_LINEAR)
            inside = cv2.resize(mask.astype(np.uint8), half, interpolation=cv2.INTER_NEAREST)
            shown = np.clip(resized, -BRIGHTEST, BRIGHTEST) * inside[..., None]
            hues[:, : half[1], : half[0]] = shown.transpose(2, 0, 1)
        return cls(seen, hues, (height, width), times)

    @property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of the cells of the images."""
        height, width = self.size
        return -(-height // CELL), -(-width // CELL)

    def odds(self) -> Float32:
        """Return the log-odds of all cells, (3, rows, columns): content, query, reference."""
        rows, columns = self.cells
        odds = networks.answers(networks.LAID_OVER, looks=self.planes, colours=self.colours)
        return np.clip(odds[:, :rows, :columns], -MOST, MOST)


def laid_over(
    query: Float32,
    reference: Float32,
    mask: Bool,
    colours: Float32 | None = None,
    hidden: Bool | None = None,
) -> LaidOver:
    """Return what was laid over either of two grey images (h, w) in register.

    Args:
        query, reference: the images.
        mask: where content is compared.
        colours: of both, (h, w, 4) of any size; see :mod:`tints`.
        hidden: where one of them is covered: what was laid over is looked for there as well.
    """
    if min(mask.shape) < 2 * CELL:
        return LaidOver()
    whole = mask if hidden is None else mask | hidden
    looks = Looks.of(query, reference, whole, colours)
    content, ours, theirs = looks.odds()
    content, ours, theirs = within(content, mask), within(ours, whole), within(theirs, whole)
    less, more = sorted(float(smooth(odds).max()) for odds in (ours, theirs))
    moved = np.maximum(ours, theirs) > NAMED if less > NAMED else np.zeros(ours.shape, np.bool_)
    return LaidOver(
        content=float(smooth(content).max()),
        more=more,
        less=less,
        boxes=places(moved, CELL / looks.enlarged),
    )
