"""Bounded verification: rounds, what is skipped and reported, and what must not matter."""

from __future__ import annotations

import os
import shutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from frames import scene, write, write_frames

from visleak.auditing import audit
from visleak.pipeline import selection, verification
from visleak.pipeline.selection import (
    ACROSS,
    CONNECTED,
    LIMITED,
    STOPPED,
    VERIFIED,
    WITHIN,
    Candidates,
    Rounds,
)
from visleak.remedy import PurgeSettings, purge
from visleak.settings import Settings
from visleak.storage import IMAGES, PAIRS
from visleak.verification import check

FRAMES = 14


def candidates(pair, query, reference, score, votes=0, *, within=False):
    """Return candidates of arrays of one length."""
    columns = (pair, np.int64), (query, np.int32), (reference, np.int32), (score, np.float32)
    votes = np.broadcast_to(np.float32(votes), len(pair)).astype(np.float32)
    return Candidates(*(np.array(values, kind) for values, kind in columns), votes, within)


def played(entries, sizes, near):
    """Return the pairs of each round, where those of ``near`` are found to be near."""
    rounds, seen = Rounds(entries, sizes), []
    while len(due := rounds.due()):
        seen.append(due.tolist())
        rounds.proceed(np.isin(due, near))
    return seen, rounds


def test_the_best_by_score_and_by_votes_take_turns():
    entries = candidates(
        pair=range(6),
        query=[0, 0, 0, 0, 0, 7],
        reference=range(10, 16),
        score=[0.9, 0.8, 0.7, 0.1, 0.0, 0.5],
        votes=[0, 0, 0, 5, 9, 0],
    )
    edges, position = entries.ranked()
    assert position.tolist() == [0, 4, 1, 3, 2, 5]
    assert edges[:8].tolist() == [0, *[5] * 7]


def test_an_image_proceeds_while_its_rounds_find_something():
    """Image 0 has candidates 0 to 5, image 1 has 6 to 8; rounds of one, one and two."""
    entries = candidates(range(9), [0] * 6 + [1] * 3, range(10, 19), np.linspace(1, 0, 9))
    seen, rounds = played(entries, (1, 1, 2), near=[0, 1, 3])
    assert seen == [[0, 6], [1], [2, 3]]
    assert rounds.skipped(10).tolist() == [
        *[VERIFIED] * 4, *[LIMITED] * 2, VERIFIED, *[STOPPED] * 2, VERIFIED,
    ]  # fmt: skip


def test_a_pair_within_a_set_is_a_candidate_of_both_images():
    """Pair 1 is the best of image 2 and the second of image 1, which is finished by then."""
    entries = candidates([0, 1, 2], [0, 1, 0], [1, 2, 3], [0.9, 0.8, 0.1], within=True)
    seen, rounds = played(entries, (1, 1), near=[])
    assert seen == [[0, 1, 2]]
    assert rounds.skipped(3).tolist() == [VERIFIED] * 3


def test_pairs_that_near_pairs_connect_are_left_out():
    """Images 0 to 3 are one scene: the first round ties them, and 4 comes in the second."""
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 4)]
    query, reference = zip(*pairs, strict=True)
    entries = candidates(range(7), query, reference, np.linspace(1, 0, 7), within=True)
    seen, rounds = played(entries, (1, 2, 2), near=range(7))
    assert seen == [[0, 1, 2, 6]]
    assert rounds.skipped(7).tolist() == [*[VERIFIED] * 3, *[CONNECTED] * 3, VERIFIED]


