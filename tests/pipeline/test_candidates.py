"""Candidate pairs against a brute force over rows; equal bytes, blank images, caps, order."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy_vectors
from toy_vectors import ALL, grid_view
from toy_vectors import GRID_WIDTH as WIDTH
from visleak.pipeline import candidates
from visleak.pipeline.candidates import find_pairs, side
from visleak.pipeline.encoded_set import EncodedSet
from visleak.records import Fingerprints, ImageSet
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted

units = partial(toy_vectors.units, width=WIDTH)


@dataclass
class Toy:
    """An encoder of which only views and cohort are used."""

    cohort: np.ndarray | None = None
    views: int = 9
    view = staticmethod(grid_view)


def prints(name, vectors, contents, flat, ids):
    """Return fingerprints; rows with equal numbers in ``contents`` have equal bytes."""
    digests = np.zeros((len(ids), 16), np.uint8)
    digests[:, :8] = np.asarray(contents, "<u8").reshape(-1, 1).view(np.uint8)
    return Fingerprints(
        set=name,
        rows=np.arange(len(ids)),
        ids=pa.array(ids, pa.string()),
        matrix=np.asarray(vectors, np.float32).reshape(-1, WIDTH),
        digests=digests,
        sizes=np.full((len(ids), 2), 32, np.int32),
        flat=np.asarray(flat, np.bool_),
        encoder="toy",
    )


@dataclass
class World:
    """Contents that both sets draw from: some re-saved, mirrored, blank or without direction."""

    seed: int
    rng: np.random.Generator = field(init=False)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        count = 24
        self.vectors = units(self.rng, count)
        for i in range(8, 14):  # views of others, nearly
            source = self.vectors[[self.rng.integers(8)]]
            noise = self.rng.normal(0, 0.05 * (i % 3), (1, WIDTH))
            copy = grid_view(source, int(self.rng.integers(9))) + noise
            self.vectors[i] = copy / np.linalg.norm(copy)
        self.vectors[14] = self.vectors[15] = self.vectors[3]  # other bytes, same vector
        self.vectors[16:18] = 0  # no direction
        self.flat = np.zeros(count, np.bool_)
        self.flat[18:] = True
        self.vectors[18:] = 0
        self.vectors[18:21, ::2] = 1 / 3  # three blacks
        self.vectors[21, 1::2] = 1 / 3  # a white, and two exactly mid-grey

    def prints(self, name, count):
        contents = self.rng.integers(0, len(self.vectors), count)
        ids = [f"{name}-{n:04d}" for n in self.rng.permutation(9999)[:count]]
        return prints(name, self.vectors[contents], contents, self.flat[contents], ids)


def encoded(made):
    return EncodedSet(ImageSet(made.set, made.ids, made.ids, None), made)


def sides_and_pairs(query, reference, wanted, encoder, views=ALL, sizes=(256, 1024, 10**6)):
    """Return two sides and their pairs; sizes are those of blocks and chunks."""
    engine = ExactSearch(*sizes[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "CHUNK", sizes[2])
        both = [side(encoded(each), encoder, views, engine, 1) for each in (query, reference)]
        left, right = both if reference is not query else both[:1] * 2
        return left, right, find_pairs(left, right, encoder, views, wanted, engine, 2)


def places_of(pairs):
    return list(zip(pairs.query.tolist(), pairs.reference.tolist(), strict=True))


class BruteForce:
    """The rules of candidates, row by row, without collapsing anything but for the best."""

    def __init__(self, left, right, wanted, views):
        self.left, self.right, self.wanted = left, right, wanted
        self.same = left is right
        q = left.fingerprints.matrix
        r = right.fingerprints.matrix.astype(float)
        each = [(q if v == 0 else grid_view(q, v)).astype(float) @ r.T for v in views]
        stack = np.stack(each).astype(np.float32)
        flat = left.fingerprints.flat
        self.similarity = np.where(flat[:, None], stack[0], stack.max(axis=0))
        self.view = np.where(flat[:, None], 0, np.array(views)[stack.argmax(axis=0)])

    def equal(self, i, j):
        left, right = (side.fingerprints.digests for side in (self.left, self.right))
        return left[i].tobytes() == right[j].tobytes()

    def of(self, i):
        """Return row i's pairs before the cap, and how many count in its total."""
        flat = self.left.fingerprints.flat[i]
        kept, total, contents = set(), 0, {}
        for j in range(len(self.right.fingerprints)):
            if (self.same and i == j) or self.right.fingerprints.flat[j] != flat:
                continue
            equal = self.equal(i, j)
            threshold = 0.995 if flat else self.wanted.threshold
            reached = threshold is not None and self.similarity[i, j] >= np.float32(threshold)
            if equal or reached:
                kept.add(j)
                total += 1
            if not (self.same and equal):
                content = self.right.fingerprints.digests[j].tobytes()
                contents.setdefault(content, []).append(j)
        if not flat:
            kept.update(self.best(i, contents))
        return kept, total

    def best(self, i, contents):
        penalty = self.right.background * np.float32(0.5 if self.wanted.best > 1 else 0)
        order = self.right.order

        def key(rows):
            j = rows[0]
            corrected = float(self.similarity[i, j]) - float(penalty[j])
            return -corrected, min(order[rows])

        return chain.from_iterable(sorted(contents.values(), key=key)[: self.wanted.best])

    def other(self, i, j):
        """Whether j is not the first choice of a blank image: one of equal bytes."""
        return bool(self.left.fingerprints.flat[i]) and not self.equal(i, j)

    def pairs(self):
        """Return all pairs (query row, reference row), capped, in order, and the totals."""
        directed = [self.of(i) for i in range(len(self.left.fingerprints))]
        found = {(i, j) for i, (kept, _) in enumerate(directed) for j in kept}
        order = self.right.order
        if self.same:
            found = {(i, j) if order[i] < order[j] else (j, i) for i, j in found}
        rows = []
        for i in np.argsort(self.left.order):
            mine = [j for q, j in found if q == i]
            mine.sort(key=lambda j, i=i: (self.other(i, j), -self.similarity[i, j], order[j]))
            cap = 1 if self.left.fingerprints.flat[i] else self.wanted.cap
            rows += [(i, j) for j in mine[:cap]]
        return rows, np.array([total for _, total in directed], np.int64)


