"""Separation and ranking of two kinds of cases by a score, and thresholds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn import metrics

from visleak.stats.separation import (
    auc,
    auc_interval,
    needed,
    roc_points,
    rounded_up,
    separation,
    threshold_at,
    threshold_given,
)


def scores(seed, positives, negatives):
    """Return scores with ties, and labels."""
    rng = np.random.default_rng(seed)
    score = np.concatenate([rng.normal(1, 1, positives), rng.normal(0, 1, negatives)]).round(2)
    return score, np.arange(len(score)) < positives


def separated(score, label):
    return separation(score, label, np.arange(len(score)), resamples=20)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 400))
def test_results_are_those_of_scikit_learn(seed, positives, negatives):
    score, label = scores(seed, positives, negatives)
    found = separated(score, label)
    fpr, tpr, _ = metrics.roc_curve(label, score, drop_intermediate=False)
    assert found.auc.value == pytest.approx(metrics.roc_auc_score(label, score), abs=1e-12)
    assert found.accuracy.value == pytest.approx(np.max(1 - (fpr + (1 - tpr)) / 2), abs=1e-12)
    assert found.tpr_below.value == pytest.approx(tpr[np.where(fpr < 0.01)[0][-1]], abs=1e-12)
    assert found.tpr_within.value == pytest.approx(tpr[fpr <= 0.01 + 1e-12].max(), abs=1e-12)
    balanced = metrics.balanced_accuracy_score(label, score >= found.accuracy_at)
    assert found.accuracy.value == pytest.approx(balanced)


def test_below_and_within_differ_at_an_exact_rate():
    # of 100 others one lies above the second positive: fpr there is exactly 1 %
    score = np.concatenate([[10.0, 8.0], [9.0], np.arange(99) / 99])
    label = np.arange(102) < 2
    found = separated(score, label)
    assert (found.tpr_below.value, found.tpr_within.value) == (0.5, 1.0)
    assert found.rate == 0.01


def test_groups_are_drawn_whole():
    rng = np.random.default_rng(2)
    centres = np.repeat(rng.normal(1, 1, 10), 20)
    score = np.concatenate([centres, rng.normal(0, 1, 200)])
    label, alone = np.arange(400) < 200, np.arange(400)
    shared = np.concatenate([np.repeat(np.arange(10), 20), 10 + np.arange(200)])
    single, grouped = (separation(score, label, groups) for groups in (alone, shared))
    assert (grouped.positive_groups, grouped.negative_groups) == (10, 200)
    assert grouped.auc.value == single.auc.value
    widths = [each.auc.high - each.auc.low for each in (single, grouped)]
    assert widths[1] > 2 * widths[0]


def test_intervals_of_separate_kinds_have_a_width():
    score = np.concatenate([np.full(12, 2.0) + np.arange(12) / 100, np.arange(300) / 300])
    found = separated(score, np.arange(312) < 12)
    assert found.auc.value == found.tpr_within.value == found.accuracy.value == 1.0
    # Wilson's of 12 of 12
    assert found.tpr_within.low == pytest.approx(1 / (1 + 1.959964**2 / 12), abs=1e-6)
    assert found.auc.high == found.tpr_within.high == found.accuracy.high == 1.0
    assert 0.8 < found.accuracy.low < 1.0


@given(st.floats(0.0, 1.0), st.integers(1, 300), st.integers(1, 300))
def test_the_interval_of_an_area_contains_it_and_is_symmetric(area, first, second):
    low, high = auc_interval(area, first, second)
    assert 0.0 <= low <= area <= high <= 1.0
    other = auc_interval(1.0 - area, first, second)
    assert (1 - other[1], 1 - other[0]) == pytest.approx((low, high), abs=1e-6)


def test_its_ends_are_at_their_own_standard_errors():
    for end in auc_interval(0.9, 20, 50):
        more = (20 + 50) / 2 - 1
        spread = 1 + more * (1 - end) / (2 - end) + more * end / (1 + end)
        error = math.sqrt(end * (1 - end) * spread / (20 * 50))
        assert abs(0.9 - end) == pytest.approx(1.959964 * error, rel=1e-5)


#: Few distinct scores: ties are where implementations differ.
ROWS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=40)


@given(ROWS.filter(lambda rows: len({true for _, true in rows}) == 2))
def test_auc_by_pairs_and_by_area(rows):
    score, true = (np.array(column) for column in zip(*rows, strict=True))
    difference = score[true][:, None] - score[~true][None, :]
    expected = ((difference > 0) + 0.5 * (difference == 0)).mean()
    assert auc(score, true) == pytest.approx(expected)
    assert math.isnan(auc(score, np.ones_like(true)))
    fpr, tpr, threshold = roc_points(score, true)
    area = (np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2).sum()
    assert area == pytest.approx(expected)
    for x, y, at in zip(fpr, tpr, threshold, strict=True):
        assert x == (score[~true] >= at).mean()
        assert y == (score[true] >= at).mean()


@given(
    st.lists(st.floats(0.0, 1e4), min_size=1),
    st.sampled_from([0.01, 0.05, 0.1, 0.5]),
    st.booleans(),
)
def test_few_ordinary_prompts_reach_a_threshold(ordinary, rate, bounded):
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


def test_a_threshold_is_the_lowest_up_to_rounding():
    rng = np.random.default_rng(0)
    ordinary = rng.gamma(2, 0.2, 1000)
    found = threshold_at(ordinary, 0.01)
    eleventh = np.sort(ordinary)[-11]
    assert eleventh < found.value <= eleventh * 1.0011
    assert found.alarms in (9, 10)


def test_allowed_alarms_are_exact():
    # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is 28.999999999999996
    for rate, count in ((0.07, 7), (0.29, 29)):
        assert threshold_at(np.arange(100.0), rate).alarms == count


@pytest.mark.parametrize(("bounded", "allowed"), [(False, 3), (True, 0)])
def test_its_bound_is_the_exact_binomial_one(bounded, allowed):
    found = threshold_at(np.arange(300.0), 0.01, bounded=bounded)
    assert found.alarms == allowed
    # at this rate the probability of so few alarms is 5 %
    assert binom.cdf(allowed, 300, found.upper) == pytest.approx(0.05)
    assert found.supported


def test_the_number_of_prompts_that_bounds_a_rate():
    assert (needed(0.01), needed(0.05), needed(0.001)) == (299, 59, 2995)
    for rate in (0.01, 0.05):
        for more, supported in ((-1, False), (0, True)):
            ordinary = np.arange(float(needed(rate) + more))
            assert threshold_at(ordinary, rate, bounded=True).supported is supported


@given(st.floats(0.0, 1e12))
def test_thresholds_are_rounded_up(value):
    found = rounded_up(value)
    assert found > value
    assert found <= value * 1.0021 + 5e-324
    if value > 1e-300:
        assert float(f"{found:.10g}") == found


def test_the_alarms_of_a_given_threshold():
    found = threshold_given(0.5, [0.1, 0.5, 0.6, 0.2])
    assert (found.alarms, found.negatives) == (2, 4)
    assert binom.cdf(2, 4, found.upper) == pytest.approx(0.05)
    assert threshold_given(0.5, []).upper == 1.0
