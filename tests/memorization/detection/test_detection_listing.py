"""Two lists of prompts as one: labels, groups, what is left out."""

from __future__ import annotations

import pytest

from visleak.errors import UsageError
from visleak.memorization.detection.records import listing_of
from visleak.memorization.prompts import Prompts


def test_a_list_alone() -> None:
    prompts = Prompts(("a", "b", "c"), (True, None, False), (("u",), ("u", "v"), ()))
    found = listing_of(prompts)
    assert found.kinds == ["memorized", "prompts", "not memorized"]
    assert found.memorized.tolist() == [True, False, False]
    assert found.ordinary.tolist() == [False, False, True]
    assert found.groups[0] == found.groups[1] != found.groups[2]
    by, positive = found.by, found.told_apart[0]
    assert (by, positive.tolist()) == ("labels", [True, False, False])


def test_a_general_list_beside_it() -> None:
    found = listing_of(Prompts(("a", "b")), Prompts(("c", "a", "d"), sources=(("w",), (), ("w",))))
    assert found.texts == ("a", "b", "c", "d")
    assert found.kinds == ["prompts", "prompts", "general", "general"]
    assert found.groups[2] == found.groups[3]
    assert len(set(found.groups.tolist())) == 3
    assert found.notes == ("1 general prompt is in the list too, and count as the list's",)
    by, positive = found.by, found.told_apart[0]
    assert (by, positive.tolist()) == ("lists", [True, True, False, False])


def test_labels_of_the_list_come_before_the_lists() -> None:
    found = listing_of(Prompts(("a", "b", "c"), (True, None, False)), Prompts(("d",)))
    by, positive = found.by, found.told_apart[0]
    assert (by, positive.tolist()) == ("labels", [True, False, False, False])
    assert found.ordinary.tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("prompts", "general", "said"),
    [
        (Prompts((), origin="x.csv"), None, "prompts x.csv: there is none to score"),
        (
            Prompts(("a",)),
            Prompts(("b", "c"), (True, None), origin="g.csv"),
            "general g.csv: 1 of its prompts are labelled memorized; give ordinary prompts only",
        ),
        (Prompts(("a", "b")), Prompts(("a",), origin="g.csv"), "general g.csv: no prompt in it"),
    ],
)
def test_lists_that_cannot_be(prompts: Prompts, general: Prompts | None, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        listing_of(prompts, general)
    assert said in str(raised.value)
