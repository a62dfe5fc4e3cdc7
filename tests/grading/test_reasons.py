"""What is said of a similar pair: the measurement that decided, never one that speaks for it."""

from __future__ import annotations

import pytest

from visleak.grading.verdict import reason
from visleak.records import GRADES, Grade

CHECK = {"close_side": 600.0, "altered_places": 0.0, "places": 0.0, "opposed": 0.0, "colour": 1.0}


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"altered_places": 2.0}, "2 places"),
        ({"opposed": 0.4}, "40 %"),
        ({"colour": 0.3}, "colours"),
        ({}, "too little to be sure"),
    ],
)
def test_a_similar_pair_is_explained_by_what_speaks_against_it(measured, words):
    said = reason(GRADES.index(Grade.SIMILAR), "", CHECK | measured, "unchanged")
    assert words in said
    assert not said.startswith("0 %")


def test_colours_are_named_only_where_they_can_have_decided():
    said = reason(GRADES.index(Grade.SIMILAR), "", CHECK | {"colour": 0.3}, "shared")
    assert "colours" not in said
