"""Connected components, against networkx."""

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.groups import chained, components, numbered


@st.composite
def graphs(draw):
    count = draw(st.integers(0, 30))
    image = st.integers(0, max(0, count - 1))
    return count, draw(st.lists(st.tuples(image, image), max_size=40 if count else 0))


@given(graphs(), st.randoms(use_true_random=False))
def test_components_are_those_of_a_search(graph, random):
    """On any small graph, ties to itself and repeated ones included, in any order and direction."""
    count, edges = graph
    made = networkx.Graph(edges)
    made.add_nodes_from(range(count))
    expected = np.zeros(count, int)
    for number, part in enumerate(sorted(networkx.connected_components(made), key=min)):
        expected[list(part)] = number
    turned = [edge[::-1] if random.random() < 0.5 else edge for edge in edges]
    random.shuffle(turned)
    half = len(turned) // 2
    parts = [np.array(part, np.int64).reshape(-1, 2).T for part in (turned[:half], turned[half:])]
    assert components(count, [tuple(part) for part in parts]).tolist() == expected.tolist()


@given(st.lists(st.integers(-2, 5), max_size=30))
def test_a_chain_joins_exactly_the_images_of_one_code(codes):
    values = np.array(codes, np.int64)
    first, second = chained(values)
    known = [code for code in codes if code >= 0]
    assert len(first) == len(known) - len(set(known))
    alone = np.where(values < 0, -1 - np.arange(len(values)), values)
    assert components(len(codes), [(first, second)]).tolist() == numbered(alone).tolist()


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_tie_to_no_image_is_refused(wrong):
    """A negative position would silently count from the end."""
    with pytest.raises(ValueError, match="a tie names an image that is none of the 4"):
        components(4, [(np.array([0]), np.array([wrong]))])
