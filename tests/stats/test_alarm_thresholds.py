"""Thresholds with a stated rate of false alarms: exact counts, exact bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from visleak.errors import UsageError
from visleak.stats.separation import (
    needed,
    rounded_up,
    threshold_at,
    threshold_given,
)

SCORES = st.lists(st.floats(0.0, 1e4), min_size=1, max_size=400)


@given(SCORES, st.sampled_from([0.01, 0.05, 0.1, 0.5]), st.booleans())
def test_few_enough_ordinary_prompts_reach_it(
    ordinary: list[float], rate: float, bounded: bool
) -> None:
    found = threshold_at(ordinary, rate, bounded=bounded)
    reached = sum(score >= found.value for score in ordinary)
    assert found.alarms == reached
    assert found.negatives == len(ordinary)
    if bounded and found.supported:
        assert found.upper <= rate
    if not bounded:
        assert reached <= rate * len(ordinary) + 1e-9
    if not found.supported:
        assert reached == 0


def test_it_is_the_lowest_but_for_rounding() -> None:
    rng = np.random.default_rng(0)
    ordinary = rng.gamma(2, 0.2, 1000)
    found = threshold_at(ordinary, 0.01)
    eleventh = np.sort(ordinary)[-11]
    assert eleventh < found.value <= eleventh * 1.0011
    assert found.alarms in (9, 10)


def test_a_rate_of_seven_percent_of_a_hundred_is_seven() -> None:
    # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is 28.999999999999996
    for rate, count in ((0.07, 7), (0.29, 29)):
        assert threshold_at(np.arange(100.0), rate).alarms == count


@pytest.mark.parametrize(("bounded", "allowed"), [(False, 3), (True, 0)])
def test_its_bound_is_the_exact_binomial_one(bounded: bool, allowed: int) -> None:
    found = threshold_at(np.arange(300.0), 0.01, bounded=bounded)
    assert found.alarms == allowed
    # at this rate so few alarms would still come with a chance of 5 %
    assert binom.cdf(allowed, 300, found.upper) == pytest.approx(0.05)
    assert found.supported


def test_how_many_are_needed_to_bound_a_rate() -> None:
    assert (needed(0.01), needed(0.05), needed(0.001)) == (299, 59, 2995)
    for rate in (0.01, 0.05):
        for more, supported in ((-1, False), (0, True)):
            ordinary = np.arange(float(needed(rate) + more))
            assert threshold_at(ordinary, rate, bounded=True).supported is supported


def test_the_bound_holds_whatever_the_scores_are() -> None:
    # which order statistic is fixed beforehand: in 95 of 100 lists the true rate is within
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(2000):
        found = threshold_at(rng.exponential(size=200), 0.05)
        held += np.exp(-found.value) <= found.upper
    assert 0.94 <= held / 2000 <= 0.975


def test_a_bounded_threshold_keeps_its_promise() -> None:
    rng = np.random.default_rng(6)
    kept = [
        np.exp(-threshold_at(rng.exponential(size=400), 0.05, bounded=True).value) <= 0.05
        for _ in range(500)
    ]
    assert np.mean(kept) >= 0.93


def test_too_few_prompts_put_it_above_all() -> None:
    found = threshold_at([0.2, 0.5, 0.3], 0.01)
    assert (found.value, found.alarms, found.supported) == (0.5001, 0, False)
    # 1 - 0.05^(1/3)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 3))


def test_ties_stand_or_fall_together() -> None:
    found = threshold_at([1.0] * 50 + [0.5] * 50, 0.1)
    assert (found.value, found.alarms) == (1.001, 0)


@given(st.floats(0.0, 1e12))
def test_rounding_goes_up_and_not_far(value: float) -> None:
    found = rounded_up(value)
    assert found > value
    assert found <= value * 1.0021 + 5e-324
    if value > 1e-300:
        assert float(f"{found:.10g}") == found


def test_a_given_threshold_is_tried() -> None:
    found = threshold_given(0.5, [0.1, 0.5, 0.6, 0.2])
    assert (found.rule, found.rate, found.alarms, found.negatives) == ("given", None, 2, 4)
    assert binom.cdf(2, 4, found.upper) == pytest.approx(0.05)
    alone = threshold_given(0.5, [])
    assert (alone.negatives, alone.alarms, alone.upper) == (0, 0, 1.0)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 5.0])
def test_rates_that_cannot_be(rate: float) -> None:
    with pytest.raises(UsageError, match="fpr is a share between 0 and 1, such as"):
        threshold_at([1.0], rate)


def test_no_ordinary_prompts() -> None:
    with pytest.raises(UsageError, match="ordinary prompts are needed to set a"):
        threshold_at([], 0.01)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_thresholds_that_cannot_be(value: float) -> None:
    with pytest.raises(UsageError, match="threshold is a number from 0, such as"):
        threshold_given(value, [])
