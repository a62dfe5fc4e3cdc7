"""The networks of torch: boxes over images, the detector and the classifier, trained for real."""

import pickle
import sys
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from handed import lesson_of
from sklearn.metrics import accuracy_score, f1_score

from refusals import refusal
from visleak.dlede.draw import Draw, Split
from visleak.dlede.train import TrainingFailed, TrainingTask
from visleak.dlede.trainers import label_metrics, load_trainer
from visleak.dlede.trainers.detections import Objects, targets_of
from visleak.dlede.trainers.networks import GREY, decode_images
from visleak.dlede.trainers.torch_networks import (
    LEFT,
    Augmentation,
    Detector,
    in_pixels,
    on_canvas,
    peaks,
    to_originals,
)
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.formats import Boxes
from visleak.formats.memory import MemoryOpener
from visleak.progress import silent
from visleak.records import Bytes8, ImageSet, Unreadable

HEIGHT, WIDTH = 48, 64
DETECTOR = "torch:detector?batch=4&rate=0.01"
CLASSIFIER = "torch:classifier?batch=4"


def drawn(count, seed):
    """Return images (count, 48, 64, 3) and their objects: bright squares and dark bars."""
    random = np.random.default_rng(seed)
    pixels = random.integers(90, 140, (count, HEIGHT, WIDTH, 3)).astype(np.uint8)
    image, label = np.divmod(np.arange(2 * count), 2)
    corners = np.zeros((2 * count, 4))
    for number, kind, box in zip(image, label, corners, strict=True):
        wide, tall = ((14, 14), (24, 8))[kind]
        left = int(random.integers(0, WIDTH - wide))
        top = int(random.integers(0, 24 - tall)) + 24 * kind
        pixels[number, top : top + tall, left : left + wide] = (235, 20)[kind]
        box[:] = left, top, left + wide, top + tall
    return pixels, Boxes(("square", "bar"), image, label, corners, image < 0, count, False)


def set_of(name, opener, count, **more):
    ids = pa.array([f"{name}-{number}" for number in range(count)])
    return ImageSet(name, ids, ids, opener, **more)


def drawn_split(train=8, test=4):
    pixels, boxes = drawn(train, 1)
    others, there = drawn(test, 2)
    sets = set_of("train", MemoryOpener(pixels), train), set_of("test", MemoryOpener(others), test)
    return Split(*sets, boxes, there)


