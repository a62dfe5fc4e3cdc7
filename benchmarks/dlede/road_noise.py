"""Random numbers and textures that are the same on every machine.

Only generators with guaranteed streams are used (``random.Random.random``, ``PCG64.random_raw``),
and only arithmetic that IEEE 754 rounds in one way: no sine, no power, no sum whose order depends
on a library.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Thing = TypeVar("Thing")

#: Side of a texture's lattice, a power of two; it repeats after that.
SIDE = 256


class Dice:
    """Random numbers of one subject, such as the cars of a sequence, independent of others."""

    def __init__(self, *subject: object) -> None:
        self._stream = random.Random("/".join(map(str, subject)))

    def share(self) -> float:
        """Return a number in [0, 1)."""
        return self._stream.random()

    def between(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
        return low + (high - low) * self._stream.random()

    def whole(self, below: int) -> int:
        """Return an integer in [0, below)."""
        return int(self._stream.random() * below)

    def one_of(self, things: Sequence[Thing]) -> Thing:
        """Return one of some things."""
        return things[self.whole(len(things))]

    def colour(self, base: Sequence[float], spread: float) -> Float64:
        """Return a colour near another, in [0, 255]: brighter or darker, and a little tinted."""
        lift, tint = self.between(-spread, spread), 0.3 * spread
        shades = [value + lift + self.between(-tint, tint) for value in base]
        return np.asarray(np.clip(np.array(shades), 4.0, 251.0))


class Course:
    """A quantity that changes smoothly, such as the yaw over the frames.

    Args:
        dice: source of its values.
        low, high: its range.
        knots: frames (or metres) between two free values.
    """

    def __init__(self, dice: Dice, low: float, high: float, knots: float) -> None:
        self._values = [dice.between(low, high) for _ in range(64)]
        self._knots = knots

    def at(self, time: float) -> float:
        """Return the value at a time."""
        place = time / self._knots
        first = int(place)
        rest = place - first
        rest = rest * rest * (3.0 - 2.0 * rest)
        a, b = self._values[first % 64], self._values[(first + 1) % 64]
        return a + (b - a) * rest


class Texture:
    """Value noise on a plane: a smooth surface through random values at whole coordinates."""

    def __init__(self, dice: Dice) -> None:
        raw = np.random.PCG64(dice.whole(1 << 40)).random_raw(SIDE * SIDE)
        self._table = (raw >> np.uint64(11)).astype(np.float64).reshape(SIDE, SIDE) * 2.0**-53

    def at(self, x: Float64, y: Float64) -> Float64:
        """Return values in [0, 1) at broadcast coordinates."""
        column, row = np.floor(x), np.floor(y)
        right, down = x - column, y - row
        right, down = right * right * (3.0 - 2.0 * right), down * down * (3.0 - 2.0 * down)
        c0 = column.astype(np.int64) & (SIDE - 1)
        r0 = row.astype(np.int64) & (SIDE - 1)
        c1, r1 = (c0 + 1) & (SIDE - 1), (r0 + 1) & (SIDE - 1)
        top = self._table[r0, c0] * (1.0 - right) + self._table[r0, c1] * right
        below = self._table[r1, c0] * (1.0 - right) + self._table[r1, c1] * right
        return np.asarray(top * (1.0 - down) + below * down)

    def rough(self, x: Float64, y: Float64) -> Float64:
        """Return values in [0, 1) with detail at three scales."""
        coarse, middle = self.at(x, y), self.at(x * 2.0 + 17.0, y * 2.0 + 5.0)
        fine = self.at(x * 4.0 + 91.0, y * 4.0 + 43.0)
        return np.asarray(coarse * 0.5 + middle * 0.3 + fine * 0.2)


def grain(shape: tuple[int, ...], dice: Dice) -> Float64:
    """Return sensor noise of mean 0 and deviation 1, bell-shaped: four bytes added up."""
    count = 1
    for side in shape:
        count *= side
    raw = np.random.PCG64(dice.whole(1 << 40)).random_raw((count + 1) // 2)
    four = raw.astype("<u8").view(np.uint8).reshape(-1, 4).astype(np.int64)[:count]
    added = four[:, 0] + four[:, 1] + four[:, 2] + four[:, 3] - 510
    # deviation of a sum of four bytes: sqrt(4 (256^2 - 1) / 12)
    return np.asarray((added / 147.8).reshape(shape))
