"""Groups and recordings on both sides, against counts by hand, and in an audit."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import visleak
from visleak.documents import as_plain
from visleak.groups import nearest_frames
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import EmbeddingCounts, Side
from visleak.pipeline.recordings import (
    GroupLeak,
    doubt,
    group_leak,
    group_sentence,
    recording_leak,
    recording_sentence,
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


# -- groups --------------------------------------------------------------------------------------


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


def test_groups_of_several_references_are_one_total():
    both = union_of_groups(
        [
            GroupLeak(("a", "b"), np.array([True, False, True])),
            GroupLeak(("b", "c"), np.array([True, True, False])),
        ]
    )
    assert both.names == ("a", "b", "c")
    assert both.queries.tolist() == [True] * 3
    assert union_of_groups([]) is None
    assert group_sentence(both, "test") == "; 3 groups are on both sides (3 of 3 test images)"
    assert group_sentence(GroupLeak((), np.array([False])), "test") == ""
    names = tuple(f"g{n:03}" for n in range(30))
    found = GroupLeak(names, np.array([True])).summary()
    assert (found.shared, found.queries, found.named) == (30, 1, names[:20])


def test_an_audit_counts_groups_and_keeps_its_tables():
    rng = np.random.default_rng(5)
    frames = [rng.integers(0, 255, (24, 24, 3), np.uint8) for _ in range(8)]

    def audited(*groups):
        sets = [visleak.open_images(frames[:4], name="test")]
        sets += [visleak.open_images(frames[4:], name="train")]
        for place, own in enumerate(groups):
            sets[place] = replace(sets[place], groups=pa.array(own, pa.string()))
        settings = Settings(within=False)
        return visleak.audit(sets[:1], sets[1:], cache=None, settings=settings)

    plain = audited()
    grouped = audited(["p", "q", None, "p"], ["p", "r", "r", "s"])
    clean = audited(["p", "q", "q", "p"], ["r"] * 4)
    told = json.dumps(plain.summary.as_dict()["totals"] + plain.summary.as_dict()["comparisons"])
    assert "group" not in told.replace("duplicate_groups", "").replace('"groups": 0', "")
    assert plain.headline == clean.headline == grouped.headline.partition(";")[0]
    assert grouped.headline.endswith("; 1 group is on both sides (2 of 4 test images)")
    (comparison,) = grouped.summary.as_dict()["comparisons"]
    assert comparison["groups"] == {"shared": 1, "queries": 2, "named": ["p"]}
    assert (grouped.rate("group"), clean.rate("group")) == (Rate.of(2, 4), Rate.of(0, 4))
    assert "groups of test: 1 of 4 images have none" in grouped.summary.as_dict()["skipped"]
    tables = [(each.folder / "pairs.parquet").read_bytes() for each in (plain, grouped, clean)]
    assert tables[0] == tables[1] == tables[2]


# -- recordings ----------------------------------------------------------------------------------


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


@given(st.data())
def test_the_order_of_files_changes_nothing(data):
    """The same images in another order: the same recordings, each image's answer with it."""
    test = data.draw(IMAGES)
    train = data.draw(IMAGES)
    order = data.draw(st.permutations(range(len(test))))
    leak = found(test, train)
    other = found([test[row] for row in order], data.draw(st.permutations(train)))
    if leak is None:
        assert other is None
        return
    assert other.recordings == leak.recordings
    assert other.distances == leak.distances
    seen = [row for row in range(len(test)) if test[row][2]]
    moved = [row for row in order if test[row][2]]
    close = dict(zip(seen, leak.close.tolist(), strict=True))
    assert other.close.tolist() == [close[row] for row in moved]


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
    told = as_plain(leak.summary())
    assert (told["shared"], told["leaking"], told["close"], told["near_or_exact"]) == (2, 2, 3, 1)
    assert told["listed"][0]["recording"] == "b"
    unseen = found(test, train, None)
    assert unseen.summary().near_or_exact is None
    assert [each.close for each in unseen.recordings] == [1, 2]


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
    assert (group_leak(pairs) is None) == (coverage != "intra" or streamed or "groups" in query)


def test_times_have_a_bound_of_their_own():
    left, right = (
        made(name, [("a", frame, True)], timed=True) for name, frame in (("q", 0), ("r", 1000))
    )
    leak = recording_leak(compared(left, right), Settings(within_frames=0))
    assert (leak.unit, leak.within, leak.close.tolist()) == ("ms", 1000, [True])
    closer = recording_leak(compared(left, right), Settings(within_seconds=0.999))
    assert closer.close.tolist() == [False]
    words = recording_sentence([leak], "q")
    assert words.endswith(" 1 of 1 q images lies within 1 s of a training frame")


def test_several_references_are_one_total():
    first, second = (
        found([("a", 0, True), ("a", 90, True), ("b", 0, True)], train)
        for train in ([("a", 1, True)], [("a", 89, True), ("a", 0, True)])
    )
    assert union_of_recordings([]) is None
    count, close = union_of_recordings([first, second])
    assert (count, close.tolist()) == (1, [True, True, False])
    assert recording_sentence([first, second], "test") == (
        "; 1 recording leaks: 2 of 3 test images lie within 10 frames of a training frame"
    )
    assert recording_sentence([found([("a", 0, True)], [("a", 11, True)])], "test") == ""


