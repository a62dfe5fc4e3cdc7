"""Groups and recordings on both sides, against counts by hand, and in an audit."""

import csv
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import visleak
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import EmbeddingCounts, Side
from visleak.pipeline.recordings import (
    GroupLeak,
    group_leak,
    recording_leak,
    union_of_groups,
    union_of_recordings,
    unknown_times,
)
from visleak.rates import Rate
from visleak.records import Fingerprints, Grades, Pairs
from visleak.settings import Settings
from visleak.storage.audit_folder import RecordingCounts, Thresholds

ENDS = (-(2**63), 2**63 - 1)
FRAMES = st.one_of(st.integers(-30, 30), st.sampled_from(ENDS), st.none())
NAMES = st.sampled_from(["b", "a", "ß", None])
IMAGES = st.lists(st.tuples(NAMES, FRAMES, st.booleans()), min_size=1, max_size=14)


def made(name, images, **about):
    """Return a set and a side with its readable images, of (group, frame, readable)."""
    groups, frames, readable = zip(*images, strict=True)
    pictures = [np.zeros((4, 4, 3), np.uint8)] * len(groups)
    images = replace(
        visleak.open_images(pictures, name=name),
        **{"groups": pa.array(groups, pa.string()), "frames": pa.array(frames, pa.int64())} | about,
    )
    rows = np.flatnonzero(readable)
    n = len(rows)
    prints = Fingerprints(
        name, rows, images.ids.take(pa.array(rows)), np.zeros((n, 2), np.float32),
        np.zeros((n, 16), np.uint8), np.ones((n, 2), np.int32), np.zeros(n, np.bool_), "e",
    )  # fmt: skip
    return Side(images, prints, np.zeros(n, np.float32), np.arange(n))


def compared(query, reference, graded=(), coverage="intra"):
    """Return a comparison with pairs (query row, reference row, grade); ``None`` for no grades."""
    left, right, grade = np.array([*(graded or ())], np.int64).reshape(-1, 3).T
    n = len(left)
    pairs = Pairs(
        query.name, reference.name, left.copy(), right.copy(), np.full(n, 0.9, np.float32),
        np.zeros(n, np.float32), np.zeros(n, np.int8), np.zeros(len(query.images), np.int64),
    )  # fmt: skip
    grades = Grades(grade.astype(np.int8), np.ones(n, np.float32), ("",) * n, ("",) * n)
    grades = None if graded is None else grades
    return Comparison(query, reference, pairs, Thresholds(), coverage, "full", grades=grades)


def found(test, train, graded=(), within=10, **about):
    query, reference = made("test", test, **about), made("train", train, **about)
    return recording_leak(compared(query, reference, graded), Settings(within_frames=within))


@given(IMAGES, IMAGES)
def test_shared_groups_are_those_of_sets(test, train):
    """Sets of Python, over the readable images; null is no group."""
    leak = group_leak(compared(made("test", test), made("train", train)))
    own, theirs = ([group for group, _, seen in side if seen] for side in (test, train))
    if not any(own) or not any(theirs):
        assert leak is None
        return
    shared = (set(own) & set(theirs)) - {None}
    assert leak.names == tuple(sorted(shared))
    assert leak.queries.tolist() == [group in shared for group in own]


def test_groups_and_recordings_of_several_references_are_one_total():
    leaks = (("a", "b"), [True, False, True]), (("b", "c"), [True, True, False])
    both = union_of_groups([GroupLeak(names, np.array(queries)) for names, queries in leaks])
    assert both.names == ("a", "b", "c")
    assert both.queries.tolist() == [True] * 3
    test = [("a", 0, True), ("a", 90, True), ("b", 0, True)]
    parts = [found(test, train) for train in ([("a", 1, True)], [("a", 89, True), ("a", 0, True)])]
    count, close = union_of_recordings(parts)
    assert (count, close.tolist()) == (1, [True, True, False])


def test_an_audit_counts_groups_and_recordings_and_keeps_its_tables():
    pixels = np.random.default_rng(5).integers(0, 255, (8, 24, 24, 3), np.uint8)

    def audited(*groups, frames=(None, None)):
        sides = [visleak.open_images(list(own)) for own in np.split(pixels, 2)]
        sets = [
            replace(
                each,
                name=name,
                groups=own and pa.array(own, pa.string()),
                frames=at and pa.array(at, pa.int64()),
            )
            for each, name, own, at in zip(sides, "qr", groups, frames, strict=True)
        ]
        return visleak.audit(*sets, cache=None, settings=Settings(within=False))

    plain = audited(None, None)
    both = ["p", "q", None, "p"], ["p", "r", "r", "s"]
    grouped = audited(*both)
    clean = audited(["p", "q", "q", "p"], ["r"] * 4)
    assert plain.headline == clean.headline == grouped.headline.partition(";")[0]
    assert grouped.headline.endswith("; 1 group is on both sides (2 of 4 q images)")
    (comparison,) = grouped.summary.as_dict()["comparisons"]
    assert comparison["groups"] == {"shared": 1, "queries": 2, "named": ["p"]}
    assert (grouped.rate("group"), clean.rate("group")) == (Rate.of(2, 4), Rate.of(0, 4))
    assert "groups of q: 1 of 4 images have none" in grouped.summary.as_dict()["skipped"]
    timed = audited(*both, frames=([7, 1, 2, 40], [5, 1, 2, 3]))
    assert (timed.rate("recording"), timed.rate("group")) == (Rate.of(1, 4), Rate.of(2, 4))
    with (timed.folder / "recordings.csv").open(newline="") as lines:
        (row,) = csv.DictReader(lines)
    names = ("recording", "unit", "queries", "references", "close", "least")
    assert [row[name] for name in names] == ["p", "frames", "2", "1", "1", "2"]
    assert not (grouped.folder / "recordings.csv").exists()
    tables = [
        (each.folder / "pairs.parquet").read_bytes() for each in (plain, grouped, clean, timed)
    ]
    assert tables[0] == tables[1] == tables[2] == tables[3]


