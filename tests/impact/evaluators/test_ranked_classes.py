"""From outputs to answers, against scikit-learn and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import accuracy_score, top_k_accuracy_score

from visleak.impact.evaluators.classification import NONE, hits, ranked

pytest.importorskip("torchmetrics")


def outputs(seed, images, classes):
    return np.random.default_rng(seed).normal(0, 3, (images, classes)).astype(np.float32)


@given(st.integers(0, 99), st.integers(1, 40), st.integers(2, 12))
def test_accuracy_and_top_5_by_two_libraries_and_by_hand(seed, images, classes):
    """torchmetrics inside, scikit-learn and a plain loop outside."""
    made = outputs(seed, images, classes)
    targets = np.random.default_rng(seed + 1).integers(0, classes, images)
    found = ranked(made, np.ones(classes, bool))
    right = hits(found.best, targets)
    assert right[:, 0].mean() == accuracy_score(targets, made.argmax(axis=1))
    if classes > 5:
        five = top_k_accuracy_score(targets, made, k=5, labels=np.arange(classes))
        assert right.any(axis=1).mean() == pytest.approx(five)
    for row, target in enumerate(targets):
        place = sorted(range(classes), key=lambda c, r=row: -made[r, c]).index(target)
        assert right[row].tolist() == [place == k for k in range(5)]


def test_equal_outputs_and_few_classes():
    """The first of equal ones; places beyond the classes are empty and never right."""
    found = ranked(np.array([[1, 2, 2]], np.float32), np.ones(3, bool))
    assert found.best.tolist() == [[1, 2, 0, NONE, NONE]]
    assert hits(found.best, np.array([-1])).tolist() == [[False] * 5]
    assert hits(found.best, np.array([0])).tolist() == [[False, False, True, False, False]]


def test_restricted_answers():
    """Classes that are not allowed are no answers, and take no part in the confidence."""
    made = outputs(0, 30, 9)
    allowed = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0], bool)
    found = ranked(made, allowed)
    columns = np.flatnonzero(allowed)
    assert (found.best[:, 0] == columns[made[:, columns].argmax(axis=1)]).all()
    assert (found.best[:, 4] == NONE).all()
    wanted = softmax(made[:, columns].astype(float), axis=1).max(axis=1)
    np.testing.assert_allclose(found.confidence, wanted, rtol=1e-6)


def test_probabilities_are_taken_as_they_are():
    likely = softmax(outputs(1, 20, 7).astype(float), axis=1).astype(np.float32)
    found = ranked(likely, np.ones(7, bool))
    np.testing.assert_allclose(found.confidence, likely.max(axis=1), rtol=1e-6)
    some = np.arange(7) < 3
    within = likely[:, :3].max(axis=1) / likely[:, :3].sum(axis=1)
    np.testing.assert_allclose(ranked(likely, some).confidence, within, rtol=1e-5)
    nothing = np.array([[0, 0, 1]], np.float32)
    assert ranked(nothing, np.array([True, True, False])).confidence.tolist() == [0.5]
