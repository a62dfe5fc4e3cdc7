"""Clusters against a DBSCAN written from its definition, and by properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from visleak.errors import UsageError
from visleak.memorization.extraction.similarity import clusters_of


def naive(near, least):
    """Return the sets of cores that are connected.

    Ester et al. 1996: a core has ``least`` neighbours, itself one of them; cores that are
    neighbours share a cluster; an image with a core as neighbour is in (one of) their clusters.
    """
    groups, left = [], {i for i in range(len(near)) if near[i].sum() >= least}
    while left:
        group, waiting = set(), [left.pop()]
        while waiting:
            one = waiting.pop()
            group.add(one)
            more = {other for other in left if near[one, other]}
            left -= more
            waiting += more
        groups.append(group)
    return groups


def symmetric(square):
    made = np.triu(square, 1)
    return made + made.T + np.eye(len(square))


VALUES = st.sampled_from([-0.3, 0.0, 0.3, 0.5, 0.55, 0.7, 0.9, 1.0])
MATRICES = (
    st.integers(1, 12)
    .flatmap(lambda n: hnp.arrays(np.float64, (n, n), elements=VALUES))
    .map(symmetric)
)


@given(MATRICES, st.sampled_from([0.1, 0.45, 0.5, 0.8]), st.integers(1, 5))
def test_clusters_are_those_of_the_definition(alike, eps, least):
    near = np.maximum(1 - alike, 0) <= eps
    groups = naive(near, least)
    found = clusters_of(alike, range(len(alike)), eps=eps, min_samples=least, min_cluster=1)
    cores = set().union(*groups)
    parts = [set(each.members) for each in found]
    assert sorted(sorted(part & cores) for part in parts) == sorted(map(sorted, groups))
    for part in parts:
        assert all(near[i, sorted(part & cores)].any() for i in part)
    covered = [i for part in parts for i in part]
    assert len(covered) == len(set(covered))
    assert set(covered) == {i for i in range(len(near)) if near[i, sorted(cores)].any()}


def block(*sizes, inside=0.9):
    """Return similarities of groups of so many images, 0.1 between groups."""
    which = np.repeat(np.arange(len(sizes)), sizes)
    made = np.where(which[:, None] == which[None, :], inside, 0.1)
    np.fill_diagonal(made, 1.0)
    return made


def test_the_medoid_is_most_similar_to_all_others_by_brute_force():
    draw = np.random.default_rng(3)
    for _ in range(20):
        alike = draw.uniform(0.6, 1.0, (9, 9))
        alike = (alike + alike.T) / 2
        np.fill_diagonal(alike, 1.0)
        (found,) = clusters_of(alike, range(9), eps=0.5, min_samples=3, min_cluster=3)
        sums = [sum(alike[i, j] for j in range(9) if j != i) for i in range(9)]
        assert found.medoid == int(np.argmax(sums))
        others = sorted(alike[found.medoid, j] for j in range(9) if j != found.medoid)
        assert found.cohesion == pytest.approx((others[3] + others[4]) / 2)
        assert found.members[0] == found.medoid
        row = [alike[found.medoid, j] for j in found.members[1:]]
        assert row == sorted(row, reverse=True)


def test_ties_rounding_and_nothing():
    (found,) = clusters_of(block(4), [9, 4, 2, 7], eps=0.5, min_samples=3, min_cluster=2)
    # equal medoids go by the lowest seed
    assert found.medoid == 2
    assert found.members == (2, 1, 3, 0)
    # a similarity above one is a distance of zero
    alike = block(3)
    alike[0, 1] = alike[1, 0] = 1.0000002
    (found,) = clusters_of(alike, range(3), eps=0.5, min_samples=3, min_cluster=3)
    assert len(found.members) == 3
    assert clusters_of(np.empty((0, 0)), [], eps=0.5, min_samples=3, min_cluster=1) == []


@pytest.mark.parametrize(
    ("alike", "seeds", "text"),
    [
        (np.eye(2), [0, 1, 2], r"similarity must be 3 x 3, one row per seed; got \(2, 2\)"),
        (np.eye(2), [1, 1], "seeds of the images of one prompt must all differ"),
        (np.full((2, 2), np.nan), [0, 1], "similarity holds a value that is not a number"),
    ],
)
def test_what_cannot_be_clustered_is_refused(alike, seeds, text):
    with pytest.raises(UsageError, match=text):
        clusters_of(alike, seeds, eps=0.5, min_samples=3, min_cluster=1)
