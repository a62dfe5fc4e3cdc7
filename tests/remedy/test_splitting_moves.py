"""The fewest moves: against brute force, with properties of what keeps sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from visleak.groups import numbered
from visleak.remedy.moves import fewest_moves, kept_sizes


@st.composite
def splits(draw):
    count = draw(st.integers(1, 40))
    numbers = st.lists(st.integers(0, 15), min_size=count, max_size=count)
    parts = draw(st.integers(2, 3))
    owner = draw(st.lists(st.integers(0, parts - 1), min_size=count, max_size=count))
    label = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return numbered(np.array(draw(numbers))), np.array(owner), np.array(label), parts


def united(component, part) -> bool:
    return all(len(set(part[component == c].tolist())) == 1 for c in set(component.tolist()))


@given(splits())
def test_no_fewer_moves_unite_all(split):
    component, owner, label, parts = split
    moves = fewest_moves(component, owner, label, parts)
    least = sum(
        min(int((owner[component == c] != part).sum()) for part in range(parts))
        for c in set(component.tolist())
    )
    assert moves.uniting == moves.fewest == least == int((moves.part != owner).sum())
    assert united(component, moves.part)
    torn = [c for c in set(component.tolist()) if len(set(owner[component == c].tolist())) > 1]
    assert moves.straddling.tolist() == sorted(torn)


@given(splits())
def test_who_is_in_one_part_stays(split):
    component, owner, label, parts = split
    moves = fewest_moves(component, owner, label, parts)
    whole = ~np.isin(component, moves.straddling)
    assert (moves.part[whole] == owner[whole]).all()


def test_ties_keep_sizes():
    """Ten pairs, one image on each side: five go this way, five that way; no fewer moves could."""
    component = np.repeat(np.arange(10), 2)
    owner = np.tile([0, 1], 10)
    moves = fewest_moves(component, owner, np.zeros(len(owner), np.int64), 2)
    assert moves.uniting == 10
    assert np.bincount(moves.part).tolist() == [10, 10]


def test_ties_keep_classes():
    """Two pairs of each of two classes: one of each this way, one that way."""
    component, owner = np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
    label = np.repeat([0, 1, 1, 0], 2)
    moves = fewest_moves(component, owner, label, 2)
    for name in (0, 1):
        assert np.bincount(moves.part[label == name]).tolist() == [2, 2]


def test_ties_restore_sizes():
    """What decides itself comes first: one image goes to part 1, and ties bring one back."""
    component = np.array([0, 0, 0, 1, 1])
    owner = np.array([0, 1, 1, 0, 1])
    moves = fewest_moves(component, owner, np.zeros(len(owner), np.int64), 2)
    assert moves.part.tolist() == [1, 1, 1, 0, 0]


def test_single_images_of_the_same_class_go_back():
    """Three leaks of one class leave test, and three others of it come, for every seed."""
    # a test image beside four of train, three times; then 40 free images of two classes
    component = np.concatenate([np.repeat(np.arange(3), 5), np.arange(3, 43)])
    owner = np.concatenate([np.tile([0, 1, 1, 1, 1], 3), np.repeat([0, 1], 20)])
    label = np.concatenate([np.zeros(15, np.int64), np.tile([0, 1], 20)])
    moves = fewest_moves(component, owner, label, 2)
    chosen = set()
    for seed in range(5):
        kept = kept_sizes(moves, component, owner, label, 2, seed)
        assert (kept.uniting, kept.back) == (3, 3)
        for name in (0, 1):
            own = label == name
            assert np.bincount(kept.part[own]).tolist() == np.bincount(owner[own]).tolist()
        chosen.add(tuple(np.flatnonzero(kept.part != moves.part).tolist()))
    assert len(chosen) > 1
