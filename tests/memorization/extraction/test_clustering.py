"""Clusters against a DBSCAN written from its definition, and by properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from visleak.errors import UsageError
from visleak.memorization.extraction.similarity import clusters_of


def naive(similarity, eps, least):
    """Return the sets of cores that are connected, and for every border image those it touches.

    Ester et al. 1996: a core has ``least`` neighbours, itself one of them; cores that are
    neighbours share a cluster; an image with a core as neighbour is in (one of) their clusters.
    """
    count = len(similarity)
    near = np.maximum(1 - similarity, 0) <= eps
    np.fill_diagonal(near, True)
    cores = {i for i in range(count) if near[i].sum() >= least}
    groups = []
    left = set(cores)
    while left:
        group, waiting = set(), [left.pop()]
        while waiting:
            one = waiting.pop()
            group.add(one)
            more = {other for other in left if near[one, other]}
            left -= more
            waiting += more
        groups.append(group)
    border = {
        i: {n for n, group in enumerate(groups) if any(near[i, core] for core in group)}
        for i in range(count)
        if i not in cores
    }
    return groups, border


def matrices(most=12):
    values = st.sampled_from([-0.3, 0.0, 0.3, 0.5, 0.55, 0.7, 0.9, 1.0])

    def symmetric(square):
        made = np.triu(square, 1)
        return made + made.T + np.eye(len(square))

    sizes = st.integers(1, most)
    return sizes.flatmap(lambda n: hnp.arrays(np.float64, (n, n), elements=values)).map(symmetric)


@given(matrices(), st.sampled_from([0.1, 0.45, 0.5, 0.8]), st.integers(1, 5))
def test_clusters_are_those_of_the_definition(alike, eps, least):
    groups, border = naive(alike, eps, least)
    found = clusters_of(alike, range(len(alike)), eps=eps, min_samples=least, min_cluster=1)
    cores = set().union(*groups) if groups else set()
    assert sorted(sorted(set(each.members) & cores) for each in found) == sorted(
        map(sorted, groups)
    )
    for each in found:
        number = groups.index(set(each.members) & cores)
        assert all(number in border[i] for i in set(each.members) - cores)
    covered = [i for each in found for i in each.members]
    assert len(covered) == len(set(covered))
    assert set(covered) == cores | {i for i, touched in border.items() if touched}


def block(*sizes, inside=0.9):
    """Return similarities of groups of so many images, 0.1 between groups."""
    which = np.repeat(np.arange(len(sizes)), sizes)
    made = np.where(which[:, None] == which[None, :], inside, 0.1)
    np.fill_diagonal(made, 1.0)
    return made


def test_min_samples_counts_the_image_itself():
    assert clusters_of(block(2), [0, 1], eps=0.5, min_samples=3, min_cluster=1) == []
    (found,) = clusters_of(block(2), [0, 1], eps=0.5, min_samples=2, min_cluster=1)
    assert sorted(found.members) == [0, 1]


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
        (np.eye(2), [0, 1, 2], "similarity must be 3 x 3, one row per seed; got (2, 2)"),
        (
            np.eye(2),
            [1, 1],
            "seeds of the images of one prompt must all differ; one is given twice",
        ),
        (np.full((2, 2), np.nan), [0, 1], "similarity holds a value that is not a number"),
    ],
)
def test_what_cannot_be_clustered_is_refused(alike, seeds, text):
    with pytest.raises(UsageError) as error:
        clusters_of(alike, seeds, eps=0.5, min_samples=3, min_cluster=1)
    assert str(error.value) == text