def test_connected_candidates_do_not_count():
    """What query 1 connects leaves room for other candidates of query 0."""
    pairs = [(0, 10), (1, 10), (1, 11), (0, 11), (0, 12)]
    query, reference = zip(*pairs, strict=True)
    entries = candidates(range(5), query, reference, [0.9, 0.8, 0.7, 0.6, 0.5])
    seen, rounds = played(entries, (1, 1, 1), near=range(5))
    assert seen == [[0, 1], [2, 3], [4]]
    seen, rounds = played(entries, (2, 2), near=[0, 1, 2])
    assert seen == [[0, 1, 2, 3], [4]]
    assert rounds.skipped(5).tolist() == [VERIFIED] * 5


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_parts_do_not_matter(within, seed, monkeypatch):
    """Candidates are ranked in parts of their images, some of which have more than a part."""
    rng = np.random.default_rng(seed)
    count = 300
    query = np.minimum(rng.integers(0, 30, count), rng.integers(0, 30, count))
    reference = rng.integers(31, 60, count) if not within else query + rng.integers(1, 30, count)
    pair, score = np.cumsum(rng.integers(1, 4, count)), rng.random(count).round(1)
    votes = rng.integers(0, 4, count) * rng.integers(0, 2, count)
    entries = candidates(pair, query, reference, score, votes, within=within)
    near = rng.choice(entries.pair, 60, replace=False)
    whole, rounds = played(entries, (2, 3, 5), near)
    assert len(whole) > 1
    assert len(set(rounds.skipped(1000).tolist())) > 1
    for size in (1, 7, 50):
        monkeypatch.setattr(selection, "CHUNK", size)
        seen, parted = played(entries, (2, 3, 5), near)
        assert seen == whole
        assert parted.skipped(1000).tolist() == rounds.skipped(1000).tolist()


