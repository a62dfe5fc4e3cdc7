"""Intervals and tests of shares and means against independent implementations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest
from statsmodels.stats.power import TTestPower

from visleak.rates import score_interval, wilson
from visleak.stats.intervals import (
    clopper_pearson_upper,
    clustered_upper,
    mcnemar_exact,
    newcombe,
    newcombe_paired,
    t_interval,
    t_test_power,
    weighted_wilson,
)

counts = st.integers(0, 300)


@given(counts, counts)
def test_mcnemar_is_the_two_sided_test_of_a_fair_coin(before, after):
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


#: Table III of Newcombe 1998b: both, first only, second only, neither; the limits of method 10 for
#: the first share minus the second, as printed.
PAIRED = [
    ((36, 12, 2, 0), (0.0569, 0.3404)),
    ((20, 12, 2, 16), (0.0562, 0.3292)),
    ((18, 12, 2, 18), (0.0562, 0.3290)),
    ((36, 14, 0, 0), (0.1528, 0.4167)),
    ((18, 14, 0, 18), (0.1441, 0.3963)),
    ((2, 97, 1, 0), (0.8721, 0.9854)),
    ((0, 29, 1, 0), (0.6666, 0.9882)),
    ((1, 98, 0, 1), (0.9171, 0.9916)),
    ((0, 30, 0, 0), (0.8395, 1.0)),
    ((54, 0, 0, 0), (-0.0664, 0.0664)),
    ((53, 0, 0, 1), (-0.0729, 0.0729)),
    ((27, 0, 0, 27), (-0.0351, 0.0351)),
]


@pytest.mark.parametrize(("cells", "ends"), PAIRED)
def test_newcombe_paired_gives_the_table_of_the_paper(cells, ends):
    both, first, second, neither = cells
    assert newcombe_paired(both, second, first, neither) == pytest.approx(ends, abs=6e-5)


@given(st.data())
def test_clopper_pearson_agrees_with_scipy(data):
    """scipy's interval is two-sided: its one-sided form is that of the test `less`."""
    n = data.draw(st.integers(1, 10_000_000))
    k = data.draw(st.integers(0, min(n, 200)))
    expected = binomtest(k, n, alternative="less").proportion_ci(0.95, method="exact").high
    assert clopper_pearson_upper(k, n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "ends",
    [
        newcombe((0, 0), (1, 5)),
        newcombe_paired(0, 0, 0, 0),
        t_interval([1.0, math.nan]),
        weighted_wilson([1, 0], [0, 0]),
    ],
)
def test_without_data_the_ends_are_unknown(ends):
    assert all(map(math.isnan, ends))
    assert clopper_pearson_upper(0, 0) == clustered_upper(0.0, 1) == clustered_upper(1.0, 9) == 1.0


@given(st.integers(2, 3000), st.floats(0, 1))
def test_the_clustered_bound_is_above_the_exact_one(images, rate):
    """Chernoff's bound for n // 2 cases is at least Clopper and Pearson's, and equal for 0."""
    cases = images // 2
    k = int(rate * cases)
    exact = clopper_pearson_upper(k, cases)
    assert clustered_upper(k / cases, images) >= exact - 1e-9
    assert clustered_upper(0.0, images) == pytest.approx(clopper_pearson_upper(0, cases))


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("n", [2, 3, 10, 400])
def test_interval_is_that_of_scipy(n, confidence):
    values = np.random.default_rng(n).normal(3, 2, n)
    want = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert t_interval([*values, math.nan], confidence) == pytest.approx((want.low, want.high))


@pytest.mark.parametrize("count", [2, 5, 20])
@pytest.mark.parametrize("effect", [-0.5, 0.0, 0.4, 1.5])
def test_power_is_that_of_statsmodels(effect, count):
    expected = TTestPower().power(effect, count, 0.05, alternative="larger")
    assert t_test_power(2 * effect, 2.0, count) == pytest.approx(expected)


def test_power_without_spread_is_zero_or_one():
    assert t_test_power([-1.0, 0.0, 1.0], 0.0, 5).tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert t_test_power(1e300, [1e-300, 1.0], [2, 9]) == pytest.approx(1.0, abs=1e-5)


rows = st.lists(st.booleans(), min_size=1, max_size=80)


@given(rows, st.floats(1e-9, 1e9), st.sampled_from([0.5, 0.9, 0.95]))
def test_equal_weights_are_no_weights(values, weight, confidence):
    found = weighted_wilson(values, [weight] * len(values), confidence)
    assert found == pytest.approx(wilson(sum(values), len(values), confidence), abs=1e-12)


def test_rows_of_no_weight_do_not_count():
    values, weights = [1, 0, 1, 1, 0], [2.0, 1.0, 1.0, 0.0, 0.0]
    assert weighted_wilson(values, weights) == weighted_wilson(values[:3], weights[:3])
    assert weighted_wilson([1, 1, 1], [0.1, 0.2, 0.3])[1] == 1.0
    assert weighted_wilson([0, 1], [1.0, 1e-200]) == pytest.approx(wilson(0, 1))


def test_the_effective_size_is_smaller_where_heavy_rows_vary():
    """Light rows all right, heavy ones half: the share 0.625 by the definition of its variance."""
    values = np.array([1, 1, 1, 1, 1, 0, 1, 0])
    weights = np.repeat([1, 3], 4)
    variance = (4 * 0.375**2 + 2 * 9 * 0.375**2 + 2 * 9 * 0.625**2) / 16**2
    expected = score_interval(0.625, 0.625 * 0.375 / variance, 0.95)
    assert weighted_wilson(values, weights) == pytest.approx(expected)
    assert 0.625 * 0.375 / variance < 6.4