@pytest.mark.parametrize(
    ("train", "about", "message"),
    [
        (ONE, {"frames": None}, "frame numbers of train are not known; if the groups are record"),
        (ONE, {"timed": True}, "one set has times, the other frame numbers; give both the same"),
        ([("a", 2000, True)], {}, ""),
    ],
)
def test_unknown_times_have_a_reason(train, about, message):
    pairs = compared(made("test", ONE), made("train", train, **about))
    assert message in unknown_times(pairs, 1)
    assert bool(unknown_times(pairs, 1)) == bool(message)
    assert unknown_times(pairs, 0) == ""


def test_frame_numbers_far_from_all_others_are_doubted():
    """A hundred bounds apart, and no recording is nearer; what was compared is not "not done"."""
    far = [("a", 10_000, True)]
    told = as_plain(found(ONE, far).summary())
    assert told["nearest"] == 9_999
    assert doubt("frames", 10, told["nearest"]) == (
        "the nearest are 9,999 frames apart; if the numbers are times, give seconds or dates"
    )
    assert doubt("frames", 100, 9_999) == doubt("ms", 1, 9_999) == ""
    both = as_plain(found([*ONE, ("b", 7, True)], [*far, ("b", 7, True)]).summary())
    assert both["nearest"] == 0
    assert found(ONE, [("b", 1, True)]).summary().nearest is None


def test_distances_do_not_overflow():
    zero = np.zeros(1, np.int64)
    low, high = (np.array([end], np.int64) for end in ENDS)
    assert nearest_frames(zero, low, zero, high)[1].tolist() == [2**64 - 1]


@pytest.fixture(scope="module")
def pictures():
    """Return views along a rendered road: frames of two drives; neighbours are similar."""
    rng = np.random.default_rng(11)
    result = []
    for _ in range(2):
        road = rng.integers(0, 255, (5, 40, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        result.append([road[:, 4 * at : 4 * at + 40] for at in range(20)])
    return result


#: Frame numbers of each drive on each side.
SPLIT = {"test": ((0, 7), (18,)), "train": ((1, 2, 6), (0, 1))}


def audited(pictures, frames=True, shuffled=False, **options):
    sets = []
    for name, drives in SPLIT.items():
        order = [(drive, at) for drive, own in enumerate(drives) for at in own]
        order = order[::-1] if shuffled else order
        ids = [f"drive{drive}/{at:03}.png" for drive, at in order]
        images = visleak.open_images([pictures[d][at] for d, at in order], name=name)
        images = replace(
            images,
            ids=pa.array(ids),
            locators=pa.array(ids),
            groups=pa.array([f"drive{drive}" for drive, _ in order]),
            frames=pa.array([at for _, at in order], pa.int64()) if frames else None,
        )
        sets.append(images)
    settings = visleak.Settings(within=False, within_frames=2, **options)
    return visleak.audit(*[[s] for s in sets], cache=None, settings=settings, workers=1)


@pytest.fixture(scope="module")
def told(pictures):
    return audited(pictures)


def test_an_audit_reports_recordings_and_keeps_its_tables(pictures, told):
    plain = audited(pictures, frames=False)
    assert told.headline == (
        f"{plain.headline}; 1 recording leaks: 2 of 3 test images lie within 2 frames of a"
        " training frame"
    )
    assert told.rate("recording") == Rate.of(2, 3)
    (comparison,) = told.summary.as_dict()["comparisons"]
    block = comparison["recordings"]
    names = ("unit", "within", "shared", "leaking", "close", "queries")
    assert [block[name] for name in names] == ["frames", 2, 2, 1, 2, 3]
    assert [each["frame_unit"] for each in told.summary.as_dict()["sets"]] == ["frames"] * 2
    assert all("frame_unit" not in each for each in plain.summary.as_dict()["sets"])
    assert [each["recording"] for each in block["listed"]] == ["drive0"]
    with (told.folder / "recordings.csv").open() as lines:
        first, second = csv.DictReader(lines)
    assert (first["recording"], first["close"], first["least"]) == ("drive0", "2", "1")
    assert (second["recording"], second["close"], second["median"]) == ("drive1", "0", "17")
    tables = [(each.folder / "pairs.parquet").read_bytes() for each in (told, plain)]
    assert tables[0] == tables[1]
    assert not (plain.folder / "recordings.csv").exists()
    content = plain.summary.as_dict()
    assert "recording" not in json.dumps(content["comparisons"] + content["totals"])
    why = "time between frames of test and train: frame numbers of test and train are not known"
    assert any(line.startswith(why) for line in content["skipped"])


def test_order_and_verification_do_not_change_distances_in_time(pictures, told):
    other = audited(pictures, shuffled=True)
    files = [(each.folder / "recordings.csv").read_bytes() for each in (told, other)]
    assert files[0] == files[1]
    unseen = audited(pictures, verify=False)
    (comparison,) = unseen.summary.as_dict()["comparisons"]
    assert comparison["recordings"]["close"] == 2
    assert comparison["recordings"]["near_or_exact"] is None
    assert unseen.rate("recording") == told.rate("recording")
