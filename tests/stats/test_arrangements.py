"""Draws without replacement: all choices come, and equally often."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare

from visleak.stats import permutation as arrangements
from visleak.stats.permutation import stratified_draws


def drawn(sizes, taken, draws, seed=0):
    """Return all draws, (draws, rows)."""
    return np.concatenate(list(stratified_draws(np.array(sizes), np.array(taken), draws, seed)))


@pytest.fixture(params=["one by one", "all at once"], name="way")
def _way(request, monkeypatch):
    """Both ways to draw, whatever the sizes."""
    monkeypatch.setattr(arrangements, "CROWD", 0 if request.param == "one by one" else math.inf)
    monkeypatch.setattr(arrangements, "BLOCK", 40)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("sizes", "taken"),
    [([6], [3]), ([5], [1]), ([4, 3], [2, 2]), ([3, 1, 4], [2, 0, 1]), ([4], [4])],
)
def test_all_choices_are_equally_likely(sizes, taken):
    """Every set of rows that may be drawn is listed, and counted over 20,000 draws."""
    first = np.cumsum(sizes) - sizes
    choices = [
        itertools.combinations(range(begin, begin + size), few)
        for begin, size, few in zip(first, sizes, taken, strict=True)
    ]
    possible = sorted(tuple(sum(each, ())) for each in itertools.product(*choices))
    found = drawn(sizes, taken, 20_000)
    assert found.shape == (20_000, sum(taken))
    seen, counts = np.unique(np.sort(found, axis=1), axis=0, return_counts=True)
    assert [tuple(row) for row in seen.tolist()] == possible
    assert chisquare(counts).pvalue > 1e-3 if len(possible) > 1 else counts.tolist() == [20_000]


@pytest.mark.parametrize(("sizes", "taken"), [([2000, 30], [900, 4]), ([3] * 500, [1] * 500)])
def test_the_seed_decides_and_nothing_comes_twice(sizes, taken):
    once, again = (drawn(sizes, taken, 300, seed=4) for _ in range(2))
    assert (once == again).all()
    assert (once != drawn(sizes, taken, 300, seed=5)).any()
    in_order = np.sort(once, axis=1)
    assert (np.diff(in_order, axis=1) > 0).all()
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    assert (np.sort(stratum[once], axis=1) == np.repeat(np.arange(len(sizes)), taken)).all()
