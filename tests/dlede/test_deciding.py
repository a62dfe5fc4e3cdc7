"""Which metrics and steps decide, and what is said of those that are not there."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.dlede.judge.scores import Scores, deciding_metrics, deciding_steps, missing_metrics
from visleak.errors import UsageError


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


def test_without_both_all_metrics_decide() -> None:
    assert deciding_metrics(having("accuracy", "f1")) == ("accuracy", "f1")
    assert deciding_metrics(having("map50_95", "f1")) == ("map50_95", "f1")


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
