"""Relations by local features: planted turns, crops, mirrors and inversions are found."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.records import VIEWS
from visleak.verification import features as module
from visleak.verification.align import shift_matrix, view_matrix
from visleak.verification.features import by_features, describe

CORNERS = np.array([[0, 1, 0, 1, 0.5], [0, 0, 1, 1, 0.5], [1, 1, 1, 1, 1.0]])


def moved(matrix, points=CORNERS):
    there = matrix @ points
    return there[:2] / there[2]


def assert_alike(found, planted, tolerance):
    """The centre and the corners land within a share of the side of where they should."""
    assert found is not None
    assert np.abs(moved(found.matrix) - moved(planted)).max() < tolerance


def shrunk(picture, long=256):
    ratio = long / max(picture.shape[:2])
    return cv2.resize(picture, None, fx=ratio, fy=ratio, interpolation=cv2.INTER_AREA)


def pixels_to_units(width, height):
    return np.array([[1 / width, 0, 0.5 / width], [0, 1 / height, 0.5 / height], [0, 0, 1]])


def rotated_and_cut(picture, degrees, cut):
    """Return the image turned about its middle with a border cut off, and the unit matrix."""
    height, width = picture.shape[:2]
    turn = np.vstack([cv2.getRotationMatrix2D((width / 2, height / 2), -degrees, 1), [0, 0, 1]])
    there = cv2.warpAffine(picture, turn[:2], (width, height))[cut:-cut, cut:-cut]
    pixels = np.array([[1.0, 0, -cut], [0, 1, -cut], [0, 0, 1]]) @ turn
    planted = pixels_to_units(there.shape[1], there.shape[0]) @ pixels
    return there, planted @ np.linalg.inv(pixels_to_units(width, height))


@pytest.mark.parametrize("name", ["astronaut", "chelsea", "coffee", "coins", "brick"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_features_find_a_turned_crop(natural, name, mirrored):
    """45 degrees, a fifth cut off all around, mirrored or not, in any aspect ratio."""
    query = shrunk(natural[name])
    source = np.ascontiguousarray(query[:, ::-1]) if mirrored else query
    reference, planted = rotated_and_cut(source, 45, min(source.shape[:2]) // 8)
    if mirrored:
        planted = planted @ view_matrix(VIEWS.index("mirror"))
    assert_alike(by_features(query, reference), planted, 0.02)


@pytest.mark.parametrize("name", ["astronaut", "coffee", "coins"])
def test_features_find_a_crop_enlarged(natural, name):
    """The middle at almost twice the scale, mirrored: what screens and correlation miss."""
    query = shrunk(natural[name])
    height, width = query.shape[:2]
    y, x = height // 5, width // 6
    part = query[y : height - y, x : width - x][:, ::-1]
    reference = cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC)
    scale = np.diag([width / (width - 2 * x), height / (height - 2 * y), 1.0])
    planted = view_matrix(4) @ scale @ shift_matrix(-x / width, -y / height)
    assert_alike(by_features(query, reference), planted, 0.02)


def test_features_of_the_unrelated_agree_on_nothing(natural):
    """No relation between different images."""
    names = ["astronaut", "chelsea", "coffee", "rocket", "moon", "coins", "brick"]
    pictures = [shrunk(natural[name]) for name in names]
    found = [
        (names[i], names[j])
        for i in range(len(names))
        for j in range(len(names))
        if i != j and by_features(pictures[i], pictures[j]) is not None
    ]
    assert found == []


def test_features_of_small_or_blank_pictures(natural):
    """Too few pixels or no texture: none, without an exception."""
    whole = shrunk(natural["astronaut"])
    blank = np.full_like(whole, 128)
    small = np.ascontiguousarray(whole[: module.SMALLEST - 1])
    for pair in ((whole, small), (small, whole), (whole, blank), (blank, whole), (blank, blank)):
        assert by_features(*pair) is None


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("inverted", [False, True])
def test_features_see_every_view(natural, mirrored, inverted):
    """Mirrored, inverted or both: found without being told, and told which."""
    picture = shrunk(natural["coffee"])
    query = np.ascontiguousarray(picture[:, ::-1]) if mirrored else picture
    found = by_features(255 - query if inverted else query, picture)
    planted = view_matrix(VIEWS.index("mirror")) if mirrored else np.eye(3)
    assert_alike(found, planted, 0.01)
    assert found.inverted == inverted


def test_the_likely_view_comes_first(natural):
    """An image and its mirror image side by side match in both; the hint decides."""
    half = shrunk(natural["astronaut"])
    both = np.concatenate([half, half[:, ::-1]], axis=1)
    plain = by_features(half, both)
    hinted = by_features(half, both, mirrored=True)
    assert np.linalg.det(plain.matrix) > 0
    assert np.linalg.det(hinted.matrix) < 0


def test_mirrored_features_are_those_of_the_mirrored_picture(natural):
    """Permuted descriptors against those of permuted pixels: the nearest is at the same place."""
    picture = shrunk(natural["coffee"])
    for changed, flags in (
        (np.ascontiguousarray(picture[:, ::-1]), (True, False)),
        (255 - picture, (False, True)),
    ):
        own, there = module._seen(describe(picture), *flags), describe(changed)
        place = np.hypot(*(own.points[:, None] - there.points[None]).transpose(2, 0, 1))
        words = ((own.words[:, None] - there.words[None]) ** 2).sum(axis=2)
        rows = np.arange(len(words))
        same = place[rows, words.argmin(axis=1)] < 1.5
        assert same.mean() > 0.8
