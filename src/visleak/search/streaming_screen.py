"""Screens: which pairs of a block may be wanted, at a fraction of the price of the full product.

For unit vectors cut into a first part and a rest, ``<q, r> <= <q1, r1> + |q2| |r2|``
(Cauchy-Schwarz). The first part is some orthonormal coordinates of both: a run of the stored
ones, which costs nothing to make, or principal axes, which cost a product of every row with them.
Nothing that is wanted is ever lost: all rounding is bounded, and the bound lowers the limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from threading import local
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.records import Float32, Int64
from visleak.search.exact import MARGIN
from visleak.search.hits import Wanted
from visleak.vectors import NORM_TOLERANCE, parts_of, unit_rows

if TYPE_CHECKING:
    import torch

#: Half a unit in the last place of ``float32``: the relative error of one operation.
ROUNDING: Final = 2.0**-24
#: Lengths between which squares neither overflow nor vanish; other rows are normalised exactly.
SANE_LENGTHS: Final = (1e-3, 1e3)
#: Of a half float widened by moving its bits: sign, exponent and fraction, at their new places.
HALF_BITS: Final = np.uint32(0x8FFFE000)
HALF_SCALE: Final = np.float32(2.0**112)  # difference of the two exponents' biases: 127 - 15
#: Pairs and queries of one product on a device: its result takes 3 bytes per pair, and if
#: everything is wanted its list of places takes 16.
PAIRS: Final = 2**27
DEVICE_TILE: Final = 8_192
BLOCKS: Final = (1024, 65_536)  # rows at a time, however few or many the queries are
#: Relative rounding of the precisions a device may compute in.
PRECISIONS: Final = {"fp16": 2.0**-11, "bf16": 2.0**-8}


@dataclass(frozen=True, slots=True)
class RowLengths:
    """The lengths of some stored rows."""

    # float32 (m,): rows times this are of unit length, but for an error of at most
    # length_error; 0 where a row is broken
    scale: Float32
    odd: Int64  # int64 (k,): rows so short, long or broken that they must be replaced
    replaced: Float32  # float32 (k, d): by these; zero where a row is broken
    broken: Int64  # int64 (j,): rows without a direction (NaN, infinity, zeros)
    off: int  # how many are of another length than 1


def dot_error(terms: int) -> float:
    """Return how far a ``float32`` dot product may be off, for factors of unit length.

    Holds for any order of summation (Higham 2002, section 3.1): n u / (1 - n u).
    """
    return terms * ROUNDING / (1 - terms * ROUNDING)


def length_error(width: int) -> float:
    """Return the largest relative error of rows times :attr:`RowLengths.scale`."""
    # the root halves the error of the sum; root, division, product and unit rows round once each
    return dot_error(width) / 2 + 5 * ROUNDING


def read_block(stored: npt.NDArray[np.generic], out: Float32) -> RowLengths:
    """Write stored rows (m, d) of any float type into ``out`` (m, d), fit to be scaled."""
    widen(stored, out)
    with np.errstate(over="ignore", invalid="ignore"):
        judged = row_lengths(stored, np.sqrt(np.einsum("ij,ij->i", out, out)))
    out[judged.odd] = judged.replaced
    return judged


def row_lengths(stored: npt.NDArray[np.generic], lengths: Float32) -> RowLengths:
    """Return the lengths of stored rows from rough ones, exact where these are unsure."""
    sane = (lengths > SANE_LENGTHS[0]) & (lengths < SANE_LENGTHS[1])
    usable = np.asarray(np.where(sane, lengths, 1), np.float32)
    distance = np.abs(usable - np.float32(1))
    unsure = np.abs(distance - NORM_TOLERANCE) < 4 * dot_error(stored.shape[1])
    off = int(np.count_nonzero((distance > NORM_TOLERANCE) & ~unsure))
    if unsure.any():
        off += int(unit_rows(stored[unsure]).off.sum())
    odd = np.flatnonzero(~sane)
    exact = unit_rows(stored[odd])
    scale = np.reciprocal(usable)
    scale[odd[exact.broken]] = 0
    return RowLengths(scale, odd, exact.matrix, odd[exact.broken], off + int(exact.off.sum()))


def widen(stored: npt.NDArray[np.generic], out: Float32) -> None:
    """Write stored rows into ``out`` as ``float32``.

    Half floats are widened with whole-array integer operations, several times faster than numpy
    converts them one by one: the bits move to their places, and a product corrects the exponent.
    Infinity and NaN come out as 65,536 or more, which no finite half float reaches.
    """
    if stored.dtype == np.dtype(np.float16) and stored.dtype.isnative and _keeps_subnormals():
        bits = out.view(np.int32)
        np.copyto(bits, stored.view(np.int16))
        unsigned = out.view(np.uint32)
        np.left_shift(unsigned, 13, out=unsigned)
        np.bitwise_and(unsigned, HALF_BITS, out=unsigned)
        np.multiply(out, HALF_SCALE, out=out)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(out, stored, casting="same_kind")


def _keeps_subnormals() -> bool:
    """Whether this thread computes with subnormal numbers; some libraries switch that off."""
    return bool((np.full(1, 1e-40, np.float32) * np.float32(1e30))[0] > 0)


BLOCK: Final = 1024  # rows and queries of one product: its result stays in the processor's cache
TILE: Final = 256
#: Pairs compared in full at a time: more would not fit into the cache and take four times as long.
CHUNK: Final = 512


@dataclass(frozen=True, slots=True)
class ScreenResult:
    """What a screen selects of some rows."""

    query: Int64  # int64 (n,): pairs that may be wanted, among them all that are
    row: Int64
    broken: Int64  # int64 (k,): rows without a direction (NaN, infinity, zeros)
    off: int  # how many are of another length than 1


class Screen(Protocol):
    """Selects pairs. Several threads may use one at a time."""

    block: int  # preferred number of rows at a time

    def select(self, stored: npt.NDArray[np.generic], floor: Float32) -> ScreenResult:
        """Return the pairs whose similarity may reach the floor of their query."""
        ...


@dataclass(frozen=True)
class Part:
    """Which coordinates make the first part: ``axes``, else those from ``start`` to ``stop``."""

    start: int  # a run of the stored coordinates
    stop: int
    axes: Float32 | None = None  # float32 (d, k), orthonormal columns, or None

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
    """Bounds by the first part, then compares what is left in full."""

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

    def select(self, stored: npt.NDArray[np.generic], floor: Float32) -> ScreenResult:
        """Return pairs that may reach the floor; see :class:`Screen`."""
        workspace = self._workspace(stored.shape)
        rows = workspace.rows[: len(stored)]
        judged = read_block(stored, rows)
        query, row = self._reaching(self._prepared(rows, judged.scale, workspace), floor, workspace)
        if not self._whole:
            query, row = self._compared(rows, judged.scale, query, row, floor)
        if len(judged.broken):
            keep = ~np.isin(row, judged.broken)
            query, row = query[keep], row[keep]
        return ScreenResult(query, row, judged.broken, judged.off)

    def _prepared(self, rows: Float32, scale: Float32, workspace: _Workspace) -> Float32:
        """Return the first parts of a block's rows, and the lengths of the rests behind them."""
        kept = self._part.kept
        prepared = workspace.prepared[: len(rows)]
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

    def _reaching(
        self, prepared: Float32, floor: Float32, workspace: _Workspace
    ) -> tuple[Int64, Int64]:
        """Return the pairs whose bound reaches the floor."""
        needed = floor - self._bound_slack
        queries, rows = [], []
        for tile in parts_of(len(floor), TILE):
            size = len(prepared), len(needed[tile])
            bounds = workspace.bounds[: size[0] * size[1]].reshape(size)
            reached = workspace.reached[: size[0] * size[1]].reshape(size)
            np.matmul(prepared, self._first[:, tile], out=bounds)
            np.greater_equal(bounds, needed[tile], out=reached)
            places = np.flatnonzero(reached)
            if len(places):
                row, query = np.divmod(places, size[1])
                rows.append(row)
                queries.append(query + tile.start)
        none: Int64 = np.empty(0, np.int64)
        return np.concatenate([none, *queries]), np.concatenate([none, *rows])

    def _compared(
        self, rows: Float32, scale: Float32, query: Int64, row: Int64, floor: Float32
    ) -> tuple[Int64, Int64]:
        """Return the pairs whose similarity in ``float32`` reaches the floor."""
        keep = np.empty(len(query), np.bool_)
        needed = floor - self._slack
        for part in parts_of(len(query), CHUNK):
            product = np.einsum("ij,ij->i", self._query[query[part]], rows[row[part]])
            keep[part] = product * scale[row[part]] >= needed[query[part]]
        return query[keep], row[keep]

    def _workspace(self, shape: tuple[int, ...]) -> _Workspace:
        workspace: _Workspace | None = getattr(self._local, "workspace", None)
        if workspace is None or len(workspace.rows) < shape[0]:
            columns = self._part.kept + (not self._whole)
            workspace = _Workspace(
                rows=np.empty(shape, np.float32),
                prepared=np.empty((shape[0], columns), np.float32),
                bounds=np.empty(shape[0] * TILE, np.float32),
                reached=np.empty(shape[0] * TILE, np.bool_),
            )
            self._local.workspace = workspace
        return workspace


