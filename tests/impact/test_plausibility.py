"""Files that are mixed up are recognised, and right ones are not doubted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from impact_making import cifair
from predictions_making import as_csv, benchmark, scores_of

from visleak.impact.benchmark import Scores
from visleak.impact.predictions.plausibility import between, doubtful_gaps

COUNT = 1200
CLASSES = ("bird", "cat", "deer", "dog", "frog")
IDS = [f"test/{number:05d}.png" for number in range(COUNT)]
Columns = dict[str, Sequence[Any]]


def truth(seed=0, *, by_class=False):
    labels = np.random.default_rng(seed).choice(CLASSES, COUNT)
    return [str(label) for label in (np.sort(labels) if by_class else labels)]


def guessed(labels, right=0.7, seed=1):
    """Return predictions of which a share is right, and the others any class."""
    rng = np.random.default_rng(seed)
    others = rng.choice(CLASSES, len(labels))
    sure = rng.random(len(labels)) < right
    return [a if hit else str(b) for a, b, hit in zip(labels, others, sure, strict=True)]


def moved(values, by=1):
    return [*values[by:], *values[:by]]


def shuffled(*columns):
    order = np.random.default_rng(2).permutation(COUNT)
    return [[column[k] for k in order] for column in columns]


def doubts(folder, columns, labels, ids=IDS):
    file = as_csv(folder / "m.csv", {"id": ids, **columns})
    scores, _ = scores_of(file, benchmark(IDS, labels))
    return "; ".join(scores.doubts)


def coded(predicted, labels):
    """Return predictions and labels as the numbers of classes."""
    numbers = {name: str(k) for k, name in enumerate(reversed(CLASSES))}
    columns = {"prediction": predicted, "label": labels}
    return {key: [numbers[name] for name in names] for key, names in columns.items()}


@pytest.mark.parametrize("right", [0.1, 0.7, 0.99])
@pytest.mark.parametrize("by_class", [False, True])
def test_a_right_file_is_not_doubted(tmp_path, right, by_class):
    labels = truth(by_class=by_class)
    predicted = guessed(labels, right)
    named = {"prediction": predicted, "label": labels}
    for columns in ({"prediction": predicted}, named, coded(predicted, labels)):
        assert doubts(tmp_path, columns, labels) == ""


def test_ids_off_by_one(tmp_path):
    labels = truth()
    predicted = guessed(labels, 0.95)
    named = {"prediction": moved(predicted), "label": moved(labels)}
    for columns in (
        {"prediction": moved(predicted)},
        named,
        coded(moved(predicted), moved(labels)),
    ):
        assert "off by one" in doubts(tmp_path, columns, labels)
    order = np.random.default_rng(3).permutation(COUNT)
    mixed = [moved(predicted)[k] for k in order]
    said = doubts(tmp_path, {"prediction": mixed}, labels, [IDS[k] for k in order])
    assert "each id is raised by one" in said


@pytest.mark.parametrize("lost", [300, 600, 900])
def test_a_row_that_is_missing_moves_those_behind_it(tmp_path, lost):
    labels = truth()
    for right in (0.6, 0.95):
        predicted = guessed(labels, right)
        cut = [*predicted[:lost], *predicted[lost + 1 :], predicted[-1]]
        said = doubts(tmp_path, {"prediction": cut}, labels)
        assert "off by one" in said
        assert "of rows" in said or lost == 300


def test_labels_of_which_a_part_is_mixed_up(tmp_path):
    labels = truth()
    predicted = guessed(labels, 0.9)
    half = COUNT // 2
    order = [*np.random.default_rng(5).permutation(half), *range(half, COUNT)]
    mixed = [[column[k] for k in order] for column in (predicted, labels)]
    said = doubts(tmp_path, {"prediction": mixed[0], "label": mixed[1]}, labels)
    assert said.startswith("rows look mixed up in part")
    # labels that were corrected later are others here and there
    few = [str(np.random.default_rng(k).choice(CLASSES)) if k % 8 == 0 else x
           for k, x in enumerate(labels)]  # fmt: skip
    assert doubts(tmp_path, {"prediction": predicted, "label": few}, labels) == ""


def test_ids_that_count_from_one(tmp_path):
    ids = [f"test/{number:05d}.png" for number in range(1, COUNT + 1)]
    assert "off by one" in doubts(tmp_path, {"correct": [0, 1] * (COUNT // 2)}, truth(), ids)


def test_shuffled_rows(tmp_path):
    labels = truth()
    predicted, own = shuffled(guessed(labels), labels)
    assert "shuffled" in doubts(tmp_path, {"prediction": predicted}, labels)
    # in itself the file is consistent: its accuracy is right, and which images leak is not
    assert "shuffled" in doubts(tmp_path, {"prediction": predicted, "label": own}, labels)
    assert "shuffled" in doubts(tmp_path, coded(predicted, own), labels)
    predicted = guessed(labels)
    half = [predicted[k] for k in COUNT // 2 + np.random.default_rng(3).permutation(COUNT // 2)]
    said = doubts(tmp_path, {"prediction": [*predicted[: COUNT // 2], *half]}, labels)
    assert "rows 600 to 899 and 900 to 1,199 look shuffled" in said


@pytest.mark.parametrize(
    "turned", [CLASSES[1:] + CLASSES[:1], ("bird", "deer", "cat", *CLASSES[3:])]
)
def test_permuted_class_names(tmp_path, turned):
    names = dict(zip(CLASSES, turned, strict=True))
    labels = truth()
    said = doubts(tmp_path, {"prediction": [names[name] for name in guessed(labels)]}, labels)
    assert "permuted" in said
    assert "means" in said
    scores = {
        f"score:{names[name]}": [float(name == guess) for guess in guessed(labels)]
        for name in CLASSES
    }
    assert "permuted" in doubts(tmp_path, scores, labels)


def models(**columns):
    return [Scores(name, {"accuracy": np.array(v, float)}) for name, v in columns.items()]


def said_between(made, files=None):
    ids = benchmark(IDS, None).ids
    return "; ".join(between(made, files or {each.model: each.model for each in made}, ids))


def right_or_wrong(seed):
    """Return which answers of a model are right, on images that are hard or easy for all."""
    ease = np.random.default_rng(0).beta(2, 1, COUNT)
    return (np.random.default_rng(seed).random(COUNT) < ease).astype(float)


def test_models_are_compared_with_each_other():
    a, b, c = map(right_or_wrong, (1, 2, 3))
    assert said_between(models(a=a, b=b, c=c)) == ""
    order = np.random.default_rng(4).permutation(COUNT)
    said = said_between(models(a=a, b=b, c=c[order]))
    assert said.startswith("rows of c look shuffled")
    assert "look off by one" in said_between(models(a=a, b=np.roll(b, 1)))
    assert "the same predictions" in said_between(models(a=a, b=a))
    assert "'accuracy' has different units" in said_between(models(a=a, b=50 + 50 * b))


def test_swapped_files():
    a, b = right_or_wrong(1), right_or_wrong(2)
    made = models(**{"ResNet-20": a, "VGG16": b})
    assert said_between(made, {"ResNet-20": "resnet20_test", "VGG16": "vgg16_test"}) == ""
    assert "swapped" in said_between(made, {"ResNet-20": "vgg16_test", "VGG16": "resnet20_test"})
    gaps = cifair().gaps
    assert list(doubtful_gaps(gaps)) == []
    turned = [
        replace(g, original=g.fair, fair=g.original, gap=replace(g.gap, value=-g.gap.value))
        for g in gaps
    ]
    assert ["swapped" in said for said in doubtful_gaps(turned)] == [True] * len(gaps)
