"""The three rules, by hand, and their edges."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.dlede.judge.rules import RULES, on_means

# increases 25 %, 20 %, 5 %
CURVE = [0.4, 0.5, 0.6, 0.63]


@pytest.mark.parametrize(
    ("rule", "three", "four"),
    [
        ("both-steps", 0.25, 0.25),
        ("any-step", 0.20, 0.05),
        ("cumulative", 0.2 / 0.4, 0.23 / 0.4),
    ],
)
def test_statistic(rule: str, three: float, four: float) -> None:
    assert RULES[rule].statistic(CURVE[:3]) == pytest.approx(three)
    assert RULES[rule].statistic(CURVE) == pytest.approx(four)


def test_default_is_named_first() -> None:
    assert list(RULES) == ["both-steps", "any-step", "cumulative"]


@pytest.mark.parametrize("rule", RULES)
def test_statistic_of_many_curves_is_that_of_each(rule: str) -> None:
    curves = np.random.default_rng(0).random((4, 5, 3)) + 0.1
    each = [[float(RULES[rule].statistic(curve)) for curve in row] for row in curves]
    assert np.allclose(RULES[rule].statistic(curves), each)


@pytest.mark.parametrize("rule", ["both-steps", "any-step"])
def test_what_one_increase_leaves_unknown_is_unknown(rule: str) -> None:
    assert np.isnan(RULES[rule].statistic([0.5, 0.0, 0.5]))


def test_five_percent_exactly_is_leaking() -> None:
    # Algorithm 1 compares by <=; in binary this increase is 0.05000000000000004
    statistic = float(RULES["both-steps"].statistic([0.5, 0.525]))
    assert statistic > 0.05
    assert on_means(statistic, 0.05) == "leaking"
    assert on_means(0.0501, 0.05) == "clean"


def test_of_an_unknown_statistic_nothing_is_said() -> None:
    assert on_means(float("nan"), 0.05) == "undecided"
