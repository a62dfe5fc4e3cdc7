"""Transforms and reasons in words."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.grading import verdict
from visleak.records import GRADES, Grade
from visleak.verification.align import view_matrix

UNCHANGED = {
    "gain": 1.0,
    "offset": 0.0,
    "tint": 0.0,
    "within": 0.96,
    "patch": 30.0,
    "gradient": 0.2,
}
UNCHANGED |= {"query_ratio": 1.0, "reference_ratio": 1.0, "close_side": -1.0, "identical": 0.0}
FINE = {"close_side": 600.0, "altered_places": 0.0, "places": 0.0, "opposed": 0.0, "colour": 1.0}


def about_centre(linear):
    """Return the relation with a linear part that does not move the centre."""
    matrix = np.eye(3)
    matrix[:2, :2] = linear
    matrix[:2, 2] = 0.5 - matrix[:2, :2] @ [0.5, 0.5]
    return matrix


def turn(degrees):
    angle = np.radians(degrees)
    return [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (np.eye(3), []),
        (view_matrix(1), ["turned 90° clockwise"]),
        (view_matrix(3), ["turned 90° anticlockwise"]),
        (view_matrix(4), ["mirrored"]),
        (view_matrix(6), ["flipped top to bottom"]),
        (about_centre(turn(45)), ["turned 45° clockwise"]),
        (about_centre(np.eye(2) / 0.9), ["cropped to 81 %"]),
        (about_centre(np.eye(2) * 0.5), ["shown at 50 % size"]),
        (np.array([[1, 0, 0.1], [0, 1, 0], [0, 0, 1.0]]), ["shifted by 10 %"]),
        (about_centre(np.diag([1.3, 1.0])), ["stretched 1.30 to 1", "cropped to 77 %"]),
        (np.array([[1, 0, 0.01], [0, 1, -0.01], [0, 0, 1.0]]), []),
    ],
)
def test_geometry(matrix, expected):
    assert verdict.geometry(matrix) == expected


def test_a_turned_oblong_image_is_not_stretched_and_a_squeezed_one_is():
    ratio = 4 / 3
    shape = np.diag([ratio, 1.0])
    turned = about_centre(np.linalg.inv(shape) @ turn(-45) @ shape)
    assert verdict.geometry(turned, (ratio, ratio)) == ["turned 45° anticlockwise"]
    assert verdict.geometry(view_matrix(1), (ratio, 1 / ratio)) == ["turned 90° clockwise"]
    assert verdict.geometry(np.eye(3), (ratio, ratio)) == []
    assert verdict.geometry(np.eye(3), (1.0, ratio)) == ["stretched 1.33 to 1"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"offset": 20.0}, ["brighter"]),
        ({"offset": -20.0}, ["darker"]),
        ({"gain": 1.5, "offset": -64.0}, ["more contrast"]),
        ({"gain": 0.5, "offset": 64.0}, ["less contrast"]),
        ({"tint": 40.0}, ["other colours"]),
        ({"offset": 20.0, "tint": 40.0}, ["brighter", "other colours"]),
    ],
)
def test_colours(change, expected):
    assert verdict.colours({**UNCHANGED, **change}, inverted=False) == expected


def test_the_brightness_of_inverted_images_is_not_compared():
    assert verdict.colours({**UNCHANGED, "offset": 50.0}, inverted=True) == ["inverted"]


def test_the_reason_of_a_near_pair_contains_its_transform():
    matrix = view_matrix(4) @ about_centre(np.eye(2) / 0.9)
    changes = verdict.transform(matrix, {**UNCHANGED, "offset": 20.0}, False)
    assert changes == "mirrored, cropped to 81 %, brighter"
    reason = verdict.reason(GRADES.index(Grade.NEAR), changes, UNCHANGED)
    assert changes in reason
    assert "96 %" in reason


@pytest.mark.parametrize(
    ("measured", "weakest", "words"),
    [
        ({"altered_places": 2.0}, "unchanged", "2 places"),
        ({"opposed": 0.4}, "unchanged", "40 %"),
        ({"colour": 0.3}, "unchanged", "colours"),
        ({"colour": 0.3}, "shared", "too little"),
        ({}, "unchanged", "too little"),
    ],
)
def test_the_reason_of_a_similar_pair_is_the_measure_that_decided(measured, weakest, words):
    assert words in verdict.reason(GRADES.index(Grade.SIMILAR), "", FINE | measured, weakest)


@pytest.mark.parametrize(("windows", "words"), [(1.0, "too little"), (9.0, "does not agree")])
def test_the_reason_of_a_different_pair_is_its_detail(windows, words):
    check = FINE | {"windows": windows, "matched": 0.1}
    assert words in verdict.reason(GRADES.index(Grade.DIFFERENT), "", check)
