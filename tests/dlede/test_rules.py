"""Equation 1, the three rules, and which metrics and steps decide."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.judge import RULES, excess, increase, on_means
from visleak.dlede.judge.scores import Scores, deciding_metrics, deciding_steps, missing_metrics
from visleak.errors import UsageError

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


def relative_increase(means: object, lower: bool = False) -> np.ndarray:
    """Return the increase of each step relative to the step before, along the last axis."""
    array = np.asarray(means, np.float64)
    return increase(array[..., :-1], array[..., 1:], lower)


def test_of_a_metric_of_which_less_is_better_a_fall_is_an_increase() -> None:
    assert np.allclose(relative_increase([2.0, 1.0, 1.5], lower=True), [0.5, -0.5])


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


def having(*metrics: str, steps: tuple[int, ...] = (0, 10, 20, 30)) -> Scores:
    return Scores(metrics, steps, (1,), np.ones((len(metrics), 1, len(steps))))


@pytest.mark.parametrize(
    "name", ["map50", "mAP50", "mAP@0.5", "mAP@.5", "mAP_0.5", "AP50", "metrics/mAP50(B)", "mAP"]
)
@pytest.mark.parametrize("f1", ["f1", "F1", "F1-score", "f1_score"])
def test_map_and_f1_decide_whatever_they_are_called(name: str, f1: str) -> None:
    assert deciding_metrics(having("precision", f1, name)) == (name, f1)


def test_a_plain_map_does_not_decide_beside_the_map_at_half() -> None:
    # of COCO's metrics "map" is the mean over 0.5:0.95
    assert deciding_metrics(having("map", "f1", "map_50")) == ("map_50", "f1")
    assert deciding_metrics(having("mAP50-95", "f1", "mAP50")) == ("mAP50", "f1")


def test_metrics_are_asked_for_in_any_case_and_by_alias() -> None:
    there = having("mAP_0.5", "mIoU", "miou")
    assert deciding_metrics(there, ["map50"]) == ("mAP_0.5",)
    assert deciding_metrics(there, ["miou", "mIoU"]) == ("miou", "mIoU")
    assert deciding_metrics(there, ["MIOU"]) == ("mIoU",)


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (("f1",), "map50 is missing"),
        (("precision", "recall", "f1", "map50_95"), "map50 is missing"),
        (("map50", "recall"), "f1 is missing"),
        (("mAP@0.5", "F1-score"), ""),
        (("accuracy", "f1"), ""),
        (("loss",), ""),
    ],
)
def test_one_metric_of_the_paper_without_the_other_is_told(
    there: tuple[str, ...], missing: str
) -> None:
    line = missing_metrics(having(*there), ())
    assert line.startswith(missing)
    assert bool(line) == bool(missing)
    assert missing_metrics(having(*there), there[:1]) == ""


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (["recall"], "there is no metric 'recall'; the training runs have map50, f1"),
        (["f1", "F1"], "the metric 'f1' is requested twice; name it once"),
    ],
)
def test_metrics_that_cannot_decide(asked: list[str], text: str) -> None:
    with pytest.raises(UsageError) as error:
        deciding_metrics(having("map50", "f1"), asked)
    assert str(error.value) == text


def test_the_first_three_steps_decide() -> None:
    assert deciding_steps(having("f1")) == (0, 10, 20)
    assert deciding_steps(having("f1", steps=(0, 50))) == (0, 50)
    assert deciding_steps(having("f1"), (0, 20, 30)) == (0, 20, 30)


@pytest.mark.parametrize("asked", [(), (0,), (10, 20), (0, 15), (0, 20, 10), (0, 10, 10)])
def test_steps_that_cannot_decide(asked: tuple[int, ...]) -> None:
    shown = ", ".join(map(str, asked)) or "none"
    with pytest.raises(UsageError) as error:
        deciding_steps(having("f1"), asked)
    assert str(error.value) == (
        "a verdict needs two deciding steps or more, ascending and beginning with 0 %; there are"
        f" 0, 10, 20, 30, got {shown}"
    )
