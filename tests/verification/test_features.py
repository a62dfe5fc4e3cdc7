"""Local features: planted rotations, crops, mirrors and inversions are found."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest

from image_changes import grey, largest_distance
from visleak.records import VIEWS
from visleak.verification.align import shift_matrix, unit_to_pixels, view_matrix
from visleak.verification.features import SMALLEST, equalized, match_features

MIRROR = view_matrix(VIEWS.index("mirror"))


@pytest.fixture(scope="module")
def images(natural):
    """Return images with a long side of 256 pixels."""
    return {
        name: cv2.resize(image, None, fx=ratio, fy=ratio, interpolation=cv2.INTER_AREA)
        for name, image in natural.items()
        for ratio in [256 / max(image.shape[:2])]
    }


def rotated_and_cropped(image, degrees, border):
    """Return an image turned about its centre, without a border, and the relation."""
    height, width = image.shape[:2]
    turn = np.vstack([cv2.getRotationMatrix2D((width / 2, height / 2), -degrees, 1), [0, 0, 1]])
    there = cv2.warpAffine(image, turn[:2], (width, height))[border:-border, border:-border]
    pixels = np.array([[1.0, 0, -border], [0, 1, -border], [0, 0, 1]]) @ turn
    to_units = np.linalg.inv(unit_to_pixels(there.shape[1], there.shape[0]))
    return there, to_units @ pixels @ unit_to_pixels(width, height)


@pytest.mark.parametrize("name", ["astronaut", "chelsea", "coffee", "coins", "brick"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_rotated_crop_is_found(images, name, mirrored):
    query = images[name]
    source = np.ascontiguousarray(query[:, ::-1]) if mirrored else query
    reference, planted = rotated_and_cropped(source, 45, min(source.shape[:2]) // 8)
    found = match_features(query, reference)
    assert largest_distance(found.matrix, planted @ MIRROR if mirrored else planted) < 0.02


@pytest.mark.parametrize("name", ["astronaut", "coffee", "coins"])
def test_a_mirrored_crop_at_almost_twice_the_scale_is_found(images, name):
    query = images[name]
    height, width = query.shape[:2]
    y, x = height // 5, width // 6
    part = query[y : height - y, x : width - x][:, ::-1]
    reference = cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC)
    scale = np.diag([width / (width - 2 * x), height / (height - 2 * y), 1.0])
    planted = MIRROR @ scale @ shift_matrix(-x / width, -y / height)
    assert largest_distance(match_features(query, reference).matrix, planted) < 0.02


def test_unrelated_images_have_no_relation(images):
    names = ["astronaut", "chelsea", "coffee", "rocket", "moon", "coins", "brick"]
    pairs = itertools.permutations(names, 2)
    assert [pair for pair in pairs if match_features(*(images[name] for name in pair))] == []


def test_small_and_blank_images_have_no_relation(images):
    whole = images["astronaut"]
    blank, small = np.full_like(whole, 128), np.ascontiguousarray(whole[: SMALLEST - 1])
    for pair in ((whole, small), (small, whole), (whole, blank), (blank, whole), (blank, blank)):
        assert match_features(*pair) is None


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("inverted", [False, True])
def test_mirrored_and_inverted_images_are_found(images, mirrored, inverted):
    image = images["coffee"]
    query = np.ascontiguousarray(image[:, ::-1]) if mirrored else image
    found = match_features(255 - query if inverted else query, image)
    assert largest_distance(found.matrix, MIRROR if mirrored else np.eye(3)) < 0.01
    assert found.inverted == inverted


def test_the_likely_view_is_tried_first(images):
    half = images["astronaut"]
    both = np.concatenate([half, half[:, ::-1]], axis=1)
    assert np.linalg.det(match_features(half, both).matrix) > 0
    assert np.linalg.det(match_features(half, both, mirrored=True).matrix) < 0


def test_equalization_keeps_the_levels_of_an_image_in_shades_of_blue(images):
    blue = np.zeros_like(images["astronaut"])
    blue[..., 2] = grey(images["astronaut"])
    assert len(np.unique(np.rint(grey(blue)))) <= 30
    assert len(np.unique(equalized(blue))) > 150
