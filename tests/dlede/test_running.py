"""Trainings that fail, die, hang, are killed and go on: nothing is lost and nothing is silent."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refusals import refusal
from toy_splits import Rehearsed, Resident, split_of
from visleak.dlede.settings import DecisionSettings, Execution, Plan
from visleak.dlede.train import FunctionTrainer, Outcome, RunFiles, TrainingFailed, read_run
from visleak.dlede.train.curves import Curve, train_curve
from visleak.dlede.train.execution import SharedContext, carry_out_remotely
from visleak.errors import VisleakError
from visleak.pipeline.context import InlineValue
from visleak.progress import silent

PLAN = Plan((0, 10, 20), repetitions=2)


def trained(course, trainer, jobs=1, limit=None):
    execution = Execution(jobs=jobs, limit=limit)
    return train_curve(course, trainer, DecisionSettings(), execution, partial=True)


def course_of(folder, trainer, plan=PLAN):
    return Curve.of(split_of(60, 40), plan, trainer, folder / "runs")


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def test_a_course_trains_every_step_of_every_chain_once(tmp_path):
    trainer = Resident(told=tmp_path / "told")
    result = trained(course_of(tmp_path, trainer), trainer)
    # the seed is the repetition's number at every step: chains are paired
    assert lines(tmp_path / "told") == [
        f"({step}, {repetition}) {repetition} None" for repetition in (1, 2) for step in (0, 10, 20)
    ]
    assert not result.failed
    # 10 % leaked images score 1, the others .5 and the noise of the seed: a closed form
    for row, repetition in enumerate((1, 2)):
        noise = np.random.default_rng(repetition).normal(0, 0.001)
        want = [0.5 + noise, 0.9 * (0.5 + noise) + 0.1, 0.8 * (0.5 + noise) + 0.2]
        assert result.scores.of("accuracy")[row] == pytest.approx(want)


def test_what_is_done_is_not_done_again_and_more_can_be_asked_for(tmp_path):
    trainer = Resident(told=tmp_path / "told")
    first = trained(course_of(tmp_path, trainer), trainer)
    done = len(lines(tmp_path / "told"))
    again = trained(course_of(tmp_path, trainer), trainer)
    assert len(lines(tmp_path / "told")) == done
    assert np.array_equal(first.scores.values, again.scores.values)
    more = course_of(tmp_path, trainer, Plan((0, 10, 20, 30), repetitions=3))
    trained(more, trainer)
    assert len(lines(tmp_path / "told")) == done + 2 + 4
    # a trainer that was changed trains anew
    other = replace(trainer, base=0.6)
    trained(course_of(tmp_path, other), other)
    assert len(lines(tmp_path / "told")) == done + 6 + done


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_training_that_fails_is_tried_once_more(tmp_path, jobs):
    trainer = Rehearsed(told=tmp_path / "told", broken={(10, 1): 1, (20, 2): 2})
    course = course_of(tmp_path, trainer)
    result = trained(course, trainer, jobs)
    again = read_run(RunFiles(course.folder, 10, 1))
    assert again in result.runs
    assert again.attempts == 2
    assert len(result.runs) == 5
    (failure,) = result.failed
    assert (failure.step, failure.repetition) == (20, 2)
    assert failure.reason == "RuntimeError: attempt 2 broke"
    assert "attempt 2 broke" in Path(failure.log).read_text()
    assert not RunFiles(course.folder, 20, 2).result.exists()
    assert result.scores.complete((0, 10, 20)).tolist() == [True, False]


def test_the_number_of_jobs_changes_nothing(tmp_path):
    trainer = Rehearsed()
    results = [trained(course_of(tmp_path / str(n), trainer), trainer, n) for n in (1, 3)]
    one, other = ([replace(run, seconds=0) for run in result.runs] for result in results)
    assert one == other


def test_nothing_goes_on_where_everything_fails(tmp_path):
    broken = {(step, repetition): 9 for step in (0, 10, 20) for repetition in (1, 2)}
    trainer = Resident(told=tmp_path / "told", broken=broken)
    with pytest.raises(VisleakError, match=r"the first 3 .* failed, each twice; .* attempt 2"):
        trained(course_of(tmp_path, trainer), trainer)
    # three training runs, twice each; all six would be twelve
    assert len(lines(tmp_path / "told")) == 6


class Dying(Rehearsed):
    """Ends its process at one training, or hangs there."""

    def train(self, task, folder):
        if (task.step, task.repetition) == (10, 1):
            if self.lasts:
                time.sleep(60)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train(task, folder)


# a module that a worker process can import
Dying.__module__ = "test_running"


@pytest.mark.parametrize(
    ("lasts", "limit", "reason"),
    [
        (0.0, None, "its process was ended by SIGKILL, most likely for lack of memory"),
        (1.0, 5.0, "it took longer than 5 seconds"),
    ],
)
def test_a_training_that_dies_or_hangs_takes_no_other_with_it(tmp_path, lasts, limit, reason):
    trainer = Dying(lasts=lasts)
    plan = replace(PLAN, repetitions=1)
    result = trained(course_of(tmp_path, trainer, plan), trainer, 2, limit)
    assert [(failure.step, failure.reason) for failure in result.failed] == [(10, reason)]
    assert [run.step for run in result.runs] == [0, 20]


def test_a_trainer_that_gives_too_few_values_fails_in_words(tmp_path):
    class Short(Resident):
        def train(self, task, folder):
            return Outcome({"accuracy": 0.5}, {"accuracy": np.zeros(3)})

    with pytest.raises(VisleakError, match=r"returned 3 values of 'accuracy' for 40 images"):
        trained(course_of(tmp_path, Short()), Short())


def test_an_object_that_cannot_travel_needs_one_job(tmp_path):
    trainer = Resident()
    with pytest.raises(VisleakError, match=r"cannot be sent to worker processes .* use jobs=1"):
        trained(course_of(tmp_path, trainer), trainer, 2)
    assert len(trained(course_of(tmp_path, trainer), trainer, 1).runs) == 6


def test_a_damaged_file_is_named(tmp_path):
    trainer = Resident()
    course = course_of(tmp_path, trainer)
    trained(course, trainer)
    path = RunFiles(course.folder, 10, 1).result
    path.write_text(path.read_text().replace('"accuracy": ', '"accuracy": "x",\n"y": '))
    with pytest.raises(VisleakError, match=r"repetition-01.json is damaged .*delete it to train"):
        trained(course, trainer)


def started(script, folder):
    """Start a script in which ``folder`` and what this module has are known."""
    folder.mkdir(exist_ok=True)
    body = textwrap.indent(textwrap.dedent(script), "    ")
    path = folder / "script.py"
    path.write_text(
        "from pathlib import Path\n"
        "from test_running import Rehearsed, course_of, trained\n"
        f"if __name__ == '__main__':\n    folder = Path({str(folder)!r})\n{body}"
    )
    return subprocess.Popen([sys.executable, str(path)], stderr=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_loses_only_what_was_in_progress(tmp_path, sent, monkeypatch):
    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", f"{here}:{here.parent}", prepend=os.pathsep)
    script = """
        trainer = Rehearsed(told=folder / "told", lasts=0.4)
        trained(course_of(folder, trainer), trainer, 2)
        """
    process = started(script, tmp_path)
    results = tmp_path / "runs"
    deadline = time.monotonic() + 60
    while len(list(results.glob("*/*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(sent)
    process.communicate(timeout=30)
    time.sleep(1.5)  # workers that outlived the run would go on writing
    done, begun = len(list(results.glob("*/*.json"))), len(lines(tmp_path / "told"))
    assert 2 <= done < 6
    assert begun - done <= 2
    trainer = Rehearsed(told=tmp_path / "told", lasts=0.4)
    result = trained(course_of(tmp_path, trainer), trainer)
    assert len(result.runs) == 6
    assert len(lines(tmp_path / "told")) == begun + 6 - done
    assert not list(results.glob("*/*.work"))


def test_a_node_that_does_not_see_the_folder_says_so(tmp_path):
    course = course_of(tmp_path / "elsewhere", Rehearsed())
    sent = (InlineValue(SharedContext(Rehearsed(), course.split)), course.jobs[0])
    with pytest.raises(VisleakError, match=r"has no access to .*elsewhere/runs; choose"):
        carry_out_remotely(sent)


def returned_by(function):
    return FunctionTrainer(function, "mine").prepare(None, None, silent).train(None, None)


def test_a_function_gives_metrics_or_an_outcome():
    trainer = FunctionTrainer(lines, "mine", about={"width": 3})
    assert trainer.about() == {"width": 3}
    assert pickle.loads(pickle.dumps(trainer)).function is lines
    found = returned_by(lambda task: {"accuracy": np.float32(0.5), "images": 6})
    assert found.metrics == {"accuracy": 0.5, "images": 6.0}
    made = Outcome({"accuracy": 1.0}, {"accuracy": np.ones(4)})
    assert returned_by(lambda task: made) is made


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, 'returned NoneType; it must return metrics, such as {"accuracy": 0.9}, or an Out'),
        ({"accuracy": "0.5"}, "returned str for 'accuracy'; metrics must be numbers"),
        ({"accuracy": True}, "returned bool for 'accuracy'; metrics must be numbers"),
        ({"accuracy": np.ones(2)}, "returned no number for 'accuracy': "),
        ({"accuracy": 10**400}, "returned no number for 'accuracy': "),
        ({1: 0.5}, "named a metric 1; names must be strings"),
        ({"accuracy": float("nan")}, "accuracy is not finite"),
        ({"f1": 48.6}, "f1 must be a share from 0 to 1, got 48.6; divide percent by 100"),
        ({}, "there are no metrics"),
    ],
)
def test_what_is_no_result_is_told(returned, text):
    assert text in refusal(TrainingFailed, returned_by, lambda task: returned)
