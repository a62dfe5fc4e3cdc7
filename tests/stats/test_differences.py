"""Tests of differences against scipy, printed examples, and simulations with a known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from visleak.errors import UsageError
from visleak.stats.differences import mcnemar_exact, newcombe

counts = st.integers(0, 300)


@given(counts, counts)
def test_mcnemar_is_the_two_sided_test_of_a_fair_coin(before: int, after: int) -> None:
    """scipy adds up all outcomes no likelier than the one seen: another way to the same."""
    expected = binomtest(before, before + after, 0.5).pvalue if before + after else 1.0
    assert mcnemar_exact(before, after) == pytest.approx(expected, rel=1e-9)
    assert mcnemar_exact(before, after) == mcnemar_exact(after, before)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ],
)
def test_newcombe_gives_the_table_of_the_paper(
    first: tuple[int, int], second: tuple[int, int], low: float, high: float
) -> None:
    """Table II of Newcombe 1998, method 10, first minus second, as printed."""
    assert newcombe(second, first) == pytest.approx((low, high), abs=6e-5)


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Simulated samples with known shares: near 95 % of the intervals hold the difference."""
    rng = np.random.default_rng(5)
    for p, q, n, m in ((0.03, 0.001, 400, 380), (0.3, 0.5, 60, 90)):
        first, second = rng.binomial(n, p, 3000), rng.binomial(m, q, 3000)
        ends = [newcombe((int(a), n), (int(b), m)) for a, b in zip(first, second, strict=True)]
        held = np.mean([low <= q - p <= high for low, high in ends])
        assert 0.94 <= held <= 0.99


@given(st.integers(1, 500), st.integers(1, 500), st.data())
def test_the_interval_turns_round_with_its_samples(n: int, m: int, data: st.DataObject) -> None:
    k, j = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    low, high = newcombe((k, n), (j, m))
    assert low <= j / m - k / n <= high
    assert newcombe((j, m), (k, n)) == pytest.approx((-high, -low), abs=1e-12)


def test_nothing_is_known_of_nothing() -> None:
    assert all(math.isnan(end) for end in newcombe((0, 0), (1, 5)))
    with pytest.raises(UsageError, match="counts must be 0 or more; got -1 and 2"):
        mcnemar_exact(-1, 2)
