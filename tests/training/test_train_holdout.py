"""What is held out is a fair sample, and shares nothing with what is network."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from visleak.formats import open_images
from visleak.training.data import SHARE, ImageData, hold_out, training_data


@given(st.lists(st.integers(0, 4), min_size=2, max_size=300), st.integers(0, 5))
def test_each_class_gives_its_share(classes: list[int], seed: int) -> None:
    """A tenth rounded down, one at least of two and more, and none of a single one."""
    numbers = np.unique(np.array(classes), return_inverse=True)[1].astype(np.int64)
    held = hold_out(numbers, np.arange(len(numbers)), seed)
    for number, size in enumerate(np.bincount(numbers)):
        wanted = max(int(SHARE * size), 1) if size > 1 else 0
        assert held[numbers == number].sum() == wanted


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 25)), min_size=1, max_size=200),
    st.integers(0, 5),
)
def test_no_group_straddles(rows: list[tuple[int, int]], seed: int) -> None:
    """The leak that this package is about; and no class is held out altogether."""
    classes, groups = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    classes = np.unique(classes, return_inverse=True)[1].astype(np.int64)
    held = hold_out(classes, groups, seed)
    assert not set(groups[held]) & set(groups[~held])
    assert set(classes[~held]) == set(classes)


def test_large_groups_are_held_out_whole() -> None:
    """Ten videos of ten images: one is a tenth. Four of twenty-five: one is more, and taken."""
    for groups, size in ((10, 10), (4, 25)):
        held = hold_out(np.zeros(100, np.int64), np.repeat(np.arange(groups), size), 0)
        assert held.sum() == size


def test_equal_pictures_and_groups_never_straddle() -> None:
    """Pairs of equal pixels, chained by groups of one image each of two pairs."""
    rng = np.random.default_rng(0)
    pictures = np.repeat(rng.integers(0, 256, (40, 4, 4, 3), np.uint8), 2, axis=0)
    labels = pa.array([f"class {number // 40}" for number in range(80)])
    groups = pa.array([None if n % 4 in (0, 3) else f"video {n // 4}" for n in range(80)])
    images = open_images(list(pictures), name="chained")
    for seed in range(5):
        material = ImageData(pictures, np.arange(80), 0, labels, groups)
        found = training_data(images, material, None, labels="auto", seed=seed, notify=print)
        held = set((found.evaluation.rows // 4).tolist())
        assert len(found.evaluation.rows) == 8
        assert not held & set((found.rows // 4).tolist())
        assert sorted([*found.evaluation.rows, *found.rows]) == list(range(80))
        assert (found.classes == found.rows // 40).all()
        assert found.evaluation.classes is not None
        assert (found.evaluation.classes == found.evaluation.rows // 40).all()


def test_what_has_no_label_is_left_out_and_said() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3), np.uint8)
    labels = pa.array([None if n % 10 == 0 else "ab"[n % 2] for n in range(40)])
    said: list[str] = []
    found = training_data(
        open_images(list(pictures), name="some"),
        ImageData(pictures, np.arange(40), 0, labels, None),
        None,
        labels="auto",
        seed=0,
        notify=said.append,
    )
    assert said == ["4 images of some without a label: excluded"]
    assert not {0, 10, 20, 30} & {*found.rows.tolist(), *found.evaluation.rows.tolist()}
    assert len(found.rows) + len(found.evaluation.rows) == 36
