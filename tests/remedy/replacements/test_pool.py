"""Test images that need a replacement, pools, neighbours of candidates, and decisions."""

import csv
import sqlite3

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.pipeline.encoded_set import Side
from visleak.records import Fingerprints, ImageSet, Problem
from visleak.remedy.pool import (
    COLUMNS,
    FILE,
    PLAIN,
    AlreadyDecided,
    Decision,
    Decisions,
    find_duplicates,
    make_pool,
)
from visleak.remedy.selection import COMPARED, SHOWN, Neighbours
from visleak.storage import csv_text


def made_set(name, ids, digests, flat=(), labels=None, matrix=None, problems=()):
    count, texts = len(ids), pa.array(ids, pa.string())
    prints = Fingerprints(
        set=name,
        rows=np.arange(count),
        ids=texts,
        matrix=np.ones((count, 1), np.float32) if matrix is None else matrix,
        digests=np.array(digests, np.uint8).reshape(count, 16),
        sizes=np.ones((count, 2), np.int32),
        flat=np.array(flat, np.bool_) if len(flat) else np.zeros(count, np.bool_),
        encoder="e",
    )
    known = None if labels is None else pa.array(labels, pa.string())
    return ImageSet(name, texts, texts, opener=None, labels=known, problems=problems), prints


def made(contents, flat="", labels=None):
    ids = [str(i) for i in range(len(contents))]
    return made_set(
        "test", ids, [[ord(c)] * 16 for c in contents], [i in flat for i in ids], labels
    )


