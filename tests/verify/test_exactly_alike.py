"""What is exact, at its boundaries and against an independent implementation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.verify.check import bounded
from visleak.verify.exact import exactly_alike


def slowly_alike(query, reference):
    """Decide as the definition says, in whole numbers and fractions."""
    height, width = query.shape[:2]
    difference = np.abs(query.astype(int) - reference.astype(int))
    near = sum((pixel <= 16).all() for row in difference for pixel in row)
    if Fraction(int(near), height * width) < Fraction(95, 100):
        return False
    if Fraction(int(difference.sum()), difference.size) > 3:
        return False
    rows = [range(a * height // 8, (a + 1) * height // 8) for a in range(8)]
    columns = [range(a * width // 8, (a + 1) * width // 8) for a in range(8)]
    tiles = [difference[np.ix_(r, c)] for r in rows for c in columns if r and c]
    return all(Fraction(int(tile.sum()), tile.size) <= 24 for tile in tiles)


def with_differences(shape, spots):
    """Return a grey picture and a copy that differs by given levels in given slices."""
    query = np.full((*shape, 3), 100, np.uint8)
    reference = query.copy()
    for place, levels in spots:
        reference[place] = 100 + levels
    return query, reference


WHOLE = np.s_[:, :]

BOUNDARIES = {
    "same": ((40, 40), [], True),
    "mean 3": ((40, 40), [(WHOLE, 3)], True),
    "mean above 3": ((40, 40), [(WHOLE, 3), (np.s_[0, 0, 0], 4)], False),
    "mean above 3 everywhere": ((40, 40), [(WHOLE, 4)], False),
    "share 95": ((40, 40), [(np.s_[::20, :], 17)], True),
    "share below 95": ((40, 40), [(np.s_[::20, :], 17), (np.s_[1, 1], 17)], False),
    "one channel counts": ((40, 40), [(np.s_[::20, :, 1], 17), (np.s_[1, 1, 2], 17)], False),
    "16 levels are within": ((40, 40), [(np.s_[::10, :], 16)], True),
    "tile of 24": ((40, 40), [(np.s_[5:10, 10:15], 24)], True),
    "tile above 24": ((40, 40), [(np.s_[5:10, 10:15], 24), (np.s_[6, 11, 0], 25)], False),
    "25 across two tiles": ((40, 40), [(np.s_[3:8, 10:15], 30)], True),
    "tiles of uneven size": ((41, 43), [(np.s_[5:10, 5:10], 24)], True),
    "one row": ((1, 100), [(np.s_[:, :5], 17)], True),
    "one pixel": ((1, 1), [(WHOLE, 3)], True),
    "one pixel off": ((1, 1), [(WHOLE, 17)], False),
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_boundaries_of_exact(name):
    """95 % within 16 levels, mean 3, tile 24: each reached and just missed."""
    shape, spots, expected = BOUNDARIES[name]
    query, reference = with_differences(shape, spots)
    assert slowly_alike(query, reference) == expected
    assert exactly_alike(query, reference) == expected
    assert exactly_alike(reference, query) == expected


@given(
    st.integers(0, 10**6),
    st.integers(1, 41),
    st.integers(1, 41),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9), st.integers(14, 40))
    ),
)
def test_exact_equals_an_independent_implementation(seed, height, width, grain, spots):
    """Random grain and squares of larger differences, in pictures of any shape."""
    rng = np.random.default_rng(seed)
    query = rng.integers(50, 200, (height, width, 3), np.uint8)
    difference = rng.integers(-grain, grain + 1, query.shape)
    for y, x, side, levels in spots:
        difference[y : y + side, x : x + side] = levels
    reference = (query + difference).astype(np.uint8)
    assert exactly_alike(query, reference) == slowly_alike(query, reference)


def test_pictures_of_different_size_are_not_exact():
    """Whatever they show."""
    assert not exactly_alike(np.zeros((8, 9, 3), np.uint8), np.zeros((9, 8, 3), np.uint8))


def test_a_small_pasted_object_is_not_exact(natural):
    """2 % of the picture, but all of a tile: the dog that was added."""
    query = bounded(natural["astronaut"])
    reference = query.copy()
    reference[100:132, 64:96] = 255 - reference[100:132, 64:96]
    assert not exactly_alike(query, reference)
