"""What the steps train on, class by class, against plain counting."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from visleak.dlede.draw.draws import Sampler, class_counts
from visleak.dlede.draw.split import Draw, Split
from visleak.dlede.settings import Plan
from visleak.formats import Boxes
from visleak.formats.memory import ArrayOpener
from visleak.records import ImageSet


def made(name, count, labels=None):
    ids = pa.array([f"{name}{at}" for at in range(count)], pa.string())
    return ImageSet(
        name=name,
        ids=ids,
        locators=ids,
        opener=ArrayOpener(np.zeros((count, 1, 1, 3), np.uint8)),
        labels=None if labels is None else pa.array(labels, pa.string()),
    )


def boxed(names, shown, crowd=()):
    """Boxes of images that show some classes each, by number; some rows are crowds."""
    rows = [(at, label) for at, labels in enumerate(shown) for label in labels]
    return Boxes(
        names=names,
        image=np.array([at for at, _ in rows], np.int64),
        label=np.array([label for _, label in rows], np.int64),
        corners=np.tile([0.0, 0.0, 1.0, 1.0], (len(rows), 1)),
        crowd=np.isin(np.arange(len(rows)), crowd),
        images=len(shown),
        relative=True,
    )


def rows(*values):
    return np.array(values, np.int64)


def test_objects_by_hand():
    names = ("car", "unseen", "van", "bus")
    train = boxed(names, [[0, 0], [2], [], [0, -1]], crowd=[4])
    test = boxed(names, [[2, 2, 3], [0]])
    split = Split(made("train", 4), made("test", 2), train, test)
    found = class_counts(
        split,
        {
            0: [Draw(rows(0, 1, 2, 3), rows())] * 2,
            50: [Draw(rows(1, 2, 3), rows(0)), Draw(rows(0, 1, 3), rows(1))],
        },
    )
    assert found.classes == ("car", "van", "bus")  # what nobody shows is left out
    assert found.test_images == (1, 1, 1)
    assert found.test_objects == (1, 2, 1)
    assert found.steps == (0, 50)
    assert found.images == ((2, 1, 0), ((1 + 3) / 2, (2 + 1) / 2, 0.5))
    assert found.objects == ((3, 1, 0), ((1 + 4) / 2, (3 + 1) / 2, 0.5))


def test_labels_of_whole_images():
    split = Split(made("train", 4, ["b", "a", None, "b"]), made("test", 3, ["a", "c", None]))
    draws = {0: [Draw(rows(0, 1, 2, 3), rows())], 100: [Draw(rows(2), rows(0, 1, 2))]}
    found = class_counts(split, draws)
    assert found.classes == ("a", "b", "c")
    assert found.test_images == (1, 0, 1)
    assert found.images == ((1, 2, 0), (1, 0, 1))
    assert found.test_objects == found.objects == ()


def test_what_is_not_known_is_not_counted():
    draws = {0: [Draw(rows(0, 1), rows())]}
    assert class_counts(Split(made("train", 2, ["a", "b"]), made("test", 2)), draws) is None
    nothing = boxed(("car",), [[], []])
    split = Split(made("train", 2), made("test", 2), nothing, nothing)
    assert class_counts(split, draws) is None


@pytest.mark.parametrize("stratified", [False, True])
def test_many_classes_are_all_counted(stratified):
    """Against counting every draw's images one by one."""
    rng = np.random.default_rng(0)
    names = tuple(f"class {at}" for at in range(1500))
    sides = [
        boxed(names, [rng.integers(0, 1500, rng.integers(10, 40)) for _ in range(count)])
        for count in (80, 40)
    ]
    split = Split(made("train", 80), made("test", 40), *sides)
    drawing = Sampler(split, Plan(repetitions=3, stratified=stratified))
    draws = {step: [drawing.at(step, number) for number in (1, 2, 3)] for step in (0, 10, 20)}
    found = class_counts(split, draws)
    counts = [side.counts() for side in sides]
    there = np.flatnonzero(counts[0].sum(axis=0) + counts[1].sum(axis=0))
    assert len(there) > 1000
    assert found.classes == tuple(names[at] for at in there)
    for at, step in enumerate((0, 10, 20)):
        trained = [
            np.concatenate([counts[0][draw.kept], counts[1][draw.leaked]]) for draw in draws[step]
        ]
        assert all(len(each) == 80 for each in trained)
        objects = np.mean([each.sum(axis=0) for each in trained], axis=0)
        images = np.mean([(each > 0).sum(axis=0) for each in trained], axis=0)
        np.testing.assert_allclose(found.objects[at], objects[there])
        np.testing.assert_allclose(found.images[at], images[there])
