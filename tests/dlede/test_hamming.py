"""All distances of hashes against bits counted one by one."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from visleak.dlede import hashes
from visleak.dlede.hashes import distances, nearest_pairs

WORDS = st.integers(0, 2**64 - 1)
#: Hashes of which many are equal or nearly so.
CLOSE = st.integers(0, 15)


def by_hand(test: list[int], train: list[int]) -> list[list[int]]:
    return [[(x ^ y).bit_count() for y in train] for x in test]


def words(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


@given(st.lists(WORDS | CLOSE, max_size=12), st.lists(WORDS | CLOSE, max_size=12))
def test_histogram_and_nearest_are_those_counted_by_hand(test: list[int], train: list[int]) -> None:
    """Empty sides included."""
    found = distances(words(test), words(train))
    apart = by_hand(test, train)
    every = [each for row in apart for each in row]
    assert found.histogram.tolist() == [every.count(d) for d in range(65)]
    assert found.nearest.tolist() == [min(row, default=65) for row in apart]


@given(
    st.lists(WORDS | CLOSE, max_size=12),
    st.lists(CLOSE, max_size=12),
    st.integers(0, 150),
    st.integers(1, 40),
)
def test_most_alike_are_the_first_of_all_pairs_in_order(
    test: list[int], train: list[int], count: int, looked_at: int
) -> None:
    """By distance, test row, training row; however many tie at the cut, in parts of any size."""
    found = distances(words(test), words(train))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "SEARCHED", looked_at)
        rows, columns, apart = nearest_pairs(words(test), words(train), found, count)
    ordered = sorted(
        (distance, row, column)
        for row, line in enumerate(by_hand(test, train))
        for column, distance in enumerate(line)
    )
    made = list(zip(apart.tolist(), rows.tolist(), columns.tolist(), strict=True))
    assert made == ordered[:count]


def test_blocks_of_any_size_give_the_same() -> None:
    """Blocks are chosen for speed alone."""
    rng = np.random.default_rng(0)
    test, train = (rng.integers(0, 1 << 64, n, np.uint64) for n in (37, 53))
    whole = distances(test, train)
    for block in ((1, 1), (7, 5), (37, 53), (36, 54), (1000, 2)):
        found = distances(test, train, block=block)
        np.testing.assert_array_equal(found.histogram, whole.histogram)
        np.testing.assert_array_equal(found.nearest, whole.nearest)


def test_many_equal_pairs_cost_no_more_memory() -> None:
    """Blank pictures: every pair ties, and only the first are looked at."""
    import tracemalloc

    equal = np.zeros(30_000, np.uint64)
    found = hashes.Distances(np.bincount([0], minlength=65) * len(equal) ** 2, equal.astype("u1"))
    tracemalloc.start()
    rows, columns, apart = nearest_pairs(equal, equal, found, 70_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150_000_000  # a byte a pair would be 900 MB
    assert not apart.any()
    np.testing.assert_array_equal(rows * 30_000 + columns, np.arange(70_000))


def test_progress_ends_with_all() -> None:
    """A bar that never fills up looks like a run that hangs."""
    told: list[tuple[str, int, int]] = []
    some = np.arange(5, dtype=np.uint64)
    distances(some, some, block=(2, 2), progress=lambda *step: told.append(step))
    assert told == [("comparing hashes", done, 5) for done in (2, 4, 5)]
