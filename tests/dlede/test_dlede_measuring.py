"""The whole of D-LeDe, with trainers whose answers are known in closed form."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from refusals import refusal
from toy_splits import Resident, split_of
from visleak.dlede.document.text import headline, statements
from visleak.dlede.draw import Split
from visleak.dlede.protocol import forecast, judge_scores, run
from visleak.dlede.results import AuditSummary
from visleak.dlede.settings import ControlSettings, DecisionSettings, Execution, Plan
from visleak.dlede.train import Outcome, TrainingTask
from visleak.errors import UsageError, VisleakError
from visleak.formats.files import chosen
from visleak.records import Opener, Unreadable

#: Nothing is hashed: the images are blank.
BARE = ControlSettings(hashes=False)
CALIBRATED = ControlSettings(calibrate=3, hashes=False)
LONGER = ControlSettings(convergence=5, hashes=False)
PLAN = Plan(repetitions=4)


def measured(trainer, folder, split=None, **options):
    """Run a small split without hashes, four repetitions of the first three steps."""
    usual = {"plan": PLAN, "controls": BARE}
    return run(split or split_of(60, 40), trainer, folder, **usual | options)


def text(result):
    return "\n".join((headline(result), *statements(result)))


@dataclass(frozen=True)
class Scored(Resident):
    score: Callable[[TrainingTask], dict[str, float]] = lambda task: {}

    def train(self, task, folder):
        return Outcome(self.score(task))


@dataclass(frozen=True)
class Learner(Resident):
    """Right for test images whose group is in training, else as often as the base says."""

    def train(self, task, folder):
        train, test = (set(images.groups.to_pylist()) for images in (task.train, task.test))
        noise = np.random.default_rng(task.seed).normal(0, 0.002)
        known = np.isin(task.test.groups.to_pylist(), sorted(train & test))
        values = np.where(known, 1.0, min(1.0, self.base + noise))
        return Outcome({"accuracy": float(values.mean())}, {"accuracy": values})


def recordings(test_groups, groups=20, each=5):
    """Return a split of recordings; those named are the test set, or frames of all if none is."""
    of = np.repeat(np.arange(groups), each)
    tested = np.isin(of, test_groups) if test_groups else np.arange(len(of)) % each == 0
    names = pa.array([f"recording {number}" for number in of])
    images = replace(split_of(len(of), 1).train, groups=names)
    sides = (("train", ~tested), ("test", tested))
    return Split(*(chosen(images, np.flatnonzero(rows), name) for name, rows in sides))


def test_a_clean_split_rises_as_expected(tmp_path):
    result = measured(Resident(), tmp_path)
    assert result.judgement.verdict == "clean"
    (metric,) = result.judgement.metrics
    # .5 -> .55 -> .60: 10 % and 9.09 %, but for a noise of a thousandth
    assert metric.steps[1].increase.value == pytest.approx(0.1, abs=0.002)
    assert metric.steps[2].increase.value == pytest.approx(1 / 11, abs=0.002)
    assert {other.rule for other in result.others} == {"any-step", "cumulative"}
    # scores that were made elsewhere are judged alike
    again = judge_scores(result.scores, source="scores.csv")
    assert (again.judgement, again.others) == (result.judgement, result.others)


def test_what_starts_high_does_not_rise_leak_or_not(tmp_path):
    judged = measured(Resident(base=0.95), tmp_path).judgement
    assert (judged.on_means, judged.verdict) == ("leaking", "undecided")
    assert judged.reason_code == "score-too-high"
    rise = judged.metrics[0].steps[1].increase.value
    assert rise == pytest.approx(0.005 / 0.95, abs=1e-3)


@pytest.mark.parametrize(("base", "said"), [(0.52, "model-did-not-learn"), (0.62, "")])
def test_a_classifier_that_guesses_has_not_learned(base, said, tmp_path):
    def guess(task):
        noise = np.random.default_rng([task.seed, task.step]).normal(0, 0.001, 2)
        return {"accuracy": base + noise[0], "f1": base + noise[1]}

    judged = measured(Scored(score=guess), tmp_path, split_of(60, 40, labels=2)).judgement
    assert (judged.verdict, judged.reason_code) == ("undecided" if said else "leaking", said)


def test_what_leaked_images_gain_is_told_from_what_the_others_gain(tmp_path):
    result = measured(Resident(), tmp_path)
    ten, twenty = result.memory
    assert (ten.step, ten.images, twenty.images) == (10, 4.0, 8.0)
    # a leaked image rises from .5 and the noise of its seed to 1; the others stay where they were
    rises = [0.5 - np.random.default_rng(seed).normal(0, 0.001) for seed in range(1, 5)]
    assert ten.leaked.value == pytest.approx(np.mean(rises))
    assert ten.leaked.low < np.mean(rises) < ten.leaked.high
    assert ten.others.value == pytest.approx(0.0, abs=1e-12)


def test_the_threshold_is_calibrated_on_clean_splits_of_the_same_images(tmp_path):
    # one frame in five of every recording is tested: all recordings are in training
    given = Learner(), tmp_path, recordings([])
    said = []
    result = measured(*given, controls=CALIBRATED, execution=Execution(notify=said.append))
    found, limit = result.calibration, result.detection
    assert found.groups == 20
    assert (limit.source, limit.repetitions, limit.up_to) == ("calibration", 4, 1.0)
    # a clean split rises by a quarter of .5 where a tenth leaks: hardly any leak hides that
    assert 0.0 < limit.share < 0.3
    # clean test sets are four whole recordings of five frames; the rest trains, no more than before
    assert [dict(each) for each in found.splits] == [
        {"test_images": 20, "test_groups": 4, "training_images": 80, "training_groups": 16}
    ] * 3
    # two of twenty test images leak, of one or two of four recordings: all their frames are known
    # then, and .5 rises to .625 or .75: by a quarter at least, less what noise may do
    assert 0.2 < found.threshold < 0.5
    assert result.judgement.threshold == found.threshold
    assert result.judgement.verdict == "leaking"
    assert [judgement.verdict for judgement in found.judgements] == ["clean"] * 3
    assert said[0].startswith("clean split 1 of 3: 20 test images of 4 groups, 80 training")
    # a threshold of one's own comes before the calibrated one
    own = measured(*given, controls=CALIBRATED, decision=DecisionSettings(threshold=0.07))
    assert own.judgement.threshold == 0.07


@pytest.mark.parametrize(
    ("sizes", "count", "said"),
    [
        ((60, 40, 0, 0), 3, r"groups of 100 of 100 images .* give --group /REGEX/"),
        ((60, 40, 0, 1), 3, "--calibrate divides the images by whole groups, and all"),
        ((60, 40, 0, 9), 2, "--calibrate needs 3 clean splits or more"),
        ((60, 30, 0, 3), 4, "--calibrate 4: only 3 different clean splits"),
    ],
)
def test_calibration_needs_groups(sizes, count, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        run(split_of(*sizes), Resident(), tmp_path, controls=ControlSettings(calibrate=count))
    assert not list(tmp_path.iterdir())


def test_clean_splits_that_do_not_rise_tell_nothing(tmp_path):
    # right from the start: nothing rises, neither here nor on clean splits
    split = recordings([0, 5, 10, 15])
    result = measured(Learner(base=2.0), tmp_path, split, controls=CALIBRATED)
    assert not result.calibration.threshold > 0.01
    assert result.judgement.verdict == "undecided"
    assert result.judgement.metrics[0].verdict == "undecided"
    assert result.judgement.threshold == 0.05
    assert "rise too little, or too unevenly, to distinguish a split" in text(result)


def test_a_metric_that_one_training_lacks_is_not_taken_from_the_others(tmp_path):
    def forget(task):
        found = {"map50": 0.5 + task.step / 100, "f1": 0.5}
        if (task.step, task.repetition) == (10, 3) and not (tmp_path / "mended").exists():
            del found["map50"]
        return found

    trainer = Scored(score=forget)
    result = measured(trainer, tmp_path)
    assert result.scores.metrics == ("map50", "f1")
    (failure,) = result.failed
    assert (failure.step, failure.repetition) == (10, 3)
    assert failure.reason == "it has no map50, which the others have"
    assert (result.judgement.repetitions, result.judgement.left_out) == (3, 1)
    (tmp_path / "mended").touch()
    again = measured(trainer, tmp_path)
    assert (again.failed, again.judgement.repetitions) == ((), 4)


def test_f1_never_decides_alone_in_silence(tmp_path):
    def sparse(task):
        some = {"map50": 0.5} if task.repetition == 4 else {}
        return {"f1": 0.5 + task.step / 100 + task.repetition / 1000} | some

    said = []
    trainer, works = Scored(decides=("map50", "f1"), score=sparse), Execution(notify=said.append)
    result = measured(trainer, tmp_path, execution=works)
    assert [each.metric for each in result.judgement.metrics] == ["f1"]
    assert [line for line in said if line.startswith("map50 is missing")]
    alone, partly = result.notes
    assert alone.startswith("map50 is missing")
    assert partly.startswith("map50 is excluded: only 3 of 12")


def test_what_fails_besides_the_curve_is_said_and_takes_nothing_from_it(tmp_path):
    def tired(task):
        found = dict.fromkeys(("map50", "f1"), 0.5 + task.step / 100 + task.repetition / 1000)
        return {} if task.epochs else found

    result = measured(Scored(score=tired), tmp_path, controls=LONGER)
    assert result.judgement.verdict == "clean"
    assert result.convergence is None
    (note,) = result.notes
    assert "convergence check has no result: the first 2 training runs failed, each twice" in note


def test_longer_training_is_compared_with_the_usual_one(tmp_path):
    slow = Scored(score=lambda task: {"map50": 0.5 + (task.epochs or 3) / 1000 + task.step / 100})
    result = measured(slow, tmp_path, controls=LONGER)
    assert result.convergence.epochs == (3, 15)
    rows = [(row.step, row.usual, row.longer) for row in result.convergence.rows]
    assert rows == [
        (0, pytest.approx(0.503), pytest.approx(0.515)),
        (20, pytest.approx(0.703), pytest.approx(0.715)),
    ]


def test_convergence_needs_to_know_what_is_usual(tmp_path):
    class Silent(Resident):
        def about(self):
            return {}

    with pytest.raises(UsageError, match="number of epochs, which is not known: give"):
        measured(Silent(), tmp_path, controls=LONGER)


def test_a_folder_of_something_else_is_not_taken(tmp_path):
    measured(Resident(), tmp_path)
    with pytest.raises(UsageError, match="holds training runs with another trainer"):
        measured(Resident(base=0.7), tmp_path)
    other = split_of(61, 40)
    with pytest.raises(UsageError, match="holds training runs with another split and seed; choose"):
        measured(Resident(), tmp_path, other, plan=replace(PLAN, seed=3))
    assert len(list((tmp_path / "runs").rglob("*.json"))) == 12
    measured(Resident(), tmp_path, other, plan=replace(PLAN, repetitions=1), force=True)
    assert len(list((tmp_path / "runs").rglob("*.json"))) == 3


def test_a_trainer_may_tell_its_cost_itself(tmp_path):
    class Priced(Resident):
        def seconds(self, images, epochs):
            return images * (epochs or 1) / 10

    found = forecast(split_of(60, 40), Priced(), tmp_path, plan=replace(PLAN, epochs=2))
    assert (found.seconds_per_run, found.seconds) == (12.0, 144.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DecisionSettings(threshold=math.nan), "threshold must be a share such as 0.05;"),
        (lambda: Plan((10, 20)), "beginning with 0, such as 0,10,20; got 10,20"),
        (lambda: Plan((0, 20, 10)), "ascending"),
        (lambda: Plan((0, 110)), "from 0 to 100"),
    ],
)
def test_wrong_settings_are_refused(make, said):
    assert said in refusal(UsageError, make)


def test_a_metric_that_is_not_there_is_refused_after_one_training(tmp_path):
    trainer = Resident(told=tmp_path / "told")
    with pytest.raises(UsageError, match="there is no metric 'map50'"):
        run(split_of(60, 40), trainer, tmp_path, decision=DecisionSettings(metrics=["map50"]))
    assert len((tmp_path / "told").read_text().splitlines()) <= 2


def test_a_metric_called_loss_is_better_when_it_falls(tmp_path):
    def trained(task):
        return {"val_loss": 0.5 - task.step / 100 + task.repetition / 1000}

    falling = Scored(score=trained)
    result = measured(falling, tmp_path / "a")
    assert result.scores.lower == {"val_loss"}
    assert result.judgement.verdict == "clean"
    with pytest.raises(UsageError, match="--lower-is-better: there is no metric 'nope'"):
        measured(falling, tmp_path / "b", decision=DecisionSettings(lower=["nope"]))


def test_the_audit_is_asked_for_when_all_is_checked_and_nothing_trained(tmp_path):
    trainer = Resident(told=tmp_path / "told")

    def audit(split):
        assert not (tmp_path / "told").exists()
        return AuditSummary("audit", "3 of 40")

    with pytest.raises(UsageError, match="two steps above 0"):
        measured(trainer, tmp_path, plan=Plan((0, 10)), audit=audit)
    found = measured(trainer, tmp_path, audit=audit)
    assert found.audit == AuditSummary("audit", "3 of 40")


def read_all(task):
    list(task.train.opener.read(range(len(task.train))))
    return {"map50": 0.5, "f1": 0.5}


@dataclass(frozen=True)
class Turning:
    """Reads other content, or none, from the n-th time on."""

    opener: Opener
    counted: Path
    times: int
    gone: bool

    def read(self, positions):
        for position, stored in zip(positions, self.opener.read(positions), strict=True):
            if position == 1:
                with self.counted.open("a") as file:
                    file.write(".")
            late = position == 1 and self.counted.stat().st_size > self.times
            other = Unreadable("missing") if self.gone else np.ones((8, 8, 3), np.uint8)
            yield other if late else stored


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("times", [2, 3])
def test_all_models_are_trained_on_the_images_that_were_there_first(tmp_path, times, gone):
    split = split_of(60, 40)
    turning = Turning(split.train.opener, tmp_path / "read", times, gone)
    split = replace(split, train=replace(split.train, opener=turning))
    with pytest.raises(VisleakError, match="of set 'train' is not what it was"):
        measured(Scored(score=read_all), tmp_path / "out", split)


@pytest.mark.parametrize(
    ("copies", "trained", "few"), [(0, True, ""), (1, True, "too few to show"), (2, False, "")]
)
def test_copies_of_five_percent_prove_a_leak(copies, trained, few, tmp_path):
    trainer = Resident(told=tmp_path / "told")
    audit = AuditSummary("a", "some of 40", copies, 40)
    found = measured(trainer, tmp_path, audit=audit)
    assert (tmp_path / "told").exists() == trained
    assert found.proof == ("" if trained else "some of 40")
    assert found.judgement.verdict == ("clean" if trained else "leaking")
    told = text(found)
    assert ("copies of 1 of 40 test images" in told) == (copies == 1)
    assert few in told
    allowed = ControlSettings(hashes=False, allow_proved_leak=True)
    found = measured(trainer, tmp_path, controls=allowed, audit=audit)
    assert found.judgement.verdict == "clean"
    assert ("but copies of" in text(found)) == bool(copies)


@pytest.mark.parametrize(("shared", "trained"), [(0, True), (1, True), (2, False)])
def test_files_on_both_sides_are_seen_without_an_audit(shared, trained, tmp_path):
    made = split_of(60, 40)
    files = [f"{tmp_path}/{row}.png" for row in range(100 - shared)]
    for file in files:
        Path(file).write_bytes(b"")
    train, test = pa.array(files[:60]), pa.array(files[60 - shared :])
    split = Split(replace(made.train, locators=train), replace(made.test, locators=test))
    found = measured(Resident(), tmp_path / "out", split)
    assert bool(found.proof) == (not trained)
    assert found.judgement.verdict == ("clean" if trained else "leaking")
    assert (f"{shared} of 40 test images" in text(found)) == bool(shared)
