"""Counts of duplicates against counts by hand, by plain loops, and by the paper's own lists."""

import csv
import hashlib
import math
import os
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_audit import Image, Pair, digest_of, split_audit
from visleak.errors import UsageError
from visleak.records import GRADES
from visleak.report import counts
from visleak.verdicts import Ledger, Verdict
from visleak.verdicts.exchange import import_verdicts

#: Very similar images are duplicates too, as in the paper.
count = partial(counts.count, grade="similar")

DATA = os.environ.get("VISLEAK_DATA")

CATS, DOGS = ("c0", "c1", "c2", "c3"), ("d0", "d1")
TEST = [
    *(Image(name, "cat") for name in CATS),
    *(Image(name, "dog") for name in DOGS),
    Image("e0", None),
    Image("black", "dog", flat=True),
]
TRAIN = [Image(f"t{n}", "cat") for n in range(8)]
PAIRS = [
    Pair("c0", "t0", "exact", 1.0),
    Pair("c0", "t1", "near", 0.9),
    Pair("c1", "t1", "near", 0.8),
    Pair("c2", "t2", "similar", 0.7),
    Pair("d0", "t3", "different", 0.6),
    Pair("e0", "t4", "near", 0.85),
    Pair("black", "t5", "exact", 1.0),
    Pair("c0", "c1", "near", 0.75, within=True),
    Pair("c2", "d1", "similar", 0.65, within=True),
]


@pytest.fixture
def folder(tmp_path):
    return split_audit(tmp_path / "audit", TEST, TRAIN, PAIRS)


def verdict(query, reference, judgment, who="Ada", **about):
    sides = {("test", image.id): image for image in TEST}
    sides |= {("train", image.id): image for image in TRAIN}
    other = "train" if reference.startswith("t") else "test"
    left, right = ("test", query), (other, reference)
    pair = (digest_of("test", sides[left]), digest_of(other, sides[right]))
    return Verdict.of(*pair, judgment, who, query_set="test", query=query, reference_set=other,
                      reference=reference, **about)  # fmt: skip


def test_every_number_by_hand(folder):
    found = count(folder)
    (own,) = found.sets
    assert found.review is None
    assert own.after == own.before
    leaks, within = own.after.leaks, own.after.within
    assert leaks.pairs == {"exact": 1, "near": 3, "similar": 1}
    # c0 by its exact pair, c1 and e0 near, c2 similar
    assert leaks.images == {"exact": 1, "near": 2, "similar": 1}
    assert (leaks.all_pairs, leaks.all_images) == (5, 4)
    assert within.pairs == within.images == {"exact": 0, "near": 1, "similar": 1}
    # c0 and c2 are in both lists; d1 is the other of a pair, and stays
    assert (own.after.pairs, own.after.images) == (7, 4)
    assert [(c.name, c.images, c.size) for c in own.classes] == [
        *(("cat", 3, 4), ("dog", 0, 3), (None, 1, 1))
    ]
    assert (own.size, own.blank, own.unplaced) == (8, 1, 0)
    assert (own.share.count, own.share.total) == (4, 8)
    # exact and near pairs count by default
    (own,) = counts.count(folder).sets
    assert own.after.leaks.pairs == {"exact": 1, "near": 3}
    assert own.after.images == 3
    with pytest.raises(UsageError, match="grade must be one of exact, near, similar; got 'differ"):
        count(folder, grade="different")


def test_after_review_by_hand(folder):
    with Ledger(folder) as ledger:
        ledger.add(
            verdict("c0", "t0", "near"),
            verdict("c1", "t1", "different"),
            verdict("e0", "t4", "near", "Ada"),
            verdict("e0", "t4", "different", "Ben"),
            # found by nobody but people
            verdict("d0", "t7", "exact"),
        )
    found = count(folder)
    (own,) = found.sets
    assert own.before == count(folder, verdicts=()).sets[0].after
    changes = {c.name: (c.images, c.before) for c in own.classes}
    assert changes == {"cat": (2, 3), "dog": (1, 0), None: (1, 1)}
    review = found.review
    assert (review.agreement.judged, review.agreement.disputed) == (4, 1)
    assert review.judgments["Ada"] == {"exact": 1, "near": 2, "similar": 0, "different": 1}
    assert review.settled == {"exact": 1, "near": 1, "similar": 0, "different": 1}
    (dispute,) = review.disputes
    assert (dispute.query, dispute.said) == ("e0", {"Ada": "near", "Ben": "different"})
    assert (found.changed, found.added, own.unplaced) == (2, 1, 1)


def test_judged_pairs_alone(folder):
    with pytest.raises(UsageError, match="has no verdicts"):
        count(folder, judged=True)
    verdicts = [verdict("c0", "t0", "near"), verdict("c1", "t1", "different")]
    (own,) = count(folder, verdicts=verdicts, judged=True).sets
    assert (own.after.pairs, own.after.images) == (1, 1)
    # the machine, of the same pairs
    assert (own.before.pairs, own.before.images) == (2, 2)


def test_the_list_of_a_person_says_which_image_is_to_go(folder):
    """Of a pair within the test set the first column counts; the machine has the lower id."""
    turned = [verdict("d1", "c2", "similar")]
    for verdicts, dogs, images in ((), 0, 4), (turned, 1, 5):
        (own,) = count(folder, verdicts=verdicts).sets
        assert (own.after.classes["dog"], own.after.images) == (dogs, images)


