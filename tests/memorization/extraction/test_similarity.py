"""Which images are nearly the same, and clusters against a DBSCAN written from its definition."""

import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from replaying_model import fresh, planted
from visleak.encoders import load_encoder
from visleak.errors import UsageError
from visleak.memorization.extraction import similarity as verified
from visleak.memorization.extraction.similarity import (
    GATE,
    EncoderSimilarity,
    PixelSimilarity,
    VerifiedSimilarity,
    clusters_of,
    load_similarity,
)


def noisy(picture, count, seed=0, amount=5.0):
    draw = np.random.default_rng(seed)
    return [
        np.clip(picture + draw.normal(0, amount, picture.shape), 0, 255).astype(np.uint8)
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("name", "side"),
    # PDQ is for photographs: noise of 16 pixels flips its bits
    [("builtin", 16), ("builtin", 96), ("pixels", 16), ("pixels", 96), ("pdq", 96)],
)
def test_a_matrix_is_symmetric_with_ones_and_finds_the_copies(name, side):
    pictures = [*noisy(planted(0, side), 4), *noisy(planted(1, side), 3), fresh(1, side)]
    measure = load_similarity(name)
    alike = measure.matrix(pictures)
    assert alike.shape == (8, 8)
    assert np.array_equal(alike, alike.T)
    assert np.array_equal(np.diag(alike), np.ones(8))
    same = np.array([0, 0, 0, 0, 1, 1, 1, 2])
    near = 1 - alike <= measure.eps
    assert np.array_equal(near, same[:, None] == same[None, :])


@pytest.mark.parametrize("name", ["builtin", "pixels"])
def test_between_two_lists_says_what_the_matrix_of_both_says(name):
    one = [*noisy(planted(0, 32), 2), fresh(3, 32)]
    other = [*noisy(planted(0, 32), 2, seed=1), planted(2, 32)]
    measure = load_similarity(name)
    whole = measure.matrix([*one, *other])
    assert measure.between(one, other) == pytest.approx(whole[:3, 3:], abs=1e-9)


def test_pixels_are_the_correlation_of_the_pictures():
    one, other = planted(0, 32), planted(1, 32)
    left = (one - one.mean((0, 1))).ravel()
    right = (other - other.mean((0, 1))).ravel()
    expected = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
    alike = PixelSimilarity().matrix([one, other])
    assert alike[0, 1] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["builtin", "pixels"])
def test_blank_pictures_are_alike_where_their_colour_is(name):
    black, white = np.zeros((16, 16, 3), np.uint8), np.full((16, 16, 3), 250, np.uint8)
    alike = load_similarity(name).matrix([black, black.copy(), white, planted(0, 16)])
    near = alike > 0.5
    expected = np.eye(4, dtype=bool)
    expected[0, 1] = expected[1, 0] = True
    assert np.array_equal(near, expected)


@pytest.mark.parametrize("name", ["builtin", "pixels"])
def test_pictures_of_several_sizes_are_compared(name):
    alike = load_similarity(name).matrix([planted(0, 128), planted(0, 64), fresh(0, 32)])
    assert alike[0, 1] > 0.9


def test_verification_takes_back_what_the_fingerprint_alone_would_call_alike():
    """Two scenes of one layout: the same edges, other colours and noise."""

    def scene(seed):
        draw = np.random.default_rng(seed)
        made = np.full((64, 64, 3), draw.integers(60, 200, 3), np.float64)
        made[16:48, 16:48] = draw.integers(0, 255, 3)
        return np.clip(made + draw.normal(0, 8, made.shape), 0, 255).astype(np.uint8)

    pictures = [scene(0), scene(1)]
    raw = EncoderSimilarity(load_encoder("builtin")).matrix(pictures)[0, 1]
    assert raw >= GATE
    assert VerifiedSimilarity().matrix(pictures)[0, 1] == 0.0


def test_a_picture_that_is_refused_ten_times_is_left_alone(monkeypatch):
    """However many pairs pass the gate, the looks are bounded."""
    asked = []

    def refuses(self, left, right):
        asked.extend(zip(left.tolist(), right.tolist(), strict=True))
        return np.zeros(len(left), np.bool_)

    monkeypatch.setattr(verified._Verifier, "confirmed", refuses)
    alike = VerifiedSimilarity().matrix(noisy(planted(0, 16), 60))
    assert np.array_equal(alike, np.eye(60))
    assert len(asked) == len(set(asked))
    assert len(asked) < 60 * 2 * verified.REFUSALS


def test_links_join_pictures_that_were_not_compared(monkeypatch):
    """Against a naive closure: two images are linked where confirmed pairs connect them."""
    draw = np.random.default_rng(5)
    truth = draw.integers(0, 4, 30)

    def same(self, left, right):
        return truth[left] == truth[right]

    monkeypatch.setattr(verified._Verifier, "confirmed", same)
    monkeypatch.setattr(verified, "REFUSALS", 1000)
    alike = VerifiedSimilarity().matrix(noisy(planted(0, 16), 30))
    for one, other in itertools.combinations(range(30), 2):
        assert (alike[one, other] > 0) == (truth[one] == truth[other])


def test_tiny_pictures_must_agree_in_place():
    """Two drawings of one thing in two places: near to the grader, and no replay of one image."""

    def circle(across, down):
        slope = np.linspace(-40, 40, 128)[:, None, None]
        made = np.clip(np.full((128, 128, 3), (40, 60, 90)) + slope, 0, 255).astype(np.uint8)
        cv2.circle(made, (across, down), 20, (230, 180, 40), -1)
        return cv2.resize(made, (16, 16), interpolation=cv2.INTER_AREA)

    pictures = [circle(40, 56), circle(64, 64)]
    measure = VerifiedSimilarity()
    assert measure.matrix(pictures)[0, 1] == 0.0
    assert measure.between(pictures[:1], pictures[1:])[0, 0] == 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verified, "is_tiny", lambda picture: False)
        assert measure.matrix(pictures)[0, 1] > GATE


def naive(near, least):
    """Return the sets of cores that are connected, as Ester et al. 1996 define them."""
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
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
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
