"""The streamed ROC against all pairs in memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.robustness.curves import POINTS, Roc, RocCounter, edges_for, thin

#: Some on the grid, some between, many equal.
VALUES = st.lists(
    st.sampled_from([-1.0, -0.25, 0.0, 0.1234, 0.5, 0.7505, 0.7506, 0.999, 1.0])
    | st.floats(-1, 1, width=32),
    min_size=1,
    max_size=40,
).map(lambda values: np.array(values, np.float32))


def streamed(positives, others, *thresholds):
    counter = RocCounter(edges_for(positives, thresholds))
    for part in np.array_split(others, 3):
        counter.add(part)
    return counter.roc(positives)


@given(VALUES, VALUES, st.floats(-1, 1, width=32))
def test_counts_at_thresholds(positives, others, asked):
    """Exact at given thresholds, at true pairs and on the grid; an upper bound in between."""
    found = streamed(positives, others, asked)
    for threshold in (asked, 0.25, 0.751, float(positives[0])):
        assert found.false(threshold) == (others >= np.float32(threshold)).sum()
        assert found.true(threshold) == (positives >= np.float32(threshold)).sum()
    between = 0.12345
    assert found.false(between) >= (others >= np.float32(between)).sum()


@given(VALUES, VALUES)
def test_points_are_the_exact_ones(positives, others):
    fpr, tpr, threshold = streamed(positives, others).points()
    for x, y, at in zip(fpr, tpr, threshold, strict=True):
        assert x == (others >= at).mean()
        assert y == (positives >= at).mean()


def test_pooled_is_as_if_counted_together():
    """`trans` pools eighteen conditions."""
    rng = np.random.default_rng(0)
    parts = [(rng.uniform(0, 1, 30), rng.uniform(-1, 0.8, 500)) for _ in range(3)]
    parts = [tuple(each.astype(np.float32) for each in part) for part in parts]
    positives = np.concatenate([p for p, _ in parts])
    edges = edges_for(positives)
    curves = []
    for own, others in parts:
        counter = RocCounter(edges)
        counter.add(others)
        curves.append(counter.roc(own))
    whole = streamed(positives, np.concatenate([o for _, o in parts]))
    assert Roc.pooled(curves).auc == whole.auc
    assert Roc.pooled(curves).total == 1500
    with pytest.raises(ValueError, match="same edges"):
        Roc.pooled([*curves, whole])
    # thousands of corners are thinned to hundreds, including the first and the last
    many = rng.uniform(-1, 1, 53_000).astype(np.float32)
    fpr, tpr, _ = thin(streamed(many[:3000], many[3000:]))
    assert 100 < len(fpr) <= POINTS
    assert (fpr[-1], tpr[-1]) == (1.0, 1.0)
    assert fpr[0] <= 1e-3
    assert (np.diff([fpr, tpr]) >= 0).all()
