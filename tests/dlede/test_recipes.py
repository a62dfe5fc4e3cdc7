"""Recipes: those of the paper to the number, the others by what they promise."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.draw.recipes import EXACTLY, divided_by, whole_groups
from visleak.errors import UsageError
from visleak.formats.memory import MemoryOpener
from visleak.records import ImageSet


def made(ids, groups=None):
    ids = list(ids)
    return ImageSet(
        name="s",
        ids=pa.array(ids, pa.string()),
        locators=pa.array(ids, pa.string()),
        opener=MemoryOpener(np.zeros((len(ids), 1, 1, 3), np.uint8)),
        groups=None if groups is None else pa.array(groups, pa.string()),
    )


def numbered(count, groups=None):
    return made((f"{at:06d}.png" for at in range(count)), groups)


def test_kitti_is_the_paper_s():
    """Babu et al. 2025: 5,231 train, 2,250 test, in file order."""
    test = divided_by(numbered(7481), "kitti")
    assert (~test).sum() == 5231
    assert test.sum() == 2250
    assert not test[:5231].any()
    with pytest.raises(UsageError, match="set 's' has 100; use first:N to train"):
        divided_by(numbered(100), "kitti")


def test_cirrus_is_the_paper_s():
    """Seven recordings; the paper's sizes, 4,495 and 1,790, are the sums of five and of two."""
    sizes = (900, 899, 898, 899, 899, 895, 895)
    ids = [f"r{run}/{at:04d}.png" for run, size in enumerate(sizes) for at in range(size)]
    test = divided_by(made(ids), "cirrus")
    assert ((~test).sum(), test.sum()) == (4495, 1790)
    assert {ids[at][:2] for at in np.flatnonzero(test)} == {"r5", "r6"}
    groups = ["x"] * 3 + list("abcdef")
    assert divided_by(numbered(9, groups), "cirrus").tolist() == [False] * 7 + [True] * 2
    with pytest.raises(UsageError, match="divides 7 recordings; set 's' has 6; use"):
        divided_by(made(ids[:-895]), "cirrus")
    with pytest.raises(UsageError, match="groups of 20 of 20 images"):
        divided_by(numbered(20), "cirrus")


def test_first_images_and_first_groups():
    groups = list("bbacca")
    assert divided_by(numbered(6, groups), "first:2").tolist() == [False] * 2 + [True] * 4
    # b, a and c in the order in which they come
    assert divided_by(numbered(6, groups), "first-groups:2").tolist() == [
        *[False] * 3, True, True, False,
    ]  # fmt: skip


def test_random_images():
    images = numbered(200)
    test = divided_by(images, "random:.25")
    assert test.sum() == 50
    assert 10 < test[:100].sum() < 40
    assert (divided_by(images, "random:25%") == test).all()
    assert (divided_by(images, "random:.25:0") == test).all()
    assert (divided_by(images, "random:.25:1") != test).any()
    assert divided_by(numbered(3), "random:.5").sum() == 2  # halves up
    assert divided_by(numbered(3), "random:.999").sum() == 2  # never all
    assert divided_by(numbered(3), "random:.001").sum() == 1  # never none


def test_random_groups_stay_whole():
    groups = [str(at // 7) for at in range(140)]
    images = numbered(140, groups)
    test = divided_by(images, "groups:.3")
    assert test.sum() == 42
    shown = {groups[at] for at in np.flatnonzero(test)}
    assert not shown & {groups[at] for at in np.flatnonzero(~test)}
    assert any((divided_by(images, f"groups:.3:{seed}") != test).any() for seed in range(1, 4))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("half", "^--split is one of kitti, cirrus, first:N, first-groups:N,"),
        ("", r"groups:SHARE\[:SEED\]; got ''$"),
        ("first", r"^--split first is written first:N; got 'first'$"),
        ("kitti:3", r"^--split kitti is written kitti; got 'kitti:3'$"),
        ("first:0", r"^--split first:N takes a whole number from 1 to 3, for there are 4 images"),
        ("first:1.5", r"got '1\.5'$"),
        ("first-groups:2", "^--split first-groups:N takes a whole number from 1 to 1, for there a"),
        ("random:0", r"^--split random:SHARE is the share of the test images, above 0 and below 1"),
        ("groups:x", r"such as groups:0\.2 or groups:20%; got 'x'$"),
        ("random:.1:-1", r"^--split random:SHARE:SEED takes a whole number as seed; got '-1'$"),
    ],
)
def test_what_is_no_recipe(text, said):
    with pytest.raises(UsageError, match=said) as caught:
        divided_by(numbered(4, list("aabb")), text)
    assert "\n" not in str(caught.value)


def test_sets_that_a_recipe_does_not_fit():
    with pytest.raises(UsageError, match=r"^set 's' holds 1 images; a split needs two$"):
        divided_by(numbered(1), "first:1")
    with pytest.raises(
        UsageError, match=r"1 of 3 images of set 's' are not known, such as '000001\.png'"
    ):
        divided_by(numbered(3, ["a", None, "b"]), "groups:.5")
    with pytest.raises(UsageError, match=r"all images of set 's' are of one group; it needs two"):
        divided_by(numbered(3, ["a"] * 3), "groups:.5")


def nearest(weights, size):
    """Least distance of any sum of some weights, not none and not all: all of them tried."""
    whole = range(1, len(weights))
    sums = {sum(c) for k in whole for c in itertools.combinations(weights, k)}
    return min(abs(total - size) for total in sums)


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=9), st.integers(0, 120), st.integers(0, 99)
)
def test_chosen_groups_are_whole_and_as_near_as_can_be(weights, size, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(weights)), weights))
    chosen = whole_groups(groups, size, np.random.default_rng(seed))
    inside, outside = set(groups[chosen]), set(groups[~chosen])
    assert inside
    assert outside
    assert not inside & outside
    assert abs(chosen.sum() - size) == nearest(weights, size)
    again = whole_groups(groups, size, np.random.default_rng(seed))
    assert (again == chosen).all()


def test_every_nearest_choice_has_a_chance():
    """Sizes 1, 2, 3, 4 and 5 of 15: 7 is 3+4, 2+5 and 1+2+4."""
    groups = np.repeat(np.arange(1, 6), np.arange(1, 6))
    found = [
        tuple(np.unique(groups[whole_groups(groups, 7, np.random.default_rng(seed))]))
        for seed in range(300)
    ]
    shares = {choice: found.count(choice) / 300 for choice in set(found)}
    assert set(shares) == {(3, 4), (2, 5), (1, 2, 4)}
    assert min(shares.values()) > 0.1


def test_more_groups_than_are_looked_at_exactly():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 3 * EXACTLY, 20_000).astype(str)
    for size in (6000, 1, 19_999):
        chosen = whole_groups(groups, size, rng)
        assert abs(int(chosen.sum()) - size) <= (0 if size == 6000 else 20)
        assert not set(groups[chosen]) & set(groups[~chosen])


def test_one_group_cannot_be_chosen_from():
    with pytest.raises(ValueError, match="there must be two groups or more to choose from"):
        whole_groups(np.zeros(3), 1, np.random.default_rng(0))