def split_of_shapes():
    """Return images of several shapes: white, with a black left half."""
    made = [np.full((*shape, 3), 255, np.uint8) for shape in ((20, 64), (64, 20), (12, 30))]
    for pixels in made:
        pixels[:, : pixels.shape[1] // 2] = 0
    train, test = MemoryOpener(made[:2]), MemoryOpener(made[2:])
    return Split(set_of("train", train, 2), set_of("test", test, 1))


def test_pictures_keep_their_shape_and_are_not_enlarged(tmp_path):
    pictures = decode_images(split_of_shapes(), 32, 16, tmp_path, silent)
    assert pictures.sizes.tolist() == [[10, 32], [32, 10], [12, 30]]
    assert pictures.originals.tolist() == [[20, 64], [64, 20], [12, 30]]
    assert pictures.canvas == (32, 32)
    assert pictures.rows(Draw(np.array([1]), np.array([0]))).tolist() == [1, 2]
    shown = pictures.on_canvas(pictures.mapped(), np.array([0, 2]))
    assert shown.shape == (2, 32, 32, 3)
    assert (shown[0, 10:] == GREY).all()
    assert (shown[0, :10, :14] == 0).all()
    assert (shown[0, :10, 18:] == 255).all()
    assert (shown[1, :12, :15] == 0).all()
    assert (shown[1, :12, 15:30] == 255).all()


def boxes_of(corners, image, relative, images):
    count = len(image)
    zeros = np.zeros(count, np.int64)
    there = np.array(corners, np.float64)
    return Boxes(("a",), np.array(image), zeros, there, zeros > 0, images, relative)


def test_boxes_in_pixels_and_in_shares_are_the_same(tmp_path):
    pictures = decode_images(split_of_shapes(), 32, 16, tmp_path, silent)
    rows = np.array([0, 1, 2])
    pixels = boxes_of([[0, 0, 32, 20], [10, 32, 20, 64], [15, 0, 45, 6]], [0, 1, 2], False, 3)
    shares = boxes_of([[0, 0, 0.5, 1], [0.5, 0.5, 1, 1], [0.5, 0, 1.5, 0.5]], [0, 1, 2], True, 3)
    expected = [[0, 0, 16, 10], [5, 16, 10, 32], [15, 0, 30, 6]]
    for boxes in (pixels, shares):
        found = on_canvas(boxes, pictures, rows)
        assert [objects.corners[0].tolist() for objects in found] == expected
        assert np.array_equal(in_pixels(boxes, pictures, rows).corners, pixels.corners)
    back = to_originals(np.array(expected, np.float64), pictures, rows)
    ends = [[64, 20] * 2, [20, 64] * 2, [30, 12] * 2]
    assert np.array_equal(back, np.minimum(pixels.corners, ends))
    # what lies outside is no object
    boxes = boxes_of([[70, 0, 80, 10], [3, 3, 3, 9], [0, 0, 9, 9]], [0, 0, 1], False, 3)
    assert [len(objects.label) for objects in on_canvas(boxes, pictures, rows)] == [0, 1, 0]


def test_boxes_follow_their_pictures():
    pixels, boxes = drawn(6, 3)
    objects = [
        Objects(boxes.label[mine], boxes.corners[mine], boxes.crowd[mine])
        for mine in (np.flatnonzero(boxes.image == number) for number in range(6))
    ]
    for seed in range(5):
        changes = Augmentation.drawn(6, np.random.default_rng(seed))
        changes = Augmentation(changes.zoom, changes.shift, np.ones(6))
        shown = changes.of_pixels(pixels, "cpu").numpy().mean(1)
        for maps, there in zip(shown, changes.of_objects(objects, (48, 64)), strict=True):
            for label, box in zip(there.label, there.corners, strict=True):
                covered = np.zeros_like(maps, bool)
                left, top, right, bottom = np.round(box).astype(int)
                covered[top:bottom, left:right] = True
                coloured = maps > 190 if label == 0 else maps < 60
                both = (covered & coloured).sum()
                assert both >= 0.75 * (covered | coloured).sum()


def test_an_object_of_which_little_is_left_becomes_a_crowd():
    changes = Augmentation(np.ones((1, 2)), np.array([[-0.1, 0.0]]), np.ones(1))
    kept, cut, gone = [5.0, 10, 25, 20], [1, 10, 12, 20], [1, 10, 9, 20]
    whole = Objects(np.array([0, 1, 2]), np.array([kept, cut, gone]), np.zeros(3, np.bool_))
    (made,) = changes.of_objects([whole], (100, 100))
    assert made.label.tolist() == [0, 1]
    assert made.corners == pytest.approx(np.array([[0, 10, 15, 20], [0, 10, 2, 20]]))
    assert made.crowd.tolist() == [False, True]
    assert 2 / 11 < LEFT < 15 / 20


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a split of eight and four images, and a detector that is ready for it."""
    split = drawn_split()
    return split, ready_for(split, tmp_path_factory.mktemp("ready"))


def ready_for(split, folder):
    return load_trainer(DETECTOR).prepare(split, folder, silent)


def trained(ready, task, folder):
    folder.mkdir()
    return ready.train(task, folder)


def test_eight_pictures_are_learnt_by_heart(tmp_path):
    split = drawn_split(8, 4)
    outcome = trained(
        ready_for(split, tmp_path), lesson_of(split, range(4), seed=0, epochs=40), tmp_path / "run"
    )
    assert outcome.metrics["map50"] > 0.9
    assert outcome.metrics["f1"] > 0.9
    assert outcome.metrics["map50_95"] > 0.4
    assert outcome.images["f1"].shape == (4,)
    assert (outcome.about["epochs"], outcome.about["images"]) == (40, 8)
    log = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert len(log) == 41
    assert "epoch 40 of 40: loss" in log[39]


def test_a_seed_gives_the_same_bytes_and_another_does_not(small, tmp_path):
    split, ready = small
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first = trained(ready, lesson_of(split, range(2), seed=0, epochs=3), tmp_path / "1")
    # a training leaves torch as it was
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    torch.manual_seed(5)
    sent = pickle.loads(pickle.dumps(ready))
    again = trained(sent, lesson_of(split, range(2), seed=0, epochs=3), tmp_path / "2")
    other = trained(ready, lesson_of(split, range(2), seed=1, epochs=3), tmp_path / "3")
    assert first.about == again.about
    assert first.metrics == again.metrics
    assert first.images["f1"].tobytes() == again.images["f1"].tobytes()
    assert first.about["loss"] != other.about["loss"]


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
    assert min(ready.learning, ready.evaluating) > 0
    assert ready.seconds(50, 3) == pytest.approx(4 * ready.evaluating + 150 * ready.learning)
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
    outcome = trained(ready, lesson_of(split, range(2), seed=0, epochs=2), tmp_path / "run")
    assert outcome.about["images"] == 4  # six, without a training image and a leaked one
    assert outcome.about["unreadable"] == 3
    assert outcome.images["f1"][[0, 3]].tolist() == [0, 0]
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "unreadable: 'test-3' of set 'test' (truncated: cut off)" in log


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
        trained(broken, lesson_of(split, (), seed=0, epochs=3), tmp_path / "run")


def test_sets_that_it_cannot_learn_from_are_refused(tmp_path):
    split = drawn_split(4, 2)
    none = replace(drawn(4, 1)[1].taken(np.empty(0, np.int64)), images=4)
    blind = set_of("train", MemoryOpener(drawn(4, 1)[0]), 4, has_pixels=False)
    for each, said in (
        (replace(split, test_boxes=None), "needs annotated boxes, and set 'test' has none"),
        (replace(split, train_boxes=none), "set 'train' has no annotated object of any class"),
        (replace(split, train=blind), "set 'train' has embeddings without images"),
        (with_holes((), (0, 1, 2, 3)), "set 'test': none of its 4 images can be read"),
    ):
        assert said in refusal(VisleakError, ready_for, each, tmp_path)


def test_classes_of_one_set_only_are_said():
    split = drawn_split(4, 2)
    both = drawn(2, 2)[1]
    bars = replace(both, label=np.ones_like(both.label))
    assert list(Detector().notes(replace(split, test_boxes=bars))) == [
        "1 of 2 classes have no objects in the test set, and count in no metric, such as 'square'"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch", "the trainer torch needs a model: torch:detector or torch:classifier; got 'to"),
        ("torch:detector?size=3", "trainer torch:detector has no option 'size'; its options are"),
        ("torch:detector:x", "trainer torch:detector takes nothing after its name; got 'torch:de"),
        ("torch:detector?side=8", "must be a whole number from 16 to 2,048; got '8'"),
        ("torch:classifier?width=1e9", "must be a multiple of 16 from 16 to 256; got '1e9'"),
        ("torch:detector?rate=0", "must be a number above 0 and up to 1, such as 0.006; got '0'"),
    ],
)
def test_wishes_that_cannot_be_are_refused(text, said):
    assert said in refusal(UsageError, load_trainer, text)


def test_a_device_or_a_library_that_is_not_there_is_refused(monkeypatch):
    said = refusal(UsageError, load_trainer, "torch:detector", device="gpu")
    assert "device must be auto, cpu, cuda or cuda:N; got 'gpu'" in said
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="trainer torch:detector needs an extra: pip install"):
        load_trainer("torch:detector")


def test_options_are_part_of_the_key():
    usual = load_trainer("torch:detector").about()
    assert usual.keys() == {"model", "version", "epochs", "side", "batch", "width", "rate"}
    assert load_trainer("torch:detector?side=64", threads=2).about() == {**usual, "side": 64}


def striped(name, labels, seed):
    """Return images with stripes: down for ``down``, across for all other labels."""
    random = np.random.default_rng(seed)
    made = random.integers(80, 120, (len(labels), HEIGHT, WIDTH, 3)).astype(np.uint8)
    for pixels, label in zip(made, labels, strict=True):
        at = int(random.integers(0, 4))
        if label == "down":
            pixels[:, at::8] = 220
        else:
            pixels[at::8] = 220
    return set_of(name, MemoryOpener(made), len(labels), labels=pa.array(labels, pa.string()))


def labelled(train, test):
    return Split(striped("train", train, 1), striped("test", test, 2))


def test_stripes_are_learnt_and_missing_labels_left_out(tmp_path):
    split = labelled(["down", "across"] * 6 + [None], ["down", "across", None, "slanted", "down"])
    ready = load_trainer(CLASSIFIER).prepare(split, tmp_path, silent)
    first = ready.train(lesson_of(split, (), seed=0, epochs=12), tmp_path)
    assert ready.notes == (
        "1 of 13 images of set 'train' have no label, and are excluded",
        "1 of 5 images of set 'test' have no label, and are excluded",
        "1 test images have a label that no training image has, such as 'slanted': they are only"
        " correct if such images leak",
    )
    right = first.images["accuracy"]
    assert right[[0, 1, 3, 4]].tolist() == [1, 1, 0, 1]
    assert np.isnan(right[2])
    assert first.metrics["accuracy"] == 0.75
    # across has one wrong: 2 / 3; slanted none right; down all
    assert first.metrics["f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert first.about["images"] == 12
    assert ready.train(lesson_of(split, (), seed=0, epochs=12), tmp_path).about == first.about


@pytest.mark.parametrize("predicted", [False, True])
def test_metrics_are_those_of_scikit_learn(predicted):
    random = np.random.default_rng(7)
    for _ in range(50):
        true = random.integers(0, 4, random.integers(1, 30))
        said = np.where(random.random(len(true)) < 0.6, true, random.integers(0, 6, len(true)))
        if not predicted:
            said[random.random(len(true)) < 0.1] = -1
        labels = None if predicted else np.unique(true)
        made = label_metrics(true, said, predicted_classes=predicted)
        expected = f1_score(true, said, labels=labels, average="macro", zero_division=0)
        assert made["f1"] == pytest.approx(expected)
        assert made["accuracy"] == pytest.approx(accuracy_score(true, said))


def test_sets_without_labels_are_refused(tmp_path):
    split = labelled(["down", "across"], ["down"])
    for each, said in (
        (replace(split, test=replace(split.test, labels=None)), "needs the labels of images, and"),
        (labelled([None, None], ["down"]), "set 'train' has none"),
        (labelled(["down", "down"], ["down"]), "all images have the label 'down'; torch:classif"),
    ):
        assert said in refusal(
            VisleakError, load_trainer(CLASSIFIER).prepare, each, tmp_path, silent
        )
