"""Projection from the world to the image, and composition of pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from road_noise import Float64
from road_scene import Camera, Recording
from road_shapes import Mask, Shape

#: Nearest distance that is painted.
NEAR = 1.5


@dataclass(frozen=True)
class Piece:
    """A painted part of the scene, not yet cut to the image."""

    left: int
    top: int
    colours: Float64
    mask: Mask


class View:
    """The image of one frame while it is painted."""

    def __init__(self, recording: Recording, frame: int, width: int, height: int) -> None:
        self.recording, self.frame = recording, frame
        self.camera: Camera = recording.camera(frame)
        self.width, self.height = 2 * width, 2 * height
        self.focal = recording.focal * self.width
        self.middle = self.width / 2.0 - self.camera.yaw * self.focal
        self.horizon = recording.horizon * self.height + self.camera.pitch * self.focal
        self.colours = np.zeros((self.height, self.width, 3))
        self.owner = np.full((self.height, self.width), -1, np.int64)
        self.haze = np.array(recording.light.sky_low)

    # -- from the world to the image -------------------------------------------------------

    def column(self, x: float, ahead: float) -> float:
        """Return the column of a point ``ahead`` metres away."""
        shifted = x + self.camera.bend * ahead * ahead - self.camera.x
        return self.middle + self.focal * shifted / ahead

    def row(self, high: float, ahead: float) -> float:
        """Return the row of a point."""
        return self.horizon + self.focal * (self.camera.height - high) / ahead

    def hazy(self, colours: Float64, ahead: Float64 | float) -> Float64:
        """Return colours with the haze of a distance."""
        far = np.asarray(ahead) / self.recording.light.reach
        clear = (1.0 / (1.0 + far * far))[..., None]
        return np.asarray(colours * clear + self.haze * (1.0 - clear))

    # -- pieces ------------------------------------------------------------------------------

    def face(self, edges: tuple[float, float, float, float], shape: Shape) -> Piece | None:
        """Return a shape that faces the camera; edges are left, right, top, bottom."""
        left, right, top, bottom = edges
        if left > 2 * self.width or right < -self.width:
            return None
        columns = np.arange(int(np.floor(left)), int(np.floor(right)) + 2)
        rows = np.arange(int(np.floor(top)), int(np.floor(bottom)) + 2)
        u = np.asarray((columns + 0.5 - left) / (right - left), np.float64)[None, :]
        v = np.asarray((rows + 0.5 - top) / (bottom - top), np.float64)[:, None]
        colours, mask = shape(u, v)
        inside = (u >= 0.0) & (u < 1.0) & (v >= 0.0) & (v < 1.0)
        return Piece(int(columns[0]), int(rows[0]), colours, np.asarray(mask & inside))

    def along(
        self,
        x: float,
        seen: tuple[float, float],
        span: tuple[float, float],
        heights: tuple[float, float],
        shape: Shape,
    ) -> Piece | None:
        """Return a shape on a plane along the road; ``u`` runs from its near to its far end."""
        middle = (seen[0] + min(seen[1], 60.0)) / 2.0
        lateral = x - self.camera.x + self.camera.bend * middle * middle
        if abs(lateral) < 0.05:
            return None
        ends = sorted(self.middle + self.focal * lateral / ahead for ahead in seen)
        first = max(int(np.floor(ends[0])), -self.width)
        last = min(int(np.floor(ends[1])) + 1, 2 * self.width)
        top = max(int(np.floor(self.row(heights[1], seen[0]))), -self.height)
        top = min(top, int(np.floor(self.row(heights[1], seen[1]))))
        bottom = min(int(self.row(heights[0], seen[0])) + 2, 2 * self.height)
        if last <= first or bottom <= top:
            return None
        columns = np.arange(first, last) + 0.5 - self.middle
        sign = 1.0 if lateral > 0 else -1.0
        ahead = (lateral * sign * self.focal / np.maximum(columns * sign, 1e-3))[None, :]
        rows = np.arange(top, bottom)[:, None] + 0.5
        high = self.camera.height - (rows - self.horizon) * ahead / self.focal
        u = (ahead - span[0]) / (span[1] - span[0])
        v = 1.0 - (high - heights[0]) / (heights[1] - heights[0])
        colours, mask = shape(np.broadcast_to(u, v.shape), v)
        inside = (ahead >= seen[0]) & (ahead < seen[1]) & (v >= 0.0) & (v < 1.0)
        return Piece(first, top, self.hazy(colours, ahead), np.asarray(mask & inside))

    def paste(self, piece: Piece | None, ahead: float | None, owner: int) -> None:
        """Paste a piece on the image; ``ahead`` is ``None`` if it has haze already."""
        if piece is None:
            return
        rows = slice(max(piece.top, 0), min(piece.top + piece.mask.shape[0], self.height))
        columns = slice(max(piece.left, 0), min(piece.left + piece.mask.shape[1], self.width))
        if rows.start >= rows.stop or columns.start >= columns.stop:
            return
        cut = (
            slice(rows.start - piece.top, rows.stop - piece.top),
            slice(columns.start - piece.left, columns.stop - piece.left),
        )
        mask = piece.mask[cut]
        colours = piece.colours[cut][mask]
        self.colours[rows, columns][mask] = (
            colours if ahead is None else self.hazy(colours, np.full(len(colours), ahead))
        )
        self.owner[rows, columns][mask] = owner


def together(pieces: list[Piece]) -> Piece | None:
    """Return pieces as one, later ones over earlier ones."""
    if not pieces:
        return None
    left, top = min(p.left for p in pieces), min(p.top for p in pieces)
    right = max(p.left + p.mask.shape[1] for p in pieces)
    bottom = max(p.top + p.mask.shape[0] for p in pieces)
    colours, mask = (
        np.zeros((bottom - top, right - left, 3)),
        np.zeros((bottom - top, right - left), np.bool_),
    )
    for piece in pieces:
        rows = slice(piece.top - top, piece.top - top + piece.mask.shape[0])
        columns = slice(piece.left - left, piece.left - left + piece.mask.shape[1])
        colours[rows, columns][piece.mask] = piece.colours[piece.mask]
        mask[rows, columns] |= piece.mask
    return Piece(left, top, colours, mask)
