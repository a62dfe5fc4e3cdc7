"""Judging, undo, progress and neighbours, without a browser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reviewed import Browser, make_audit

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES
from visleak.review.listing import Choice
from visleak.review.session import ROW, Progress, ReviewSession
from visleak.storage import PAIRS, PAIRS_SCHEMA, read_summary, write_tables
from visleak.verdicts import Ledger, Verdict, judged_pairs, read_verdicts

ALL = Choice(sort="distance")


def test_a_verdict_is_on_disk_and_counts_downstream(session: ReviewSession, folder: Path) -> None:
    assert session.first(ALL) == 0
    session.judge([0], "different")
    (kept,) = read_verdicts(folder)
    assert (kept.judgment, kept.reviewer, kept.key) == ("different", "ada", session.listing.key(0))
    row = session.listing.row(0)
    assert (kept.query_set, kept.query) == (row["query_set"], row["query"])
    assert kept.similarity == pytest.approx(row["similarity"])
    table = judged_pairs(folder, ["query", "reference", "grade", "judged"]).to_pylist()
    human = [row for row in table if row["judged"] == "human"]
    assert [row["grade"] for row in human] == ["different"] * (1 + int(session.listing.repeats[0]))
    assert session.first(ALL) == 1


def test_no_verdict_on_an_image_that_cannot_be_shown(
    natural: dict[str, np.ndarray], tmp_path: Path
) -> None:
    folder = make_audit(tmp_path, natural)
    with ReviewSession(folder, "ada") as session:
        row = session.listing.row(0)
        file = tmp_path / "test" / row["query"]
        whole = file.read_bytes()
        file.unlink()
        with pytest.raises(UsageError, match="cannot be shown"):
            session.judge([0], "near")
        file.write_bytes((tmp_path / "train" / "r00.png").read_bytes())
        with pytest.raises(UsageError, match="content has changed"):
            session.judge([0], "near")
        assert session.standing().verdicts == ()
        file.write_bytes(whole)
        session.judge([0], "near")
        assert len(session.standing().verdicts) == 1


def test_undo_keeps_earlier_verdicts(folder: Path) -> None:
    """A list of hundreds that was imported under one's name is one batch of the ledger."""
    with ReviewSession(folder, "ada") as session:
        session.judge([0, 1, 2], "near")
    with ReviewSession(folder, "ada") as session:
        assert session.undo() == ()
        session.judge([3], "near")
        assert [v.key for v in session.undo()] == [session.listing.key(3)]
        assert session.undo() == ()
        assert int((session.standing().mine >= 0).sum()) == 3


def test_verdicts_of_another_process_are_seen(session: ReviewSession, folder: Path) -> None:
    session.judge([0], "near")
    assert not session.standing().disputed.any()
    with Ledger(folder) as other:
        other.add(Verdict.of(*session.listing.key(0), "different", "ben"))
        assert session.standing().disputed[0]
        assert session.rows(Choice(state="disputed")).tolist() == [0]
        assert session.standing().mine[0] == GRADES.index("near")
        assert session.agreement().disputed == 1


def test_what_is_added_in_memory_is_what_the_file_says(session: ReviewSession) -> None:
    """The verdicts are not read again after each judgment; they must not drift apart."""
    rng = np.random.default_rng(5)
    with Ledger(session.folder) as other:
        for row in range(6):
            judgment = GRADES[rng.integers(4)]
            other.add(Verdict.of(*session.listing.key(row), judgment, "ben"))
    session.standing()
    for _ in range(25):
        rows = rng.choice(9, size=rng.integers(1, 4), replace=False).tolist()
        session.judge(rows, GRADES[rng.integers(4)])
        quick = session.standing()
        assert session._standing is quick
        slow = session._read_standing()
        assert (quick.mine == slow.mine).all()
        assert (quick.disputed == slow.disputed).all()
        assert quick.by_key.keys() == slow.by_key.keys()
        for key, verdicts in slow.by_key.items():
            assert sorted(v.reviewer for v in quick.by_key[key]) == sorted(
                v.reviewer for v in verdicts
            )
    assert quick.disputed.any()
    fresh = session.agreement()
    session._standing = None
    assert session.agreement() == fresh


def test_states_filter_by_my_own_verdicts(session: ReviewSession) -> None:
    with Ledger(session.folder) as other:
        other.add(Verdict.of(*session.listing.key(5), "near", "ben"))
    session.judge([1, 4], "near")
    every = set(range(len(session.listing)))
    assert set(session.rows(Choice(state="judged")).tolist()) == {1, 4}
    assert set(session.rows(Choice(state="unjudged", sort="distance")).tolist()) == every - {1, 4}


