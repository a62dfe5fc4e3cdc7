"""Sums of hypergeometric counts against scipy, and against all choices there are."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from visleak.stats.permutation import hypergeometric_sum

stratum = st.integers(1, 6).flatmap(
    lambda size: st.tuples(st.just(size), st.integers(0, size), st.integers(0, size))
)


@given(st.data())
def test_one_stratum_is_scipys(data):
    """Also in tails that no Fourier transform would find: relative errors are small throughout."""
    size = data.draw(st.integers(1, 50_000))
    marked, drawn = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    least, probability = hypergeometric_sum([size], [marked], [drawn])
    counts = np.arange(least, least + len(probability))
    expected = hypergeom.logpmf(counts, size, marked, drawn)
    # scipy's own logarithms lose digits with the size of the factorials
    assert np.log(probability) == pytest.approx(expected, rel=1e-9, abs=1e-7)
    assert probability.sum() == pytest.approx(1.0, abs=1e-12)


@given(st.lists(stratum, min_size=1, max_size=3))
def test_a_sum_counts_all_choices(strata):
    tallies = []
    for size, marked, drawn in strata:
        choices = itertools.combinations(range(size), drawn)
        tallies.append([sum(i < marked for i in choice) for choice in choices])
    sums = [sum(each) for each in itertools.product(*tallies)]
    least, probability = hypergeometric_sum(*zip(*strata, strict=True))
    counts = np.bincount(sums)
    assert least == np.flatnonzero(counts)[0]
    assert probability == pytest.approx(counts[least:] / len(sums), rel=1e-12)


def test_many_strata_have_the_moments_of_their_sum():
    rng = np.random.default_rng(0)
    sizes = rng.integers(10, 90, 1000)
    marked, drawn = rng.integers(0, sizes + 1), rng.integers(0, sizes + 1)
    begun = time.process_time()
    least, probability = hypergeometric_sum(sizes.tolist(), marked.tolist(), drawn.tolist())
    assert time.process_time() - begun < 2.0
    counts = np.arange(least, least + len(probability))
    mean = (marked * drawn / sizes).sum()
    variance = (
        drawn * marked * (sizes - marked) * (sizes - drawn) / (sizes**2 * (sizes - 1.0))
    ).sum()
    assert probability @ counts == pytest.approx(mean, rel=1e-10)
    assert probability @ (counts - mean) ** 2 == pytest.approx(variance, rel=1e-8)


def test_rare_counts_keep_their_digits():
    """All 150 marked ones of 3,000, drawn as 75 and 75 of two strata: once in 1e254."""
    least, probability = hypergeometric_sum([1500, 1500], [75, 75], [75, 75])
    assert least + len(probability) == 151
    expected = -2 * (math.lgamma(1501) - math.lgamma(76) - math.lgamma(1426))
    assert math.log(probability[-1]) == pytest.approx(expected, rel=1e-10)
