"""The annotated objects of pictures, on the canvas and as they were."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from visleak.dlede.trainers.heatmaps import Objects
from visleak.dlede.trainers.pictures import Pictures
from visleak.images.boxes import Boxes
from visleak.records import Float64, Int64


def on_canvas(boxes: Boxes, pictures: Pictures, rows: Int64) -> list[Objects]:
    """Return the objects of each picture, in pixels of the canvas, cut off at the picture's edge.

    Args:
        boxes: of the pictures.
        pictures: as prepared.
        rows: ``int64`` (boxes.images,): which of them they are.
    """
    size = pictures.sizes[rows[boxes.image]][:, ::-1]
    corners = boxes.corners * np.tile(_factor(boxes, pictures, rows), 2)
    corners = np.clip(corners, 0, np.tile(size, 2))
    whole = np.asarray((corners[:, 2:] > corners[:, :2]).all(axis=1))
    starts = np.searchsorted(boxes.image, np.arange(boxes.images + 1))
    made = []
    for start, stop in pairwise(starts.tolist()):
        mine = np.arange(start, stop)[whole[start:stop]]
        made.append(Objects(boxes.label[mine], corners[mine], boxes.crowd[mine]))
    return made


def in_pixels(boxes: Boxes, pictures: Pictures, rows: Int64) -> Boxes:
    """Return boxes in pixels of the pictures as people see them."""
    if not boxes.relative:
        return boxes
    size = pictures.originals[rows[boxes.image]][:, ::-1]
    return replace(boxes, corners=boxes.corners * np.tile(size, 2), relative=False)


def to_originals(corners: Float64, pictures: Pictures, rows: Int64) -> Float64:
    """Return corners (n, 4) on the canvas as pixels of the pictures, cut off at their edges.

    Args:
        corners: on the canvas.
        pictures: as prepared.
        rows: ``int64`` (n,): the picture of each.
    """
    size = np.tile(pictures.originals[rows][:, ::-1], 2)
    return np.clip(corners * size / np.tile(pictures.sizes[rows][:, ::-1], 2), 0, size)


def _factor(boxes: Boxes, pictures: Pictures, rows: Int64) -> Float64:
    """Return by what the corners of each box are multiplied, across and down, (objects, 2)."""
    mine = rows[boxes.image]
    size = pictures.sizes[mine][:, ::-1].astype(np.float64)
    return size if boxes.relative else size / pictures.originals[mine][:, ::-1]
