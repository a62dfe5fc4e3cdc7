"""The stored similarity: the float64 dot product of the stored vectors, rounded to float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
from vectors import ALL, GRID_WIDTH, grid_view, sides_of, units

from visleak.search import exact as module
from visleak.search.exact import rescore


def made(seed=0, views=ALL, queries=7, references=11):
    rng = np.random.default_rng(seed)
    query, reference = units(rng, queries, GRID_WIDTH), units(rng, references, GRID_WIDTH)
    make = None if views == (0,) else grid_view
    sides = sides_of(query, reference, views=views, make=make)
    pairs = np.argwhere(np.ones((queries, references)))
    return sides, query, rng.permutation(pairs)


@pytest.mark.parametrize("views", [(0,), (0, 4), ALL])
def test_values_are_correctly_rounded(views):
    sides, query, pairs = made(views=views)
    scored = rescore(sides, query, *pairs.T)
    assert scored.similarity.dtype == np.float32
    for q, r, similarity, view in zip(
        scored.query, scored.reference, scored.similarity, scored.view, strict=True
    ):
        exact = {
            v: math.fsum(
                float(a) * float(b)
                for a, b in zip(grid_view(query[q : q + 1], v)[0], sides.reference[r], strict=True)
            )
            for v in views
        }
        assert similarity == np.float32(max(exact.values()))
        assert np.float32(exact[int(view)]) == similarity


def test_rows_are_sorted_whatever_the_order_they_came_in():
    sides, query, pairs = made()
    scored = rescore(sides, query, *pairs.T)
    np.testing.assert_array_equal(
        np.stack([scored.query, scored.reference], 1), np.argwhere(np.ones((7, 11)))
    )


@pytest.mark.parametrize("chunk", [1, 2, 13])
def test_chunks_and_company_change_nothing(monkeypatch, chunk):
    sides, query, pairs = made(seed=1)
    whole = rescore(sides, query, *pairs.T)
    monkeypatch.setattr(module, "CHUNK", chunk)
    parts = rescore(sides, query, *pairs.T)
    some = rescore(sides, query, *pairs[::5].T)
    assert parts.similarity.tobytes() == whole.similarity.tobytes()
    assert parts.view.tobytes() == whole.view.tobytes()
    there = {
        (q, r): s for q, r, s in zip(whole.query, whole.reference, whole.similarity, strict=True)
    }
    expected = [there[q, r] for q, r in zip(some.query, some.reference, strict=True)]
    np.testing.assert_array_equal(some.similarity, expected)


def test_similarity_is_symmetric():
    sides, query, pairs = made(seed=2, queries=9, references=9)
    there = rescore(sides, query, *pairs.T)
    turned = sides_of(sides.reference, query, views=ALL, make=grid_view)
    back = rescore(turned, np.asarray(sides.reference), *pairs[:, ::-1].T)
    matrix = back.similarity.reshape(9, 9)
    np.testing.assert_array_equal(there.similarity.reshape(9, 9), matrix.T)


def test_no_pairs():
    sides, query, _ = made()
    none = np.empty(0, np.int64)
    scored = rescore(sides, query, none, none)
    assert (len(scored.query), scored.similarity.dtype, scored.view.dtype) == (0, "f4", "i1")
