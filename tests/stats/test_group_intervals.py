"""Intervals of numbers about prompts in groups, above all whether they hold the truth."""

from __future__ import annotations

import math
import os

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from visleak.errors import UsageError
from visleak.rates import wilson
from visleak.stats.bootstrap import cluster_bootstrap
from visleak.stats.group_intervals import group_interval
from visleak.stats.intervals import t_interval
from visleak.stats.separation import auc

DATA = os.environ.get("VISLEAK_DATA")

#: As uneven as MemBench's groups.
UNEVEN = np.array([790, 530, 190, 120, 110, 80, 70, 70, 50, 30] + [25] * 42 + [2])


def test_equal_groups_give_the_t_interval_of_their_means() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(12, 7))
    found = group_interval(table.ravel(), np.repeat(np.arange(12), 7))
    assert (found.low, found.high) == pytest.approx(t_interval(table.mean(1)))
    assert found.effective == pytest.approx(12)
    assert (found.prompts, found.groups, found.method) == (84, 12, "mean")


def test_many_prompts_of_their_own_give_wilsons_interval() -> None:
    values = np.arange(20_000) % 4 == 0
    found = group_interval(values, np.arange(20_000))
    assert (found.low, found.high) == pytest.approx(wilson(5_000, 20_000), rel=1e-3)


def test_the_jackknife_is_the_one_by_hand() -> None:
    values, groups = np.array([0.1, 0.4, 0.4, 0.9, 0.3]), np.array([5, 5, 5, 2, 9])
    without = [np.mean(values[groups != group]) for group in (2, 5, 9)]
    error = math.sqrt(sum((w - np.mean(without)) ** 2 for w in without) * 2 / 3)
    effective = 25 / (9 + 1 + 1)
    reach = stdtrit(effective - 1, 0.975) * error
    found = group_interval(values, groups)
    assert (found.low, found.high) == pytest.approx((0.42 - reach, 0.42 + reach))
    assert found.effective == pytest.approx(effective)


def test_the_mean_as_a_statistic_is_the_mean() -> None:
    rng = np.random.default_rng(1)
    values, groups = rng.normal(size=60), rng.integers(9, size=60)
    mean = group_interval(values, groups)
    other = group_interval(values, groups, lambda rows: float(rows.mean()))
    assert (other.low, other.high) == pytest.approx((mean.low, mean.high))
    assert other.method == "jackknife"


def test_a_statistic_sees_rows() -> None:
    rng = np.random.default_rng(2)
    memorized = np.repeat([1.0, 0.0], 40)
    rows = np.column_stack([rng.normal(size=80) + memorized, memorized])
    groups = np.concatenate([np.arange(40) % 6, 6 + np.arange(40)])
    found = group_interval(rows, groups, lambda drawn: auc(drawn[:, 0], drawn[:, 1] > 0))
    assert found.low < found.value < found.high
    assert found.value == auc(rows[:, 0], memorized > 0)


def test_many_groups_and_no_mean_give_percentiles() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=1200)
    found = group_interval(
        values, np.arange(1200), lambda drawn: float(np.median(drawn)), resamples=100, seed=5
    )
    expected = cluster_bootstrap(
        lambda rows: float(np.median(values[rows])), np.arange(1200), resamples=100, seed=5
    )
    assert (found.low, found.high, found.method) == (*expected, "percentiles")


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_groups_that_all_agree_count_once_each(value: float) -> None:
    found = group_interval(np.full(100, value), np.repeat(np.arange(5), 20))
    assert found.effective == pytest.approx(5)
    reach = 1 - found.low if value else found.high
    t = stdtrit(4, 0.975)
    assert reach == pytest.approx((t**2 / 5) / (1 + t**2 / 5))


def test_one_group_says_nothing() -> None:
    for values in ([1, 0, 1], [0.5, 0.1, 0.2]):
        found = group_interval(values, [3, 3, 3])
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        assert found.groups == 1
    found = group_interval([0.5, 0.1], [1, 1], lambda rows: float(np.median(rows)))
    assert math.isnan(found.low)


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 6), st.integers(1, 4)), min_size=2, max_size=40
    )
)
def test_order_and_names_of_groups_change_nothing(rows: list[tuple[bool, int, int]]) -> None:
    values = np.array([row[0] for row in rows], float)
    groups = np.array([row[1] for row in rows])
    found = group_interval(values, groups)
    turned = group_interval(values[::-1], [f"g{group}" for group in groups[::-1]])
    assert np.allclose(
        [found.low, found.high, found.effective],
        [turned.low, turned.high, turned.effective],
        equal_nan=True,
    )
    if found.groups > 1:
        assert 0 <= found.low <= found.value <= found.high <= 1
    assert 1 <= found.effective <= found.groups + 1e-9


@pytest.mark.parametrize(
    ("values", "groups", "message"),
    [
        ([1.0, 2.0], [0], "groups names one group per row of values; got (1,) for (2,)"),
        ([], [], "values has no rows: there is no interval of nothing"),
        ([1.0, math.nan], [0, 1], "values are finite numbers; leave out prompts without one"),
        ([[1.0, 2.0]], [0], "the mean is of one value per prompt; give a statistic of rows"),
    ],
)
def test_errors_say_what_to_do(values: npt.ArrayLike, groups: npt.ArrayLike, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        group_interval(values, groups)
    assert message in str(caught.value)


def _shares(sizes: npt.NDArray[np.int64], mean: float, alike: float, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    """Values of prompts whose groups' shares vary: ``alike`` is the correlation within one."""
    scale = 1 / alike - 1
    return rng.binomial(1, np.repeat(rng.beta(mean * scale, (1 - mean) * scale, len(sizes)), sizes))


@pytest.mark.parametrize(
    ("alike", "mean", "least"), [(0.05, 0.5, 0.93), (0.3, 0.5, 0.93), (0.3, 0.1, 0.90)]
)
def test_it_holds_the_truth_where_percentiles_do_not(
    alike: float, mean: float, least: float
) -> None:
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(len(UNEVEN)), UNEVEN)
    held, usual, rounds = 0, 0, 600
    for _ in range(rounds):
        values = _shares(UNEVEN, mean, alike, rng)
        found = group_interval(values, groups)
        held += found.low <= mean <= found.high
        sums = np.bincount(groups, values)
        drawn = rng.multinomial(len(UNEVEN), np.full(len(UNEVEN), 1 / len(UNEVEN)), size=400)
        low, high = np.quantile((drawn @ sums) / (drawn @ UNEVEN), [0.025, 0.975])
        usual += low <= mean <= high
    assert held / rounds >= least
    assert usual / rounds < held / rounds
