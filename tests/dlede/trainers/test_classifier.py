"""The classifier, trained for real on a few small images."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from drawn_objects import HEIGHT, WIDTH, lesson_of, set_of
from sklearn.metrics import accuracy_score, f1_score

from visleak.dlede.draw import Split
from visleak.dlede.trainers import label_metrics, load_trainer
from visleak.dlede.trainers.torch_networks import Classifier
from visleak.errors import UsageError, VisleakError
from visleak.formats.memory import MemoryOpener
from visleak.progress import silent

SMALL = "torch:classifier?batch=4"


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


def split_of(train, test):
    return Split(striped("train", train, 1), striped("test", test, 2))


def test_stripes_are_learnt_and_missing_labels_left_out(tmp_path):
    split = split_of(["down", "across"] * 6 + [None], ["down", "across", None, "slanted", "down"])
    ready = load_trainer(SMALL).prepare(split, tmp_path, silent)
    first = ready.train(lesson_of(split, epochs=12), tmp_path)
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
    assert first.about["pictures"] == 12
    again = ready.train(lesson_of(split, epochs=12), tmp_path)
    assert again.about == first.about
    other = ready.train(lesson_of(split, epochs=12, seed=1), tmp_path)
    assert other.about["loss"] != first.about["loss"]


@pytest.mark.parametrize("predicted", [False, True])
def test_metrics_are_those_of_scikit_learn(predicted):
    """Macro F1 over the classes that are there, or that are predicted as well."""
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
    split = split_of(["down", "across"], ["down"])
    bare = replace(split, test=replace(split.test, labels=None))
    with pytest.raises(UsageError, match="torch:classifier needs the labels of images, and set"):
        load_trainer(SMALL).prepare(bare, tmp_path, silent)
    with pytest.raises(UsageError, match="set 'train' has none"):
        Classifier().check(split_of([None, None], ["down"]))
    with pytest.raises(VisleakError, match="all images have the label 'down'; torch:classifier"):
        Classifier().check(split_of(["down", "down"], ["down"]))
