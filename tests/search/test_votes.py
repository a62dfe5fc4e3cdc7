from dataclasses import replace

import cv2
import numpy as np
import pytest

from image_changes import noisy
from visleak.encoders.local import local_features, view_features
from visleak.records import VIEWS
from visleak.search import votes
from visleak.search.votes import CodeIndex, FeatureRows, LocalIndex, binary_codes

MIRROR, INVERTED = VIEWS.index("mirror"), VIEWS.index("inverted")


def turned(picture, degrees):
    h, w = picture.shape[:2]
    matrix = cv2.getRotationMatrix2D((w / 2, h / 2), -degrees, 1.0)
    return cv2.warpAffine(picture, matrix, (w, h))


#: Each is found in its view.
CHANGES = (
    lambda p: p[60:-60, 60:-60],
    lambda p: turned(p, 45),
    lambda p: noisy(p, 1, 15),
    lambda p: p[:, ::-1],
    lambda p: 255 - p,
)
FOUND = (0, 0, 0, MIRROR, INVERTED)


def rows_of(features):
    return FeatureRows(
        np.concatenate([f.descriptors for f in features]),
        np.concatenate([f.keypoints for f in features]),
        np.cumsum([0, *map(len, features)]),
    )


def views_of(features):
    rows = rows_of(features)
    widths = np.repeat([f.width for f in features], [len(f) for f in features])
    return {
        view: FeatureRows(
            *view_features(rows.descriptors, rows.keypoints, widths, view), rows.starts
        )
        for view in (0, MIRROR, INVERTED)
    }


@pytest.fixture(scope="module")
def references(natural):
    return [local_features(picture) for picture in natural.values()]


@pytest.fixture(scope="module")
def queries(natural):
    """Return the features of every change of the first five images, change by change."""
    return [
        local_features(np.ascontiguousarray(change(picture)))
        for change in CHANGES
        for picture in list(natural.values())[:5]
    ]


def brute_force(query, references):
    """Vote with each patch for the image of its nearest descriptor; no tables, no geometry."""
    rows = rows_of(references)
    owner = np.repeat(np.arange(len(references)), np.diff(rows.starts))
    there = rows.descriptors.astype(np.float64)
    here = query.astype(np.float64)
    squared = (here**2).sum(1)[:, None] + (there**2).sum(1) - 2 * here @ there.T
    nearest = squared.argmin(axis=1)
    close = squared[np.arange(len(here)), nearest] < 150**2
    return np.bincount(owner[nearest[close]], minlength=len(references)).argmax()


def test_winners_are_those_of_brute_force_and_the_planted_ones(references, queries):
    views = views_of(queries)
    votes = LocalIndex(rows_of(references)).search(views)
    found, first = np.unique(votes.query, return_index=True)
    assert found.tolist() == list(range(len(queries)))
    winners = votes.reference[first]
    np.testing.assert_array_equal(winners, np.tile(np.arange(5), len(CHANGES)))
    np.testing.assert_array_equal(votes.view[first], np.repeat(FOUND, 5))
    for query, row in enumerate(first):
        rows = views[int(votes.view[row])]
        mine = rows.descriptors[rows.starts[query] : rows.starts[query + 1]]
        assert brute_force(mine, references) == winners[query]


def test_the_number_of_candidates_is_that_requested(references):
    whole = references[0]
    parts = [
        replace(whole, descriptors=whole.descriptors[:count], keypoints=whole.keypoints[:count])
        for count in range(len(whole), len(whole) - 100, -1)
    ]
    votes = LocalIndex(rows_of(parts)).search({0: rows_of([whole])}, best=100)
    assert votes.reference.tolist() == list(range(100))
    # equal ones come in the order of the references
    votes = LocalIndex(rows_of([whole] * 5 + references)).search({0: rows_of([whole])}, best=4)
    assert votes.reference.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_order_of_references_changes_nothing(references, queries, seed):
    order = np.random.default_rng(seed).permutation(len(references))
    views = views_of(queries)
    expected = LocalIndex(rows_of(references)).search(views, least=0, best=100)
    got = LocalIndex(rows_of([references[i] for i in order])).search(views, least=0, best=100)

    def answers(votes, reference):
        return sorted(zip(votes.query, reference, votes.score, votes.view, strict=True))

    assert answers(got, order[got.reference]) == answers(expected, expected.reference)


def test_images_without_features_have_no_candidates(references):
    small = local_features(np.zeros((10, 10, 3), np.uint8))
    votes = LocalIndex(rows_of([small, *references])).search({0: rows_of([small, references[2]])})
    assert set(votes.query) == {1}
    assert votes.reference[0] == 3
    assert len(LocalIndex(rows_of([small])).search({0: rows_of(references)})) == 0


def test_patches_without_a_common_place_do_not_count(references):
    rows = rows_of(references)
    mixed = rows.keypoints.copy()
    rng = np.random.default_rng(0)
    mixed[:, :2] = rng.uniform(0, 250, (len(mixed), 2))
    mixed[:, 3] = rng.uniform(0, 360, len(mixed))
    votes = LocalIndex(rows).search({0: FeatureRows(rows.descriptors, mixed, rows.starts)}, least=0)
    assert votes.score.max() < 15


def test_a_patch_of_many_images_weighs_less(references):
    query = {0: rows_of(references[:1])}
    once = LocalIndex(rows_of(references)).search(query).score[0]
    often = LocalIndex(rows_of([references[0]] * 80)).search(query).score[0]
    assert often == pytest.approx(once / 2, rel=0.1)


def random_descriptors(n, seed=0):
    values = np.random.default_rng(seed).exponential(35, (n, 128))
    return np.minimum(values, 255).astype(np.uint8)


@pytest.mark.parametrize("numpy_1", [False, True])
def test_distance_counts_bits(monkeypatch, numpy_1):
    if numpy_1:
        monkeypatch.delattr(np, "bitwise_count", raising=False)
    first, _ = binary_codes(random_descriptors(100, 1))
    second, _ = binary_codes(random_descriptors(100, 2))
    expected = np.unpackbits((first ^ second).view(np.uint8), axis=1).sum(axis=1)
    np.testing.assert_array_equal(votes._distance(first, second), expected)


def test_similar_pairs_are_true_and_most_are_found():
    stored = random_descriptors(3000)
    rng = np.random.default_rng(5)
    near = np.clip(stored[:500] + rng.integers(-10, 11, (500, 128)), 0, 255).astype(np.uint8)
    mine, theirs, bits = CodeIndex(stored).similar(near)
    a, _ = binary_codes(near)
    b, _ = binary_codes(stored)
    distance = np.unpackbits((a[:, None] ^ b[None]).view(np.uint8), axis=2).sum(axis=2)
    np.testing.assert_array_equal(bits, distance[mine, theirs])
    assert bits.max() <= 24
    alike = set(zip(*np.nonzero(distance <= 16), strict=True))
    assert len(alike) > 300
    assert len(alike & set(zip(mine, theirs, strict=True))) > 0.9 * len(alike)


@pytest.mark.parametrize(("copies", "found"), [(256, True), (257, False)])
def test_frequent_words_are_ignored(copies, found):
    stored = np.repeat(random_descriptors(1), copies, axis=0)
    mine, theirs, _ = CodeIndex(stored).similar(stored[:1])
    assert bool(len(mine)) == found
    assert len(set(theirs)) == (copies if found else 0)
