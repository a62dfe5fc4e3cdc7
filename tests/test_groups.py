"""Connected components, against networkx-free breadth-first search written down here."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.groups import chained, components, numbered


def searched(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return components by breadth-first search from each image in turn."""
    neighbours: dict[int, set[int]] = {i: set() for i in range(count)}
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    found = [-1] * count
    number = 0
    for start in range(count):
        if found[start] >= 0:
            continue
        queue = deque([start])
        while queue:
            image = queue.popleft()
            if found[image] < 0:
                found[image] = number
                queue.extend(neighbours[image])
        number += 1
    return found


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 30))
    image = st.integers(0, count - 1)
    return count, draw(st.lists(st.tuples(image, image), max_size=40))


@given(graphs())
def test_components_are_those_of_a_search(graph):
    """Another algorithm on any small graph, self-ties and repeated ones included."""
    count, edges = graph
    first, second = (np.array([edge[end] for edge in edges], np.int64) for end in (0, 1))
    assert components(count, [(first, second)]).tolist() == searched(count, edges)


@given(graphs(), st.randoms(use_true_random=False))
def test_neither_order_nor_direction_of_ties_matters(graph, random):
    count, edges = graph
    turned = [edge[::-1] if random.random() < 0.5 else edge for edge in edges]
    random.shuffle(turned)
    half = len(turned) // 2
    parts = [np.array(part, np.int64).reshape(-1, 2).T for part in (turned[:half], turned[half:])]
    once = components(count, [tuple(np.array(edges, np.int64).reshape(-1, 2).T)])
    assert components(count, [tuple(part) for part in parts]).tolist() == once.tolist()


@given(st.lists(st.integers(-2, 5), max_size=30))
def test_a_chain_joins_exactly_the_images_of_one_code(codes):
    values = np.array(codes, np.int64)
    first, second = chained(values)
    known = [code for code in codes if code >= 0]
    assert len(first) == len(known) - len(set(known))
    alone = np.where(values < 0, -1 - np.arange(len(values)), values)
    assert components(len(codes), [(first, second)]).tolist() == numbered(alone).tolist()


def test_nothing_has_no_components():
    assert components(0, []).tolist() == []
    assert components(3, []).tolist() == [0, 1, 2]


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_tie_to_no_image_is_refused(wrong):
    """A negative position would silently count from the end."""
    with pytest.raises(ValueError, match="a tie names an image that is none of the 4"):
        components(4, [(np.array([0]), np.array([wrong]))])
