"""The screen of tiny images: crops, borders, letterboxes and views are found."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verification.placements import matrix_of, place
from visleak.verification.screen import SIDE, apply_view


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


def bordered(grey, down, across):
    return cv2.copyMakeBorder(grey, down, down, across, across, cv2.BORDER_CONSTANT, value=30)


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


@pytest.mark.parametrize("margins", [(16, 16), (24, 0), (0, 24)])
def test_borders_and_letterboxes(greys, margins):
    for forwards in (True, False):
        pairs = [(bordered(grey, *margins), grey)[:: 1 if forwards else -1] for grey in greys]
        scores = [best(*pair)[0] for pair in pairs]
        assert np.quantile(scores, 0.25) > 0.4


@pytest.mark.parametrize("view", range(len(VIEWS)))
def test_the_score_of_a_crop_does_not_depend_on_its_view(greys, view):
    for grey in greys[:3]:
        cropped = grey[:96, 20:116]
        plain, still = best(grey, cropped)
        score, matrix = best(grey, apply_view(cropped[None], view)[0], view)
        assert score == pytest.approx(plain, abs=0.05)
        assert matrix[0, 0] == pytest.approx(still[0, 0], abs=0.01)


def test_different_images_score_less(greys):
    scores = np.stack([scores_of(grey, greys) for grey in greys])[~np.eye(len(greys), dtype=bool)]
    assert np.median(scores) < 0.45
    assert scores.max() < 0.8


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
