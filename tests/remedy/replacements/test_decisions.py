"""Decisions: on disk at once, one replacement per test image, one use per image of the pool."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visleak.errors import UsageError, VisleakError
from visleak.remedy.pool import FILE, PLAIN, AlreadyDecided, Decision, Decisions
from visleak.storage import csv_text


def decision(test: str = "t0", pool: str = "p0", verdict: str = "approved", **more) -> Decision:
    about = {"decision": verdict, "test_digest": f"d-{test}", "copy": 0, "pool_digest": f"d-{pool}"}
    about |= {"test_set": "test", "test": test, "pool": pool, "label": "cat"}
    return Decision(**{**about, "reviewer": "ada", "how": "person", **more})


def plain(folder: Path) -> list[dict[str, str]]:
    with (folder / PLAIN).open(newline="") as lines:
        return [{k: csv_text(v) for k, v in row.items()} for row in csv.DictReader(lines)]


def test_undo_withdraws_the_last_decision_of_the_reviewer(tmp_path):
    with Decisions(tmp_path) as ours:
        ours.approve(decision("t0", "p0"), ())
        ours.reject(decision("t1", "p1", "rejected", reviewer="bob"))
        ours.approve(decision("t1", "p2"), {"d-p0"})
        assert ours.undo("ada").pool == "p2"
        assert ours.undo("ada").pool == "p0"
        assert ours.undo("ada") is None
        assert [each.pool for each in ours.standing()] == ["p1"]
        # what was withdrawn may be decided again
        ours.approve(decision("t1", "p0"), ())
    rows = plain(tmp_path)
    assert [row["decision"] for row in rows] == ["withdrawn", "rejected", "withdrawn", "approved"]
    assert [row["pool"] for row in rows] == ["p0", "p1", "p2", "p0"]
    assert [bool(row["withdrawn"]) for row in rows] == [True, False, True, False]


def test_undo_may_stop_at_a_time(tmp_path):
    """Decisions of an earlier session stay."""
    with Decisions(tmp_path) as ours:
        ours.approve(decision("t0", "p0", time="2020-01-01T00:00:00+00:00"), ())
        ours.reject(decision("t1", "p1", "rejected", time="2020-01-02T00:00:00+00:00"))
        assert ours.undo("ada", "2020-01-02T00:00:00+00:00").pool == "p1"
        assert ours.undo("ada", "2020-01-02T00:00:00+00:00") is None
        assert ours.undo("ada").pool == "p0"


def test_an_approval_must_be_compared_with_all_others(tmp_path):
    """Of two copies of one image approved at the same time, the second is not stored."""
    with Decisions(tmp_path) as ours, Decisions(tmp_path) as theirs:
        theirs.approve(decision("t1", "p1"), ())
        assert ours.approve(decision("t0", "p0"), ()) == {"d-p1"}
        assert len(ours.standing()) == 1
        assert ours.approve(decision("t0", "p0"), {"d-p1"}) == frozenset()
        assert [each.pool for each in theirs.standing()] == ["p1", "p0"]


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
        ours.approve(decision("=t0", "p0"), ())
        ours.reject(decision("t1", "p1", "rejected"))
        ours.undo("ada")
        ours.reject(decision("t1", "p2", "rejected", how="machine"))
        before = ours.standing()
    (tmp_path / FILE).unlink()
    with Decisions(tmp_path) as again:
        assert again.standing() == before
        with pytest.raises(AlreadyDecided):
            again.approve(decision("=t0", "p3"), {"d-p0"})
    (tmp_path / FILE).unlink()
    (tmp_path / PLAIN).write_text("decision,test\napproved,x\n")
    with pytest.raises(VisleakError, match=r"replacements\.csv cannot be read \(its columns are"):
        Decisions(tmp_path)


def test_cells_are_not_formulas(tmp_path):
    with Decisions(tmp_path) as ours:
        ours.approve(decision("=cmd()", "<img src=x>", label="+1"), ())
    assert "\n=cmd" not in (tmp_path / PLAIN).read_text()
    row = plain(tmp_path)[0]
    assert (row["test"], row["pool"], row["class"]) == ("=cmd()", "<img src=x>", "+1")


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


def test_invalid_decisions_are_refused():
    with pytest.raises(ValueError, match="a decision is approved or rejected"):
        decision(verdict="withdrawn")
    with pytest.raises(ValueError, match="how must be one of person, machine; got 'both'"):
        decision(how="both")
    with pytest.raises(UsageError, match="a reviewer is called by one line"):
        decision(reviewer=" ")


MOVES = st.lists(
    st.tuples(st.sampled_from("arwu"), st.integers(0, 4), st.integers(0, 5), st.sampled_from("xy")),
    max_size=25,
)


@settings(max_examples=20)
@given(moves=MOVES)
def test_any_sequence_of_decisions(tmp_path_factory, moves):
    model: list[list] = []  # [verdict, test, pool, reviewer, stands]
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
