"""The screen: planted shifts, views and changes of light; unrelated images."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.records import VIEWS
from visleak.verification import screen as module
from visleak.verification.placements import matrix_of, place
from visleak.verification.screen import REACH, SIDE, apply_view, screen, thumbnail


@pytest.fixture(scope="module")
def wide(natural):
    """Return grey images larger than thumbnails, to crop shifted ones."""
    side = SIDE + 2 * REACH
    small = [cv2.resize(p, (side, side), interpolation=cv2.INTER_AREA) for p in natural.values()]
    return np.stack([cv2.cvtColor(p, cv2.COLOR_RGB2GRAY) for p in small])


def middle(wide, across=0, down=0):
    """Return the middle, with its content shifted right and down."""
    return np.ascontiguousarray(
        wide[:, REACH - down : REACH - down + SIDE, REACH - across : REACH - across + SIDE]
    )


def original(count):
    return np.zeros(count, np.int8)


@pytest.mark.parametrize(
    ("across", "down"), [(0, 0), (3, 0), (0, 3), (-4, 2), (8, -8), (-8, 5), (1, 1), (7, 7)]
)
def test_planted_shifts_are_found(wide, across, down):
    query, reference = middle(wide), middle(wide, across, down)
    score, shift = screen(query, reference, original(len(wide)))
    np.testing.assert_array_equal(shift, [[across, down]] * len(wide))
    assert score.min() > 0.6 * (1 - abs(across) / SIDE) * (1 - abs(down) / SIDE) + 0.2


@pytest.mark.parametrize("first", range(3))
def test_each_pair_is_compared_in_its_own_view(wide, first):
    query = middle(wide)
    view = ((first + np.arange(len(wide))) % len(VIEWS)).astype(np.int8)
    reference = np.stack([apply_view(one, int(v)) for one, v in zip(query, view, strict=True)])
    score, shift = screen(query, reference, view)
    np.testing.assert_allclose(score, 1, atol=1e-4)
    assert not shift.any()
    turned = view > 0
    assert (screen(query, reference, original(len(wide)))[0] < score - 0.2)[turned].all()


@pytest.mark.parametrize(("gain", "offset"), [(1.0, 40), (0.6, 60), (0.8, -5), (0.5, 0)])
def test_light_changes_little(wide, gain, offset):
    query = middle(wide)
    bright = np.clip(query * gain + offset, 0, 255).astype(np.uint8)
    score, shift = screen(query, bright, original(len(wide)))
    assert score.min() > 0.85
    assert not shift.any()


def test_unrelated_images_score_low(wide):
    query = middle(wide)
    n = len(query)
    first, second = np.nonzero(~np.eye(n, dtype=bool))
    score, _ = screen(query[first], query[second], original(len(first)))
    assert score.max() < 0.45
    assert np.median(score) < 0.25


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 9))
def test_batches_change_nothing(seed, count, batch):
    rng = np.random.default_rng(seed)
    query, reference = rng.integers(0, 256, (2, count, SIDE, SIDE), np.uint8)
    view = rng.integers(0, 9, count).astype(np.int8)
    score, shift = screen(query, reference, view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH", batch)
        again, shift_again = screen(query, reference, view)
    np.testing.assert_array_equal(score, again)
    np.testing.assert_array_equal(shift, shift_again)
    assert np.abs(score).max() <= 1 + 1e-4


def test_the_score_is_the_normalised_correlation(wide):
    rng = np.random.default_rng(1)
    query, reference = middle(wide)[:2], rng.integers(0, 256, (2, SIDE, SIDE), np.uint8)
    score, shift = screen(query, reference, original(2))
    for n in range(2):
        a, b = (
            module.damped_gradient(one[n : n + 1])[0].astype(complex) for one in (query, reference)
        )
        best = max(
            (slow_score(a, b, across, down), -down, -across)
            for down in range(-REACH, REACH + 1)
            for across in range(-REACH, REACH + 1)
        )
        assert score[n] == pytest.approx(best[0], abs=1e-4)
        assert slow_score(a, b, *map(int, shift[n])) == pytest.approx(best[0], abs=1e-4)


def slow_score(a, b, across, down):
    """Correlate the parts that overlap if b's content is shifted relative to a's."""

    def cut(plane, right, below):
        return plane[max(0, below) : SIDE + min(0, below), max(0, right) : SIDE + min(0, right)]

    first, second = cut(a, -across, -down), cut(b, across, down)
    energy = (np.abs(first) ** 2).sum() * (np.abs(second) ** 2).sum()
    share = (1 - abs(across) / SIDE) * (1 - abs(down) / SIDE)
    return (np.conj(first) * second).real.sum() / np.sqrt(max(energy, 1e-6)) * np.sqrt(share)


@pytest.mark.parametrize("count", [0, 3])
def test_blank_images_and_no_images_score_nothing(count):
    blank = np.full((count, SIDE, SIDE), 90, np.uint8)
    score, shift = screen(blank, blank, original(count))
    np.testing.assert_array_equal(score, np.zeros(count))
    assert shift.shape == (count, 2)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (32, 32), (31, 200), (700, 400)])
def test_thumbnails_of_any_shape(shape):
    pixels = np.random.default_rng(2).integers(0, 256, (*shape, 3), np.uint8)
    got = thumbnail(pixels)
    assert (got.shape, got.dtype) == ((SIDE, SIDE), np.uint8)
    if shape == (SIDE, SIDE):
        np.testing.assert_array_equal(got, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))


@pytest.fixture(scope="module")
def greys(natural):
    """Return grey images large enough to be cropped."""
    size = (128, 128)
    small = [cv2.resize(p, size, interpolation=cv2.INTER_AREA) for p in natural.values()]
    return [cv2.cvtColor(p, cv2.COLOR_RGB2GRAY) for p in small]


def tiny(grey):
    return cv2.resize(np.ascontiguousarray(grey), (SIDE, SIDE), interpolation=cv2.INTER_AREA)


def scores_of(query, references):
    """Return the scores of a query with each of some references."""
    queries = np.repeat(tiny(query)[None], len(references), axis=0)
    thumbnails = np.stack([tiny(reference) for reference in references])
    return place(queries, thumbnails, np.zeros(len(references), np.int8))[0]


def best(query, reference, view=0):
    """Return the score and the relation of one pair."""
    score, found = place(tiny(query)[None], tiny(reference)[None], np.array([view], np.int8))
    return float(score[0]), matrix_of(tuple(found[0].tolist()))


@pytest.mark.parametrize("share", [0.7, 0.8, 0.9])
def test_crops_either_way(greys, share):
    """The placement scales the query by the crop, except for fine textures."""
    side = round(128 * share)
    for forwards in (True, False):
        scores, scales = [], []
        for grey in greys:
            cropped = grey[128 - side :, :side]
            score, matrix = best(grey, cropped) if forwards else best(cropped, grey)
            scores.append(score)
            scales.append(matrix[0, 0])
        assert np.quantile(scores, 0.25) > 0.4
        assert np.median(scales) == pytest.approx(1 / share if forwards else share, rel=0.13)


@pytest.mark.parametrize("margins", [(16, 16), (24, 0), (0, 24)])
def test_borders_and_letterboxes(greys, margins):
    down, across = margins
    for forwards in (True, False):
        scores = []
        for grey in greys:
            framed = np.pad(grey, ((down, down), (across, across)), constant_values=30)
            scores.append(best(framed, grey)[0] if forwards else best(grey, framed)[0])
        assert np.quantile(scores, 0.25) > 0.4


def garments(count):
    """Return grey images of one silhouette with different fine patterns."""
    rng = np.random.default_rng(0)
    outline = np.zeros((128, 128), np.float32)
    cv2.ellipse(outline, (64, 64), (36, 54), 0, 0, 360, 140, -1)
    made = []
    for _ in range(count):
        coarse = rng.normal(size=(32, 32)).astype(np.float32)
        pattern = 20 * cv2.resize(coarse, (128, 128), interpolation=cv2.INTER_CUBIC)
        made.append(np.clip(40 + outline + pattern * (outline > 0), 0, 255).astype(np.uint8))
    return made


def test_crops_rank_their_originals_first():
    side, images, ranks = round(128 * 0.7), garments(60), []
    for number, grey in enumerate(images):
        top, left = divmod(7 * number % 1521, 39)
        scores = scores_of(grey[top : top + side, left : left + side], images)
        ranks.append(int((scores > scores[number]).sum()))
    assert np.mean(np.array(ranks) == 0) >= 0.95, ranks


@pytest.mark.parametrize("view", range(len(VIEWS)))
def test_the_score_of_a_crop_does_not_depend_on_its_view(greys, view):
    for grey in greys[:3]:
        cropped = grey[:96, 20:116]
        plain, still = best(grey, cropped)
        score, matrix = best(grey, apply_view(cropped[None], view)[0], view)
        assert score == pytest.approx(plain, abs=0.05)
        assert matrix[0, 0] == pytest.approx(still[0, 0], abs=0.01)


def test_a_score_does_not_depend_on_the_other_pairs(greys):
    thumbnails = np.stack([tiny(grey) for grey in greys])
    query = np.repeat(thumbnails, len(greys), axis=0)
    reference = np.tile(thumbnails, (len(greys), 1, 1))
    view = np.arange(len(query)).astype(np.int8) % len(VIEWS)
    together = place(query, reference, view)
    for row in range(0, len(query), 5):
        part = slice(row, row + 1)
        alone = place(query[part], reference[part], view[part])
        assert alone[0] == together[0][row]
        np.testing.assert_array_equal(alone[1][0], together[1][row])
