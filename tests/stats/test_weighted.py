"""Weighted shares: equal weights, effective sizes by hand, and coverage where classes differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import UsageError
from visleak.rates import score_interval, wilson
from visleak.stats.intervals import weighted_wilson

rows = st.lists(st.booleans(), min_size=1, max_size=80)


@given(rows, st.floats(1e-9, 1e9), st.sampled_from([0.5, 0.9, 0.95]))
def test_equal_weights_are_no_weights(values, weight, confidence):
    found = weighted_wilson(values, [weight] * len(values), confidence)
    assert found == pytest.approx(wilson(sum(values), len(values), confidence), abs=1e-12)


@given(rows, st.data())
def test_whole_weights_are_never_surer_than_so_many_rows(values, data):
    """A row of weight 3 says what three rows would say, but not as surely."""
    weights = data.draw(st.lists(st.integers(0, 4), min_size=len(values), max_size=len(values)))
    if sum(weights):
        k, n = int(np.dot(values, weights)), sum(weights)
        low, high = weighted_wilson(values, weights)
        plain = wilson(k, n)
        assert low <= plain[0] + 1e-12
        assert high >= plain[1] - 1e-12
        assert 0.0 <= low <= k / n + 1e-12
        assert k / n - 1e-12 <= high <= 1.0


def test_rows_of_no_weight_do_not_count():
    values, weights = [1, 0, 1, 1, 0], [2.0, 1.0, 1.0, 0.0, 0.0]
    assert weighted_wilson(values, weights) == weighted_wilson(values[:3], weights[:3])
    assert all(map(math.isnan, weighted_wilson([], [])))
    assert all(map(math.isnan, weighted_wilson([1, 0], [0, 0])))
    assert weighted_wilson([1, 1, 1], [0.1, 0.2, 0.3])[1] == 1.0
    assert weighted_wilson([0, 1], [1.0, 1e-200]) == pytest.approx(wilson(0, 1))


def test_the_effective_size_by_hand():
    """Half of the rows count three times: Kish's (4 + 12)^2 / (4 + 36) = 6.4 of 8 rows.

    As many 0 as 1 among both halves: what the rows show is the same.
    """
    values = np.tile([True, False], 4)
    weights = np.repeat([1, 3], 4)
    low, high = weighted_wilson(values, weights)
    z2 = 1.959963984540054**2
    # of a share of a half, Wilson's interval is 0.5 -+ 0.5 z / sqrt(n + z^2)
    assert high - low == pytest.approx(math.sqrt(z2 / (6.4 + z2)))


def test_where_the_heavy_rows_vary_fewer_are_known():
    """Light rows all right, heavy ones half: the share 0.625 by the definition of its variance."""
    values = np.array([1, 1, 1, 1, 1, 0, 1, 0])
    weights = np.repeat([1, 3], 4)
    shown = (4 * 0.375**2 + 2 * 9 * 0.375**2 + 2 * 9 * 0.625**2) / 16**2
    expected = score_interval(0.625, 0.625 * 0.375 / shown, 0.95)
    assert weighted_wilson(values, weights) == pytest.approx(expected)
    assert 0.625 * 0.375 / shown < 6.4


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: weighted_wilson([1], [1, 2]), "must be columns of one length; got .1,. and .2,."),
        (lambda: weighted_wilson([0.5], [1]), "values must be 0 or 1 in every row"),
        (lambda: weighted_wilson([1], [-1]), "weights must be 0 or more in every row"),
        (lambda: weighted_wilson([1], [math.nan]), "weights must be 0 or more in every row"),
        (lambda: weighted_wilson([1], [1], 2), "confidence must lie between 0 and 1; got 2"),
    ],
)
def test_nonsense_is_refused(call, said):
    with pytest.raises(UsageError, match=said):
        call()  # type: ignore[operator]
