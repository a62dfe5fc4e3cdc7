"""Ranking figures against counts by hand, thresholds tried one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import UsageError
from visleak.stats import separation

#: Few distinct scores: ties are where implementations differ.
ROWS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=40)
MIXED = ROWS.filter(lambda rows: len({true for _, true in rows}) == 2)


def split(rows):
    score, true = zip(*rows, strict=True)
    return np.array(score, float), np.array(true)


@given(MIXED)
def test_auc_by_pairs_and_by_area(rows):
    score, true = split(rows)
    difference = score[true][:, None] - score[~true][None, :]
    expected = ((difference > 0) + 0.5 * (difference == 0)).mean()
    assert separation.auc(score, true) == pytest.approx(expected)
    fpr, tpr, threshold = separation.roc_points(score, true)
    area = (np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2).sum()
    assert area == pytest.approx(expected)
    for x, y, at in zip(fpr, tpr, threshold, strict=True):
        assert x == (score[~true] >= at).mean()
        assert y == (score[true] >= at).mean()


def test_nothing_to_find_is_not_a_number():
    """A rate over nothing is unknown, not 0."""
    assert math.isnan(separation.auc([1, 2], [True, True]))
    assert np.isnan(separation.roc_points([1, 2], [True, True])[0][1:]).all()


@pytest.mark.parametrize(
    ("score", "true", "said"),
    [
        ([], [], "nothing to rank: score has no rows"),
        ([1.0], [True, False], r"score and true must be columns of one length; got \(1,\) and"),
        ([1.0, math.nan], [True, False], "score must be numbers; row 1 is not one"),
    ],
)
def test_what_cannot_be_ranked_is_refused(score, true, said):
    with pytest.raises(UsageError, match=said):
        separation.steps(score, true)  # type: ignore[arg-type]