@dataclass(frozen=True, slots=True)
class _Workspace:
    """The arrays of one thread, allocated once: new ones are slow."""

    rows: Float32
    prepared: Float32
    bounds: Float32
    reached: npt.NDArray[np.bool_]


TRIED_QUERIES: Final = 256  # rows of either side that the costs are measured on
TRIED_ROWS: Final = 1024
LEARNT_FROM: Final = 4096  # rows of either side that axes are found from
RUNS: Final = 16  # a sample is read in so many runs: a file gives runs faster than single rows
#: Costs in multiply-adds of the matrix product: to compare a pair with the floor, to compare one
#: that reached it in full, to cut a coordinate out of a row, and to find the axes of a width of 1.
COMPARING: Final = 10.0
COMPARING_IN_FULL: Final = 13_000.0
CUTTING: Final = 10.0
FINDING_AXES: Final = 250.0
#: How many coordinates to try, in shares of the width.
SHARES: Final = (1 / 64, 1 / 32, 3 / 64, 1 / 16, 3 / 32, 1 / 8, 9 / 64, 5 / 32, 11 / 64,
                 3 / 16, 7 / 32, 1 / 4, 5 / 16, 3 / 8, 1 / 2)  # fmt: skip


def whole(width: int) -> Part:
    """Return the part that leaves no rest: the plain product."""
    return Part(0, width)


