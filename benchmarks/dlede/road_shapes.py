"""Shapes of things on and beside the road, in their own coordinates.

A shape is a function of ``u`` (0 left to 1 right) and ``v`` (0 top to 1 bottom), arrays that
broadcast against each other. It returns the colours, ``float64`` (rows, columns, 3), and the mask
of the shape, ``bool`` (rows, columns).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from road_noise import Dice, Float64, Texture

Mask = npt.NDArray[np.bool_]
Shape = Callable[[Float64, Float64], tuple[Float64, Mask]]

BLACK = np.array([22.0, 22.0, 25.0])
WHITE = np.array([236.0, 236.0, 230.0])
GLASS = np.array([58.0, 70.0, 84.0])
RED = np.array([205.0, 34.0, 30.0])
LAMP = np.array([250.0, 244.0, 205.0])
STEEL = np.array([122.0, 124.0, 128.0])
SKINS = ((224, 178, 150), (190, 138, 105), (120, 82, 60), (236, 196, 170))
PAINTS = (
    *((206, 206, 208), (236, 236, 234), (40, 42, 46), (96, 100, 106), (150, 22, 26)),
    *((32, 66, 130), (24, 90, 66), (196, 160, 60), (120, 70, 40), (70, 130, 170)),
)
CLOTHES = (
    *((34, 40, 62), (160, 40, 44), (60, 92, 60), (210, 200, 180), (90, 60, 100)),
    *((220, 150, 40), (50, 120, 150), (24, 24, 26), (235, 235, 235), (120, 100, 80)),
)


class Paint:
    """An image of one shape, painted part by part."""

    def __init__(self, u: Float64, v: Float64) -> None:
        self.u, self.v = np.broadcast_arrays(u, v)
        self.colours = np.zeros((*self.u.shape, 3))
        self.mask = np.zeros(self.u.shape, np.bool_)

    def part(self, where: Mask, colour: Float64) -> None:
        """Paint a part over earlier ones."""
        self.colours[where] = colour
        self.mask |= where

    def shade(self, where: Mask, factor: float) -> None:
        """Darken or brighten a part."""
        self.colours[where] *= factor

    def box(self, left: float, top: float, right: float, bottom: float) -> Mask:
        """Return the mask of a rectangle."""
        return np.asarray((self.u >= left) & (self.u < right) & (self.v >= top) & (self.v < bottom))

    def disc(self, x: float, y: float, wide: float, high: float) -> Mask:
        """Return the mask of an ellipse, by its middle and half its sides."""
        across, down = (self.u - x) / wide, (self.v - y) / high
        return np.asarray(across * across + down * down <= 1.0)

    def taper(self, top: float, bottom: float, upper: float, lower: float, middle: float) -> Mask:
        """Return the mask of a symmetric trapezoid, by half its widths."""
        along = (self.v - top) / (bottom - top)
        half = upper + (lower - upper) * along
        return np.asarray((np.abs(self.u - middle) <= half) & (along >= 0.0) & (along < 1.0))

    def done(self) -> tuple[Float64, Mask]:
        """Return colours and mask."""
        return self.colours, self.mask


@dataclass(frozen=True)
class Look:
    """The appearance of a thing.

    Attributes:
        paint: main colour.
        second: of trousers, of a sign's symbol, of a truck's cab.
        form: shares in [0, 1) that shape it.
        texture: for rough parts.
    """

    paint: Float64
    second: Float64
    form: tuple[float, ...]
    texture: Texture


def looks(kind: str, dice: Dice, texture: Texture, dull: float) -> Look:
    """Draw the appearance of a thing; ``dull`` in [0, 1] desaturates paints."""
    paints = CLOTHES if kind == "pedestrian" else PAINTS
    paint = dice.colour(dice.one_of(paints), 14.0)
    grey = (paint[0] + paint[1] + paint[2]) / 3.0
    second = dice.colour(dice.one_of(CLOTHES if kind == "pedestrian" else PAINTS), 14.0)
    form = tuple(dice.share() for _ in range(6))
    return Look(paint * (1.0 - dull) + grey * dull, second, form, texture)


def car(look: Look, front: bool) -> Shape:
    """Return a car from behind or from the front."""

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        paint = Paint(u, v)
        waist = 0.38 + 0.12 * look.form[0]
        paint.part(paint.box(0.07, 0.8, 0.25, 1.0) | paint.box(0.75, 0.8, 0.93, 1.0), BLACK)
        roof = 0.26 + 0.12 * look.form[1]
        paint.part(paint.taper(0.0, waist + 0.02, roof, 0.46, 0.5), look.paint * 0.92)
        paint.part(paint.taper(0.06, waist - 0.03, roof - 0.03, 0.39, 0.5), GLASS)
        body = paint.box(0.0, waist, 1.0, 0.9) & paint.taper(waist, 0.9, 0.49, 0.5, 0.5)
        paint.part(body, look.paint)
        paint.shade(body & (paint.v > 0.7), 0.72)
        lamps = paint.box(0.04, waist + 0.06, 0.2, waist + 0.19)
        lamps |= paint.box(0.8, waist + 0.06, 0.96, waist + 0.19)
        paint.part(lamps, LAMP if front else RED)
        if front:
            paint.part(paint.box(0.28, waist + 0.1, 0.72, waist + 0.22), BLACK * 1.6)
        paint.part(paint.box(0.38, 0.71, 0.62, 0.78), WHITE * 0.9)
        return paint.done()

    return shape


def car_side(look: Look, front: bool) -> Shape:
    """Return a car from the side, driving to the left where ``front``."""

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        u = u if front else 1.0 - u
        paint = Paint(u, v)
        middle = 0.5 + 0.1 * look.form[1]
        paint.part(paint.taper(0.0, 0.46, 0.2 + 0.06 * look.form[2], 0.36, middle), look.paint)
        paint.part(paint.taper(0.08, 0.42, 0.17, 0.29, middle), GLASS)
        paint.part(paint.box(middle - 0.02, 0.05, middle + 0.02, 0.45), look.paint * 0.8)
        body = paint.box(0.0, 0.42, 1.0, 0.84)
        paint.part(body, look.paint)
        paint.shade(body & (paint.v > 0.68), 0.7)
        paint.part(paint.box(0.0, 0.5, 0.05, 0.6), LAMP)
        paint.part(paint.box(0.96, 0.5, 1.0, 0.6), RED)
        for wheel in (0.2, 0.8):
            paint.part(paint.disc(wheel, 0.82, 0.1, 0.18) & (paint.v < 1.0), BLACK)
            paint.part(paint.disc(wheel, 0.82, 0.05, 0.09), STEEL)
        return paint.done()

    return shape


def truck(look: Look, front: bool) -> Shape:
    """Return a truck, van or bus from behind or from the front."""

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        paint = Paint(u, v)
        paint.part(paint.box(0.06, 0.86, 0.26, 1.0) | paint.box(0.74, 0.86, 0.94, 1.0), BLACK)
        body = paint.box(0.0, 0.0, 1.0, 0.92)
        paint.part(body, look.paint)
        if front:
            top = 0.25 + 0.15 * look.form[0]
            paint.part(paint.box(0.0, top - 0.06, 1.0, 0.92), look.second)
            paint.part(paint.box(0.07, top, 0.93, top + 0.26), GLASS)
            paint.part(paint.box(0.2, top + 0.34, 0.8, 0.78), BLACK * 1.8)
        else:
            low, high = sorted((look.form[1], look.form[2]))
            paint.part(paint.box(0.0, 0.1 + 0.5 * low, 1.0, 0.1 + 0.5 * high), look.second)
            paint.shade(paint.box(0.485, 0.03, 0.515, 0.8), 0.55)
            paint.shade(body & ~paint.box(0.04, 0.03, 0.96, 0.8), 0.8)
        lamps = paint.box(0.03, 0.8, 0.17, 0.87) | paint.box(0.83, 0.8, 0.97, 0.87)
        paint.part(lamps, LAMP if front else RED)
        return paint.done()

    return shape


def pedestrian(look: Look, stride: float) -> Shape:
    """Return a pedestrian; ``stride`` in [-1, 1] is the distance of the legs."""

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        paint = Paint(u, v)
        skin = np.array(SKINS[int(look.form[0] * len(SKINS))], np.float64)
        hair = skin * 0.3
        along = (paint.v - 0.5) / 0.5
        for side in (-1.0, 1.0):
            leg = np.abs(paint.u - 0.5 - side * (0.09 + 0.24 * stride * along)) <= 0.11
            paint.part(np.asarray(leg & (along > 0.0) & (along < 1.0)), look.second)
            arm = np.abs(paint.u - 0.5 - side * (0.26 + 0.12 * np.abs(stride) * along)) <= 0.07
            paint.part(np.asarray(arm & (paint.v > 0.2) & (paint.v < 0.5)), look.paint * 0.85)
        coat = 0.5 + 0.15 * look.form[2]
        paint.part(paint.taper(0.16, coat, 0.22, 0.24 + 0.08 * look.form[3], 0.5), look.paint)
        if look.form[4] < 0.3:
            paint.part(paint.box(0.66, 0.42, 0.92, 0.62), look.second * 0.6)
        paint.part(paint.disc(0.5, 0.085, 0.16, 0.085), skin)
        paint.part(paint.disc(0.5, 0.06, 0.17, 0.06), hair if look.form[5] < 0.8 else look.paint)
        return paint.done()

    return shape


def sign(look: Look) -> Shape:
    """Return the face of a traffic sign: round, triangle, octagon or board."""
    kind = int(look.form[0] * 4)

    def outline(paint: Paint, size: float) -> Mask:
        x, y = np.abs(paint.u - 0.5) * 2.0 / size, np.abs(paint.v - 0.5) * 2.0 / size
        if kind == 0:
            return np.asarray(x * x + y * y <= 1.0)
        if kind == 1:
            low = 0.5 + 0.5 * size
            return np.asarray(
                (paint.v < low) & (x <= (paint.v - (0.5 - 0.5 * size)) / (low - 0.5 + 0.5 * size))
            )
        if kind == 2:
            return np.asarray((x <= 1.0) & (y <= 1.0) & (x + y <= 1.42))
        return np.asarray((x <= 1.0) & (y <= 1.0))

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        paint = Paint(u, v)
        rim, face = (RED, WHITE) if kind < 2 else (WHITE, RED)
        if kind == 3:
            board = ((24.0, 70.0, 160.0), (30.0, 120.0, 70.0), (226.0, 170.0, 30.0))
            face = np.array(board[int(look.form[1] * 3)])
        paint.part(outline(paint, 1.0), rim)
        paint.part(outline(paint, 0.74 if kind < 2 else 0.86), face)
        ink = BLACK if kind < 2 or look.form[1] > 0.67 else WHITE
        middle = 0.62 if kind == 1 else 0.5
        if look.form[2] < 0.5:
            paint.part(paint.box(0.44, middle - 0.18, 0.56, middle + 0.16), ink)
        else:
            paint.part(paint.box(0.28, middle - 0.07, 0.72, middle + 0.07), ink)
        return paint.done()

    return shape


def pole(look: Look) -> Shape:
    """Return the pole of a sign or a lamp."""

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        paint = Paint(u, v)
        paint.part(paint.box(0.0, 0.0, 1.0, 1.0), STEEL * (0.6 + 0.5 * look.form[0]))
        return paint.done()

    return shape


def tree(look: Look) -> Shape:
    """Return a tree: a trunk and a crown with a ragged edge."""

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        paint = Paint(u, v)
        trunk = np.array([74.0, 58.0, 44.0])
        paint.part(paint.box(0.46, 0.5, 0.54, 1.0), trunk)
        bumps = look.texture.rough(paint.u * 7.0 + look.form[0] * 99.0, paint.v * 7.0)
        low = 0.62 + 0.26 * look.form[1]
        across, down = (paint.u - 0.5) / 0.5, (paint.v - low / 2.0) / (low / 2.0)
        if look.form[2] < 0.25:  # a fir
            crown = np.abs(across) <= (paint.v / low) * (0.55 + 0.6 * bumps)
            crown &= paint.v < low
        else:
            crown = across * across + down * down <= 0.45 + 0.75 * bumps
        light = 0.55 + 0.9 * bumps - 0.25 * paint.v
        paint.part(np.asarray(crown), look.paint)
        paint.colours[crown] *= light[crown][:, None]
        return paint.done()

    return shape


#: Class -> usual width, height and length in metres, each with its spread.
SIZES: Mapping[str, tuple[tuple[float, float], ...]] = {
    "car": ((1.8, 0.15), (1.5, 0.15), (4.2, 0.5)),
    "truck": ((2.4, 0.2), (3.0, 0.5), (7.5, 2.0)),
    "pedestrian": ((0.75, 0.08), (1.72, 0.14), (0.0, 0.0)),
    "sign": ((1.0, 0.15), (1.0, 0.15), (0.0, 0.0)),
}
