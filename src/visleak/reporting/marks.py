"""Where two related images differ, as a few boxes on each of them for a person to compare.

The fine comparison finds places in a frame of its own, often many per changed line of text. Here
neighbouring places are joined, and their boxes are mapped back to both images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import cv2
import numpy as np
import numpy.typing as npt

from visleak.records import Bytes8
from visleak.verification.align import Matrix
from visleak.verification.fine_comparison import PLACES_SIDE, compare
from visleak.verification.frame import Placement, bounded

#: ``places``: all places that a reason counts. ``additions``: large ones only, such as a stamp or a
#: bar of text; what compression leaves in a copy is smaller.
Kind = Literal["places", "additions"]
#: What the reason of a pair contains (``visleak.grading.verdict``), and what is marked then.
REASONS: Final[dict[str, Kind]] = {
    "content differs in": "places",
    "fine detail agrees": "additions",
}
#: Long side at which images are compared, pixels: additions are large.
SIDES: Final[dict[Kind, int]] = {"places": PLACES_SIDE, "additions": PLACES_SIDE // 2}
#: Area of an addition, as a share of the frame, at least.
LARGE: Final = 0.003
#: Most boxes per image.
MOST: Final = 12
#: Gaps across and down between places that are joined, as shares of the frame's long side: words of
#: one line first, then lines of one paragraph where more than ``MOST`` boxes are left.
GAPS: Final = ((0.02, 0.016), (0.03, 0.016), (0.04, 0.02))
#: Space between a place and its box, as a share of the frame's long side: boxes do not overlap, and
#: hold what registration moved a little.
PADDING: Final = 0.008
#: Determinant of a relation that flattens the query.
FLAT: Final = 1e-9

Box = tuple[float, float, float, float]
_Boxes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Marks:
    """Boxes that mark where two images differ."""

    # left, top, width and height of each box in unit coordinates of the image (x right, y down,
    # 0..1), in reading order of the reference; the same number on both
    query: tuple[Box, ...] = ()
    reference: tuple[Box, ...] = ()
    more: int = 0  # number of smaller boxes that are left out

    def __bool__(self) -> bool:
        return bool(self.query)


def kind_of(reason: str | None) -> Kind | None:
    """Return what to mark on a pair with this reason; ``None`` where there is nothing to mark.

    >>> kind_of("same template; content differs in 3 places")
    'places'
    >>> kind_of("identical bytes")
    """
    return next((kind for words, kind in REASONS.items() if words in (reason or "")), None)


def marks(query: Bytes8, reference: Bytes8, matrix: Matrix, kind: Kind = "places") -> Marks:
    """Return boxes on both images where their content differs."""
    if not np.isfinite(matrix).all() or abs(np.linalg.det(matrix)) < FLAT:
        return Marks()
    query, reference = (bounded(pixels, SIDES[kind]) for pixels in (query, reference))
    found = compare(query, reference, matrix)
    side = found.side
    place = Placement.of(query.shape[:2], reference.shape[:2], matrix, side) if side else None
    if place is None:
        return Marks()
    width, height = place.size
    different = found.differences
    places = found.altered_places or different.boxes if kind == "places" else different.boxes
    boxes = np.array([*places, *different.covers], np.int64).reshape(-1, 4)
    if kind == "additions":
        boxes = boxes[boxes[:, 2] * boxes[:, 3] >= LARGE * width * height]
    boxes = _joined(boxes, place.size)
    largest = np.argsort(-boxes[:, 2] * boxes[:, 3], kind="stable")[:MOST]
    shown = _padded(boxes[np.sort(largest)], place.size)
    return Marks(
        query=_mapped(shown, np.linalg.inv(place.to_frame @ matrix)),
        reference=_mapped(shown, np.linalg.inv(place.to_frame)),
        more=len(boxes) - len(shown),
    )


def _joined(boxes: _Boxes, size: tuple[int, int]) -> _Boxes:
    """Return the boxes (n, 4) with neighbours joined, in reading order, in pixels."""
    for gap in GAPS:
        across, down = (max(1, round(share * max(size))) for share in gap)
        count = -1
        # the box around two joined ones may touch a third
        while len(boxes) != count:
            count = len(boxes)
            canvas = np.zeros((size[1] + down, size[0] + across), np.uint8)
            for left, top, width, height in boxes.tolist():
                canvas[top : top + height + down, left : left + width + across] = 1
            _, _, found, _ = cv2.connectedComponentsWithStats(canvas)
            boxes = np.asarray(found[1:, :4] - np.array([0, 0, across, down]), np.int64)
        if len(boxes) <= MOST:
            break
    return boxes


def _padded(boxes: _Boxes, size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Return left, top, right and bottom of padded boxes in unit coordinates of the frame."""
    space = PADDING * max(size)
    corners = np.concatenate([boxes[:, :2] - space, boxes[:, :2] + boxes[:, 2:] + space], axis=1)
    return np.asarray(np.clip(corners / np.tile(size, 2), 0, 1))


def _mapped(corners: npt.NDArray[np.float64], matrix: Matrix) -> tuple[Box, ...]:
    """Return the upright boxes around boxes that were moved, clipped to the image."""
    result = []
    for left, top, right, bottom in corners.tolist():
        points = matrix @ [[left, right, right, left], [top, top, bottom, bottom], [1, 1, 1, 1]]
        places = np.clip(points[:2] / points[2], 0, 1)
        low, high = places.min(axis=1), places.max(axis=1)
        result.append((*low.tolist(), *(high - low).tolist()))
    return tuple(result)
