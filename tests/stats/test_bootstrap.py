"""Bootstrap intervals against scipy, and drawing whole clusters."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from visleak.stats.bootstrap import (
    bca_difference,
    bca_mean,
    bca_weighted_mean,
    cluster_bootstrap,
    percentiles,
)

RESAMPLES = 8000


def made(kind, n, seed=0):
    """Return scores such as metrics give: near 1, skewed, rounded to tenths, or heavy-tailed."""
    rng = np.random.default_rng(seed)
    return {
        "near one": lambda: rng.beta(5, 0.3, n),
        "tenths": lambda: np.round(rng.beta(5, 1, n), 1),
        "losses": lambda: rng.exponential(size=n),
        "even": lambda: rng.normal(3.0, 0.1, n),
    }[kind]()


def scipys(data, statistic):
    """Return scipy's BCa interval, which draws rows and leaves out each row in turn."""
    found = scipy_bootstrap(
        data, statistic, method="BCa", n_resamples=RESAMPLES, batch=500, rng=1, vectorized=True
    ).confidence_interval
    return float(found.low), float(found.high)


def near(ends):
    """Return an interval with a tolerance: the standard error of an end is 1 % of the width."""
    return pytest.approx(ends, abs=0.04 * (ends[1] - ends[0]))


@pytest.mark.parametrize("kind", ["near one", "tenths", "losses", "even"])
@pytest.mark.parametrize("n", [12, 139])
def test_a_mean_agrees_with_scipy(kind, n):
    """Rounded scores of 139 images have few distinct values, which are drawn by count."""
    values = made(kind, n)
    assert bca_mean(values, resamples=RESAMPLES) == near(scipys((values,), np.mean))


def test_a_difference_agrees_with_scipy():

    def between(a, b, axis):
        return np.asarray(a.mean(axis=axis) - b.mean(axis=axis))

    for first, second in (("near one", "tenths"), ("tenths", "losses")):
        data = made(first, 60), made(second, 300, seed=1)
        assert bca_difference(*data, resamples=RESAMPLES) == near(scipys(data, between))


def test_a_weighted_mean_agrees_with_scipy():
    """Rows are drawn with their weights; scipy draws row numbers."""
    values, weights = made("losses", 200), np.random.default_rng(2).gamma(2.0, size=200)

    def weighted(rows, axis):
        chosen = rows.astype(int)
        return np.asarray((weights[chosen] * values[chosen]).sum(axis) / weights[chosen].sum(axis))

    found = bca_weighted_mean(values, weights, resamples=RESAMPLES)
    assert found == near(scipys((np.arange(200),), weighted))
    equal = bca_weighted_mean(values, np.full(200, 7.0), resamples=RESAMPLES)
    assert equal == near(bca_mean(values, resamples=RESAMPLES))


def test_order_and_seed():
    values, weights = made("near one", 90), np.arange(1.0, 91.0)
    turned = values[::-1]
    assert bca_mean(values) == bca_mean(turned)
    assert bca_weighted_mean(values, weights) == bca_weighted_mean(turned, weights[::-1])
    assert bca_difference(values, weights) == bca_difference(turned, weights[::-1])
    assert bca_mean(values, seed=3) == bca_mean(values, seed=3)
    assert bca_mean(values, seed=3) != bca_mean(values, seed=4)


@pytest.mark.parametrize(
    "ends",
    [
        bca_mean([0.3]),
        bca_mean([0.1] * 500),
        bca_difference([0.1], [0.1, 0.2]),
        bca_difference([0.1, 0.1, 0.1], [0.2, 0.2]),
        bca_weighted_mean([0.1, 0.2], [0.0, 0.0]),
        bca_weighted_mean([0.1, 0.1, 0.5], [1.0, 2.0, 0.0]),
    ],
)
def test_without_variation_the_ends_are_unknown(ends):
    assert all(map(math.isnan, ends))


def test_rows_of_a_cluster_stay_together():
    clusters = np.array(["b", "a", "b", "c", "a", "b"])

    def check(rows):
        counts = np.bincount(rows, minlength=6)
        for name in "abc":
            assert len(set(counts[clusters == name])) == 1
        return 0.0

    assert cluster_bootstrap(check, clusters, resamples=20) == (0.0, 0.0)


def test_undefined_resamples_do_not_count():
    low, high = cluster_bootstrap(lambda rows: 1.0 if 0 in rows else math.nan, [0, 1], resamples=40)
    assert (low, high) == (1.0, 1.0)
    assert all(map(math.isnan, cluster_bootstrap(lambda rows: math.nan, [0, 1], resamples=9)))
    assert all(map(math.isnan, percentiles([])))