wanteds = st.builds(
    Wanted, st.sampled_from([None, 0.5, 0.9, 0.999, 1.0]), st.sampled_from([0, 1, 3, 20]),
    st.just(1000),
)  # fmt: skip
capped = st.builds(Wanted, st.just(0.7), st.just(0), st.sampled_from([1, 2, 5]))
view_choices = st.sampled_from([(0,), (0, 4), ALL])
sizes = st.tuples(st.integers(3, 50), st.integers(3, 50), st.integers(3, 50))


@settings(max_examples=90)
@given(
    st.integers(0, 10**6), st.integers(0, 60), st.integers(0, 60), wanteds | capped, view_choices,
    sizes,
)  # fmt: skip
def test_pairs_of_two_sets_equal_brute_force(seed, queries, references, wanted, views, sizes):
    """Whatever the sizes of blocks and chunks, and the order in which images are listed."""
    world = World(seed)
    encoder = Toy(units(world.rng, 9) if seed % 2 else None)
    query, reference = world.prints("q", queries), world.prints("r", references)
    left, right, found = sides_and_pairs(query, reference, wanted, encoder, views, sizes)
    oracle = BruteForce(left, right, wanted, views)
    rows, total = oracle.pairs()
    assert places_of(found) == rows
    np.testing.assert_array_equal(found.total, total)
    at = tuple(np.array(rows, int).reshape(-1, 2).T)
    np.testing.assert_allclose(found.similarity, oracle.similarity[at], atol=1e-7)
    np.testing.assert_array_equal(found.view, oracle.view[at])
    background = (left.background[at[0]] + right.background[at[1]]) / 2
    np.testing.assert_array_equal(found.background, background.astype(np.float32))


