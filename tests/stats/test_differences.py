"""Tests of differences against scipy, printed examples, and simulations with a known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from visleak.errors import UsageError
from visleak.stats.intervals import mcnemar_exact, newcombe, newcombe_paired

counts = st.integers(0, 300)


@given(counts, counts)
def test_mcnemar_is_the_two_sided_test_of_a_fair_coin(before, after):
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
def test_newcombe_gives_the_table_of_the_paper(first, second, low, high):
    """Table II of Newcombe 1998, method 10, first minus second, as printed."""
    assert newcombe(second, first) == pytest.approx((low, high), abs=6e-5)


def test_the_interval_covers_as_often_as_it_says():
    """Simulated samples with known shares: near 95 % of the intervals hold the difference."""
    rng = np.random.default_rng(5)
    for p, q, n, m in ((0.03, 0.001, 400, 380), (0.3, 0.5, 60, 90)):
        first, second = rng.binomial(n, p, 3000), rng.binomial(m, q, 3000)
        ends = [newcombe((int(a), n), (int(b), m)) for a, b in zip(first, second, strict=True)]
        held = np.mean([low <= q - p <= high for low, high in ends])
        assert 0.94 <= held <= 0.99


@given(st.integers(1, 500), st.integers(1, 500), st.data())
def test_the_interval_turns_round_with_its_samples(n, m, data):
    k, j = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    low, high = newcombe((k, n), (j, m))
    assert low <= j / m - k / n <= high
    assert newcombe((j, m), (k, n)) == pytest.approx((-high, -low), abs=1e-12)


def test_nothing_is_known_of_nothing():
    assert all(math.isnan(end) for end in newcombe((0, 0), (1, 5)))
    with pytest.raises(UsageError, match="counts must be 0 or more; got -1 and 2"):
        mcnemar_exact(-1, 2)


# -- the same images asked twice ------------------------------------------------------------------

#: Table III of Newcombe 1998b: yes both times, first only, second only, neither; the limits of
#: method 10 for the first share minus the second, as printed.
PAIRED = [
    ((36, 12, 2, 0), (0.0569, 0.3404)),
    ((20, 12, 2, 16), (0.0562, 0.3292)),
    ((18, 12, 2, 18), (0.0562, 0.3290)),
    ((36, 14, 0, 0), (0.1528, 0.4167)),
    ((35, 14, 0, 1), (0.1461, 0.4175)),
    ((18, 14, 0, 18), (0.1441, 0.3963)),
    ((2, 97, 1, 0), (0.8721, 0.9854)),
    ((1, 97, 1, 1), (0.8736, 0.9850)),
    ((0, 29, 1, 0), (0.6666, 0.9882)),
    ((2, 98, 0, 0), (0.9178, 0.9945)),
    ((1, 98, 0, 1), (0.9171, 0.9916)),
    ((0, 30, 0, 0), (0.8395, 1.0)),
    ((54, 0, 0, 0), (-0.0664, 0.0664)),
    ((53, 0, 0, 1), (-0.0729, 0.0729)),
    ((30, 0, 0, 24), (-0.0358, 0.0358)),
    ((29, 0, 0, 25), (-0.0354, 0.0354)),
    ((28, 0, 0, 26), (-0.0352, 0.0352)),
    ((27, 0, 0, 27), (-0.0351, 0.0351)),
]


@pytest.mark.parametrize(("cells", "ends"), PAIRED)
def test_newcombe_paired_gives_the_table_of_the_paper(cells, ends):
    """One printed limit, of (1, 97, 1, 1), is a digit off: it is 0.87367, as under method 8."""
    both, first, second, neither = cells
    assert newcombe_paired(both, second, first, neither) == pytest.approx(ends, abs=1.1e-4)
    if cells != (1, 97, 1, 1):
        assert newcombe_paired(both, second, first, neither) == pytest.approx(ends, abs=6e-5)


@given(counts, counts, counts, counts)
def test_the_paired_interval_turns_round_with_its_answers(a, b, c, d):
    """Which of the two times came first, and which answer is called yes, changes the sign only."""
    n = a + b + c + d
    if n:
        low, high = newcombe_paired(a, b, c, d)
        assert -1.0 <= low <= (c - b) / n <= high <= 1.0
        assert newcombe_paired(a, c, b, d) == pytest.approx((-high, -low), abs=1e-12)
        assert newcombe_paired(d, c, b, a) == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize("shares", [(0.9, 0.01, 0.05, 0.04), (0.4, 0.1, 0.2, 0.3)])
def test_the_paired_interval_covers_and_is_narrower(shares):
    """Simulated images that answer both times much alike, as under two versions of a test set."""
    rng = np.random.default_rng(3)
    drawn = rng.multinomial(500, shares, size=2000).tolist()
    ends = np.array([newcombe_paired(*cells) for cells in drawn])
    truth = shares[2] - shares[1]
    assert 0.94 <= np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) <= 0.975
    plain = np.array([newcombe((a + b, 500), (a + c, 500)) for a, b, c, _ in drawn])
    assert np.mean(ends[:, 1] - ends[:, 0]) < 0.8 * np.mean(plain[:, 1] - plain[:, 0])


def test_nothing_is_known_of_no_pairs():
    assert all(math.isnan(end) for end in newcombe_paired(0, 0, 0, 0))
    with pytest.raises(UsageError, match="counts must be 0 or more; got 3, -1, 0 and 2"):
        newcombe_paired(3, -1, 0, 2)
    with pytest.raises(UsageError, match="confidence must lie between 0 and 1; got 95"):
        newcombe_paired(3, 1, 0, 2, 95)
