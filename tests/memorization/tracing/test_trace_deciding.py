"""Which hit is a match, and which matches are of one image."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from visleak.memorization.tracing.document import Hit
from visleak.memorization.tracing.run import best, counts, families

PLAIN = Hit("a", "train", "1", 0.5, "different", 0.1)


def test_copies_come_before_layouts_and_these_before_the_rest() -> None:
    hits = [
        PLAIN,
        replace(PLAIN, reference="2", grade="similar", similarity=0.9),
        replace(PLAIN, reference="3", grade="layout", similarity=0.1),
        replace(PLAIN, reference="4", grade="near", probability=0.6, similarity=0.2),
        replace(PLAIN, reference="5", grade="near", probability=0.9, refused="not in place"),
        replace(PLAIN, reference="6", grade="", probability=None, similarity=0.99),
    ]
    order = []
    while hits:
        chosen = best(hits)
        assert chosen is not None
        order.append(chosen.reference)
        hits.remove(chosen)
    assert order == ["4", "3", "5", "2", "1", "6"]
    assert best([]) is None


def test_what_people_said_comes_before_what_the_machine_did() -> None:
    machine = replace(PLAIN, grade="near", probability=0.99)
    person = replace(PLAIN, grade="near", probability=1.0, judged="human", reference="z")
    assert best([machine, person]) == person


@given(
    st.lists(
        st.builds(
            Hit,
            st.just("a"),
            st.sampled_from("st"),
            st.sampled_from("123"),
            st.one_of(st.just(math.nan), st.floats(-1, 1)),
            st.sampled_from(["exact", "near", "similar", "different", "layout", ""]),
            st.one_of(st.none(), st.floats(0, 1)),
            refused=st.sampled_from(["", "no"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_order_of_hits_never_matters(hits: list[Hit]) -> None:
    one, other = best(hits), best(hits[::-1])
    assert one is not None
    assert other is not None
    assert counts(one) == any(counts(hit) for hit in hits)
    assert (one.source, one.reference, one.grade) == (other.source, other.reference, other.grade)


def test_families_are_prompts_and_shared_sources() -> None:
    prompts = ["a", "a", "b", "c", ""]
    assert families(prompts, [None, "x", "x", None, None]).tolist() == [0, 0, 0, 1, 2]
    assert families([], []).tolist() == []
