"""Refusals of invalid arguments."""

import math
from functools import partial

import numpy as np
import pytest

from visleak.errors import UsageError
from visleak.stats import bootstrap, group_intervals, intervals, permutation, separation
from visleak.stats.set_distances import frechet_distance, kernel_distance

PAIRED = (np.ones((3, 2)), np.ones((4, 2)), np.arange(3), group_intervals.mean_of_parts)
SET = np.random.default_rng(0).normal(size=(5, 2))

REFUSED = [
    (permutation.permutation_test, ([1, 0], [True]), "must be columns of one length; got .2,.,"),
    (permutation.permutation_test, ([1, math.nan], [True, False]), "values must be finite in"),
    (permutation.holm, ([0.5, 1.5],), "p must lie between 0 and 1 in every row, or be NaN"),
    (permutation.holm, ([[0.5]],), r"p must be a column; got the shape \(1, 1\)"),
    (intervals.mcnemar_exact, (-1, 2), "counts must be 0 or more; got -1 and 2"),
    (intervals.newcombe_paired, (3, -1, 0, 2), "counts must be 0 or more; got 3, -1, 0 and 2"),
    (intervals.clopper_pearson_upper, (3, 2), "k must lie between 0 and n = 2; got 3"),
    (intervals.clustered_upper, (1.5, 9), "rate must lie between 0 and 1; got 1.5"),
    (intervals.t_interval, ([1.0, 2.0], 1), "confidence must lie between 0 and 1; got 1"),
    (intervals.t_test_power, (1.0, 1.0, 5, 1.0), "level must lie between 0 and 1; got 1"),
    (intervals.weighted_wilson, ([1], [1, 2]), "must be columns of one length; got .1,. and .2,."),
    (intervals.weighted_wilson, ([0.5], [1]), "values must be 0 or 1 in every row"),
    (intervals.weighted_wilson, ([1], [-1]), "weights must be 0 or more in every row"),
    (intervals.weighted_wilson, ([1], [1], 2), "confidence must lie between 0 and 1; got 2"),
    (bootstrap.bca_mean, ([1.0, math.nan],), "values must be a column of finite numbers"),
    (partial(bootstrap.bca_mean, resamples=0), ([1.0],), "resamples must be 1 or more; got 0"),
    (partial(permutation.permutation_test, resamples=0), ([1], [1]), "resamples must be 1"),
    (next, (bootstrap.cluster_draws(0, 5),), "clusters and resamples must be 1 or more"),
    (bootstrap.bca_difference, ([1.0, 2.0], [[1.0]]), "second must be a column of finite numbers"),
    (bootstrap.cluster_bootstrap, (len, []), "nothing to draw from: clusters has no rows"),
    (group_intervals.group_interval, ([1.0, 2.0], [0]), r"one group per row of values; got \(1,\)"),
    (group_intervals.group_interval, ([], []), "values has no rows"),
    (group_intervals.group_interval, ([1.0, math.nan], [0, 1]), "values are finite numbers; leave"),
    (group_intervals.group_interval, ([[1.0, 2.0]], [0]), "the mean is of one value per prompt"),
    (group_intervals.swap_test, PAIRED, "two tables of one shape and a group per row"),
    (group_intervals.hypervolume, ([0.1, 0.2], [0.3], (1.0, 0.0)), "columns of one length"),
    (group_intervals.hypervolume, ([math.nan], [0.3], (1.0, 0.0)), "leave out settings without"),
    (separation.separation, ([1.0, 2.0], [True] * 2, [0, 1]), "two kinds of prompts are needed"),
    (separation.steps, ([1.0], [True, False]), r"columns of one length; got \(1,\) and"),
    (separation.steps, ([], []), "nothing to rank: score has no rows"),
    (separation.steps, ([1.0, math.nan], [True, False]), "score must be numbers; row 1 is not"),
    *((separation.threshold_at, ([1.0], r), "fpr is a share between") for r in (0.0, 1.0)),
    (separation.threshold_at, ([], 0.01), "ordinary prompts are needed to set a"),
    (separation.threshold_given, (-0.1, []), "threshold is a number from 0, such as"),
    (separation.threshold_given, (math.inf, []), "threshold is a number from 0, such as"),
    (frechet_distance, (SET[:1], SET), "a is a table of two vectors or more"),
    (kernel_distance, (SET, SET[:, :1]), "a has vectors of 2 numbers, b of 1"),
    (kernel_distance, (SET, np.full((5, 2), np.inf)), "b has numbers that are not"),
    (kernel_distance, (SET, SET, [0, 1, 2, 3]), r"one group per row; got \(4,\) for 5 rows"),
]


@pytest.mark.parametrize(("function", "arguments", "words"), REFUSED)
def test_invalid_arguments_are_refused(function, arguments, words):
    with pytest.raises(UsageError, match=words):
        function(*arguments)
