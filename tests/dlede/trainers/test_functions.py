"""A Python function as trainer."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from handed import lesson_of, split_on_disk

from visleak.dlede.train.trainer import FunctionTrainer, Outcome, TrainingFailed
from visleak.pipeline.context import silent


def constant(task):
    return {"accuracy": np.float32(0.5), "images": len(task.train)}


def trained(function, tmp_path):
    split = split_on_disk(tmp_path)
    ready = FunctionTrainer(function, "mine").prepare(split, tmp_path, silent)
    return ready.train(lesson_of(split), tmp_path)


def test_metrics_become_an_outcome(tmp_path):
    assert trained(constant, tmp_path).metrics == {"accuracy": 0.5, "images": 6.0}


def test_an_outcome_is_passed_on(tmp_path):
    made = Outcome({"accuracy": 1.0}, {"accuracy": np.ones(4)})
    assert trained(lambda task: made, tmp_path) is made


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, 'returned NoneType; it must return metrics, such as {"accuracy": 0.9}, or an Out'),
        (0.5, "returned float; it must return metrics"),
        ({"accuracy": "0.5"}, "returned str for 'accuracy'; metrics must be numbers"),
        ({"accuracy": True}, "returned bool for 'accuracy'; metrics must be numbers"),
        ({"accuracy": None}, "returned NoneType for 'accuracy'; metrics must be numbers"),
        ({"accuracy": np.ones(2)}, "returned no number for 'accuracy': "),
        ({"accuracy": 10**400}, "returned no number for 'accuracy': "),
        ({1: 0.5}, "named a metric 1; names must be strings"),
        ({"accuracy": float("nan")}, "accuracy is not finite"),
        ({}, "there are no metrics"),
    ],
)
def test_what_is_no_result_is_told(tmp_path, returned, text):
    with pytest.raises(TrainingFailed) as caught:
        trained(lambda task: returned, tmp_path)
    assert text in str(caught.value)


def test_it_says_what_it_was_told_and_travels():
    trainer = FunctionTrainer(constant, "mine", ("accuracy",), ("loss",), {"width": 3})
    assert (trainer.name, trainer.decides, trainer.lower) == ("mine", ("accuracy",), ("loss",))
    assert trainer.about() == {"width": 3}
    again = pickle.loads(pickle.dumps(trainer))
    assert again.about() == {"width": 3}
    assert pickle.loads(pickle.dumps(again.prepare(None, None, silent))).function is constant