def pairs(*rows):
    """Return pairs from ``QUERY SET/REFERENCE GRADE [SIMILARITY [JUDGED]]``."""
    found = []
    for row in rows:
        query, reference, grade, similarity, judged, *_ = [*row.split(), "-", ""]
        other, _, name = reference.partition("/")
        number = None if similarity in ("-", "") else float(similarity)
        coverage = "within" if other == "test" else "intra"
        cells = ("test", query, other, name, number, grade, coverage, judged.strip("-") or None)
        found.append(dict(zip(COLUMNS, cells, strict=True)))
    kinds = {"similarity": pa.float32()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    return pa.Table.from_pylist(found, schema)


def ids(found):
    return [each.id for each in found.images]


def test_the_rule_of_the_paper():
    """Queries of pairs with train; of a pair within test only the query; both lists count once."""
    table = pairs(
        "4 train/9 near 0.9",
        "1 train/9 exact 1",
        "2 test/3 similar 0.7",
        "1 test/5 near 0.8",
        "0 train/8 different 0.2",
    )
    assert ids(find_duplicates(table, *made("abcdef"))) == ["1", "4"]
    found = find_duplicates(table, *made("abcdef"), "similar")
    assert ids(found) == ["1", "2", "4"]
    one = found.images[0]
    assert [(leak.set, leak.id, leak.within) for leak in one.leaks] == [
        ("train", "9", False),
        ("test", "5", True),
    ]
    assert [leak.id for each in found.images for leak in each.leaks] == ["9", "5", "3", "9"]
    of_another_set = table.set_column(0, "query_set", pa.array(["val"] * 5))
    assert ids(find_duplicates(of_another_set, *made("abcdef"))) == []


def test_disputed_pairs_are_excluded():
    table = pairs(
        "0 train/0 near 0.9 disputed", "1 train/0 near 0.9 disputed", "1 train/1 near 0.8 human"
    )
    found = find_duplicates(table, *made("ab"))
    assert (ids(found), found.disputed) == (["1"], 1)
    assert [leak.id for leak in found.images[0].leaks] == ["1"]
    found = find_duplicates(table, *made("ab"), include_disputed=True)
    assert (ids(found), found.disputed) == (["0", "1"], 0)


def test_copies_of_one_content_are_numbered():
    """Decisions are keyed by content, and two test images of equal bytes need two."""
    table = pairs("0 train/0 exact", "2 train/0 exact", "3 train/0 exact")
    found = find_duplicates(table, *made("aaab"))
    assert [(each.id, each.copy) for each in found.images] == [("0", 0), ("2", 2), ("3", 0)]
    assert found.images[0].digest == found.images[1].digest


def pool(contents, flat=frozenset(), labels=None):
    ids, digests = [f"i{i}" for i in range(len(contents))], [digest(c) for c in contents]
    gone = (Problem("pool", "gone", "gone", "missing"),)
    return made_set("pool", ids, digests, [c in flat for c in contents], labels, problems=gone)


def digest(content):
    return list(content.to_bytes(16, "big"))


def test_unusable_images_of_a_pool_are_counted():
    labels = ["Cat", "cat", "CAT", "cat", None, "dog"]
    images, prints = pool([1, 2, 2, 3, 4, 1], flat={3}, labels=labels)
    made = make_pool(images, prints, {bytes(digest(1))}, seed=0)
    assert (made.known, made.repeated, made.blank, made.unreadable) == (2, 1, 1, 1)
    assert made.usable == 2
    assert sorted(made.queues[None].tolist()) == [1, 4]
    # of equal contents the first in the set is used
    assert made.queues["cat"].tolist() == [1]
    assert set(made.queues) == {None, "cat"}


@given(
    contents=st.lists(st.integers(0, 40), min_size=1, max_size=25, unique=True),
    seed=st.integers(0, 5),
    turn=st.randoms(use_true_random=False),
)
def test_the_order_depends_on_content_and_seed_alone(contents, seed, turn):
    first = make_pool(*pool(contents), set(), seed)
    order = [contents[row] for row in first.queues[None]]
    shuffled = contents.copy()
    turn.shuffle(shuffled)
    second = make_pool(*pool(shuffled), set(), seed)
    assert [shuffled[row] for row in second.queues[None]] == order
    part = shuffled[: len(shuffled) // 2 + 1]
    third = make_pool(*pool(part), set(), seed)
    assert [part[row] for row in third.queues[None]] == [c for c in order if c in part]


def test_the_order_is_random():
    """As many ascents as in a random permutation, and another order for another seed."""
    images = pool(list(range(500)))
    one, other = (make_pool(*images, set(), seed).queues[None] for seed in (0, 1))
    assert 200 < (np.diff(one) > 0).sum() < 300
    assert (one != other).sum() > 400


def side(name, count, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(count, 560)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    ids, digests = [f"{row:03d}" for row in range(count)], rng.integers(0, 256, (count, 16))
    images, prints = made_set(name, ids, digests, matrix=matrix)
    background = rng.uniform(0, 0.2, count).astype(np.float32)
    return Side(images, prints, background, np.arange(count))


def test_the_nearest_of_both_rankings_are_neighbours():
    """Against all similarities."""
    existing = {name: side(name, 90, seed) for seed, name in enumerate(("test", "train"))}
    pool = side("pool", 40, 7)
    neighbours = Neighbours(existing, pool, load_encoder("builtin"), (0,), 1)
    approved = np.arange(1, 40)
    found = neighbours.of(0, approved)
    compared = {(near.set, near.row) for near in found}
    query = pool.fingerprints.matrix[0].astype(np.float64)
    want = set()
    for name, own in existing.items():
        alike = own.fingerprints.matrix.astype(np.float64) @ query
        for score in (alike, alike - own.background / 2):
            want |= {(name, int(row)) for row in np.argsort(-score)[:COMPARED]}
    others = pool.fingerprints.matrix.astype(np.float64) @ query
    others[0] = -2.0
    want |= {("pool", int(row)) for row in np.argsort(-others)[:COMPARED]}
    assert compared == want
    assert len(want) > 3 * COMPARED  # the two rankings differ
    similarities = [near.similarity for near in found]
    assert similarities == sorted(similarities, reverse=True)
    assert len(found) == len(compared) > SHOWN


def decision(test="t0", pool="p0", verdict="approved", **more):
    about = {"decision": verdict, "test_digest": f"d-{test}", "copy": 0, "pool_digest": f"d-{pool}"}
    about |= {"test_set": "test", "test": test, "pool": pool, "label": "cat"}
    return Decision(**{**about, "reviewer": "ada", "how": "person", **more})


def plain(folder):
    with (folder / PLAIN).open(newline="") as lines:
        return [{k: csv_text(v) for k, v in row.items()} for row in csv.DictReader(lines)]


def test_undo_may_stop_at_a_time(tmp_path):
    """Decisions of an earlier session stay."""
    with Decisions(tmp_path) as ours:
        ours.approve(decision("t0", "p0", time="2020-01-01"), ())
        ours.reject(decision("t1", "p1", "rejected", time="2020-01-02"))
        found = [ours.undo("ada", since) for since in ("2020-01-02", "2020-01-02", "")]
    assert [each and each.pool for each in found] == ["p1", None, "p0"]


def test_a_trial_changes_nothing(tmp_path):
    (tmp_path / "trial").mkdir()
    with Decisions(tmp_path) as ours:
        ours.approve(decision("t0", "p0"), ())
    before = (tmp_path / FILE).read_bytes()
    with Decisions.copied(tmp_path, tmp_path / "trial") as trial:
        trial.approve(decision("t1", "p1"), {"d-p0"})
        assert len(trial.standing()) == 2
    assert (tmp_path / FILE).read_bytes() == before
    (tmp_path / "empty").mkdir()
    with Decisions.copied(tmp_path / "nowhere", tmp_path / "empty") as trial:
        assert trial.all() == ()


def test_the_plain_copy_is_imported(tmp_path):
    with Decisions(tmp_path) as ours:
        ours.approve(decision("=t0", "p0", label="+1"), ())
        ours.reject(decision("t1", "p1", "rejected"))
        ours.undo("ada")
        # what was withdrawn may be decided again
        ours.reject(decision("t1", "p1", "rejected", how="machine"))
        before = ours.standing()
    rows = [(row["pool"], row["decision"], bool(row["withdrawn"])) for row in plain(tmp_path)]
    again = [("p1", "withdrawn", True), ("p1", "rejected", False)]
    assert rows == [("p0", "approved", False), *again]
    # a spreadsheet reads no formula
    cells = (tmp_path / PLAIN).read_text().replace("\n", ",").split(",")
    assert not [cell for cell in cells if cell[:1] in ("=", "+")]
    (tmp_path / FILE).unlink()
    with Decisions(tmp_path) as again:
        assert again.standing() == before
        with pytest.raises(AlreadyDecided):
            again.approve(decision("=t0", "p3"), {"d-p0"})
    (tmp_path / FILE).unlink()
    (tmp_path / PLAIN).write_text("decision,test\napproved,x\n")
    with pytest.raises(VisleakError, match=r"replacements\.csv cannot be read \(its columns are"):
        Decisions(tmp_path)


def test_damaged_and_newer_files_are_refused(tmp_path):
    (tmp_path / "trial").mkdir()
    (tmp_path / FILE).write_bytes(b"broken " * 300)
    with pytest.raises(VisleakError, match=r"cannot be used \(file is not a database\)"):
        Decisions.copied(tmp_path, tmp_path / "trial")
    (tmp_path / FILE).unlink()
    Decisions(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(VisleakError, match="layout 9, this visleak reads up to 1: upgrade"):
        Decisions(tmp_path)


MOVES = st.lists(
    st.tuples(st.sampled_from("arwu"), st.integers(0, 4), st.integers(0, 5), st.sampled_from("xy")),
    max_size=25,
)


@settings(max_examples=20)
@given(moves=MOVES)
def test_any_sequence_of_decisions(tmp_path_factory, moves):
    model = []  # [verdict, test, pool, reviewer, stands]
    folder = tmp_path_factory.mktemp("model")
    with Decisions(folder) as ours:
        for what, test, pool, who in moves:
            alive = [row for row in model if row[4]]
            if what in "ar":
                verdict = {"a": "approved", "r": "rejected"}[what]
                free = all(row[2] != pool for row in alive)
                if what == "a":
                    free &= all(row[1] != test or row[0] != "approved" for row in alive)
                asked = decision(f"t{test}", f"p{pool}", verdict, reviewer=who)
                known = {f"d-p{n}" for n in range(6)}
                try:
                    _ = ours.approve(asked, known) if what == "a" else ours.reject(asked)
                    assert free
                    model.append([verdict, test, pool, who, True])
                except AlreadyDecided:
                    assert not free
                continue
            if what == "u":
                found = [row for row in alive if row[3] == who]
                taken = ours.undo(who)
            else:
                found = [row for row in alive if row[1] == test and row[0] == "approved"]
                taken = ours.withdraw(f"d-t{test}", 0)
            assert (taken is None) == (not found)
            if found:
                found[-1][4] = False
                assert taken.pool == f"p{found[-1][2]}"
        want = [(row[0], f"t{row[1]}", f"p{row[2]}") for row in model if row[4]]
        assert [(d.decision, d.test, d.pool) for d in ours.standing()] == want


@pytest.mark.parametrize("wrong", [{"verdict": "withdrawn"}, {"how": "both"}])
def test_invalid_decisions_are_refused(wrong):
    with pytest.raises(ValueError, match=r"got '(withdrawn|both)'"):
        decision(**wrong)
