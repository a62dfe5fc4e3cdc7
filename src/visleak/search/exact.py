"""Exact search: every wanted pair, whatever the block size, worker count or order.

References are streamed once, block by block, past all queries. In a block a kernel bounds all
similarities from above; only pairs whose bound reaches what is still needed, the threshold or
the query's best so far, are compared in full. The stored similarity of a pair is the float64 dot
product of the stored vectors, rounded to float32, so no block or engine ever changes an answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from operator import mul
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from visleak.groups import places, rank_within
from visleak.records import VIEWS, Bool, Float32, Int8, Int64
from visleak.search.hits import Account, Hits, Rows, Scored, Sides, ViewMaker, Wanted
from visleak.vectors import parts_of

#: Views whose float32 similarity is this far below the best are not rescored.
VIEW_MARGIN: Final = 1e-5
CHUNK: Final = 512  # pairs rescored at a time; only bounds memory
QUERY_BLOCK: Final = 256
REFERENCE_BLOCK: Final = 1024
#: Queries that the references are streamed past at a time; only bounds memory.
QUERIES: Final = 16_384
#: Blocks only select, this much below the limits; rounding stays under a tenth of it.
MARGIN: Final = 1e-5
#: Coordinates kept for the bound, as a share of the width, by whether the best are wanted:
#: a threshold is far above most pairs, the query's best twenty are not.
KEPT_FOR_THRESHOLD: Final = 1 / 20
KEPT_FOR_BEST: Final = 1 / 2
#: Candidates a query block holds before they are settled: only bounds memory, for floods.
PENDING_LIMIT: Final = 100_000


def rescore(sides: Sides, rows: Float32, query: Int64, reference: Int64) -> Scored:
    """Return exact similarities and views of pairs, sorted by query and reference."""
    order = np.lexsort((reference, query))
    query, reference = query[order], reference[order]
    similarity = np.empty(len(query), np.float32)
    view = np.empty(len(query), np.int8)
    stacked = np.stack([sides.seen(rows, each) for each in sides.views], axis=1)
    for part in parts_of(len(query), CHUNK):
        similarity[part], view[part] = _best_views(sides, stacked, query[part], reference[part])
    return Scored(query, reference, similarity, view)


def _best_views(
    sides: Sides, stacked: Float32, query: Int64, reference: Int64
) -> tuple[Float32, Int8]:
    """Return the largest similarity over the views, and the first view that has it."""
    vectors = np.asarray(sides.reference[reference])
    rough = np.empty((len(query), stacked.shape[1]), np.float32)
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(query)], strict=True):
        rough[start:stop] = vectors[start:stop] @ stacked[query[start]].T
    pair, place = np.nonzero(rough >= rough.max(axis=1, keepdims=True) - np.float32(VIEW_MARGIN))
    exact = np.full(rough.shape, -np.inf, np.float32)
    # einsum sums each row by itself, so a pair's value does not depend on its neighbours
    exact[pair, place] = np.einsum(
        "ij,ij->i", stacked[query[pair], place].astype(np.float64), vectors[pair].astype(np.float64)
    )
    best = exact.argmax(axis=1)
    views = np.array(sides.views, np.int8)
    return exact[np.arange(len(query)), best], views[best]


def chosen(scored: Scored, sides: Sides, wanted: Wanted) -> Bool:
    """Return which rescored pairs are wanted: the best of each query, and those by threshold."""
    tie = sides.order[scored.reference]
    keep = np.zeros(len(scored.query), np.bool_)
    if wanted.best:
        corrected = scored.similarity.astype(np.float64) - sides.penalty[scored.reference]
        keep |= rank_within(scored.query, tie, -corrected) < wanted.best
    if wanted.threshold is not None:
        reached = scored.similarity >= np.float32(wanted.threshold)
        similarity = np.where(reached, scored.similarity, -np.inf)
        keep |= reached & (rank_within(scored.query, tie, -similarity) < wanted.cap)
    return keep


def joined(parts: Iterable[tuple[int, Scored, Int64]], order: Int64) -> Hits:
    """Put the findings of ascending blocks of queries together, sorted as :class:`Hits` promises.

    Each block is sorted by itself, as it comes: columns of all would be in memory several times.
    """
    blocks: list[Scored] = []
    totals: list[Int64] = []
    for start, scored, total in parts:
        block = scored.only(np.lexsort((order[scored.reference], -scored.similarity, scored.query)))
        block.query[:] += start
        blocks.append(block)
        totals.append(total)
    return Hits(*blocks[0].plus(*blocks[1:]), np.concatenate(totals))


def no_hits(queries: int) -> Hits:
    """Return the answer of a search without references."""
    none = np.empty(0, np.int64)
    similarity, view = np.empty(0, np.float32), np.empty(0, np.int8)
    return Hits(none, none, similarity, view, np.zeros(queries, np.int64))


class ExactSearch:
    """Finds exactly what is wanted."""

    name = "exact"
    accounts: Sequence[Account] = ()

    def __init__(
        self,
        query_block: int = QUERY_BLOCK,
        reference_block: int = REFERENCE_BLOCK,
        progress: Callable[[int], None] | None = None,
        queries: int = QUERIES,
    ) -> None:
        self._query_block = query_block
        self._held = max(1, queries // query_block) * query_block
        self._reference_block = reference_block
        self._progress = progress or (lambda done: None)

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs; see :class:`visleak.search.hits.Search`."""
        passes = range(0, len(sides.query), self._held)
        if not passes or not len(sides.reference):
            return no_hits(len(sides.query))
        return joined(self._found(sides, wanted, passes, workers), sides.order)

    def _found(
        self, sides: Sides, wanted: Wanted, passes: range, workers: int
    ) -> Iterator[tuple[int, Scored, Int64]]:
        """Yield the first query of each block, what was found of it, and the totals."""
        count, held = len(sides.reference), self._held

        def block(start: int) -> _QueryBlock:
            rows = np.asarray(sides.query[start : start + self._query_block])
            return _QueryBlock(sides, kernel, wanted, start, rows)

        # one BLAS thread each: the worker threads share the cores among themselves
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            kernel = _kernel(sides, wanted)
            for number, first in enumerate(passes):
                last = min(first + held, len(sides.query))
                blocks = list(pool.map(block, range(first, last, self._query_block)))
                for part in self._references(sides, kernel, pool):
                    list(pool.map(lambda b: b.compare(part), blocks))  # noqa: B023
                    self._progress((number * count + part.start + len(part.rows)) // len(passes))
                results = pool.map(_QueryBlock.finish, blocks)
                for own, (scored, total) in zip(blocks, results, strict=True):
                    yield own.start, scored, total

    def _references(
        self, sides: Sides, kernel: Kernel, pool: ThreadPoolExecutor
    ) -> Iterator[_ReferenceBlock]:
        """Yield the blocks of references; the next is made while one is worked on."""

        def made(start: int) -> _ReferenceBlock:
            rows = np.array(sides.reference[start : start + self._reference_block])
            return _ReferenceBlock(start, rows, kernel.prepare(rows, query=False))

        waiting: Future[_ReferenceBlock] | None = None
        for start in range(0, len(sides.reference), self._reference_block):
            following = pool.submit(made, start)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()


def _kernel(sides: Sides, wanted: Wanted) -> Kernel:
    """Choose the kernel for the views and for what is wanted."""
    width = sides.query[:1].shape[1]
    whole = sides.views == tuple(range(len(VIEWS)))
    if sides.make is not None and whole and (basis := dihedral_basis(width, sides.make)):
        return DihedralKernel(basis)
    share = KEPT_FOR_BEST if wanted.best else KEPT_FOR_THRESHOLD
    kept = max(1, min(width, round(width * share)))
    return TruncatedKernel(sides.reference, kept, sides.views, sides.make)


@dataclass(frozen=True, slots=True)
class _ReferenceBlock:
    """A block of references: the row it begins at, its vectors, and these as the kernel's."""

    start: int
    rows: Float32
    prepared: Float32


@dataclass
class _QueryBlock:
    """A block of queries and what was found for it so far."""

    sides: Sides
    kernel: Kernel
    wanted: Wanted
    start: int
    rows: Float32
    # arrays (query, reference) of candidates not yet rescored
    pending: list[tuple[Int64, Int64, Float32]] = field(default_factory=list)
    held: int = 0
    settled: Scored | None = None  # candidates rescored before the end because there were too many

    def __post_init__(self) -> None:
        self.prepared = self.kernel.prepare(self.rows, query=True)
        self.floor = np.full(len(self.rows), -np.inf, np.float32)
        self.leaders = np.full((len(self.rows), self.wanted.best), -np.inf, np.float32)
        self.total = np.zeros(len(self.rows), np.int64)

    def compare(self, block: _ReferenceBlock) -> None:
        """Compare the queries with a block of references."""
        rows = block.rows
        bounds = self.kernel.bounds(self.prepared, block.prepared)
        penalty = self.sides.penalty[block.start : block.start + len(rows)]
        if self.wanted.best:
            bounds -= penalty
        if self.sides.same:
            self._leave_out_self(bounds, block.start)
        if self.wanted.best and self.kernel.tight:
            raising = _places(bounds > self.floor[:, None])
            self._raise_floor(raising[0], bounds[raising])
        query, reference = _places(self._reaching(bounds, penalty))
        if self.kernel.tight:
            value = bounds[query, reference]
            if not self.wanted.best:
                value -= penalty[reference]
        else:
            value = self._corrected(query, reference, rows, penalty, len(bounds) * len(rows))
            if self.wanted.best:
                self._raise_floor(query, value)
            keep = value >= self._needed(query, penalty[reference])
            query, reference, value = query[keep], reference[keep], value[keep]
        self.pending.append((query, reference + block.start, value))
        self.held += len(query)
        if self.held > PENDING_LIMIT:
            self._settle()

    def _leave_out_self(self, bounds: Float32, start: int) -> None:
        mine = np.arange(self.start, self.start + len(self.rows))
        here = (mine >= start) & (mine < start + bounds.shape[1])
        bounds[np.flatnonzero(here), mine[here] - start] = -np.inf

    def _needed(self, query: Int64, penalty: Float32) -> Float32:
        """Return the corrected similarity from which a pair is still of interest."""
        needed = self.floor[query] if self.wanted.best else np.full(len(query), np.inf, np.float32)
        if self.wanted.threshold is not None:
            needed = np.minimum(needed, np.float32(self.wanted.threshold) - penalty)
        return needed - np.float32(MARGIN)

    def _reaching(self, bounds: Float32, penalty: Float32) -> Bool:
        """Return which bounds reach the floor of their query or the threshold."""
        margin = np.float32(MARGIN)
        threshold = np.float32(np.inf if self.wanted.threshold is None else self.wanted.threshold)
        if not self.wanted.best:
            return np.asarray(bounds >= threshold - margin)
        reached = bounds >= (self.floor - margin)[:, None]
        if self.wanted.threshold is not None:
            reached |= bounds >= threshold - penalty - margin
        if self.sides.same:
            reached &= np.isfinite(bounds)
        return np.asarray(reached)

    def _raise_floor(self, query: Int64, corrected: Float32) -> None:
        best = self.wanted.best
        if len(query) > 4 * self.leaders.size:
            # many at once (the first blocks): partitioning each query's is faster than sorting
            query, corrected = _top_of_each(query, corrected, best)
        rows = np.concatenate([np.repeat(np.arange(len(self.rows)), best), query])
        values = np.concatenate([self.leaders.ravel(), corrected])
        order = np.lexsort((-values, rows))
        chosen = order[places(rows[order]) < best]
        self.leaders = values[chosen].reshape(len(self.rows), best)
        self.floor = self.leaders[:, -1].copy()

    def _corrected(
        self, query: Int64, reference: Int64, rows: Float32, penalty: Float32, size: int
    ) -> Float32:
        """Return corrected similarities of some pairs of a block, from whole vectors."""
        best = np.full(len(query), -np.inf, np.float32)
        dense = len(query) * 20 > size
        for view in self.sides.views:
            seen = self.sides.seen(self.rows, view)
            if dense:
                value = (seen @ rows.T)[query, reference]
            else:
                value = np.einsum("ij,ij->i", seen[query], rows[reference])
            np.maximum(best, value, out=best)
        return best - penalty[reference]

    def _settle(self) -> Scored:
        """Rescore what is pending, count it, and keep what may still be wanted."""
        if self.settled is not None and not self.pending:
            return self.settled
        query, reference, value = (
            np.concatenate(column) for column in zip(*self.pending, strict=True)
        )
        self.pending, self.held = [], 0
        keep = value >= self._needed(query, self.sides.penalty[reference])
        query, reference, value = query[keep], reference[keep], value[keep]
        if self.wanted.threshold is not None:
            beyond = self._beyond_cap(query, reference, value, self.wanted.threshold)
            self._count(query[beyond], reference[beyond])
            query, reference = query[~beyond], reference[~beyond]
        scored = rescore(self.sides, self.rows, query, reference)
        if self.wanted.threshold is not None:
            reached = scored.only(scored.similarity >= np.float32(self.wanted.threshold))
            self._count(reached.query, reached.reference)
        both = scored if self.settled is None else self.settled.plus(scored)
        self.settled = both.only(chosen(both, self.sides, self.wanted))
        return self.settled

    def _beyond_cap(self, query: Int64, reference: Int64, value: Float32, threshold: float) -> Bool:
        """Return which pairs surely reach the threshold, and as surely are not kept.

        They are counted without an exact similarity: in a crowd nearly all pairs are such.
        """
        margin, cap, count = np.float32(MARGIN), self.wanted.cap, len(query)
        similarity = value + self.sides.penalty[reference]
        owner, all_values = query, similarity
        if self.settled is not None:
            # pairs of earlier blocks leave less room
            owner = np.append(query, self.settled.query)
            all_values = np.append(similarity, self.settled.similarity)
        if len(owner) <= cap:
            return np.zeros(count, np.bool_)
        order = np.lexsort((-all_values, owner))
        queries = owner[order]
        first = np.searchsorted(queries, queries)
        # that of the last one within the cap; of a query without so many no pair is beyond it
        last = np.minimum(first + cap - 1, len(order) - 1)
        full = queries[last] == queries
        beyond = np.empty(len(order), np.bool_)
        beyond[order] = full & (all_values[order] < all_values[order[last]] - 2 * margin)
        beyond = beyond[:count] & (similarity >= np.float32(threshold) + margin)
        if self.wanted.best:
            beyond &= value < self.floor[query] - margin
        return beyond

    def _count(self, query: Int64, reference: Int64) -> None:
        weight = self.sides.weight
        np.add.at(self.total, query, 1 if weight is None else weight[reference])

    def finish(self) -> tuple[Scored, Int64]:
        """Return what is wanted of this block's queries, and their totals."""
        return self._settle(), self.total


def _places(mask: Bool) -> tuple[Int64, Int64]:
    """Return rows and columns that are set; much faster than ``nonzero`` where few are."""
    rows, columns = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return rows, columns


def _top_of_each(query: Int64, value: Float32, best: int) -> tuple[Int64, Float32]:
    """Return the best values of each query; ``query`` comes sorted."""
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    parts = [
        np.partition(part, len(part) - best)[-best:] if len(part) > best else part
        for part in np.split(value, starts[1:])
    ]
    return np.repeat(query[starts], [len(part) for part in parts]), np.concatenate(parts)


# -- kernels ---------------------------------------------------------------------------------------


#: Characters of the four one-dimensional representations at the eight dihedral views.
CHARACTERS: Final = (
    (1, 1, 1, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, -1, -1, -1, -1),
    (1, -1, 1, -1, 1, -1, 1, -1),
    (1, -1, 1, -1, -1, 1, -1, 1),
)
SAMPLE_ROWS: Final = 4096  # rows the basis is learnt from, spread evenly over the references


class Kernel(Protocol):
    """Upper bounds on similarities, a block of queries against a block of references at a time."""

    tight: bool  # the bounds are the similarities themselves (to about 1e-6)

    def prepare(self, rows: Float32, *, query: bool) -> Float32:
        """Return rows in the kernel's own coordinates; references and queries may differ."""
        ...

    def bounds(self, query: Float32, reference: Float32) -> Float32:
        """Return (n, m) upper bounds on the similarity over all views of prepared rows."""
        ...


def orthogonal_basis(reference: Float32 | Rows) -> npt.NDArray[np.float64]:
    """Return the principal axes (d, d) of a sample of the references, strongest first."""
    # evenly spread
    sample = np.asarray(reference[:: max(1, len(reference) // SAMPLE_ROWS)], np.float64)
    _, axes = np.linalg.eigh(sample.T @ sample)
    return np.asarray(axes[:, ::-1])


class TruncatedKernel:
    """First ``kept`` principal coordinates and a bound on the rest, for each of some views."""

    tight = False

    def __init__(
        self,
        reference: Float32 | Rows,
        kept: int,
        views: tuple[int, ...] = (0,),
        make: ViewMaker | None = None,
    ) -> None:
        self._axes = orthogonal_basis(reference)[:, :kept].astype(np.float32)
        self._views = views
        self._make = make

    def prepare(self, rows: Float32, *, query: bool) -> Float32:
        """Return (n, kept + 1) coordinates, for queries (views, n, kept + 1) laid side by side."""
        if not query:
            return self._coordinates(rows)
        seen = (self._make(rows, view) if view and self._make else rows for view in self._views)
        return np.concatenate([self._coordinates(each) for each in seen], 1)

    def _coordinates(self, rows: Float32) -> Float32:
        first = rows @ self._axes
        squared = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", first, first)
        # a little more than the norm of the rest, so that rounding never makes a bound too low
        rest = np.sqrt(np.maximum(squared, 0.0) + 1e-6)
        return np.concatenate([first, rest[:, None]], axis=1)

    def bounds(self, query: Float32, reference: Float32) -> Float32:
        """Return (n, m) upper bounds, the largest over the views."""
        width = reference.shape[1]
        best = query[:, :width] @ reference.T
        for start in range(width, query.shape[1], width):
            np.maximum(best, query[:, start : start + width] @ reference.T, out=best)
        return best


@dataclass(frozen=True)
class DihedralBasis:
    """An orthogonal basis in which mirrors and quarter turns act in the simplest way."""

    axes: Float32  # float32 (d, d); columns grouped into edges
    # column limits of the four one-dimensional parts, then x and y of the two-dimensional
    edges: tuple[int, ...]
    flipped: npt.NDArray[np.int64]  # coordinates whose sign the inverted view flips


@lru_cache(maxsize=4)
def dihedral_basis(width: int, make: ViewMaker) -> DihedralBasis | None:
    """Return the basis for an encoder's views, or ``None`` where they are not that group.

    The views must act as orthogonal matrices that multiply like the symmetries of the square,
    and the inverted view as a change of signs that commutes with them. Kept between calls, for
    making it takes longer than a small search.
    """
    identity = np.eye(width, dtype=np.float32)
    actions = [make(identity, view).astype(np.float64) for view in range(len(VIEWS))]
    turn, mirror, inverted = actions[1], actions[4], actions[8]
    turns = [np.eye(width), turn, turn @ turn, turn @ turn @ turn]
    expected = itertools.chain(turns, (mirror @ each for each in turns))
    if not all(np.allclose(a, b) for a, b in zip(expected, actions[:8], strict=True)):
        return None
    if not all(np.allclose(a @ a.T, turns[0]) for a in (turn, mirror)):
        return None
    signs = np.diag(inverted)
    diagonal = np.allclose(inverted, np.diag(signs)) and np.allclose(np.abs(signs), 1)
    closed = np.allclose(turn @ turns[3], turns[0]) and np.allclose(turn @ mirror @ turn, mirror)
    if not (diagonal and closed):
        return None
    sums = (sum(map(mul, character, actions[:8])) / 8 for character in CHARACTERS)
    parts = [_range_of(each) for each in sums]
    plane = (actions[0] - actions[2]) / 2
    x_axes = _range_of(plane @ (actions[0] + mirror) / 2)
    parts += [x_axes, turn.T @ x_axes]
    edges = np.cumsum([0] + [part.shape[1] for part in parts])
    return DihedralBasis(
        axes=np.concatenate(parts, axis=1).astype(np.float32),
        edges=tuple(edges.tolist()),
        flipped=np.flatnonzero(signs < 0),
    )


def _range_of(projector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return an orthonormal basis of what a projector leaves in place."""
    values, axes = np.linalg.eigh((projector + projector.T) / 2)
    return np.asarray(axes[:, values > 0.5])


class DihedralKernel:
    """All eight mirror and turn views, and inversion, from 1.5 plain products.

    With q and r in the basis, the similarity of view g of q to r is the sum of the products of
    the one-dimensional parts, each times its character at g, and the trace of the 2 x 2 action
    of g times the 2 x 2 matrix of products of the x and y coordinates.
    """

    tight = True

    def __init__(self, basis: DihedralBasis) -> None:
        self._basis = basis

    def prepare(self, rows: Float32, *, query: bool) -> Float32:
        """Return rows in the basis, and behind them the coordinates that inversion flips."""
        flipped = rows[:, self._basis.flipped] * (-2.0 if query else 1.0)
        return np.concatenate([rows @ self._basis.axes, flipped], axis=1, dtype=np.float32)

    def bounds(self, query: Float32, reference: Float32) -> Float32:
        """Return the (n, m) largest similarity over the nine views."""
        edges = self._basis.edges
        parts = [slice(a, b) for a, b in itertools.pairwise(edges)]
        a1, a2, b1, b2 = (query[:, p] @ reference[:, p].T for p in parts[:4])
        x, y = parts[4], parts[5]
        xx, yy = query[:, x] @ reference[:, x].T, query[:, y] @ reference[:, y].T
        xy, yx = query[:, x] @ reference[:, y].T, query[:, y] @ reference[:, x].T
        upright, across = _sum_difference(a1, a2)
        straight, aslant = _sum_difference(b1, b2)
        half_turns, quarter_turns = _sum_difference(upright, straight)
        mirrors, transposes = _sum_difference(across, aslant)
        same, opposed = _sum_difference(xx, yy)
        crossed, turned = _sum_difference(xy, yx)
        inverted = query[:, edges[-1] :] @ reference[:, edges[-1] :].T
        inverted += half_turns
        inverted += same
        best = _add_magnitude(half_turns, same)
        np.maximum(best, inverted, out=best)
        np.maximum(best, _add_magnitude(quarter_turns, turned), out=best)
        np.maximum(best, _add_magnitude(mirrors, opposed), out=best)
        return np.asarray(np.maximum(best, _add_magnitude(transposes, crossed), out=best))


def _sum_difference(a: Float32, b: Float32) -> tuple[Float32, Float32]:
    """Return a + b and a - b; the first takes the place of a."""
    difference = a - b
    a += b
    return a, difference


def _add_magnitude(a: Float32, b: Float32) -> Float32:
    """Return a + |b| in place of a; b is used up."""
    np.abs(b, out=b)
    a += b
    return a
