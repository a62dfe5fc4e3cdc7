"""Paired tests and intervals by groups, against every swap by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import kstest

from visleak.errors import UsageError
from visleak.stats.group_intervals import (
    FLIPS,
    bounded,
    deviation_change,
    deviation_interval,
    group_interval,
    inner_deviation,
    mean_interval,
    mean_of_parts,
    swap_test,
    whole_deviation,
)


def parts_of_mean(values: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(values)), values])


def swapped_by_hand(before: np.ndarray, after: np.ndarray, groups: np.ndarray, number) -> float:
    """Return the probability by swapping whole groups of rows in every way there is."""
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
def test_few_groups_are_swapped_in_every_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(7, 3))
    after = before + rng.normal(0.4, 0.5, size=(7, 3))
    means = swap_test(
        parts_of_mean(before.mean(1)), parts_of_mean(after.mean(1)), GROUPS, mean_of_parts
    )
    assert means == swapped_by_hand(before, after, GROUPS, np.mean)
    for made, number in (
        (lambda table: whole_deviation(table, 0.3), lambda table: table.std(ddof=1)),
        (inner_deviation, lambda table: math.sqrt(table.var(1, ddof=1).mean())),
    ):
        one, other = made(before), made(after)
        p = swap_test(one.parts, other.parts, GROUPS, one.number)
        assert p == swapped_by_hand(before, after, GROUPS, number)
        assert one.value == pytest.approx(number(before))


def test_nothing_changed_is_certain_and_the_least_is_two_in_all() -> None:
    values = np.arange(5.0)
    groups = np.arange(5)
    same = swap_test(parts_of_mean(values), parts_of_mean(values), groups, mean_of_parts)
    assert same == 1.0
    up = swap_test(parts_of_mean(values), parts_of_mean(values + 1), groups, mean_of_parts)
    assert up == 2 / 2**5


def test_many_groups_are_drawn_and_never_impossible() -> None:
    values = np.zeros(40)
    p = swap_test(parts_of_mean(values), parts_of_mean(values + 1), np.arange(40), mean_of_parts)
    assert p == 1 / (FLIPS + 1)
    again = swap_test(
        parts_of_mean(values), parts_of_mean(values + 1), np.arange(40), mean_of_parts
    )
    assert again == p


def test_prompts_of_one_group_are_one_observation() -> None:
    """Thirty prompts that replay one image cannot make a change sure."""
    before, after = parts_of_mean(np.zeros(30)), parts_of_mean(np.ones(30))
    assert swap_test(before, after, np.zeros(30), mean_of_parts) == 1.0
    assert swap_test(before, after, np.arange(30), mean_of_parts) < 0.001


def test_without_an_effect_it_claims_as_often_as_it_may() -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        shared = rng.normal(size=(9, 1)) + np.zeros((9, 4))
        before = (shared + rng.normal(size=(9, 4))).mean(1)
        after = (shared + rng.normal(size=(9, 4))).mean(1)
        found.append(
            swap_test(parts_of_mean(before), parts_of_mean(after), np.arange(9), mean_of_parts)
        )
    assert kstest(found, "uniform").pvalue > 0.001
    assert np.mean(np.array(found) < 0.05) < 0.09


def test_what_is_not_paired_is_refused() -> None:
    with pytest.raises(UsageError, match="two tables of one shape and a group per row"):
        swap_test(np.ones((3, 2)), np.ones((4, 2)), np.arange(3), mean_of_parts)


def test_the_interval_of_a_difference_is_never_that_of_a_share() -> None:
    values, groups = np.array([0.0, 1.0, 1.0, 0.0]), np.arange(4)
    jackknife = group_interval(values, groups, lambda rows: float(rows.mean()))
    found = mean_interval(values, groups)
    assert (found.low, found.high) == pytest.approx((jackknife.low, jackknife.high))
    assert group_interval(values, groups).method == "share"
    flat = mean_interval(np.zeros(4), groups)
    assert (flat.low, flat.value, flat.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "groups"), [([-1.0, -1.0, -1.0], [0, 1, 2]), ([-0.7], [0]), ([0.0, 0.0], [3, 3])]
)
def test_what_shows_no_spread_has_no_interval(values: list[float], groups: list[int]) -> None:
    """All prompts may have moved by as much, or there is one group: no width of 0 is told."""
    found = mean_interval(np.array(values), groups)
    assert found.value == values[0]
    assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize("made", [whole_deviation, inner_deviation])
def test_the_interval_of_a_deviation_is_nearly_the_jackknifes(made) -> None:
    rng = np.random.default_rng(8)
    groups = np.repeat(np.arange(60), 4)
    table = rng.normal(5, 1, size=(240, 3)) * (1 + 0.2 * rng.normal(size=60)[groups][:, None])
    found = deviation_interval(made(table), groups)
    exact = group_interval(table, groups, lambda rows: float(made(rows).value))
    assert found.value == exact.value
    assert found.low == pytest.approx(exact.low, rel=0.01)
    assert found.high == pytest.approx(exact.high, rel=0.01)


def test_the_change_of_a_deviation() -> None:
    rng = np.random.default_rng(9)
    before = rng.normal(size=(50, 4))
    found = deviation_change(whole_deviation(before), whole_deviation(2 * before), np.arange(50))
    assert found.value == pytest.approx(before.std(ddof=1))
    assert found.low < found.value < found.high
    still = deviation_change(whole_deviation(before), whole_deviation(before), np.arange(50))
    assert (still.low, still.value, still.high) == (0.0, 0.0, 0.0)


def test_images_that_are_all_alike_have_no_deviation() -> None:
    table = np.full((4, 3), 5.1)
    found = deviation_interval(whole_deviation(table), np.arange(4))
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_no_end_lies_where_no_number_can() -> None:
    found = group_interval([0.1, 0.9, 0.8], [0, 1, 2])
    assert found.low < 0
    cut = bounded(found, 0.0, 1.0)
    assert (cut.low, cut.high, cut.value) == (0.0, 1.0, found.value)
    unknown = bounded(group_interval([0.5], [0]), 0.0, 1.0)
    assert math.isnan(unknown.low)


def test_two_rows_say_nothing_of_how_sure_a_deviation_is() -> None:
    """Both are equally far from their mean, whatever they are."""
    table = np.array([[4.0], [6.0]])
    found = deviation_interval(whole_deviation(table), np.arange(2))
    assert found.value == pytest.approx(math.sqrt(2))
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    change = deviation_change(whole_deviation(table), whole_deviation(2 * table), np.arange(2))
    assert math.isnan(change.low)
