"""Holm's correction against statsmodels, and by what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from visleak.errors import UsageError
from visleak.stats.permutation import holm

probabilities = st.floats(0, 1) | st.sampled_from([0.0, 0.01, 0.02, 0.05, 1.0])


@settings(max_examples=15)  # statsmodels takes 50 ms
@given(st.lists(probabilities, min_size=1, max_size=40))
def test_holm_agrees_with_statsmodels(p):
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1], rel=1e-12, abs=1e-300)


@given(st.lists(probabilities | st.just(math.nan), max_size=20))
def test_what_was_not_tested_does_not_count(p):
    """NaN stays where it is, and the others are corrected as if it were not there."""
    given_p = np.array(p)
    known = ~np.isnan(given_p)
    found = holm(p)
    assert (np.isnan(found) == ~known).all()
    assert found[known].tolist() == holm(given_p[known]).tolist()
    assert (found[known] >= given_p[known]).all()


def test_the_example_by_hand():
    """4 x 0.005, 3 x 0.01, 2 x 0.03, and 0.04 does not overtake it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]).shape == (0,)
    assert np.isnan(holm([math.nan])).all()


@pytest.mark.parametrize(
    ("p", "said"),
    [
        ([0.5, 1.5], "p must lie between 0 and 1 in every row, or be NaN"),
        ([[0.5]], r"p must be a column; got the shape \(1, 1\)"),
    ],
)
def test_nonsense_is_refused(p, said):
    with pytest.raises(UsageError, match=said):
        holm(p)
