"""What was done to an image, in words."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.grading import verdict
from visleak.verification.align import view_matrix

STILL = {"gain": 1.0, "offset": 0.0, "tint": 0.0, "within": 0.9, "patch": 30.0, "gradient": 0.2}
STILL |= {"query_ratio": 1.0, "reference_ratio": 1.0, "close_side": -1.0, "identical": 0.0}


def about_centre(linear):
    """Return the relation with a linear part that leaves the centre where it is."""
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
    """From the relation of query to reference."""
    assert verdict.geometry(matrix) == expected


def test_turns_of_oblong_pictures_do_not_stretch():
    """In unit coordinates they would; an image squeezed to a square is stretched indeed."""
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
    """From the fitted light."""
    assert verdict.colours({**STILL, **change}, inverted=False) == expected


def test_an_inverted_picture_is_called_so():
    """Its brightness is not compared: it is another one anyway."""
    assert verdict.colours({**STILL, "offset": 50.0}, inverted=True) == ["inverted"]


def test_a_reason_is_one_line_for_a_person():
    """As the design gives it."""
    matrix = view_matrix(4) @ about_centre(np.eye(2) / 0.9)
    changes = verdict.transform(matrix, {**STILL, "offset": 20.0}, False)
    assert verdict.reason(1, changes, {**STILL, "within": 0.96}) == (
        "same shot, mirrored, cropped to 81 %, brighter; 96 % of the overlap agrees"
    )
