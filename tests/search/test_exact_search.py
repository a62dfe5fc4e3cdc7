"""Exact search and its similarities against brute force: ties, floods, blocks and threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_vectors import (
    ALL,
    GRID_WIDTH,
    assert_same,
    brute_force,
    grid_view,
    loose_view,
    sides_of,
    units,
)
from visleak.search import exact
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted

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
