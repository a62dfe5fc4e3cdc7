"""Groups on both sides: counted against a count by hand, and silent where they mean nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import visleak
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import EmbeddingCounts, Side
from visleak.pipeline.recordings import GroupLeak, group_leak, group_sentence, union_of_groups
from visleak.rates import Rate
from visleak.records import Fingerprints, Pairs
from visleak.storage.audit_folder import Thresholds

NAMES = st.sampled_from(["p1", "p2", "p3", "p4", None])


def made(name, groups, readable):
    """Return a set with groups and a side with its readable images."""
    count = len(groups)
    pictures = [np.zeros((4, 4, 3), np.uint8)] * max(count, 1)
    images = replace(
        visleak.open_images(pictures[:count], name=name), groups=pa.array(groups, pa.string())
    )
    rows = np.flatnonzero(readable)
    n = len(rows)
    prints = Fingerprints(
        name, rows, images.ids.take(pa.array(rows)), np.zeros((n, 2), np.float32),
        np.zeros((n, 16), np.uint8), np.ones((n, 2), np.int32), np.zeros(n, np.bool_), "e",
    )  # fmt: skip
    return Side(images, prints, np.zeros(n, np.float32), np.arange(n))


def compared(query, reference, coverage="intra"):
    none = np.empty(0, np.int64)
    pairs = Pairs(
        query.name, reference.name, none, none, np.empty(0, np.float32),
        np.empty(0, np.float32), np.empty(0, np.int8), none,
    )  # fmt: skip
    thresholds = Thresholds(None, None, "", False)
    return Comparison(query, reference, pairs, thresholds, coverage, "full")


@st.composite
def sides(draw):
    count = draw(st.integers(1, 12))
    groups = draw(st.lists(NAMES, min_size=count, max_size=count))
    return groups, draw(st.lists(st.booleans(), min_size=count, max_size=count))


@given(sides(), sides())
def test_counts_are_those_of_sets(test, train):
    """Sets of Python, over the readable images; null is no group."""
    found = group_leak(compared(made("test", *test), made("train", *train)))
    own = [g for g, seen in zip(*test, strict=True) if seen]
    theirs = [g for g, seen in zip(*train, strict=True) if seen]
    if not any(own) or not any(theirs):
        assert found is None
        return
    shared = (set(own) & set(theirs)) - {None}
    assert found.names == tuple(sorted(shared))
    assert found.queries.tolist() == [g in shared for g in own]


@pytest.mark.parametrize(
    ("coverage", "streamed"), [("inter", False), ("within", False), ("intra", True)]
)
def test_elsewhere_names_of_groups_mean_nothing(coverage, streamed):
    """Patient 7 of two hospitals; one set alone; embeddings of which a few are known."""
    a, b = (made(name, ["p"], [True]) for name in "ab")
    b = replace(b, embeddings=EmbeddingCounts(1, 0, streamed))
    assert group_leak(compared(a, b, coverage)) is None


def test_several_references_are_one_total():
    """A query image counts once, a group too."""
    parts = [
        GroupLeak(("a", "b"), np.array([True, False, True])),
        GroupLeak(("b", "c"), np.array([True, True, False])),
    ]
    both = union_of_groups(parts)
    assert both.names == ("a", "b", "c")
    assert both.queries.tolist() == [True] * 3
    assert union_of_groups([]) is None
    assert group_sentence(both, "test") == "; 3 groups are on both sides (3 of 3 test images)"
    assert group_sentence(GroupLeak((), np.array([False])), "test") == ""


def test_twenty_are_named():
    """More are counted."""
    names = tuple(f"g{n:03}" for n in range(30))
    found = GroupLeak(names, np.array([True])).summary()
    assert (found.shared, found.queries, found.named) == (30, 1, names[:20])


@pytest.fixture(scope="module")
def frames():
    """Return different images, and which clip each is of."""
    rng = np.random.default_rng(5)
    return [rng.integers(0, 255, (24, 24, 3), np.uint8) for _ in range(8)]


def audited(frames, groups):
    names = ("test", "train")
    sets = [
        visleak.open_images(part, name=name)
        for part, name in zip((frames[:4], frames[4:]), names, strict=True)
    ]
    if groups is not None:
        sets = [
            replace(images, groups=pa.array(own, pa.string()))
            for images, own in zip(sets, groups, strict=True)
        ]
    return visleak.audit(sets[:1], sets[1:], cache=None, settings=visleak.Settings(within=False))


def test_an_audit_says_so_and_its_tables_stay(frames):
    """Rate, names and a second sentence come in; no byte of the pairs changes."""
    plain = audited(frames, None)
    grouped = audited(frames, (["p", "q", None, "p"], ["p", "r", "r", "s"]))
    clean = audited(frames, (["p", "q", "q", "p"], ["r"] * 4))
    told = json.dumps(plain.summary.as_dict()["totals"] + plain.summary.as_dict()["comparisons"])
    assert "group" not in told.replace("duplicate_groups", "").replace('"groups": 0', "")
    assert plain.headline == clean.headline == grouped.headline.partition(";")[0]
    assert grouped.headline.endswith("; 1 group is on both sides (2 of 4 test images)")
    (comparison,) = grouped.summary.as_dict()["comparisons"]
    assert comparison["groups"] == {"shared": 1, "queries": 2, "named": ["p"]}
    assert grouped.rate("group") == Rate.of(2, 4)
    assert clean.rate("group") == Rate.of(0, 4)
    assert "groups of test: 1 of 4 images have none" in grouped.summary.as_dict()["skipped"]
    tables = [(each.folder / "pairs.parquet").read_bytes() for each in (plain, grouped, clean)]
    assert tables[0] == tables[1] == tables[2]
