"""From evidence to verdicts: who is exact, near, similar, different, and nobody."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.grading import Grader, grade
from visleak.grading.model import Scale, Scales
from visleak.records import GRADES, Evidence
from visleak.verification.measures import CHECKS

NAN = float("nan")

#: Near where gradients agree, similar where grey values do.
GRADER = Grader(
    tiny=Scales(Scale(-10.0, {"gradient": 10.0}), Scale(-10.0, {"grey": 10.0})),
    large=Scales(Scale(-10.0, {"gradient": 10.0}), Scale(-10.0, {"grey": 10.0})),
    screened=Scale(-9.0, {}),
    near_at=0.5,
    digest="d",
    provenance="p",
)

SEEN = {"screen": 0.8, "side": 32, "within": 0.96, "gain": 1, "offset": 0, "tint": 0, "patch": 4}
SEEN |= {"query_ratio": 1.0, "reference_ratio": 1.0}


def verdicts(*rows, equal=(), flat=(), skipped=None):
    """Return grades of pairs with some checks; the others are 0."""
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
    """By pixels, by edges, by grey values, by nothing."""
    found = verdicts(
        {**SEEN, "exact": 1, "gradient": 1.2},
        {**SEEN, "gradient": 0.95},
        {**SEEN, "grey": 0.95, "patch": 40},
        {**SEEN, "gradient": 0.1},
    )
    assert names(found) == ["exact", "near", "similar", "different"]
    assert found.probability[0] >= 0.999
    assert found.probability[1] > 0.5 > found.probability[2]
    for reason, word in zip(
        found.reason, ("encoded again", "same shot", "similar", "do not agree"), strict=True
    ):
        assert word in reason


def test_equal_bytes_need_no_look():
    """Exact with certainty, though nothing was measured."""
    nothing = dict.fromkeys(("screen", *CHECKS), NAN)
    found = verdicts(nothing, equal=[0])
    assert names(found) == ["exact"]
    assert found.probability[0] == 1
    assert found.reason == ("identical bytes",)


def test_a_picture_that_cannot_be_decoded_again_has_no_grade():
    """Neither a probability."""
    found = verdicts(dict.fromkeys(("screen", *CHECKS), NAN))
    assert names(found) == [None]
    assert np.isnan(found.probability[0])
    assert found.reason == ("an image could not be decoded again",)


def test_skipped_pairs_have_no_grade_and_say_why():
    """Unless their bytes are equal; the others are graded as ever."""
    rows = [{**SEEN, "gradient": 0.95}] * 5
    found = verdicts(*rows, equal=[4], skipped=[0, 1, 2, 3, 1])
    assert names(found) == ["near", None, None, None, "exact"]
    assert np.isnan(found.probability[1:4]).all()
    assert len(set(found.reason[1:4])) == 3
    assert all(reason.startswith("not verified") for reason in found.reason[1:4])


def test_what_the_screen_let_go_is_different():
    """With the small probability that such pairs have."""
    found = verdicts({**dict.fromkeys(CHECKS, NAN), "screen": 0.1})
    assert names(found) == ["different"]
    assert found.probability[0] == pytest.approx(1 / (1 + np.exp(9)), rel=1e-3)
    assert found.reason == ("no shift of this view brings the edges together",)


def test_blank_pictures_are_exact_or_similar_never_near():
    """Two white pages are not a leak to act on."""
    found = verdicts(
        {**SEEN, "gradient": 0.99}, {**SEEN, "gradient": 0.99, "exact": 1}, flat=[0, 1]
    )
    assert names(found) == ["similar", "exact"]
    assert found.probability.tolist() == [0, 1]
    assert found.reason[0] == "both are blank; only the colour can be compared"


def test_the_transform_is_told_for_near_and_similar():
    """And not for pairs that have nothing to do with each other."""
    brighter = {"gain": 1.0, "offset": 30.0}
    found = verdicts({**SEEN, **brighter, "gradient": 0.95}, {**SEEN, **brighter, "gradient": 0.1})
    assert found.transform == ("brighter", "")
    assert found.reason[0] == "same shot, brighter; 96 % of the overlap agrees"
