"""From evidence to grades: exact, near, similar, different, or not verified."""

import numpy as np
import pytest

from visleak.grading import Grader, grade, verdict
from visleak.grading.model import Logistic, PairModels
from visleak.records import GRADES, Evidence, Grade
from visleak.verification.align import view_matrix
from visleak.verification.measures import CHECKS

#: Near if gradients agree, similar if grey values do.
SCALES = PairModels(Logistic(-10.0, {"gradient": 10.0}), Logistic(-10.0, {"grey": 10.0}))
GRADER = Grader(SCALES, SCALES, Logistic(-9.0, {}), near_at=0.5, digest="d", provenance="p")

CHECKED = {"screen": 0.8, "side": 32, "within": 0.96, "gain": 1, "offset": 0, "tint": 0, "patch": 4}
CHECKED |= {"query_ratio": 1.0, "reference_ratio": 1.0}
MISSING = dict.fromkeys(("screen", *CHECKS), np.nan)


def verdicts(*rows, equal=(), flat=(), skipped=None):
    """Return grades of pairs with some measures; the others are 0."""
    names = ("screen", "across", "down", *CHECKS)
    checks = {n: np.array([row.get(n, 0.0) for row in rows], np.float32) for n in names}
    matrix = np.tile(np.eye(3, dtype=np.float32).ravel(), (len(rows), 1))
    marks = [np.isin(np.arange(len(rows)), chosen) for chosen in (equal, flat)]
    zeros = np.zeros(len(rows), np.float32)
    evidence = Evidence(checks, matrix, None if skipped is None else np.array(skipped, np.int8))
    return grade(zeros, zeros, evidence, equal_bytes=marks[0], flat=marks[1], grader=GRADER)


def names(grades):
    return [GRADES[number] if number >= 0 else None for number in grades.grade]


def test_each_grade():
    found = verdicts(
        {**CHECKED, "exact": 1, "gradient": 1.2},
        {**CHECKED, "gradient": 0.95},
        {**CHECKED, "grey": 0.95, "patch": 40},
        {**CHECKED, "gradient": 0.1},
    )
    assert names(found) == ["exact", "near", "similar", "different"]
    assert found.probability[0] >= 0.999
    assert found.probability[1] > 0.5 > found.probability[2]
    words = ("encoded again", "same shot", "similar", "do not agree")
    assert all(word in reason for word, reason in zip(words, found.reason, strict=True))


def test_equal_bytes_are_exact_without_measures_and_lost_images_have_no_grade():
    found = verdicts(MISSING, MISSING, equal=[0])
    assert names(found) == ["exact", None]
    assert found.probability[0] == 1
    assert np.isnan(found.probability[1])
    assert found.reason[0] == "identical bytes"
    assert "decoded" in found.reason[1]


def test_skipped_pairs_have_no_grade_unless_their_bytes_are_equal():
    rows = [{**CHECKED, "gradient": 0.95}] * 5
    found = verdicts(*rows, equal=[4], skipped=[0, 1, 2, 3, 1])
    assert names(found) == ["near", None, None, None, "exact"]
    assert np.isnan(found.probability[1:4]).all()
    assert len(set(found.reason[1:4])) == 3
    assert all(reason.startswith("not verified") for reason in found.reason[1:4])


def test_pairs_that_the_screen_rejected_are_different():
    found = verdicts({**MISSING, "screen": 0.1})
    assert names(found) == ["different"]
    assert found.probability[0] == pytest.approx(1 / (1 + np.exp(9)), rel=1e-3)
    assert "align" in found.reason[0]


def test_blank_images_are_exact_or_similar_and_never_near():
    rows = {**CHECKED, "gradient": 0.99}, {**CHECKED, "gradient": 0.99, "exact": 1}
    found = verdicts(*rows, flat=[0, 1])
    assert names(found) == ["similar", "exact"]
    assert found.probability.tolist() == [0, 1]
    assert "blank" in found.reason[0]


def test_near_and_similar_pairs_have_a_transform():
    brighter = {**CHECKED, "gain": 1.0, "offset": 30.0, "tint": 40.0}
    found = verdicts({**brighter, "gradient": 0.95}, {**brighter, "gradient": 0.1})
    assert found.transform == ("brighter, other colours", "")
    assert found.transform[0] in found.reason[0]
    assert "96 %" in found.reason[0]


UNCHANGED = {"gain": 1.0, "offset": 0.0, "tint": 0.0}
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
        (view_matrix(6), ["flipped top to bottom"]),
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
    ("change", "inverted", "expected"),
    [
        ({"offset": -20.0}, False, ["darker"]),
        ({"gain": 1.5, "offset": -64.0}, False, ["more contrast"]),
        ({"gain": 0.5, "offset": 64.0}, False, ["less contrast"]),
        ({"offset": 20.0, "tint": 40.0}, False, ["brighter", "other colours"]),
        ({"offset": 50.0}, True, ["inverted"]),
    ],
)
def test_colours(change, inverted, expected):
    assert verdict.colours({**UNCHANGED, **change}, inverted) == expected


@pytest.mark.parametrize(
    ("grade", "measured", "weakest", "words"),
    [
        (Grade.SIMILAR, {"altered_places": 2.0}, "unchanged", "2 places"),
        (Grade.SIMILAR, {"opposed": 0.4}, "unchanged", "40 %"),
        (Grade.SIMILAR, {"colour": 0.3}, "unchanged", "colours"),
        (Grade.SIMILAR, {"colour": 0.3}, "shared", "too little"),
        (Grade.DIFFERENT, {"windows": 1.0}, "", "too little"),
        (Grade.DIFFERENT, {"windows": 9.0, "matched": 0.1}, "", "does not agree"),
    ],
)
def test_the_reason_is_the_measure_that_decided(grade, measured, weakest, words):
    assert words in verdict.reason(GRADES.index(grade), "", FINE | measured, weakest)
