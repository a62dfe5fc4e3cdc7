"""The streamed ROC against all pairs in memory."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.robustness.curves import Roc, RocCounter, TopPairs, edges_for

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
    parts = [(rng.normal(0.5, 0.2, 30), rng.normal(0, 0.2, 500)) for _ in range(3)]
    parts = [tuple(np.clip(p, -1, 1).astype(np.float32) for p in part) for part in parts]
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
    with pytest.raises(ValueError, match="counted at the same edges"):
        Roc.pooled([curves[0], whole])


def test_without_others_the_area_is_unknown():
    found = streamed(np.array([0.5], np.float32), np.empty(0, np.float32))
    assert math.isnan(found.auc)
    assert found.total == 0


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3]), st.integers(0, 9)), max_size=60),
    st.integers(1, 12),
)
def test_the_keeper_keeps_the_largest(rows, count):
    keeper = TopPairs(count)
    numbered = [(np.float32(s), q, r) for r, (s, q) in enumerate(rows)]
    for part in np.array_split(np.arange(len(rows)), 4):
        chosen = [numbered[i] for i in part]
        keeper.add(
            np.array([s for s, _, _ in chosen], np.float32),
            np.array([q for _, q, _ in chosen], np.int64),
            np.array([r for _, _, r in chosen], np.int64),
        )
        if chosen:
            keeper._settle()
    found = keeper.largest()
    expected = sorted(numbered, key=lambda row: (-row[0], row[1], row[2]))[:count]
    got = zip(found.similarity, found.query, found.reference, strict=True)
    assert [(s, int(q), int(r)) for s, q, r in got] == expected
