"""Exact search and its similarities against brute force: ties, floods, blocks and threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_vectors import (
    ALL,
    GRID,
    GRID_WIDTH,
    assert_same,
    brute_force,
    grid_view,
    loose_view,
    sides_of,
    units,
)
from visleak.encoders.builtin import BuiltinEncoder
from visleak.search import exact
from visleak.search.exact import ExactSearch, rescore
from visleak.search.hits import Wanted

SOME = Wanted(0.6, best=5, cap=10)


def planted(seed, queries=30, references=90, width=GRID_WIDTH, make=grid_view, views=ALL):
    """Return two sides where a third of the queries are noisy views of references."""
    rng = np.random.default_rng(seed)
    reference = units(rng, references, width, repeats=0.2)
    query = units(rng, queries, width, repeats=0.1)
    for i in range(0, queries, 3):
        source = reference[rng.integers(references)][None]
        view = int(rng.choice(views))
        copy = source if view == 0 else make(source, view)
        copy = copy + rng.normal(0, 0.1 * rng.integers(0, 4), copy.shape) / np.sqrt(width)
        query[i] = copy / np.linalg.norm(copy)
    return query, reference


ways = st.fixed_dictionaries(
    {
        "query_block": st.integers(1, 70),
        "reference_block": st.integers(1, 70),
        "queries": st.sampled_from([1, 8, 30, 1000]),
    }
)
questions = st.builds(
    Wanted,
    threshold=st.sampled_from([None, -1.0, 0.0, 0.3, 0.6, 0.9, 0.999, 1.0]),
    best=st.sampled_from([0, 1, 2, 5, 20, 200]),
    cap=st.sampled_from([1, 2, 7, 1000]),
)
views_and_makers = st.sampled_from(
    [
        ((0,), None),
        ((0, 4), grid_view),
        (tuple(range(8)), grid_view),
        (ALL, grid_view),
        (ALL, loose_view),
    ]
)


@settings(max_examples=120)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 40),
    st.integers(0, 80),
    views_and_makers,
    questions,
    ways,
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0.0, 0.05, 0.5]),
    st.sampled_from([1, 50, 10**6]),
)
def test_the_answer_is_that_of_brute_force(
    seed, queries, references, views_maker, wanted, way, workers, same, penalty, pending
):
    rng = np.random.default_rng(seed)
    reference = units(rng, references, GRID_WIDTH, repeats=0.4 * (references > 0))
    query = reference if same else units(rng, queries, GRID_WIDTH)
    if not same and queries and references:
        query[::3] = reference[rng.integers(0, references, len(query[::3]))]
    views, make = views_maker
    sides = sides_of(
        query, reference, seed=seed, penalty=penalty, weighted=seed % 2 == 0,
        same=same, views=views, make=make,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "PENDING_LIMIT", pending)
        got = ExactSearch(**way).find(sides, wanted, workers=workers)
    assert_same(got, brute_force(sides, wanted))


@pytest.mark.parametrize("width", [1, 2, 7, 13, 31])
@pytest.mark.parametrize("wanted", [Wanted(0.8, best=0), Wanted(None, best=3), SOME])
def test_any_width(width, wanted):
    rng = np.random.default_rng(width)
    sides = sides_of(units(rng, 20, width), units(rng, 50, width), penalty=0.1)
    assert_same(ExactSearch(7, 11).find(sides, wanted, workers=2), brute_force(sides, wanted))


@pytest.mark.parametrize("views", [(0,), (0, 4), ALL], ids=["none", "mirror", "all"])
def test_the_built_in_views(views):
    encoder = BuiltinEncoder()
    query, reference = planted(1, 24, 70, encoder.width, encoder.view, views)
    sides = sides_of(query, reference, penalty=0.01, views=views, make=encoder.view)
    wanted = Wanted(0.85, best=4)
    got = ExactSearch(10, 32).find(sides, wanted, workers=2)
    assert_same(got, brute_force(sides, wanted))
    # unit noise of 560 coordinates is similar to nothing, so what reaches 0.85 was planted
    planted_queries = np.arange(0, 24, 3)
    assert np.isin(planted_queries, got.query[got.similarity > 0.6]).all()
    assert set(got.view[got.similarity > 0.85]) <= set(views)


@pytest.mark.parametrize("wanted", [Wanted(None, best=20), Wanted(0.9, best=0, cap=7), SOME])
@pytest.mark.parametrize("make", [None, grid_view])
def test_a_flood_of_identical_references(monkeypatch, wanted, make):
    monkeypatch.setattr(exact, "PENDING_LIMIT", 500)
    rng = np.random.default_rng(4)
    one = units(rng, 1, GRID_WIDTH)
    views = (0,) if make is None else ALL
    sides = sides_of(
        np.repeat(one, 9, 0), np.repeat(one, 400, 0), weighted=True, views=views, make=make
    )
    got = ExactSearch(4, 64).find(sides, wanted, workers=2)
    assert_same(got, brute_force(sides, wanted))
    kept = max(wanted.best, wanted.cap if wanted.threshold else 0)
    lowest = np.argsort(sides.order)[:kept]
    for i in range(9):
        np.testing.assert_array_equal(got.reference[got.query == i], lowest)


def test_views_that_agree_give_the_lowest():
    row = np.zeros((1, GRID_WIDTH), np.float32)
    row[0, 2 * (GRID * GRID // 2)] = 1
    sides = sides_of(row, row, views=ALL, make=grid_view)
    got = ExactSearch().find(sides, Wanted(0.5, best=1))
    assert (got.similarity.tolist(), got.view.tolist()) == ([1.0], [0])


def test_progress_counts_references():
    told: list[int] = []
    sides = sides_of(*planted(8), views=ALL, make=grid_view)
    ExactSearch(10, 40, progress=told.append).find(sides, SOME)
    assert told == [40, 80, 90]


def pairs_of(views, seed=0, queries=7, references=11):
    """Return two sides, and all of their pairs in random order."""
    rng = np.random.default_rng(seed)
    query, reference = units(rng, queries, GRID_WIDTH), units(rng, references, GRID_WIDTH)
    sides = sides_of(query, reference, views=views, make=None if views == (0,) else grid_view)
    return sides, rng.permutation(np.argwhere(np.ones((queries, references)))).T


@pytest.mark.parametrize("views", [(0,), (0, 4), ALL])
def test_similarities_are_correctly_rounded(views):
    """The float64 dot product of the stored vectors, rounded to float32."""
    sides, pairs = pairs_of(views)
    scored = rescore(sides, sides.query, *pairs)
    for q, r, similarity, view in zip(*scored, strict=True):
        exact = {
            v: math.fsum(
                float(a) * float(b)
                for a, b in zip(grid_view(sides.query[[q]], v)[0], sides.reference[r], strict=True)
            )
            for v in views
        }
        assert similarity == np.float32(max(exact.values())) == np.float32(exact[int(view)])


@pytest.mark.parametrize("chunk", [1, 2, 13])
def test_a_similarity_depends_on_its_pair_alone(monkeypatch, chunk):
    sides, pairs = pairs_of(ALL, seed=1)
    whole = rescore(sides, sides.query, *pairs)
    monkeypatch.setattr(exact, "CHUNK", chunk)
    parts, some = (rescore(sides, sides.query, *pairs[:, ::step]) for step in (1, 5))
    assert parts.similarity.tobytes() == whole.similarity.tobytes()
    assert parts.view.tobytes() == whole.view.tobytes()
    known = dict(zip(zip(whole.query, whole.reference, strict=True), whole.similarity, strict=True))
    expected = [known[pair] for pair in zip(some.query, some.reference, strict=True)]
    np.testing.assert_array_equal(some.similarity, expected)
