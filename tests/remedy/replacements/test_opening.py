"""What cannot be worked with is refused in one line, before anything is asked of anybody."""

from __future__ import annotations

import json
import shutil

import pytest

import visleak
from planted_pool import plant, png, scene, store
from visleak.errors import UsageError, VisleakError
from visleak.remedy.opening import _encoder_name


def changed(folder, **values):
    path = folder / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_pool_of_other_classes(planted, opened, tmp_path):
    for number in range(2):
        store(tmp_path / "pool", f"lorry/{number}.png", png(scene(6000 + number)))
    with pytest.raises(
        UsageError,
        match=r"no class is in both: the duplicates are of cat, dog, the pool has lorry; choose"
        r" its column with --label",
    ):
        opened(tmp_path / "pool")


def test_a_pool_that_is_in_the_audit(planted, opened):
    with pytest.raises(
        VisleakError,
        match=r"no image of the pool can be used: 13 are in the audit already, 0 are blank, 0",
    ):
        opened(planted / "train")


def test_the_file_of_an_encoder_is_found_from_anywhere(tmp_path, monkeypatch):
    """An audit notes it as it was given, relative to where the audit was made."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.onnx").touch()
    name = "onnx:models/a.onnx?prep=b.json"
    assert _encoder_name(name, tmp_path) == f"onnx:{tmp_path}/models/a.onnx?prep=b.json"
    monkeypatch.chdir(tmp_path)
    assert _encoder_name(name, tmp_path / "elsewhere") == name


def test_a_pool_of_embeddings(opened, tmp_path):
    import numpy as np

    np.save(tmp_path / "emb.npy", np.eye(4, dtype=np.float32))
    with pytest.raises(UsageError, match=r"set of embeddings|no images|does not exist"):
        opened(f"emb:{tmp_path}?encoder=builtin")


def test_an_audit_without_grades(opened, folder):
    changed(folder, grader=None)
    with pytest.raises(UsageError, match="audited without verification, so no pair has a grade"):
        opened()


def test_an_audit_of_a_sample(opened, folder):
    used = json.loads((folder / "audit.json").read_text())["settings"]
    changed(folder, settings=used | {"sample": 5})
    with pytest.raises(UsageError, match="an audit of a sample of 5 images; replacing duplicates"):
        opened()


def test_another_encoder(opened, folder):
    changed(folder, encoder={"name": "builtin", "digest": "0" * 32, "width": 560})
    with pytest.raises(VisleakError, match=r"encoder builtin has digest .* 000000000000; audit"):
        opened()


def test_an_unknown_test_set(opened):
    with pytest.raises(UsageError, match="set must be one of test; got 'val'"):
        opened(set_name="val")


def test_several_test_sets(planted, opened, tmp_path):
    from visleak.formats import open_images

    sets = [open_images(planted / "test", name=name) for name in ("one", "two")]
    visleak.audit(sets, planted / "train", out=tmp_path / "two", workers=1, cache=planted / "cache")
    with pytest.raises(UsageError, match="one, two; one is replaced at a time: choose it with"):
        opened(at=tmp_path / "two")
    selection = opened(at=tmp_path / "two", set_name="two")
    assert (selection.test_set, len(selection.duplicates.images)) == ("two", 5)


def test_images_that_changed_since(opened, tmp_path):
    root = plant(tmp_path / "own", fresh=2)
    visleak.audit(root / "test", root / "train", out=root / "audit", workers=1, cache=None)
    store(root / "train", "cat/01.png", png(scene(1)))
    (root / "train" / "cat" / "02.png").unlink()
    with pytest.raises(
        VisleakError, match=r"2 images of set 'train' .* changed since the audit; audit"
    ):
        opened(root / "pool", at=root / "audit")


@pytest.mark.parametrize("side", ["test", "train"])
def test_images_that_the_audit_did_not_see(opened, tmp_path, side):
    """Added later, or repaired: a copy among them would be in the fair test set."""
    root = plant(tmp_path / "own", fresh=2)
    repaired, content = root / side / "cat" / "later.png", png(scene(1))
    repaired.write_text("<html>")
    visleak.audit(root / "test", root / "train", out=root / "audit", workers=1, cache=None)
    opened(root / "pool", at=root / "audit")
    repaired.write_bytes(content)
    with pytest.raises(VisleakError, match=rf"1 image of set '{side}' .* not in the audit; audit"):
        opened(root / "pool", at=root / "audit")
    repaired.rename(repaired.with_name("renamed.png"))
    with pytest.raises(VisleakError, match=rf"1 image of set '{side}' .* not in the audit; audit"):
        opened(root / "pool", at=root / "audit")


def test_a_pool_may_be_called_like_a_set(planted, opened, tmp_path):
    from visleak.formats import open_images

    shutil.copytree(planted / "test", tmp_path / "pool-set")
    visleak.audit(
        [open_images(tmp_path / "pool-set", name="pool")],
        planted / "train",
        out=tmp_path / "a",
        workers=1,
        cache=planted / "cache",
    )
    selection = opened(at=tmp_path / "a")
    assert selection.pool.fingerprints.set == "pool+"
    assert len(selection.duplicates.images) == 5
