"""Which images leak: nested, sizes unchanged, the same in every run, fair to every image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_splits import split_of
from visleak.dlede.draw.draws import Sampler, leaked_at
from visleak.dlede.settings import FULL, Plan
from visleak.dlede.train.trainer import TrainingTask
from visleak.errors import UsageError


def test_steps_of_the_paper_leak_as_many_images_as_the_paper_says() -> None:
    # 179 images a step of Cirrus' 1,790, 225 of KITTI's 2,250 (sections 5.1 and 5.2)
    assert [leaked_at(step, 1790) for step in (0, 10, 20, 100)] == [0, 179, 358, 1790]
    assert leaked_at(10, 2250) == 225


@settings(max_examples=40, deadline=None)
@given(
    st.integers(10, 60),
    st.integers(0, 40),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([0, 3]),
)
def test_sizes_stay_and_only_original_images_make_room(
    test: int, more: int, repetition: int, nested: bool, labels: int
) -> None:
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


def test_a_chain_depends_on_its_number_and_the_seed_alone() -> None:
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


def test_independent_draws_do_not_keep_what_leaked_before() -> None:
    drawing = Sampler(split_of(90, 60), Plan((0, 10, 20), nested=False))
    assert not np.isin(drawing.at(10, 1).leaked, drawing.at(20, 1).leaked).all()


def test_every_image_leaks_as_often_as_every_other() -> None:
    drawing = Sampler(split_of(40, 20), Plan((0, 10, 20)))
    counts = np.zeros(20)
    replaced = np.zeros(40)
    for repetition in range(1, 2001):
        draw = drawing.at(20, repetition)
        counts[draw.leaked] += 1
        replaced[np.setdiff1d(np.arange(40), draw.kept)] += 1
    # chi-square of 19 and 39 degrees of freedom: 5 in 10,000 lie beyond
    assert ((counts - 400) ** 2 / 400).sum() < 45
    assert ((replaced - 200) ** 2 / 200).sum() < 75


def test_stratified_draws_keep_the_shares_of_the_classes() -> None:
    split = split_of(300, 100, labels=5)
    assert split.test.labels is not None
    labels = np.asarray(split.test.labels.to_pylist())
    drawing = Sampler(split, Plan((0, 10, 20), stratified=True))
    for repetition in range(1, 6):
        for step, each in ((10, 2), (20, 4)):
            drawn = labels[drawing.at(step, repetition).leaked]
            assert np.unique(drawn, return_counts=True)[1].tolist() == [each] * 5


def test_leaked_images_join_those_that_stay() -> None:
    split = split_of(30, 20)
    draw = Sampler(split, Plan((0, 10, 20))).at(20, 1)
    task = TrainingTask(split, draw, 20, 1, 1)
    train = task.train
    assert train.ids.to_pylist() == [
        *(str(row) for row in draw.kept),
        *(f"test:{row}" for row in draw.leaked),  # ids of both sets are row numbers
    ]
    assert len(list(train.opener.read(range(30)))) == 30
    assert task.test is split.test


def test_more_leaks_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(UsageError, match="at 20 % 8 test images leak, and there are only 8"):
        Sampler(split_of(8, 40), Plan((0, 10, 20)))


def test_steps_that_leak_the_same_images_are_refused() -> None:
    with pytest.raises(UsageError, match="4 test images are too few for steps of 10, 20 %"):
        Sampler(split_of(8, 4), Plan((0, 10, 20)))


def test_a_stratified_draw_without_classes_is_refused() -> None:
    with pytest.raises(UsageError, match="leave out --stratify, or give --label"):
        Sampler(split_of(40, 20), Plan((0, 10, 20), stratified=True))
