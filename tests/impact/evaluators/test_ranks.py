"""Ranks of own captions against counts made pair by pair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.impact.evaluators.retrieve import Sides, best_own, ranks
from visleak.vectors import unit_rows


def counted(sides):
    """Return the ranks by the definition, with sums in exact arithmetic."""

    def similarity(one, other):
        return np.float32(math.fsum(map(float, one.astype(float) * other.astype(float))))

    found = []
    for row, image in enumerate(sides.images):
        every = [similarity(image, caption) for caption in sides.captions]
        own = [s for s, owner in zip(every, sides.owner, strict=True) if owner == row]
        foreign = [s for s, owner in zip(every, sides.owner, strict=True) if owner != row]
        found.append(1 + sum(s >= max(own) for s in foreign) if own else 0)
    return found


def made(seed, images, captions, width, kinds):
    """Return unit vectors of which ``kinds`` differ, so that ties are many."""
    rng = np.random.default_rng(seed)
    pool = unit_rows(rng.standard_normal((kinds, width))).matrix
    owner = rng.integers(-1, images, captions)
    return Sides(
        pool[rng.integers(0, kinds, images)], pool[rng.integers(0, kinds, captions)], owner
    )


@given(
    seed=st.integers(0, 10_000),
    images=st.integers(1, 9),
    captions=st.integers(1, 25),
    width=st.integers(1, 40),
    kinds=st.sampled_from([1, 2, 4, 1000]),
    block=st.sampled_from([1, 2, 3, 7, None]),
)
def test_ranks_are_those_of_the_definition(seed, images, captions, width, kinds, block):
    sides = made(seed, images, captions, width, kinds)
    assert ranks(sides, block).tolist() == counted(sides)


def test_nearly_equal_similarities_are_told_apart_exactly():
    """By less than a product in float32 could: sums of 512 numbers that differ in the last ones."""
    rng = np.random.default_rng(4)
    image = unit_rows(rng.standard_normal((1, 512))).matrix
    captions = np.repeat(unit_rows(image + 0.5 * rng.standard_normal((1, 512))).matrix, 400, axis=0)
    places = rng.integers(0, 512, 400)
    rows = np.arange(400)
    captions[rows, places] = np.nextafter(captions[rows, places], np.float32(1))
    owner = np.full(400, -1)
    owner[7] = 0
    sides = Sides(image, captions, owner)
    exact = np.array(
        [np.float32(math.fsum(image[0].astype(float) * c.astype(float))) for c in captions]
    )
    assert 1 < len(np.unique(exact)) < 100
    assert ranks(sides).tolist() == [int((exact >= exact[7]).sum())]


def test_a_model_that_tells_nothing_apart_finds_nothing():
    """Ties count against the query: the best of 30 equal captions is the 30th."""
    vectors = np.tile(np.float32([[0.6, 0.8]]), (30, 1))
    assert set(ranks(Sides(vectors, vectors, np.arange(30)))) == {30}


def test_the_best_of_several_captions_counts():
    images = np.float32([[1, 0], [0, 1]])
    captions = np.float32([[0.6, 0.8], [1, 0], [0.8, 0.6], [0.6, 0.8]])
    sides = Sides(images, captions, np.array([0, 0, 0, 1]))
    assert best_own(sides).tolist() == pytest.approx([1.0, 0.8])
    assert ranks(sides).tolist() == [1, 2]


def test_owners_that_cannot_be():
    row = np.float32([[1, 0]])
    with pytest.raises(ValueError, match="1 captions must have 1 owners"):
        Sides(row, row, np.array([0, 0]))
    with pytest.raises(ValueError, match="an owner must be -1 or a row of the 1 images"):
        Sides(row, row, np.array([1]))
