"""Candidates that are offered, approvals, and the automatic selection."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import visleak
from planted_pool import darker, plant, png, scene, store
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.images import content_digest
from visleak.remedy.pool import AlreadyDecided, Decisions
from visleak.remedy.selection import NotEligible, _encoder_name


def digest(pixels):
    return content_digest(png(pixels)).hex()


def named(selection, id_):
    ids = selection.pool.fingerprints.ids.to_pylist()
    return selection.candidates([ids.index(id_)])[0]


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


@pytest.fixture
def twins(planted, tmp_path):
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
    steps = []
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

    def approve(number):
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


def test_labels_may_be_missing(opened, tmp_path):
    store(tmp_path / "flat", "one.png", png(scene(7050)))
    selection = opened(tmp_path / "flat")
    assert not selection.by_class
    assert selection.offer(0).candidate.label is None


def test_pools_that_cannot_be_used(planted, opened, tmp_path):
    for number in range(2):
        store(tmp_path / "pool", f"lorry/{number}.png", png(scene(6000 + number)))
    with pytest.raises(UsageError, match=r"are of cat, dog, the pool has lorry; choose its column"):
        opened(tmp_path / "pool")
    with pytest.raises(VisleakError, match=r"can be used: 13 are in the audit already, 0 are bl"):
        opened(planted / "train")
    np.save(tmp_path / "emb.npy", np.eye(4, dtype=np.float32))
    with pytest.raises(UsageError, match=r"set of embeddings|no images|does not exist"):
        opened(f"emb:{tmp_path}?encoder=builtin")


def test_the_file_of_an_encoder_is_found_from_anywhere(tmp_path, monkeypatch):
    """An audit has its path relative to the folder of the run."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.onnx").touch()
    name = "onnx:models/a.onnx?prep=b.json"
    assert _encoder_name(name, tmp_path) == f"onnx:{tmp_path}/models/a.onnx?prep=b.json"
    monkeypatch.chdir(tmp_path)
    assert _encoder_name(name, tmp_path / "elsewhere") == name


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"grader": None}, "has no grades, because its pairs were not verified"),
        ({"settings": {"sample": 5}}, "an audit of a sample of 5 images; an audit of all images"),
        ({"encoder": {"digest": "0" * 32}}, r"encoder builtin has digest .* 000000000000;"),
    ],
)
def test_audits_that_cannot_be_used(opened, folder, changed, said):
    content = json.loads((folder / "audit.json").read_text())
    for name, value in changed.items():
        content[name] = value and content[name] | value
    (folder / "audit.json").write_text(json.dumps(content))
    with pytest.raises(VisleakError, match=said):
        opened()


def test_several_test_sets(planted, opened, tmp_path):
    sets = [open_images(planted / "test", name=name) for name in ("one", "two")]
    visleak.audit(sets, planted / "train", out=tmp_path / "two", workers=1, cache=planted / "cache")
    with pytest.raises(UsageError, match="one, two; one is replaced at a time: choose it with"):
        opened(at=tmp_path / "two")
    with pytest.raises(UsageError, match="set must be one of one, two; got 'val'"):
        opened(at=tmp_path / "two", set_name="val")
    selection = opened(at=tmp_path / "two", set_name="two")
    assert (selection.test_set, len(selection.duplicates.images)) == ("two", 5)


def test_images_that_changed_since(opened, tmp_path):
    root = plant(tmp_path / "own", fresh=2)
    visleak.audit(root / "test", root / "train", out=root / "audit", workers=1, cache=None)
    store(root / "train", "cat/01.png", png(scene(1)))
    (root / "train" / "cat" / "02.png").unlink()
    with pytest.raises(VisleakError, match=r"2 images of set 'train' .* changed since the audit"):
        opened(root / "pool", at=root / "audit")


@pytest.mark.parametrize("side", ["test", "train"])
def test_images_that_are_not_in_the_audit(opened, tmp_path, side):
    """Added later or repaired, they may be copies."""
    root = plant(tmp_path / "own", fresh=2)
    repaired = root / side / "cat" / "later.png"
    repaired.write_text("<html>")
    visleak.audit(root / "test", root / "train", out=root / "audit", workers=1, cache=None)
    opened(root / "pool", at=root / "audit")
    repaired.write_bytes(png(scene(1)))
    for name in ("later.png", "renamed.png"):
        repaired = repaired.rename(repaired.with_name(name))
        with pytest.raises(VisleakError, match=rf"1 image of set '{side}' .* not in the audit"):
            opened(root / "pool", at=root / "audit")


def test_a_pool_may_have_the_name_of_a_set(planted, opened, tmp_path):
    shutil.copytree(planted / "test", tmp_path / "pool-set")
    sets = [open_images(tmp_path / "pool-set", name="pool")]
    visleak.audit(sets, planted / "train", out=tmp_path / "a", workers=1, cache=planted / "cache")
    selection = opened(at=tmp_path / "a")
    assert selection.pool.fingerprints.set == "pool+"
    assert len(selection.duplicates.images) == 5
