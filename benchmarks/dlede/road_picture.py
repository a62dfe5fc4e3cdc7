"""Renders a frame of a recording as an image with boxes, by the painter's algorithm.

Everything is painted at twice the size, from far to near, and halved at the end. A second plane has
the object of each pixel, which gives the occlusions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from road_background import paint_ground, paint_sky, paint_wall
from road_noise import Float64, grain
from road_scene import Recording, Thing
from road_shapes import Mask, Shape, car, car_side, pedestrian, pole, sign, tree, truck
from road_view import NEAR, View, together

CLASSES = ("car", "truck", "pedestrian", "sign")

#: Least visible share and least sides of the box of an annotated object.
VISIBLE, LEAST_WIDTH, LEAST_HEIGHT = 0.4, 4, 6


@dataclass(frozen=True)
class Box:
    """An annotated object.

    Attributes:
        label: index into ``CLASSES``.
        left, top, right, bottom: pixels, of the part of the object in the image.
        visible: share of it that is in the image and not hidden.
    """

    label: int
    left: float
    top: float
    right: float
    bottom: float
    visible: float


@dataclass(frozen=True)
class Frame:
    """An image with its objects.

    Attributes:
        pixels: ``uint8`` (height, width, 3).
        boxes: annotated objects, from far to near.
        owner: ``int64`` (2 height, 2 width): the thing of the recording at a pixel, or -1.
        things: the thing of each box.
    """

    pixels: npt.NDArray[np.uint8]
    boxes: tuple[Box, ...]
    owner: npt.NDArray[np.int64]
    things: tuple[int, ...]


def render(recording: Recording, frame: int, width: int, height: int) -> Frame:
    """Return a frame of a recording with its boxes.

    Args:
        recording: the sequence.
        frame: number of the frame, from 0.
        width, height: of the image, pixels.
    """
    view = View(recording, frame, width, height)
    paint_sky(view)
    paint_ground(view)
    for wall in sorted(recording.walls, key=lambda wall: -wall.near):
        paint_wall(view, wall)
    order = sorted(
        range(len(recording.things)),
        key=lambda n: -(recording.things[n].z + recording.things[n].dz * frame),
    )
    painted = {}
    for number in order:
        found = _paint_thing(view, recording.things[number], number)
        if found is not None and recording.things[number].kind in CLASSES:
            painted[number] = found
    things, boxes = _annotated(view, painted)
    return Frame(_developed(view), boxes, view.owner, things)


def _paint_thing(view: View, thing: Thing, number: int) -> tuple[int, Mask, int, int] | None:
    """Paint a thing; return pixels of all of it, and its silhouette with its place."""
    ahead = thing.z + thing.dz * view.frame - view.camera.z
    if ahead + thing.length <= NEAR or ahead > 160.0:
        return None
    x = thing.x + thing.dx * view.frame
    if thing.kind not in ("tree", "pole", "sign"):
        _shadow(view, x, ahead, thing)
    pieces = []
    across = thing.view in ("left", "right")
    lateral = x - view.camera.x + view.camera.bend * ahead * ahead
    if thing.length and not across and abs(lateral) > thing.width / 2.0:
        plane = x - thing.width / 2.0 if lateral > 0 else x + thing.width / 2.0
        span = (ahead, ahead + thing.length)
        pieces.append(
            view.along(
                *(plane, (max(ahead, NEAR), span[1]), span, (0.0, thing.height)),
                _flank(thing),
            )
        )
    if ahead > NEAR:
        low, high = thing.bottom, thing.bottom + thing.height
        edges = (
            *(view.column(x - thing.width / 2.0, ahead),),
            *(view.column(x + thing.width / 2.0, ahead),),
            *(view.row(high, ahead), view.row(low, ahead)),
        )
        pieces.append(view.face(edges, _shape(view, thing)))
    whole = together([piece for piece in pieces if piece is not None])
    if whole is None:
        return None
    view.paste(whole, max(ahead, NEAR), number)
    return int(whole.mask.sum()), whole.mask, whole.left, whole.top


def _shape(view: View, thing: Thing) -> Shape:
    front = thing.view in ("front", "left")
    if thing.kind == "car":
        across = thing.view in ("left", "right")
        return car_side(thing.look, front) if across else car(thing.look, front)
    if thing.kind == "truck":
        return truck(thing.look, front and thing.view == "front")
    if thing.kind == "pedestrian":
        # a triangle wave of about one second
        swing = (view.frame * 0.21 + thing.look.form[1] * 4.0) % 2.0
        return pedestrian(thing.look, 1.0 - 2.0 * abs(swing - 1.0))
    return {"sign": sign, "tree": tree, "pole": pole}[thing.kind](thing.look)


def _shadow(view: View, x: float, ahead: float, thing: Thing) -> None:
    far = ahead + max(thing.length, 0.4)
    near = max(ahead - 0.15, NEAR)
    top, bottom = view.row(0.0, far), view.row(0.0, near)
    for row in range(max(int(top + 0.5), 0), min(int(bottom + 0.5), view.height)):
        distance = view.focal * view.camera.height / max(row + 0.5 - view.horizon, 0.2)
        left = view.column(x - thing.width * 0.54, distance)
        right = view.column(x + thing.width * 0.54, distance)
        a, b = max(int(left + 0.5), 0), min(int(right + 0.5), view.width)
        if a < b:
            view.colours[row, a:b] *= 0.5


def _flank(thing: Thing) -> Shape:
    """Return the side of a vehicle, near end first."""
    if thing.kind == "car":
        shape = car_side(thing.look, thing.view == "front")
    else:
        whole = truck(thing.look, False)

        def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
            colours, mask = whole(np.full_like(v, 0.3), np.minimum(v, 0.79))
            return colours, mask & (v < 0.92)

    def shaded(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        colours, mask = shape(u, v)
        return colours * 0.78, mask

    return shaded


def _annotated(
    view: View, painted: dict[int, tuple[int, Mask, int, int]]
) -> tuple[tuple[int, ...], tuple[Box, ...]]:
    """Return the sufficiently visible objects, with their boxes."""
    shown = np.bincount(view.owner.ravel() + 1, minlength=len(view.recording.things) + 1)[1:]
    things, boxes = [], []
    for number, (pixels, mask, first_column, first_row) in painted.items():
        if not pixels:
            continue
        columns = np.flatnonzero(mask.any(axis=0)) + first_column
        rows = np.flatnonzero(mask.any(axis=1)) + first_row
        columns = columns[(columns >= 0) & (columns < view.width)]
        rows = rows[(rows >= 0) & (rows < view.height)]
        visible = shown[number] / pixels
        if visible < VISIBLE or not len(columns) or not len(rows):
            continue
        # painted at twice the size
        left, right = int(columns[0]) / 2.0, int(columns[-1] + 1) / 2.0
        top, bottom = int(rows[0]) / 2.0, int(rows[-1] + 1) / 2.0
        if right - left < LEAST_WIDTH or bottom - top < LEAST_HEIGHT:
            continue
        label = CLASSES.index(view.recording.things[number].kind)
        things.append(number)
        boxes.append(Box(label, left, top, right, bottom, float(visible)))
    return tuple(things), tuple(boxes)


def _developed(view: View) -> npt.NDArray[np.uint8]:
    """Return the image of the sensor: halved, lit, vignetted, noisy, eight bits."""
    recording, painted = view.recording, view.colours
    halved = (
        painted[::2, ::2] + painted[1::2, ::2] + painted[::2, 1::2] + painted[1::2, 1::2]
    ) / 4.0
    flicker = recording.dice("flicker", view.frame).between(0.985, 1.015)
    lit = (halved * recording.gains - 118.0) * recording.contrast + 118.0 * flicker
    rows = (np.arange(halved.shape[0]) + 0.5) / halved.shape[0] - 0.5
    columns = (np.arange(halved.shape[1]) + 0.5) / halved.shape[1] - 0.5
    vignette = 1.0 - 0.35 * (rows[:, None] * rows[:, None] + columns * columns)
    noise = grain(lit.shape, recording.dice("noise", view.frame)) * recording.light.noise
    levels = np.floor(lit * vignette[..., None] + noise + 0.5)
    return np.asarray(np.clip(levels, 0, 255), np.uint8)
