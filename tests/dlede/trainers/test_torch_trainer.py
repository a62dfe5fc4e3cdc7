"""What ``torch:`` takes and refuses, and Python functions as trainers."""

import pickle
import sys

import numpy as np
import pytest
from handed import lesson_of, split_on_disk

from refusals import refusal
from visleak.dlede.train import FunctionTrainer, Outcome, TrainingFailed
from visleak.dlede.trainers import load_trainer
from visleak.errors import MissingExtra, UsageError
from visleak.progress import silent


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch", "the trainer torch needs a model: torch:detector or torch:classifier; got 'to"),
        ("torch:detector?size=3", "trainer torch:detector has no option 'size'; its options are"),
        ("torch:detector:x", "trainer torch:detector takes nothing after its name; got 'torch:de"),
        ("torch:detector?side=8", "from 16 to 2,048; got '8'"),
        ("torch:detector?side=²", "must be a whole number from 16 to 2,048; got '²'"),
        ("torch:classifier?width=1e9", "must be a multiple of 16 from 16 to 256; got '1e9'"),
        ("torch:detector?rate=0", "must be a number above 0 and up to 1, such as 0.006; got '0'"),
        ("torch:classifier?rate=nan", "above 0 and up to 1, such as 0.005; got 'nan'"),
        ("torch:detector?side=64&side=64", "option side is given twice"),
    ],
)
def test_wishes_that_cannot_be_are_refused(text, said):
    assert said in refusal(UsageError, load_trainer, text)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="device must be auto, cpu, cuda or cuda:N; got 'gpu'"):
        load_trainer("torch:detector", device="gpu")


def test_options_are_part_of_the_key():
    usual = load_trainer("torch:detector").about()
    assert usual == {
        "model": "detector",
        "version": 1,
        "epochs": 20,
        "side": 160,
        "batch": 8,
        "width": 16,
        "rate": 0.006,
    }
    assert load_trainer("torch:detector?side=64", threads=2).about() == {**usual, "side": 64}
    assert load_trainer("torch:classifier").about()["model"] == "classifier"


@pytest.mark.parametrize("module", ["torch", "pycocotools.coco"])
def test_a_missing_library_names_its_extra(monkeypatch, module):
    class Absent:
        def find_spec(self, name, *_):
            if name == module:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(MissingExtra, match="trainer torch:detector needs an extra: pip install"):
        load_trainer("torch:detector")


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
    assert text in refusal(TrainingFailed, trained, lambda task: returned, tmp_path)


def test_it_says_what_it_was_told_and_travels():
    trainer = FunctionTrainer(constant, "mine", ("accuracy",), ("loss",), {"width": 3})
    assert (trainer.name, trainer.decides, trainer.lower) == ("mine", ("accuracy",), ("loss",))
    assert trainer.about() == {"width": 3}
    again = pickle.loads(pickle.dumps(trainer))
    assert again.about() == {"width": 3}
    assert pickle.loads(pickle.dumps(again.prepare(None, None, silent))).function is constant
