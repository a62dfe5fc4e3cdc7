"""Bootstrap intervals: seeded, by whole clusters, and of the right width."""

from __future__ import annotations

import math

import numpy as np
import pytest

from visleak.errors import UsageError
from visleak.stats.bootstrap import cluster_bootstrap, cluster_draws, percentiles


def test_the_seed_decides():
    value = np.random.default_rng(0).normal(size=200)
    clusters = np.arange(200) // 4
    ends = [
        cluster_bootstrap(lambda rows: value[rows].mean(), clusters, resamples=200, seed=seed)
        for seed in (3, 3, 4)
    ]
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


def test_copies_of_a_row_do_not_make_it_surer():
    """Nine rows of one image say as much as one: clusters widen the interval threefold."""
    once = np.random.default_rng(2).normal(size=100)
    value, clusters = np.repeat(once, 9), np.repeat(np.arange(100), 9)

    def mean(rows):
        return float(value[rows].mean())

    def width(of):
        low, high = cluster_bootstrap(mean, of, resamples=400)
        return high - low

    assert width(clusters) == pytest.approx(3 * width(np.arange(900)), rel=0.2)


def test_rows_of_a_cluster_stay_together():
    clusters = np.array(["b", "a", "b", "c", "a", "b"])

    def check(rows):
        counts = np.bincount(rows, minlength=6)
        for name in "abc":
            assert len(set(counts[clusters == name])) == 1
        return 0.0

    assert cluster_bootstrap(check, clusters, resamples=20) == (0.0, 0.0)


def test_undefined_resamples_are_left_out():
    low, high = cluster_bootstrap(lambda rows: 1.0 if 0 in rows else math.nan, [0, 1], resamples=40)
    assert (low, high) == (1.0, 1.0)
    assert all(map(math.isnan, cluster_bootstrap(lambda rows: math.nan, [0, 1], resamples=9)))
    assert all(map(math.isnan, percentiles([])))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: cluster_bootstrap(len, []), "nothing to draw from: clusters has no rows"),
        (lambda: cluster_bootstrap(len, [1], confidence=2), "confidence must lie between 0 and 1"),
        (lambda: next(cluster_draws(0, 5)), "clusters and resamples must be 1 or more; got 0"),
    ],
)
def test_nonsense_is_refused(call, said):
    with pytest.raises(UsageError, match=said):
        call()  # type: ignore[operator]
