"""Intervals and tests of numbers about groups of prompts, and the area of trade-offs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from visleak.stats.bootstrap import cluster_bootstrap
from visleak.stats.group_intervals import (
    FLIPS,
    bounded,
    deviation_change,
    deviation_interval,
    group_interval,
    hypervolume,
    inner_deviation,
    mean_interval,
    mean_of_parts,
    share_of_ideal,
    swap_test,
    whole_deviation,
)
from visleak.stats.intervals import t_interval


def test_equal_groups_give_the_t_interval_of_their_means():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(12, 7))
    found = group_interval(table.ravel(), np.repeat(np.arange(12), 7))
    assert (found.low, found.high) == pytest.approx(t_interval(table.mean(1)))
    assert found.effective == pytest.approx(12)


@pytest.mark.parametrize("values", [[0.1, 0.4, 0.4, 0.9, 0.3], [1, 1, 0, 0, 0]])
def test_the_jackknife_by_hand(values):
    """A mean, and a share: Wilson's interval by its closed form, with Student's t for z."""
    values, groups = np.array(values), np.array([5, 5, 5, 2, 9])
    without = [np.mean(values[groups != group]) for group in (2, 5, 9)]
    variance = sum((w - np.mean(without)) ** 2 for w in without) * 2 / 3
    effective, mean = 25 / (9 + 1 + 1), values.mean()
    t = stdtrit(effective - 1, 0.975)
    centre, reach = mean, t * math.sqrt(variance)
    found = group_interval(values, groups)
    if found.method == "share":
        n = mean * (1 - mean) / variance
        centre = (mean + t**2 / (2 * n)) / (1 + t**2 / n)
        reach = t * math.sqrt(mean * (1 - mean) / n + t**2 / (4 * n**2)) / (1 + t**2 / n)
    assert (found.low, found.high) == pytest.approx((centre - reach, centre + reach))
    assert found.effective == pytest.approx(effective)


def test_a_statistic_of_many_groups_has_percentiles():
    rng = np.random.default_rng(3)
    values = rng.normal(size=1200)
    groups, options = np.arange(1200), {"resamples": 100, "seed": 5}
    found = group_interval(values, groups, np.median, **options)
    expected = cluster_bootstrap(lambda rows: np.median(values[rows]), groups, **options)
    assert (found.low, found.high) == expected


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_groups_count_once_each(value):
    found = group_interval(np.full(100, value), np.repeat(np.arange(5), 20))
    assert found.effective == pytest.approx(5)
    reach = 1 - found.low if value else found.high
    t = stdtrit(4, 0.975)
    assert reach == pytest.approx((t**2 / 5) / (1 + t**2 / 5))


def test_one_group_has_no_interval():
    for values, statistic in (([1, 0, 1], None), ([0.5, 0.1, 0.2], None), ([0.5, 0.1], np.median)):
        found = group_interval(values, [3] * len(values), statistic)
        assert np.isnan([found.low, found.high]).all()


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 6), st.integers(1, 4)), min_size=2, max_size=40
    )
)
def test_order_and_names_of_groups_do_not_matter(rows):
    values = np.array([row[0] for row in rows], float)
    groups = np.array([row[1] for row in rows])
    found = group_interval(values, groups)
    turned = group_interval(values[::-1], [f"g{group}" for group in groups[::-1]])
    ends = ((each.low, each.high, each.effective) for each in (found, turned))
    assert np.allclose(*ends, equal_nan=True)
    if found.groups > 1:
        assert 0 <= found.low <= found.value <= found.high <= 1
    assert 1 <= found.effective <= found.groups + 1e-9


def parts_of_mean(values):
    return np.column_stack([np.ones(len(values)), values])


def swapped_by_hand(before, after, groups, number):
    """Return the p-value by all swaps of whole groups of rows."""
    names = np.unique(groups)
    seen = abs(number(after) - number(before))
    far = []
    for ways in itertools.product([False, True], repeat=len(names)):
        swap = np.isin(groups, names[list(ways)])[:, None]
        one, other = np.where(swap, after, before), np.where(swap, before, after)
        far.append(abs(number(other) - number(one)) >= seen - 1e-12)
    return float(np.mean(far))


GROUPS = np.array([4, 4, 4, 1, 1, 9, 7])


@pytest.mark.parametrize("seed", range(5))
def test_all_swaps_of_few_groups_are_used(seed):
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(7, 3))
    after = before + rng.normal(0.4, 0.5, size=(7, 3))
    sides = parts_of_mean(before.mean(1)), parts_of_mean(after.mean(1))
    means = swap_test(*sides, GROUPS, mean_of_parts)
    assert means == swapped_by_hand(before, after, GROUPS, np.mean)
    for made, number in (
        (lambda table: whole_deviation(table, 0.3), lambda table: table.std(ddof=1)),
        (inner_deviation, lambda table: math.sqrt(table.var(1, ddof=1).mean())),
    ):
        one, other = made(before), made(after)
        p = swap_test(one.parts, other.parts, GROUPS, one.number)
        assert p == swapped_by_hand(before, after, GROUPS, number)
        assert one.value == pytest.approx(number(before))


def test_the_largest_and_smallest_p_value():
    """Of many groups swaps are drawn."""
    for count, smallest in ((5, 2 / 2**5), (40, 1 / (FLIPS + 1))):
        values, groups = np.arange(float(count)), np.arange(count)
        sides = parts_of_mean(values), parts_of_mean(values + 1)
        assert swap_test(*sides, groups, mean_of_parts) == smallest
        assert swap_test(*sides, groups // count, mean_of_parts) == 1.0


def test_the_interval_of_a_difference_is_not_that_of_a_share():
    values, groups = np.array([0.0, 1.0, 1.0, 0.0]), np.arange(4)
    jackknife = group_interval(values, groups, lambda rows: float(rows.mean()))
    found = mean_interval(values, groups)
    assert (found.low, found.high) == pytest.approx((jackknife.low, jackknife.high))
    assert group_interval(values, groups).method == "share"
    # equal values have none, unless nothing changed
    assert math.isnan(mean_interval(np.full(4, -1.0), groups).low)
    assert mean_interval(np.zeros(4), groups).low == 0.0


def test_ends_are_cut_to_the_range():
    found = group_interval([0.1, 0.9, 0.8], [0, 1, 2])
    cut = bounded(found, 0.0, 1.0)
    assert found.low < 0.0 == cut.low
    assert found.high > 1.0 == cut.high
    assert math.isnan(bounded(group_interval([0.5], [0]), 0.0, 1.0).low)


@pytest.mark.parametrize("made", [whole_deviation, inner_deviation])
def test_the_interval_of_a_deviation_approximates_the_jackknife(made):
    rng = np.random.default_rng(8)
    groups = np.repeat(np.arange(60), 4)
    table = rng.normal(5, 1, size=(240, 3)) * (1 + 0.2 * rng.normal(size=60)[groups][:, None])
    found = deviation_interval(made(table), groups)
    exact = group_interval(table, groups, lambda rows: float(made(rows).value))
    assert found.value == exact.value
    assert found.low == pytest.approx(exact.low, rel=0.01)
    assert found.high == pytest.approx(exact.high, rel=0.01)


def test_the_change_of_a_deviation():
    rng = np.random.default_rng(9)
    before = rng.normal(size=(50, 4))
    found = deviation_change(whole_deviation(before), whole_deviation(2 * before), np.arange(50))
    assert found.value == pytest.approx(before.std(ddof=1))
    assert found.low < found.value < found.high
    flat = deviation_interval(whole_deviation(np.full((4, 3), 5.1)), np.arange(4))
    assert (flat.value, flat.low, flat.high) == (0.0, 0.0, 0.0)
    # two rows are always equally far from their mean
    assert math.isnan(deviation_interval(whole_deviation(before[:2, :1]), np.arange(2)).low)


#: Points on a grid of eighths, whose union of rectangles is a number of cells.
EIGHTHS = st.integers(-2, 10)
POINTS = st.lists(st.tuples(EIGHTHS, EIGHTHS), max_size=7)


def counted(points, corner):
    """Return the number of cells between any point and the corner."""
    cells = set()
    for x, y in points:
        cells |= {(a, b) for a in range(x, corner[0]) for b in range(corner[1], y)}
    return len(cells)


@given(POINTS, EIGHTHS, EIGHTHS)
def test_a_hypervolume_is_the_number_of_covered_cells(points, right, floor):
    table = np.array(points, np.float64).reshape(-1, 2) / 8
    found = hypervolume(table[:, 0], table[:, 1], (right / 8, floor / 8))
    assert found == counted(points, (right, floor)) / 64


def test_the_share_of_the_ideal_and_of_the_base():
    assert share_of_ideal([0.0], [0.3], (0.6, 0.3)) == pytest.approx(1.0)
    assert share_of_ideal([0.6], [0.3], (0.6, 0.3)) == 0.0
    assert share_of_ideal([0.3], [0.4], (0.6, 0.2)) == pytest.approx(1.0)  # alignment rose
    assert math.isnan(share_of_ideal([0.1], [0.3], (0.0, 0.3)))
