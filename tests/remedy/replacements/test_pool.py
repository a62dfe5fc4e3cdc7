"""Who of a pool can stand in, and in which order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made_sets import made_set

from visleak.records import Problem
from visleak.remedy.pool import class_of, make_pool


def pool(contents: list[int], flat: set[int] = frozenset(), labels: list[str | None] | None = None):
    ids, digests = [f"i{i}" for i in range(len(contents))], [digest(c) for c in contents]
    gone = (Problem("pool", "gone", "gone", "missing"),)
    return made_set("pool", ids, digests, [c in flat for c in contents], labels, problems=gone)


def digest(content: int) -> list[int]:
    return list(content.to_bytes(16, "big"))


def test_what_cannot_stand_in_is_left_out_and_counted():
    labels = ["Cat", "cat", "CAT", "cat", None, "dog"]
    images, prints = pool([1, 2, 2, 3, 4, 1], flat={3}, labels=labels)
    made = make_pool(images, prints, {bytes(digest(1))}, seed=0)
    assert (made.known, made.repeated, made.blank, made.unreadable) == (2, 1, 1, 1)
    assert made.usable == 2
    assert sorted(made.queues[None].tolist()) == [1, 4]
    # of equal contents the first in the set is the one; labels are compared as everywhere
    assert made.queues["cat"].tolist() == [1]
    assert set(made.queues) == {None, "cat"}


@given(
    contents=st.lists(st.integers(0, 40), min_size=1, max_size=25, unique=True),
    seed=st.integers(0, 5),
    turn=st.randoms(use_true_random=False),
)
def test_the_order_depends_on_content_and_seed_alone(contents, seed, turn):
    """Neither the order of the files nor the rest of the pool moves anybody."""
    first = make_pool(*pool(contents), set(), seed)
    order = [contents[row] for row in first.queues[None]]
    shuffled = contents.copy()
    turn.shuffle(shuffled)
    second = make_pool(*pool(shuffled), set(), seed)
    assert [shuffled[row] for row in second.queues[None]] == order
    part = shuffled[: len(shuffled) // 2 + 1]
    third = make_pool(*pool(part), set(), seed)
    assert [part[row] for row in third.queues[None]] == [c for c in order if c in part]


def test_another_seed_is_another_order():
    contents = list(range(30))
    orders = {tuple(make_pool(*pool(contents), set(), seed).queues[None]) for seed in range(4)}
    assert len(orders) == 4


def test_the_order_is_no_order_of_content():
    """Ranks are spread like random ones: no more ascents than chance gives."""
    order = make_pool(*pool(list(range(500))), set(), 0).queues[None]
    ascents = int((np.diff(order) > 0).sum())
    assert 200 < ascents < 300


def test_an_empty_pool_and_one_without_labels():
    assert make_pool(*pool([]), set(), 0).usable == 0
    assert set(make_pool(*pool([1, 2]), set(), 0).queues) == {None}


def test_classes_are_compared_as_labels_are_everywhere():
    assert class_of("Great_White-Shark ") == "great white shark"
    assert class_of(None) is None
