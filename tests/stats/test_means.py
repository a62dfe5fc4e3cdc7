"""Student's interval against scipy's."""

import math

import numpy as np
import pytest
from scipy import stats

from visleak.errors import UsageError
from visleak.stats.means import t_interval


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("n", [2, 3, 10, 400])
def test_interval_is_that_of_scipy(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).normal(3, 2, n)
    want = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert t_interval(values, confidence) == pytest.approx((want.low, want.high))


def test_what_is_not_known_is_left_out() -> None:
    assert t_interval([1.0, math.nan, 2.0]) == t_interval([1.0, 2.0])


def test_one_value_has_no_interval() -> None:
    assert all(map(math.isnan, t_interval([1.0, math.nan])))


def test_a_confidence_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match="confidence must lie between 0 and 1; got 1"):
        t_interval([1.0, 2.0], 1)
