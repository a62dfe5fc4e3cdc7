"""Rates and their intervals, against scipy and by enumeration."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, hypergeom

from visleak.errors import UsageError
from visleak.rates import Rate, percent, wilson


@given(st.data())
def test_wilson_agrees_with_scipy(data):
    n = data.draw(st.integers(1, 200_000))
    k = data.draw(st.integers(0, n))
    confidence = data.draw(st.sampled_from([0.5, 0.9, 0.95, 0.99]))
    expected = binomtest(k, n).proportion_ci(confidence, method="wilson")
    low, high = wilson(k, n, confidence)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0.0 <= low <= k / n <= high <= 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((-1, 5), "k must lie between 0 and n = 5; got -1"),
        ((6, 5), "k must lie between 0 and n = 5; got 6"),
        ((1, 2, 0.0), "confidence must lie between 0 and 1; got"),
        ((1, 2, 95.0), "confidence must lie between 0 and 1; got"),
        ((1, 9, 0.95, 8), "population must be at least n = 9; got 8"),
    ],
)
def test_wilson_refuses_what_cannot_be(given, message):
    with pytest.raises(UsageError, match=message):
        wilson(*given)


def test_a_rate_as_text_and_as_json():
    assert str(Rate.of(289, 10_000)) == "289 of 10,000 (2.89 %, 95 % CI 2.58-3.24)"
    assert "25.00 %, 90 % CI " in str(Rate.of(1, 4, 0.9))
    for rate in (Rate.of(3, 9), Rate.of(0, 9)):
        stored = json.loads(json.dumps(rate.as_dict(), allow_nan=False))
        assert Rate.from_dict(stored) == rate
    assert json.loads(json.dumps(Rate.of(0, 0).as_dict(), allow_nan=False))["low"] is None


def test_percent_never_rounds_something_to_nothing():
    assert percent(1e-9) == "<0.01"
    assert percent(1.0 - 1e-9) == ">99.99"
    assert (percent(0.0), percent(1.0), percent(math.nan)) == ("0.00", "100.00", "-")


@given(st.data())
def test_a_sample_says_more_of_a_small_set(data):
    """The interval lies within the plain one, holds the share, and allows what was seen."""
    population = data.draw(st.integers(1, 10**7))
    n = data.draw(st.integers(1, population))
    k = data.draw(st.integers(0, n))
    low, high = wilson(k, n, population=population)
    plain = wilson(k, n)
    assert plain[0] - 1e-12 <= low <= k / n + 1e-12
    assert k / n - 1e-12 <= high <= plain[1] + 1e-12
    assert k <= population * low + 1e-6
    assert population * high <= population - (n - k) + 1e-6


@pytest.mark.parametrize("population", [200, 1_000, 10_000])
@pytest.mark.parametrize("n", [50, 150])
def test_the_interval_covers_by_enumeration(population, n):
    """95 % on average over the true counts of all samples, never far below, unlike Wilson's own."""
    ends = np.array([wilson(k, n, population=population) for k in range(n + 1)]) * population
    true = np.unique(np.linspace(0, population, 201).astype(int))
    chance = hypergeom.pmf(np.arange(n + 1)[None, :], population, true[:, None], n)
    inside = (ends[:, 0] - 1e-9 <= true[:, None]) & (true[:, None] <= ends[:, 1] + 1e-9)
    covered = (chance * inside).sum(axis=1)
    assert covered.mean() >= 0.95
    assert covered.min() > 0.83
    usual = (true > 0.05 * population) & (true < 0.95 * population)
    assert covered[usual].min() > 0.90