def test_examples_stand_at_percentiles(tmp_path):
    """Ranks 1, 5 and 9 of eleven pairs from 0.5 to 1.0; of a lone pair the one there is."""
    test = [Image(f"q{n:02d}") for n in range(12)]
    pairs = [Pair(f"q{n:02d}", f"t{n % 8}", "near", 1.0 - 0.05 * n) for n in range(11)]
    folder = split_audit(tmp_path / "a", test, TRAIN, [*pairs, Pair("q11", "t0", "similar", 0.875)])
    examples = count(folder).sets[0].examples
    assert [(e.grade, e.percentiles, e.pair["query"]) for e in examples] == [
        ("near", (10,), "q01"),
        ("near", (50,), "q05"),
        ("near", (90,), "q09"),
        ("similar", (10, 50, 90), "q11"),
    ]
    assert examples[3].distance == pytest.approx(0.5)
    assert examples[1].distance == pytest.approx(math.sqrt(0.5), abs=1e-6)


def test_what_has_no_grades(tmp_path):
    ungraded = [Pair("c0", "t0", None)]
    folder = split_audit(tmp_path / "a", TEST, TRAIN, ungraded, verified=False)
    with pytest.raises(UsageError, match="audited without verification, so no pair has a grade"):
        count(folder)
    (own,) = count(folder, verdicts=[verdict("c0", "t0", "near")]).sets
    assert (own.after.images, own.before.images) == (1, 0)


def test_sets_compared_with_themselves_alone_and_without_labels(tmp_path):
    bare = [Image(name, None) for name in ("a", "b", "c")]
    folder = split_audit(tmp_path / "a", bare, (), [Pair("a", "b", "near", within=True)])
    (own,) = count(folder).sets
    assert own.after.leaks is None
    assert (own.after.pairs, own.after.images, own.classes) == (1, 1, ())


PLACES = st.tuples(st.sampled_from([*CATS, *DOGS]), st.sampled_from([i.id for i in TRAIN]))


@settings(max_examples=25)
@given(
    st.dictionaries(PLACES, st.sampled_from(GRADES), max_size=12),
    st.dictionaries(PLACES, st.sampled_from(GRADES), max_size=8),
)
def test_against_plain_loops(machine, people):
    with tempfile.TemporaryDirectory() as place:
        folder = split_audit(Path(place), TEST, TRAIN, [Pair(*p, g) for p, g in machine.items()])
        verdicts = [verdict(*pair, grade) for pair, grade in people.items()]
        (own,) = count(folder, verdicts=verdicts).sets
    for state, grades in ((own.before, machine), (own.after, machine | people)):
        found = {pair: grade for pair, grade in grades.items() if grade != "different"}
        best = {}
        for (query, _), grade in found.items():
            best[query] = min(best.get(query, 9), GRADES.index(grade))
        assert state.leaks.pairs == {
            g: sum(grade == g for grade in found.values()) for g in GRADES[:3]
        }
        assert state.leaks.images == {g: list(best.values()).count(n) for n, g in
                                      enumerate(GRADES[:3])}  # fmt: skip
        labels = Counter(image.label for image in TEST if image.id in best)
        assert {k: v for k, v in state.classes.items() if v} == dict(labels)


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="VISLEAK_DATA is not set: no lists of ciFAIR to count")
def test_the_lists_of_cifair(tmp_path):
    """The even half of the published lists, counted from the files and through an audit."""
    home = Path(str(DATA)) / "cifar10"
    lists = [home / "duplicates_dev.csv", home / "duplicates_within_test_dev.csv"]
    rows = [list(csv.DictReader(path.read_text().splitlines())) for path in lists]
    table = pq.read_table(home / "test.parquet", columns=["index", "label_name", "image"])
    labels = dict(zip(table["index"].to_pylist(), table["label_name"].to_pylist(), strict=True))
    digests = {}
    sets = {"test": [], "train": []}
    for name, images in sets.items():
        names = {int(row["TrainID"]) for row in rows[0]} if name == "train" else set(labels)
        part = pq.read_table(home / f"{name}.parquet", columns=["index", "image"])
        part = part.filter(pc.is_in(part["index"], pc.cast(sorted(names), "int64")))
        for index, image in zip(part["index"].to_pylist(), part["image"].to_pylist(), strict=True):
            digests[name, str(index)] = hashlib.blake2b(image["bytes"], digest_size=16).hexdigest()
            images.append(Image(str(index), labels[index] if name == "test" else None))
    folder = split_audit(tmp_path / "audit", sets["test"], sets["train"], digests=digests)
    assert import_verdicts(folder, lists[0], reviewer="Barz").added == len(rows[0]) == 139
    assert import_verdicts(folder, lists[1], reviewer="Barz", within=True).added == 19
    (own,) = count(folder).sets
    for tally, of in zip((own.after.leaks, own.after.within), rows, strict=True):
        judged = Counter(GRADES[int(row["Judgment"])] for row in of)
        assert tally.pairs == {grade: judged[grade] for grade in GRADES[:3]}
    distinct = {int(row["TestID"]) for of in rows for row in of}
    assert own.after.images == len(distinct)
    by_class = Counter(labels[index] for index in distinct)
    assert {c.name: c.images for c in own.classes} == by_class
    assert (own.after.leaks.pairs["near"], own.after.within.pairs["similar"]) == (117, 6)
