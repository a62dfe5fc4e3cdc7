"""Screens: which pairs of a block may be wanted, at a fraction of the price of the full product.

For unit vectors cut into a first part and a rest, ``<q, r> <= <q1, r1> + |q2| |r2|``
(Cauchy-Schwarz). The first part is some orthonormal coordinates of both: a run of the stored
ones, which costs nothing to make, or principal axes, which cost a product of every row with them.
Nothing that is wanted is ever lost: all rounding is bounded, and the bound lowers what is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import local
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.records import Float32, Int64
from visleak.search.exact import MARGIN
from visleak.search.streaming_blocks import (
    ROUNDING,
    dot_error,
    length_error,
    read_block,
)

#: Rows and queries of one product: its result stays in the processor's cache.
BLOCK: Final = 1024
TILE: Final = 256

#: Pairs compared in full at a time: more would not fit into the cache and take four times as long.
CHUNK: Final = 512


@dataclass(frozen=True, slots=True)
class Seen:
    """What a screen saw in some rows.

    Attributes:
        query, row: ``int64`` (n,): pairs that may be wanted, among them all that are.
        broken: ``int64`` (k,): rows without a direction (NaN, infinity, zeros).
        off: how many are of another length than 1.
    """

    query: Int64
    row: Int64
    broken: Int64
    off: int


class Screen(Protocol):
    """Selects pairs. Several threads may use one at a time.

    Attributes:
        block: rows it likes to get at a time.
    """

    block: int

    def look(self, stored: npt.NDArray[Any], floor: Float32) -> Seen:
        """Return the pairs whose similarity may reach the floor of their query.

        Args:
            stored: (m, d): rows as stored.
            floor: ``float32``, one a query.
        """
        ...


@dataclass(frozen=True)
class Part:
    """Which coordinates make the first part: ``axes``, else those from ``start`` to ``stop``.

    Attributes:
        start, stop: a run of the stored coordinates.
        axes: ``float32`` (d, k), orthonormal columns, or ``None``.
    """

    start: int
    stop: int
    axes: Float32 | None = None

    @property
    def kept(self) -> int:
        """Number of coordinates."""
        return self.stop - self.start

    def of(self, rows: Float32) -> Float32:
        """Return the first part (n, k) of rows."""
        return rows[:, self.start : self.stop] if self.axes is None else rows @ self.axes

    def error(self, width: int) -> float:
        """Return how far the first part of a unit row may be off (as a vector), for rounding."""
        if self.axes is None:
            return length_error(width)
        axes = self.axes.astype(np.float64)
        skew = float(np.linalg.norm(axes.T @ axes - np.eye(self.kept)))
        return length_error(width) + float(np.sqrt(self.kept)) * dot_error(width) + skew


class ProductScreen:
    """Bounds by the first part, then compares what is left in full.

    Args:
        query: ``float32`` (n, d): unit rows.
        part: the first part; all coordinates if there is no rest.
    """

    block = BLOCK

    def __init__(self, query: Float32, part: Part) -> None:
        width = query.shape[1]
        self._query = query
        self._part = part
        self._whole = part.axes is None and part.kept == width
        self._local = local()
        full = dot_error(width) + 2 * length_error(width)
        #: A ``float32`` similarity below the floor by more than this is not wanted.
        self._slack = np.float32(max(MARGIN, full))
        if self._whole:
            self._bound_slack, self._spare = self._slack, 0.0
            self._first = np.ascontiguousarray(query.T)
            return
        error = part.error(width)
        # the squared rest may come out too small by twice the error of the part and that of its sum
        self._spare = 2 * error + error * error + dot_error(part.kept) + 8 * ROUNDING
        bound = dot_error(part.kept + 1) * (1 + self._spare) + 2 * error + 8 * ROUNDING
        self._bound_slack = np.float32(max(MARGIN, bound))
        first = part.of(query)
        self._first = np.ascontiguousarray(np.column_stack([first, self._rest(first)]).T)

    def _rest(self, first: Float32) -> Float32:
        """Return a little more than the lengths of the rests of unit rows."""
        squared = np.float32(1) - np.einsum("ij,ij->i", first, first)
        squared = np.maximum(squared, np.float32(0)) + np.float32(self._spare)
        return np.asarray(np.sqrt(squared))

    def look(self, stored: npt.NDArray[Any], floor: Float32) -> Seen:
        """Return pairs that may reach the floor; see :class:`Screen`."""
        room = self._room(stored.shape)
        rows = room.rows[: len(stored)]
        judged = read_block(stored, rows)
        query, row = self._reaching(self._prepared(rows, judged.scale, room), floor, room)
        if not self._whole:
            query, row = self._compared(rows, judged.scale, query, row, floor)
        if len(judged.broken):
            keep = ~np.isin(row, judged.broken)
            query, row = query[keep], row[keep]
        return Seen(query, row, judged.broken, judged.off)

    def _prepared(self, rows: Float32, scale: Float32, room: _Room) -> Float32:
        """Return the first parts of a block's rows, and the lengths of the rests behind them."""
        kept = self._part.kept
        prepared = room.prepared[: len(rows)]
        first = prepared[:, :kept]
        if self._part.axes is None:
            run = rows[:, self._part.start : self._part.stop]
            np.multiply(run, scale[:, None], out=first)
        else:
            np.matmul(rows, self._part.axes, out=first)
            first *= scale[:, None]
        if not self._whole:
            prepared[:, kept] = self._rest(first)
            prepared[scale == 0, kept] = 0
        return prepared

    def _reaching(self, prepared: Float32, floor: Float32, room: _Room) -> tuple[Int64, Int64]:
        """Return the pairs whose bound reaches the floor."""
        needed = floor - self._bound_slack
        queries, rows = [], []
        for start in range(0, len(floor), TILE):
            tile = slice(start, start + TILE)
            size = len(prepared), len(needed[tile])
            bounds = room.bounds[: size[0] * size[1]].reshape(size)
            reached = room.reached[: size[0] * size[1]].reshape(size)
            np.matmul(prepared, self._first[:, tile], out=bounds)
            np.greater_equal(bounds, needed[tile], out=reached)
            places = np.flatnonzero(reached)
            if len(places):
                row, query = np.divmod(places, size[1])
                rows.append(row)
                queries.append(query + start)
        none: Int64 = np.empty(0, np.int64)
        return np.concatenate([none, *queries]), np.concatenate([none, *rows])

    def _compared(
        self, rows: Float32, scale: Float32, query: Int64, row: Int64, floor: Float32
    ) -> tuple[Int64, Int64]:
        """Return the pairs whose similarity in ``float32`` reaches the floor."""
        keep = np.empty(len(query), np.bool_)
        needed = floor - self._slack
        for start in range(0, len(query), CHUNK):
            part = slice(start, start + CHUNK)
            product = np.einsum("ij,ij->i", self._query[query[part]], rows[row[part]])
            keep[part] = product * scale[row[part]] >= needed[query[part]]
        return query[keep], row[keep]

    def _room(self, shape: tuple[int, ...]) -> _Room:
        """Return this thread's arrays to work in."""
        room: _Room | None = getattr(self._local, "room", None)
        if room is None or len(room.rows) < shape[0]:
            columns = self._part.kept + (not self._whole)
            room = _Room(
                rows=np.empty(shape, np.float32),
                prepared=np.empty((shape[0], columns), np.float32),
                bounds=np.empty(shape[0] * TILE, np.float32),
                reached=np.empty(shape[0] * TILE, np.bool_),
            )
            self._local.room = room
        return room


@dataclass(frozen=True, slots=True)
class _Room:
    """Arrays that one thread works in, made once: the system gives out new ones slowly."""

    rows: Float32
    prepared: Float32
    bounds: Float32
    reached: npt.NDArray[np.bool_]