@given(st.integers(0, 10**6), st.integers(0, 60), wanteds, view_choices, sizes)
def test_pairs_within_a_set_equal_brute_force(seed, count, wanted, views, sizes):
    """Each unordered pair once, the lower id as the query, with that query's view."""
    world = World(seed)
    both = world.prints("s", count)
    left, right, found = sides_and_pairs(both, both, wanted, Toy(units(world.rng, 9)), views, sizes)
    oracle = BruteForce(left, right, wanted, views)
    rows, total = oracle.pairs()
    got = places_of(found)
    sharp = [(i, j) for i, j in rows if not both.flat[i]]
    assert [(i, j) for i, j in got if not both.flat[i]] == sharp
    np.testing.assert_array_equal(found.total, total)
    assert (left.order[found.query] < left.order[found.reference]).all()
    assert len(set(got)) == len(got)
    at = tuple(np.array(got, int).reshape(-1, 2).T)
    np.testing.assert_allclose(found.similarity, oracle.similarity[at], atol=1e-7)
    for (i, j), view, similarity in zip(got, found.view, found.similarity, strict=True):
        row = both.matrix[[i]] if view == 0 else grid_view(both.matrix[[i]], int(view))
        assert abs(row[0].astype(float) @ both.matrix[j] - similarity) < 1e-6


@given(st.integers(0, 10**6), st.integers(2, 50), st.sampled_from([1, 2, 4]))
def test_caps_within_a_set(seed, count, cap):
    """At most ``cap`` rows per image and side; an image below the cap loses nothing."""
    world = World(seed)
    both = world.prints("s", count)
    wanted = Wanted(0.6, best=0, cap=cap)
    left, right, found = sides_and_pairs(both, both, wanted, Toy())
    rows, total = BruteForce(left, right, Wanted(0.6, best=0, cap=10**6), ALL).pairs()
    np.testing.assert_array_equal(found.total, total)
    got = set(places_of(found))
    ends = [Counter(end) for end in zip(*rows, strict=True)]
    assert len(found) <= sum(min(cap, pairs) for end in ends for pairs in end.values())
    sharp = {(i, j) for i, j in rows if not both.flat[i]}
    assert {(i, j) for i, j in got if not both.flat[i]} <= sharp
    assert {(i, j) for i, j in sharp if min(total[i], total[j]) <= cap} <= got


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_many_copies_have_few_pairs_and_all_have_one(seed, queries, references, same):
    world = World(seed)
    query = world.prints("q", queries)
    reference = query if same else world.prints("r", references)
    whole = sides_and_pairs(query, reference, Wanted(0.9, best=0), Toy())[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "COPIES", 1)
        found = sides_and_pairs(query, reference, Wanted(0.9, best=0), Toy())[2]
    np.testing.assert_array_equal(found.total, whole.total)
    every, few = (
        {(i, j) for i, j in places_of(each) if not query.flat[i]} for each in (whole, found)
    )
    assert few <= every
    if same:
        assert {row for pair in few for row in pair} == {row for pair in every for row in pair}
    else:
        assert all({pair[e] for pair in few} == {pair[e] for pair in every} for e in (0, 1))
        assert len(few) <= (queries + references) * len(world.vectors)


def test_the_background_is_the_mean_of_the_nearest_cohort():
    rng = np.random.default_rng(1)
    some, cohort = units(rng, 20), units(rng, 30)
    one = prints("q", some, range(20), np.zeros(20), [f"{n:02d}" for n in range(20)])
    for views in ((0,), (0, 4), ALL):
        each = [(some if v == 0 else grid_view(some, v)) @ cohort.T for v in views]
        expected = np.sort(np.max(each, axis=0), axis=1)[:, -5:].mean(axis=1)
        got = side(encoded(one), Toy(cohort), views, ExactSearch(), 1).background
        np.testing.assert_allclose(got, expected, atol=1e-6)
    assert not side(encoded(one), Toy(), ALL, ExactSearch(), 1).background.any()
    few = side(encoded(one), Toy(cohort[:2]), (0,), ExactSearch(), 1).background
    np.testing.assert_allclose(few, (some @ cohort[:2].T).mean(axis=1), atol=1e-6)
