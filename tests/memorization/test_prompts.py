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
    for number, names in enumerate(images):
        mine = [each for each in merged if each[1] & names]
        rest = [each for each in merged if not each[1] & names]
        members = {number}.union(*(each[0] for each in mine))
        merged = [*rest, (members, names.union(*(each[1] for each in mine)))]
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
    with pytest.raises(VisleakError, match=message):
        Prompts(**{"texts": ("a", "b"), **fields})
