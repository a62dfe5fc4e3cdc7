"""Kinds of places and of light of recordings."""

from __future__ import annotations

from dataclasses import dataclass

PLACES = ("city", "suburb", "country", "highway", "yard")
LIGHTS = ("noon", "overcast", "evening", "dusk", "fog")


@dataclass(frozen=True)
class Place:
    """A kind of place.

    Attributes:
        half: half the width of the road, metres.
        lanes: middles of the lanes of one direction, metres from the middle of the road.
        parking, pavement: widths of the strips beside the road, metres; 0 for none.
        verge: colour of the ground beyond.
        walls: from the pavement to the walls, metres.
        wall_height: range, metres; 0 for no walls.
        wall_gap: half the largest gap between walls, metres.
        trees, parked, walkers, signs, traffic: mean gaps between them, metres; 0 for none.
        trucks: share of trucks among vehicles.
        speed: range of the camera's speed, metres per frame.
        hills: height, as a share of the focal length.
    """

    half: float
    lanes: tuple[float, ...]
    parking: float
    pavement: float
    verge: tuple[float, float, float]
    walls: float
    wall_height: tuple[float, float]
    wall_gap: float
    trees: float
    parked: float
    walkers: float
    signs: float
    traffic: float
    trucks: float
    speed: tuple[float, float]
    hills: float


KINDS = {
    "city": Place(
        *(3.6, (1.8,), 2.2, 3.5, (116, 110, 104), 1.0, (9, 20), 0.5, 26, 8.0, 3.0, 9, 15, 0.15),
        *((0.12, 0.6), 0.05),
    ),
    "suburb": Place(
        *(3.2, (1.6,), 2.0, 2.0, (84, 104, 58), 5.0, (5, 8), 8.0, 10, 12.0, 6.0, 12, 20, 0.12),
        *((0.25, 0.7), 0.08),
    ),
    "country": Place(
        *(3.3, (1.65,), 0.0, 0.0, (96, 112, 54), 0.0, (0, 0), 0.0, 6, 0, 22.0, 13, 22, 0.3),
        *((0.6, 1.1), 0.2),
    ),
    "highway": Place(
        *(7.2, (1.8, 5.4), 0.0, 0.0, (104, 106, 70), 0.3, (0.7, 0.9), 0.0, 14, 0, 0, 11, 13, 0.35),
        *((0.9, 1.6), 0.14),
    ),
    "yard": Place(
        *(4.2, (2.1,), 2.8, 1.0, (122, 114, 98), 2.0, (5, 11), 9.0, 40, 11.0, 8.0, 12, 24, 0.5),
        *((0.15, 0.5), 0.04),
    ),
}


@dataclass(frozen=True)
class Light:
    """Light and weather.

    Attributes:
        gains: of red, green and blue.
        sky_top, sky_low: colours of the sky.
        reach: distance at which half of a colour is haze, metres.
        clouds: opacity.
        noise: deviation of the sensor's noise, in grey levels.
    """

    gains: tuple[float, float, float]
    sky_top: tuple[float, float, float]
    sky_low: tuple[float, float, float]
    reach: float
    clouds: float
    noise: float


WEATHER = {
    "noon": Light((1.08, 1.06, 1.0), (84, 138, 214), (192, 214, 232), 150.0, 0.5, 2.5),
    "overcast": Light((0.88, 0.9, 0.93), (150, 156, 164), (196, 200, 204), 80.0, 0.25, 3.5),
    "evening": Light((1.1, 0.92, 0.7), (110, 128, 170), (246, 196, 128), 100.0, 0.4, 3.5),
    "dusk": Light((0.62, 0.64, 0.74), (44, 52, 92), (150, 124, 128), 90.0, 0.3, 6.0),
    "fog": Light((0.92, 0.94, 0.95), (190, 194, 196), (204, 206, 207), 24.0, 0.05, 4.0),
}