def by_hand(test, train):
    """Return the distance of each readable test image, two loops of Python's own numbers."""
    result = []
    for group, frame, readable in test:
        if readable:
            others = [
                abs(frame - other)
                for name, other, seen in train
                if seen and None not in (group, frame, other) and name == group
            ]
            result.append(min(others, default=None))
    return result


@given(IMAGES, IMAGES, st.sampled_from([0, 1, 10, 2**63 - 1]))
def test_distances_are_those_of_two_loops(test, train, within):
    """Duplicates, negative numbers, the ends of int64, nulls and unreadable images included."""
    leak = found(test, train, within=within)
    known = [
        any(seen and None not in (group, frame) for group, frame, seen in side)
        for side in (test, train)
    ]
    if not all(known):
        assert leak is None
        return
    gaps = by_hand(test, train)
    assert leak.close.tolist() == [gap is not None and gap <= within for gap in gaps]
    names = [group for group, _, seen in test if seen]
    for each in leak.recordings:
        own = sorted(
            gap
            for name, gap in zip(names, gaps, strict=True)
            if name == each.recording and gap is not None
        )
        assert (each.least, each.median) == (own[0], own[(len(own) - 1) // 2])
        assert (each.queries, each.close) == (len(own), sum(gap <= within for gap in own))
    listed = {n for n, gap in zip(names, gaps, strict=True) if gap is not None}
    assert [each.recording for each in leak.recordings] == sorted(listed)
    assert sum(bar.queries for bar in leak.distances) == sum(gap is not None for gap in gaps)
    inside = [b.queries for b in leak.distances if b.up_to is not None and b.up_to <= within]
    assert sum(inside) == int(leak.close.sum())


def test_near_pairs_of_the_audit_are_counted_among_them():
    """Only near and exact ones of one recording; the longest is reported, also beyond the bound."""
    test = [("a", 10, True), ("a", 90, True), ("b", 5, True), ("b", 6, True)]
    train = [("a", 12, True), ("a", 40, True), ("b", 5, True)]
    near, exact, similar = 1, 0, 2
    graded = [(0, 0, exact), (0, 1, near), (1, 1, near), (2, 1, near), (3, 2, similar)]
    leak = found(test, train, graded)
    assert leak.recordings == (
        RecordingCounts("a", 2, 2, 1, 1, 2, 2, 50),
        RecordingCounts("b", 2, 1, 2, 0, 0, 0, None),
    )
    assert [each.recording for each in leak.leaking] == ["b", "a"]
    told = leak.summary()
    assert (told.shared, told.leaking, told.close, told.near_or_exact) == (2, 2, 3, 1)
    assert found(test, train, None).summary().near_or_exact is None


ONE = [("a", 1, True)]


@pytest.mark.parametrize(
    ("coverage", "streamed", "query", "reference"),
    [
        ("inter", False, {}, {}),
        ("within", False, {}, {}),
        ("intra", True, {}, {}),
        ("intra", False, {"groups": None}, {}),
        ("intra", False, {}, {"frames": None}),
        ("intra", False, {"timed": True}, {}),
    ],
)
def test_times_of_other_sets_are_not_comparable(coverage, streamed, query, reference):
    """Frame 7 of two data sets; one side without; numbers against milliseconds."""
    left, right = made("test", ONE, **query), made("train", ONE, **reference)
    right = replace(right, embeddings=EmbeddingCounts(1, 0, streamed))
    pairs = compared(left, right, coverage=coverage)
    assert recording_leak(pairs, Settings()) is None
    assert ("one set has times" in unknown_times(pairs, 1)) == ("timed" in query)
    assert (group_leak(pairs) is None) == (coverage != "intra" or streamed or "groups" in query)


def test_times_have_a_bound_of_their_own():
    left, right = (
        made(name, [("a", frame, True)], timed=True) for name, frame in (("q", 0), ("r", 1000))
    )
    leak = recording_leak(compared(left, right), Settings(within_frames=0))
    assert (leak.unit, leak.within, leak.close.tolist()) == ("ms", 1000, [True])
    closer = recording_leak(compared(left, right), Settings(within_seconds=0.999))
    assert closer.close.tolist() == [False]
