"""Unit vectors, toy views and a brute-force oracle for the tests of search."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from visleak.search.hits import Hits, Sides

#: Side of the toy images whose pixels are the vectors of ``grid_view``; two channels each.
GRID = 3
GRID_WIDTH = GRID * GRID * 2

ALL = tuple(range(9))


def units(rng, count, width, repeats=0.0):
    """Return unit rows, some share of which repeat an earlier row exactly."""
    rows = rng.normal(size=(count, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    again = rng.random(count) < repeats
    rows[again] = rows[rng.integers(0, count, again.sum())]
    return rows.astype(np.float32)


def grid_view(rows, view):
    """Mirror and turn little square images; inversion flips the second channel."""
    grid = rows.reshape(len(rows), GRID, GRID, 2)
    if view == 8:
        return (grid * np.array([1, -1], np.float32)).reshape(len(rows), GRID_WIDTH)
    if view >= 4:
        grid = grid[:, :, ::-1]
    return np.rot90(grid, -(view % 4), axes=(1, 2)).reshape(len(rows), GRID_WIDTH)


def loose_view(rows, view):
    """Views which are no group: each a signed permutation of its own."""
    if view == 0:
        return rows
    rng = np.random.default_rng(view)
    order = rng.permutation(rows.shape[1])
    sign = rng.choice(np.array([-1, 1], np.float32), rows.shape[1])
    return rows[:, order] * sign


@dataclass
class Shard:
    """A partition in memory that counts how it is read."""

    stored: np.ndarray
    ids: np.ndarray
    locator: str = "memory"
    stamp: str = "1"
    stated: tuple[tuple[str, str], ...] = ()
    read: int = 0
    asked: list[int] = field(default_factory=list)

    @property
    def rows(self):
        return len(self.stored)

    def matrix(self):
        self.read += 1
        return self.stored

    def columns(self, rows=None):
        chosen = self.ids if rows is None else self.ids[rows]
        self.asked.append(len(chosen))
        return {"id": pa.array(chosen, pa.string())}


def sides_of(query, reference, *, seed=0, penalty=0.0, weighted=False, **others):
    """Return two sides with ids in random order, penalties up to a number, and maybe weights."""
    rng, count = np.random.default_rng(seed), len(reference)
    given = {
        "penalty": (penalty * rng.random(count)).astype(np.float32),
        "order": rng.permutation(count).astype(np.int64),
        "weight": rng.integers(1, 9, count) if weighted else None,
    }
    return Sides(query, reference, **(given | others))


def similarities(sides):
    """Return all similarities, float32 of float64 dot products, and the first best view."""
    query, reference = np.array(sides.query[:]), np.array(sides.reference[:])
    each = [
        (query if view == 0 else sides.make(query, view)).astype(np.float64)
        @ reference.astype(np.float64).T
        for view in sides.views
    ]
    stack = np.stack(each).astype(np.float32)
    return stack.max(axis=0), np.array(sides.views)[stack.argmax(axis=0)]


def brute_force(sides, wanted):
    """Answer a search pair by pair and query by query."""
    similarity, view = similarities(sides)
    weight = np.ones(similarity.shape[1], int) if sides.weight is None else sides.weight
    found, total = [], []
    for i, value in enumerate(similarity.astype(float)):
        others = [j for j in range(len(value)) if not (sides.same and i == j)]
        by_value = sorted(others, key=lambda j: (-value[j], sides.order[j]))
        kept, reached = set(), []
        if wanted.best:
            corrected = value - sides.penalty.astype(float)
            best = sorted(others, key=lambda j: (-corrected[j], sides.order[j]))
            kept |= set(best[: wanted.best])
        if wanted.threshold is not None:
            reached = [j for j in by_value if similarity[i, j] >= np.float32(wanted.threshold)]
            kept |= set(reached[: wanted.cap])
        total.append(sum(int(weight[j]) for j in reached))
        found += [(i, j, similarity[i, j], view[i, j]) for j in by_value if j in kept]
    columns = list(zip(*found, strict=True)) if found else [(), (), (), ()]
    return Hits(
        np.array(columns[0], np.int64),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.float32),
        np.array(columns[3], np.int8),
        np.array(total, np.int64),
    )


def assert_same(got, expected):
    """Every column equal, bit for bit, type included."""
    for name in ("query", "reference", "similarity", "view", "total"):
        left, right = getattr(got, name), getattr(expected, name)
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)