def write_relatives(folder, count, seed=0):
    """Write images of one layout and other contents: all similar, none near."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        own = scene(99)
        for _ in range(20):
            top, left = rng.integers(0, 60), rng.integers(0, 80)
            own[top : top + 12, left : left + 16] = rng.integers(0, 256, 3)
        write(folder, f"{number:03d}", own)


def verified(pairs):
    """Return how many pairs have a grade and are no copies."""
    reason = "could not be aligned: edges agree at no shift of this view"
    copies = pc.equal(pairs["reason"], reason)
    return pairs.filter(pc.and_(pc.is_valid(pairs["grade"]), pc.invert(copies))).num_rows


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """A static scene, audited alone."""
    root = tmp_path_factory.mktemp("static")
    write_frames(root / "frames", FRAMES)
    return audit(root / "frames", out=root / "out", cache=root / "cache", workers=1)


def test_a_static_scene_is_verified_in_part(static):
    pairs = static.pairs()
    assert static.rate("near_or_exact").count == FRAMES
    assert pairs.num_rows == FRAMES * (FRAMES - 1) // 2
    assert verified(pairs) <= 2 * WITHIN[0] * FRAMES
    missing = pairs.filter(pc.is_null(pairs["grade"]))
    assert missing.num_rows
    assert missing["probability"].null_count == missing.num_rows
    assert missing["matrix"].null_count == missing.num_rows
    assert all("connect" in reason for reason in missing["reason"].to_pylist())
    summary = static.summary.as_dict()
    about = summary["verification"]
    assert about["connected"] == missing.num_rows
    assert about["stopped"] == about["limited"] == 0
    assert any(f"{missing.num_rows:,} candidates" in line for line in summary["skipped"])
    assert static.images()["pairs_total"].to_pylist() == [FRAMES - 1] * FRAMES


def test_images_without_near_ones_cost_one_round(tmp_path):
    write_relatives(tmp_path / "s", 20)
    found = audit(tmp_path / "s", out=tmp_path / "out", cache=None, workers=1)
    pairs = found.pairs()
    assert found.rate("near_or_exact").count == 0
    assert pairs["grade"].null_count
    assert verified(pairs) <= WITHIN[0] * 20
    assert found.summary.as_dict()["verification"]["stopped"] == pairs["grade"].null_count
    assert found.summary.as_dict()["verification"]["limited"] == 0


def test_one_query_is_verified_up_to_the_limit(tmp_path):
    """A test frame and more training frames of one camera: no other query connects them."""
    count = sum(ACROSS) + 4
    write_frames(tmp_path / "test", 1, seed=1)
    write_frames(tmp_path / "train", count, seed=2)
    sides = tmp_path / "test", tmp_path / "train"
    found = audit(*sides, out=tmp_path / "out", cache=None, workers=1)
    grades = Counter(found.pairs()["grade"].to_pylist())
    assert grades == {"near": sum(ACROSS), None: 4}
    assert found.summary.as_dict()["verification"]["limited"] == 4
    plan = purge(found.folder, PurgeSettings(remove_from="train"))
    assert len(plan.sets[0].removed) == sum(ACROSS)
    assert any("may be near or exact" in line for line in plan.caveats)


def test_queries_of_one_scene_share_the_work(tmp_path):
    write_frames(tmp_path / "test", 6, seed=1)
    write_frames(tmp_path / "train", 20, seed=2)
    sides, own = (tmp_path / "test", tmp_path / "train"), Settings(within=False)
    found = audit(*sides, settings=own, out=tmp_path / "out", cache=None, workers=1)
    assert found.rate("near").count == 6
    about = found.summary.as_dict()["verification"]
    assert about["connected"]
    assert about["limited"] == 0
    assert purge(found.folder, PurgeSettings(remove_from="train")).sets[0].stays == 0


def test_copies_of_a_near_duplicate_are_checked_once(tmp_path, monkeypatch):
    write_frames(tmp_path / "test", 1, seed=1)
    write_frames(tmp_path / "train", 1, seed=2)
    for folder in ("test", "train"):
        for number in range(1, 9):
            shutil.copy(tmp_path / folder / "f000.png", tmp_path / folder / f"{number:03d}.png")
    calls, real = [], check.check_pairs
    monkeypatch.setattr(check, "check_pairs", lambda pairs: calls.extend(pairs) or real(pairs))
    found = audit(tmp_path / "test", tmp_path / "train", cache=None, workers=1)
    assert len(calls) == 1
    pairs = found.pairs(grade="near")
    across = pairs.filter(pc.not_equal(pairs["coverage"], "within"))
    assert across["grade"].to_pylist() == ["near"] * 81
    assert found.rate("near").count == 9


def test_cached_evidence_on_skipped_pairs_changes_nothing(static, tmp_path, monkeypatch):
    """A cache with evidence on all pairs gives the tables of an empty one."""
    monkeypatch.setattr(verification, "sizes_for", lambda pairs: (10**6,))
    frames = static.folder.parent / "frames"
    whole = audit(frames, out=tmp_path / "all", cache=tmp_path / "cache", workers=1)
    assert not whole.pairs()["grade"].null_count
    monkeypatch.undo()
    again = audit(frames, out=tmp_path / "again", cache=tmp_path / "cache", workers=1)
    assert again.pairs().equals(static.pairs())


def test_gates_and_reports_take_pairs_without_a_grade(static):
    from visleak.report.findings import COLUMNS, ledger
    from visleak.verdicts import judged_pairs

    columns = judged_pairs(static.folder, COLUMNS, ())
    pairs = ledger(columns)
    missing = np.asarray(pc.is_null(columns["grade"]))
    assert missing.any()
    assert not pairs.leak[missing].any()


@pytest.mark.parametrize("split", [False, True])
def test_many_copies_stay_small(tmp_path, split):
    names = ("test", "train") if split else ("test",)
    for name in names:
        write(tmp_path / name, "0000", scene(1))
        for number in range(1, 1100):
            os.link(tmp_path / name / "0000.png", tmp_path / name / f"{number:04d}.png")
    train = tmp_path / "train" if split else None
    out = tmp_path / "out"
    found = audit(tmp_path / "test", train, settings=Settings(), out=out, cache=None)
    assert found.rate("exact").count == found.rate("exact").total == 1100
    pairs, images = found.pairs(), found.images()
    assert pairs.num_rows <= 2 * 1100
    assert pc.all(pc.equal(pairs["grade"], "exact")).as_py()
    tested = images.filter(pc.equal(images["set"], "test"))
    assert set(tested["pairs_total"].to_pylist()) == {1100 if split else 1099}
    assert (out / PAIRS).stat().st_size + (out / IMAGES).stat().st_size < 2**20
    if split:
        across = pairs.filter(pc.not_equal(pairs["coverage"], "within"))
        assert len(pc.unique(across["reference"])) == 1100
        (plan,) = purge(found.folder, PurgeSettings(remove_from="train")).sets
        assert plan.stays == 0
    else:
        ends = pa.chunked_array([*pairs["query"].chunks, *pairs["reference"].chunks])
        assert len(pc.unique(ends)) == 1100
