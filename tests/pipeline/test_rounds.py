"""Bounded verification: rounds, what is skipped and reported, and what must not matter."""

from collections import Counter

import numpy as np
import pyarrow.compute as pc
import pytest
from frames import audit_frames, scene, write, write_frames

from visleak.auditing import audit
from visleak.pipeline import selection, verification
from visleak.pipeline.selection import (
    ACROSS,
    LIMITED,
    STEP,
    STOPPED,
    VERIFIED,
    WITHIN,
    Candidates,
    Rounds,
    Steps,
)
from visleak.remedy import PurgeSettings, purge
from visleak.report.findings import COLUMNS, ledger
from visleak.verdicts import judged_pairs
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
        steps = rounds.steps(*np.full((3, len(due)), np.nan, np.float32))
        steps.proceed(np.isin(due, near))
        rounds.proceed(steps)
    return seen, rounds


def test_an_image_proceeds_while_its_rounds_find_something():
    """Image 0 has candidates 0 to 5, image 1 has 6 to 8; rounds of one, one and two."""
    entries = candidates(range(9), [0] * 6 + [1] * 3, range(10, 19), np.linspace(1, 0, 9))
    seen, rounds = played(entries, (1, 1, 2), near=[0, 1, 3])
    assert seen == [[0, 6], [1], [2, 3]]
    states = [VERIFIED] * 4 + [LIMITED] * 2 + [VERIFIED] + [STOPPED] * 2 + [VERIFIED]
    assert rounds.skipped(10).tolist() == states


@pytest.mark.parametrize(("near", "unfinished"), [([], []), ([0], []), ([0, 4], [8])])
def test_a_step_has_the_best_pairs_by_their_check_score_and_votes(near, unfinished):
    """Image 8 has six pairs, of which the last needs no fine comparison."""
    scores = np.float32([[2, 9, 8, 7, 1, np.nan], [0, 3, 2, 0, 0, 9], [5, 0, 2, 0, 0, 9]])
    steps, seen = Steps([np.full(6, 8, np.int32)], *scores), []
    while (due := np.flatnonzero(steps.due())).size:
        seen.append(due.tolist())
        steps.proceed(np.isin(due, near))
    assert seen == [[0, 1, 2, 5], [3, 4]][: 1 + bool(near)]
    assert (np.flatnonzero(steps.near).tolist(), steps.unfinished.tolist()) == (near, unfinished)


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
    assert missing["probability"].null_count == missing["matrix"].null_count == missing.num_rows
    assert all("connect" in reason for reason in missing["reason"].to_pylist())
    about = (summary := static.summary.as_dict())["verification"]
    assert about["connected"] == missing.num_rows
    assert about["stopped"] == about["limited"] == 0
    assert any(f"{missing.num_rows:,} candidates" in line for line in summary["skipped"])
    assert static.images()["pairs_total"].to_pylist() == [FRAMES - 1] * FRAMES
    # which are not counted as leaks
    columns = judged_pairs(static.folder, COLUMNS, ())
    assert not ledger(columns).leak[np.asarray(pc.is_null(columns["grade"]))].any()


def test_images_without_near_ones_cost_one_round(tmp_path):
    """Images of one layout and other contents are all similar, and none is near."""
    rng = np.random.default_rng(0)
    for number in range(20):
        own = scene(99)
        for _ in range(20):
            top, left = rng.integers(0, 60), rng.integers(0, 80)
            own[top : top + 12, left : left + 16] = rng.integers(0, 256, 3)
        write(tmp_path / "s", f"{number:03d}", own)
    found, again = (
        audit(tmp_path / "s", out=tmp_path / name, cache=tmp_path / "cache", workers=1)
        for name in ("out", "again")
    )
    pairs = found.pairs()
    assert again.pairs().equals(pairs)
    assert found.rate("near_or_exact").count == 0
    assert pairs["grade"].null_count
    assert verified(pairs) <= sum(STEP) * 20
    assert found.summary.as_dict()["verification"]["stopped"] == pairs["grade"].null_count
    assert found.summary.as_dict()["verification"]["limited"] == 0


def test_one_query_is_verified_up_to_the_limit(tmp_path):
    """No other query connects the training frames."""
    found = audit_frames(tmp_path, 1, sum(ACROSS) + 4)
    grades = Counter(found.pairs()["grade"].to_pylist())
    assert grades == {"near": sum(ACROSS), None: 4}
    assert found.summary.as_dict()["verification"]["limited"] == 4
    plan = purge(found.folder, PurgeSettings(remove_from="train"))
    assert len(plan.sets[0].removed) == sum(ACROSS)
    assert any("may be near or exact" in line for line in plan.caveats)


def test_copies_of_a_near_duplicate_are_checked_once(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    test, train = ((scene(0) + rng.normal(0, 3, (72, 96, 3))).astype(np.uint8) for _ in "ab")
    calls, real = [], check.check_pairs
    monkeypatch.setattr(check, "check_pairs", lambda pairs: calls.extend(pairs) or real(pairs))
    found = audit([test] * 9, [train] * 9, cache=None, workers=1)
    assert len(calls) == 1
    assert found.leaks()["grade"].to_pylist() == ["near"] * 81
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
