"""Algorithm 3 against an exhaustive reading of it."""

import math

import numpy as np
import pytest

from toy_prompt_models import FiveWords, all_states, text_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.run import diversify, farthest_points

PROMPTS = [text_of(state) for state in all_states(2)]


def exhaustive(vectors, count, first):
    """Yield the picks of Algorithm 3 and their cosines, each worked out anew for every pick."""
    rest = [row for row in range(len(vectors)) if row != first]
    picked = [first]
    while rest and len(picked) < count:
        worst = [max(cosine(vectors[row], vectors[other]) for other in picked) for row in rest]
        picked.append(rest.pop(worst.index(min(worst))))
        yield picked[-1], min(worst)


def cosine(one, other):
    return one @ other / math.sqrt((one @ one) * (other @ other))


@pytest.mark.parametrize("seed", range(4))
def test_picks_are_those_of_exhaustive_search(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((30, 8)) * rng.uniform(0.1, 50.0, (30, 1))
    for count in (1, 2, 12, 99):
        first = int(rng.integers(30))
        (begin, _), *picks = farthest_points(vectors, count, first)
        wanted = list(exhaustive(vectors, count, first))
        assert [begin, *(row for row, _ in picks)] == [first, *(row for row, _ in wanted)]
        assert [c for _, c in picks] == pytest.approx([c for _, c in wanted], abs=1e-12)


def test_ties_go_to_the_first():
    """Copies of a vector have equal cosines to the last bit."""
    rng = np.random.default_rng(0)
    few = rng.standard_normal((4, 7))
    vectors = np.concatenate([few, few, few])
    picks = [row for row, _ in farthest_points(vectors, 12, 5)]
    assert picks[0] == 5
    assert sorted(picks[1:4]) == [0, 2, 3]
    assert sorted(picks) == list(range(12))


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_vectors_without_a_direction_are_refused(value):
    with pytest.raises(VisleakError, match=r"zero or not finite; such prompts have no direction"):
        list(farthest_points(np.array([[1.0, 0.0], [value, 0.0]]), 2, 0))


def test_the_first_pick_is_seeded_and_each_prompt_is_picked_once():
    firsts = set()
    for seed in range(8):
        picks = diversify(FiveWords(), PROMPTS, 30, seed=seed)
        assert sorted(pick.row for pick in picks) == list(range(25))
        assert picks[0].closeness is None
        assert all(pick.closeness is not None for pick in picks[1:])
        firsts.add(picks[0].row)
        assert picks == diversify(FiveWords(), PROMPTS, 30, seed=seed)
    assert len(firsts) > 2


@pytest.mark.parametrize(
    ("prompts", "given_", "said"),
    [
        ([], {}, "no prompt to pick from: give at least one"),
        (["a"], {"count": 0}, "count is at least 1; got 0"),
        (["a"], {"sources": ["b", "c"]}, "sources are one per prompt, 1; got 2"),
    ],
)
def test_what_cannot_be_picked_from_is_refused(prompts, given_, said):
    with pytest.raises(UsageError, match=said):
        diversify(FiveWords(), prompts, **given_)
