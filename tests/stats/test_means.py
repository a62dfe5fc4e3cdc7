"""Student's interval and the power of his test against scipy and simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from visleak.errors import UsageError
from visleak.stats.intervals import t_interval, t_test_power


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("n", [2, 3, 10, 400])
def test_interval_is_that_of_scipy(n, confidence):
    values = np.random.default_rng(n).normal(3, 2, n)
    want = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert t_interval(values, confidence) == pytest.approx((want.low, want.high))


def test_what_is_not_known_is_left_out():
    assert t_interval([1.0, math.nan, 2.0]) == t_interval([1.0, 2.0])


def test_one_value_has_no_interval():
    assert all(map(math.isnan, t_interval([1.0, math.nan])))


def test_a_confidence_of_one_is_refused():
    with pytest.raises(UsageError, match="confidence must lie between 0 and 1; got 1"):
        t_interval([1.0, 2.0], 1)


@pytest.mark.parametrize("count", [2, 5, 20])
@pytest.mark.parametrize("effect", [-0.5, 0.0, 0.4, 1.5])
def test_power_is_that_of_simulated_t_tests(effect, count):
    rng = np.random.default_rng(count)
    drawn = rng.normal(effect, 1.0, (4000, count))
    found = stats.ttest_1samp(drawn, 0.0, axis=1, alternative="greater").pvalue < 0.05
    # 4 standard errors
    assert t_test_power(effect, 1.0, count) == pytest.approx(found.mean(), abs=0.033)


def test_power_without_spread_is_all_or_nothing():
    assert t_test_power([-1.0, 0.0, 1.0], 0.0, 5).tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert t_test_power(1e300, [1e-300, 1.0], [2, 9]) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(UsageError, match="level must lie between 0 and 1; got 1"):
        t_test_power(1.0, 1.0, 5, 1.0)