def sampled(stored: npt.NDArray[np.generic], count: int, shift: int = 0) -> Float32:
    """Return unit rows of some runs of a matrix, the broken ones left out."""
    if not len(stored):
        return np.empty(stored.shape, np.float32)
    length = -(-min(count, len(stored)) // RUNS)
    starts = np.linspace(0, len(stored) - length, RUNS).astype(np.int64)
    rows = np.unique((starts[:, None] + shift * length + np.arange(length)).ravel() % len(stored))
    read = unit_rows(stored[rows])
    return read.matrix[~read.broken]


def choose(query: Float32, stored: npt.NDArray[np.generic], wanted: Wanted, rows: int) -> Part:
    """Return the part of the least expected cost."""
    width = query.shape[1]
    left, right = sampled(query, TRIED_QUERIES), sampled(stored, TRIED_ROWS)
    plain = len(query) * (width + COMPARING)
    choices = [(plain, whole(width))]
    if not len(right):
        return choices[0][1]
    floor = _expected_floor(left, right, wanted, rows)
    for part in _runs(left, right):
        choices.append((_cost(len(query), part, left, right, floor), part))
    cheapest = min(choices, key=lambda choice: choice[0])
    if cheapest[0] * rows > FINDING_AXES * width**3:
        # from other rows than they are tried on, for which they would seem better than they are
        axes = _axes(sampled(query, LEARNT_FROM, shift=1), sampled(stored, LEARNT_FROM, shift=1))
        for kept in _sizes(width):
            part = Part(0, kept, np.ascontiguousarray(axes[:, :kept]))
            choices.append((_cost(len(query), part, left, right, floor), part))
        cheapest = min(choices, key=lambda choice: choice[0])
    return cheapest[1]


def _sizes(width: int) -> Iterator[int]:
    """Yield numbers of coordinates to try, each once."""
    yield from sorted({max(1, round(width * share)) for share in SHARES} - {width})


def _runs(left: Float32, right: Float32) -> Iterator[Part]:
    """Yield the runs of stored coordinates in which the two sides differ most, one per size."""
    one, other = left.astype(np.float64), right.astype(np.float64)
    spread = (one**2).mean(axis=0) + (other**2).mean(axis=0)
    spread -= 2 * one.mean(axis=0) * other.mean(axis=0)
    sums = np.concatenate([[0.0], np.cumsum(spread)])
    for kept in _sizes(left.shape[1]):
        start = int(np.argmax(sums[kept:] - sums[:-kept]))
        yield Part(start, start + kept)


def _axes(left: Float32, right: Float32) -> Float32:
    """Return orthonormal axes (d, k), those along which the two sides differ most first."""
    one, other = left.astype(np.float64), right.astype(np.float64)
    across = np.outer(one.mean(axis=0), other.mean(axis=0))
    moment = one.T @ one / len(one) + other.T @ other / len(other) - across - across.T
    _, axes = np.linalg.eigh(moment)
    return axes[:, ::-1].astype(np.float32)


def _cost(
    queries: int, part: Part, left: Float32, right: Float32, floor: npt.NDArray[np.float64]
) -> float:
    """Return the cost of a part per reference, in multiply-adds."""
    first, second = part.of(left), part.of(right)
    rests = [np.sqrt(np.maximum(1 - np.einsum("ij,ij->i", p, p), 0)) for p in (first, second)]
    bounds = first @ second.T + np.outer(*rests)
    passing = float((bounds >= floor[:, None]).mean())
    making = part.kept * CUTTING if part.axes is None else part.kept * left.shape[1]
    return making + queries * (part.kept + COMPARING + passing * COMPARING_IN_FULL)


def _expected_floor(
    left: Float32, right: Float32, wanted: Wanted, rows: int
) -> npt.NDArray[np.float64]:
    """Return an estimate of the floor of the sampled queries, most of the time."""
    threshold = np.inf if wanted.threshold is None else wanted.threshold
    floor = np.full(len(left), threshold)
    if wanted.best:
        # the share of the best among the rows, halfway through them
        share = min(1.0, 2 * wanted.best / max(1, rows))
        floor = np.minimum(floor, np.quantile(left @ right.T, 1 - share, axis=1))
    return floor


def half_error(width: int, precision: str) -> float:
    """Return how far a similarity of unit vectors in a precision may be off; see the module."""
    unit = PRECISIONS[precision]
    rounding = 2 * unit + unit * unit + 2.0**-24 * math.sqrt(width)
    summing = 2 * dot_error(width)
    return rounding + summing + unit * (1 + rounding + summing)


class DeviceScreen:
    """Compares whole vectors in half precision on a device of torch."""

    def __init__(self, query: Float32, device: str, precision: str = "fp16") -> None:
        import torch

        self.block = int(np.clip(PAIRS // max(1, len(query)), *BLOCKS))
        self._torch = torch
        self._device = device
        self._kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
        # sums cut to half precision halfway would be off by more than the bound allows
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        width = query.shape[1]
        self._slack = half_error(width, precision) + 2 * length_error(width)
        self._query = torch.tensor(query, device=device).to(self._kind)

    def select(self, stored: npt.NDArray[np.generic], floor: Float32) -> ScreenResult:
        """Return pairs that may reach the floor; see :class:`Screen`."""
        try:
            rows, judged = self._prepared(stored)
            query, row = self.reaching(rows, self._torch.tensor(floor, device=self._device)).T
        except self._torch.cuda.OutOfMemoryError as error:
            raise VisleakError(
                f"{self._device} has too little free memory to search on; use the processor"
                " (device cpu), or free memory of the GPU"
            ) from error
        keep = ~np.isin(row, judged.broken)
        return ScreenResult(query[keep], row[keep], judged.broken, judged.off)

    def reaching(self, rows: torch.Tensor, floor: torch.Tensor) -> Int64:
        """Return pairs (n, 2) of query and row that may reach the floor."""
        found = []
        for tile in parts_of(len(floor), DEVICE_TILE):
            reached = self._query[tile] @ rows.T >= (floor[tile] - self._slack)[:, None]
            places = self._torch.nonzero(reached).cpu().numpy()
            found.append(places + np.array([tile.start, 0]))
        return np.concatenate([np.empty((0, 2), np.int64), *found])

    def _prepared(self, stored: npt.NDArray[np.generic]) -> tuple[torch.Tensor, RowLengths]:
        """Return unit rows in half precision on the device, and their lengths."""
        torch = self._torch
        # a copy: torch takes neither read-only memory nor foreign byte order
        own = np.array(stored, stored.dtype.newbyteorder("="))
        rows = torch.from_numpy(own).to(self._device).to(torch.float32)
        judged = row_lengths(stored, torch.linalg.vector_norm(rows, dim=1).cpu().numpy())
        if len(judged.odd):
            rows[torch.tensor(judged.odd, device=self._device)] = torch.tensor(
                judged.replaced, device=self._device
            )
        rows *= torch.tensor(judged.scale, device=self._device)[:, None]
        return rows.to(self._kind), judged
