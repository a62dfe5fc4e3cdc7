"""Annotated objects of test images that training images show, and how these annotate them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.errors import VisleakError
from visleak.formats import Boxes, boxes_of
from visleak.pipeline.comparison import Comparison, normalised_name
from visleak.pipeline.encoded_set import Side
from visleak.pipeline.overlaps import related
from visleak.records import Float64, Int64
from visleak.storage.audit_folder import BoxSummary
from visleak.verification.regions import area_of, clipped_to, region_of

#: Share of a box that must be seen, and intersection over union of two boxes of one object.
SEEN: Final = 0.5
SAME: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Objects:
    """The boxes of the readable images of a set, in unit coordinates."""

    first: Int64  # int64 (images + 1,): those of row r are first[r]:first[r + 1]
    corners: Float64  # float64 (n, 4): left, top, right, bottom
    names: tuple[str, ...]  # their classes, empty where there is none

    @classmethod
    def of(cls, side: Side, boxes: Boxes) -> _Objects:
        rows = side.fingerprints.rows
        own = boxes.taken(rows)
        real = np.flatnonzero(~own.crowd)
        sizes = side.fingerprints.sizes[own.image[real]]
        units = np.concatenate([sizes, sizes], axis=1).astype(np.float64)
        corners = own.corners[real] if own.relative else own.corners[real] / np.maximum(units, 1)
        names = tuple(
            normalised_name(own.names[label]) if label >= 0 else "" for label in own.label[real]
        )
        first = np.searchsorted(own.image[real], np.arange(len(rows) + 1))
        return cls(first.astype(np.int64), np.clip(corners, 0, 1), names)

    def rows(self, image: int) -> range:
        """Return the boxes of an image."""
        return range(int(self.first[image]), int(self.first[image + 1]))


def seen_boxes(
    comparisons: Sequence[Comparison], sides: Mapping[str, Side]
) -> tuple[tuple[BoxSummary, ...], list[str]]:
    """Return how many boxes of query sets are seen, and what could not be read, in words."""
    measured = [c for c in comparisons if c.overlap is not None and c.coverage != "within"]
    objects: dict[str, _Objects] = {}
    notes = []
    for name in dict.fromkeys(name for each in measured for name in each.names):
        try:
            boxes = boxes_of(sides[name].images)
        except VisleakError as error:
            notes.append(f"boxes of {name}: {error}")
            continue
        if boxes is not None:
            objects[name] = _Objects.of(sides[name], boxes)
    found = [
        _counted(each, objects[each.query.name], objects.get(each.reference.name))
        for each in measured
        if each.query.name in objects
    ]
    return tuple(found), notes


def _counted(comparison: Comparison, own: _Objects, others: _Objects | None) -> BoxSummary:
    """Count the boxes of a query set; each by the reference that shows most of it."""
    best: dict[int, tuple[float, str]] = {}
    for query, reference, matrix in related(comparison):
        region = region_of(matrix)
        for box in own.rows(query):
            corners = own.corners[box]
            area = float(np.prod(corners[2:] - corners[:2]))
            share = area_of(clipped_to(region, corners)) / area if area > 0 else 0.0
            if share >= SEEN and share > best.get(box, (0.0, ""))[0]:
                best[box] = share, _relation(own, box, others, reference, matrix)
    kinds = Counter(kind for _, kind in best.values())
    return BoxSummary(
        *comparison.names,
        total=len(own.names),
        seen=len(best),
        same=kinds["same"],
        different=kinds["different"],
        unmatched=kinds["unmatched"],
    )


def _relation(
    own: _Objects, box: int, others: _Objects | None, reference: int, matrix: Float64
) -> str:
    """Return whether a box is annotated in a reference as the same class, as another, or not."""
    if others is None:
        return "unmatched"
    left, top, right, bottom = own.corners[box]
    around = np.array([[left, right, right, left], [top, top, bottom, bottom], [1, 1, 1, 1]])
    moved = matrix @ around
    points = np.clip(moved[:2] / moved[2], 0, 1)
    there = np.concatenate([points.min(axis=1), points.max(axis=1)])
    classes = [
        others.names[other]
        for other in others.rows(reference)
        if _agreement(there, others.corners[other]) >= SAME
    ]
    if not classes:
        return "unmatched"
    return "same" if own.names[box] in classes else "different"


def _agreement(one: Float64, other: Float64) -> float:
    """Return the intersection over union of two boxes.

    >>> round(_agreement(np.array([0, 0, 1, 1.0]), np.array([0.5, 0, 1, 1.0])), 3)
    0.5
    """
    inside = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(np.prod(np.maximum(inside, 0)))
    areas = sum(float(np.prod(box[2:] - box[:2])) for box in (one, other))
    return shared / max(areas - shared, 1e-12)
