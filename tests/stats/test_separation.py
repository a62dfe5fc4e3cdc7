"""ROC figures against scikit-learn and pairs counted one by one; intervals by their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from visleak.errors import UsageError
from visleak.stats.separation import Separation, auc_interval, separation


def scores(seed: int, positives: int, negatives: int, apart: float = 1.0) -> tuple[object, ...]:
    """Return scores with ties, labels and a group per row."""
    rng = np.random.default_rng(seed)
    score = np.concatenate([rng.normal(apart, 1, positives), rng.normal(0, 1, negatives)]).round(2)
    return score, np.arange(len(score)) < positives, np.arange(len(score))


def told(score: object, label: object, groups: object, **options: object) -> Separation:
    return separation(score, label, groups, resamples=20, **options)  # type: ignore[arg-type]


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 400))
def test_figures_are_those_of_scikit_learn(seed: int, positives: int, negatives: int) -> None:
    score, label, groups = scores(seed, positives, negatives)
    found = told(score, label, groups)
    fpr, tpr, _ = metrics.roc_curve(label, score, drop_intermediate=False)
    assert found.auc.value == pytest.approx(metrics.roc_auc_score(label, score), abs=1e-12)
    # the two lines of Wen et al.'s notebook
    assert found.accuracy.value == pytest.approx(np.max(1 - (fpr + (1 - tpr)) / 2), abs=1e-12)
    assert found.tpr_below.value == pytest.approx(tpr[np.where(fpr < 0.01)[0][-1]], abs=1e-12)
    assert found.tpr_within.value == pytest.approx(tpr[fpr <= 0.01 + 1e-12].max(), abs=1e-12)


def test_below_and_within_part_where_a_rate_is_hit_exactly() -> None:
    # of 100 others one lies above the second positive: fpr there is exactly 1 %
    score = np.concatenate([[10.0, 8.0], [9.0], np.arange(99) / 99])
    label = np.arange(102) < 2
    found = told(score, label, np.arange(102))
    assert (found.tpr_below.value, found.tpr_within.value) == (0.5, 1.0)
    assert found.rate == 0.01


def test_the_threshold_of_the_best_accuracy_has_it() -> None:
    score, label, groups = scores(4, 30, 80)
    found = told(score, label, groups)
    reached, hit = np.asarray(score) >= found.accuracy_at, np.asarray(label)
    each = (reached[hit].mean() + (~reached)[~hit].mean()) / 2
    assert found.accuracy.value == pytest.approx(each)
    balanced = metrics.balanced_accuracy_score(hit, reached)
    assert found.accuracy.value == pytest.approx(balanced)


def test_groups_are_drawn_whole() -> None:
    rng = np.random.default_rng(2)
    centres = np.repeat(rng.normal(1, 1, 10), 20)
    score = np.concatenate([centres, rng.normal(0, 1, 200)])
    label, alone = np.arange(400) < 200, np.arange(400)
    shared = np.concatenate([np.repeat(np.arange(10), 20), 10 + np.arange(200)])
    single, grouped = (separation(score, label, groups) for groups in (alone, shared))
    assert (grouped.positive_groups, grouped.negative_groups) == (10, 200)
    assert single.positive_groups == 200
    assert grouped.auc.value == single.auc.value
    widths = [each.auc.high - each.auc.low for each in (single, grouped)]
    assert widths[1] > 2 * widths[0]


def test_an_interval_does_not_vanish_where_two_kinds_do_not_overlap() -> None:
    score = np.concatenate([np.full(12, 2.0) + np.arange(12) / 100, np.arange(300) / 300])
    found = told(score, np.arange(312) < 12, np.arange(312))
    assert found.auc.value == found.tpr_within.value == found.accuracy.value == 1.0
    assert found.auc.low == pytest.approx(auc_interval(1.0, 12, 300)[0])
    # Wilson's of 12 of 12
    assert found.tpr_within.low == pytest.approx(1 / (1 + 1.959964**2 / 12), abs=1e-6)
    assert found.auc.high == found.tpr_within.high == found.accuracy.high == 1.0
    assert 0.8 < found.accuracy.low < 1.0


@given(st.floats(0.0, 1.0), st.integers(1, 300), st.integers(1, 300))
def test_the_interval_of_an_area_holds_it_and_mirrors(area: float, first: int, second: int) -> None:
    low, high = auc_interval(area, first, second)
    assert 0.0 <= low <= area <= high <= 1.0
    other = auc_interval(1.0 - area, first, second)
    assert (1 - other[1], 1 - other[0]) == pytest.approx((low, high), abs=1e-6)
    wide = auc_interval(area, first, second, 0.99)
    assert wide[0] <= low + 1e-9
    assert wide[1] >= high - 1e-9


def test_its_ends_are_as_far_off_as_their_own_errors() -> None:
    for end in auc_interval(0.9, 20, 50):
        more = (20 + 50) / 2 - 1
        spread = 1 + more * (1 - end) / (2 - end) + more * end / (1 + end)
        error = math.sqrt(end * (1 - end) * spread / (20 * 50))
        assert abs(0.9 - end) == pytest.approx(1.959964 * error, rel=1e-5)


@pytest.mark.slow
def test_intervals_of_few_uneven_groups_hold_the_true_area() -> None:
    held = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sizes = rng.geometric(0.15, 20)
        centres = rng.normal(1.5, math.sqrt(0.5), 20)
        own = np.repeat(centres, sizes) + rng.normal(0, math.sqrt(0.5), sizes.sum())
        score = np.concatenate([own, rng.normal(0, 1, 200)])
        owner = np.concatenate([np.repeat(np.arange(20), sizes), 20 + np.arange(200)])
        found = separation(score, np.arange(len(score)) < len(own), owner, resamples=60)
        held.append(found.auc.low <= 0.5 * (1 + math.erf(0.75)) <= found.auc.high)
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("label", [True, False])
def test_one_kind_alone_cannot_be_told_apart(label: bool) -> None:
    with pytest.raises(UsageError, match="two kinds of prompts are needed to tell"):
        separation([1.0, 2.0], [label, label], [0, 1])
