"""Equation 1, by hand."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.judge.rules import excess, increase, relative_increase


def test_each_step_is_compared_with_the_step_before_not_with_the_first() -> None:
    assert np.allclose(relative_increase([0.4, 0.5, 0.6]), [0.25, 0.2])


def test_of_a_metric_of_which_less_is_better_a_fall_is_an_increase() -> None:
    assert np.allclose(relative_increase([2.0, 1.0, 1.5], lower=True), [0.5, -0.5])


def test_curves_are_taken_along_the_last_axis() -> None:
    curves = np.array([[[0.4, 0.5, 0.6]], [[1.0, 1.0, 2.0]]])
    assert relative_increase(curves).shape == (2, 1, 2)
    assert np.allclose(relative_increase(curves)[1], [[0.0, 1.0]])


def test_a_share_of_nothing_or_less_is_not_known() -> None:
    found = relative_increase([0.0, 0.5, -0.5, 1.0, math.nan, 1.0])
    assert np.isnan(found[[0, 2, 3, 4]]).all()
    assert found[1] == -2.0


score = st.floats(0.01, 1.0)


@given(before=score, after=score, threshold=st.floats(-0.5, 0.5), lower=st.booleans())
def test_the_excess_is_positive_where_the_increase_is_above_the_threshold(
    before: float, after: float, threshold: float, lower: bool
) -> None:
    first, last = np.array(before), np.array(after)
    above = float(increase(first, last, lower)) - threshold
    if abs(above) > 1e-9:
        assert (float(excess(first, last, threshold, lower)) > 0) == (above > 0)
