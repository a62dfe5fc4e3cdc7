"""The detector, trained for real on a few small images."""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from drawn_objects import drawn, drawn_split, lesson_of, set_of

from visleak.dlede.draw import Draw
from visleak.dlede.train import TrainingFailed, TrainingTask
from visleak.dlede.trainers import load_trainer
from visleak.dlede.trainers.detections import Objects, targets_of
from visleak.dlede.trainers.networks import PreparedNetwork
from visleak.dlede.trainers.torch_networks import Detector, peaks
from visleak.errors import UsageError, VisleakError
from visleak.formats.memory import MemoryOpener
from visleak.progress import silent
from visleak.records import Bytes8, Unreadable

SMALL = "torch:detector?batch=4&rate=0.01"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a split of eight and four images, and a detector that is ready for it."""
    split = drawn_split()
    return split, ready_for(split, tmp_path_factory.mktemp("ready"))


def ready_for(split, folder, text=SMALL):
    made = load_trainer(text).prepare(split, folder, silent)
    assert isinstance(made, PreparedNetwork)
    return made


def trained(ready, task, folder):
    folder.mkdir()
    return ready.train(task, folder)


def test_eight_pictures_are_learnt_by_heart(tmp_path):
    split = drawn_split(8, 4)
    outcome = trained(ready_for(split, tmp_path), lesson_of(split, 4, epochs=40), tmp_path / "run")
    assert outcome.metrics["map50"] > 0.9
    assert outcome.metrics["f1"] > 0.9
    assert outcome.metrics["map50_95"] > 0.4
    assert outcome.images["f1"].shape == (4,)
    assert outcome.about["epochs"] == 40
    assert outcome.about["pictures"] == 8
    log = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert len(log) == 41
    assert "epoch 40 of 40: loss" in log[39]
    assert "map50 " in log[40]


def test_a_seed_gives_the_same_bytes_and_another_does_not(small, tmp_path):
    split, ready = small
    first = trained(ready, lesson_of(split, 2, epochs=3), tmp_path / "1")
    torch.manual_seed(5)
    np.random.default_rng().random()
    sent = pickle.loads(pickle.dumps(ready))
    again = trained(sent, lesson_of(split, 2, epochs=3), tmp_path / "2")
    other = trained(ready, lesson_of(split, 2, epochs=3, seed=1), tmp_path / "3")
    assert first.about == again.about
    assert first.metrics == again.metrics
    assert first.images["f1"].tobytes() == again.images["f1"].tobytes()
    assert first.about["loss"] != other.about["loss"]


def test_a_training_leaves_torch_as_it_was(small, tmp_path):
    split, ready = small
    before = torch.get_rng_state(), torch.get_num_threads()
    trained(ready, lesson_of(split, epochs=1), tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
    assert not torch.are_deterministic_algorithms_enabled()


def test_peaks_read_back_what_is_taught():
    random = np.random.default_rng(4)
    rows, columns = np.meshgrid(np.arange(4), np.arange(4))
    middles = np.stack([columns.ravel(), rows.ravel()], 1) * 24 + random.uniform(8, 16, (16, 2))
    half = random.uniform(2, 12, (16, 2))
    corners = np.concatenate([middles - half, middles + half], 1)
    objects = Objects(random.integers(0, 3, 16), corners, np.zeros(16, np.bool_))
    made = targets_of([objects], 3, (24, 24))
    logits = torch.logit(torch.from_numpy(made.heat) * 0.98 + 0.01)
    boxes = torch.zeros(1, 4, 24, 24)
    for (_, row, column), said in zip(made.places, made.boxes, strict=True):
        boxes[0, :, row, column] = torch.from_numpy(said)
    chances, labels, found = (part[0].numpy() for part in peaks(logits, boxes, 100))
    sure = chances > 0.9
    assert sure.sum() == 16
    assert (np.diff(chances) <= 0).all()
    for label, box in zip(labels[sure], found[sure], strict=True):
        nearest = np.abs(corners - box).max(axis=1).argmin()
        assert np.abs(corners[nearest] - box).max() < 0.5
        assert objects.label[nearest] == label


def test_the_forecast_counts_pictures_and_epochs(small):
    _, ready = small
    assert ready.learning > 0
    assert ready.evaluating > 0
    judging = ready.seconds(0, 1)
    assert judging == pytest.approx(4 * ready.evaluating)
    assert ready.seconds(50, 3) - judging == pytest.approx(150 * ready.learning)
    assert ready.seconds(50, None) == ready.seconds(50, Detector.epochs)


@dataclass(frozen=True)
class HolesOpener:
    """Images of which some cannot be read."""

    pixels: Bytes8
    holes: tuple[int, ...]

    def read(self, positions):
        for position in positions:
            hole = position in self.holes
            yield Unreadable("truncated", "cut off") if hole else self.pixels[position]


def with_holes(train, test):
    split = drawn_split(6, 4)
    opened = [
        replace(images, opener=HolesOpener(drawn(count, seed)[0], holes))
        for images, count, seed, holes in ((split.train, 6, 1, train), (split.test, 4, 2, test))
    ]
    return replace(split, train=opened[0], test=opened[1])


def test_unreadable_pictures_are_named_and_nothing_is_found_in_them(tmp_path):
    split = with_holes((1,), (0, 3))
    ready = ready_for(split, tmp_path)
    (note,) = ready.notes
    assert "3 images could not be read, such as 'train-1' of set 'train' (truncated" in note
    outcome = trained(ready, lesson_of(split, 2, epochs=2), tmp_path / "run")
    assert outcome.about["pictures"] == 4  # six, without a training image and a leaked one
    assert outcome.about["unreadable"] == 3
    assert outcome.images["f1"][[0, 3]].tolist() == [0, 0]
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "unreadable: 'test-3' of set 'test' (truncated: cut off)" in log


def test_nothing_readable_is_an_error(tmp_path):
    said = "set 'test': none of its 4 images can be read"
    with pytest.raises(VisleakError, match=said):
        ready_for(with_holes((), (0, 1, 2, 3)), tmp_path)


def test_a_lesson_of_unreadable_pictures_fails(tmp_path):
    split = with_holes((1,), ())
    ready = ready_for(split, tmp_path)
    task = TrainingTask(split, Draw(np.array([1]), np.empty(0, np.int64)), 0, 1, 0, 1)
    with pytest.raises(TrainingFailed, match="none of its training images can be learned from"):
        trained(ready, task, tmp_path / "run")


def test_a_rate_that_is_too_high_is_a_failed_training(tmp_path):
    split = drawn_split(4, 2)
    ready = ready_for(split, tmp_path)
    broken = replace(ready, options=replace(ready.options, rate=1e30))
    with pytest.raises(TrainingFailed, match=r"diverged in epoch \d .* take a smaller"):
        trained(broken, lesson_of(split, epochs=3), tmp_path / "run")


def test_sets_without_boxes_are_refused(tmp_path):
    split = drawn_split(4, 2)
    with pytest.raises(UsageError, match="needs annotated boxes, and set 'test' has none"):
        ready_for(replace(split, test_boxes=None), tmp_path)
    none = drawn(4, 1)[1].taken(np.empty(0, np.int64))
    with pytest.raises(VisleakError, match="set 'train' has no annotated object of any class"):
        ready_for(replace(split, train_boxes=replace(none, images=4)), tmp_path)


def test_classes_of_one_set_only_are_said():
    split = drawn_split(4, 2)
    both = drawn(2, 2)[1]
    bars = replace(both, label=np.ones_like(both.label))
    assert list(Detector().notes(replace(split, test_boxes=bars))) == [
        "1 of 2 classes have no objects in the test set, and count in no metric, such as 'square'"
    ]


def test_embeddings_are_refused(tmp_path):
    split = drawn_split(4, 2)
    blind = set_of("train", MemoryOpener(drawn(4, 1)[0]), 4, has_pixels=False)
    with pytest.raises(UsageError, match="set 'train' has embeddings without images"):
        ready_for(replace(split, train=blind), tmp_path)
