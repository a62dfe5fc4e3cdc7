"""Stratified orders: permutations whose beginnings hold what they promise, without a bias."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.draw.draws import leaked_at
from visleak.dlede.draw.stratify import stratified_order


def ends_of(images, parts):
    """Images up to the end of each part, halves up, in whole numbers."""
    return [(2 * images * part + parts) // (2 * parts) for part in range(parts + 1)]


def deviations(counts, order, parts):
    """Objects of each class up to the end of each part, less the share of as many images."""
    ends = ends_of(len(counts), parts)
    held = np.array([counts[order[:end]].sum(axis=0) for end in ends])
    return held - np.outer(np.array(ends) / len(counts), counts.sum(axis=0))


def one_hot(labels, classes):
    return np.eye(classes, dtype=np.int64)[labels]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(1, 30), st.integers(0, 99))
def test_single_labels_are_less_than_one_from_their_shares(labels, parts, seed):
    counts = one_hot(labels, 7)
    order = stratified_order(counts, parts, np.random.default_rng(seed))
    assert sorted(order) == list(range(len(labels)))
    assert order.dtype == np.int64
    assert np.abs(deviations(counts, order, parts)).max() < 1
    again = stratified_order(counts, parts, np.random.default_rng(seed))
    assert (again == order).all()


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 12), st.integers(0, 99))
def test_any_counts_make_a_permutation(images, classes, parts, seed):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.7, (images, classes))
    order = stratified_order(counts, parts, rng)
    assert sorted(order) == list(range(images))


def test_parts_are_as_large_as_those_of_a_plain_draw():
    for images in (7, 95, 1790, 2250):
        assert ends_of(images, 10) == [leaked_at(step, images) for step in range(0, 101, 10)]


def test_objects_are_far_nearer_to_their_shares_than_in_plain_draws():
    """Mean squared deviation, in units of a plain draw's: below a tenth of it."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(rng.exponential(1, 12) ** 2 * rng.exponential(1, (600, 12)))
    assert (counts > 0).sum(axis=1).max() > 1
    ours, plain = (
        np.mean(
            [np.square(deviations(counts, draw(seed), 10)).mean(axis=0) for seed in range(10)], 0
        )
        for draw in (
            lambda seed: stratified_order(counts, 10, np.random.default_rng(seed)),
            lambda seed: np.random.default_rng(seed).permutation(len(counts)),
        )
    )
    frequent = counts.sum(axis=0) >= 50
    assert frequent.sum() >= 6
    assert (ours[frequent] < 0.1 * plain[frequent]).all()


@pytest.mark.parametrize("several", [False, True])
def test_a_rare_class_leaks_as_early_as_late(several):
    """The one image of a class is in each of five parts in a fifth of all draws.

    Going by the nearest deadline, or by the least deviation, would always put it in the same.
    """
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


def test_images_of_a_class_are_drawn_alike():
    """Each is in the first tenth in a tenth of all draws, whatever its row."""
    counts = one_hot([at % 3 for at in range(30)], 3)
    first = np.zeros(30)
    for seed in range(1000):
        first[stratified_order(counts, 10, np.random.default_rng(seed))[:3]] += 1
    np.testing.assert_allclose(first / 1000, 0.1, atol=4.5 * np.sqrt(0.09 / 1000))


def test_images_that_show_nothing_are_spread_like_a_class():
    counts = one_hot([0] * 10 + [1] * 10, 2)
    counts[10:] = 0
    order = stratified_order(counts, 10, np.random.default_rng(0))
    assert [sum(at >= 10 for at in order[2 * k : 2 * k + 2]) for k in range(10)] == [1] * 10
    assert sorted(stratified_order(np.zeros((4, 0), np.int64), 2, np.random.default_rng(0))) == [
        0, 1, 2, 3,
    ]  # fmt: skip


def test_odd_sizes():
    assert stratified_order(np.zeros((0, 3), np.int64), 10, np.random.default_rng(0)).size == 0
    with pytest.raises(ValueError, match="parts must be 1 or more, not 0"):
        stratified_order(np.ones((3, 1), np.int64), 0, np.random.default_rng(0))


def test_a_large_set_takes_a_moment():
    """Ten thousand images of a hundred classes: some 0.2 s; a draw is made for each training."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.05, (10_000, 100))
    start = time.process_time()
    stratified_order(counts, 10, rng)
    assert time.process_time() - start < 3