def test_neighbours_of_a_hidden_pair_are_those_that_are_shown(session: ReviewSession) -> None:
    """A pair that was just judged leaves the list of those not judged, and one goes on from it."""
    choice = Choice(state="unjudged", sort="distance")
    session.judge([2], "near")
    spot = session.spot(2, choice)
    assert (spot.inside, spot.previous, spot.next) == (False, 1, 3)
    assert spot.total == len(session.listing) - 1
    assert session.spot(0, choice).previous is None
    assert session.spot(len(session.listing) - 1, choice).next is None
    assert session.first(Choice(label="no such class")) is None


JUDGED = st.lists(st.sampled_from([None, "different", "near"]), min_size=45, max_size=45)


class _Fixed(ReviewSession):
    """A session whose verdicts are given; only what progress looks at is there."""

    def __init__(self, grades: list[str | None]) -> None:
        codes = [-1 if each is None else GRADES.index(each) for each in grades]
        self.mine = np.array(codes, np.int8)
        self.listing = SimpleNamespace(distance=np.arange(len(grades)) / 10)  # type: ignore[assignment]
        self._fixed = lambda choice: np.ones(len(grades), bool)

    def standing(self) -> Any:
        return SimpleNamespace(mine=self.mine)


@given(JUDGED)
def test_the_run_is_that_of_the_slow_way(grades: list[str | None]) -> None:
    """Different ones in a row up to the farthest judged pair; those passed over are counted."""
    progress = _Fixed(grades).progress(ALL)
    judged = [n for n, each in enumerate(grades) if each]
    run = 0
    for number in reversed(judged):
        if grades[number] != "different":
            break
        run += 1
    assert (progress.judged, progress.total, progress.run) == (len(judged), len(grades), run)
    assert progress.passed_over == (judged[-1] + 1 - len(judged) if judged else 0)
    assert progress.distance == (judged[-1] / 10 if judged else None)
    assert progress.may_stop == (run >= ROW)


def test_progress_of_nothing() -> None:
    assert not Progress(0, 0, 0, 0, None).may_stop


def test_a_pair_that_only_people_named_is_in_the_list(folder: Path) -> None:
    with ReviewSession(folder, "ada") as session:
        known = {session.listing.key(row) for row in range(len(session.listing))}
        images = session.listing.images.to_pylist()
        tests = [each for each in images if each["set"] == "test"]
        trains = [each for each in images if each["set"] == "train"]
        left, right = next(
            (a, b)
            for a in tests
            for b in trains
            if tuple(sorted((a["digest"], b["digest"]))) not in known
        )
    with Ledger(folder) as ledger:
        ledger.add(Verdict.of(left["digest"], right["digest"], "near", "ben"))
    with ReviewSession(folder, "ada") as session:
        row = session.listing.find(f"{left['digest']}-{right['digest']}")
        assert row is not None
        assert session.listing.grade[row] == -1
        assert np.isnan(session.listing.probability[row])
        # without a similarity it comes last
        assert row == len(session.listing) - 1 or not np.isnan(session.listing.distance[row])


def test_errors_are_one_line(finished: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no finished audit"):
        ReviewSession(tmp_path, "ada")
    with pytest.raises(UsageError, match="a reviewer is called by one line"):
        ReviewSession(finished, " ")
    with (
        ReviewSession(folder, "ada") as session,
        pytest.raises(UsageError, match="a judgment is one of"),
    ):
        session.judge([0], "same")


def test_a_missing_source_is_reported_at_once(folder: Path, finished: Path) -> None:
    summary = folder / "audit.json"
    summary.write_text(summary.read_text().replace("train.csv", "gone.csv"))
    assert "gone.csv" in refusal(VisleakError, ReviewSession, folder, "ada")


def test_sets_of_embeddings_are_left_out(folder: Path) -> None:
    """They have digests of the bytes they were made of, and no images."""
    path = folder / "audit.json"
    summary = json.loads(path.read_text())
    pairs = pq.read_table(folder / PAIRS).to_pylist()
    summary["sets"][1]["pictures"] = False
    path.write_text(json.dumps(summary))
    with ReviewSession(folder, "ada") as session:
        assert session.listing.within.all()
        assert session.listing.left_out == sum(row["coverage"] != "within" for row in pairs)
    summary["sets"][0]["pictures"] = False
    path.write_text(json.dumps(summary))
    with pytest.raises(VisleakError, match="compares embeddings: there are no images to"):
        ReviewSession(folder, "ada")


def test_an_audit_without_a_pair_has_pages(folder: Path) -> None:
    write_tables(folder / PAIRS, PAIRS_SCHEMA, [PAIRS_SCHEMA.empty_table()])
    replace(read_summary(folder), files=None).save(folder)
    with ReviewSession(folder, "ada") as session:
        browser = Browser.at(session)
        assert "There is no pair to review" in browser.page("/pairs")
        assert "There is no pair to review" in browser.page("/sheet")
        assert "0 of 0 pairs judged" in browser.page("/result")
    with ReviewSession(folder, "ada", "nearest") as session:
        assert len(session.listing) == 0
