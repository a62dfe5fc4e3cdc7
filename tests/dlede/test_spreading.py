"""Rounding at random: sums, bounds and means."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.draw.stratify import distribute


@given(st.data())
def test_sums_are_kept_and_shares_rounded_up_or_down(data):
    """Whatever the sizes of the parts: nothing in it asks them to be alike."""
    sizes = np.array(data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=8)), np.int64)
    whole = int(sizes.sum())
    inner = data.draw(st.lists(st.integers(0, whole), max_size=8))
    ends = np.array([0, *sorted(inner), whole], np.int64)
    held = distribute(sizes, ends, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert held.shape == (len(sizes), len(ends) - 1)
    assert (held.sum(axis=1) == sizes).all()
    assert (held.sum(axis=0) == np.diff(ends)).all()
    if whole:
        exact = np.outer(sizes, np.diff(ends)) / whole
        assert (np.abs(held - exact) < 1).all()
        assert (np.abs(np.cumsum(held - exact, axis=1)) < 1).all()


def test_means_are_the_exact_shares():
    """No stratum comes early or late by rule; 5 standard errors of a number that is 0 or 1 off."""
    sizes, ends = np.array([1, 4, 7, 9]), np.array([0, 2, 7, 7, 15, 21])
    exact = np.outer(sizes, np.diff(ends)) / 21
    made = [distribute(sizes, ends, np.random.default_rng(seed)) for seed in range(2000)]
    np.testing.assert_allclose(np.mean(made, axis=0), exact, atol=5 * 0.5 / np.sqrt(2000))
