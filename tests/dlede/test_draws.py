"""Which images leak: sizes unchanged, reproducible, fair to every image and class."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_splits import BLANK, split_of
from visleak.dlede.draw import Draw, Split
from visleak.dlede.draw.draws import Sampler, class_counts, distribute, leaked_at, stratified_order
from visleak.dlede.settings import FULL, Plan
from visleak.dlede.train import TrainingTask
from visleak.errors import UsageError
from visleak.formats import Boxes, open_images


@settings(max_examples=40, deadline=None)
@given(
    st.integers(10, 60),
    st.integers(0, 40),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([0, 3]),
)
def test_sizes_stay_and_only_original_images_make_room(test, more, repetition, nested, labels):
    split = split_of(test + 1 + more, test, labels)
    drawing = Sampler(split, Plan(FULL, nested=nested, stratified=labels > 0))
    before = np.array([], np.int64), np.arange(len(split.train))
    for step in FULL:
        draw = drawing.at(step, repetition)
        assert len(draw.leaked) == leaked_at(step, test)
        assert len(draw.kept) + len(draw.leaked) == len(split.train)
        assert (np.diff(draw.leaked) > 0).all()
        assert (np.diff(draw.kept) > 0).all()
        if nested:
            assert np.isin(before[0], draw.leaked).all()
            assert np.isin(draw.kept, before[1]).all()
        before = draw.leaked, draw.kept
    assert len(before[0]) == test  # at 100 % every test image is in training


def test_a_chain_depends_on_its_number_and_the_seed_alone():
    split = split_of(90, 60)
    few = Sampler(split, Plan((0, 10, 20), repetitions=2))
    many = Sampler(split, Plan(FULL, repetitions=9))
    for step in (10, 20):
        one, other = few.at(step, 2), many.at(step, 2)
        assert np.array_equal(one.leaked, other.leaked)
        assert np.array_equal(one.kept, other.kept)
    assert not np.array_equal(few.at(20, 1).leaked, few.at(20, 2).leaked)
    other_seed = Sampler(split, Plan((0, 10, 20), seed=1))
    assert not np.array_equal(few.at(20, 1).leaked, other_seed.at(20, 1).leaked)
    independent = Sampler(split, Plan((0, 10, 20), nested=False))
    assert not np.isin(independent.at(10, 1).leaked, independent.at(20, 1).leaked).all()


def test_every_image_leaks_as_often_as_every_other():
    drawing = Sampler(split_of(40, 20), Plan((0, 10, 20)))
    counts, replaced = np.zeros(20), np.full(40, 2000)
    for repetition in range(1, 2001):
        draw = drawing.at(20, repetition)
        counts[draw.leaked] += 1
        replaced[draw.kept] -= 1
    # chi-square of 19 and 39 degrees of freedom: 5 in 10,000 lie beyond
    assert ((counts - 400) ** 2 / 400).sum() < 45
    assert ((replaced - 200) ** 2 / 200).sum() < 75


def test_stratified_draws_keep_the_shares_of_the_classes():
    split = split_of(300, 100, labels=5)
    labels = np.asarray(split.test.labels.to_pylist())
    drawing = Sampler(split, Plan((0, 10, 20), stratified=True))
    for repetition in range(1, 6):
        for step, each in ((10, 2), (20, 4)):
            drawn = labels[drawing.at(step, repetition).leaked]
            assert np.unique(drawn, return_counts=True)[1].tolist() == [each] * 5


def test_leaked_images_join_those_that_stay():
    split = split_of(30, 20)
    draw = Sampler(split, Plan((0, 10, 20))).at(20, 1)
    train = TrainingTask(split, draw, 20, 1, 1).train
    # ids of both sets are row numbers
    joined = [*map(str, draw.kept), *(f"test:{row}" for row in draw.leaked)]
    assert train.ids.to_pylist() == joined
    assert len(list(train.opener.read(range(30)))) == 30


@pytest.mark.parametrize(
    ("sizes", "stratified", "words"),
    [
        ((8, 40), False, "at 20 % 8 test images leak, and there are only 8"),
        ((8, 4), False, "4 test images are too few for steps of 10, 20 %"),
        ((40, 20), True, "leave out --stratify, or give --label"),
    ],
)
def test_splits_that_cannot_be_drawn_from_are_refused(sizes, stratified, words):
    with pytest.raises(UsageError, match=words):
        Sampler(split_of(*sizes), Plan((0, 10, 20), stratified=stratified))


def deviations(counts, order, parts):
    """Objects of each class up to the end of each part, less the share of as many images."""
    ends = (2 * len(counts) * np.arange(parts + 1) + parts) // (2 * parts)  # halves up
    held = np.array([counts[order[:end]].sum(axis=0) for end in ends])
    return held - np.outer(ends / len(counts), counts.sum(axis=0))


def one_hot(labels, classes):
    return np.eye(classes, dtype=np.int64)[labels]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(1, 30), st.integers(0, 99))
def test_single_labels_are_less_than_one_from_their_shares(labels, parts, seed):
    counts = one_hot(labels, 7)
    order = stratified_order(counts, parts, np.random.default_rng(seed))
    assert sorted(order) == list(range(len(labels)))
    assert np.abs(deviations(counts, order, parts)).max() < 1
    again = stratified_order(counts, parts, np.random.default_rng(seed))
    assert (again == order).all()


@pytest.mark.parametrize("several", [False, True])
def test_a_rare_class_leaks_as_early_as_late(several):
    counts = one_hot([0] + [1, 2] * 12, 3)
    if several:
        counts = np.where(counts > 0, 1 + np.arange(25)[:, None] % 3, 0)
        counts[1:, 1:] += np.arange(24)[:, None] % 2
    parts = np.zeros(5)
    for seed in range(400):
        order = stratified_order(counts, 5, np.random.default_rng(seed))
        parts[int(np.flatnonzero(order == 0)[0]) // 5] += 1
    # four standard errors of a share of 1/5
    np.testing.assert_allclose(parts / 400, 0.2, atol=4 * np.sqrt(0.16 / 400))


def test_images_that_show_nothing_are_spread_like_a_class():
    counts = one_hot([0] * 10 + [1] * 10, 2)
    counts[10:] = 0
    order = stratified_order(counts, 10, np.random.default_rng(0))
    assert [sum(at >= 10 for at in order[2 * k : 2 * k + 2]) for k in range(10)] == [1] * 10
    for images, classes in ((4, 0), (0, 3)):
        none = np.zeros((images, classes), np.int64)
        assert len(stratified_order(none, 2, np.random.default_rng(0))) == images
    with pytest.raises(ValueError, match="parts must be 1 or more, not 0"):
        stratified_order(counts, 0, np.random.default_rng(0))


@given(st.data())
def test_sums_are_kept_and_shares_rounded_up_or_down(data):
    sizes = np.array(data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=8)), np.int64)
    whole = int(sizes.sum())
    inner = data.draw(st.lists(st.integers(0, whole), max_size=8))
    ends = np.array([0, *sorted(inner), whole], np.int64)
    held = distribute(sizes, ends, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert held.shape == (len(sizes), len(ends) - 1)
    assert (held.sum(axis=1) == sizes).all()
    assert (held.sum(axis=0) == np.diff(ends)).all()
    if whole:
        exact = np.outer(sizes, np.diff(ends)) / whole
        assert (np.abs(held - exact) < 1).all()
        assert (np.abs(np.cumsum(held - exact, axis=1)) < 1).all()


def made(name, count, labels=None):
    images = open_images([BLANK] * count, name=name)
    return images if labels is None else replace(images, labels=pa.array(labels, pa.string()))


def rows(*values):
    return np.array(values, np.int64)


def boxed(names, shown, crowd=()):
    """Boxes of images that show some classes each, by number; some rows are crowds."""
    image = rows(*(at for at, labels in enumerate(shown) for _ in labels))
    label = rows(*(label for labels in shown for label in labels))
    corners = np.tile([0.0, 0.0, 1.0, 1.0], (len(image), 1))
    crowds = np.isin(np.arange(len(image)), crowd)
    return Boxes(names, image, label, corners, crowds, len(shown), relative=True)


def test_objects_by_hand():
    names = ("car", "unseen", "van", "bus")
    train = boxed(names, [[0, 0], [2], [], [0, -1]], crowd=[4])
    test = boxed(names, [[2, 2, 3], [0]])
    split = Split(made("train", 4), made("test", 2), train, test)
    half = [Draw(rows(1, 2, 3), rows(0)), Draw(rows(0, 1, 3), rows(1))]
    found = class_counts(split, {0: [Draw(rows(0, 1, 2, 3), rows())] * 2, 50: half})
    assert found.classes == ("car", "van", "bus")  # what nobody shows is left out
    assert (found.test_images, found.test_objects) == ((1, 1, 1), (1, 2, 1))
    assert found.steps == (0, 50)
    assert found.images == ((2, 1, 0), ((1 + 3) / 2, (2 + 1) / 2, 0.5))
    assert found.objects == ((3, 1, 0), ((1 + 4) / 2, (3 + 1) / 2, 0.5))


def test_labels_of_whole_images():
    split = Split(made("train", 4, ["b", "a", None, "b"]), made("test", 3, ["a", "c", None]))
    draws = {0: [Draw(rows(0, 1, 2, 3), rows())], 100: [Draw(rows(2), rows(0, 1, 2))]}
    found = class_counts(split, draws)
    assert (found.classes, found.test_images) == (("a", "b", "c"), (1, 0, 1))
    assert found.images == ((1, 2, 0), (1, 0, 1))
    assert found.test_objects == found.objects == ()


def test_what_is_not_known_is_not_counted():
    draws = {0: [Draw(rows(0, 1), rows())]}
    assert class_counts(Split(made("train", 2, ["a", "b"]), made("test", 2)), draws) is None
    nothing = boxed(("car",), [[], []])
    split = Split(made("train", 2), made("test", 2), nothing, nothing)
    assert class_counts(split, draws) is None
