"""Candidates that are offered, approvals, and the automatic selection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import visleak
from planted_pool import darker, plant, png, scene, store
from visleak.encoders import load_encoder
from visleak.errors import UsageError
from visleak.images import content_digest
from visleak.records import VIEWS
from visleak.remedy.pool import AlreadyDecided, Decisions
from visleak.remedy.selection import NotEligible, Selection


def digest(pixels: np.ndarray) -> str:
    return content_digest(png(pixels)).hex()


def named(selection: Selection, id_: str):
    ids = selection.pool.fingerprints.ids.to_pylist()
    return selection.candidates([ids.index(id_)])[0]


def test_the_planted_duplicates_need_a_replacement(opened):
    """Of the pair within test only one image; the blank test image is excluded."""
    selection = opened()
    planted = ["cat/00.png", "cat/01.png", "cat/02.png", "dog/06.png", "dog/07.png"]
    assert [each.id for each in selection.duplicates.images] == planted
    assert selection.duplicates.blank == 1
    counts = [(c.label, c.duplicates, c.replaced, c.candidates_left) for c in selection.counts()]
    assert counts == [("cat", 3, 0, 8), ("dog", 2, 0, 6)]
    assert selection.label_of("train", "dog/07.png") == "dog"


def test_images_of_the_audit_are_not_candidates(opened):
    selection = opened()
    pool = selection.pool
    assert (pool.known, pool.repeated, pool.blank, pool.unreadable) == (1, 1, 1, 1)
    assert selection.row_of(digest(scene(103))) is None
    for copy, of in (("train", "train/cat/04.png"), ("test", "test/cat/03.png")):
        candidate = named(selection, f"cat/copy-of-{copy}.png")
        assert candidate.objection == f"not eligible: near copy of {of}"
        with pytest.raises(NotEligible, match=f"copy-of-{copy}.png: not eligible: near copy of"):
            selection.approve(0, candidate.digest, "ada")
    assert named(selection, "cat/new0.png").objection == ""


def test_three_nearest_are_those_of_brute_force(opened):
    """All similarities over all views, worked out one by one."""
    selection = opened()
    encoder = load_encoder("builtin")
    row = int(selection.pool.queues["dog"][0])
    seen = [
        encoder.view(selection.pool.fingerprints.matrix[[row]], view)[0].astype(np.float64)
        for view in range(len(VIEWS))
    ]
    far = []
    for name in ("test", "train"):
        prints = selection.material[name].fingerprints
        for id_, vector in zip(prints.ids.to_pylist(), prints.matrix, strict=True):
            best = max(float(view @ vector.astype(np.float64)) for view in seen)
            far.append((-np.float32(best), name, id_))
    want = sorted(far)[:3]
    (candidate,) = selection.candidates([row])
    assert [(near.set, near.id) for near in candidate.nearest] == [each[1:] for each in want]
    assert [near.similarity for near in candidate.nearest] == pytest.approx([-s[0] for s in want])
    assert candidate.nearest[0].distance == pytest.approx(
        np.sqrt(2 - 2 * candidate.nearest[0].similarity)
    )


@pytest.fixture
def twins(planted: Path, tmp_path: Path) -> Path:
    """A pool of one class with one scene in four files: other bytes, processed, mirrored."""
    for name, data in {
        "one": png(scene(4000)),
        "other-bytes": png(scene(4000), level=1),
        "darker": png(darker(scene(4000))),
        "mirrored": png(np.ascontiguousarray(scene(4000)[:, ::-1])),
        "free": png(scene(4001)),
    }.items():
        store(tmp_path / "twins", f"cat/{name}.png", data)
    return tmp_path / "twins"


def test_replacements_do_not_duplicate_each_other(opened, twins):
    """Once one is approved, its copies become ineligible; when it is withdrawn, they are free."""
    selection = opened(twins)
    copies = ("other-bytes", "darker", "mirrored")
    assert all(named(selection, f"cat/{name}.png").objection == "" for name in copies)
    selection.approve(0, named(selection, "cat/one.png").digest, "ada")
    objections = [named(selection, f"cat/{name}.png").objection for name in copies]
    words = ("exact", "near", "near")
    assert objections == [f"not eligible: {word} copy of pool/cat/one.png" for word in words]
    assert named(selection, "cat/darker.png").nearest[0].set == "pool"
    offer = selection.offer(1)
    assert offer.candidate.id == "cat/free.png"
    assert {each.id for each in offer.passed} <= {f"cat/{name}.png" for name in copies}
    assert selection.undo("ada").pool == "cat/one.png"
    assert named(selection, "cat/darker.png").objection == ""


def test_when_a_class_has_no_candidates_left(opened, twins):
    selection = opened(twins)
    assert selection.choose(lambda done, total: None) == 2
    offer = selection.offer(2)
    assert (offer.candidate, len(offer.passed), offer.left) == (None, 3, 3)
    dog = selection.offer(3)
    assert (dog.candidate, dog.passed, dog.left) == (None, (), 0)


def test_candidates_come_in_the_order_of_the_pool(opened):
    selection = opened()
    queue = selection.pool.queues["cat"].tolist()
    eligible = [row for row in queue if not selection.candidates([row])[0].objection]
    seen, after = [], None
    for _ in eligible:
        candidate = selection.offer(0, after).candidate
        seen.append(candidate.row)
        after = candidate.digest
    assert seen == eligible
    assert selection.offer(0, after).candidate.row == eligible[0]
    third = selection.candidates([eligible[2]])[0]
    selection.reject(0, third.digest, "ada")
    # a rejected candidate has a successor, and is not offered again
    assert selection.offer(0, third.digest).candidate.row == eligible[3]
    assert third.row not in {selection.offer(p).candidate.row for p in range(3)}


def test_approving_is_checked_on_the_server(opened):
    selection = opened()
    dog = selection.candidates([int(selection.pool.queues["dog"][0])])[0]
    with pytest.raises(UsageError, match=f"{dog.id} of the pool is not of the class cat"):
        selection.approve(0, dog.digest, "ada")
    with pytest.raises(UsageError, match="no usable image of the pool has the content 'x'"):
        selection.approve(0, "x", "ada")
    selection.approve(3, dog.digest, "ada")
    with pytest.raises(AlreadyDecided, match=r"dog/.* of the pool has a decision already"):
        selection.approve(4, dog.digest, "bob")
    shown = selection.offer(3)
    assert shown.approved.pool == shown.candidate.id == dog.id
    assert shown.candidate.objection == ""
    assert selection.withdraw(3).pool == dog.id
    assert selection.offer(3).approved is None


def test_the_first_eligible_candidate_is_selected_automatically(opened):
    selection = opened()
    rows = selection.pool.queues["cat"].tolist()
    queue = [each for each in selection.candidates(rows) if not each.objection]
    mine, rejected = queue[4], queue[0]
    selection.approve(1, mine.digest, "ada")
    selection.reject(1, rejected.digest, "ada")
    steps: list[tuple[int, int]] = []
    assert selection.choose(lambda done, total: steps.append((done, total))) == 4
    assert steps[-1] == (5, 5)
    left = [each.id for each in queue if each not in (mine, rejected)]
    chosen = {each.test: each for each in selection.approvals().values()}
    assert [chosen[f"cat/0{n}.png"].pool for n in (0, 1, 2)] == [left[0], mine.id, left[1]]
    assert [chosen[f"cat/0{n}.png"].how for n in (0, 1, 2)] == ["machine", "person", "machine"]
    assert len({each.pool for each in chosen.values()}) == 5


def test_two_pages_at_once_never_approve_copies(opened, twins):
    """Of four copies of one scene, two sessions can approve only one."""
    pages = [opened(twins), opened(twins)]
    ids = ["one", "other-bytes", "darker", "mirrored"]
    digests = [named(pages[0], f"cat/{name}.png").digest for name in ids]

    def approve(number: int) -> bool:
        try:
            pages[number % 2].approve(number % 3, digests[number % 4], "ada")
        except (NotEligible, AlreadyDecided):
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(approve, range(12)))
    assert sum(done) == 1
    assert len(pages[0].approvals()) == 1


def test_an_approval_may_become_invalid(planted, opened, twins, folder):
    first = opened(twins)
    approved = first.approve(0, named(first, "cat/one.png").digest, "ada")
    assert first.objection(approved) == ""
    other = opened()
    assert other.objection(approved) == "not in this pool"
    shown = other.offer(0)
    assert (shown.approved.pool, shown.candidate) == ("cat/one.png", None)
    copy = named(first, "cat/darker.png")
    with Decisions(folder) as decisions:
        late = first._decision("approved", 1, copy.digest, "bob", "person")
        decisions.approve(late, {approved.pool_digest})
    assert first.objection(approved) == ""
    assert first.objection(late) == "not eligible: near copy of pool/cat/one.png"


def test_labels_may_be_missing(planted, opened, tmp_path):
    flat = tmp_path / "flat"
    for path in (planted / "pool").rglob("new*.png"):
        store(flat, f"{path.parent.name}-{path.name}", path.read_bytes())
    selection = opened(flat)
    assert not selection.by_class
    assert len(selection.offer(0).candidate.nearest) == 3
    assert selection.counts()[0].candidates_left == 12


def test_sets_without_a_training_side(opened, tmp_path):
    plant(tmp_path / "alone")
    visleak.audit(tmp_path / "alone" / "test", out=tmp_path / "a", workers=1, cache=None)
    selection = opened(tmp_path / "alone" / "pool", at=tmp_path / "a")
    assert [each.id for each in selection.duplicates.images] == ["dog/07.png"]
    assert selection.choose(lambda done, total: None) == 1
