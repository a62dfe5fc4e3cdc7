"""Lists of prompts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import VisleakError
from visleak.memorization import Prompts


@given(st.lists(st.frozensets(st.integers(0, 9), max_size=3), min_size=1, max_size=15))
def test_groups_are_the_closure_of_sharing(images):
    prompts = Prompts(
        tuple(f"p{number}" for number in range(len(images))),
        sources=tuple(tuple(map(str, each)) for each in images),
    )
    merged = []
    for number, each in enumerate(images):
        mine, seen = {number}, set(each)
        rest = []
        for members, names in merged:
            if names & seen:
                mine |= members
                seen |= names
            else:
                rest.append((members, names))
        merged = [*rest, (mine, seen)]
    groups = prompts.groups()
    assert len(set(groups)) == len(merged)
    for members, _ in merged:
        assert len({int(groups[member]) for member in members}) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": (True,)}, "labels of prompts has 1 entries for 2 prompts"),
        ({"columns": {"n": ("1",) * 3}}, "n of prompts has 3 entries for 2 prompts"),
        ({"texts": ("a", "a")}, "a prompt is listed twice; give each once"),
        ({"texts": ("a", " ")}, "a prompt is empty; remove it"),
    ],
)
def test_a_list_refuses_to_be_born_wrong(fields, message):
    with pytest.raises(VisleakError) as caught:
        Prompts(**{"texts": ("a", "b"), **fields})
    assert message in str(caught.value)
