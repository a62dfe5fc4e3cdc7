"""The scene of a recording: place, light, weather, and objects on the road.

Lengths are metres: ``x`` to the right of the middle of the road, ``z`` along it, heights above it.
Speeds are metres per frame, at about ten frames per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from road_noise import Course, Dice, Float64, Texture
from road_places import KINDS, LIGHTS, PLACES, WEATHER
from road_shapes import SIZES, Look, looks

#: Colours of walls.
HOUSES = ((172, 150, 118), (150, 92, 74), (186, 180, 168), (128, 122, 116), (190, 166, 96))
HALLS = ((138, 142, 146), (176, 178, 174), (92, 116, 140), (150, 112, 92))

#: Distance up to which objects are generated, metres.
AHEAD = 75.0


@dataclass(frozen=True)
class Thing:
    """Something on or beside the road.

    Attributes:
        kind: a class, or ``tree`` or ``pole``.
        view: ``rear``, ``front``, ``left`` or ``right`` (direction of crossing).
        x, z: middle of its lower edge, at frame 0; ``z`` of its near face.
        dx, dz: metres per frame.
        bottom: height of its lower edge.
        width, height, length: metres.
        look: its colours and form.
    """

    kind: str
    view: str
    x: float
    z: float
    dx: float
    dz: float
    bottom: float
    width: float
    height: float
    length: float
    look: Look


@dataclass(frozen=True)
class Wall:
    """A wall along the road: a house, a hall, a crash barrier.

    Attributes:
        x: its plane.
        near, far: its ends along the road.
        height: metres.
        paint, trim: its colours.
        window: width and height of a field of the front with one window; 0 for none.
        offset: start of its texture.
    """

    x: float
    near: float
    far: float
    height: float
    paint: Float64
    trim: Float64
    window: tuple[float, float]
    offset: float


@dataclass(frozen=True)
class Camera:
    """Position and view of the camera at a frame.

    Attributes:
        x, height, z: metres.
        yaw, pitch: of the view, as shares of the focal length, including shake.
        bend: curvature of the road: metres sideways per squared metre ahead.
    """

    x: float
    height: float
    z: float
    yaw: float
    pitch: float
    bend: float


class Recording:
    """One sequence: a drive through one place in one light."""

    def __init__(self, seed: int, number: int, frames: int) -> None:
        # each combination of place and light occurs once in 25 sequences
        self.place_name = PLACES[number % 5]
        self.light_name = LIGHTS[(2 * number + number // 5) % 5]
        self.place, self.light = KINDS[self.place_name], WEATHER[self.light_name]
        self._name = (seed, number)
        dice = self.dice("style")
        self.texture = Texture(dice)
        self.focal = dice.between(0.72, 0.95)
        self.horizon = dice.between(0.42, 0.52)
        self.asphalt = dice.colour((92, 92, 96), 26.0)
        self.verge = dice.colour(self.place.verge, 26.0)
        self.pavement = dice.colour((146, 142, 136), 26.0)
        self.marks = dice.one_of((238.0, 225.0, 190.0))
        self.gains = np.array([gain * dice.between(0.92, 1.08) for gain in self.light.gains])
        self.contrast = dice.between(0.85, 1.2)
        self.dull = dice.between(0.0, 0.6)
        self.dash = dice.between(5.0, 10.0)
        self.leaves = dice.colour((70, 98, 44), 30.0)
        self._height = dice.between(1.25, 1.7)
        self._drive(frames)
        self.walls = tuple(self._walls())
        self.things = tuple(self._things())

    def dice(self, *subject: object) -> Dice:
        """Return random numbers of one subject of this recording."""
        return Dice(*self._name, *subject)

    def camera(self, frame: int) -> Camera:
        """Return the camera at a frame."""
        shake = self.dice("shake", frame)
        z = self._travelled[frame]
        return Camera(
            x=self.place.lanes[0] + self._sway.at(frame),
            height=self._height + shake.between(-0.012, 0.012),
            z=z,
            yaw=self._yaw.at(frame) + shake.between(-0.003, 0.003),
            pitch=self._pitch.at(frame) + shake.between(-0.004, 0.004),
            bend=self._bend.at(z),
        )

    def _drive(self, frames: int) -> None:
        speed = Course(self.dice("speed"), *self.place.speed, 14.0)
        self._travelled = [0.0]
        for frame in range(frames):
            self._travelled.append(self._travelled[-1] + speed.at(frame))
        self.speed = self._travelled[-1] / frames
        self._sway = Course(self.dice("sway"), -0.3, 0.3, 25.0)
        self._yaw = Course(self.dice("yaw"), -0.09, 0.09, 18.0)
        self._pitch = Course(self.dice("pitch"), -0.015, 0.015, 8.0)
        self._bend = Course(self.dice("bend"), -0.0022, 0.0022, 45.0)
        self._end = self._travelled[-1] + AHEAD

    def _walls(self) -> Iterator[Wall]:
        place = self.place
        if not place.wall_height[1]:
            return
        for side in (-1.0, 1.0):
            dice = self.dice("walls", side)
            z = -10.0
            while z < self._end + 30.0:
                length = dice.between(9.0, 20.0) if place.wall_height[1] > 1 else 400.0
                plain = self.place_name in ("yard", "highway")
                fields = (0.0, 0.0) if plain else (dice.between(1.6, 3.2), dice.between(2.7, 3.4))
                base = HALLS if plain else HOUSES
                x = place.half + place.parking + place.pavement + place.walls
                yield Wall(
                    *(side * (x + dice.between(0.0, 1.5) * (length < 400)), z, z + length),
                    dice.between(*place.wall_height),
                    *(dice.colour(dice.one_of(base), 34.0), dice.colour((70, 74, 84), 30.0)),
                    *(fields, dice.between(0.0, 99.0)),
                )
                z += length + dice.between(0.0, 2.0 * place.wall_gap)

    def _things(self) -> Iterator[Thing]:
        yield from self._traffic()
        place, edge = self.place, self.place.half + self.place.parking
        for side in (-1.0, 1.0):
            for dice, z in self._spots("parked", side, place.parked):
                kind = "truck" if dice.share() < place.trucks * 0.5 else "car"
                view = "rear" if side > 0 else "front"
                x = side * (place.half + place.parking * 0.5)
                yield self._thing(dice, kind, view, x, z)
            for dice, z in self._spots("walkers", side, place.walkers):
                x = side * (edge + dice.between(0.4, max(place.pavement, 1.2)))
                dx, dz = 0.0, dice.one_of((-1.0, 1.0)) * dice.between(0.06, 0.15)
                if dice.share() < 0.2:  # crosses the road
                    dx, dz = -side * dice.between(0.08, 0.16), 0.0
                view = dice.one_of(("rear", "front"))
                yield self._thing(dice, "pedestrian", view, x, z, dx, dz)
            for dice, z in self._spots("signs", side, place.signs):
                yield from self._signpost(dice, side * (edge + dice.between(0.5, 1.4)), z)
            for dice, z in self._spots("trees", side, place.trees):
                away = 0.8 if place.pavement else dice.between(2.0, 12.0)
                high = dice.between(4.0, 9.0)
                look = Look(
                    self.leaves * dice.between(0.75, 1.2),
                    self.leaves,
                    tuple(dice.share() for _ in range(6)),
                    self.texture,
                )
                wide = high * dice.between(0.5, 0.8)
                x = side * (edge + away)
                yield Thing("tree", "rear", x, z, 0.0, 0.0, 0.0, wide, high, 0.0, look)

    def _traffic(self) -> Iterator[Thing]:
        place = self.place
        for lane in place.lanes:
            for way in (1.0, -1.0):
                dice = self.dice("traffic", lane, way)
                flow = self.speed * dice.between(0.8, 1.15)
                # oncoming vehicles start further away
                z = dice.between(8.0, 20.0)
                end = AHEAD + (self._end if way < 0 else 0.0)
                while z < end:
                    kind = "truck" if dice.share() < place.trucks else "car"
                    dz = way * flow
                    x = way * lane + dice.between(-0.25, 0.25)
                    made = self._thing(dice, kind, "rear" if way > 0 else "front", x, z, 0.0, dz)
                    yield made
                    z += made.length + dice.between(0.4, 1.6) * place.traffic
        dice = self.dice("crossing")
        for _ in range(2 if place.speed[1] < 0.9 else 0):
            way = dice.one_of((-1.0, 1.0))
            z, start = dice.between(14.0, 50.0), dice.between(5.0, 30.0)
            kind = "truck" if dice.share() < place.trucks else "car"
            view = "right" if way > 0 else "left"
            yield self._thing(dice, kind, view, -way * start, z, way * dice.between(0.2, 0.6))

    def _spots(self, what: str, side: float, gap: float) -> Iterator[tuple[Dice, float]]:
        """Yield positions of things of a kind along the road, each with its own dice."""
        if not gap:
            return
        dice = self.dice(what, side)
        z = dice.between(2.0, 2.0 + gap)
        while z < self._end:
            yield Dice(*self._name, what, side, int(z * 1000)), z
            z += gap * dice.between(0.5, 1.5) + 0.8

    def _thing(
        self,
        dice: Dice,
        kind: str,
        view: str,
        x: float,
        z: float,
        dx: float = 0.0,
        dz: float = 0.0,
        bottom: float = 0.0,
    ) -> Thing:
        sizes = [mean + dice.between(-spread, spread) for mean, spread in SIZES[kind]]
        look = looks(kind, dice, self.texture, self.dull)
        width, height, length = sizes
        if view in ("left", "right"):
            width, length = length, width
        return Thing(kind, view, x, z, dx, dz, bottom, width, height, length, look)

    def _signpost(self, dice: Dice, x: float, z: float) -> Iterator[Thing]:
        bottom = dice.between(1.7, 2.3)
        face = self._thing(dice, "sign", "rear", x, z, bottom=bottom)
        yield Thing("pole", "rear", x, z + 0.05, 0.0, 0.0, 0.0, 0.1, bottom, 0.0, face.look)
        yield face
